"""Why a job waits: every reason code of Slurm, what it means for this job, and what helps."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slurm.api.slurm_site import clock_seconds
from slurm.model.hostlist import expand_hostlist
from slurm.model.units import format_duration
from slurm.why.limits import joined, limit_kind, met_limits, tres_of
from slurm.why.model import Fix, Limit, Why

#: What stands in a command for the job and for the run.
Names = Mapping[str, str]
Facts = Mapping[str, Any]


@dataclass(frozen=True)
class Row:
    """One row of the table: codes that begin so, what they mean, and what helps.

    `waits`: it starts by itself sooner or later. `about` adds what the facts say of this job.
    """

    codes: str
    text: str
    fixes: tuple[tuple[str, str], ...] = ()
    waits: bool = False
    about: Callable[[Facts, float], tuple[str, list[str]]] | None = None
    measure: Callable[[Facts], list[Limit]] | None = None


# ---- what the facts say -------------------------------------------------------------------------


def _time(text: object) -> float | None:
    return float(str(text)) if str(text).isdigit() else None


def _in(when: float, now: float) -> str:
    return f"in {format_duration(max(0, int(when - now)))}" if when > now else "now"


def _begin(facts: Facts, now: float) -> tuple[str, list[str]]:
    at = _time(facts["job"].get("StartTime"))
    return (f"That is {_in(at, now)}." if at else ""), []


def _upstream(facts: Facts, now: float) -> tuple[str, list[str]]:
    rows = facts.get("upstream", ())
    seen = [f"job {job} is {state or 'gone from the queue'}" for job, _, state in rows]
    return f"It depends on {facts['job'].get('Dependency', 'other jobs')}.", seen


def _throttle(facts: Facts, now: float) -> tuple[str, list[str]]:
    most = facts["job"].get("ArrayTaskThrottle")
    running = facts.get("running", 0)
    # Of the last one that waits squeue does not tell the limit.
    limit = f"At most {most} of its jobs run at the same time; {running} do."
    return limit if most else f"{running} of its jobs run now." if running else "", []


def _nodes(facts: Facts, now: float) -> tuple[str, list[str]]:
    """What is free now in the nodes that it may use, against what it asks for."""
    nodes = facts.get("nodes") or []
    usable = [node for node in nodes if not _unusable(node)]
    asked = tres_of(facts["job"])
    wants = _amounts(asked.get("cpu"), asked.get("mem"), asked.get("node"))
    cpus = sum(max(0, n["cpus"] - n["allocated_cpus"]) for n in usable)
    memory = sum(max(0, n["memory"] - n["allocated_memory"]) for n in usable)
    free = sum(1 for node in usable if not node["allocated_cpus"])
    rest = f"on {len(usable)} nodes, {free} of them wholly free"
    text = f"Free are {_amounts(cpus, memory, None)} {rest}."
    text = (f"It asks for {wants}. " if wants else "") + text if nodes else ""
    return text, [_of_node(node) for node in nodes if _unusable(node)]


def _amounts(cpus: float | None, memory: float | None, nodes: float | None) -> str:
    parts = [f"{cpus:.0f} CPUs"] if cpus is not None else []
    parts += [f"{memory:.0f} MiB"] if memory is not None else []
    parts += [f"{nodes:.0f} nodes"] if nodes is not None else []
    return ", ".join(parts)


def _unusable(node: Mapping[str, Any]) -> bool:
    return bool(re.search("DOWN|DRAIN|FAIL|NOT_RESPONDING|RESERVED|MAINT|INVAL", node["state"]))


def _of_node(node: Mapping[str, Any]) -> str:
    why = f": {node['reason']}" if node["reason"] else ""
    return f"node {node['name']} is {node['state']}{why}"


def _named_nodes(facts: Facts, now: float) -> tuple[str, list[str]]:
    """The nodes that it needs and that are not available, or the reservation that has them."""
    job = facts["job"]
    reason = job.get("Reason", "")
    wanted = _hosts(job.get("ReqNodeList", ""))
    away = set(_hosts(reason.partition("UnavailableNodes:")[2])) | set(wanted)
    nodes = [n for n in facts.get("nodes") or [] if (n["name"] in away or not away)]
    seen = [_of_node(node) for node in nodes if _unusable(node)]
    for one in facts.get("reservations", ()):
        both = set(_hosts(one.get("Nodes", ""))) & (set(wanted) or {n["name"] for n in nodes})
        start, end = _time(one.get("StartTime")), _time(one.get("EndTime"))
        if both and start and end:
            begins = "has them" if start <= now else f"takes them {_in(start, now)}"
            name = one.get("ReservationName")
            seen.append(f"reservation {name} {begins}, until {_in(end, now)}")
    return (f"It asks for {', '.join(wanted)}." if wanted else ""), seen


def _hosts(text: str) -> list[str]:
    if not text or text == "(null)":
        return []
    try:
        return list(expand_hostlist(text))
    except ValueError:
        return []


def _licences(facts: Facts) -> list[Limit]:
    asked = dict(re.findall(r"([^,:@]+)(?:@[^,:]+)?:(\d+)", facts["job"].get("Licenses", "")))
    found = []
    for one in facts.get("licenses", ()):
        name = one.get("LicenseName", "").partition("@")[0]
        if name in asked:
            total, free = int(one.get("Total", 0)), int(one.get("Free", 0))
            short = int(asked[name]) - free
            found.append(
                Limit(
                    f"licences {name}",
                    str(total),
                    str(total - free),
                    asked[name],
                    f"{max(0, short)} {'has' if short == 1 else 'have'} to become free",
                )
            )
    return found


def _partition_time(facts: Facts) -> list[Limit]:
    job, partition = facts["job"], facts.get("partition", {})
    asked = clock_seconds(job.get("TimeLimit", ""))
    most = clock_seconds(partition.get("MaxTime", ""))
    if most is None:
        return []
    name = f"MaxTime of partition {partition.get('PartitionName')}"
    over = "no end" if asked is None else format_duration(max(0, asked - most))
    told = "UNLIMITED" if asked is None else format_duration(asked)
    return [Limit(name, format_duration(most), "", told, f"{over} too much")]


def _partition_nodes(facts: Facts) -> list[Limit]:
    job, partition = facts["job"], facts.get("partition", {})
    asked = job.get("NumNodes", "1").partition("-")[0]
    name = f"of partition {partition.get('PartitionName')}"
    found = []
    for key, word in (("MaxNodes", "too many"), ("MinNodes", "too few"), ("TotalNodes", "missing")):
        value = partition.get(key, "")
        if value.isdigit() and asked.isdigit():
            over = int(value) - int(asked) if key == "MinNodes" else int(asked) - int(value)
            if over > 0:
                found.append(Limit(f"{key} {name}", value, "", asked, f"{over} {word}"))
    return found


def _reservation(facts: Facts, now: float) -> tuple[str, list[str]]:
    name = facts["job"].get("Reservation", "")
    for one in facts.get("reservations", ()):
        if one.get("ReservationName") == name:
            start, end = _time(one.get("StartTime")), _time(one.get("EndTime"))
            if start and start > now:
                return f"Reservation {name} begins {_in(start, now)}.", []
            left = f", and ends {_in(end, now)}" if end else ""
            return f"Reservation {name} is in force on {one.get('Nodes')}{left}.", []
    return f"Reservation {name} is not there any more." if name else "", []


def _state_of_partition(facts: Facts, now: float) -> tuple[str, list[str]]:
    partition = facts.get("partition", {})
    name, state = partition.get("PartitionName", "?"), partition.get("State", "?")
    return f"Partition {name} is {state}.", []


# ---- the table ----------------------------------------------------------------------------------

_RELEASE = ("scontrol release {job}", "lets it start when its turn comes")
_CANCEL = ("slurm cancel {run}", "gives it up")
_SHORTER = ("scontrol update JobId={job} TimeLimit={time}", "asks for what the limit allows")
_NO_NODES = ("scontrol update JobId={job} ReqNodeList=", "takes any node instead")
_OTHER = ("slurm rerun {run} --set partition=NAME", "submits it to another partition")
_ADMIN = ("", "ask the administrators of the cluster")
_SEE_PARTITIONS = ("slurm partitions", "shows the partitions and how full they are")

ROWS: tuple[Row, ...] = (
    Row("None", "Slurm has not looked at it yet.", waits=True),
    Row("Priority", "Jobs of higher priority are before it.", (_SEE_PARTITIONS,), True, _nodes),
    Row(
        "Resources",
        "It is first in line and waits until enough is free.",
        (_SEE_PARTITIONS, ("slurm nodes", "shows what is free")),
        True,
        _nodes,
    ),
    Row(
        "DependencyNeverSatisfied",
        "It will never run: what it depends on did not end as it should have.",
        (_CANCEL, ("slurm graph {run}", "shows what it waits for")),
        about=_upstream,
    ),
    Row("Dependency", "It waits for other jobs to end.", (), True, _upstream),
    Row(
        "PartitionTimeLimit",
        "It asks for more time than the partition allows.",
        (_SHORTER, _OTHER),
        measure=_partition_time,
    ),
    Row(
        "PartitionNodeLimit",
        "It asks for more nodes than the partition allows, or for fewer than it demands.",
        (("scontrol update JobId={job} NumNodes=NUMBER", "asks for another number"), _OTHER),
        measure=_partition_nodes,
    ),
    Row("PartitionDown", "Its partition starts no jobs.", (_OTHER, _ADMIN), True,
        _state_of_partition),
    Row("PartitionInactive", "Its partition takes and starts no jobs.", (_OTHER, _ADMIN), True,
        _state_of_partition),
    Row("PartitionConfig", "No nodes of its partition can satisfy what it asks for.", (_OTHER,),
        about=_nodes),
    Row("JobHeldUser", "You, or a program of yours, hold it.", (_RELEASE,)),
    Row("JobHeldAdmin", "An administrator holds it, or its priority is 0.", (_ADMIN,)),
    Row("JobHoldMaxRequeue", "It was requeued too often, so Slurm holds it.",
        (("slurm logs {run}", "shows why it ended each time"), _RELEASE)),
    Row("BeginTime", "It is not to start before its time.",
        (("scontrol update JobId={job} StartTime=now", "lets it start at once"),), True, _begin),
    Row("Licenses", "All licences of a kind that it needs are in use.", (), True,
        measure=_licences),
    Row(
        "ReservationDeleted",
        "The reservation that it was to run in is gone.",
        (("scontrol update JobId={job} ReservationName=", "runs it outside of any"), _RELEASE),
    ),
    Row(
        "Reservation",
        "It waits for its reservation.",
        (("scontrol update JobId={job} ReservationName=", "runs it outside of any"),),
        True,
        _reservation,
    ),
    Row("ReqNodeNotAvail", "A node that it needs is not available.", (_NO_NODES,), True,
        _named_nodes),
    Row("Nodes required for job", "The nodes that it needs are down, drained, or kept for others.",
        (("slurm nodes", "shows which, and why"), _OTHER), True, _nodes),
    Row("BadConstraints", "No node can satisfy what it asks for.",
        (("slurm nodes", "shows what there is"), _OTHER), about=_nodes),
    Row("JobArrayTaskLimit", "The array's own limit is reached.",
        (("scontrol update JobId={array} ArrayTaskThrottle=0", "lifts it"),), True, _throttle),
    Row("QOSUsageThreshold", "Your usage is above the threshold of the QOS.", (_ADMIN,), True),
    Row("QOSNotAllowed", "Its QOS may not be used in its partition.",
        (("slurm rerun {run} --set qos=NAME", "submits it with another"),)),
    Row("AccountNotAllowed", "Its account may not be used in its partition.",
        (("slurm rerun {run} --set account=NAME", "submits it with another"),)),
    Row("InvalidAccount", "Its account does not exist any more, or may not be used by you.",
        (("slurm rerun {run} --set account=NAME", "submits it with another"),)),
    Row("InvalidQOS", "Its QOS does not exist any more, or may not be used by you.",
        (("slurm rerun {run} --set qos=NAME", "submits it with another"),)),
    Row("Cleaning", "It ran before, and its last attempt is still being cleaned up.", waits=True),
    Row("Prolog", "Its nodes are being prepared.", waits=True),
    Row("BurstBuffer(Resources|StageIn)", "It waits for its burst buffer.", waits=True),
    Row("BurstBufferOperation", "An operation of its burst buffer failed.", (_ADMIN,)),
    Row("FrontEndDown", "No front end is there that could start it.", (_ADMIN,), True),
    Row("SchedDefer", "It asked to start at once or not at all, and could not.", (_CANCEL,)),
    Row("NodeDown", "A node that it needs is down.", (_NO_NODES,), True, _named_nodes),
    Row("(System|JobLaunch)Failure", "Slurm could not start it and holds it.",
        (_RELEASE, _ADMIN)),
    Row("FedJobLock", "The federation decides on which cluster it runs.", waits=True),
    Row("Power(NotAvail|Reserved)", "There is not enough electrical power for it now.",
        waits=True),
    Row("MaxPoweredUpNodes", "No more nodes may be powered up at the moment.", waits=True),
    Row("MpiPortsBusy", "No ports are free for its MPI.", waits=True),
    Row("MaxMemPerLimit", "It asks for more memory per CPU or node than is allowed.",
        (("slurm rerun {run} --mem LESS", "submits it with less"),)),
    Row("DeadLine", "It cannot end before its deadline.", (_CANCEL,)),
    Row("Block(MaxError|FreeAction)", "The hardware that it needs is being reset.", waits=True),
    Row("RequiresReservation", "Its partition takes jobs of reservations only.",
        (("slurm rerun {run} --set reservation=NAME", "submits it into one"),)),
    Row("(QOS|Association)(Job|Resource|Time)Limit|AccountingPolicy",
        "A limit of its account or QOS is reached.",
        (("sacctmgr show assoc user=$USER", "lists the limits"),), True),
)  # fmt: skip


def row_of(reason: str) -> Row | None:
    """The row of a reason, in Slurm's own words; limits have a grammar instead of rows."""
    return next((row for row in ROWS if re.match(f"(?:{row.codes})", reason)), None)


