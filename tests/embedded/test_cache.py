"""Cached tasks: what was computed before is found again, by this process and by others."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slurm import Cluster, Job, OptionError, PackedArray, Task, WorkflowContext, task, workflow

LIMIT = 60.0


def counting(log: Path, **options: Any) -> Task[..., int]:
    """A cached task that leaves a line in `log` each time it really runs."""

    def double(x: int, plus: int = 0) -> int:
        with log.open("a") as f:
            f.write(f"{x}\n")
        return 2 * x + plus

    return task(**{"cache": True, **options})(double)


def runs(log: Path) -> list[int]:
    return sorted(map(int, log.read_text().split())) if log.exists() else []


def test_the_same_call_again_gives_the_stored_value_and_submits_nothing(
    cluster: Cluster, tmp_path: Path
) -> None:
    double = counting(tmp_path / "log")
    first = double(4)
    assert (first.result(LIMIT), first.cached) == (8, False)
    again = double(4)
    assert again.done()
    assert (again.result(), again.cached, again.id) == (8, True, first.id)
    assert again.state == "COMPLETED"
    assert runs(tmp_path / "log") == [4]


def test_other_arguments_are_another_call(cluster: Cluster, tmp_path: Path) -> None:
    double = counting(tmp_path / "log")
    assert double(1).result(LIMIT) == 2
    assert double(1, plus=5).result(LIMIT) == 7


def test_arguments_by_position_by_name_and_by_default_are_the_same_call(
    cluster: Cluster, tmp_path: Path
) -> None:
    double = counting(tmp_path / "log")
    double(3).result(LIMIT)
    assert double(x=3).cached
    assert double(3, plus=0).cached
    assert double(plus=0, x=3).cached


def test_a_changed_closure_is_another_function(cluster: Cluster, tmp_path: Path) -> None:
    def scaled(by: int) -> Task[..., int]:
        return task(cache=True)(lambda x: by * x)

    assert scaled(2)(5).result(LIMIT) == 10
    assert scaled(3)(5).result(LIMIT) == 15
    assert scaled(2)(5).cached


HELPED = """
from slurm import Cluster, task
from helper_of_cached import helper

@task(cache=True)
def f(x):
    return helper(x)

with Cluster("embedded", job_base_dir={base!r}):
    job = f(1)
    print(job.result(60), job.cached)
