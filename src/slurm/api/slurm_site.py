"""The commands about the cluster: its nodes, partitions, queue, settings, and what jobs used.

As in `slurm_commands` nothing is started here, and the file runs on Python 3.6.
"""

import re
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from slurm.api.slurm_rows import Question, UnreadableAnswer, sacct, squeue

# ---- nodes --------------------------------------------------------------------------------------


class NodeStatus(NamedTuple):
    """One node as the controller sees it."""

    name: str
    #: Slurm's words joined by plus, such as "IDLE", "MIXED+DRAIN" or "DOWN+NOT_RESPONDING".
    state: str
    cpus: int
    allocated_cpus: int
    #: MiB.
    memory: int
    #: MiB.
    allocated_memory: int
    #: Such as "gpu:a100:4"; "" for none.
    gres: str
    features: Tuple[str, ...]
    partitions: Tuple[str, ...]
    #: Why somebody drained it or why it is down; "" when there is nothing to say.
    reason: str


_NODE_TEXTS = ("Reason", "OS", "Gres", "AvailableFeatures", "ActiveFeatures", "Comment", "Extra")


def show_nodes_command() -> List[str]:
    """Ask for all nodes; the answer is for `parse_nodes`."""
    return ["scontrol", "show", "node"]


def parse_nodes(text: str) -> List[NodeStatus]:
    """The nodes that `scontrol show node` describes."""
    return [_node(fields) for fields in _node_records(text)]


_KEY_VALUE = re.compile(r"([A-Za-z][A-Za-z/:]*)=(.*?)(?= +[A-Za-z][A-Za-z/:]*=|\s*\Z)")
_NODE_TEXT = re.compile("   ({})=(.*)\\Z".format("|".join(_NODE_TEXTS)))


def _node_records(text: str) -> Iterator[Dict[str, str]]:
    """The keys and values of each node. All of them are an administrator's words."""
    record = {}  # type: Dict[str, str]
    for line in text.split("\n"):
        begins = line.startswith("NodeName=")
        if begins and record:
            yield record
            record = {}
        whole = _NODE_TEXT.match(line)
        if whole:
            record.setdefault(whole.group(1), whole.group(2))
        elif begins or line.startswith("   "):
            for key, value in _KEY_VALUE.findall(line):
                record.setdefault(key, value)
    if record:
        yield record


def _node(fields: Dict[str, str]) -> NodeStatus:
    """One record of `scontrol show node`."""
    try:
        return NodeStatus(
            name=fields["NodeName"],
            state=fields["State"],
            cpus=int(fields["CPUTot"]),
            allocated_cpus=int(fields["CPUAlloc"]),
            memory=int(fields["RealMemory"]),
            allocated_memory=int(fields["AllocMem"]),
            gres=_text(fields.get("Gres", "")),
            features=_names(fields.get("AvailableFeatures", "")),
            partitions=_names(fields.get("Partitions", "")),
            # Behind the reason stands who gave it and when: [root@1700000000].
            reason=re.sub(r"\s*\[[^\[\]@]*@[^\[\]]*\]\s*\Z", "", fields.get("Reason", "")),
        )
    except (KeyError, ValueError) as error:
        raise UnreadableAnswer(f"scontrol show node: {error!r} in {fields!r}") from None


def _text(value: str) -> str:
    """A value, "" where Slurm prints its word for nothing."""
    value = value.strip()
    return "" if value in ("(null)", "N/A", "n/a") else value


def _names(value: str) -> Tuple[str, ...]:
    """The names of a list with commas."""
    return tuple(name for name in _text(value).split(",") if name)


# ---- partitions ---------------------------------------------------------------------------------


class PartitionStatus(NamedTuple):
    """One partition: what it allows and how full it is."""

    name: str
    default: bool
    #: "up", "down", "drain" or "inact".
    available: str
    #: Slurm's own form, such as "1-00:00:00"; "infinite" for none.
    time_limit: str
    #: What a job gets that asks for no time; "" for the time limit itself.
    default_time: str
    allocated_nodes: int
    idle_nodes: int
    other_nodes: int
    nodes: int
    allocated_cpus: int
    idle_cpus: int
    other_cpus: int
    cpus: int


