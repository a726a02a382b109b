"""Which cluster a call goes to: that of the `with` block, or the only one that is open."""

from __future__ import annotations

import contextvars
import logging
from typing import TYPE_CHECKING

from slurm import errors, locks

if TYPE_CHECKING:
    from slurm.cluster import Cluster

log = logging.getLogger("slurm")

#: The `with` blocks around this code, the innermost last; other threads and tasks have their own.
_active: contextvars.ContextVar[tuple[Cluster, ...]] = contextvars.ContextVar("slurm", default=())
_open: list[Cluster] = []
_open_lock = locks.lock("clusters")
_said: set[str] = set()


def enter(cluster: Cluster) -> None:
    """Make a cluster the active one."""
    _active.set((*_active.get(), cluster))
    with _open_lock:
        _open.append(cluster)


def leave(cluster: Cluster) -> None:
    """End what `enter` began; a block that is left in another context than it was entered in has
    nothing to end there."""
    blocks = list(_active.get())
    for at in range(len(blocks) - 1, -1, -1):
        if blocks[at] is cluster:
            del blocks[at]
            break
    _active.set(tuple(blocks))
    with _open_lock:
        _open.remove(cluster)


def active_cluster(name: str) -> Cluster:
    """The cluster of the enclosing `with`; in a thread without one, the process's only open one."""
    blocks = _active.get()
    if blocks:
        return blocks[-1]
    with _open_lock:
        candidates = list(dict.fromkeys(_open))
    if len(candidates) == 1:
        return candidates[0]
    if candidates:
        raise errors.NoActiveCluster(
            f"{name} was called in a thread without a cluster of its own, and "
            f"{len(candidates)} clusters are open",
            hint=f"say which one is meant: cluster.submit({name})(...)",
        )
    raise errors.NoActiveCluster(
        f"{name} is a task and was called outside of a cluster",
        hint=f"with Cluster(): {name}(...)   # runs as a job\n"
        f"{name}.local(...){' ' * 16}# runs here, as a plain function",
    )


def say_once(text: str) -> None:
    """Warn of something once per process."""
    if text not in _said:
        _said.add(text)
        log.warning("slurm: %s", text)