"""


def in_a_process(tmp_path: Path, code: str, *args: str) -> str:
    script = tmp_path / "script.py"
    script.write_text(code)
    done = subprocess.run(
        [sys.executable, script, *args], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_another_process_finds_the_value_until_a_function_that_is_called_changes(
    tmp_path: Path,
) -> None:
    code = HELPED.format(base=str(tmp_path / "jobs"))
    helper = tmp_path / "helper_of_cached.py"
    helper.write_text("def helper(x):\n    return x + 1\n")
    assert in_a_process(tmp_path, code) == "2 False"
    assert in_a_process(tmp_path, code) == "2 True"
    helper.write_text("# moved\n\n\ndef helper(x):\n    return x + 1\n")
    assert in_a_process(tmp_path, code) == "2 True"
    helper.write_text("def helper(x):\n    return x + 2  # other code\n")
    assert in_a_process(tmp_path, code) == "3 False"


def test_sets_and_shared_parts_have_the_same_content_in_every_process(tmp_path: Path) -> None:
    code = """
        from slurm import Cluster, task

        @task(cache=True)
        def size(words, pairs):
            return len(words) + len(pairs)

        with Cluster("embedded", job_base_dir={base!r}):
            one = "a" * 3
            job = size({{"x", "yy", "zzz", one}}, [one, "".join(["a", "aa"])])
            print(job.result(60), job.cached)
    """
    code = textwrap.dedent(code).format(base=str(tmp_path / "jobs"))
    assert in_a_process(tmp_path, code) == "6 False"
    for _ in range(3):  # each with another seed for the order of sets
        assert in_a_process(tmp_path, code) == "6 True"


def test_a_map_submits_only_what_is_missing_and_keeps_its_length(
    cluster: Cluster, tmp_path: Path
) -> None:
    double = counting(tmp_path / "log")
    double.map([1, 3]).results(LIMIT)
    array = double.map([0, 1, 2, 3, 3])
    assert array.results(LIMIT) == [0, 2, 4, 6, 6]
    assert [job.cached for job in array] == [False, True, False, True, True]
    assert runs(tmp_path / "log") == [0, 1, 2, 3]
    whole = double.map([3, 2, 1, 0])
    assert whole.done()
    assert whole.results() == [6, 4, 2, 0]
    assert all(job.cached for job in whole)


def test_calls_of_a_batch_are_looked_up_too(cluster: Cluster, tmp_path: Path) -> None:
    double = counting(tmp_path / "log")
    double(1).result(LIMIT)
    with cluster.batch():
        jobs = [double(x) for x in (1, 2)]
    assert [job.result(LIMIT) for job in jobs] == [2, 4]
    assert [job.cached for job in jobs] == [True, False]


def test_a_chain_of_cached_tasks_is_found_by_its_first_arguments(
    cluster: Cluster, tmp_path: Path
) -> None:
    double = counting(tmp_path / "log")
    last = double(double(1))
    assert last.result(LIMIT) == 4
    inner = double(1)
    assert inner.cached
    assert double(inner).cached


def test_a_text_stands_for_the_code(cluster: Cluster, tmp_path: Path) -> None:
    def version(text: str, by: int) -> Task[..., int]:
        def scaled(x: int) -> int:
            return by * x

        return task(cache=text)(scaled)

    assert version("v1", 2)(5).result(LIMIT) == 10
    assert version("v1", 3)(5).result(LIMIT) == 10
    assert version("v1", 2)(6).result(LIMIT) == 12
    assert version("v2", 3)(5).result(LIMIT) == 15


def test_a_function_of_the_arguments_makes_the_whole_key(cluster: Cluster, tmp_path: Path) -> None:
    key: Callable[..., str] = lambda x, plus=0: f"{x}"  # noqa: E731
    double = counting(tmp_path / "log", cache=key)
    assert double(1, plus=1).result(LIMIT) == 3
    assert double(1, plus=2).result() == 3


def test_a_key_that_is_no_text_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    double = counting(tmp_path / "log", cache=lambda x: x)
    with pytest.raises(OptionError, match="returned 1"):
        double(1)


def test_what_cache_cannot_be_is_refused_at_the_decorator() -> None:
    with pytest.raises(OptionError, match="cache"):
        task(cache=3)(len)  # type: ignore[call-overload]


def negative(n: int) -> int:
    return -n


def test_cleared_values_are_computed_again(cluster: Cluster, tmp_path: Path) -> None:
    double = counting(tmp_path / "log")
    other = task(cache="v1")(negative)
    double(1).result(LIMIT)
    other(-1).result(LIMIT)
    assert cluster.clear_cache(double) == 1
    assert other(-1).cached
    assert not double(1).cached
    double(1).result(LIMIT)
    assert cluster.clear_cache() == 2
    assert not other(-1).cached


def test_a_failure_is_not_kept(cluster: Cluster, tmp_path: Path) -> None:
    mark = tmp_path / "mark"

    @task(cache=True)
    def second_time(x: int) -> int:
        if not mark.exists():
            mark.touch()
            raise ValueError("the first time")
        return x

    with pytest.raises(ValueError, match="first"):
        second_time(1).result(LIMIT)
    assert second_time(1).result(LIMIT) == 1
    assert second_time(1).cached


def test_the_value_of_a_deleted_run_is_computed_again(cluster: Cluster, tmp_path: Path) -> None:
    double = counting(tmp_path / "log")
    first = double(1)
    first.result(LIMIT)
    shutil.rmtree(first.path)
    again = double(1)
    assert (again.result(LIMIT), again.cached) == (2, False)


def test_a_torn_pointer_is_no_value(cluster: Cluster, tmp_path: Path) -> None:
    double = counting(tmp_path / "log")
    double(1).result(LIMIT)
    (pointer,) = (tmp_path / "jobs" / ".cache").iterdir()
    pointer.write_text(pointer.read_text()[:10])
    assert not double(1).cached


@pytest.mark.parametrize(
    "damage",
    [
        {"place": ["FILE", 10**30, 9]},
        {"place": ["FILE", 0, 10**30]},
        {"place": ["FILE", 0, 10**14]},
        {"place": ["FILE", 0, float("inf")]},
        {"place": ["a\0b", 0, 1]},
        {"run": "a\0b"},
        {"run": "\ud800"},
    ],
    ids=str,
)
def test_a_damaged_pointer_is_no_value(
    cluster: Cluster, tmp_path: Path, damage: dict[str, Any]
) -> None:
    double = counting(tmp_path / "log")
    double(1).result(LIMIT)
    (pointer,) = (tmp_path / "jobs" / ".cache").iterdir()
    told = json.loads(pointer.read_text())
    text = json.dumps({**told, **damage}).replace("FILE", told["place"][0])
    pointer.write_text(text)
    assert not double(1).cached


def test_a_pointer_under_the_name_of_another_key_is_no_value(
    cluster: Cluster, tmp_path: Path
) -> None:
    double = counting(tmp_path / "log")
    double(1).result(LIMIT)
    (first,) = (tmp_path / "jobs" / ".cache").iterdir()
    kept = first.read_text()
    first.unlink()
    double(2).result(LIMIT)
    (second,) = (tmp_path / "jobs" / ".cache").iterdir()
    second.write_text(kept)
    again = double(2)
    assert (again.result(LIMIT), again.cached) == (4, False)


NEXT_TO_IT = """
from pathlib import Path
from slurm import task

