"""The step between a call and its script: packaging decides the Environment of the job."""

from __future__ import annotations

import functools
import importlib
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from slurm.attributes import own
from slurm.here import working_directory
from slurm.packaging.choose import Packaging
from slurm.packaging.project import project_of
from slurm.rendering import Environment

if TYPE_CHECKING:
    from slurm.cluster import Cluster


@dataclass(frozen=True)
class Request:
    """A call as packaging sees it."""

    cluster: Cluster
    packaging: Packaging
    function: Callable[..., Any]
    options: Mapping[str, object]
    #: Whether it is only looked at: nothing is built.
    dry: bool = False

    @property
    def name(self) -> str:
        """The module and name of the function, for messages."""
        return f"{self.function.__module__}.{own(self.function, '__qualname__', '?')}"

    @property
    def source(self) -> str:
        """The file that the function was written in; of the SDK's own that of the program.

        What was typed into a notebook or a prompt counts as written in the working directory.
        """
        code = own(self.function, "__code__")
        if code is not None and not self.function.__module__.startswith("slurm."):
            written: object = code.co_filename
        else:
            written = getattr(sys.modules.get("__main__"), "__file__", None)
        here = os.path.join(working_directory(), "-")
        return str(written) if written and os.path.isfile(str(written)) else here


@dataclass(frozen=True)
class Prepared:
    """What packaging has decided for a call, and what is left to do when it is submitted."""

    environment: Environment
    #: Why the function travels by value; "": it does not; None: as its module and name say.
    by_value: str | None = None
    #: Whether the node can import a module of the user's; None: it sees this machine's files.
    holds: Callable[[str], bool] | None = None
    #: Brings what the environment `needs` to the cluster; called when something is missing there.
    deliver: Callable[[Cluster], None] | None = None


#: Who prepares each kind; imported when it is used.
_PREPARE = {
    "none": "slurm.packaging.none:prepare_none",
    "source": "slurm.packaging.source:prepare_source",
    "wheel": "slurm.packaging.wheel:prepare_wheel",
    "container": "slurm.packaging.container.prepare:prepare_container",
    "inherit": "slurm.packaging.inherit:prepare_inherit",
    # What auto means where the job sees this machine's files.
    "captured": "slurm.packaging.capture:prepare_captured",
}


def prepare(request: Request) -> Prepared:
    """The environment of a call: how Python starts there, and what has to be brought."""
    from slurm.packaging.inherit import decide_inside

    packaging, why = decide_inside(request.packaging) or decide(request)
    module, _, name = _PREPARE[packaging.kind].partition(":")
    made: Prepared = getattr(importlib.import_module(module), name)(
        replace(request, packaging=packaging)
    )
    whole = "; ".join(filter(None, [why, made.environment.why]))
    return replace(made, environment=replace(made.environment, why=whole))


@functools.lru_cache(maxsize=64)
def is_sdk(project: str) -> bool:
    """Whether a project is this package: it travels with every run, whatever is packaged."""
    from slurm.packaging.build import read_project

    return bool(read_project(project).get("project", {}).get("name") == "slurm-sdk")


def decide(request: Request) -> tuple[Packaging, str]:
    """What `auto` means for a call, and why; every other kind means itself."""
    packaging = request.packaging
    if packaging.kind != "auto":
        return packaging, f"asked for by {packaging.said_by}"
    if request.cluster.backend.kind != "ssh" and not packaging.options:
        # The job has this client's own Python and files: what runs here runs there.
        return Packaging("captured", {}, packaging.said_by), "auto"
    project = packaging.options.get("project") or project_of(request.source)
    if project is None or is_sdk(str(project)):
        why = f"no pyproject.toml above {request.source}" if project is None else "the SDK itself"
        return Packaging("none", {}, packaging.said_by), f"auto: {why}"
    options = {**packaging.options, "project": project}
    return Packaging("wheel", options, packaging.said_by), f"auto: {project}/pyproject.toml"
