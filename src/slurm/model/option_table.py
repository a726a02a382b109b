"""The table of options: one row each, from which checks, flags, documentation and hints come."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from slurm.model import again
from slurm.model import option_values as of
from slurm.model.units import (
    GpuRequest,
    format_duration,
    format_memory,
    parse_gpus,
    parse_memory,
)


def _plain(value: object) -> str | None:
    """A value as sbatch takes it; None is a bare flag."""
    return None if value is True else str(value)


def _time(value: Any) -> str:
    """Seconds, or the word UNLIMITED, as sbatch takes them."""
    return value if isinstance(value, str) else format_duration(value)


def _gpus(value: Any) -> str:
    """GPU requests as sbatch takes them."""
    return ",".join(str(GpuRequest(*request)) for request in value)


class OptionSpec(NamedTuple):
    """One option: its name, its sbatch flag (None: ours), its parser, and a sentence about it.

    `show` turns the plain form into the flag's text, `off` is the flag that False renders to, and
    `since` is the first Slurm that has the flag where that is newer than 22.05.
    """

    name: str
    flag: str | None
    parse: of.Parse
    doc: str
    show: Callable[[Any], str | None] = _plain
    off: str | None = None
    since: str | None = None


_positive = of.count(1)
_MAIL = (
    "NONE", "BEGIN", "END", "FAIL", "REQUEUE", "INVALID_DEPEND", "STAGE_OUT", "TIME_LIMIT",
    "TIME_LIMIT_90", "TIME_LIMIT_80", "TIME_LIMIT_50", "ARRAY_TASKS", "ALL",
)  # fmt: skip
_DISTRIBUTION = (
    r"(?i:(?:\*|block|cyclic|arbitrary|plane=[0-9]+)(?::(?:\*|block|cyclic|fcyclic)){0,2}"
    r"(?:,(?:no)?pack)?)"
)
_gres = of.shaped(
    r"none|[A-Za-z0-9_./]+(?::[A-Za-z0-9_.-]+){0,2}(?:,[A-Za-z0-9_./]+(?::[A-Za-z0-9_.-]+){0,2})*",
    '"gpu:a100:2" or "gpu:2,shard:4"',
)

# The order of the rows is the order of the lines in a script.
OPTIONS: tuple[OptionSpec, ...] = (
    # Which job.
    OptionSpec("job_name", "job-name", of.text, "The job's name; the task's name by default."),
    OptionSpec("comment", "comment", of.text, "A comment that Slurm keeps with the job."),
    # Where it runs and who pays.
    OptionSpec("partition", "partition", of.comma_list, "The partition, or some to choose from."),
    OptionSpec("account", "account", of.text, "The account that is charged."),
    OptionSpec("qos", "qos", of.comma_list, "The quality of service."),
    OptionSpec("reservation", "reservation", of.comma_list, "Run in this reservation."),
    OptionSpec("wckey", "wckey", of.text, "The workload characterisation key for accounting."),
    OptionSpec("constraint", "constraint", of.text, 'Node features, `"a100|h100"`, as Slurm has.'),
    OptionSpec("nodelist", "nodelist", of.hosts, "Nodes that must be part of the job."),
    OptionSpec("exclude", "exclude", of.hosts, "Nodes that must not be part of the job."),
    OptionSpec("switches", "switches", of.switches, "Network switches at most, `1@10:00`."),
    OptionSpec("contiguous", "contiguous", of.flag, "The nodes must be neighbours."),
    OptionSpec("spread_job", "spread-job", of.flag, "Spread the job over many nodes."),
    # How long, and when.
    OptionSpec("time", "time", of.duration, "The time limit: minutes, `2h`, `1-00:00:00`.",
               _time),
    OptionSpec("time_min", "time-min", of.limited, "A shorter limit that would do, too.",
               _time),
    OptionSpec("begin", "begin", of.moment, "Do not start before this moment."),
    OptionSpec("deadline", "deadline", of.moment, "Drop the job if it cannot end before this."),
    OptionSpec("dependency", "dependency", of.dependency, "Slurm's own words, `afterok:123`."),
    OptionSpec("hold", "hold", of.flag, "Submit the job held."),
    OptionSpec("nice", "nice", of.count(-2147483645, 2147483645), "Lower the priority by this."),
    OptionSpec("priority", "priority", of.count(0, 4294967293, also=("TOP",)),
               "The priority itself; operators only."),
    # How much of it.
    OptionSpec("nodes", "nodes", of.nodes, "The number of nodes, or a range `2-4`."),
    OptionSpec("ntasks", "ntasks", _positive, "The number of ranks."),
    OptionSpec("ntasks_per_node", "ntasks-per-node", _positive, "Ranks on each node."),
    OptionSpec("cpus_per_task", "cpus-per-task", _positive, "CPUs of each rank."),
    OptionSpec("cpus_per_gpu", "cpus-per-gpu", _positive, "CPUs for each GPU."),
    OptionSpec("threads_per_core", "threads-per-core", _positive, "Hardware threads to use."),
    OptionSpec("mem", "mem", parse_memory, "Memory per node: MiB, `8GiB`, `0` for all.",
               format_memory),
    OptionSpec("mem_per_cpu", "mem-per-cpu", parse_memory, "Memory for each CPU.", format_memory),
    OptionSpec("mem_per_gpu", "mem-per-gpu", parse_memory, "Memory for each GPU.", format_memory),
    OptionSpec("gpus", "gpus", parse_gpus, "GPUs of the whole job: `2`, `a100:2`.", _gpus),
    OptionSpec("gpus_per_node", "gpus-per-node", parse_gpus, "GPUs on each node.", _gpus),
    OptionSpec("gpus_per_task", "gpus-per-task", parse_gpus, "GPUs of each rank.", _gpus),
    OptionSpec("gres", "gres", _gres, "Generic resources per node, `gpu:a100:2`."),
    OptionSpec("tres_per_task", "tres-per-task", of.shaped(r"[^\s]+", '"gres/gpu:1"'),
               "Trackable resources of each rank.", since="23.11"),
    OptionSpec("tmp", "tmp", parse_memory, "Temporary disk on each node.", format_memory),
    OptionSpec("licenses", "licenses", of.shaped(r"[^\s]+", '"matlab:2"'), "Licenses, `matlab:2`."),
    OptionSpec("exclusive", "exclusive", of.flag_or("user", "mcs", "topo"),
               "Share the nodes with nobody, or only with one's own (`user`)."),
    OptionSpec("oversubscribe", "oversubscribe", of.flag, "Share CPUs with other jobs."),
    OptionSpec("overcommit", "overcommit", of.flag, "More ranks than CPUs."),
    OptionSpec("distribution", "distribution", of.shaped(_DISTRIBUTION, '"block:cyclic"'),
               "How ranks are laid out, `block:cyclic`."),
    OptionSpec("hint", "hint",
               of.choice("compute_bound", "memory_bound", "multithread", "nomultithread"),
               "What the job needs most, `nomultithread`."),
    # What happens to it.
    OptionSpec("signal", "signal", of.signal, "The signal before the limit; `B:USR1@60` style."),
    OptionSpec("requeue", "requeue", of.yes_no("expedite"),
               "Whether Slurm may start the job again.", off="no-requeue"),
    OptionSpec("mail_type", "mail-type", of.choices(*_MAIL), "When Slurm sends mail."),
    OptionSpec("mail_user", "mail-user", of.shaped(r"[^\s]+", '"me@example.org"'),
               "Who gets the mail."),
    OptionSpec("output", "output", of.path, "The log file, with Slurm's patterns (`%j`)."),
    OptionSpec("error", "error", of.path, "A log file of its own for standard error."),
    OptionSpec("export", "export", of.comma_list, "Which client variables the job gets."),
    OptionSpec("profile", "profile",
               of.choices("all", "none", "energy", "task", "lustre", "filesystem", "network"),
               "Which samples Slurm collects."),
    # Ours: they shape the script and the run, not the request to Slurm.
    OptionSpec("array_throttle", None, _positive, "How many of an array run at the same time."),
    OptionSpec("workdir", None, of.path, "The directory in which the function runs."),
    OptionSpec("env", None, of.variables, "Environment variables for the function."),
    OptionSpec("secrets", None, of.secret_names, "Names of variables that travel unwritten."),
    OptionSpec("modules", None, of.module_names, "Environment modules to load."),
    OptionSpec("venv", None, of.path, "A virtual environment on the cluster."),
    OptionSpec("conda", None, of.path, "A conda environment on the cluster, by name or path."),
    OptionSpec("python", None, of.path, "The Python that runs the function."),
    OptionSpec("setup", None, of.shell_lines, "Lines of shell before the function."),
    OptionSpec("teardown", None, of.shell_lines, "Lines of shell after the function."),
    OptionSpec("all_ranks", None, of.flag, "The result is the list of all ranks' values."),
    OptionSpec("launch", None, of.choice("srun", "torchrun", "once"),
               "Who starts the ranks; `once`: one process, whatever the job has."),
    OptionSpec("srun_args", None, of.words,
               "More words for srun, which then starts the function, also a single process."),
    OptionSpec("cache", None, again.caching,
               "Keep the value: a call that was made before is not made again."),
    OptionSpec("retry", None, again.retrying, "When a call that failed runs again: a `Retry`."),
)  # fmt: skip

BY_NAME = {spec.name: spec for spec in OPTIONS}

# Of each group one option at most; a later one replaces an earlier one.
EXCLUSIVE: tuple[tuple[str, ...], ...] = (
    ("mem", "mem_per_cpu", "mem_per_gpu"),
    ("cpus_per_task", "cpus_per_gpu"),
    ("exclusive", "oversubscribe"),
    ("venv", "conda"),
)

# Words that slurm-sdk and submitit users write.
ALIASES = {"memory": "mem", "name": "job_name", "max_concurrent": "array_throttle"}

# Words from elsewhere: too far from ours for a search by likeness, or with another unit.
MEANT = {
    **dict.fromkeys(("cpus", "cpu", "cores", "ncpus", "num_cpus"), "cpus_per_task"),
    **dict.fromkeys(("walltime", "timeout", "timeout_min", "time_limit"), "time"),
    **dict.fromkeys(("mem_gb", "mem_mb", "ram"), "mem"),
    **dict.fromkeys(("queue", "partitions"), "partition"),
    **dict.fromkeys(("tasks", "num_tasks"), "ntasks"),
    **dict.fromkeys(("hosts", "hostlist"), "nodelist"),
    **dict.fromkeys(("cwd", "chdir", "working_dir", "work_dir"), "workdir"),
    **dict.fromkeys(("environment", "env_vars"), "env"),
    **dict.fromkeys(("email", "mail"), "mail_user"),
    **dict.fromkeys(("features", "feature"), "constraint"),
    **dict.fromkeys(("additional_parameters", "extra_args", "sbatch_args"), "sbatch"),
    "num_nodes": "nodes",
    "num_gpus": "gpus",
    "tasks_per_node": "ntasks_per_node",
    "array_parallelism": "array_throttle",
    "no_requeue": "requeue",
}

# Flags that the SDK sets or that would break what it promises, each with what to do instead.
OWN_FLAGS = {
    "array": "call task.map(items)",
    "chdir": "use workdir=",
    "clusters": "set SLURM_CLUSTERS in the environment of the client",
    "container": "use packaging=",
    "export-file": "use env=",
    "gid": "submit as the user who owns the job",
    "help": "run sbatch --help",
    "ignore-pbs": "leave it out: our scripts have no #PBS lines",
    "input": "give the function an argument",
    "jobid": "leave it out: Slurm gives the id",
    "open-mode": "leave it out: logs are always appended to",
    "parsable": "leave it out: it is always set",
    "quiet": "leave it out: it changes nothing here",
    "test-only": "use the dry run",
    "uid": "submit as the user who owns the job",
    "usage": "run sbatch --usage",
    "verbose": "leave it out: it changes nothing here",
    "version": "run sbatch --version",
    "wait": "call job.wait() or job.result()",
    "wrap": "decorate a function with @task",
}

# Flags without an option of ours, known so that a hint can name them.
OTHER_FLAGS = {
    "bb", "bbf", "cluster-constraint", "core-spec", "cores-per-socket", "cpu-freq", "delay-boot",
    "extra", "extra-node-info", "get-user-env", "gpu-bind", "gpu-freq", "gpus-per-socket",
    "gres-flags", "kill-on-invalid-dep", "mcs-label", "mem-bind", "mincpus", "network", "no-kill",
    "nodefile", "ntasks-per-core", "ntasks-per-gpu", "ntasks-per-socket", "power", "prefer",
    "propagate", "reboot", "resv-ports", "segment", "sockets-per-node", "stepmgr", "thread-spec",
    "tres-bind", "use-min-nodes",
}  # fmt: skip