@task(cache=True)
def read():
    return (Path(__file__).parent / "data.txt").read_text()
"""


@pytest.mark.parametrize("where", ["script", "module"])
def test_two_projects_of_the_same_code_have_values_of_their_own(tmp_path: Path, where: str) -> None:
    call = (
        "from slurm import Cluster\n"
        f"with Cluster('embedded', job_base_dir={str(tmp_path / 'jobs')!r}):\n"
        "    job = read()\n    print(job.result(60), job.cached)\n"
    )
    for name in ("one", "two"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "data.txt").write_text(name)
        (folder / "reads_next_to_it.py").write_text(NEXT_TO_IT)
        code = NEXT_TO_IT if where == "script" else "from reads_next_to_it import read\n"
        assert in_a_process(folder, code + call) == f"{name} False"


CELL = """
from slurm import Cluster, task
import sys
cell = "@task(cache='v1')\\ndef f(): return " + sys.argv[1]
exec(compile(cell, f"/tmp/ipykernel_{sys.argv[1]}/{sys.argv[1]}.py", "exec"))
with Cluster("embedded", job_base_dir=sys.argv[2]):
    job = f()
    print(job.result(60), job.cached)
"""


def test_a_cell_of_a_notebook_is_the_same_in_the_next_session(tmp_path: Path) -> None:
    assert in_a_process(tmp_path, CELL, "1", str(tmp_path / "jobs")) == "1 False"
    assert in_a_process(tmp_path, CELL, "2", str(tmp_path / "jobs")) == "1 True"


PATCHED = """
import sys
from unittest.mock import patch
from slurm import Cluster
import patched_tasks as m
if sys.argv[1] == "debug":
    {patch}
with Cluster(sys.argv[1], job_base_dir=sys.argv[2]):
    job = m.f()
    print(job.result(*([60] if sys.argv[1] != "debug" else [])), job.cached)
"""
PATCHED_TASKS = """
from slurm import task
FACTOR = 2
TABLE = {"k": 3}

class A:
    def m(self):
        return 4

def g():
    return TABLE["k"]

@task(cache=True)
def f():
    return FACTOR, g(), A().m()
