"""Builds the wheel of a project, once per content, with uv, build or pip.

It is built out of a copy of the tree, so that the user's own stays clean and nothing stale gets in.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slurm import locks
from slurm.api import starting
from slurm.errors import BuildFailed, PackagingError
from slurm.here import working_directory
from slurm.packaging import progress
from slurm.packaging.project import PROJECT, check_settings
from slurm.packaging.tree import Tree, code_folder, read_entry
from slurm.rundir import make_private_folder, write_atomically

#: A build is stopped after so many seconds.
LIMIT = 1800
#: So many of its last lines are evidence.
LINES = 15

FACTS = "wheel.json"

#: Threads that submit the same project at once build it once.
_building = locks.lock("packaging.build")


@dataclass(frozen=True)
class Wheel:
    """A wheel that was built: where it lies, the hash of what it was built of, what it holds."""

    path: str
    digest: str
    name: str
    version: str
    requires: tuple[str, ...]
    files: frozenset[str]

    def holds(self, module: str) -> bool:
        """Whether a module is part of it."""
        path = module.replace(".", "/")
        return f"{path}.py" in self.files or f"{path}/__init__.py" in self.files

    @property
    def needs_sdk(self) -> bool:
        """Whether it asks for the SDK, which the client brings itself."""
        return any(_bare_name(line) == "slurm-sdk" for line in self.requires)


def read_project(project: str) -> dict[str, Any]:
    """The `pyproject.toml` of a project."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    path = os.path.join(project, "pyproject.toml")
    try:
        with open(path, "rb") as f:
            return tomllib.load(f)
    except FileNotFoundError:
        raise PackagingError(
            f"{project} has no pyproject.toml, so that no wheel can be built",
            hint='write one, or send the files as they are: packaging="source"',
        ) from None
    except (OSError, ValueError) as error:
        raise PackagingError(f"{path} cannot be read: {error}", hint="mend the file") from error


def build_wheel(tree: Tree, index: Mapping[str, Any]) -> Wheel:
    """The wheel of a project's tree; built only where this content was not built before."""
    project = read_project(tree.root)
    content = tree.digest
    if "version" in project.get("project", {}).get("dynamic", ()) and tree.git:
        content += str(tree.git.get("commit"))  # the version may come from git
    key = hashlib.sha256(content.encode()).hexdigest()[:32]
    folder = os.path.join(code_folder("wheels"), key)
    known = _read_facts(folder)
    if known is not None:
        return known
    with _building:
        return _read_facts(folder) or _build(tree, folder, index)


@functools.lru_cache(maxsize=64)
def _known_facts(path: str, stamp: int) -> Wheel | None:
    with open(path, encoding="utf-8") as f:
        found = json.load(f)
    wheel = os.path.join(os.path.dirname(path), found["file"])
    if not os.path.exists(wheel):
        return None
    return Wheel(
        path=wheel,
        digest=str(found["digest"]),
        name=str(found["name"]),
        version=str(found["version"]),
        requires=tuple(found["requires"]),
        files=frozenset(found["files"]),
    )


def _read_facts(folder: str) -> Wheel | None:
    path = os.path.join(folder, FACTS)
    try:
        return _known_facts(path, os.stat(path).st_mtime_ns)
    except (OSError, ValueError, KeyError):
        return None


def _build(tree: Tree, folder: str, index: Mapping[str, Any]) -> Wheel:
    command, tool = builder()
    if tool == "uv":
        check_settings(working_directory(), tree.root)
    with tempfile.TemporaryDirectory(prefix="slurm-wheel-") as temporary:
        source, out = os.path.join(temporary, "source"), os.path.join(temporary, "out")
        copy_tree(tree, source)
        # What lies above, in /tmp, may be anybody's; uv looks there for a workspace.
        with open(os.path.join(temporary, PROJECT), "w") as barrier:
            barrier.write("[tool.uv.workspace]\nmembers = []\n")
        os.mkdir(out)
        with progress.step("build", f"wheel of {tree.root} with {tool}") as line:
            words = [word.format(out=out, source=source) for word in command]
            # `python -m` imports from where it is started.
            _run(words, tree, index, line, None if tool == "uv" else temporary)
        found = [name for name in os.listdir(out) if name.endswith(".whl")]
        if len(found) != 1:
            raise BuildFailed(
                f"the build of {tree.root} made {len(found)} wheels instead of one",
                hint=f"look at what its build backend does: cd {tree.root} && {_by_hand(command)}",
            )
        made = os.path.join(out, found[0])
        facts = {**read_wheel(made), "digest": os.path.basename(folder)}
        make_private_folder(folder)
        target = os.path.join(folder, found[0])
        shutil.copyfile(made, f"{target}.{os.getpid()}.tmp")
        os.replace(f"{target}.{os.getpid()}.tmp", target)
    write_atomically(os.path.join(folder, FACTS), json.dumps(facts).encode())
    wheel = _read_facts(folder)
    assert wheel is not None
    return wheel


