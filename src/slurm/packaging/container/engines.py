"""The programs that build images: which one is here, and their command lines as pure functions."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from slurm.api import starting
from slurm.errors import PackagingError

#: Engines in the order in which they are looked for.
ENGINES = ("podman", "docker", "buildah")

#: What tells whether an engine works here: docker is often a client without its daemon.
_PROBE = {
    "podman": ("podman", "--version"),
    "docker": ("docker", "version", "--format", "{{.Server.Version}}"),
    "buildah": ("buildah", "--version"),
}


@dataclass(frozen=True)
class Build:
    """An image that is to be built: all that its content depends on, and where it goes."""

    engine: str
    dockerfile: str
    context: str
    tag: str
    build_args: Mapping[str, str] = field(default_factory=dict)
    #: Names of variables of this process; their values reach `RUN --mount=type=secret,id=NAME`.
    secrets: Sequence[str] = ()
    platform: str | None = None
    no_cache: bool = False
    tls_verify: bool = True
    extra: Sequence[str] = ()


def build_command(build: Build, id_file: str) -> list[str]:
    """The command that builds an image and writes its id to a file."""
    words = [build.engine, "build", f"--file={build.dockerfile}", f"--tag={build.tag}"]
    words.append(f"--iidfile={id_file}")
    if build.platform:
        words.append(f"--platform={build.platform}")
    words += [f"--build-arg={name}={value}" for name, value in build.build_args.items()]
    # The engine reads the value from its environment: it is in no command line and no layer.
    words += [f"--secret=id={name},env={name}" for name in build.secrets]
    if build.no_cache:
        words.append("--no-cache")
    if build.engine == "docker":
        words.append("--progress=plain")
    elif not build.tls_verify:
        words.append("--tls-verify=false")
    return [*words, *build.extra, build.context]


def push_command(engine: str, tag: str, digest_file: str, tls_verify: bool = True) -> list[str]:
    """The command that pushes an image; podman and buildah write the digest to a file."""
    if engine == "docker":
        return ["docker", "push", tag]
    tls = [] if tls_verify else ["--tls-verify=false"]
    return [engine, "push", *tls, f"--digestfile={digest_file}", tag]


def inspect_command(engine: str, image: str) -> list[str]:
    """The command that says for which system and machine an image was made."""
    if engine == "buildah":
        form = "{{.OCIv1.OS}}/{{.OCIv1.Architecture}}"
        return ["buildah", "inspect", "--type=image", f"--format={form}", image]
    return [engine, "image", "inspect", "--format={{.Os}}/{{.Architecture}}", image]


def look_command(engine: str, image: str, python: str) -> list[str] | None:
    """The command that asks an image for the version of its Python; buildah cannot run images."""
    if engine == "buildah":
        return None
    ask = "import sys; print('python %d.%d' % sys.version_info[:2])"
    words = [engine, "run", "--rm", "--network=none", f"--entrypoint={python}"]
    return [*words, image, "-I", "-S", "-c", ask]


def pushed_digest(output: str) -> str | None:
    """The digest that docker names at the end of a push."""
    found = re.findall(r"\bdigest: (sha256:[0-9a-f]{64})\b", output)
    return found[-1] if found else None


def works(engine: str) -> bool:
    """Whether an engine is here and answers."""
    if shutil.which(engine) is None:
        return False
    try:
        done = starting.run(_PROBE[engine], capture_output=True, timeout=30)
    except (OSError, subprocess.SubprocessError):
        return False
    return done.returncode == 0


def find_engine(asked: str, answers: Callable[[str], bool] = works) -> str:
    """The engine that was asked for, else the first that works here."""
    if asked != "auto":
        if answers(asked):
            return asked
        state = "does not answer" if shutil.which(asked) else "is not on the PATH"
        raise PackagingError(
            f"engine={asked!r}: the program {asked} {state}",
            hint="start or install it, or leave engine out",
        )
    for engine in ENGINES:
        if answers(engine):
            return engine
    raise PackagingError(
        f"building an image needs {', '.join(ENGINES[:-1])} or {ENGINES[-1]}, and none works here",
        hint="install podman, or build the image elsewhere and name it: container:IMAGE",
    )


def has_registry(image: str) -> bool:
    """Whether a name begins with the host of a registry: `ghcr.io/me/app`, `localhost:5000/app`."""
    host, slash, _ = image.partition("/")
    return bool(slash) and ("." in host or ":" in host)


def is_file(image: str) -> bool:
    """Whether an image is a file or a directory of the cluster, not a name in a registry."""
    return image.startswith(("/", "~", "./", "../"))


#: Names as registries take them: host, path of lower case, tag, digest.
_NAME = re.compile(
    r"(?:[A-Za-z0-9.-]+(?::[0-9]+)?/)?[a-z0-9]+(?:[._/-]+[a-z0-9]+)*"
    r"(?::[\w][\w.-]{0,127})?(?:@sha256:[0-9a-f]{64})?"
)


def check_image(image: str) -> str:
    """Refuse what can be no image: the word reaches command lines of programs."""
    name = image.removeprefix("docker://")
    if is_file(name):
        return os.path.normpath(name) if name.startswith("/") else name
    if not _NAME.fullmatch(name):
        raise PackagingError(
            f"image={image!r} is no name of an image",
            hint="write REGISTRY/NAME:TAG in lower case, or a path of the cluster",
        )
    return name


def in_registry(image: str, registry: str | None) -> str:
    """The name of an image in a registry that was given apart from it."""
    if registry is None or has_registry(image):
        return image
    return f"{registry.rstrip('/')}/{image}"


def pinned(image: str, digest: str) -> str:
    """The name of exactly this content: the digest in the place of the tag."""
    name = image.partition("@")[0]
    folder, slash, last = name.rpartition("/")
    return f"{folder}{slash}{last.partition(':')[0]}@{digest}"
