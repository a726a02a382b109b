"""Why a job failed: every kind of bad end, what it means, and the command that helps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from slurm.model.units import format_duration, format_memory
from slurm.why.model import Fix, Limit, Why

MIB = 1 << 20


@dataclass(frozen=True)
class Ended:
    """What is known about a job that has ended badly."""

    run: str
    job_id: str
    #: `oom`, `timeout`, `raised`, ...: see `slurm.Attempt`; "" where only the error tells.
    kind: str
    #: The name of the error class, its message, and its own hint.
    error: str
    message: str
    hint: str | None = None
    options: Mapping[str, object] | None = None
    exit_code: int | None = None
    signal: int | None = None
    #: The most memory that the job was seen to use, in bytes.
    peak: int | None = None
    elapsed: float | None = None
    last_lines: tuple[str, ...] = ()


# Kind of failure, or name of the error class -> what helps, in order. {mem} and {time} are twice
# what was asked for; {better} is what `slurm eff` would suggest.
_FIXES: dict[str, tuple[tuple[str, str], ...]] = {
    "oom": (
        ("slurm rerun {run} --failed --mem {mem}", "runs it again with twice the memory"),
        ("slurm eff {run}", "shows what it used"),
    ),
    "timeout": (("slurm rerun {run} --failed --time {time}", "runs it again with twice the time"),),
    "preempted": (
        ("slurm rerun {run} --failed --set requeue=true", "lets Slurm start it again by itself"),
    ),
    "node_fail": (("slurm rerun {run} --failed", "runs it again, on another node if need be"),),
    "cancelled": (("slurm rerun {run} --failed", "runs it again"),),
    "raised": (
        ("slurm logs {job} --stderr -n 50", "shows the whole traceback"),
        ("slurm debug {job}", "opens the debugger in the frame that raised"),
        ("slurm rerun {run} --failed", "runs it again, once the cause outside of it is mended"),
    ),
    "exited": (("slurm logs {job} --stderr -n 50", "shows what it said before"),),
    "died": (("slurm logs {job} --stderr -n 50", "shows what it said last"),),
    "unwritten": (
        ("df -h {path}", "shows the space that is left"),
        ("slurm gc --dry-run", "shows what old runs take"),
    ),
    "refused": (("slurm doctor", "checks Python, directories and versions"),),
    "RunDirNotVisible": (("slurm doctor", "proves with a job which directories nodes see"),),
    "UpstreamFailed": (("slurm graph {run}", "shows which of the jobs before it failed"),),
    "JobLost": (
        ("sacct -j {job} -o JobID,State,Reason,NodeList", "may know more"),
        ("slurm rerun {run} --failed", "runs it again"),
    ),
    "ResultLost": (("ls -la {path}/results", "shows what the nodes have written"),),
    "UntrustedRun": (("ls -la {path}", "shows who may write there"),),
    "PythonMismatch": (("slurm doctor", "shows the Pythons here and there"),),
}
_OTHERWISE = (("slurm show {run}", "shows all that is known"),)


def explain_failure(job: Ended, base: str = "") -> Why:
    """Why a job failed, and what helps."""
    limits = [limit for limit in (_memory(job), _time(job)) if limit is not None]
    rows = _FIXES.get(job.error) or _FIXES.get(job.kind) or _OTHERWISE
    values = {
        "run": job.run,
        "job": job.job_id,
        "path": f"{base}/{job.run}" if base else job.run,
        "mem": _twice(job, "mem", 2048, format_memory),
        "time": _twice(job, "time", 3600, format_duration),
    }
    fixes = [Fix(command.format(**values), effect) for command, effect in rows]
    if job.hint and job.error not in ("JobOutOfMemory", "TimeLimitReached"):
        fixes.append(Fix("", job.hint))
    return Why(
        reason=job.kind or job.error,
        text=_text(job),
        waits=False,
        limits=limits,
        evidence=list(job.last_lines),
        fixes=fixes,
    )


def _text(job: Ended) -> str:
    ends = []
    if job.exit_code is not None:
        ends.append(f"exit code {job.exit_code}")
    if job.signal:
        ends.append(f"signal {job.signal}")
    if job.elapsed is not None:
        ends.append(f"after {format_duration(int(job.elapsed))}")
    tail = f"; {', '.join(ends)}" if ends else ""
    return job.message.rstrip(".") + tail + "."


def _asked(job: Ended, name: str) -> int | None:
    value = (job.options or {}).get(name)
    return value if isinstance(value, int) else None


def _memory(job: Ended) -> Limit | None:
    asked = _asked(job, "mem")
    if job.peak is None or (asked is None and job.kind != "oom"):
        return None
    used = format_memory(max(1, job.peak // MIB))
    if not asked:
        return Limit("memory", "the cluster's default", used, "", "")
    left = asked - job.peak // MIB
    near = "all of it was used" if job.kind == "oom" or left <= 0 else f"{left}M were left"
    return Limit("memory", format_memory(asked), used, format_memory(asked), near)


def _time(job: Ended) -> Limit | None:
    asked = _asked(job, "time")
    if asked is None or job.kind != "timeout":
        return None
    ran = "" if job.elapsed is None else format_duration(int(job.elapsed))
    return Limit("time", format_duration(asked), ran, format_duration(asked), "all of it was used")


def _twice(job: Ended, name: str, otherwise: int, form: object) -> str:
    value = 2 * (_asked(job, name) or otherwise // 2)
    return str(form(value))  # type: ignore[operator]
