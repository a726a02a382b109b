"""What slurmrestd can say about why a job waits, in the words of `scontrol show`: pure functions.

`slurm.api.reasons` has the same from Slurm's commands. What limits allow and how much of them is
used is not told here: slurmrestd knows the limits, but not their use.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from slurm.api.rest_client import number_of
from slurm.api.rest_rows import controller_row, node_row
from slurm.model.units import format_duration

#: Gives the answer to a GET of a path, an empty one where it is refused.
Ask = Callable[[str], Mapping[str, Any]]
_Rows = Sequence[Mapping[str, Any]]


def facts(ask: Ask, job_id: str) -> dict[str, Any]:
    """All that the job's reason is about; an empty `job` where Slurm does not know the job."""
    every: _Rows = ask("jobs/").get("jobs") or ()
    whole = job_id.partition("_")[0]
    mine = [row for row in every if controller_row(row).job_id.partition("_")[0] == whole]
    waiting = [row for row in mine if _state(row) == "PENDING"]
    found: dict[str, Any] = {
        "job": next(map(job_fields, waiting or mine), {}),
        "running": sum(_state(one) == "RUNNING" for one in mine),
    }
    if not waiting:
        return found
    job = found["job"]
    partition = str(job["Partition"]).partition(",")[0]
    found["queue"] = queue(every, partition)
    for one in ask(f"partition/{partition}").get("partitions") or ():
        found["partition"] = partition_fields(one)
    if job["Reason"].startswith("Licenses"):
        found["licenses"] = [_license(one) for one in ask("licenses/").get("licenses") or ()]
    if re.search("Reserv|reserved|ReqNode", job["Reason"]):
        rows = ask("reservations/").get("reservations") or ()
        found["reservations"] = [_reservation(one) for one in rows]
    if re.match("Resources|Priority|ReqNode|Nodes|BadConstraints", job["Reason"]):
        nodes = [node_row(one) for one in ask("nodes/").get("nodes") or ()]
        found["nodes"] = [dict(n._asdict()) for n in nodes if partition in n.partitions]
    if job["Reason"].startswith("Dependency"):
        found["upstream"] = _upstream(every, job["Dependency"])
    return found


def _state(row: Mapping[str, Any]) -> str:
    return str((row.get("job_state") or ["UNKNOWN"])[0])


def _clock(value: object, infinite: str = "UNLIMITED") -> str:
    minutes = number_of(value)
    return infinite if minutes is None else format_duration(minutes * 60)


def _text(value: object) -> str:
    return "" if value is None else str(value)


def job_fields(row: Mapping[str, Any]) -> dict[str, str]:
    """A job as `scontrol show job` describes it, as far as somebody asks."""
    nodes = row.get("required_nodes") or ""
    seen = controller_row(row)
    return {
        "JobId": _text(row.get("job_id")),
        "JobState": _state(row),
        "Reason": _text(row.get("state_reason")),
        "WorkDir": _text(row.get("current_working_directory")),
        "Partition": _text(row.get("partition")),
        "QOS": _text(row.get("qos")),
        "Account": _text(row.get("account")),
        "UserId": f"{row.get('user_name')}({row.get('user_id')})",
        "TimeLimit": _clock(row.get("time_limit")),
        "StartTime": _text(number_of(row.get("start_time")) or ""),
        "NumNodes": _text(number_of(row.get("node_count")) or 1),
        "ReqTRES": _text(row.get("tres_req_str")),
        "ReqNodeList": ",".join(nodes) if isinstance(nodes, list) else _text(nodes),
        "Licenses": _text(row.get("licenses")),
        "Reservation": _text(row.get("resv_name")),
        "Dependency": _text(row.get("dependency")),
        "ArrayTaskThrottle": _text(number_of(row.get("array_max_tasks")) or ""),
        "JobName": seen.name,
        "NodeList": seen.nodes,
        "NumCPUs": _text(number_of(row.get("cpus"))),
        "TRES": _text(row.get("tres_alloc_str")),
        "ExitCode": f"{seen.exit_code or 0}:{seen.signal or 0}",
        "SubmitTime": _text(seen.submit),
        "EndTime": _text(seen.end),
        "Command": _text(row.get("command")),
        "Comment": _text(row.get("comment")),
        "AdminComment": _text(row.get("admin_comment")),
        "StdOut": _text(row.get("stdout_expanded") or row.get("standard_output")),
        "StdErr": _text(row.get("stderr_expanded") or row.get("standard_error")),
    }


def queue(rows: _Rows, partition: str) -> list[list[str]]:
    """What waits in a partition, the first in line first: id, priority, user, reason, sizes."""
    waiting = [
        row
        for row in rows
        if _state(row) == "PENDING" and partition in _text(row.get("partition")).split(",")
    ]
    waiting.sort(key=lambda row: (-(number_of(row.get("priority")) or 0), int(row["job_id"])))
    return [
        [
            controller_row(row).job_id,
            _text(number_of(row.get("priority")) or 0),
            _text(row.get("user_name")),
            _text(row.get("state_reason")),
            _text(number_of(row.get("node_count")) or 1),
            _text(number_of(row.get("cpus")) or 1),
        ]
        for row in waiting
    ]


def partition_fields(row: Mapping[str, Any]) -> dict[str, str]:
    """A partition as `scontrol show partition` describes it, as far as somebody asks."""
    most, least = row.get("maximums") or {}, row.get("minimums") or {}
    return {
        "PartitionName": _text(row.get("name")),
        "State": "+".join((row.get("partition") or {}).get("state") or ()),
        "MaxTime": _clock(most.get("time")),
        "MaxNodes": _text(number_of(most.get("nodes")) or "UNLIMITED"),
        "MinNodes": _text(least.get("nodes")),
        "TotalNodes": _text((row.get("nodes") or {}).get("total")),
        "QoS": _text((row.get("qos") or {}).get("assigned")),
    }


def _license(row: Mapping[str, Any]) -> dict[str, str]:
    name, total, free = (row.get(key) for key in ("LicenseName", "Total", "Free"))
    return {"LicenseName": _text(name), "Total": _text(total or 0), "Free": _text(free or 0)}


def _reservation(row: Mapping[str, Any]) -> dict[str, str]:
    times = {key: number_of(row.get(key)) for key in ("start_time", "end_time")}
    return {
        "ReservationName": _text(row.get("name")),
        "Nodes": _text(row.get("node_list")),
        "StartTime": _text(times["start_time"] or ""),
        "EndTime": _text(times["end_time"] or ""),
    }


def _upstream(rows: _Rows, dependency: str) -> list[tuple[str, str, str]]:
    """The jobs that a dependency names: (id, what Slurm says of the condition, state)."""
    found = []
    for job, condition in re.findall(r"(\d+(?:_[\d*]+)?)(?:\((\w+)\))?", dependency)[:5]:
        whole = job.partition("_")[0]
        mine = [r for r in rows if controller_row(r).job_id.partition("_")[0] == whole]
        found.append((job, condition, ", ".join(sorted({_state(row) for row in mine}))))
    return found
