"""Images made where there is no registry: a base from the distribution's archive, ours on top."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from slurm.errors import StackError
from slurm.programs import install_command, named
from slurm.stack.image import REPOSITORY, Image, template

#: A build downloads some 150 MB; a slow archive must still end in an error, not in a hang.
_PATIENCE = 1800
_BASE_ARGUMENTS = ("BASE", "DATABASE_BASE")
#: Releases past their support: the lists of their security archive name packages that are gone.
_MIRROR = {"bullseye": "deb http://deb.debian.org/debian bullseye main"}


def has_image(engine: str, name: str) -> bool:
    """Whether the engine (`podman` or `docker`) has an image of that name."""
    return _call([engine, "image", "inspect", name], patience=60).returncode == 0


def ensure_pulled(engine: str, name: str) -> bool:
    """Whether an image that is not ours is here, after it was asked for at its registry."""
    return has_image(engine, name) or _pull(engine, name)


def _pull(engine: str, name: str) -> bool:
    return _call([engine, "pull", "--quiet", name], patience=300).returncode == 0


def ensure_image(engine: str, image: Image, suite: str) -> bool:
    """Build an image unless it is there; whether it was built. `suite` is its Debian.

    A name stands for a content, so an image that is there is the right one. Where the base can be
    had neither here nor from its registry, it is made from the distribution's archive.
    """
    if has_image(engine, image.name):
        return False
    arguments = dict(image.arguments)
    for key in _BASE_ARGUMENTS:
        if key in arguments:
            arguments[key] = ensure_base(engine, arguments[key], suite)
    with tempfile.TemporaryDirectory(prefix="slurm-image-") as folder:
        for name in ("Containerfile", "entrypoint.sh"):
            (Path(folder) / name).write_text(template(name), encoding="utf-8")
        argv = [engine, "build", "--network", "host", "--target", image.target]
        if takes_old_lists():
            argv += ["--build-arg", "CHECK_VALID_UNTIL=false"]
        for key, value in arguments.items():
            argv += ["--build-arg", f"{key}={value}"]
        argv += ["--tag", image.name, "--file", f"{folder}/Containerfile", folder]
        _must(argv, f"the image {image.name} could not be built")
    return True


def ensure_base(engine: str, wanted: str, suite: str) -> str:
    """The name of a base image of a Debian release: as wanted, or one of our own making."""
    if has_image(engine, wanted):
        return wanted
    own = f"{REPOSITORY}/debian:{suite}"
    if has_image(engine, own):
        return own
    if _pull(engine, wanted):
        return wanted
    make_base(engine, own, suite)
    return own


def make_base(engine: str, name: str, suite: str) -> None:
    """A minimal Debian as an image, from the distribution's own archive."""
    if shutil.which("mmdebstrap") is None:
        raise StackError(
            f"no base image of Debian {suite} can be pulled or made here",
            hint=f"{install_command([named('mmdebstrap')])}, or name a base that can be pulled in "
            "[images] base",
        )
    with tempfile.TemporaryDirectory(prefix="slurm-base-") as folder:
        tar = f"{folder}/{suite}.tar"
        options = ['--aptopt=Acquire::Check-Valid-Until "false"'] if takes_old_lists() else []
        source = [_MIRROR[suite]] if suite in _MIRROR else []
        if options:
            # An image does not keep it.
            options.append('--customize-hook=rm -f "$1/etc/apt/apt.conf.d/99mmdebstrap"')
        argv = ["mmdebstrap", "--variant=minbase", *options, suite, tar, *source]
        _must(argv, f"mmdebstrap could not make Debian {suite}")
        _must([engine, "import", tar, name], f"{engine} could not import {tar}")


def takes_old_lists() -> bool:
    """Whether this host's own apt was told that its mirror is a frozen copy, past its date."""
    done = _call(["apt-config", "shell", "CHECK", "Acquire::Check-Valid-Until/b"], patience=20)
    return done.returncode == 0 and "CHECK='false'" in done.stdout


def _must(argv: list[str], problem: str) -> None:
    done = _call(argv, patience=_PATIENCE)
    if done.returncode != 0:
        words = [line for line in done.stdout.splitlines() if line.strip()]
        raise StackError(problem, evidence=words[-12:], hint="mend what is said above, try again")


def _call(argv: list[str], patience: float) -> subprocess.CompletedProcess[str]:
    """Run a program and keep what it says; one that is missing or too slow counts as failed."""
    try:
        return subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=patience,
            check=False,
        )
    except FileNotFoundError:
        return subprocess.CompletedProcess(argv, 127, f"{argv[0]} is not installed", "")
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(argv, 124, f"no end after {patience:g} s", "")
