"""AutoExecutor: the best executor of this machine behind one set of parameter names."""

from __future__ import annotations

import copy
import functools
import inspect
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slurm.submitit.core import plugins
from slurm.submitit.core.executors import Executor
from slurm.submitit.core.jobs import Job
from slurm.submitit.core.utils import DelayedSubmission

if TYPE_CHECKING:
    from typing_extensions import Self

#: The parameters that every executor understands, and their types.
SHARED: dict[str, type | tuple[type, ...]] = {
    "name": str,
    "timeout_min": int,
    "mem_gb": (int, float),
    "nodes": int,
    "cpus_per_task": int,
    "gpus_per_node": int,
    "tasks_per_node": int,
    "stderr_to_stdout": bool,
}
#: Arguments that older programs give, and their names now.
_RENAMED = {"max_num_timeout": "slurm_max_num_timeout", "conda_file": "chronos_conda_file"}


def flexible_init(
    cls: Callable[..., Executor], folder: str | Path, **kwargs: Any
) -> tuple[Executor, dict[str, Any]]:
    """Make an executor with those of the arguments that it knows; the others come back."""
    known = set(inspect.signature(cls).parameters)
    fits = {name: value for name, value in kwargs.items() if name in known}
    rest = {name: value for name, value in kwargs.items() if name not in known}
    return cls(folder=folder, **fits), rest


class AutoExecutor(Executor):
    """Submits to Slurm where there is one, else to this machine; or as `cluster` says.

    `cluster` is `"slurm"`, `"local"`, `"debug"`, the name of a plug-in, or `"ssh://host"` for the
    Slurm behind a login node. Arguments of one executor carry its name: `slurm_max_num_timeout=5`.
    """

    def __init__(self, folder: str | Path, cluster: str | None = None, **kwargs: Any) -> None:
        kwargs = _with_new_names(kwargs)
        executors = plugins.get_executors()
        self.cluster = cluster or self.which()
        kind: Callable[..., Executor]
        if self.cluster.startswith("ssh://"):
            from slurm.submitit.slurm.ssh import SshExecutor

            kind, prefix = functools.partial(SshExecutor, url=self.cluster), "slurm"
        elif self.cluster in executors:
            kind, prefix = executors[self.cluster], self.cluster
        else:
            raise ValueError(
                f"cluster={cluster!r} is not known; there are {', '.join(executors)} and ssh://HOST"
            )
        own: dict[str, Any] = {}
        for name, value in kwargs.items():
            owner, _, argument = name.partition("_")
            if owner not in (*executors, "chronos"):
                raise AssertionError(
                    f"{name}={value!r}: arguments are named after the executor that takes them, "
                    f"one of {', '.join(executors)}"
                )
            if owner == prefix:
                own[argument] = value
        self._executor, wrong = flexible_init(kind, folder, **own)
        if wrong:
            names = ", ".join(f"{prefix}_{name}" for name in wrong)
            raise TypeError(f"the executor {self.cluster} takes no {names}")
        super().__init__(self._executor.folder, self._executor.parameters)

    @staticmethod
    def which() -> str:
        """The name of the executor that fits best here."""
        executors = plugins.get_executors()
        best = max(executors, key=lambda name: executors[name].affinity())
        if executors[best].affinity() <= 0:
            raise RuntimeError(f"none of the executors can be used here: {', '.join(executors)}")
        return best

    def register_dev_folders(self, folders: list[str | Path]) -> None:
        """Pass folders on to an executor that archives them."""
        if hasattr(self._executor, "register_dev_folders"):
            self._executor.register_dev_folders(folders)
        else:
            warnings.warn(f"the executor {self.cluster} archives no folders", stacklevel=2)

    def after(self, *jobs: Job[Any]) -> Self:
        """The same executor for calls that begin when these jobs have succeeded."""
        self._refuse_in_batch("after")
        other = copy.copy(self)
        other._executor = self._executor.after(*jobs)  # type: ignore[attr-defined]
        other.parameters = other._executor.parameters
        return other

    def _internal_process_submissions(
        self, delayed_submissions: list[DelayedSubmission]
    ) -> list[Job[Any]]:
        return self._executor._internal_process_submissions(delayed_submissions)

    # ---- parameters -----------------------------------------------------------------------------

    def _internal_update_parameters(self, **kwargs: Any) -> None:
        """Set parameters: shared ones by their names, an executor's own as `slurm_partition=`.

        All wrong names are told in one error. What is for another executor is checked, not used.
        """
        prefix = self._executor.name()
        shared, own = self._sort(kwargs, prefix)
        given = {name: value for name, value in shared.items() if value is not None}
        given.update({name: own.pop(name) for name in list(own) if name in SHARED})
        parameters = self._executor._convert_parameters(given)
        parameters.update(own)
        self._executor._internal_update_parameters(**parameters)

    def _sort(
        self, kwargs: Mapping[str, Any], prefix: str
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        valid = {
            name: executor._valid_parameters() | set(SHARED)
            for name, executor in plugins.get_executors().items()
        }
        shared: dict[str, Any] = {}
        own: dict[str, Any] = {}
        wrong: list[str] = []
        for name, value in kwargs.items():
            if name in SHARED:
                shared[name] = _checked(name, value)
                continue
            owner, _, argument = name.partition("_")
            if owner not in valid or argument not in valid[owner]:
                owners = [one for one, names in valid.items() if name in names]
                if not owners:
                    wrong.append(_why_wrong(name, owner, valid))
                    continue
                owner, argument = owners[0], name
                warnings.warn(
                    f"{name} is a parameter of one executor only: write {owner}_{name}",
                    UserWarning,
                    stacklevel=4,
                )
            if owner == prefix:
                own[argument] = value
        if wrong:
            raise NameError(
                "\n".join([*wrong, f"known executors: {', '.join(valid)}"])
                + f"\nshared parameters: {', '.join(SHARED)}"
            )
        return shared, own


def _checked(name: str, value: Any) -> Any:
    if value is not None and not isinstance(value, SHARED[name]):
        kinds = SHARED[name]
        expected = kinds if isinstance(kinds, tuple) else (kinds,)
        wanted = " or ".join(kind.__name__ for kind in expected)
        raise AssertionError(f"{name}={value!r} must be {wanted}, not {type(value).__name__}")
    return value


def _why_wrong(name: str, owner: str, valid: Mapping[str, set[str]]) -> str:
    from slurm.errors import nearest

    if owner in valid:
        close = nearest(name.partition("_")[2], sorted(valid[owner]))
        hint = f"; did you mean {owner}_{close}?" if close else ""
        return f"{name} is no parameter of the executor {owner}{hint}"
    close = nearest(name, sorted(SHARED))
    return f"{name} is no known parameter" + (f"; did you mean {close}?" if close else "")


def _with_new_names(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    renamed = dict(kwargs)
    for old, new in _RENAMED.items():
        if old in renamed:
            warnings.warn(f"{old} is now {new}", UserWarning, stacklevel=3)
            renamed[new] = renamed.pop(old)
    return renamed
