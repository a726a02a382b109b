"""Builds an image when its content changed, pushes it, and knows it again by its digest."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from slurm.api import starting
from slurm.errors import BuildFailed, ImageUnusable
from slurm.packaging import progress
from slurm.packaging.container import context as files
from slurm.packaging.container import engines
from slurm.packaging.container.engines import Build
from slurm.packaging.tree import code_folder

#: The oldest Python that can run anything of ours.
OLDEST = (3, 8)
#: How many lines of a failed build an error shows.
LAST_LINES = 15


@dataclass(frozen=True)
class Image:
    """An image that was built: the name that pins its content, and the Python in it if known."""

    name: str
    python: tuple[int, int] | None = None


def build_image(build: Build, push: bool, python: str) -> Image:
    """The image of a build: a known one where nothing changed, else built, looked at and pushed."""
    key = _key(build, content_of(build), push, python)
    with _alone(key):
        known = None if build.no_cache else _recall(key)
        if known is not None and _still_there(build, known, push):
            return known
        image = _build(build, push, python)
        _remember(key, image)
    return image


def content_of(build: Build) -> str:
    """The hash of the context; where no file was written since it was last read, none is read."""
    found = files.list_context(build.context)
    place = os.path.join(code_folder("contexts"), _short(os.path.realpath(build.context)))
    seen = files.signature(found)
    with contextlib.suppress(OSError, ValueError):
        with open(place) as f:
            before, _, content = f.read().partition(" ")
        if before == seen and content:
            return content
    content = files.content_hash(build.context, found)
    _write(place, f"{seen} {content}")
    return content


def known_image(build: Build, push: bool, python: str) -> Image | None:
    """The image of a build that was made before and of which nothing changed since."""
    if build.no_cache:
        return None
    return _recall(_key(build, content_of(build), push, python))


def _key(build: Build, content: str, push: bool, python: str) -> str:
    """What the image is known by. Secrets are not in it: their values are in no image."""
    with open(build.dockerfile, "rb") as f:
        recipe = hashlib.sha256(f.read()).hexdigest()
    plain = asdict(replace(build, engine="", no_cache=False, context="", dockerfile=""))
    return _short(json.dumps([plain, recipe, content, push, python], sort_keys=True))


def _build(build: Build, push: bool, python: str) -> Image:
    with tempfile.TemporaryDirectory(prefix="slurm-sdk-build-") as scratch:
        id_file, digest_file = f"{scratch}/id", f"{scratch}/digest"
        hide = [os.environ[name] for name in build.secrets]
        with progress.step("build", f"the image {build.tag} with {build.engine}") as told:
            _follow(engines.build_command(build, id_file), told, hide)
        image = _read(id_file)
        _check_platform(build, image)
        version = _look_inside(build, image, python)
        if not push:
            built = Image(image.removeprefix("sha256:"), version)
            _seen.add(built.name)
            return built
        words = engines.push_command(build.engine, build.tag, digest_file, build.tls_verify)
        with progress.step("push", build.tag) as told:
            said = _follow(words, told)
        digest = engines.pushed_digest(said) if build.engine == "docker" else _read(digest_file)
    if not digest:
        raise BuildFailed(
            f"{build.engine} pushed {build.tag}, but did not say its digest",
            evidence=said.splitlines()[-LAST_LINES:],
        )
    return Image(engines.pinned(build.tag, digest), version)


def _follow(words: Sequence[str], told: Callable[[str], None], hide: Sequence[str] = ()) -> str:
    """Run an engine, pass on each of its lines without secrets, and raise with its last ones."""
    said: list[str] = []
    env = {**os.environ, "DOCKER_BUILDKIT": "1"}
    try:
        engine = starting.popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env=env,
        )
    except OSError as error:
        raise BuildFailed(f"{words[0]} cannot be started: {error}") from error
    assert engine.stdout is not None
    try:
        for line in engine.stdout:
            text = line.rstrip()
            for secret in filter(None, hide):
                text = text.replace(secret, "***")
            said.append(text)
            told(text)
        code = engine.wait()
    except BaseException:  # Ctrl-C too: the engine ends with us; raised again
        engine.terminate()
        engine.wait()
        raise
    if code:
        raise _failed(words, code, said)
    return "\n".join(said)


def _failed(words: Sequence[str], code: int, said: Sequence[str]) -> BuildFailed:
    step = words[1]
    shown = shlex.join(w for w in words if not w.startswith(("--iidfile", "--digestfile")))
    text = "\n".join(said)
    hint = f"see it alone: {shown}"
    if step == "push" and ("refused" in text or "no such host" in text or "timeout" in text):
        hint = f"is the registry up? try: {shown}"
    elif "server gave HTTP response" in text or "x509" in text:
        hint = f"the registry has no certificate that is trusted here: tls_verify=False; {hint}"
    elif "exec format error" in text.lower():
        hint = f"this machine cannot run programs of that platform (qemu-user-static?); {hint}"
    what = f"{words[0]} {step} ended with exit code {code}"
    return BuildFailed(what, evidence=[line for line in said if line][-LAST_LINES:], hint=hint)


def _check_platform(build: Build, image: str) -> None:
    """An engine only warns when the base image is of another platform than asked for."""
    if build.platform is None:
        return
    made = _ask(engines.inspect_command(build.engine, image))
    asked = "/".join(build.platform.split("/")[:2])
    if made and made != asked:
        raise ImageUnusable(
            f"platform={build.platform!r}, but the image that was built is for {made}: its base "
            "image is not there for the platform that was asked for",
            hint=f"take a base image that has {asked}, or leave platform out",
        )


def _look_inside(build: Build, image: str, python: str) -> tuple[int, int] | None:
    """The version of the image's Python; None: it cannot be run here."""
    words = engines.look_command(build.engine, image, python)
    if words is None:
        return None
    done = starting.run(words, capture_output=True, text=True, timeout=120)
    if done.stdout.startswith("python "):
        major, minor = map(int, done.stdout.split()[1].split("."))
        if (major, minor) < OLDEST:
            raise ImageUnusable(
                f"the image {build.tag} has Python {major}.{minor}, and the runner needs 3.8",
                hint="take a newer base image",
            )
        return major, minor
    if done.returncode in (126, 127) and "exec format" not in done.stderr.lower():
        raise no_python(f"the image {build.tag}", python, done.stderr.splitlines()[-3:])
    return None


