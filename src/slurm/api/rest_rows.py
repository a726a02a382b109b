"""From slurmrestd's rows to ours: jobs, nodes, partitions, limits; nothing is asked here."""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, ParamSpec, TypeVar

from slurm.api.agent_error import AgentError
from slurm.api.rest_client import number_of
from slurm.api.slurm_commands import JobStatus, accounted_path, expand_rows
from slurm.api.slurm_rows import UnreadableAnswer
from slurm.api.slurm_site import NodeStatus, PartitionStatus, QueuedJob
from slurm.model.states import parse_state
from slurm.model.units import format_duration

P = ParamSpec("P")
R = TypeVar("R")


def _strict(read: Callable[P, R]) -> Callable[P, R]:
    """A row that has not the form we know is refused as such; nothing is guessed."""

    @functools.wraps(read)
    def reading(*args: P.args, **more: P.kwargs) -> R:
        try:
            return read(*args, **more)
        except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise UnreadableAnswer(f"slurmrestd: {error!r} in {args[0]!r:.500}") from error

    return reading


@_strict
def controller_row(row: Mapping[str, Any]) -> JobStatus:
    """A job of `/jobs/` as every scheduler of ours tells it."""
    array, task = number_of(row.get("array_job_id")), number_of(row.get("array_task_id"))
    rest = str(row.get("array_task_string") or "")
    job_id = str(row["job_id"])
    if array and rest:
        job_id = f"{array}_[{rest}]"
    elif array and task is not None:
        job_id = f"{array}_{task}"
    names = [str(name) for name in row.get("job_state") or ["UNKNOWN"]]
    state = "COMPLETING" if "COMPLETING" in names else names[0]
    return _status(
        job_id,
        state,
        str(row.get("state_reason") or ""),
        row,
        [number_of(row.get(f"{which}_time")) for which in ("submit", "start", "end")],
        int(row.get("restart_cnt") or 0),
        str(row.get("current_working_directory") or ""),
    )


def accounting_query(job_ids: Sequence[str], since: float) -> list[tuple[str, str]]:
    """What accounting's `/jobs/` is asked for these jobs, with all their attempts."""
    # Slurm documents a list with commas, and answers one with "Unspecified error".
    return [
        *(("step", job) for job in job_ids),
        ("start_time", str(int(max(since, 0)))),
        ("show_duplicates", "true"),
        ("skip_steps", "true"),
    ]


@_strict
def accounting_row(row: Mapping[str, Any]) -> JobStatus:
    """A job of accounting's `/jobs/`."""
    array = row.get("array") or {}
    task = number_of(array.get("task_id"))
    job_id = str(row["job_id"])
    if array.get("job_id") and task is not None:
        job_id = f"{array['job_id']}_{task}"
    state = row.get("state") or {}
    names = [str(name) for name in state.get("current") or ["UNKNOWN"]]
    times = row.get("time") or {}
    return _status(
        job_id,
        names[0],
        str(state.get("reason") or ""),
        row,
        [number_of(times.get(which)) for which in ("submission", "start", "end")],
        0,
        accounted_path(str(row.get("working_directory") or "")),
    )


def _status(
    job_id: str,
    state: str,
    reason: str,
    row: Mapping[str, Any],
    times: list[int | None],
    restarts: int,
    work_dir: str,
) -> JobStatus:
    known = parse_state(state)
    submit, start, end = (value or None for value in times)
    exit_status = row.get("exit_code") or {}
    code = number_of(exit_status.get("return_code"))
    signal = number_of((exit_status.get("signal") or {}).get("id"))
    nodes = str(row.get("nodes") or "")
    return JobStatus(
        job_id=job_id,
        state=known.value if known.value != "UNKNOWN" else state,
        reason="" if reason in ("None", "(null)") else reason,
        nodes="" if nodes == "None assigned" else nodes,
        exit_code=(code or 0) if known.finished else None,
        signal=(signal or None) if known.finished else None,
        submit=submit,
        # A time in the future is a forecast, and no start.
        start=start if state != "PENDING" else None,
        end=end if known.finished else None,
        restarts=restarts,
        work_dir=work_dir,
        name=str(row.get("name") or ""),
    )


@_strict
def node_row(row: Mapping[str, Any]) -> NodeStatus:
    """A node of `/nodes/`."""
    return NodeStatus(
        name=str(row["name"]),
        state="+".join(row.get("state") or ()),
        cpus=int(row.get("cpus") or 0),
        allocated_cpus=int(row.get("alloc_cpus") or 0),
        memory=int(row.get("real_memory") or 0),
        allocated_memory=int(row.get("alloc_memory") or 0),
        gres=str(row.get("gres") or ""),
        features=tuple(row.get("features") or ()),
        partitions=tuple(row.get("partitions") or ()),
        reason=str(row.get("reason") or ""),
    )


