"""A scheduler for one user on one host, for where there is no Slurm: same scripts, same variables.

`EmbeddedScheduler` (client.py) asks a small process (daemon.py) over a socket. The process is
started on demand, keeps its queue in SQLite (queue.py), decides (engine.py, scheduler.py), starts
each job under a supervisor that outlives it (supervisor.py), and leaves when it is idle. Within a
job, srun.py stands in srun's place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from slurm.api.embedded.client import EmbeddedScheduler

__all__ = ["EmbeddedScheduler"]


def __getattr__(name: str) -> object:
    """The client is imported by those who use it: the scheduler's process does not."""
    if name == "EmbeddedScheduler":
        from slurm.api.embedded.client import EmbeddedScheduler

        return EmbeddedScheduler
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
