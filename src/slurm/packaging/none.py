"""Nothing is packaged: the function travels with the run, and a Python of the cluster runs it."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Mapping

from slurm.errors import PythonMismatch
from slurm.packaging.function import by_value_reason, client_path
from slurm.packaging.prepare import Prepared, Request
from slurm.rendering import Environment


def prepare_none(request: Request) -> Prepared:
    """The environment of a call: which Python, which import path, and why."""
    from slurm.packaging.remote import prepare_remote, remote_of

    remote = remote_of(request.cluster)
    if remote is not None:
        environment, reason = prepare_remote(remote, request.function, request.options)
        return Prepared(environment, reason or "", holds=lambda _: False)
    python = choose_python(request.options)
    why = "the job uses this machine's files; nothing has to be installed"
    reason = by_value_reason(request.function)
    if reason and python != sys.executable:
        check_version(python, reason)
    return Prepared(Environment(python=python, why=why, path=client_path()))


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
    here = sys.version_info[:2]
    if there is not None and there != here:
        raise PythonMismatch(
            "the function travels by value ({}), pickled on Python {}.{}, but {} is Python "
            "{}.{}".format(reason, *here, python, *there),
            hint="use a Python {}.{} there, or move the function into a module that the node "
            "can import".format(*here),
        )


@functools.lru_cache(maxsize=32)
def python_version(python: str) -> tuple[int, int] | None:
    """The version of an interpreter, None where it cannot be asked from here."""
    import subprocess

    ask = "import json, sys; print(json.dumps(sys.version_info[:2]))"
    try:
        done = subprocess.run(
            [python, "-I", "-S", "-c", ask], capture_output=True, timeout=30, check=True
        )
        major, minor = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        return None
    return int(major), int(minor)
