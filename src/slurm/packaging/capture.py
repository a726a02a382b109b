"""Captures the code of the user's own modules as it is when a call is made."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from slurm import locks, rundir
from slurm.api import whole
from slurm.errors import NotDelivered, PackagingError, RunDirError
from slurm.here import working_directory
from slurm.packaging.function import by_value_reason
from slurm.packaging.inherit import own_environment
from slurm.packaging.modules import (
    MOST_BYTES,
    Found,
    Loaded,
    Module,
    Source,
    Sources,
    Stamp,
    find_modules,
    read_source,
    stamp_of,
)
from slurm.packaging.none import prepare_none, prepare_python
from slurm.packaging.prepare import Prepared, Request, is_sdk
from slurm.packaging.project import project_of
from slurm.packaging.tree import cache_folder, code_folder
from slurm.runner.captured import decode, encode

if TYPE_CHECKING:
    from slurm.cluster import Cluster

#: What this machine keeps of captures that nobody has used for so long goes.
_WEEK = 7 * 86400.0
_WHAT = "captures"


def prepare_captured(request: Request) -> Prepared:
    """The environment of a call that imports the user's modules as they are now."""
    if str(request.function.__module__ or "").startswith("slurm."):
        return prepare_none(request)  # the SDK travels by itself
    reason = by_value_reason(request.function)
    prepared = prepare_python(request, reason)
    own = own_environment()
    if own is not None and own.captured:
        # The code of the job around it: what lies in the files may have changed since.
        environment = replace(
            prepared.environment,
            kind=own.kind,
            why=f"the code of the job around it, {os.path.basename(own.captured)[:10]}",
            captured=own.captured,
            needs=_needs(request.cluster, own.captured),
            details=own.details,
        )
        return replace(prepared, environment=environment)
    capture = take(request.source)
    if capture is None:
        return prepared
    name = f"{rundir.BASE_SNAPSHOTS}/{capture.digest}"
    environment = replace(
        prepared.environment,
        kind="captured",
        why=str(capture),
        captured=f"{request.cluster.base}/{name}",
        needs=(name, f"{name}/{rundir.CODE}"),
        details={**prepared.environment.details, "captured": capture.facts()},
    )
    return Prepared(environment, prepared.by_value, prepared.holds, capture.deliver)


def _needs(cluster: Cluster, place: str) -> tuple[str, ...]:
    """What a captured place needs below this cluster's base; nothing where it lies elsewhere."""
    inside = place.startswith(f"{cluster.base}/{rundir.BASE_SNAPSHOTS}/")
    name = f"{rundir.BASE_SNAPSHOTS}/{os.path.basename(place)}"
    return (name, f"{name}/{rundir.CODE}") if inside else ()


