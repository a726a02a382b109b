"""What else is in a key: the moment of the call, files, ranks, the project, and what runs later."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from slurm import Cluster, File, task

LIMIT = 60.0
SCALE = 1


def script(folder: Path, text: str, name: str = "script.py") -> str:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)
    done = subprocess.run(
        [sys.executable, name], cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_key_of_a_call_in_a_batch_is_made_at_the_call(tmp_path: Path) -> None:
    text = """
from slurm import Cluster, task
scale = 1
@task(cache=True)
def f(x):
    return x * scale
if __name__ == "__main__":
    with Cluster("embedded", job_base_dir={base!r}) as cluster:
        with cluster.batch():
            first = f(5)
            scale = 2
        print(first.result(60), first.cached)
        second = f(5)
        print(second.result(60), second.cached)
"""
    said = script(tmp_path / "p", text.format(base=str(tmp_path / "jobs")))
    assert said.splitlines() == ["5 False", "10 False"]


def test_a_chain_in_a_batch_is_found_again(cluster: Cluster) -> None:
    @task(cache=True)
    def add(x: int, y: int) -> int:
        return x + y

    for cached in (False, True):
        with cluster.batch():
            last = add(add(1, 2), add(3, 4))  # type: ignore[arg-type]
        assert (last.result(LIMIT), last.cached) == (10, cached)


def test_a_file_counts_by_its_content(cluster: Cluster, tmp_path: Path) -> None:
    @task(cache=True)
    def read(file: Any) -> str:
        return Path(file).read_text()

    path = tmp_path / "data"
    path.write_text("one")
    assert read(File(path)).result(LIMIT) == "one"
    assert read(File(path)).cached
    path.write_text("two")
    again = read(File(path))
    assert (again.result(LIMIT), again.cached) == ("two", False)


def test_all_ranks_and_their_number_are_part_of_the_key(cluster: Cluster) -> None:
    @task(cache=True)
    def rank() -> int:
        return int(os.environ.get("SLURM_PROCID", "0"))

    both = rank.with_options(ntasks=2, all_ranks=True)
    assert both().result(LIMIT) == [0, 1]
    assert both().cached
    one = rank()
    assert (one.result(LIMIT), one.cached) == (0, False)


def test_two_projects_with_one_base_directory_do_not_share_what_a_text_names(
    tmp_path: Path,
) -> None:
    for name, value in (("one", 1), ("two", 2)):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "tasks.py").write_text(
            f'from slurm import task\n@task(cache="v1")\ndef train():\n    return {value}\n'
        )
        said = script(
            folder,
            "from slurm import Cluster\nfrom tasks import train\n"
            f"with Cluster('embedded', job_base_dir={str(tmp_path / 'jobs')!r}):\n"
            "    job = train()\n    print(job.result(60), job.cached)\n",
        )
        assert said == f"{value} False"


HELD = """
import os, time
from slurm import Cluster, task
from tasks import f
from waiting_for import hold
with Cluster("embedded", job_base_dir={base!r}, packaging={packaging!r}) as cluster:
    first = hold({gate!r})
    job = f.after(first)(3)
    # Edited while the job waits, and put back when it is over.
    path, text = "tasks.py", open("tasks.py").read()
    open(path, "w").write(text.replace("x + 1", "x + 2"))
    open({gate!r}, "w").close()
    value = job.result(60)
    open(path, "w").write(text)
    again = f(3)
    print(value, again.result(60), again.cached)
"""
GATE = """
import os, time
from slurm import task
@task
def hold(gate):
    while not os.path.exists(gate):
        time.sleep(0.05)
