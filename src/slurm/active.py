"""Which cluster a call goes to: that of the `with` block, or the only one that is open."""

from __future__ import annotations

import contextvars
import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from slurm import errors

if TYPE_CHECKING:
    from slurm.cluster import Cluster

log = logging.getLogger("slurm")

_active: contextvars.ContextVar[Cluster | None] = contextvars.ContextVar("slurm", default=None)
_open: list[Cluster] = []
_open_lock = threading.Lock()
_said: set[str] = set()


def enter(cluster: Cluster) -> Callable[[], None]:
    """Make a cluster the active one; returns what ends that."""
    token = _active.set(cluster)
    with _open_lock:
        _open.append(cluster)

    def leave() -> None:
        _active.reset(token)
        with _open_lock:
            _open.remove(cluster)

    return leave


def active_cluster(name: str) -> Cluster:
    """The cluster of the enclosing `with`; in a thread without one, the process's only open one."""
    found = _active.get()
    if found is not None:
        return found
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
