"""The SDK travels with the run: a content-addressed copy of `slurm` and of cloudpickle."""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING

from slurm import rundir

if TYPE_CHECKING:
    from slurm.cluster import Cluster

#: What only a client needs stays at home.
CLIENT_ONLY = ("bridge", "cli", "monitor", "stack", "web")


@functools.lru_cache(maxsize=1)
def sdk_files() -> dict[str, bytes]:
    """The files of the SDK as they are shipped: path inside the copy, and content."""
    import cloudpickle

    import slurm

    files: dict[str, bytes] = {}
    for package, skip in ((slurm, CLIENT_ONLY), (cloudpickle, ())):
        assert package.__file__ is not None
        top = os.path.dirname(package.__file__)
        name = package.__name__
        for folder, folders, names in os.walk(top):
            folders[:] = sorted(f for f in folders if f != "__pycache__")
            if folder == top:
                folders[:] = [f for f in folders if f not in skip]
            for file in sorted(n for n in names if n.endswith(".py")):
                path = os.path.join(folder, file)
                with open(path, "rb") as f:
                    files[f"{name}/{os.path.relpath(path, top)}"] = f.read()
    return files


@functools.lru_cache(maxsize=1)
def sdk_hash() -> str:
    """The name of the copy: it changes when any byte of it does."""
    import hashlib

    digest = hashlib.blake2b(digest_size=10)
    for path, content in sdk_files().items():
        digest.update(f"{path}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()


def sdk_place() -> str:
    """Where the copy lies below the base directory: each run needs it."""
    return f"{rundir.BASE_SDK}/{sdk_hash()}"


def bring_sdk(cluster: Cluster, again: bool = False) -> None:
    """Make sure that the copy lies on a cluster; `again`: it was there and has lost files."""
    if again or not cluster._sdk_is_there:
        cluster.backend.put_sdk(sdk_hash(), sdk_files(), again)
        cluster._sdk_is_there = True