def explain_pending(reason: str, facts: Facts, names: Names, now: float) -> Why:
    """Why the job waits. `names` are `job`, `array` and `run`; `now` is the cluster's time."""
    reason = reason.replace("_", " ")
    kind = limit_kind(reason)
    if kind is not None and row_of(reason) is None:
        limits = met_limits(kind, facts)
        row = _limit_row(reason, kind.words, kind.per_job or kind.key.startswith("Min"), limits)
    else:
        row = row_of(reason) or Row(".*", f"Slurm's word for it is {reason!r}.", waits=True)
        limits = row.measure(facts) if row.measure else []
    more, seen = row.about(facts, now) if row.about else ("", [])
    text = " ".join(
        part for part in (row.text, joined(limits) + "." if limits else "", more) if part
    )
    in_line = re.match(_IN_LINE, reason) is not None
    position, ahead = (
        place_in_line(facts.get("queue", ()), names["job"]) if in_line else (None, None)
    )
    values = {**names, "time": limits[0].value if limits else "TIME"}
    return Why(
        reason=reason.partition(",")[0],
        text=text,
        waits=row.waits,
        limits=limits,
        position=position,
        ahead=ahead,
        starts=_time(facts.get("job", {}).get("StartTime")),
        evidence=seen,
        fixes=[Fix(command.format(**values), effect) for command, effect in row.fixes],
    )


