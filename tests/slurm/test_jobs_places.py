"""Odd paths, names, variables and environments reach the job as they are; secrets stay secret."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slurm import Cluster, Job, errors, task
from slurm.api.backend import JobKey
from slurm.rendering import directive

SOON = 60


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("places")


@pytest.fixture
def cluster(base: Path) -> Iterator[Cluster]:
    with Cluster(job_base_dir=base) as cluster:
        yield cluster


def keys(job: Job[Any]) -> list[JobKey]:
    assert job.key is not None
    return [job.key]


# ---- paths --------------------------------------------------------------------------------------

ODD = [
    "with space",
    "double\"quote and sing'le",
    "$(touch owned) `touch owned`",
    "100% %j %% %x",
    "back\\slash \\\\ \\n %j",
    "ünïcødé 日本",
    "#hash; & | * ? ~ {a,b}",
    " leading and trailing ",
]


@pytest.mark.parametrize("name", ODD)
def test_a_base_directory_with_an_odd_name_works_end_to_end(tmp_path: Path, name: str) -> None:
    def whoami() -> str:
        print("to the log")
        return os.environ["SLURM_SDK_RUN"]

    def fail() -> None:
        raise ValueError("as always")

    base = tmp_path / name
    cluster = Cluster(job_base_dir=base)
    good, bad = cluster.submit(task(whoami))(), cluster.submit(task(fail))()
    assert good.result(SOON) == good.path == str(base / good.run)
    assert good.stdout() == "to the log\n"
    with pytest.raises(ValueError, match="as always"):
        bad.result(SOON)
    assert "as always" in bad.stderr()
    # A question to the scheduler finds the job by the same odd directory.
    assert good.id in cluster.backend.status(keys(good))
    assert Cluster(job_base_dir=base).attach(good.path).result(SOON) == good.path
    assert not list(tmp_path.rglob("owned"))
    assert [p.name for p in tmp_path.iterdir()] == [name]


def test_accounting_finds_jobs_by_odd_directories_too(tmp_path: Path) -> None:
    def quick() -> int:
        return 1

    clusters = [Cluster(job_base_dir=tmp_path / name) for name in ODD]
    jobs = [cluster.submit(task(quick))() for cluster in clusters]
    assert [job.result(SOON) for job in jobs] == [1] * len(ODD)
    for job in jobs:
        # Let accounting be what knows, as it is some minutes after a job has ended.
        scheduler: Any = job.cluster.backend.agent.scheduler  # type: ignore[attr-defined]
        scheduler.status = lambda job_ids: []
    end = time.monotonic() + SOON
    waiting = jobs
    while waiting:
        assert time.monotonic() < end, f"accounting does not find {waiting}"
        time.sleep(0.5)
        waiting = [job for job in waiting if job.id not in job.cluster.backend.status(keys(job))]


@settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.text(st.characters(codec="utf-8", exclude_characters="\n\r\0"), min_size=1, max_size=30))
def test_sbatch_reads_every_quoted_line_as_it_was_meant(tmp_path: Path, text: str) -> None:
    script = tmp_path / "script.sh"
    lines = ["#!/bin/bash", directive("comment", text), directive("job-name", "sdk-quoting")]
    script.write_text("\n".join([*lines, "true", ""]), encoding="utf-8")
    done = subprocess.run(
        ["sbatch", "--parsable", "--hold", str(script)],
        capture_output=True,
        text=True,
        timeout=SOON,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    asked = ["squeue", "-h", "-j", done.stdout.strip(), "-O", "Comment:|"]
    told = subprocess.run(asked, capture_output=True, timeout=SOON, check=True).stdout
    subprocess.run(["scancel", done.stdout.strip()], timeout=SOON, check=True)
    assert told.decode() == text + "|\n"


def test_a_base_directory_with_a_line_break_is_refused_before_anything_happens(
    tmp_path: Path,
) -> None:
    with pytest.raises(errors.OptionError, match="job_base_dir"):
        Cluster(job_base_dir=tmp_path / "two\nlines")
    assert not list(tmp_path.iterdir())


# ---- names and variables ------------------------------------------------------------------------


def test_a_job_name_reaches_slurm_as_it_is(cluster: Cluster) -> None:
    def name() -> str:
        return os.environ["SLURM_JOB_NAME"]

    odd = "a $(touch owned) \"b\" 'c' \\d %j"
    job = cluster.submit(task(name), job_name=odd)()
    assert job.result(SOON) == odd
    assert cluster.backend.status(keys(job))[job.id].name == odd


def test_a_job_name_of_two_lines_is_refused(cluster: Cluster) -> None:
    def never() -> int:
        return 1

    with pytest.raises(errors.OptionError, match="job_name"):
        cluster.submit(task(never), job_name="two\nlines")


def test_variables_reach_the_function_as_they_are(cluster: Cluster, tmp_path: Path) -> None:
    values = {
        "QUOTES": "a 'b' \"c\"",
        "LINES": "one\ntwo\n",
        "SHELL_TEXT": f"$(touch {tmp_path}/owned) `id` $HOME \\ ! *",
        "EMPTY": "",
        "UNICODE": "ünïcødé",
    }

    def read(names: list[str]) -> dict[str, str]:
        return {name: os.environ[name] for name in names}

    assert cluster.submit(task(read), env=values)(list(values)).result(SOON) == values
    assert not (tmp_path / "owned").exists()


def test_setup_lines_and_teardown_run_around_the_function(cluster: Cluster, tmp_path: Path) -> None:
    def read() -> str:
        return os.environ["FROM_SETUP"] + os.getcwd()

    mark = tmp_path / "teardown ran"
    job = cluster.submit(
        task(read),
        workdir=tmp_path,
        setup=["FROM_SETUP=$((40 + 2))", "export FROM_SETUP"],
        teardown=[f"touch '{mark}'", "false"],
    )()
    assert job.result(SOON) == f"42{tmp_path}"
    assert job.exit_code == 0
    assert mark.exists()


def test_modules_are_loaded_before_the_function(cluster: Cluster, tmp_path: Path) -> None:
    # There is no module system here: a shell function of the same name stands in for it, brought
    # into the job's bash the way such systems bring theirs, as an exported function.
    env = {**os.environ, "BASH_FUNC_module%%": '() { export LOADED="$LOADED$*;"; }'}
    script = tmp_path / "client.py"
    script.write_text(
        "import os, sys\nfrom slurm import Cluster, task\n"
        "def read():\n    return os.environ['LOADED']\n"
        "job = Cluster(job_base_dir=sys.argv[1]).submit("
        "task(read), modules=['cuda/12.1', 'gcc'])()\nprint(job.result(60))\n"
    )
    done = subprocess.run(
        [sys.executable, script, cluster.base],
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout == "load cuda/12.1;load gcc;\n", done.stderr


def test_a_module_system_that_is_missing_is_a_failed_setup(cluster: Cluster) -> None:
    def never() -> int:
        return 1

    error = cluster.submit(task(never), modules=["cuda/12.1"])().exception(SOON)
    assert isinstance(error, errors.JobFailed)
    assert "module load cuda/12.1" in "\n".join(error.evidence)


def test_the_python_of_a_virtual_environment_runs_the_function(
    cluster: Cluster, tmp_path: Path
) -> None:
    place = tmp_path / "my venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place], check=True, timeout=SOON)

    def where() -> tuple[str, str]:
        return sys.prefix, os.environ["VIRTUAL_ENV"]

    assert cluster.submit(task(where), venv=place)().result(SOON) == (str(place), str(place))


def test_a_slurm_folder_in_the_working_directory_does_not_shadow_the_sdk(
    cluster: Cluster, tmp_path: Path
) -> None:
    for name in ("slurm", "cloudpickle"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise RuntimeError('the wrong one')\n")

    def which() -> str:
        import slurm

        return str(slurm.__file__)

    found = cluster.submit(task(which), workdir=tmp_path)().result(SOON)
    assert found.startswith(cluster.base)


# ---- secrets ------------------------------------------------------------------------------------


def test_a_secret_reaches_the_job_and_is_written_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "s3cr3t-" + os.urandom(12).hex()
    monkeypatch.setenv("MY_TOKEN", secret)

    def use() -> int:
        time.sleep(1.5)
        return len(os.environ["MY_TOKEN"])

    seen: list[str] = []
    stop = threading.Event()

    def scan() -> None:
        while not stop.is_set():
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                try:
                    text = path.read_bytes()
                except OSError:
                    continue
                if secret.encode() in text:
                    seen.append(text.decode("utf-8", "replace"))
            time.sleep(0.05)

    scanner = threading.Thread(target=scan)
    scanner.start()
    try:
        base = tmp_path / "base"
        job = Cluster(job_base_dir=base).submit(task(use), secrets=("MY_TOKEN",))()
        assert job.result(SOON) == len(secret)
    finally:
        stop.set()
        scanner.join()
    assert seen == []
    files = [p for p in base.rglob("*") if p.is_file()]
    assert len(files) > 10
    assert [p for p in files if secret.encode() in p.read_bytes()] == []


def test_a_secret_that_is_not_set_is_refused_before_submission(cluster: Cluster) -> None:
    def token_user() -> int:
        return 1

    with pytest.raises(errors.OptionError, match="NO_SUCH_TOKEN"):
        cluster.submit(task(token_user), secrets=("NO_SUCH_TOKEN",))()
    # What a cluster keeps for all runs begins with a dot; a run of this task would have its name.
    assert [name for name in os.listdir(cluster.base) if "token" in name] == []
