"""Plan: what a call or a map would submit, decided before anything is sent."""

from __future__ import annotations

import functools
import os
import sys
from dataclasses import dataclass, field, replace
from typing import Any

from slurm import rundir
from slurm.api.slurm_environ import honoured_variables
from slurm.content.premises import Premises
from slurm.dependencies import Dependency, may_return
from slurm.model.packs import item_retry
from slurm.model.parts import Cut, Part
from slurm.packaging import Prepared
from slurm.packaging.arguments import ShippedArguments
from slurm.packaging.function import ShippedFunction
from slurm.rendering import Environment, Submission, render_job_script
from slurm.retry import policy_of


@dataclass(frozen=True)
class Plan:
    """What a call or a map would submit; `str()` of it is for people."""

    name: str
    submission: Submission
    function: ShippedFunction
    arguments: ShippedArguments
    cut: Cut | None
    upstream: tuple[Dependency, ...]
    #: What packaging decided.
    prepared: Prepared
    #: Whether its jobs may go behind others: an earlier run of these calls may have had to.
    returns: bool = False
    #: Under which keys the values of the calls are cached.
    keys: tuple[str | None, ...] = ()
    #: What the keys speak of and the jobs find for themselves.
    premises: Premises = field(default_factory=Premises)

    def renamed(self, place: str) -> Plan:
        """The same plan for a run of another name; `place` is relative to the base."""
        old = self.submission
        run = f"{old.base}/{place}"
        workdir = run if old.workdir == old.run else old.workdir
        return replace(self, submission=replace(old, run=run, workdir=workdir))

    @property
    def environment(self) -> Environment:
        """How Python starts on the node."""
        return self.submission.environment

    @property
    def options(self) -> dict[str, object]:
        """The merged options."""
        return dict(self.submission.options)

    @property
    def by(self) -> str:
        """How the function travels: by reference or by value."""
        return self.function.by

    @property
    def script(self) -> str:
        """The sbatch script, of a long map that of its first part."""
        return self.scripts[0]

    @functools.cached_property
    def scripts(self) -> tuple[str, ...]:
        """The sbatch script of each part."""
        if self.cut is None:
            return (render_job_script(self.submission),)
        return tuple(render_job_script(self._of_part(part)) for part in self.cut.parts)

    def _of_part(self, part: Part) -> Submission:
        whole = self.submission
        dependency = whole.dependency
        if part.number and whole.throttle and self.cut is not None:
            # The throttle is one per array: it holds over all when one follows the other.
            after = f"afterany:{rundir.PREVIOUS}"
            dependency = f"{dependency},{after}" if dependency else after
        return replace(whole, array=part, dependency=dependency)

    def __str__(self) -> str:
        lines = [
            f"{self.name}: {self._shape()}",
            f"  function   by {self.by}: {self.function.why}",
            f"  python     {self.environment.python}",
            f"  packaging  {self.environment.kind}: {self.environment.why}",
            f"  run        {self.submission.run}",
        ]
        if self.submission.dependency:
            lines.append(f"  waits for  {self.submission.dependency}")
        if policy_of(self.submission) is not None:
            retry = self.options["retry"]
            lines.append(f"  retry      {retry}; a small job guards each one that is submitted")
        acting = honoured_variables(os.environ, options_set(self.script))
        lines += [f"  honoured   {name}={value}" for name, value in sorted(acting.items())]
        return "\n".join(lines) + "\n\n" + self.script

    def _shape(self) -> str:
        if self.cut is None:
            return "one job, one call of sbatch"
        parts, pack = self.cut.parts, self.submission.pack
        items = sum(part.size for part in parts)
        packed = f"{pack}: " if pack is not None else ""
        if len(parts) == 1:
            return f"{packed}one array of {items}, one call of sbatch"
        now = min(self.cut.at_once, len(parts))
        what = "items" if pack is None else "jobs"
        return (
            f"{packed}{items} {what} in {len(parts)} arrays of at most {parts[0].size} "
            f"({self.cut.why}), "
            f"{now} at once, {len(parts)} calls of sbatch"
        )

    def metadata(self, submitted: float) -> dict[str, Any]:
        """What is kept of it in the run directory."""
        from slurm import __version__

        policy = policy_of(self.submission)
        return {
            "format": 1,
            "task": self.name,
            "target": self.function.target,
            "by": self.by,
            "options": self.options,
            "workdir": self.submission.workdir,
            "ranks": 2 if self.submission.ranks else 1,
            "parts": [list(part) for part in self.cut.parts] if self.cut else None,
            "pack": list(self.submission.pack) if self.submission.pack else None,
            "item_retry": item_retry(self.submission.pack, self.options),
            "dependency": self.submission.dependency,
            "workflow": self.function.workflow,
            "container": self.environment.details.get("image"),
            "upstream": sorted(set().union(*(one.runs for one in self.upstream))),
            "retry": policy,
            "returns": policy is not None or self.returns or any(map(may_return, self.upstream)),
            "submitted": submitted,
            "python": sys.version.split()[0],
            "slurm_sdk": __version__,
        }


def options_set(script: str) -> list[str]:
    """The sbatch options that the script sets, for which SBATCH_* variables must not speak."""
    lines = [line for line in script.split("\n") if line.startswith("#SBATCH --")]
    return [line[len("#SBATCH --") :].partition("=")[0] for line in lines]
