"""How the user's own code gets into a container: from the image, a mounted folder or a snapshot."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from slurm import rundir
from slurm.packaging.container.runtimes import SYSTEM
from slurm.packaging.function import by_value_reason, client_path
from slurm.packaging.prepare import Request
from slurm.packaging.remote import is_users_own, remote_of

if TYPE_CHECKING:
    from slurm.cluster import Cluster


@dataclass(frozen=True)
class Code:
    """Where a container finds the user's modules, and what travels by value."""

    #: Why the function travels by value; None: its module can be imported in the container.
    reason: str | None
    #: Folders for the import path, under the names that they have on the node.
    path: tuple[str, ...] = ()
    #: Whether a module of the user's can be imported there; None: all of this machine's can.
    holds: Callable[[str], bool] | None = None
    #: What must lie below the base directory, and what brings it there.
    needs: tuple[str, ...] = ()
    deliver: Callable[[Cluster], None] | None = None


def find_code(request: Request) -> Code:
    """The code of a call: modules that the image is said to have are left to it."""
    reason = by_value_reason(request.function)
    named = tuple(request.packaging.options.get("modules") or ())

    def in_the_image(module: str) -> bool:
        return module.partition(".")[0] in named

    module = str(request.function.__module__)
    inside = reason is None and (in_the_image(module) or not is_users_own(sys.modules.get(module)))
    if remote_of(request.cluster) is None:
        return _mounted(module, reason, inside)
    if reason is not None or inside:
        return Code(reason, holds=in_the_image)
    return _snapshot(request, in_the_image)


def _mounted(module: str, reason: str | None, inside: bool) -> Code:
    """The node has this machine's files: the folders of the user's code are mounted.

    What is installed on this machine stays outside, for the image has its own.
    """
    path = tuple(entry for entry in client_path() if _is_code(entry))
    file = os.path.abspath(str(getattr(sys.modules.get(module), "__file__", "")))
    if reason is None and not inside and not any(file.startswith(f"{entry}/") for entry in path):
        reason = f"module {module} is not in a folder that the container can see"
    return Code(reason, path)


def _is_code(entry: str) -> bool:
    installed = "site-packages" in entry or "dist-packages" in entry
    top = entry.split("/")[1]
    return bool(top) and top not in SYSTEM and not installed and not set(entry) & set(":,\n")


def _snapshot(request: Request, in_the_image: Callable[[str], bool]) -> Code:
    """The cluster has other files: the working tree of the function goes there, once."""
    from slurm.packaging.source import find_root, held_by, mapped, send_snapshot
    from slurm.packaging.tree import read_tree

    tree = read_tree(find_root(request.source), ())
    held = held_by(tree)
    name = f"{rundir.BASE_SNAPSHOTS}/{tree.digest}"
    place = f"{request.cluster.base}/{name}"
    path = [mapped(entry, tree.root, place) for entry in client_path()]
    module = str(request.function.__module__)
    return Code(
        None if held(module) else f"module {module} is not part of {tree.root}",
        tuple(filter(None, path)),
        lambda name: in_the_image(name) or held(name),
        (name,),
        lambda cluster: send_snapshot(cluster, tree),
    )