"""


@pytest.mark.parametrize(("packaging", "said"), [("none", "5 4 False"), ("auto", "4 4 True")])
def test_a_module_that_is_edited_while_the_job_waits_leaves_no_wrong_value(
    tmp_path: Path, packaging: str, said: str
) -> None:
    folder = tmp_path / "p"
    folder.mkdir()
    (folder / "tasks.py").write_text(
        "from slurm import task\n@task(cache=True)\ndef f(x):\n    return x + 1\n"
    )
    (folder / "waiting_for.py").write_text(GATE)
    told = {"base": str(tmp_path / "jobs"), "gate": str(tmp_path / "gate"), "packaging": packaging}
    assert script(folder, HELD.format(**told)) == said


def test_what_cannot_be_seen_is_not_cached_and_said_once(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    @task(cache=True)
    def run(text: str) -> Any:
        return eval(text)

    with caplog.at_level(logging.WARNING, logger="slurm"):
        for _ in range(2):
            job = run("1 + 1")
            assert (job.result(LIMIT), job.cached) == (2, False)
    told = [record.getMessage() for record in caplog.records if "not cached" in record.getMessage()]
    assert len(told) == 1
    assert "run: eval runs a text" in told[0]


INSIDE = """
import enum, dataclasses, functools
from slurm import Cluster, task, workflow
from helper import Kind, scaled
class Color(enum.Enum):
    RED = 1
    def shade(self): return self.value * 2
@dataclasses.dataclass
class Point:
    x: int
    def twice(self): return 2 * self.x
@functools.lru_cache
def helped(x): return scaled(x)
limits = {{"a": [1, 2.5], "b": Point(1)}}
@task(cache=True)
def f(x, kind):
    return helped(x) + Point(x).twice() + Color.RED.shade() + len(limits) + kind.n
@workflow
def outer():
    job = f(3, Kind(4))
    return [job.result(), job.cached]
if __name__ == "__main__":
    with Cluster("embedded", job_base_dir={base!r}):
        first = f(3, Kind(4))
        print(first.result(60), first.cached)
        print(outer().result(60))
    with Cluster("debug", job_base_dir={base!r}):
        print(f(3, Kind(4)).cached)
"""


def test_client_workflow_and_debugger_make_the_same_keys(tmp_path: Path) -> None:
    folder = tmp_path / "p"
    folder.mkdir()
    (folder / "helper.py").write_text(
        "import dataclasses\n@dataclasses.dataclass\nclass Kind:\n    n: int\n"
        "TABLE = dict(a=3)\ndef scaled(x):\n    return TABLE['a'] * x\n"
    )
    said = script(folder, INSIDE.format(base=str(tmp_path / "jobs"))).splitlines()
    assert said == ["23 False", "[23, True]", "True"]


def test_the_debugger_stores_nothing_of_a_module_that_has_changed_since_it_was_imported(
    tmp_path: Path,
) -> None:
    text = """
from slurm import Cluster
from tasks import f
text = open("tasks.py").read()
with Cluster("debug", job_base_dir={base!r}):
    open("tasks.py", "w").write(text.replace("x + 1", "x + 2"))
    print(f(3).result())
"""
    folder = tmp_path / "p"
    folder.mkdir()
    (folder / "tasks.py").write_text(
        "from slurm import task\n@task(cache=True)\ndef f(x):\n    return x + 1\n"
    )
    base = str(tmp_path / "jobs")
    assert script(folder, text.format(base=base)) == "4"
    assert (
        script(
            folder,
            "from slurm import Cluster\nfrom tasks import f\n"
            f"with Cluster('embedded', job_base_dir={base!r}):\n    print(f(3).result(60))\n",
            "later.py",
        )
        == "5"
    )


def test_where_a_call_works_and_which_variables_it_gets_counts(
    cluster: Cluster, tmp_path: Path
) -> None:
    @task(cache=True)
    def around() -> tuple[str, str | None]:
        return os.path.basename(os.getcwd()), os.environ.get("MODE")

    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    for options, value in (
        ({"workdir": str(tmp_path / "one")}, ("one", None)),
        ({"workdir": str(tmp_path / "two")}, ("two", None)),
        ({"workdir": str(tmp_path / "two"), "export": "ALL,MODE=fast"}, ("two", "fast")),
        ({"workdir": str(tmp_path / "two"), "export": "ALL,MODE=slow"}, ("two", "slow")),
    ):
        for cached in (False, True):
            job = cluster.submit(around, **options)()  # type: ignore[call-overload]
            assert (job.result(LIMIT), job.cached) == (value, cached)
