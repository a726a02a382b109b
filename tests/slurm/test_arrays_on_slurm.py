"""Maps and dependencies on a real Slurm."""

from __future__ import annotations

import contextlib
import itertools
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import slurm
from slurm import Cluster, JobContext, task

if TYPE_CHECKING:
    from slurm.stack import RunningCluster

WAIT = 120


@task(time="5min", mem="50M")
def square(x: int) -> int:
    print("item", x)
    return x * x


@task(mem="50M")
def add_up(values: Any) -> int:
    return sum(values)


@task(mem="50M")
def nap(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster("local", job_base_dir=tmp_path / "jobs")


def test_a_map_reduce_needs_no_question_to_the_scheduler(cluster: Cluster) -> None:
    with cluster:
        array = square.map(range(12))
        total = add_up(array)
    before, begun = cluster._watcher.polls, time.monotonic()
    assert array.results(WAIT) == [i * i for i in range(12)]
    assert total.result(WAIT) == sum(i * i for i in range(12))
    # One or two soon after the submission, for what files may miss; then one in half a minute.
    assert cluster._watcher.polls - before <= 2 + (time.monotonic() - begun) / 30
    assert array[7].stdout() == "item 7\n" and array[7].id.endswith("_7")
    files = [f for f in (Path(cluster.base) / array.run).rglob("*") if f.is_file()]
    # Some for the run, and a few for each host that had a part of it.
    assert len([f for f in files if f.parent.name != "logs"]) < 12 + 2 * 4


def test_one_element_out_of_memory_one_dead_one_raising_and_the_rest_fine(
    cluster: Cluster,
) -> None:
    @task(mem="60M")
    def pick(x: int) -> int:
        if x == 1:
            raise KeyError(x)
        if x == 2:
            os.kill(os.getpid(), 9)
        if x == 3:
            return len(b"x" * 300_000_000)
        return x

    with cluster:
        values: list[Any] = pick.map(range(5)).results(WAIT, return_exceptions=True)
    names = [type(value).__name__ for value in values]
    assert names == ["int", "KeyError", "JobFailed", "JobOutOfMemory", "int"]


def test_an_array_is_cancelled_half_way(cluster: Cluster) -> None:
    with cluster:
        array = nap.map([0.1, 0.1, 300.0, 300.0, 300.0], max_concurrent=3)
        assert array[:2].results(WAIT) == [0.1, 0.1]
        assert array.cancel() == 3
        array.wait(WAIT)
    assert [job.cancelled() for job in array] == [False, False, True, True, True]


def test_kinds_of_dependencies_as_slurm_keeps_them(cluster: Cluster) -> None:
    @task(mem="50M")
    def fail() -> None:
        raise ValueError("upstream")

    with cluster:
        bad, good = fail(), nap(0.5)
        never = add_up.after(bad)([1])
        cleanup = add_up.after(bad, kind="afternotok")([2])
        both = add_up.after(good).after(bad, kind="afterany")([3])
        first = nap.map([0.2, 0.4])
        pairs = square.after(first, kind="aftercorr").map([1, 2])
        assert cleanup.result(WAIT) == 2 and both.result(WAIT) == 3
        assert pairs.results(WAIT) == [1, 4]
        with pytest.raises(slurm.UpstreamFailed):
            never.result(WAIT)


def test_each_item_fails_with_its_own_needs_and_an_array_as_one(cluster: Cluster) -> None:
    @task(mem="50M")
    def divide(x: int, seconds: float) -> int:
        time.sleep(seconds)
        return 12 // x

    with cluster:
        mixed, good = divide.map([(2, 0), (0, 0), (3, 4)]), divide.map([(2, 0), (1, 2)])
        each = add_up.map([[mixed[0]], [mixed[1]], [mixed[2], good[0]]], unpack=False)
        packed = divide.map([(0, 0.0), (4, 2.0)], pack=2)
        one = add_up([packed[1]])
        # Once before anything is over, and once when some elements are.
        cleanup = [add_up.after(mixed, kind="afternotok")([2])]
        never = [add_up.after(good, kind="afternotok")([3])]
        assert mixed[0].result(WAIT) == 6 and good[0].result(WAIT) == 6
        mixed[1].wait(WAIT)
        cleanup += [add_up.after(some, kind="afternotok")([2]) for some in (mixed, mixed[:2])]
        with contextlib.suppress(slurm.UpstreamFailed):  # all of it is over on a busy machine
            never.append(add_up.after(good, kind="afternotok")([3]))
        found = each.results(WAIT, return_exceptions=True)
        assert [found[0], type(found[1]), found[2]] == [6, slurm.UpstreamFailed, 10]
        assert one.result(WAIT) == 3
        assert [job.result(WAIT) for job in cleanup] == [2, 2, 2]
        for job in never:
            with pytest.raises(slurm.UpstreamFailed):
                job.result(WAIT)


def test_a_batch_of_a_layered_graph_takes_few_submissions(cluster: Cluster) -> None:
    with cluster:
        before = _calls(cluster)
        with cluster.batch():
            layer = [square(i) for i in range(6)]
            for _ in range(2):
                layer = [add_up([a, b]) for a, b in itertools.pairwise(layer)]
        assert _calls(cluster) - before <= 3
        values = [i * i for i in range(6)]
        for _ in range(2):
            values = [a + b for a, b in itertools.pairwise(values)]
        assert [job.result(WAIT) for job in layer] == values


def _calls(cluster: Cluster) -> int:
    return int(cluster.backend.agent.scheduler.calls)  # type: ignore[attr-defined]


@pytest.fixture
def limited(fresh_slurm_cluster: Callable[..., RunningCluster]) -> RunningCluster:
    """A cluster whose arrays end at 9 and whose user may have 12 jobs queued."""
    running = fresh_slurm_cluster(
        nodes=2, extra_conf=["MaxArraySize=10", "AccountingStorageEnforce=limits"]
    )
    name = subprocess.run(["sacctmgr", "-nP", "show", "cluster", "format=cluster"],
                          capture_output=True, text=True, check=True).stdout.strip()  # fmt: skip
    for words in (
        ["add", "account", "lab", f"cluster={name}"],
        ["add", "user", "root", "account=lab"],
        ["modify", "user", "root", "set", "MaxSubmitJobs=12"],
    ):
        subprocess.run(["sacctmgr", "-i", *words], capture_output=True, check=True)
    return running


def test_a_map_beyond_the_limits_goes_out_in_parts_without_its_client(
    limited: RunningCluster, tmp_path: Path
) -> None:
    program = tmp_path / "client.py"
    program.write_text(
        "import slurm.target\nslurm.target.SMALL_ARRAY = 5\n"
        "from slurm import Cluster, task\n"
        "@task(mem='50M')\n"
        "def mark(x):\n"
        "    open(f'ran-{x}', 'a').write('x')\n"
        "    return x\n"
        "with Cluster(job_base_dir='jobs') as cluster:\n"
        "    array = mark.map(range(23))\n"
        "    print(array.run, sum(job.key is None for job in array))\n"
    )
    # The client ends as soon as the first parts are accepted.
    done = subprocess.run(
        [sys.executable, program], cwd=tmp_path, capture_output=True, text=True, timeout=WAIT
    )
    assert done.returncode == 0, done.stderr
    run, waiting = done.stdout.split()
    assert int(waiting) > 0
    array = Cluster(job_base_dir=tmp_path / "jobs").attach(run)
    assert array.results(WAIT) == list(range(23))
    marks = {p.name: p.read_text() for p in tmp_path.glob("ran-*")}
    assert marks == {f"ran-{i}": "x" for i in range(23)}

    @task(mem="50M")
    def where(ctx: JobContext) -> int | None:
        return ctx.array_index

    # The small default of this client does not know the limit: Slurm's refusal teaches it.
    with Cluster(job_base_dir=tmp_path / "jobs"):
        indexes = where.map([()] * 15).results(WAIT)
    assert indexes == list(range(15))