def _limit_row(reason: str, words: str, alone: bool, limits: Sequence[Limit]) -> Row:
    """The row of a code that the grammar of limits knows."""
    whose = "QOS" if not reason.startswith("Assoc") else "account"
    never = any(limit.distance.endswith("too much") for limit in limits)
    text = f"A limit of its {whose} is reached: {words}."
    if "Wall" in reason and alone:
        fixes: tuple[tuple[str, str], ...] = (_SHORTER,)
    elif alone or never:
        fixes = (("slurm rerun {run} --set OPTION=LESS", "submits it with less"),)
    elif "Min" in reason.partition("Grp")[2]:
        fixes = (("scontrol update JobId={job} TimeLimit=LESS", "takes less of it"), _ADMIN)
    else:
        fixes = (("slurm queue --mine", "shows what uses it now"),)
    return Row("", text, fixes, waits=not (alone or never))


#: What waits for its turn; all else waits for something of its own, and is in nobody's way.
_IN_LINE = "None|Priority|Resources|ReqNodeNotAvail|Nodes required"


def place_in_line(queue: Sequence[Sequence[str]], job: str) -> tuple[int | None, int | None]:
    """The job's place among what waits, and how many before it have a higher priority."""
    bare = job.partition("_")[0]
    line = [row for row in queue if re.match(_IN_LINE, row[3])]
    for number, row in enumerate(line):
        if row[0].partition("_")[0] == bare:
            higher = sum(1 for other in line[:number] if _higher(other[1], row[1]))
            return number + 1, higher
    return None, None


def _higher(one: str, other: str) -> bool:
    return one.isdigit() and other.isdigit() and int(one) > int(other)
