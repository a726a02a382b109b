"""A real Slurm cluster in one call: `up`, `down`, `status`, `attach`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from slurm.errors import StackError
from slurm.stack import layout, native
from slurm.stack.native_plan import Request, check_request, checked_directory
from slurm.stack.running import ClusterStatus, DaemonStatus, RunningCluster, look
from slurm.stack.state import load, locked, made

__all__ = ["ClusterStatus", "DaemonStatus", "RunningCluster", "attach", "down", "status", "up"]


def up(
    dir: str | Path,
    *,
    nodes: int = 1,
    cpus: int = 8,
    memory_mb: int = 4000,
    extra_conf: Iterable[str] = (),
    files: Mapping[str, str] | None = None,
    accounting: bool = True,
    name: str | None = None,
) -> RunningCluster:
    """Bring a real Slurm cluster up in `dir` and return when a job has run on every node.

    `extra_conf` are lines for slurm.conf; a line replaces our default of the same key, a
    PartitionName our partition `main`, and `NodeName=DEFAULT ...` is put before the nodes.
    `files` are further files in `dir`/etc by name (`oci.conf`, `cgroup.conf`, a prolog that begins
    with `#!`). A directory whose cluster was taken down goes on with its jobs and accounting. On
    any failure all that was started is stopped, and the error carries the failed daemon's words.
    """
    directory = checked_directory(dir)
    request = Request(
        nodes, cpus, memory_mb, tuple(extra_conf), dict(files or {}), accounting, name
    )
    check_request(request)
    layout.claim(directory)
    with locked(directory):
        before = load(directory)
        if before is not None and before.alive():
            raise StackError(
                f"a cluster is already up in {directory}",
                evidence=[f"running: {', '.join(before.alive())}"],
                hint=f"use it as it is, or first: slurm cluster down --dir {directory}",
            )
        return RunningCluster(native.bring_up(directory, request.topology(), request.files))


def attach(dir: str | Path) -> RunningCluster:
    """The cluster that was brought up in `dir` by another process."""
    state = made(checked_directory(dir))
    if not state.alive():
        raise StackError(
            f"the cluster in {dir} is down",
            hint=f"bring it up: slurm cluster up --engine native --dir {dir}",
        )
    return RunningCluster(state)


def down(dir: str | Path) -> None:
    """Take the cluster in `dir` down: running jobs end, queued ones and accounting stay on disk.

    Only processes that the cluster started are stopped. Nothing happens where it is down already.
    """
    directory = checked_directory(dir)
    made(directory)
    with locked(directory):
        native.stop_all(made(directory))


def status(dir: str | Path) -> ClusterStatus:
    """How the cluster in `dir` is now."""
    return look(made(checked_directory(dir)))
