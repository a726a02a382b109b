"""Runs a workflow inside its job: its cluster is open, what it submits is noted in its journal."""

import json
import os
import signal
import sys
import threading
from typing import Any, Dict, Tuple

from slurm import rundir
from slurm.runner.advance import scheduler


class _Value:
    """What the workflow returned, with the jobs in it as references."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def __slurm_record__(self) -> Tuple[Dict[str, Any], Any]:
        from slurm.returned import pack

        return pack(self._value)


def orchestrate(function: Any, run: str, index: int) -> Any:
    """The workflow's function as the runner calls it."""

    def call(*args: Any, **kwargs: Any) -> Any:
        from slurm.cluster import Cluster
        from slurm.journal import Journal, set_current
        from slurm.runner.run import settle

        _forget_seed()
        with Cluster() as cluster:
            name = os.path.relpath(run, cluster.base)
            journal = Journal(cluster.base, name, index)
            set_current(journal)
            _go_on_after_the_limit(journal)
            value = settle(function(*args, **kwargs))
        return _Value(value)

    return call


def context() -> Any:
    """The context of a workflow's function."""
    from slurm.workflow import WorkflowContext

    return WorkflowContext.from_environment()


def _go_on_after_the_limit(journal: Any) -> None:
    """Put a workflow that waits for children back into the queue when its time limit is near.

    Its next attempt goes on where this one was. One that waits for nothing has only itself to
    blame, and ends at its limit as any other job.
    """
    number = getattr(signal, "SIG" + os.environ.get("SLURM_SDK_WARNING", "USR2"), signal.SIGUSR2)
    before = signal.getsignal(number)

    def requeue() -> None:
        try:
            scheduler().requeue([job])  # type: ignore[attr-defined]
        except Exception as error:  # noqa: BLE001 - the limit itself comes next, and says what is
            sys.stderr.write(f"slurm-sdk: the workflow could not be requeued: {error}\n")

    def warned(signum: int, frame: Any) -> None:
        if callable(before):
            before(signum, frame)
        if journal.waits():
            sys.stderr.write("slurm-sdk: the time limit is near; the workflow goes on later\n")
            threading.Thread(target=requeue, daemon=True).start()

    env = os.environ
    array = env.get("SLURM_ARRAY_JOB_ID")
    job = f"{array}_{env['SLURM_ARRAY_TASK_ID']}" if array else env.get("SLURM_JOB_ID", "")
    if job and _may_requeue(os.path.join(journal.base, journal.run)):
        signal.signal(number, warned)


def _may_requeue(run: str) -> bool:
    try:
        with open(os.path.join(run, rundir.METADATA)) as f:
            return bool(json.load(f)["options"].get("requeue"))
    except (OSError, ValueError, KeyError):
        return False


def _forget_seed() -> None:
    """Sets of text are pickled in the order of their hashes. The script fixes the seed, so that
    the next attempt knows the same arguments again; children are to choose their own."""
    if os.environ.pop("SLURM_SDK_SEED", None):
        os.environ.pop("PYTHONHASHSEED", None)
