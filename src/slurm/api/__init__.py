"""Everything that talks to a scheduler: one Backend interface, whoever answers behind it.

`Backend` is what a scheduler of your own implements for `Cluster.from_backend`; `connect` makes the
one that a `backend_type` means, `LocalBackend` is that of this machine.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from slurm.api.backend import Backend, JobKey
    from slurm.api.connect import LocalBackend, connect
    from slurm.api.slurm_commands import JobStatus

__all__ = ["Backend", "JobKey", "JobStatus", "LocalBackend", "connect"]

_HOME = {
    "Backend": "backend",
    "JobKey": "backend",
    "JobStatus": "slurm_commands",
    "LocalBackend": "connect",
    "connect": "connect",
}


def __getattr__(name: str) -> "Any":
    """Load the module of a name when it is first used: the agent on a login node needs none."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(__name__ + "." + _HOME[name]), name)
