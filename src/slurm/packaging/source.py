"""A snapshot of the working tree goes to the cluster, once per content; jobs import from it."""

from __future__ import annotations

import io
import os
import sys
import tarfile
import tempfile
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from slurm import rundir
from slurm.errors import PackagingError
from slurm.packaging import progress
from slurm.packaging.function import by_value_reason, client_path
from slurm.packaging.none import prepare_none, prepare_python
from slurm.packaging.prepare import Prepared, Request
from slurm.packaging.project import project_of
from slurm.packaging.remote import remote_of
from slurm.packaging.tree import Tree, git_top, read_entry, read_tree

if TYPE_CHECKING:
    from slurm.cluster import Cluster


def prepare_source(request: Request) -> Prepared:
    """The environment of a call whose modules come from a snapshot."""
    if (request.function.__module__ or "").partition(".")[0] in sys.stdlib_module_names:
        return prepare_none(request)  # every Python has it
    options = request.packaging.options
    root = str(options.get("root") or find_root(request.source))
    if not os.path.isdir(root):
        raise PackagingError(f"root={root!r} is not a folder", hint="name the folder of the code")
    tree = read_tree(root, options.get("exclude", ()))
    name = f"{rundir.BASE_SNAPSHOTS}/{tree.digest}"
    place = f"{request.cluster.base}/{name}"
    holds = held_by(tree)
    reason = by_value_reason(request.function)
    if reason is None and not holds(request.function.__module__):
        reason = f"module {request.function.__module__} is not part of {tree.root}"
    prepared = prepare_python(request, reason)
    shared = remote_of(request.cluster) is None
    path = [mapped(e, tree.root, place) or (e if shared else None) for e in client_path()]
    git = tree.git or {}
    state = f", {git['commit'][:10]} with changes" if git.get("changed") else ""
    state = state or (f", {git['commit'][:10]}" if git.get("commit") else "")
    environment = replace(
        prepared.environment,
        kind="source",
        why=f"snapshot {tree.digest[:10]} of {tree.root} ({len(tree.entries)} files{state})",
        path=tuple(filter(None, path)),
        digest=tree.digest,
        needs=(*prepared.environment.needs, name),
        details={
            **prepared.environment.details,
            "snapshot": tree.facts(),
            "options": dict(options),
        },
    )
    inner = prepared.deliver

    def deliver(cluster: Cluster) -> None:
        if inner is not None:
            inner(cluster)
        send_snapshot(cluster, tree)

    return Prepared(environment, reason or "", holds, deliver)


def find_root(source: str) -> str:
    """The working tree around a file: git's, or that of the project, or the file's own folder."""
    folder = os.path.dirname(os.path.realpath(source))
    return git_top(folder) or project_of(source, "source", "root") or folder


def mapped(entry: str, root: str, place: str) -> str | None:
    """Where an import path of this machine lies in the snapshot; None for one outside of it."""
    real = os.path.realpath(entry)
    if real == root:
        return place
    return f"{place}/{os.path.relpath(real, root)}" if real.startswith(root + os.sep) else None


def held_by(tree: Tree) -> Callable[[str], bool]:
    """Whether the snapshot holds the file that a module was loaded from."""
    files = {entry.path for entry in tree.entries}

    def holds(module: str) -> bool:
        path = getattr(sys.modules.get(module), "__file__", None)
        if not path:
            return False
        return os.path.relpath(os.path.realpath(path), tree.root) in files

    return holds


def send_snapshot(cluster: Cluster, tree: Tree) -> None:
    """Bring a snapshot to the cluster; it appears there whole or not at all."""
    from slurm.files import put_file

    name = f"{rundir.BASE_SNAPSHOTS}/{tree.digest}"
    packed = f"{name}.{os.urandom(4).hex()}.tar.gz"
    with (
        progress.step("upload", f"snapshot of {tree.root}, {len(tree.entries)} files"),
        tempfile.TemporaryDirectory(prefix="slurm-snapshot-") as folder,
    ):
        archive = os.path.join(folder, "snapshot.tar.gz")
        pack(tree, archive)
        put_file(cluster.backend, archive, f"{cluster.base}/{packed}", mode=0o600)
        cluster.backend.store_unpack(name, packed)


def pack(tree: Tree, target: str) -> None:
    """The files of a tree as an archive; names may hold anything but a slash and NUL."""
    with tarfile.open(target, mode="w:gz", compresslevel=1, format=tarfile.PAX_FORMAT) as archive:
        for entry in tree.entries:
            info = tarfile.TarInfo(entry.path)
            info.mode = 0o500 if entry.mode & 0o100 else 0o400
            if entry.is_link:
                info.type = tarfile.SYMTYPE
                info.linkname = os.readlink(os.path.join(tree.root, entry.path))
                archive.addfile(info)
            else:
                data = read_entry(tree, entry)
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))
