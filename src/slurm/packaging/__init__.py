"""How code gets to the node: decides the Environment that a job's script starts Python in."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from slurm.errors import PackagingError, PythonMismatch, nearest
from slurm.packaging.function import by_value_reason, client_path
from slurm.rendering import Environment

if TYPE_CHECKING:
    from slurm.cluster import Cluster

#: What `packaging=` takes.
KINDS = ("auto", "none")


def check_packaging(kind: str) -> str:
    """Refuse an unknown way of packaging by name."""
    if kind not in KINDS:
        close = nearest(str(kind), KINDS)
        raise PackagingError(
            f"packaging={kind!r} is not known; this version has {' and '.join(map(repr, KINDS))}",
            hint=f"did you mean {close!r}?" if close else "leave packaging out",
        )
    return kind


def prepare_for(
    cluster: Cluster, kind: str, function: Callable[..., Any], options: Mapping[str, object]
) -> tuple[Environment, str | None]:
    """The environment of a call on a cluster, and why its function travels by value.

    None as the reason leaves it to `ship_function`, "" says that it travels by reference.
    """
    from slurm.packaging.remote import prepare_remote, remote_of

    remote = remote_of(cluster)
    if remote is None:
        return prepare(kind, function, options), None
    check_packaging(kind)
    environment, reason = prepare_remote(remote, function, options)
    return environment, reason or ""


def sending(cluster: Cluster) -> AbstractContextManager[None]:
    """What has to be in force while calls for a cluster are pickled."""
    from slurm.packaging.remote import remote_of, sending_to

    remote = remote_of(cluster)
    return nullcontext() if remote is None else sending_to(remote)


def prepare(kind: str, function: Callable[..., Any], options: Mapping[str, object]) -> Environment:
    """The environment of a call: which Python, which import path, and why."""
    check_packaging(kind)
    python = choose_python(options)
    why = "the job uses this machine's files; nothing has to be installed"
    environment = Environment(python=python, kind="none", why=why, path=client_path())
    reason = by_value_reason(function)
    if reason and python != sys.executable:
        _check_version(python, reason)
    return environment


def choose_python(options: Mapping[str, object]) -> str:
    """The interpreter of the job: what was asked for, else the one that runs this client."""
    if options.get("python"):
        return str(options["python"])
    if options.get("venv"):
        return f"{options['venv']}/bin/python"
    if options.get("conda"):
        return "python"
    return sys.executable


def _check_version(python: str, reason: str) -> None:
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