def default_partition(
    rows: Sequence[Mapping[str, Any]], jobs: Callable[[], Sequence[Mapping[str, Any]]]
) -> str:
    """The partition of jobs that name none.

    Only the newest slurmrestd says so; of an older one it is seen in jobs that named none, or, if
    there is only one partition, taken to be that.
    """
    told = [row["name"] for row in rows if "DEFAULT" in (row.get("flags") or ())]
    if told or all("flags" in row for row in rows):
        return str(told[0]) if told else ""
    if len(rows) == 1:
        return str(rows[0]["name"])
    seen = (j["partition"] for j in jobs() if "USING_DEFAULT_PARTITION" in (j.get("flags") or ()))
    return str(next(seen, ""))


@_strict
def partition_row(
    row: Mapping[str, Any], nodes: Sequence[Mapping[str, Any]], default: str
) -> PartitionStatus:
    """A partition of `/partitions/`, with the use of its nodes counted from those."""
    mine = [node for node in nodes if row["name"] in node["partitions"]]
    used = [node for node in mine if node["state"].startswith(("ALLOCATED", "MIXED"))]
    idle = [node for node in mine if node["state"] == "IDLE"]
    total, busy = sum(n["cpus"] for n in mine), sum(n["allocated_cpus"] for n in mine)
    free = sum(n["cpus"] - n["allocated_cpus"] for n in [*used, *idle])
    about = row.get("partition") or {}
    return PartitionStatus(
        name=str(row["name"]),
        default=row["name"] == default,
        available="+".join(about.get("state") or ()).lower(),
        time_limit=_limit(row, "maximums"),
        default_time=_limit(row, "defaults") if number_of(_time(row, "defaults")) else "",
        allocated_nodes=len(used),
        idle_nodes=len(idle),
        other_nodes=len(mine) - len(used) - len(idle),
        nodes=len(mine),
        allocated_cpus=busy,
        idle_cpus=free,
        other_cpus=total - busy - free,
        cpus=total,
    )


def _time(row: Mapping[str, Any], which: str) -> object:
    return (row.get(which) or {}).get("time")


def _limit(row: Mapping[str, Any], which: str) -> str:
    minutes = number_of(_time(row, which))
    # As sinfo writes it: 1:00:00, 30:00.
    return "infinite" if minutes is None else re.sub("^(00:)?0?", "", format_duration(minutes * 60))


@_strict
def queued_job(row: Mapping[str, Any]) -> QueuedJob | None:
    """A job of anybody that has not ended; None for one that has."""
    status = controller_row(row)
    if status.end is not None:
        return None
    limit = number_of(row.get("time_limit"))
    return QueuedJob(
        status.job_id,
        status.state,
        str(row.get("user_name") or ""),
        str(row.get("partition") or ""),
        number_of(row.get("cpus")) or 0,
        number_of(row.get("node_count")) or 0,
        int(time.time()) - status.start if status.start else 0,
        None if limit is None else limit * 60,
        number_of(row.get("priority")) or 0,
        status.nodes or status.reason,
        status.name,
    )


# ---- limits -------------------------------------------------------------------------------------


def settings(answer: Mapping[str, Any]) -> dict[str, str]:
    """The controller's settings by name as `scontrol show config` writes them: plain text."""
    told = [answer.get("slurm_conf") or {}, answer.get("slurm_conf_meta") or {}]
    return {
        name: ",".join(map(str, value)) if isinstance(value, list) else str(value)
        for part in told
        for name, value in part.items()
        if not isinstance(value, dict)
    }


def submit_limit(accounts: Mapping[str, Any], qos: Mapping[str, Any]) -> int | None:
    """The lowest number of jobs that the user may have queued; None for no such limit."""
    found = []
    for row in accounts.get("associations") or ():
        jobs = row["max"]["jobs"]
        found += [jobs["total"], jobs["per"]["submitted"]]
    for row in qos.get("qos") or ():
        jobs = row["limits"]["max"]["jobs"]
        found += [jobs["count"], jobs["per"]["user"]]
    return min((n for n in map(number_of, found) if n), default=None)


# ---- which jobs ---------------------------------------------------------------------------------


def numbers_of(job_ids: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> Iterator[int]:
    """The number of each job: an element that has begun has one of its own, the others share one.

    What the others share can be changed for all of them only.
    """
    wanted = set(job_ids)
    for row in rows:
        status = controller_row(row)
        meant = {one.job_id for one in expand_rows([status])}
        if not wanted & meant:
            continue
        if not meant <= wanted:
            left = ", ".join(sorted(meant - wanted)[:3])
            raise AgentError(
                "request",
                f"slurmrestd changes what is pending of an array as a whole: {left} would change",
                [],
                "name all elements that wait, or use scontrol on the login node",
            )
        yield int(row["job_id"])


def refusals(answer: Mapping[str, Any], ended: Collection[int]) -> list[str]:
    """Slurm's words about each job that a request was refused for.

    One that has ended meanwhile, told by the numbers in `ended`, needs no more.
    """
    found = []
    for row in answer.get("status") or ():
        # Of a signal: a row for each job. Of requeue: a list of rows for each, in other words.
        for one in row if isinstance(row, list) else [row]:
            told = one.get("error")
            more = told if isinstance(told, dict) else {}
            code = int(more.get("code") or one.get("error_code") or 0)
            if code and code not in ended:
                found.append(str(more.get("message") or told))
    return found