def no_python(what: str, python: str, evidence: Sequence[str]) -> ImageUnusable:
    """The error about an image in which nothing can run."""
    return ImageUnusable(
        f"{what} has no program {python!r}",
        evidence=evidence,
        hint="install Python 3.8 or newer in the image, or say where it is: "
        'packaging={"type": "container", "python": "/path/in/the/image", ...}',
    )


def _still_there(build: Build, image: Image, push: bool) -> bool:
    """An image that was not pushed lives in this machine's store, from which it can be removed."""
    if push or was_seen(image):
        return True
    if _ask(engines.inspect_command(build.engine, image.name)):
        _seen.add(image.name)
        return True
    return False


def was_seen(image: Image) -> bool:
    """Whether this process has found an image in the machine's store before, or put it there."""
    return image.name in _seen


_seen: set[str] = set()


def _ask(words: Sequence[str]) -> str:
    try:
        done = starting.run(words, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


# ---- what is known from before ------------------------------------------------------------------


def _place(key: str) -> str:
    return os.path.join(code_folder("images"), f"{key}.json")


def _recall(key: str) -> Image | None:
    try:
        with open(_place(key)) as f:
            found: Mapping[str, Any] = json.load(f)
        python = found["python"]
        return Image(str(found["name"]), (python[0], python[1]) if python else None)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _remember(key: str, image: Image) -> None:
    _write(_place(key), json.dumps({**asdict(image), "built": time.time()}))


@contextlib.contextmanager
def _alone(key: str) -> Iterator[None]:
    """One process of this user builds an image; the lock goes with the process that holds it."""
    if sys.platform == "win32":
        yield
        return
    import fcntl

    path = f"{_place(key)}.lock"
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _write(path: str, text: str) -> None:
    """A cache that cannot be written only costs time."""
    with contextlib.suppress(OSError):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        partial = f"{path}.{os.getpid()}"
        with open(partial, "w") as f:
            f.write(text)
        os.replace(partial, path)


def _read(path: str) -> str:
    with contextlib.suppress(OSError), open(path) as f:
        return f.read().strip()
    return ""


def _short(text: str) -> str:
    return hashlib.blake2b(text.encode(errors="surrogateescape"), digest_size=12).hexdigest()