"""


@pytest.mark.parametrize(
    ("how", "shared"),
    [
        ("pass", True),
        ("m.FACTOR = 9", False),
        ("m.TABLE['k'] = 9", False),
        ("m.g = lambda: 9", False),
        ("m.A.m = lambda self: 9", False),
        ("patch('patched_tasks.g', return_value=9).start()", False),
    ],
)
def test_what_a_program_patches_for_the_debugger_is_no_value_of_a_job(
    tmp_path: Path, how: str, shared: bool
) -> None:
    (tmp_path / "patched_tasks.py").write_text(PATCHED_TASKS)
    code = PATCHED.replace("{patch}", how)
    here = in_a_process(tmp_path, code, "debug", str(tmp_path / "jobs"))
    assert here == "(2, 3, 4) False" if shared else "9" in here
    job = in_a_process(tmp_path, code, "embedded", str(tmp_path / "jobs"))
    assert job == f"(2, 3, 4) {shared}"


def test_a_large_value_is_found_and_missed_when_its_file_is_gone(
    cluster: Cluster, tmp_path: Path
) -> None:
    @task(cache=True)
    def large(n: int) -> bytes:
        return bytes(n)

    first = large(2_000_000)
    first.result(LIMIT)
    again = large(2_000_000)
    assert again.cached
    assert len(again.result()) == 2_000_000
    for file in Path(first.path, "values").iterdir():
        file.unlink()
    assert not large(2_000_000).cached


RACE = """
from slurm import Cluster, task

@task(cache=True)
def f(x):
    return x * 11

with Cluster("embedded", job_base_dir={base!r}):
    print([f(x).result(60) for x in range(5)])