def sinfo_command() -> List[str]:
    """Ask for all partitions; the answer is for `parse_partitions`."""
    return ["sinfo", "-h", "-o", "\x1f".join(("%P", "%a", "%l", "%L", "%F", "%C"))]


def parse_partitions(text: str) -> List[PartitionStatus]:
    """The rows of `sinfo_command`."""
    rows = []
    for line in text.split("\n"):
        if not line.strip() or line.startswith("CLUSTER: "):
            continue
        fields = line.split("\x1f")
        try:
            name, available, time_limit, default_time, nodes, cpus = fields
            counts = [int(n) for n in (nodes + "/" + cpus).split("/")]
            an, idn, on, n, ac, ic, oc, c = counts
        except ValueError:
            raise UnreadableAnswer("sinfo answered with a row we do not know: " + line) from None
        default, name = name.endswith("*"), name.rstrip("*")
        limits = (available, time_limit, _text(default_time))
        rows.append(PartitionStatus(name, default, *limits, an, idn, on, n, ac, ic, oc, c))
    return rows


# ---- the whole queue ----------------------------------------------------------------------------


class QueuedJob(NamedTuple):
    """One job of anybody that has not ended; the pending rest of an array is one row."""

    job_id: str
    state: str
    user: str
    partition: str
    cpus: int
    nodes: int
    #: Seconds since it began; 0 while it waits.
    elapsed: int
    #: Seconds that it may run; None for no limit.
    time_limit: Optional[int]
    priority: int
    #: Why it waits, or the nodes that it has.
    where: str
    name: str


_QUEUE_FIELDS = (
    *("JobArrayID", "State", "UserName", "Partition", "NumCPUs", "NumNodes", "TimeUsed"),
    *("TimeLimit", "PriorityLong", "ReasonList", "Name"),
)


def all_jobs(mark: str = "") -> Question[List[QueuedJob]]:
    """Ask for everybody's jobs."""
    return squeue(_QUEUE_FIELDS, ["-a"], lambda rows: [_queued(row) for row in rows], mark)


def _queued(row: List[str]) -> QueuedJob:
    job, state, user, partition, cpus, nodes, elapsed, limit, priority, where, name = row
    try:
        counts = int(cpus), int(nodes.partition("-")[0])
        times = clock_seconds(elapsed) or 0, clock_seconds(limit)
        reason = where.strip("()")
        return QueuedJob(job, state, user, partition, *counts, *times, int(priority), reason, name)
    except ValueError:
        raise UnreadableAnswer(
            "squeue answered with a row we do not know: {!r}".format(row)
        ) from None


def clock_seconds(text: str) -> Optional[int]:
    """`1-02:03:04`, `02:03` as seconds; None for UNLIMITED, INVALID and the like."""
    days, _, clock = text.rpartition("-")
    parts = clock.split(":")
    if not all(part.isdigit() for part in parts) or (days and not days.isdigit()):
        return None
    seconds = 0
    for part in parts if len(parts) > 1 else [parts[0], "0"]:
        seconds = seconds * 60 + int(part)
    return seconds + int(days or 0) * 86400


# ---- what jobs used -----------------------------------------------------------------------------

_USED_FIELDS = (
    *("JobID", "State", "ElapsedRaw", "TotalCPU", "AllocCPUS", "ReqMem", "MaxRSS", "NNodes"),
    *("TimelimitRaw", "WorkDir"),
)


def used(job_ids: Sequence[str], since: float, mark: str = "") -> Question[List[Dict[str, Any]]]:
    """Ask accounting what jobs used: a row per job, at most what its steps did, bytes, seconds."""
    start = "uts{}".format(max(1000000, int(since)))
    options = ["--units=K", "--starttime", start, "-j", ",".join(job_ids)]
    return sacct(_USED_FIELDS, options, _used, mark)


