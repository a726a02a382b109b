"""What a build depends on: the files of its context, by content, without what it ignores."""

from __future__ import annotations

import functools
import hashlib
import os
import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from slurm.errors import PackagingError

#: More than this in a context is a mistake: a home directory, a data set.
MOST_FILES = 200_000
#: The files that say what is left out; podman and buildah prefer the first.
IGNORE_FILES = (".containerignore", ".dockerignore")


@dataclass(frozen=True)
class Entry:
    """One file, link or folder of a context, as `lstat` saw it."""

    path: str
    mode: int
    size: int
    changed: int

    @property
    def kind(self) -> str:
        """`file`, `link`, `folder`; others are not sent to a build."""
        formats = {stat.S_IFREG: "file", stat.S_IFLNK: "link", stat.S_IFDIR: "folder"}
        return formats.get(stat.S_IFMT(self.mode), "other")


def read_patterns(context: str) -> list[str]:
    """The lines of the context's ignore file."""
    for name in IGNORE_FILES:
        try:
            with open(os.path.join(context, name), encoding="utf-8", errors="surrogateescape") as f:
                lines = [line.strip() for line in f]
        except OSError:
            continue
        return [line for line in lines if line and not line.startswith("#")]
    return []


def is_ignored(path: str, patterns: Sequence[str]) -> bool:
    """Whether the last pattern that matches a path, or a folder around it, leaves it out."""
    ignored = False
    for pattern in patterns:
        wanted = pattern.startswith("!")
        if _expression(pattern[1:] if wanted else pattern).fullmatch(path):
            ignored = not wanted
    return ignored


@functools.lru_cache(maxsize=512)
def _expression(pattern: str) -> re.Pattern[str]:
    """A pattern of an ignore file; it also matches everything below what it names."""
    pattern = os.path.normpath(pattern.strip().strip("/")) if pattern.strip("/ ") else ""
    text, at = "", 0
    while at < len(pattern):
        if pattern.startswith("**/", at):
            text, at = text + "(?:.*/)?", at + 3
        elif pattern.startswith("**", at):
            text, at = text + ".*", at + 2
        elif pattern[at] in "*?":
            text, at = text + ("[^/]*" if pattern[at] == "*" else "[^/]"), at + 1
        elif pattern[at] == "[" and "]" in pattern[at:]:
            end = pattern.index("]", at)
            inner = pattern[at + 1 : end].replace("\\", "\\\\")
            text, at = text + f"[{inner}]", end + 1
        else:
            text, at = text + re.escape(pattern[at]), at + 1
    return re.compile(f"{text}(?:/.*)?" if text else r"(?!)", re.DOTALL)


def entries(context: str, patterns: Sequence[str]) -> Iterator[Entry]:
    """What a build would be sent, sorted; links are not followed, so that no loop can catch us."""
    may_return = any(pattern.startswith("!") for pattern in patterns)
    folders = [""]
    while folders:
        folder = folders.pop()
        with os.scandir(os.path.join(context, folder)) as found:
            inside = sorted(found, key=lambda one: one.name)
        for one in inside:
            path = f"{folder}/{one.name}" if folder else one.name
            ignored = is_ignored(path, patterns)
            if one.is_dir(follow_symlinks=False) and (may_return or not ignored):
                folders.append(path)
            if not ignored:
                seen = one.stat(follow_symlinks=False)
                changed = max(seen.st_mtime_ns, seen.st_ctime_ns)
                yield Entry(path, seen.st_mode, seen.st_size, changed)


def list_context(context: str) -> list[Entry]:
    """The entries of a context; one that is no folder, or far too large, is refused."""
    found: list[Entry] = []
    try:
        for entry in entries(context, read_patterns(context)):
            found.append(entry)
            if len(found) > MOST_FILES:
                raise PackagingError(
                    f"context={context!r} holds more than {MOST_FILES} files",
                    hint="name a smaller folder, or leave files out with a .dockerignore",
                )
    except OSError as error:
        raise PackagingError(
            f"context={context!r} cannot be read: {error.strerror} ({error.filename})",
            hint="name the folder that the Dockerfile copies from",
        ) from error
    return found


def signature(found: Sequence[Entry]) -> str:
    """What changes whenever a file was written: cheap, it opens none of them."""
    digest = hashlib.blake2b(digest_size=16)
    for entry in found:
        # Folders have a time, too; only whether they are there counts.
        when = 0 if entry.kind == "folder" else entry.changed
        digest.update(os.fsencode(entry.path))
        digest.update(f"\0{entry.mode}\0{entry.size * bool(when)}\0{when}\0".encode())
    return digest.hexdigest()


def content_hash(context: str, found: Sequence[Entry]) -> str:
    """What changes when the content does: names, permissions to execute, bytes, targets of links.

    The copy of a context on another machine, with other times, has the same hash.
    """
    digest = hashlib.blake2b(digest_size=16)
    for entry in found:
        executable = bool(entry.mode & 0o111) and entry.kind == "file"
        digest.update(os.fsencode(entry.path))
        digest.update(f"\0{entry.kind}\0{executable:d}\0".encode())
        digest.update(_content(os.path.join(context, entry.path), entry.kind))
    return digest.hexdigest()


def _content(path: str, kind: str) -> bytes:
    if kind == "link":
        return os.fsencode(os.readlink(path))
    if kind != "file":
        return b""
    digest = hashlib.blake2b(digest_size=16)
    with open(path, "rb") as f:
        while block := f.read(1 << 20):
            digest.update(block)
    return digest.digest()