@dataclass(frozen=True)
class Capture:
    """The user's modules at one moment, known by their content."""

    digest: str
    found: Found
    #: The files of all modules, and the script that was started: path and digest of the content.
    files: dict[str, str]
    script: str | None
    size: int
    #: What the files and folders looked like.
    stamps: dict[str, Stamp | None] = field(repr=False)
    folders: dict[str, int | None] = field(repr=False)
    #: The code itself, where this machine has no room to keep it.
    spare: bytes = field(default=b"", repr=False)

    @functools.cached_property
    def roots(self) -> list[str]:
        """The folders that the modules are imported from."""
        found: dict[str, None] = {}
        for module in self.found.modules.values():
            depth = module.name.count(".") + (2 if module.locations is not None else 1)
            folder = module.file
            for _ in range(depth):
                folder = os.path.dirname(folder)
            found[folder] = None
        return sorted(found)

    def facts(self) -> dict[str, Any]:
        """What is recorded with a run."""
        return {
            "digest": self.digest,
            "modules": len(self.found.modules),
            "bytes": self.size,
            "roots": self.roots,
            "script": self.script,
            "left": self.found.left,
        }

    def __str__(self) -> str:
        names = sorted({name.partition(".")[0] for name in self.found.modules})
        shown = ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")
        count = len(self.found.modules)
        text = f"the code as it is now ({self.digest[:10]}): {count} modules of {shown}"
        text = text.replace(" 1 modules", " 1 module")
        text += f" in {', '.join(self.roots[:3])}" if names else ""
        return "; ".join([text if names else "no module of your own is imported", *self.found.left])

    def deliver(self, cluster: Cluster) -> None:
        """Bring the code to a cluster."""
        _put(cluster, self.digest, self.spare or self._code())

    def _code(self) -> bytes:
        """What this machine keeps of it; where that was cleaned away, the files, if unchanged."""
        with contextlib.suppress(OSError):
            data = _read_spooled(self.digest)
            if self._is_whole(data):
                return data
        contents: dict[str, bytes] = {}
        for path, digest in self.files.items():
            with contextlib.suppress(OSError):
                contents[path] = read_source(path)
            if hashlib.sha256(contents.get(path, b"")).hexdigest() != digest:
                raise NotDelivered(
                    f"{path} was edited after this call was made, and the copy that was captured "
                    f"then is gone from {os.path.dirname(spooled(self.digest))}",
                    hint="make the call again",
                )
        return _encoded(self.found, contents)

    def _is_whole(self, data: bytes) -> bool:
        """Whether what this machine keeps is what was captured: a disk may lose what it took."""
        try:
            index, begin = decode(data)
            for path, digest in self.files.items():
                start, size = index["files"][path]
                content = data[begin + start : begin + start + size]
                if hashlib.sha256(content).hexdigest() != digest:
                    return False
        except (ValueError, KeyError, TypeError):
            return False
        return True


def deliver_again(place: str) -> Callable[[Cluster], None]:
    """What brings the captured code of an earlier run, where this machine still has it."""
    digest = os.path.basename(place)

    def deliver(cluster: Cluster) -> None:
        try:
            data = _read_spooled(digest)
        except OSError:
            raise NotDelivered(
                f"the code that was captured for this run ({digest[:10]}) is neither in "
                f"{cluster.base} nor on this machine any more",
                hint="run the files as they are now: slurm rerun RUN --code current",
            ) from None
        _put(cluster, digest, data)

    return deliver


def adopt(cluster: Cluster, data: bytes, where: str) -> tuple[str, Callable[[Cluster], None]]:
    """Where a copy of captured code of a colleague's lies in this base, and what brings it there.

    It is known by its own bytes, so that it never stands for what this user captured.
    """
    if not data:
        raise NotDelivered(
            f"the code that was captured for this run is not in {where} any more",
            hint="run the files as they are now: slurm rerun RUN --code current",
        )
    digest = hashlib.sha256(b"adopted " + data).hexdigest()[:32]
    place = f"{cluster.base}/{rundir.BASE_SNAPSHOTS}/{digest}"
    return place, lambda there: _put(there, digest, data)


def _read_spooled(digest: str) -> bytes:
    with open(spooled(digest), "rb") as f:
        return f.read()


def read_captured(place: str) -> bytes:
    """The code that was captured, by where it lies on a cluster or will lie there."""
    digest = os.path.basename(place)
    for _, _, capture in list(_state.taken.values()):
        if capture.digest == digest and capture.spare:
            return capture.spare
    try:
        return _read_spooled(digest)
    except OSError:
        return rundir.read_trusted(f"{place}/{rundir.CODE}")


def _put(cluster: Cluster, digest: str, data: bytes) -> None:
    place = f"{cluster.base}/{rundir.BASE_SNAPSHOTS}/{digest}/{rundir.CODE}"
    try:
        rundir.make_private_folder(f"{cluster.base}/{rundir.BASE_SNAPSHOTS}")
        rundir.make_run_folder(os.path.dirname(place))
        rundir.write_atomically(place, data, mode=0o400)
        whole.write_list(os.path.dirname(place), [(rundir.CODE, len(data))])
    except OSError as error:
        raise RunDirError(f"{place} cannot be written: {error.strerror}") from error


