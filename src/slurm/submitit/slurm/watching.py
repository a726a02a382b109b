"""SlurmInfoWatcher: asks Slurm about jobs that the SDK's core did not submit."""

from __future__ import annotations

import os
import re
import subprocess

from slurm.api import slurm_environ as environ
from slurm.submitit.core.watching import InfoWatcher


def read_job_id(job_id: str) -> list[tuple[str, ...]]:
    """The parts of an id as Slurm prints it: `12_[3-4,7%2]` is `("12","3","4"), ("12","7")`."""
    array, _, rest = job_id.partition("_")
    if not rest:
        return [(array,)]
    spec = rest.strip("[]").partition("%")[0]
    return [(array, *part.split("-")) for part in spec.split(",")]


class SlurmInfoWatcher(InfoWatcher):
    """Asks accounting (`sacct`); where there is none, the controller (`squeue`)."""

    _without_accounting = False

    def _make_command(self) -> list[str] | None:
        asked = {job_id.partition("_")[0] for job_id in self._registered - self._finished}
        if not asked:
            return None
        if self._without_accounting:
            return ["squeue", "--me", "--states=all", "--noheader", "--format=%i|%T|%N"]
        command = ["sacct", "-o", "JobID,State,NodeList", "--parsable2"]
        return command + [word for job_id in sorted(asked) for word in ("-j", job_id)]

    def _ask(self, command: list[str]) -> bytes | str | None:
        if command[0] == "sacct":
            answer = super()._ask(command)
            if answer is not None:
                return answer
            self._without_accounting = True
            fallback = self._make_command()
            return None if fallback is None else self._ask(fallback)
        env = environ.command_env(os.environ)
        try:
            done = subprocess.run(command, env=env, capture_output=True, timeout=60, check=True)
        except (OSError, subprocess.SubprocessError):
            return None
        return b"JobID|State|NodeList\n" + done.stdout

    def read_info(self, string: bytes | str) -> dict[str, dict[str, str]]:
        """The fields of each job in the answer of `sacct --parsable2`; steps are left out."""
        text = string if isinstance(string, str) else string.decode("utf-8", "replace")
        lines = text.splitlines()
        found: dict[str, dict[str, str]] = {}
        names = lines[0].split("|") if lines else []
        for line in lines[1:]:
            fields = dict(zip(names, line.split("|"), strict=False))
            job_id = fields.get("JobID", "")
            if not re.match(r"\d", job_id) or "." in job_id:
                continue
            for parts in read_job_id(job_id):
                for name in _elements(parts):
                    found[name] = fields
        return found


def _elements(parts: tuple[str, ...]) -> list[str]:
    if len(parts) == 1:
        return [parts[0]]
    array, first, last = parts[0], parts[1], parts[-1]
    if not (first.isdigit() and last.isdigit()):
        return [f"{array}_{first}"]
    return [f"{array}_{number}" for number in range(int(first), int(last) + 1)]
