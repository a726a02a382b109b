"""A working tree as content: its files, their digest, and the state of git."""

from __future__ import annotations

import fnmatch
import hashlib
import json
import os
import stat
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from slurm.api import starting
from slurm.errors import PackagingError
from slurm.rundir import Untrusted, check_file

#: Folders that are nobody's source, where no git says what is ignored.
JUNK = (
    ".git", ".hg", ".svn", "__pycache__", ".cache", ".venv", "venv", "node_modules", ".tox", ".nox",
    ".mypy_cache", ".pytest_cache", ".ruff_cache", ".hypothesis", ".ipynb_checkpoints", "build",
    "dist", "*.egg-info", ".eggs", "slurm_jobs",
)  # fmt: skip

#: Made of the source by whoever imports it, also where nobody told git to ignore it.
BYTE_CODE = (".pyc", ".pyo")

#: More than this is no source code, but data or an environment that lies in the way.
MOST_FILES = 50_000
MOST_BYTES = 1 << 30

#: A file that was changed so shortly before it was read may change again within one tick.
_FRESH_NS = 2_000_000_000


@dataclass(frozen=True)
class Entry:
    """One file of a tree: its path in it, what it is, and the hash of its content."""

    path: str
    mode: int
    size: int
    digest: str

    @property
    def is_link(self) -> bool:
        """Whether it is a symbolic link; the digest is that of its target's name then."""
        return stat.S_ISLNK(self.mode)


@dataclass(frozen=True)
class Tree:
    """All files of a working tree that count, in a fixed order."""

    root: str
    entries: tuple[Entry, ...]
    git: dict[str, Any] | None = None
    digest: str = field(default="", compare=False)

    @property
    def size(self) -> int:
        """The bytes of all files together."""
        return sum(entry.size for entry in self.entries)

    def facts(self) -> dict[str, Any]:
        """What is recorded with a run."""
        return {
            "digest": self.digest,
            "root": self.root,
            "files": len(self.entries),
            "bytes": self.size,
            "git": self.git,
        }


def read_tree(root: str, exclude: Sequence[str] = ()) -> Tree:
    """The tree of a folder: tracked files and those not ignored; without git all but junk."""
    root = os.path.realpath(root)
    listed = _git_files(root)
    paths, git = (_walk(root), None) if listed is None else listed
    if exclude:
        paths = (path for path in paths if not _excluded(path, exclude))
    entries = _read(root, paths)
    digest = hashlib.sha256()
    for entry in entries:
        name = os.fsencode(entry.path)
        kind = "l" if entry.is_link else "x" if entry.mode & 0o100 else "f"
        digest.update(f"{len(name)}:{kind}:{entry.digest}:".encode() + name)
    return Tree(root, entries, git, digest.hexdigest()[:32])


def read_entry(tree: Tree, entry: Entry) -> bytes:
    """The content of a file of a tree, if it is still what the digest says."""
    full = os.path.join(tree.root, entry.path)
    try:
        with open(full, "rb") as f:
            data = f.read()
    except OSError as error:
        raise PackagingError(f"{full} cannot be read: {error}", hint="submit again") from error
    if hashlib.sha256(data).hexdigest() != entry.digest:
        raise PackagingError(f"{full} changed while it was packaged", hint="submit again")
    return data


def git_top(folder: str) -> str | None:
    """The top of the git working tree around a folder, None outside of one."""
    while True:
        if os.path.exists(os.path.join(folder, ".git")):
            return folder
        above = os.path.dirname(folder)
        if above == folder:
            return None
        folder = above


# ---- which files --------------------------------------------------------------------------------