"""


def test_two_processes_that_race_for_the_same_keys_both_get_whole_values(
    tmp_path: Path,
) -> None:
    script = tmp_path / "script.py"
    script.write_text(RACE.format(base=str(tmp_path / "jobs")))
    clients = [
        subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    said = [client.communicate(timeout=120)[0].strip() for client in clients]
    assert said == ["[0, 11, 22, 33, 44]"] * 3
    names = [path.name for path in (tmp_path / "jobs" / ".cache").iterdir()]
    assert len(names) == 5
    assert {len(name) for name in names} == {40}


def test_a_job_that_depends_on_a_cached_one_does_not_wait(cluster: Cluster, tmp_path: Path) -> None:
    double = counting(tmp_path / "log")
    double(1).result(LIMIT)
    found: Job[int] = double(1)
    after = task(lambda x: x + 1).after(found)(found)
    assert after.result(LIMIT) == 3


# ---- in packed maps, steps and under the debugger -----------------------------------------------


def test_a_packed_map_submits_only_what_is_missing_and_few_files_say_where_values_lie(
    cluster: Cluster, tmp_path: Path
) -> None:
    double = counting(tmp_path / "log", cpus_per_task=2)
    assert double.map(range(4), pack=2).results(LIMIT) == [0, 2, 4, 6]
    array = double.map(range(2, 7), pack=2)
    assert isinstance(array, PackedArray)
    assert array.results(LIMIT) == [4, 6, 8, 10, 12]
    assert [job.cached for job in array] == [True, True, False, False, False]
    assert len(array.members) == 2
    assert [job.index for job in array] == [2, 3, 0, 1, 2]
    assert runs(tmp_path / "log") == [0, 1, 2, 3, 4, 5, 6]
    again = double.map(range(7), pack="auto")
    assert again.done() and again.wait(0)
    assert [job.result() for job in again.as_completed()] == [0, 2, 4, 6, 8, 10, 12]
    assert again.partial_results() == dict(enumerate(range(0, 14, 2)))
    assert again.members == [] and again.progress.succeeded == 7
    names = [p.name for p in Path(cluster.base, ".cache").iterdir()]
    assert names == ["packed"]


def test_cached_items_are_found_by_single_calls_as_arguments_and_after_a_clear(
    cluster: Cluster, tmp_path: Path
) -> None:
    double = counting(tmp_path / "log")
    other = task(cache="v1")(len)
    assert other("abc").result(LIMIT) == 3

    @task
    def total(values: Any) -> int:
        return sum(values)

    double.map([1, 2], pack=2).wait(LIMIT)
    single = double(2)
    assert (single.cached, single.result()) == (True, 4)
    assert "_0" in single.id and single.stdout() == ""
    array = double.map([1, 2, 3], pack=3)
    assert total(array).result(LIMIT) == 12
    assert total.after(array)([1]).result(LIMIT) == 1
    assert cluster.clear_cache(double) == 3
    assert other("abc").cached
    assert not double(2).cached


def test_a_large_value_of_a_packed_map_is_cached_and_a_failed_item_is_not(
    cluster: Cluster, tmp_path: Path
) -> None:
    log = tmp_path / "log"

    @task(cache=True)
    def big(x: int) -> bytes:
        with log.open("a") as f:
            f.write(f"{x}\n")
        if x == 2:
            raise ValueError("never kept")
        return bytes(x * (1 << 20))

    for _ in range(2):
        array = big.map([0, 1, 2, 3], pack=4)
        found = array.results(LIMIT, return_exceptions=True)
        assert [len(v) if isinstance(v, bytes) else str(v) for v in found] == [
            0, 1 << 20, "never kept", 3 << 20,
        ]  # fmt: skip
    assert [job.cached for job in array] == [True, True, False, True]
    assert runs(log) == [0, 1, 2, 2, 3]


def test_a_torn_line_of_the_cache_is_no_value(cluster: Cluster, tmp_path: Path) -> None:
    double = counting(tmp_path / "log")
    double.map(range(3), pack=3).wait(LIMIT)
    for path in Path(cluster.base, ".cache", "packed").iterdir():
        path.write_bytes(path.read_bytes()[:-9])
    assert double.map(range(3), pack=3).results(LIMIT) == [0, 2, 4]
    assert runs(tmp_path / "log") == [0, 0, 1, 1, 2, 2]


def test_a_step_is_cached_as_a_job_is(cluster: Cluster, tmp_path: Path) -> None:
    double = counting(tmp_path / "log")
    with cluster.allocate(time="5min"):
        assert double(4).result(LIMIT) == 8
        assert double.map([4, 5]).results(LIMIT) == [8, 10]
    assert double(5).cached
    assert runs(tmp_path / "log") == [4, 5]


def test_the_debugger_shares_the_cache_with_the_jobs(cluster: Cluster, tmp_path: Path) -> None:
    double = counting(tmp_path / "log")
    assert double(4).result(LIMIT) == 8
    with Cluster("debug", job_base_dir=cluster.base):
        found = double(4)
        assert (found.cached, found.result()) == (True, 8)
        fresh = double.map([4, 6])
        assert (fresh.results(), [job.cached for job in fresh]) == ([8, 12], [True, False])
        assert double(6).cached

        @task(cache=True)
        def lock() -> Any:
            import threading

            return threading.Lock()

        assert lock().result() is not None  # it cannot be kept, which is no failure here
        assert not lock().cached
    assert double(6).cached
    assert runs(tmp_path / "log") == [4, 6]


def test_a_cached_map_of_a_workflow_that_dies_runs_no_item_twice(
    cluster: Cluster, tmp_path: Path
) -> None:
    @workflow
    def doomed(folder: str, ctx: WorkflowContext) -> Any:
        # One is there before the workflow begins, and all are when it begins anew.
        one = double.map([1, 2, 3])
        packed = triple.map([1, 2, 3], pack=2)
        if ctx.attempt == 0:
            one[1].result()
            packed[1].result()
            from slurm.runner.advance import scheduler

            scheduler().requeue([os.environ["SLURM_JOB_ID"]])  # type: ignore[attr-defined]
            os.kill(os.getpid(), signal.SIGKILL)
        return [one.results(), packed.results(), ctx.attempt]

    double = counting(tmp_path / "log")

    @task(cache=True)
    def triple(x: int) -> int:
        with (tmp_path / "log").open("a") as f:
            f.write(f"{10 * x}\n")
        return 3 * x

    double(1).result(LIMIT)
    triple(3).result(LIMIT)
    assert doomed(str(tmp_path)).result(LIMIT) == [[2, 4, 6], [3, 6, 9], 1]  # type: ignore[call-arg]
    assert runs(tmp_path / "log") == [1, 2, 3, 10, 20, 30]
