"""The small jobs that wait behind a run and submit what comes after it: scripts, as text."""

from __future__ import annotations

from slurm import rundir
from slurm.model.options import sbatch_flags
from slurm.rendering import Submission, directive, log_path, shell_quote

#: They run where the run itself may, and need next to nothing there.
_PLACE = ("account", "partition", "qos", "reservation", "wckey", "constraint")


def render_next_script(job: Submission) -> str:
    """The script of the small job that submits the next part of a long map."""
    after = {"dependency": f"afterany:{rundir.PREVIOUS}"}
    return _script(job, rundir.NEXT_JOB, after, "advance.py", rundir.TOKEN)


def render_guard_script(job: Submission) -> str:
    """The script of the small job that judges a part of a run when it has failed."""
    after = {"dependency": f"afternotok:{rundir.PREVIOUS}", "kill-on-invalid-dep": "yes"}
    return _script(job, rundir.RETRY_JOB, after, "retry.py", rundir.TOKEN)


def _script(job: Submission, suffix: str, after: dict[str, str], program: str, *words: str) -> str:
    given = {name: job.options[name] for name in _PLACE if name in job.options}
    flags: dict[str, str | None] = {
        "job-name": job.name + suffix,
        "chdir": job.run,
        **dict(sbatch_flags(given)),
        "time": "10",
        "output": log_path(job.run, f"{rundir.LOGS}/{suffix[1:]}-%j.out"),
        **after,
        "requeue": None,
    }
    python = shell_quote(job.environment.bare_python)
    path = shell_quote(f"{job.sdk}/slurm/runner/{program}")
    lines = [
        "#!/bin/bash",
        *(directive(flag, value) for flag, value in flags.items()),
        "",
        f"export SLURM_SDK_BASE={shell_quote(job.base)}",
        " ".join(["exec", python, path, shell_quote(job.run), *words]),
    ]
    return "\n".join(lines) + "\n"