def _git_files(root: str) -> tuple[Iterator[str], dict[str, Any]] | None:
    """What git counts to the working tree below a folder, and where git stands; None without."""
    if git_top(root) is None:
        return None
    tracked = _git(root, "ls-files", "-z", "--cached")
    # Both run at the same time: each takes as long as it takes to look at every file.
    state = _git(root, "status", "--porcelain=v2", "--branch", "-z", "--untracked-files=all", ".")
    if tracked is None or state is None:
        return None
    names, told = _output(tracked), _output(state)
    if names is None or told is None:
        return None
    head: dict[str, str] = {}
    untracked, dirty = [], 0
    prefix = os.path.relpath(root, git_top(root) or root)
    for line in told.split("\0"):
        if line.startswith("# branch."):
            name, _, value = line[len("# branch.") :].partition(" ")
            head[name] = value
        elif line.startswith("? ") and not line.endswith(BYTE_CODE):
            # Paths count from the top of the repository, those of ls-files from here.
            untracked.append(os.path.relpath(line[2:], prefix) if prefix != "." else line[2:])
        elif line[:2] in ("1 ", "2 ", "u "):
            dirty += 1
    commit = head.get("oid", "")
    git = {
        "commit": None if commit == "(initial)" else commit,
        "branch": head.get("head"),
        "changed": dirty,
        "untracked": len(untracked),
    }
    return _with_modules(root, [n for n in names.split("\0") if n] + untracked), git


