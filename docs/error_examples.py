"""One example of every error, for docs/errors.md: what it says, and how it is mended."""

from __future__ import annotations

from typing import NamedTuple


class Example(NamedTuple):
    """The parts of an error as a user meets it, and what to do beyond its own hint."""

    message: str
    hint: str
    fix: str
    evidence: tuple[str, ...] = ()


EXAMPLES: dict[str, Example] = {
    "SlurmError": Example(
        "the embedded scheduler does not start",
        "read its log: ~/.local/state/slurm-sdk/scheduler.log",
        "Catch this class to catch every error of the package; what is raised is nearly always "
        "one of the classes below.",
    ),
    "UsageError": Example(
        "square.map was given no items",
        "map over at least one",
        "Nothing was submitted: mend the call and make it again.",
    ),
    "OptionError": Example(
        "cpu_per_task is not an option of task square",
        "did you mean cpus_per_task?",
        "Options have Slurm's long names with underscores; [the table](tasks.md) has them all. "
        "What it does not have goes into `sbatch={...}`.",
    ),
    "NoActiveCluster": Example(
        "square is a task and was called outside of a cluster",
        "with Cluster(): square(...)   # runs as a job\n"
        "square.local(...)                # runs here, as a plain function",
        "Call tasks inside `with Cluster(...)`, or say which cluster is meant: "
        "`cluster.submit(square)(3)`.",
    ),
    "ConfigError": Example(
        "Slurmfile.toml, [lab]: unknown key 'hostnam'",
        "did you mean hostname?",
        "[The Slurmfile page](slurmfile.md) lists the keys.",
    ),
    "NoScheduler": Example(
        "this machine looks like part of a Slurm cluster, but sbatch is not on PATH",
        'load your site\'s module (module load slurm), or say Cluster("embedded")',
        "On a login node the module is missing in this shell; on a laptop an old `SLURM_CONF` is "
        "set.",
    ),
    "UnpicklableArgument": Example(
        "argument 'lock' of train cannot be pickled: TypeError: cannot pickle '_thread.lock'",
        "pass plain data, and make such objects inside the function",
        "Open files, locks, sockets and database connections cannot travel. Pass a path or an "
        "address, and open it in the job.",
    ),
    "UnpicklableFunction": Example(
        "__main__:train cannot be sent by value: its global 'session' cannot be pickled",
        "create such objects inside the function, or move the function into a module that the "
        "node can import",
        "A function of the script that runs travels with the globals it uses.",
    ),
    "PythonMismatch": Example(
        "the function travels by value, pickled on Python 3.11, but python3 is Python 3.9",
        "use a Python 3.11 there, or move the function into a module that the node can import",
        "Byte code of one minor version does not run on another: name an interpreter with "
        "`python=`, or install the module on the cluster.",
    ),
    "PackagingError": Example(
        "packaging='whel' is not known; this version has 'auto' and 'none'",
        "leave packaging out",
        "`cluster.explain(task)(...)` shows how the code would travel, before it does.",
    ),
    "SubmitError": Example(
        "the job was not accepted",
        "the scheduler's own words are above",
        "The classes below say why; this one catches them all.",
    ),
    "SubmitRefused": Example(
        "sbatch refused the job",
        "choose one of the partitions of `sinfo`",
        "The evidence is what sbatch said. `slurm plan` shows the script that it was given.",
        ("sbatch: error: invalid partition specified: gpux",),
    ),
    "SubmitLimit": Example(
        "sbatch refused the job: you may not have more jobs in the queue",
        "wait until some have ended, or map over the items: an array counts as one submission",
        "A map of many items goes out in parts by itself; a loop of single calls does not.",
        ("sbatch: error: QOSMaxSubmitJobPerUserLimit",),
    ),
    "SchedulerUnreachable": Example(
        "the scheduler did not answer within 30 s",
        "try again; jobs that were submitted are not affected",
        "The controller restarts, or is busy. A submission that was cut off is found again, never "
        "made twice.",
        ("slurm_load_jobs error: Unable to contact slurm controller (connect failure)",),
    ),
    "RunDirError": Example(
        "the run directory cannot be made: No space left on device",
        "free some space there, or choose another job_base_dir",
        "`job_base_dir` must be writable here and visible on the nodes.",
    ),
    "RunNotFound": Example(
        "no run 'tain-20260102-101500-ab12cd' in ~/slurm_jobs",
        "did you mean train-20260102-101500-ab12cd?",
        "`slurm ls` shows the runs. A run of another base directory is named by its path.",
    ),
    "AmbiguousRun": Example(
        "'train' could be any of 3 runs in ~/slurm_jobs",
        "write more of the name",
        "The begin of a name is enough where only one run has it; a job id is never ambiguous.",
        ("train-20260102-101500-ab12cd", "train-20260102-101733-09fe11"),
    ),
    "CommandRefused": Example(
        "train (job 4711) is not in the queue, so it cannot hold",
        "job.state says what became of it",
        "The request came too late, or the job is another user's.",
    ),
    "JobError": Example(
        "job 4711 ended without a value",
        "slurm why 4711",
        "Catch this class for every bad end of a job that is not the function's own exception; "
        "`error.job_id`, `.state`, `.node`, `.exit_code` and `.signal` are there for programs.",
    ),
    "JobFailed": Example(
        "train (job 4711) on n3 failed: its process was killed by SIGSEGV",
        "read its log: job.stderr()",
        "The process died without a Python exception: a crash in a library, `kill`, a setup line "
        "that failed.",
        ("Fatal Python error: Segmentation fault",),
    ),
    "JobCancelled": Example(
        "train (job 4711) was cancelled",
        "submit it again: slurm rerun 4711",
        "By you, by an administrator, or because the workflow around it was cancelled.",
    ),
    "TimeLimitReached": Example(
        "train (job 4711) on n3 ran into its time limit of 1 h",
        "ask for more, e.g. task.with_options(time='2h'), or stop in time: a function with a "
        "`ctx: JobContext` parameter can look at ctx.should_stop",
        "Save the work before the end with `ctx.should_stop` and `ctx.checkpoint_dir`, and let "
        "the job go on with `requeue=True`; or `retry=Retry(..., time=2.0)`.",
    ),
    "JobOutOfMemory": Example(
        "train (job 4711) on n3 was killed because its memory was used up",
        "ask for more, e.g. task.with_options(mem='8G')",
        "`slurm eff` shows what it used. `retry=Retry(...)` can ask for more by itself.",
    ),
    "NodeFailed": Example(
        "train (job 4711) lost its node",
        "submit it again; with requeue=True Slurm does so by itself",
        "Nothing is wrong with the job.",
    ),
    "JobPreempted": Example(
        "train (job 4711) was preempted by a job of higher priority",
        "submit with requeue=True, so that Slurm starts it again",
        "Partitions that can be preempted are cheap because of it: use checkpoints there.",
    ),
    "UpstreamFailed": Example(
        "report (job 4713) can never run: train (job 4711), which it needs, has failed",
        "look at that job, mend it and submit again",
        "`slurm why` follows the chain to the job that failed first.",
    ),
    "JobLost": Example(
        "train (job 4711) is not known to the scheduler, and it left no result",
        "submit it again",
        "The controller lost its state, or the job is older than what accounting keeps.",
    ),
    "ResultLost": Example(
        "train (job 4711) completed, but no result is in its run directory",
        "check that the nodes and this machine see the same job_base_dir",
        "Somebody deleted files of the run, or a network file system lost a write.",
    ),
    "ResultNotWritten": Example(
        "train (job 4711) ended, but its result could not be written: Disk quota exceeded",
        "free some space in job_base_dir, and submit it again",
        "`slurm gc` removes old runs.",
    ),
    "RunDirNotVisible": Example(
        "train (job 4711): node n3 cannot see the run directory /home/ada/slurm_jobs",
        "choose a job_base_dir that the nodes mount: Cluster(job_base_dir='/shared/ada')",
        "`slurm doctor` proves it with a job.",
    ),
    "FunctionExited": Example(
        "train (job 4711) called sys.exit('no licence found') instead of returning a value",
        "return a value, or raise an exception",
        "Code that was a script before often ends with `sys.exit()`.",
    ),
    "WorkerDied": Example(
        "item 17 ended its worker in each of 3 tries: the last one was killed by SIGSEGV",
        "run the function for this item alone: task.local(...)",
        "The other items are not affected.",
    ),
    "ResultError": Example(
        "the outcome exists, but cannot be given",
        "the class says why",
        "The job itself is fine.",
    ),
    "UnpicklableResult": Example(
        "the function returned a builtins.generator that cannot be pickled",
        "return plain data, or write it to a file and return its path",
        "`list(...)` of a generator can travel, the generator cannot.",
        ("<generator object numbers at 0x7f2a>",),
    ),
    "RemoteError": Example(
        "the function raised lib.Broken, which cannot be pickled",
        "its text is above; raise an exception with plain arguments",
        "An exception class whose `__init__` takes other arguments than it gives to "
        "`super().__init__` cannot be unpickled.",
        ("lib.Broken: valve 3",),
    ),
    "UntrustedRun": Example(
        "~/slurm_jobs/train-1 is writable by others: nothing in it is loaded",
        "chmod go-w ~/slurm_jobs/train-1, if you know that all in it is yours",
        "Loading a result runs code that it names, so it must be yours alone.",
    ),
    "ResultUnreadable": Example(
        "the result of train (job 4711) needs the module 'mylib', which is not installed here",
        "install it here, or return plain data",
        "Values are made again by the classes that they are of.",
    ),
    "StackError": Example(
        "slurmctld cannot listen on port 6817",
        "choose another with --port, or stop what uses it",
        "For `slurm cluster up`; the daemons' own logs lie in its directory.",
    ),
    "ConnectError": Example(
        "ssh cannot be started: No such file or directory",
        "install OpenSSH's client",
        "Jobs that were submitted are not affected by any error of this kind.",
    ),
    "HostNotFound": Example(
        "login.hpc.example.com is not known to the network",
        "check the name, or your VPN",
        "The name is looked up as ssh does: aliases of `~/.ssh/config` work.",
    ),
    "HostUnreachable": Example(
        "login.hpc.example.com does not answer at port 22",
        "check the port, your VPN, or the site's status page",
        "",
    ),
    "HostKeyChanged": Example(
        "login.hpc.example.com shows another key than the one that is known",
        "ask the site; if it is right: ssh-keygen -R login.hpc.example.com",
        "Never remove the known key before you have asked: this is what an attack looks like.",
    ),
    "HostKeyUnknown": Example(
        "the key of login.hpc.example.com is not known yet",
        "log in once by hand and compare it: slurm login login.hpc.example.com",
        "",
    ),
    "AuthenticationFailed": Example(
        "login.hpc.example.com accepted no key of yours",
        "ssh-add your key, or name it: Cluster(identity_file=...)",
        "",
    ),
    "LoginNeeded": Example(
        "login.hpc.example.com wants a password or a second factor",
        "slurm login login.hpc.example.com",
        "Programs then share the connection that you opened.",
    ),
    "RemotePythonMissing": Example(
        "no Python of 3.6 or newer was found on login.hpc.example.com",
        "name one: Cluster(remote_python='/opt/python/bin/python3')",
        "",
    ),
    "ProtocolError": Example(
        "what came over the connection is not what the agent sends",
        "a login script that prints may be in the way: keep ~/.bashrc quiet",
        "",
        ("Welcome to the cluster!",),
    ),
    "ConnectionLost": Example(
        "the connection to login.hpc.example.com broke and did not come back within 120 s",
        "try again when the network is back; jobs go on",
        "`cluster.attach(run)` finds every job again.",
    ),
    "TransferFailed": Example(
        "data.bin could not be sent: No space left on device",
        "free some space there; a copy that was cut off goes on where it stopped",
        "",
    ),
}