# ---- taking one ---------------------------------------------------------------------------------


@dataclass
class _State:
    """What this process knows of files, so that unchanged code costs a look at each file."""

    loaded: Loaded = field(default_factory=Loaded)
    sources: Sources = field(default_factory=Sources)
    taken: dict[tuple[str | None, str | None], tuple[list[Module], tuple[str, ...], Capture]] = (
        field(default_factory=dict)
    )
    index: str = ""


_state = _State()
_lock = locks.lock("packaging.capture")


def take(source: str) -> Capture | None:
    """Capture what a function of this source file may import; None where nothing can be kept."""
    project = None
    with contextlib.suppress(PackagingError):  # somebody else's has no say
        project = project_of(source)
    if project is not None and is_sdk(project):
        project = None
    main = getattr(sys.modules.get("__main__"), "__file__", None)
    script = os.path.abspath(main) if isinstance(main, str) and os.path.isfile(main) else None
    if script is not None and (
        not script.endswith((".py", ".pyw")) or "SLURM_SDK_RUN" in os.environ
    ):
        script = None  # a program of another kind; in a job the runner
    with _lock:
        loaded = _state.loaded.modules()
        before = _state.taken.get((project, script))
        if before is not None and before[:2] == (loaded, tuple(sys.path)):
            kept = before[2].spare or _is_kept(before[2])
            if kept and _is_unchanged(before[2]):
                return before[2]
        capture = _take(project, script, loaded)
        _state.taken[project, script] = (loaded, tuple(sys.path), capture)
        return capture


def _is_unchanged(capture: Capture) -> bool:
    try:
        for path, stamp in capture.stamps.items():
            info = os.stat(path)
            if stamp != (info.st_mtime_ns, info.st_ctime_ns, info.st_size, info.st_ino):
                return False
        for path, changed in capture.folders.items():
            if os.stat(path).st_mtime_ns != changed:
                return False
    except OSError:
        return False
    return True


def _take(project: str | None, script: str | None, loaded: list[Module]) -> Capture:
    sources = _state.sources
    index = _index_path(project, script)
    if _state.index != index:
        _load_index(index, sources)
        _state.index = index
    # Before the files: what is added while they are read will show.
    found = find_modules(loaded, project, sources, script)
    folders = {folder: _changed(folder) for folder in sorted(found.folders)}
    capture = _of(found, script, folders, {})
    if not _is_kept(capture):
        contents = _read_all(capture, sources)
        capture = _of(found, script, folders, contents)
        capture = replace(capture, spare=_spool(capture, contents))
    if sources.dirty:
        _save_index(index, sources)
    return capture


def _of(
    found: Found, script: str | None, folders: dict[str, int | None], contents: dict[str, bytes]
) -> Capture:
    """What was found, with its digest."""
    files: dict[str, str] = {}
    stamps: dict[str, Stamp | None] = {}
    total = 0
    paths = [*(module.file for module in found.modules.values()), *([script] if script else [])]
    for path in paths:
        known = _state.sources.look(path) if path not in contents else _state.sources.known[path]
        if known is not None:
            files[path], stamps[path] = known.digest, known.stamp
            total += known.size
    for name in [n for n, module in found.modules.items() if module.file not in files]:
        found.left.append(f"{found.modules.pop(name).file} cannot be read")
    if total > MOST_BYTES:
        raise PackagingError(
            f"the modules that this call may import have {total >> 20} MiB: too much for code",
            hint='packaging="none" uses the files as they are when the job runs',
            evidence=[f"{path}: {os.path.getsize(path) >> 10} KiB" for path in _largest(files)],
        )
    told = [
        [[m.name, m.file, m.locations, files[m.file]] for _, m in sorted(found.modules.items())],
        sorted(found.namespaces.items()),
        [script, files.get(script or "")],
    ]
    digest = hashlib.sha256(json.dumps(told).encode("utf-8", "surrogateescape")).hexdigest()[:32]
    return Capture(digest, found, files, script, total, stamps, folders)