def _git(root: str, *words: str) -> subprocess.Popen[bytes] | None:
    # Status would write what it has learned into the user's index.
    env = {**os.environ, "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
    try:
        return starting.popen(
            ["git", *words],
            cwd=root,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
    except OSError:
        return None


def _output(process: subprocess.Popen[bytes]) -> str | None:
    try:
        out, _ = process.communicate(timeout=120)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return None
    return os.fsdecode(out) if process.returncode == 0 else None


def _with_modules(root: str, names: list[str]) -> Iterator[str]:
    """The names, where a submodule or a nested repository stands for its own files."""
    for name in dict.fromkeys(names):
        full = os.path.join(root, name)
        if os.path.isdir(full) and not os.path.islink(full):
            inner = _git_files(full)
            below = _walk(full) if inner is None else inner[0]
            yield from (os.path.join(name.rstrip("/"), path) for path in below)
        else:
            yield name


def _walk(root: str) -> Iterator[str]:
    """All files but junk; symbolic links are not followed, so that a circle ends."""
    for folder, folders, names in os.walk(root):
        kept = [f for f in folders if not any(fnmatch.fnmatch(f, junk) for junk in JUNK)]
        # A virtual environment may have any name.
        kept = [f for f in kept if not os.path.exists(os.path.join(folder, f, "pyvenv.cfg"))]
        links = [f for f in kept if os.path.islink(os.path.join(folder, f))]
        folders[:] = [f for f in kept if f not in links]
        above = os.path.relpath(folder, root)
        for name in [*links, *names]:
            if not name.endswith(BYTE_CODE):
                yield name if above == "." else os.path.join(above, name)


def _excluded(path: str, patterns: Sequence[str]) -> bool:
    parts = path.split("/")
    above = ["/".join(parts[: n + 1]) for n in range(len(parts))]
    return any(
        fnmatch.fnmatch(one, pattern.rstrip("/")) or fnmatch.fnmatch(name, pattern.rstrip("/"))
        for pattern in patterns
        for one, name in zip(above, parts, strict=True)
    )


# ---- their content ------------------------------------------------------------------------------


def _read(root: str, paths: Iterator[str]) -> tuple[Entry, ...]:
    known = _Known(root)
    entries: list[Entry] = []
    total = 0
    for path in paths:
        full = os.path.join(root, path)
        try:
            info = os.lstat(full)
            if not (stat.S_ISREG(info.st_mode) or stat.S_ISLNK(info.st_mode)):
                continue  # a socket or a pipe has no content
            digest = known.digest(path, full, info)
        except FileNotFoundError:
            continue  # tracked, and deleted in the working tree
        except OSError as error:
            raise PackagingError(
                f"{full} cannot be read: {error.strerror}", hint=f"exclude=[{path!r}]"
            ) from error
        entries.append(Entry(path, info.st_mode, info.st_size, digest))
        total += info.st_size
        if len(entries) > MOST_FILES or total > MOST_BYTES:
            raise _too_large(root, entries)
    known.save()
    return tuple(sorted(entries, key=lambda entry: os.fsencode(entry.path)))


def _too_large(root: str, entries: Sequence[Entry]) -> PackagingError:
    sizes: dict[str, list[int]] = {}
    for entry in entries:
        counted = sizes.setdefault(entry.path.partition("/")[0], [0, 0])
        counted[0] += 1
        counted[1] += entry.size
    large = sorted(sizes, key=lambda name: -sizes[name][1])[:3]
    return PackagingError(
        f"{root} has more than {MOST_FILES} files or {MOST_BYTES >> 20} MiB: too much for source "
        "code that travels with a job",
        hint=f'let git ignore it, or leave it out: {{"exclude": {large[:1]!r}}}; or name the '
        'folder of the code: {"root": "src"}',
        evidence=[f"{n}: {sizes[n][0]} files, {sizes[n][1] >> 20} MiB so far" for n in large],
    )


class _Known:
    """The hashes of files that have not changed since they were read, kept from run to run."""

    def __init__(self, root: str) -> None:
        name = hashlib.sha256(os.fsencode(root)).hexdigest()[:24]
        self._path = os.path.join(code_folder("trees"), f"{name}.json")
        self._old: dict[str, list[Any]] = {}
        self._new: dict[str, list[Any]] = {}
        self._now = time.time_ns()
        try:
            with open(self._path, encoding="utf-8", errors="surrogateescape") as f:
                found = json.load(f)
            self._old = found if isinstance(found, dict) else {}
        except (OSError, ValueError):
            pass

    def digest(self, path: str, full: str, info: os.stat_result) -> str:
        """The hash of a file's content, or of a link's target."""
        stamp = [info.st_size, info.st_mtime_ns, info.st_ctime_ns, info.st_ino, info.st_mode]
        before = self._old.get(path)
        if before is not None and before[:5] == stamp:
            self._new[path] = before
            return str(before[5])
        if stat.S_ISLNK(info.st_mode):
            return hashlib.sha256(os.fsencode(os.readlink(full))).hexdigest()
        with open(full, "rb") as f:
            digest = hashlib.file_digest(f, "sha256") if _FILE_DIGEST else _digest(f)
        if self._now - max(info.st_mtime_ns, info.st_ctime_ns) > _FRESH_NS:
            self._new[path] = [*stamp, digest.hexdigest()]
        return str(digest.hexdigest())

    def save(self) -> None:
        """Keep what was learned; a cache that cannot be written is none."""
        if self._new == self._old:
            return
        from slurm.rundir import make_private_folder, write_atomically

        try:
            make_private_folder(os.path.dirname(self._path))
            data = json.dumps(self._new).encode("utf-8", "surrogateescape")
            write_atomically(self._path, data, sync=False)
        except OSError:
            pass


_FILE_DIGEST = hasattr(hashlib, "file_digest")


def _digest(f: Any) -> Any:
    digest = hashlib.sha256()
    while data := f.read(1 << 20):
        digest.update(data)
    return digest


def cache_folder(name: str) -> str:
    """A folder of this user's for what can be made again."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(home, "slurm-sdk", name)


def code_folder(name: str) -> str:
    """The same for what is run or installed; refused where others made it, or may write there."""
    folder = cache_folder(name)
    for place in (os.path.dirname(folder), folder):
        try:
            check_file(place)
        except OSError:
            continue  # not there, or nothing of it can be read
        except Untrusted as error:
            raise PackagingError(
                f"{error}; what lies there would be run",
                hint="set XDG_CACHE_HOME to a directory of your own",
            ) from error
    return folder
