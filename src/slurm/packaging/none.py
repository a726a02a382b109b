"""Nothing is packaged: the function travels with the run, and a Python of the cluster runs it."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace

from slurm.errors import PythonMismatch
from slurm.packaging.function import by_value_reason, client_path
from slurm.packaging.prepare import Prepared, Request
from slurm.rendering import Environment


def prepare_none(request: Request) -> Prepared:
    """The environment of a call: which Python, which import path, and why."""
    from slurm.packaging.remote import remote_of, why_by_value

    remote = remote_of(request.cluster)
    if remote is not None:
        reason = why_by_value(remote, request.function, request.options)
        return prepare_python(request, reason)
    return prepare_python(request, by_value_reason(request.function))


def prepare_python(request: Request, reason: str | None) -> Prepared:
    """A call in a Python of the cluster, or in one that uv provides where none fits.

    `reason` says why the function travels by value, if it does.
    """
    from slurm.packaging.environments import Recipe, deliver, in_store
    from slurm.packaging.remote import interpreter, remote_of

    remote = remote_of(request.cluster)
    if remote is None:
        python = choose_python(request.options)
        if reason and python != sys.executable:
            check_version(python, reason)
        why = "the job uses this machine's files; nothing has to be installed"
        return Prepared(Environment(python=python, why=why, path=client_path()))
    found = interpreter(remote, request.options, reason)
    nothing: Callable[[str], bool] = lambda _: False  # noqa: E731 - a name for its type
    if found.python is not None:
        why = f"Python {remote.how.hostname} has; the code travels with the run"
        return Prepared(Environment(python=found.python, why=why), reason or "", nothing)
    recipe = Recipe(f"Python {found.version}", found.version, options=request.packaging.options)
    environment = in_store(request.cluster, recipe, found.maker, found.outside)
    why = f"Python {found.version}, provided by uv: {remote.how.hostname} has {found.tried}"
    return Prepared(
        replace(environment, why=why, digest=""),
        reason or "",
        nothing,
        lambda cluster: deliver(cluster, recipe),
    )


def choose_interpreter(request: Request, reason: str | None) -> tuple[str | None, str, str, str]:
    """The Python of an environment: its path if known, its version, who makes it, what else runs.

    Without a path one of the version is looked for where the environment is made, or provided.
    """
    from slurm.packaging.remote import interpreter, remote_of

    remote = remote_of(request.cluster)
    wanted = request.packaging.options.get("python_version")
    if remote is not None:
        found = interpreter(remote, request.options, reason, wanted)
        return found.python, found.version, found.maker, found.outside
    python = choose_python(request.options)
    here = "{}.{}".format(*sys.version_info)
    version = here
    if python != sys.executable:
        told = python_version(python) if "/" in python else None
        version = "{}.{}".format(*told) if told else here
    if wanted and wanted != version:
        python, version = "", str(wanted)
    if reason and version != here:
        raise mismatch(python or f"python{version}", version, reason)
    return python or None, version, sys.executable, sys.executable


def choose_python(options: Mapping[str, object]) -> str:
    """The interpreter of the job: what was asked for, else the one that runs this client."""
    if options.get("python"):
        return str(options["python"])
    if options.get("venv"):
        return f"{options['venv']}/bin/python"
    if options.get("conda"):
        return "python"
    return sys.executable


def check_version(python: str, reason: str) -> None:
    """A function that travels by value runs on the same minor version only."""
    there = python_version(python) if "/" in python else None
    if there is not None and there != sys.version_info[:2]:
        raise mismatch(python, "{}.{}".format(*there), reason)


def mismatch(python: str, version: str, reason: str) -> PythonMismatch:
    """The error of a function that would be unpickled by another Python."""
    here = "{}.{}".format(*sys.version_info)
    return PythonMismatch(
        f"the function travels by value ({reason}), pickled on Python {here}, but {python} is "
        f"Python {version}",
        hint=f"use a Python {here} there, or move the function into a module that the node can "
        "import",
    )


@functools.lru_cache(maxsize=32)
def python_version(python: str) -> tuple[int, int] | None:
    """The version of an interpreter, None where it cannot be asked from here."""
    import subprocess

    from slurm.api import starting

    ask = "import json, sys; print(json.dumps(sys.version_info[:2]))"
    try:
        done = starting.run(
            [python, "-I", "-S", "-c", ask], capture_output=True, timeout=30, check=True
        )
        major, minor = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        return None
    return int(major), int(minor)