def _used(rows: List[List[str]]) -> List[Dict[str, Any]]:
    found = {}  # type: Dict[str, Dict[str, Any]]
    for row in rows:
        job, state, elapsed, cpu, cpus, asked, peak, nodes, limit, work_dir = row
        bare, dot, _ = job.partition(".")
        try:
            if not dot:
                found[job] = {
                    "job_id": job,
                    "state": state.split(" ")[0],
                    "elapsed": int(elapsed or 0),
                    "cpu": cpu_seconds(cpu),
                    "cpus": int(cpus or 0),
                    "asked": _kib(asked.rstrip("cn")),
                    "per_cpu": asked.endswith("c"),
                    "peak": 0,
                    "nodes": int(nodes or 1),
                    "time_limit": int(limit) * 60 if limit.isdigit() else None,
                    "work_dir": work_dir,
                }
            elif bare in found:
                found[bare]["peak"] = max(found[bare]["peak"], _kib(peak))
        except (ValueError, OverflowError):
            raise UnreadableAnswer(
                "sacct answered with a row we do not know: {!r}".format(row)
            ) from None
    return list(found.values())


def _kib(text: str) -> int:
    """`51200K` in bytes."""
    found = re.match(r"([0-9.]+)K?\Z", text)
    return int(float(found.group(1)) * 1024) if found else 0


def cpu_seconds(text: str) -> float:
    """`1-02:03:04` or `03:04.567` as seconds."""
    whole, _, fraction = text.partition(".")
    seconds = clock_seconds(whole)
    return 0.0 if seconds is None else seconds + float("0." + (fraction or "0"))


# ---- commands that only look ------------------------------------------------------------------

#: `scontrol write batch_script ID -` prints; without the dash it writes a file.
_LOOKING = ("sacct", "sdiag", "sinfo", "squeue", "sshare")


def only_looks(command: Sequence[str]) -> bool:
    """Whether a command changes nothing: what a monitor may run, with any arguments."""
    if command[0] == "sdiag":
        return list(command[1:]) == []  # it can also reset the numbers
    if list(command[:3]) == ["scontrol", "write", "batch_script"]:
        return len(command) == 5 and command[4] == "-"
    if list(command[:2]) == ["scontrol", "-o"]:  # each record in one line
        command = ["scontrol", *command[2:]]
    return command[0] in _LOOKING or list(command[:2]) == ["scontrol", "show"]


# ---- settings and version -----------------------------------------------------------------------

_SETTING = re.compile(r"([A-Za-z][A-Za-z0-9_/:()\[\]]*)\s*= ?(.*)\Z")


def show_config_command() -> List[str]:
    """Ask for the controller's settings; the answer is for `parse_config`."""
    return ["scontrol", "show", "config"]


def parse_config(text: str) -> Dict[str, str]:
    """The settings by name, such as MaxArraySize, MinJobAge, KillWait, SLURM_VERSION; all text."""
    settings = {}  # type: Dict[str, str]
    for line in text.split("\n"):
        found = _SETTING.match(line)
        if found:
            # The first counts: sections of plug-ins (cgroup.conf, ...) follow the main one.
            settings.setdefault(found.group(1), found.group(2).strip())
    return settings


def limits_enforced(settings: Dict[str, str]) -> bool:
    """Whether the limits of accounts and QOS hold for jobs."""
    return bool(re.search("limits|safe|qos|all", settings.get("AccountingStorageEnforce", "")))


def submit_limits_commands(user: str) -> List[List[str]]:
    """Ask how many jobs a user may have queued; the answers are for `parse_submit_limit`."""
    associations = ["where", "user=" + user, "format=MaxSubmitJobs,GrpSubmitJobs"]
    return [
        ["sacctmgr", "-n", "-P", "show", "assoc", *associations],
        ["sacctmgr", "-n", "-P", "show", "qos", "format=MaxSubmitJobsPU,GrpSubmitJobs"],
    ]


def parse_submit_limit(text: str) -> Optional[int]:
    """The lowest limit in the answers; None for none. Zero (nothing at all) is left to sbatch."""
    found = [int(word) for word in re.split(r"[|\n]", text) if word.isdigit() and int(word)]
    return min(found) if found else None


def version_command() -> List[str]:
    """Ask for the version of the commands; the answer is for `parse_version`."""
    return ["sbatch", "--version"]


def parse_version(text: str) -> Tuple[int, int, int]:
    """`(22, 5, 8)` out of "slurm-wlm 22.05.8"."""
    found = re.search(r"\b([0-9]{2})\.([0-9]{2})\.([0-9]+)", text)
    if found is None:
        raise UnreadableAnswer(f"no version in {text.strip()!r}")
    return int(found.group(1)), int(found.group(2)), int(found.group(3))
