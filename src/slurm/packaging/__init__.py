"""How code gets to the node: decides the Environment that a job's script starts Python in."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from slurm.packaging.choose import Packaging, PackagingGiven, check_packaging, choose
from slurm.packaging.prepare import Prepared, Request, prepare

if TYPE_CHECKING:
    from slurm.cluster import Cluster

__all__ = [
    "Packaging",
    "PackagingGiven",
    "Prepared",
    "Request",
    "check_packaging",
    "choose",
    "pickling",
    "prepare",
]


def pickling(cluster: Cluster, prepared: Prepared) -> AbstractContextManager[None]:
    """What has to be in force while calls for a cluster are pickled."""
    from slurm.packaging.remote import remote_of, sending_to, users_modules_by_value

    remote = remote_of(cluster)
    if remote is not None:
        return sending_to(remote, prepared.holds)
    return nullcontext() if prepared.holds is None else users_modules_by_value(prepared.holds)
