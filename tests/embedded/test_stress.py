"""Public methods at random, from threads, asyncio tasks and forked children: nothing is lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import stress

from slurm import ArrayJob, Cluster, Job
from slurm.executor import Executor
from slurm.packed import PackedArray

#: Public for other modules of the SDK, not for people: each would change the job itself.
OF_THE_SDK = {
    "again", "assign", "attended", "awaited", "call_name", "carrier", "ending", "finish", "follow",
    "follower", "give_up", "kept", "log_name", "outcome", "packed", "refuse", "sent", "settle",
    "start_over", "take_place", "watch", "watched", "when_settled",
    # Of the standard library's future, for who makes it.
    "set_exception", "set_result", "set_running_or_notify_cancel",
}  # fmt: skip
#: Makes a cluster or holds an allocation: one each in tests of its own.
ELSEWHERE = {"allocate", "from_backend", "from_env", "from_file", "from_stack"}


@pytest.mark.parametrize(
    ("kind", "calls"),
    [
        (Job, stress.JOB),
        (ArrayJob, stress.ARRAY),
        (PackedArray, stress.ARRAY),
        (Executor, stress.POOL),
        (Cluster, stress.CLUSTER),
    ],
)
def test_every_public_method_is_among_the_calls(kind: type, calls: dict[str, stress.Call]) -> None:
    public = {name for name in dir(kind) if not name.startswith("_")}
    called = {word for name in calls for word in name.split(", ")}
    assert public - called - OF_THE_SDK - ELSEWHERE == set()


def run(tmp_path: Path, seconds: float) -> None:
    seed = int(os.environ.get("STRESS_SEED", time.time()))
    argv = [sys.executable, "-X", "dev", stress.__file__, str(tmp_path), str(seconds), str(seed)]
    done = subprocess.run(argv, capture_output=True, text=True)
    assert done.returncode == 0, f"seed {seed}: {done.stderr[-20000:]}"
    found = json.loads(done.stdout)
    kinds = found.pop("kinds")
    print(f"seed {seed}: {found}")
    assert found["unknown"] == [] and found["wrong_order"] == []
    assert found["lost"] == 0 and found["bad_children"] == []
    assert found["children"] and found["callbacks"] and len(kinds) > 20


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_storm_of_calls_loses_nothing_and_hangs_nowhere(tmp_path: Path) -> None:
    run(tmp_path, 6)


@pytest.mark.full
@pytest.mark.timeout(1200)
def test_a_long_storm_of_calls(tmp_path: Path) -> None:
    run(tmp_path, 60)