def copy_tree(tree: Tree, target: str) -> None:
    """A copy of a tree to build from; git is told that it is the same working tree."""
    for entry in tree.entries:
        path = os.path.join(target, entry.path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if entry.is_link:
            os.symlink(os.readlink(os.path.join(tree.root, entry.path)), path)
            continue
        with open(path, "wb") as f:
            f.write(read_entry(tree, entry))
        os.chmod(path, stat.S_IMODE(entry.mode))
    git, pointer = os.path.join(tree.root, ".git"), os.path.join(target, ".git")
    if os.path.isdir(git):
        with open(pointer, "w") as told:
            told.write(f"gitdir: {git}\n")
    elif os.path.isfile(git):
        shutil.copyfile(git, pointer)


def find_uv() -> str | None:
    """Where uv lies on this machine: on PATH, or as a package of this Python."""
    found = shutil.which("uv")
    if found is None:
        beside = os.path.join(os.path.dirname(sys.executable), "uv")
        found = beside if os.access(beside, os.X_OK) else None
    return found


def builder() -> tuple[list[str], str]:
    """The command that builds a wheel here, and the name of the tool."""
    uv = find_uv()
    if uv is not None:
        return [uv, "build", "--wheel", "--out-dir", "{out}", "{source}"], "uv"
    python = [sys.executable, "-m"]
    if importlib.util.find_spec("build") is not None:
        return [*python, "build", "--wheel", "--outdir", "{out}", "{source}"], "build"
    if importlib.util.find_spec("pip") is not None:
        return [*python, "pip", "wheel", "--no-deps", "--wheel-dir", "{out}", "{source}"], "pip"
    raise PackagingError("nothing here can build a wheel", hint="pip install uv")


def _run(
    words: Sequence[str], tree: Tree, index: Mapping[str, Any], line: Any, folder: str | None
) -> None:
    env = {**os.environ, "UV_NO_PROGRESS": "1", "GIT_OPTIONAL_LOCKS": "0"}
    env.pop("VIRTUAL_ENV", None)
    url = index.get("index_url")
    if url:
        env.update(UV_DEFAULT_INDEX=url, PIP_INDEX_URL=url)
    more = " ".join(index.get("extra_index_urls") or ())
    if more:
        env.update(UV_INDEX=more, PIP_EXTRA_INDEX_URL=more)
    lines: list[str] = []
    process = starting.popen(
        words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=env,
        cwd=folder,
        text=True,
        errors="replace",
    )
    assert process.stdout is not None
    guard = threading.Timer(LIMIT, process.kill)
    guard.start()
    try:
        for text in process.stdout:
            if text.strip():
                lines.append(text.rstrip())
                line(lines[-1])
        code = process.wait()
    finally:
        guard.cancel()
        process.kill()
        process.wait()
    if code:
        raise BuildFailed(
            f"the wheel of {tree.root} could not be built (exit code {code})",
            hint=f"cd {tree.root} && {_by_hand(words)}",
            evidence=lines[-LINES:],
        )


def _by_hand(words: Sequence[str]) -> str:
    """The same command for a person who stands in the project's folder."""
    tool = os.path.basename(words[0])
    return "uv build --wheel" if tool == "uv" else f"{tool} -m {words[2]} {words[3]} ."


# ---- what is in it ------------------------------------------------------------------------------


def read_wheel(path: str) -> dict[str, Any]:
    """The facts of a wheel: its name, version, requirements and files."""
    from email.parser import Parser

    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        inner = next(n for n in names if n.endswith(".dist-info/METADATA"))
        metadata = Parser().parsestr(archive.read(inner).decode("utf-8"))
    return {
        "file": os.path.basename(path),
        "name": metadata["Name"],
        "version": metadata["Version"],
        "requires": metadata.get_all("Requires-Dist") or [],
        "files": names,
    }


def _bare_name(requirement: str) -> str:
    import re

    match = re.match(r"\s*([A-Za-z0-9._-]+)", requirement)
    return re.sub(r"[-_.]+", "-", match.group(1)).lower() if match else ""


def asks_for_sdk(requirements: Sequence[str]) -> bool:
    """Whether any of these requirements is the SDK itself."""
    return any(_bare_name(line) == "slurm-sdk" for line in requirements)
