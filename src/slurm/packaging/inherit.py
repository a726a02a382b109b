"""Inside a job: the environment of the job itself, for what is submitted from there."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from slurm import rundir
from slurm.errors import PackagingError
from slurm.packaging.choose import OUTER, Packaging
from slurm.packaging.function import client_path
from slurm.packaging.prepare import Prepared, Request
from slurm.rendering import Environment


def read_environment(data: bytes | str) -> Environment:
    """The environment that a run's file describes; keys of newer versions are passed over."""
    found = json.loads(data)
    if not isinstance(found, dict):
        raise ValueError("an environment is an object of JSON")
    known = {f.name for f in fields(Environment)}
    plain: dict[str, Any] = {name: value for name, value in found.items() if name in known}
    lists = {name: tuple(value) for name, value in plain.items() if isinstance(value, list)}
    return Environment(**{**plain, **lists})


def own_environment() -> Environment | None:
    """The environment of the job that this process is, None outside of a job."""
    run = os.environ.get("SLURM_SDK_RUN")
    if run is None:
        return None
    try:
        with open(os.path.join(run, rundir.ENVIRONMENT), "rb") as f:
            return read_environment(f.read())
    except (OSError, ValueError, TypeError):
        return None


def decide_inside(packaging: Packaging) -> tuple[Packaging, str] | None:
    """What holds inside a job that was packaged: its own environment; None: decide as usual."""
    own = own_environment()
    if own is None or own.kind in ("none", "captured") or packaging.kind in ("inherit", "none"):
        return None
    own_way = Packaging("inherit", {}, packaging.said_by)
    if packaging.kind == "auto" or packaging.said_by == OUTER:
        return own_way, f"{packaging.kind}, inside a job"
    asked: Mapping[str, Any] = packaging.options
    made_with = own.details.get("options", {})
    if packaging.kind == own.kind and all(made_with.get(k) == v for k, v in asked.items()):
        return own_way, f"{own.kind}, as the job around it"
    if packaging.kind == "container":
        return None
    raise PackagingError(
        f"{packaging.said_by} asks for {packaging.kind}, and the job around it has {own.kind}: "
        "the project's files are not here, so nothing can be packaged",
        hint='leave packaging out, or write packaging="inherit"',
    )


def prepare_inherit(request: Request) -> Prepared:
    """The environment of the job around the call."""
    own = own_environment()
    if own is None:
        raise PackagingError(
            f"{request.name}: packaging='inherit' takes over the environment of the job around "
            "it, and this process is no job",
            hint="use it for tasks that a workflow submits; here leave packaging out",
        )
    why = f"{own.kind} of the job around it"
    return Prepared(replace(own, path=client_path(), why=why))
