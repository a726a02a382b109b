"""A drop-in for submitit: `import slurm.submitit as submitit`.

The names, module paths and files are those of submitit 1.5; the jobs are the SDK's own.
"""

from __future__ import annotations

import importlib

TYPE_CHECKING = False  # `typing` is slow to import, and every job imports this module

if TYPE_CHECKING:
    from typing import Any

    from slurm.submitit import auto, core, helpers, local
    from slurm.submitit.auto.auto import AutoExecutor
    from slurm.submitit.core.core import Executor, Job
    from slurm.submitit.core.job_environment import JobEnvironment
    from slurm.submitit.local.debug import DebugExecutor, DebugJob
    from slurm.submitit.local.local import LocalExecutor, LocalJob
    from slurm.submitit.slurm.slurm import SlurmExecutor, SlurmJob

#: The submitit whose behaviour this is, and that it is not submitit.
__version__ = "1.5.4"

__all__ = [
    "AutoExecutor",
    "DebugExecutor",
    "DebugJob",
    "Executor",
    "Job",
    "JobEnvironment",
    "LocalExecutor",
    "LocalJob",
    "SlurmExecutor",
    "SlurmJob",
    "auto",
    "core",
    "helpers",
    "local",
]

_HOME = {
    "AutoExecutor": "auto.auto",
    "DebugExecutor": "local.debug",
    "DebugJob": "local.debug",
    "Executor": "core.core",
    "Job": "core.core",
    "JobEnvironment": "core.job_environment",
    "LocalExecutor": "local.local",
    "LocalJob": "local.local",
    "SlurmExecutor": "slurm.slurm",
    "SlurmJob": "slurm.slurm",
}
#: Modules that users reach as attributes, without an import of their own.
_MODULES = ("auto", "core", "helpers", "local", "slurm")
_IN_PACKAGES = {
    "auto": ("auto",),
    "core": ("core", "utils", "job_environment", "submission", "plugins", "logger"),
    "local": ("local", "debug"),
    "slurm": ("slurm",),
}


def __getattr__(name: str) -> Any:
    """A public name is loaded when it is used: the import of this package stays quick."""
    if name in _HOME:
        value = getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    elif name in _MODULES:
        value = importlib.import_module(f"{__name__}.{name}")
        for module in _IN_PACKAGES.get(name, ()):
            importlib.import_module(f"{__name__}.{name}.{module}")
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value
