"""`slurm plan`: a script's submissions are shown, and none of them is made."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

HEAD = """
import sys
from slurm import Cluster, task


@task(time="5min")
def part(n):
    return n


@task
def total(values):
    return sum(values)


def main():
    with Cluster("embedded", job_base_dir="jobs") as cluster:
        body(cluster)


"""


def plan(folder: Path, body: str, *words: str) -> subprocess.CompletedProcess[str]:
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    (folder / "script.py").write_text(f"{HEAD}def body(cluster):\n{lines}\n\n\nmain()\n")
    return subprocess.run(
        [sys.executable, "-c", "from slurm.cli import main; main()", "plan", *words, "script.py"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
    )


def planned(folder: Path, body: str) -> dict[str, Any]:
    done = plan(folder, body, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_plan_tells_the_arrays_the_packs_and_what_waits_for_what(tmp_path: Path) -> None:
    done = plan(
        tmp_path,
        "array = part.map(range(300), max_concurrent=7)\n"
        "job = total(array)\n"
        "part.after(job).map(range(1000), pack=100)\n"
        "print('this is the script')\n",
    )
    assert done.returncode == 0, done.stderr
    assert "  1. part: one array of 300, one call of sbatch" in done.stdout
    assert "at most 7 run at the same time" in done.stdout
    assert "  2. total: one job, one call of sbatch\n     waits for afterok:1\n" in done.stdout
    assert "1000 items in 10 jobs of 100 (pack=100), each with one warm worker" in done.stdout
    total = "3 submissions, 3 calls of sbatch\nat most 25.83 core-hours\n"
    assert done.stdout.endswith(total)
    assert done.stderr.endswith("this is the script\n")


def test_nothing_is_submitted_and_nothing_is_written(tmp_path: Path) -> None:
    found = planned(tmp_path, "part.map(range(3))\npart(1)")
    assert [one["kind"] for one in found["submissions"]] == ["array", "job"]
    assert not (tmp_path / "jobs").exists()


@pytest.mark.parametrize(
    "wait",
    [
        "job.result()",
        "job.wait()",
        "list(cluster.explain(part) and part.map([1]).as_completed())",
        "__import__('concurrent.futures').futures.wait([job])",
        "list(__import__('concurrent.futures').futures.as_completed([job]))",
        "__import__('asyncio').run(asynchronous(job))",
        "part.map(range(300), pack=100).results()",
    ],
)
def test_the_first_wait_for_a_result_ends_the_plan(tmp_path: Path, wait: str) -> None:
    body = f"async def asynchronous(job):\n    return await job\njob = part(1)\n{wait}\npart(2)"
    found = planned(tmp_path, body)
    assert found["ended"] == "the rest depends on results"
    first = len((HEAD + "def body(cluster):\n").splitlines()) + 1
    assert found["line"] == first + (1 if "asyncio" in wait else 3)
    assert len(found["submissions"]) in (1, 2)
    assert not found["complete"]


def test_a_script_that_polls_a_state_is_not_waited_for(tmp_path: Path) -> None:
    body = "import time\njob = part(1)\nwhile not job.done():\n    time.sleep(0.01)\npart(2)"
    found = planned(tmp_path, body)
    assert found["ended"] == "it waits for a job's state to change"
    assert len(found["submissions"]) == 1


def test_a_script_that_waits_for_something_else_is_ended_by_the_timeout(tmp_path: Path) -> None:
    body = "import threading\npart(1)\nthreading.Event().wait(100)"
    done = plan(tmp_path, body, "--timeout", "3")
    assert "planned up to here: the script did not go on within 3 s" in done.stdout


def test_a_batch_is_planned_as_the_arrays_that_it_becomes(tmp_path: Path) -> None:
    body = (
        "with cluster.batch():\n"
        "    first = [part(n) for n in range(10)]\n"
        "    second = [total([one]) for one in first]\n"
    )
    found = planned(tmp_path, body)
    assert [one["arrays"] for one in found["submissions"]] == [[10], [10]]
    assert found["sbatch_calls"] == {"now": 2, "later": 0}
    assert found["complete"]


def test_a_long_map_is_planned_with_its_windows(tmp_path: Path) -> None:
    body = "cluster._limits = {'max_job_count': 101}\npart.map(range(300))"
    one = planned(tmp_path, body)["submissions"][0]
    assert one["arrays"] == [50] * 6
    assert one["at_once"] == 2
    assert one["why"] == "at most 101 jobs may be queued"
    # Two parts and a small job now; then four parts, and three small jobs between them.
    assert one["sbatch_calls"] == {"now": 3, "later": 7}


def test_steps_of_an_allocation_need_no_call_of_sbatch(tmp_path: Path) -> None:
    body = "with cluster.allocate(nodes=1, time='1h'):\n    part(1)\n    part.map(range(4))"
    found = planned(tmp_path, body)
    assert [one["kind"] for one in found["submissions"]] == ["job", "step", "step"]
    assert found["sbatch_calls"]["now"] == 1


def test_a_script_that_fails_is_reported_with_what_was_planned(tmp_path: Path) -> None:
    done = plan(tmp_path, "part(1)\nraise ValueError('of its own')")
    assert done.returncode == 1
    assert "1 submission, 1 call of sbatch" in done.stdout
    assert "the script failed: ValueError: of its own" in done.stdout


def test_under_the_debugger_no_function_runs(tmp_path: Path) -> None:
    body = "with Cluster('debug'):\n    part(1).result()"
    found = planned(tmp_path, body)
    assert found["submissions"] == []
    assert found["ended"] == "the debug backend would run the function in this process"


def test_a_script_that_is_not_there_is_wrong_usage(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from slurm.cli import main; main(['plan', 'none.py'])"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2
    assert "'none.py' is no file" in done.stderr


def test_the_page_about_arrays_shows_what_is_printed(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "arrays.md").read_text()
    script = page.partition("<!-- file: sweep.py -->\n```python\n")[2].partition("```\n")[0]
    shown = page.partition("<!-- printed by slurm plan -->\n```\n")[2].partition("```\n")[0]
    (tmp_path / "sweep.py").write_text(script)
    done = subprocess.run(
        [sys.executable, "-c", "from slurm.cli import main; main(['plan', 'sweep.py'])"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout == shown, done.stderr