def _largest(files: dict[str, str]) -> list[str]:
    return sorted(files, key=lambda path: -os.path.getsize(path))[:3]


def _changed(folder: str) -> int | None:
    """When names in a folder changed last; None while that is so new that it may change again."""
    try:
        changed = os.stat(folder).st_mtime_ns
    except OSError:
        return None
    return changed if time.time_ns() - changed > 2_000_000_000 else None


def _read_all(capture: Capture, sources: Sources) -> dict[str, bytes]:
    contents: dict[str, bytes] = {}
    for path in capture.files:
        with contextlib.suppress(OSError):
            stamp = stamp_of(path)
            contents[path] = read_source(path)
            sources.keep(path, stamp, contents[path])
    return contents


# ---- what this machine keeps -------------------------------------------------------------------


def spooled(digest: str) -> str:
    """Where this machine keeps captured code until it is on the cluster, and for the next time."""
    return os.path.join(code_folder(_WHAT), digest)


#: What this process has seen to be whole: the digest, and what the file looked like.
_whole: dict[str, Stamp] = {}


def _is_kept(capture: Capture) -> bool:
    """Whether this machine has captured code; what is used is not cleaned away for a week."""
    path = spooled(capture.digest)
    try:
        info = os.stat(path)
        seen = (info.st_ino, info.st_dev, info.st_size, 0)
        if _whole.get(capture.digest) != seen:
            if not capture._is_whole(_read_spooled(capture.digest)):
                return False
            _whole[capture.digest] = seen
        os.utime(path)
    except OSError:
        return False
    return True


def _encoded(found: Found, contents: dict[str, bytes]) -> bytes:
    """Captured code as it travels."""
    places: dict[str, tuple[int, int]] = {}
    at = 0
    for path, data in contents.items():
        places[path] = (at, len(data))
        at += len(data)
    modules = {name: (module.file, module.locations) for name, module in found.modules.items()}
    index = {"modules": modules, "namespaces": found.namespaces, "files": places}
    return encode(index, list(contents.values()))


def _spool(capture: Capture, contents: dict[str, bytes]) -> bytes:
    """Keep captured code: the files may change before it is sent. What finds no room comes back."""
    path = spooled(capture.digest)
    data = _encoded(capture.found, contents)
    try:
        rundir.make_private_folder(os.path.dirname(path))
        rundir.write_atomically(path, data, sync=False)
    except OSError:  # a home that is full or read-only is no reason not to submit
        return data
    _clean(os.path.dirname(path))
    return b""


def _clean(folder: str) -> None:
    """Remove what nobody has captured for long."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if time.time() - entry.stat().st_mtime > _WEEK:
                os.unlink(entry.path)


def _index_path(project: str | None, script: str | None) -> str:
    name = hashlib.sha256(repr((project, script, working_directory())).encode("utf-8", "replace"))
    return os.path.join(cache_folder(_WHAT), f"{name.hexdigest()[:24]}.json")


def _load_index(path: str, sources: Sources) -> None:
    try:
        with open(path, encoding="utf-8") as f:
            found = json.load(f)
        for file, (stamp, digest, imports, size) in found.items():
            sources.known.setdefault(file, Source(tuple(stamp), digest, tuple(imports), size))
    except (OSError, ValueError, TypeError, AttributeError):
        pass  # a cache that cannot be read is none


def _save_index(path: str, sources: Sources) -> None:
    sources.dirty = False
    kept = {
        file: [s.stamp, s.digest, s.imports, s.size]
        for file, s in sources.known.items()
        if s.stamp is not None
    }
    with contextlib.suppress(OSError, UnicodeError):
        rundir.make_private_folder(os.path.dirname(path))
        rundir.write_atomically(path, json.dumps(kept).encode(), sync=False)
