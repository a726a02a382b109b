"""How a program is started inside a live job, in the environment of its function."""

from __future__ import annotations

import base64
import json
import shlex
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from slurm import errors, rundir

if TYPE_CHECKING:
    from slurm.api.ssh import SshBackend
    from slurm.cluster import Cluster
    from slurm.job import Job

#: Takes over the variables and the directory of a process, then becomes another program.
_ENTER = """
import os, sys
pid, words = sys.argv[1], sys.argv[2:]
env = dict(os.environ)
try:
    with open("/proc/%s/environ" % pid, "rb") as f:
        pairs = [p.split(b"=", 1) for p in f.read().split(b"\\0") if b"=" in p]
    env = {os.fsdecode(k): os.fsdecode(v) for k, v in pairs}
    env.update({k: os.environ[k] for k in ("TERM", "COLUMNS", "LINES") if k in os.environ})
    os.chdir("/proc/%s/cwd" % pid)
    os.chdir(os.getcwd())
except OSError as error:
    sys.stderr.write("slurm-sdk: the job's environment cannot be read: %s\\n" % error)
sys.stdout.flush()
try:
    os.execvpe(words[0], words, env)
except OSError as error:
    sys.stderr.write("slurm-sdk: %s: %s\\n" % (words[0], error.strerror))
    sys.exit(127)
"""


def command_inside(
    job: Job[Any], words: Sequence[str], *, tty: bool = False, node: str | None = None
) -> list[str]:
    """The command, to be run here, that runs words inside a job that runs now.

    It runs on the job's first node, or on `node`; there the words get the variables and the
    working directory of the job's function.
    """
    state = job.state
    if job.settled or state.phase != "active":
        raise errors.CommandRefused(
            f"job {job.id} ({job.name}) is {state.value}: there is nothing to enter",
            hint=f"wait until it runs: slurm why {job.id}"
            if not job.settled
            else f"it is over: slurm show {job.id}, or slurm debug {job.id} if it failed",
        )
    cluster = job.cluster
    start = job.evidence.starts.get(job.evidence.attempt)
    pid = "0" if start is None else start.fields.get("pid", "0")
    entered = python_there(cluster, job.run, _ENTER, [pid, *words])
    if cluster.backend.kind == "embedded":
        return entered
    words = _step(cluster, job, entered, tty, node)
    return words if cluster.backend.kind != "ssh" else _over_ssh(cluster.backend, words, tty)  # type: ignore[arg-type]


def python_there(cluster: Cluster, run: str, source: str, words: Sequence[str]) -> list[str]:
    """The command that runs a piece of Python with the interpreter of a run."""
    try:
        found = json.loads(cluster.backend.read_own(run, rundir.ENVIRONMENT))
        python = str(found.get("python") or "python3")
    except ValueError:
        python = "python3"
    # One word without quotes or line breaks, so that it passes through every shell between.
    text = base64.b64encode(source.encode()).decode()
    # Not from the working directory: another user may have put a base64.py there.
    boot = "import sys;sys.path=[p for p in sys.path if p];import base64;"
    boot += "exec(base64.b64decode(sys.argv.pop(1)))"
    return [python, "-c", boot, text, *words]


def _step(
    cluster: Cluster, job: Job[Any], words: Sequence[str], tty: bool, node: str | None
) -> list[str]:
    # An element of an array has an id of its own, which srun wants.
    script = 'command -v srun; squeue -h -j "$1" -o %A; echo "${SLURM_CONF:-}"'
    told = cluster.run(["sh", "-c", script, "sh", job.bare])
    lines = told.stdout.splitlines()
    if told.exit_code or len(lines) != 3 or not lines[1].strip().isdigit():
        raise errors.CommandRefused(
            f"srun cannot be used for job {job.id}", evidence=[*lines, told.stderr.strip()]
        )
    srun, own, conf = (line.strip() for line in lines)
    begin = job.evidence.begins.get(job.evidence.attempt)
    where = node or (begin.fields.get("node") if begin is not None else None)
    step = [srun, f"--jobid={own}", "--overlap", "--quiet", "--nodes=1", "--ntasks=1"]
    step += [f"--nodelist={where}"] if where else []
    step += ["--pty"] if tty else []
    return ["env", *([f"SLURM_CONF={conf}"] if conf else []), *step, *words]


def _over_ssh(backend: SshBackend, words: Sequence[str], tty: bool) -> list[str]:
    from slurm.api import openssh

    control = backend.control()
    return openssh.shell_words(backend.how, control, shlex.join(words), tty)


def terminal() -> bool:
    """Whether a person sits in front of this process."""
    return sys.stdin.isatty() and sys.stdout.isatty()
