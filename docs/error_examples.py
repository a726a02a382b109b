"""One example of every error for docs/errors.md, made by the code that raises it where it can be.

A class that is only a root has no example: the page lists what it covers.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from slurm import errors, threads
from slurm.active import active_cluster
from slurm.api import openssh
from slurm.api.rest_client import RestClient, read_answer
from slurm.api.slurm_commands import JobStatus
from slurm.api.slurm_refusals import explain_sbatch_error
from slurm.config import load_profile
from slurm.evidence import Evidence
from slurm.failure import Subject, failure, recorded
from slurm.importing import Importing
from slurm.model.options import normalize
from slurm.outcome import Verdict
from slurm.packaging import check_packaging
from slurm.packaging.arguments import Call, ship_arguments
from slurm.packaging.container.build import no_python
from slurm.packaging.function import ship_function
from slurm.rundir import Event, Record
from slurm.sending import refuse_on_import


class Example(NamedTuple):
    """What makes the error, and what to do beyond its own hint."""

    make: Callable[[], object]
    fix: str


_HOST = openssh.settings("login.hpc.example.com")
_RUN = "/home/ada/slurm_jobs/train-20260102-101500-ab12cd"


# ---- the pieces that jobs' errors are made of ---------------------------------------------------


def _subject(*lines: str, **more: Any) -> Subject:
    options = {"time": 3600, "mem": 4096}
    return Subject("train", "4711", _RUN, options, lines, **more)


def _status(state: str, *, reason: str = "", signal: int | None = None) -> JobStatus:
    return JobStatus(
        "4711", state, reason, "n3", 1, signal, 0, 1, 2, 0, "/home/ada/slurm_jobs", "train"
    )


def _ended(state: str, *lines: str, began: bool = True, **more: Any) -> errors.SlurmError:
    seen = Evidence(status=_status(state, **more))
    if began:
        seen.add(Event("begin", {"attempt": "0", "node": "n3"}))
    return failure(Verdict.FAILED, seen, _subject(*lines, dependency=not began))


def _died(code: int, *lines: str) -> errors.SlurmError:
    seen = Evidence()
    seen.add(Event("begin", {"attempt": "0", "node": "n3"}))
    seen.add(Event("start", {"attempt": "0"}))
    seen.add(Event("exit", {"attempt": "0", "code": str(code), "phase": "run"}))
    return failure(Verdict.ENDED, seen, _subject(*lines))


def _record(kind: str, **header: Any) -> Record:
    return Record("4711", 0, 0, 0, kind, header, b"")


def _exited() -> errors.SlurmError:
    seen = Evidence(records=[_record("exit", code=1, text="'no licence found'")])
    return failure(Verdict.EXITED, seen, _subject())


def _ssh(said: str, code: int = 255) -> errors.SlurmError:
    return openssh.explain_failure(_HOST, code, said)


def _refused(kind: type[errors.SlurmError], said: str) -> errors.SlurmError:
    reason, hint = explain_sbatch_error(said)
    return kind(reason, hint=hint, evidence=[said])


# ---- the pieces of errors before submission -----------------------------------------------------


def _profile() -> object:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "Slurmfile.toml"
        path.write_text('[lab]\nhostnam = "login"\n')
        try:
            return load_profile(path, "lab")
        except errors.ConfigError as error:
            # The folder is this run's own.
            text = error.message.replace(str(path), "Slurmfile.toml")
            raise errors.ConfigError(text, hint=error.hint) from None


def _train(lock: object) -> None:
    """A function to give wrong arguments to."""


_train.__name__ = _train.__qualname__ = "train"


def _unpicklable_function() -> object:
    session = threading.Lock()

    def train() -> None:
        session.acquire()

    train.__module__, train.__qualname__ = "__main__", "train"
    return ship_function(train, ())


def _on_import() -> None:
    with Importing("first.py"):
        refuse_on_import("add")


EXAMPLES: dict[str, Example] = {
    "OptionError": Example(
        lambda: normalize({"cpu_per_task": 2}, where="task square"),
        "Options have Slurm's long names with underscores; [the table](tasks.md) has them all. "
        "What it does not have goes into `sbatch={...}`.",
    ),
    "NoActiveCluster": Example(
        lambda: active_cluster("square"),
        "Call tasks inside `with Cluster(...)`, or say which cluster is meant: "
        "`cluster.submit(square)(3)`.",
    ),
    "SubmittedOnImport": Example(
        _on_import,
        'Put what submits under `if __name__ == "__main__":`. The file can then be run as a '
        "program and imported by a job.",
    ),
    "ProgramEnding": Example(
        lambda: threads.refusal("nap was waited for"),
        "A `__del__` of an object that lives until the end is the usual place. While exit handlers "
        "of `atexit` run, results of jobs that are watched already still arrive.",
    ),
    "ConfigError": Example(_profile, "[The Slurmfile page](slurmfile.md) lists the keys."),
    "NoScheduler": Example(
        lambda: errors.NoScheduler(
            "sbatch is not on PATH, but this machine looks like part of a Slurm cluster "
            "($SLURM_CONF)",
            hint="put Slurm's commands on PATH (module load slurm?), or say that you want the "
            'embedded scheduler: Cluster(backend_type="embedded")',
        ),
        "On a login node the module is not loaded in this shell; on a laptop an old `SLURM_CONF` "
        "is set.",
    ),
    "UnpicklableArgument": Example(
        lambda: ship_arguments(_train, [Call((threading.Lock(),), {})], None),
        "Open files, locks, sockets and connections cannot travel.",
    ),
    "UnpicklableFunction": Example(
        _unpicklable_function,
        "A function of the script that runs travels with the globals that it uses.",
    ),
    "WrongArguments": Example(
        lambda: ship_arguments(_train, [Call((), {"lokc": 1})], None),
        "Also a `TypeError`, as Python itself would raise; nothing is submitted.",
    ),
    "PythonMismatch": Example(
        lambda: recorded(
            _record(
                "error",
                error="PythonMismatch",
                message="the function was pickled by value on Python 3.11, and this job runs "
                "Python 3.9 (/usr/bin/python3): its byte code cannot run here",
                hint="set python= to a Python 3.11 of the cluster, or put the function into a "
                "module that the node can import",
            ),
            _subject(),
        ),
        "Byte code of one minor version does not run on another.",
    ),
    "PackagingError": Example(
        lambda: check_packaging("whel", "the task"),
        "`cluster.explain(task)(...)` shows how the code would travel, before it does.",
    ),
    "NotDelivered": Example(
        lambda: errors.NotDelivered(
            "~/slurm_jobs does not have .wheels/3f9c2a7e51d0", hint="submit again"
        ),
        "What a job needs is brought when it is submitted; this one was removed meanwhile.",
    ),
    "BuildFailed": Example(
        lambda: errors.BuildFailed(
            "the wheel of ~/study could not be built (exit code 2)",
            hint="cd ~/study && uv build --wheel",
            evidence=["error: Failed to parse `pyproject.toml`"],
        ),
        "The evidence is the builder's own last lines; the hint runs the same build by hand.",
    ),
    "ImageUnusable": Example(
        lambda: no_python("the image study:1", "python3", ["executable file not found"]),
        "The image needs nothing of the SDK, only a Python.",
    ),
    "SubmitRefused": Example(
        lambda: _refused(errors.SubmitRefused, "sbatch: error: invalid partition specified: gpux"),
        "The evidence is what sbatch said. `slurm plan` shows the script that it is given.",
    ),
    "SubmitLimit": Example(
        lambda: _refused(
            errors.SubmitLimit,
            "sbatch: error: QOSMaxSubmitJobPerUserLimit",
        ),
        "A map of many items goes out in parts by itself; a loop of single calls does not.",
    ),
    "NoSharedFiles": Example(
        lambda: errors.NoSharedFiles(
            "partition=macbook is on macbook, which does not have /home: the run would not find "
            "its files",
            hint="leave it out, or name a partition whose hosts have that directory",
        ),
        "Such a host takes jobs of `sbatch` that bring all they need; `slurm cluster status` lists "
        "the hosts.",
    ),
    "SchedulerUnreachable": Example(
        lambda: errors.SchedulerUnreachable(
            "the controller did not take the job",
            hint="check that slurmctld runs: scontrol ping. Running jobs are not affected",
            evidence=["sbatch: error: Unable to contact slurm controller (connect failure)"],
        ),
        "A submission that was cut off is found again, and never made twice.",
    ),
    "RunDirError": Example(
        lambda: errors.RunDirError(
            "/scratch/ada/slurm_jobs cannot be made: Permission denied",
            hint="choose a directory that you can write and that the nodes see: "
            "Cluster(job_base_dir=...)",
        ),
        "",
    ),
    "RunNotFound": Example(
        lambda: errors.RunNotFound(
            "no run 'tain' in /home/ada/slurm_jobs",
            hint="slurm ls shows the runs that are there",
        ),
        "Runs of another base directory: `Cluster(job_base_dir=...)` with that directory.",
    ),
    "AmbiguousRun": Example(
        lambda: errors.AmbiguousRun(
            "'train' could be any of 2 runs in /home/ada/slurm_jobs",
            hint="write more of the name",
            evidence=["train-20260102-101500-ab12cd", "train-20260102-101733-09fe11"],
        ),
        "The begin of a name is enough where only one run has it.",
    ),
    "CommandRefused": Example(
        lambda: errors.CommandRefused(
            "train (job 4711) is not in the queue, so it cannot hold",
            hint="job.state says what became of it",
        ),
        "The request came too late, or the job is another user's.",
    ),
    "JobFailed": Example(
        lambda: _died(139, "Fatal Python error: Segmentation fault"),
        "The process died without a Python exception: a crash in a library, `kill`, or a setup "
        "line that failed.",
    ),
    "JobCancelled": Example(
        lambda: _ended("CANCELLED"),
        "By you, by an administrator, or because the workflow around it was cancelled.",
    ),
    "TimeLimitReached": Example(
        lambda: _ended("TIMEOUT"),
        "Save the work before the end with `ctx.should_stop` and `ctx.checkpoint_dir`, and let "
        "the job go on with `requeue=True`; or [retry](retry.md) with more time.",
    ),
    "JobOutOfMemory": Example(
        lambda: _ended("OUT_OF_MEMORY", "Killed"),
        "`slurm eff` shows what it used. [A retry](retry.md) can ask for more by itself.",
    ),
    "NodeFailed": Example(lambda: _ended("NODE_FAIL"), "Nothing is wrong with the job."),
    "JobPreempted": Example(
        lambda: _ended("PREEMPTED"),
        "Where jobs can be preempted, write checkpoints: `ctx.checkpoint_dir` survives it.",
    ),
    "UpstreamFailed": Example(
        lambda: _ended("CANCELLED", began=False, reason="DependencyNeverSatisfied"),
        "The job that failed first is the one to mend.",
    ),
    "JobLost": Example(
        lambda: failure(Verdict.JOB_LOST, Evidence(), _subject()),
        "The controller lost its state, or the job is older than what it remembers.",
    ),
    "ResultLost": Example(
        lambda: failure(Verdict.RESULT_LOST, Evidence(), _subject()),
        "Somebody deleted files of the run, or a network file system lost a write.",
    ),
    "ResultNotWritten": Example(
        lambda: failure(Verdict.NOT_WRITTEN, Evidence(), _subject()),
        "The function itself ended well; what it wrote elsewhere is there.",
    ),
    "RunDirNotVisible": Example(
        lambda: _ended("FAILED", began=False, signal=53),
        "The base directory has to be one that login node and compute nodes share.",
    ),
    "FunctionExited": Example(
        _exited, "Code that was a script before often ends with `sys.exit()`."
    ),
    "WorkerDied": Example(
        lambda: recorded(
            _record(
                "error",
                error="WorkerDied",
                message="item 17 ended its worker in each of 3 tries: the last one was killed by "
                "SIGSEGV",
                hint="run the function for this item alone: task.local(...)",
            ),
            _subject(),
        ),
        "The other items of the packed map are not affected.",
    ),
    "UnpicklableResult": Example(
        lambda: recorded(
            _record(
                "error",
                error="UnpicklableResult",
                message="the function returned a generator that cannot be pickled: TypeError: "
                "cannot pickle 'generator' object",
                evidence=["<generator object train at 0x7f2a5c0b1e00>"],
                hint="return plain data, or write it to a file and return its path",
            ),
            _subject(),
        ),
        "`list(...)` of a generator can travel, the generator cannot.",
    ),
    "RemoteError": Example(
        lambda: recorded(_record("error", type="lib.Broken", message="valve 3"), _subject()),
        "Its arguments cannot be pickled (a lock, an open file), or its class cannot be imported "
        "here.",
    ),
    "UntrustedRun": Example(
        lambda: failure(
            Verdict.UNTRUSTED,
            Evidence(),
            _subject(untrusted=f"{_RUN} is writable by others"),
        ),
        "Loading a result runs code that it names, so it must be yours alone.",
    ),
    "ResultUnreadable": Example(
        lambda: errors.ResultUnreadable(
            "the value of train (job 4711) cannot be read here: ModuleNotFoundError: No module "
            "named 'mylib'",
            hint="it was written by Python 3.11.7, this is 3.12.1; a module that it needs may be "
            "missing here",
        ),
        "Install the module here, or return plain data.",
    ),
    "StackError": Example(
        lambda: errors.StackError("slurmctld cannot listen on port 6817: the port is taken"),
        "For `slurm cluster up`; the logs of the daemons lie in its directory.",
    ),
    "BackupDamaged": Example(
        lambda: errors.BackupDamaged(
            "the backup backups/20261116-1904 is not as it was written: database.sql",
            hint="take another one",
        ),
        "For `slurm cluster restore`, before anything is touched.",
    ),
    "HostNotFound": Example(
        lambda: _ssh("ssh: Could not resolve hostname login.hpc.example.com"),
        "The name is looked up as ssh does it: aliases of `~/.ssh/config` work.",
    ),
    "HostUnreachable": Example(
        lambda: _ssh("ssh: connect to host login.hpc.example.com port 22: Connection timed out"),
        "",
    ),
    "HostKeyChanged": Example(
        lambda: _ssh("WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!"),
        "An attack looks like this, too: ask before you remove the key that you know.",
    ),
    "HostKeyUnknown": Example(lambda: _ssh("Host key verification failed."), ""),
    "AuthenticationFailed": Example(
        lambda: _ssh("ada@login.hpc.example.com: Permission denied (publickey)."), ""
    ),
    "LoginNeeded": Example(
        lambda: _ssh(
            "ada@login.hpc.example.com: Permission denied (publickey,keyboard-interactive)."
        ),
        "Programs then share the connection that you opened.",
    ),
    "RemotePythonMissing": Example(lambda: _ssh("", openssh.NO_PYTHON), ""),
    "ProtocolError": Example(
        lambda: errors.ProtocolError(
            "the agent's answer cannot be read: a frame does not begin with its mark",
            hint="something between here and there changes the data; the connection was closed",
        ),
        "",
    ),
    "EnvironmentFailed": Example(
        lambda: errors.EnvironmentFailed(
            "train 123: the environment of study 1.0 could not be made on n1",
            hint="mend the dependencies of the project: nosuchpackage was not found",
            evidence=["No solution found when resolving dependencies"],
        ),
        "`slurm env build` makes an environment ahead of time and shows what the installer says.",
    ),
    "ContainerFailed": Example(
        lambda: errors.ContainerFailed(
            "train 123 on n1: the image study:1 could not be pulled",
            hint="look whether the node reaches the registry: podman pull study:1",
            evidence=["Error: initializing source docker://study:1: connection refused"],
        ),
        "The runtime said so before Python started; the function has not run.",
    ),
    "ConnectionLost": Example(
        lambda: _ssh("client_loop: send disconnect: Broken pipe"),
        "Jobs go on; `cluster.attach(run)` finds every one of them again.",
    ),
    "TransferFailed": Example(
        lambda: errors.TransferFailed(
            "model.bin lies on the cluster", hint="fetch it first: file.fetch()"
        ),
        "A copy that was cut off goes on where it stopped when it is made again.",
    ),
    "RestUnreachable": Example(
        lambda: RestClient("http://127.0.0.1:1", token="x").call("GET", "jobs/"),
        "What was asked for is not lost: the bridge goes on when slurmrestd answers again.",
    ),
    "RestTokenRefused": Example(
        lambda: read_answer(511, "application/json", b"{}", "/slurm/v0.0.45/jobs/"),
        "A token file is read again for every request; write the new token over the old one.",
    ),
    "RestVersionNotServed": Example(
        lambda: read_answer(404, "text/plain", b"Not Found", "/slurm/v0.0.45/jobs/"),
        "It is said of the version, never of a job: a missing job has Slurm's error 2017.",
    ),
    "RestRefused": Example(
        lambda: read_answer(
            422,
            "application/json",
            b'{"errors": [{"error_number": 2000, "error": "Invalid partition name specified"}]}',
            "/slurm/v0.0.45/job/submit",
        ),
        "`error.number` is Slurm's own number; `slurm_errno.h` names them all.",
    ),
}


def example_of(cls: type[errors.SlurmError]) -> errors.SlurmError:
    """The error that an example makes, by returning or by raising it."""
    try:
        made = EXAMPLES[cls.__name__].make()
    except errors.SlurmError as error:
        made = error
    assert type(made) is cls, f"the example of {cls.__name__} makes {made!r}"
    return made
