"""Everybody's jobs: the squeue command of the collector, and its rows."""

from __future__ import annotations

import functools
import re
import secrets
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from slurm.api.slurm_site import clock_seconds
from slurm.model.ids import expand_array_spec
from slurm.model.states import parse_state

_UNIT = "\x1f"

#: No column that changes by itself (elapsed, left): an unchanged row is not read twice. The name is
#: last, for it may hold anything.
COLUMNS = (
    *("JobArrayID", "State", "Reason", "UserName", "Account", "Partition", "QOS", "NumCPUs"),
    *("NumNodes", "tres-alloc", "SubmitTime", "EligibleTime", "StartTime", "EndTime", "TimeLimit"),
    *("PriorityLong", "RestartCnt", "NodeList", "Name"),
)


class JobRow(NamedTuple):
    """One job, or the waiting rest of an array, as the queue shows it."""

    #: "12", "12_3", "12+1", or "12_[4-9]" for what waits of an array.
    job_id: str
    #: Slurm's long name, such as "RUNNING".
    state: str
    #: `pending`, `active`, `finished` or `unknown`.
    phase: str
    #: Why it waits, without lists of nodes: one of Slurm's own words; "" when it does not wait.
    reason: str
    user: str
    #: "" where there is no accounting.
    account: str
    #: The first that the job named, where it named several.
    partition: str
    qos: str
    #: Of one task; so are the others.
    cpus: int
    nodes: int
    memory: int
    gpus: int
    #: Epoch seconds of the controller, None for "not yet": never its forecast.
    submit: int | None
    eligible: int | None
    start: int | None
    end: int | None
    #: Seconds; None for no limit.
    limit: int | None
    priority: int
    restarts: int
    node_list: str
    name: str
    #: How many tasks the row stands for.
    tasks: int

    @property
    def base(self) -> str:
        """The id of the whole: "12" of "12_3"."""
        return self.job_id.partition("_")[0].partition("+")[0]


def new_mark() -> str:
    """What ends each row of one answer; nobody can know it, so no job's name makes a row."""
    return secrets.token_hex(8)


def queue_command(mark: str = "") -> list[str]:
    """Ask once for all jobs, also those that ended in the last minutes."""
    columns = [name + ":" + _UNIT for name in COLUMNS[:-1]] + [f"Name:\x1f\x1e{mark}"]
    return ["squeue", "-a", "-h", "-t", "all", "-O", ",".join(columns)]


def parse_queue(
    text: str, before: Mapping[str, JobRow], mark: str = ""
) -> tuple[dict[str, JobRow], int]:
    """The rows of `queue_command` by their text, and how many could not be read."""
    # After the last row nothing is left, or a line break.
    return read_rows((row for row in text.split(f"\x1f\x1e{mark}\n") if row.strip("\n")), before)


def read_rows(lines: Iterable[str], before: Mapping[str, JobRow]) -> tuple[dict[str, JobRow], int]:
    """Rows, each the values of `COLUMNS`, by their text, and how many could not be read.

    `before` is the last answer: a row that has not changed is taken from it.
    """
    rows: dict[str, JobRow] = {}
    bad = 0
    for line in lines:
        row = before.get(line) or _row(line)
        if row is not None:
            rows[line] = row
        else:
            bad += 1
    return rows, bad


def line_of(values: Iterable[object]) -> str:
    """Values of `COLUMNS` as a row of text; the last may hold anything."""
    return _UNIT.join(map(str, values))


def _row(line: str) -> JobRow | None:
    fields = line.split(_UNIT, len(COLUMNS) - 1)
    if len(fields) != len(COLUMNS) or not fields[0][:1].isdigit():
        return None
    job, state, reason, user, account, partition, qos, cpus, nodes, tres = fields[:10]
    submit, eligible, start, end, limit, priority, restarts, hosts, name = fields[10:]
    value, phase = _state(state)
    try:
        memory, gpus = _resources(tres)
        return JobRow(
            job_id=job,
            state=value,
            phase=phase,
            reason=_reason(reason) if phase == "pending" else "",
            user=user,
            account=account if account != "(null)" else "",
            partition=partition.partition(",")[0],
            qos=qos,
            cpus=int(cpus or 0),
            nodes=int(nodes.partition("-")[0] or 0),
            memory=memory,
            gpus=gpus,
            submit=_time(submit),
            eligible=_time(eligible),
            start=_time(start) if phase != "pending" else None,
            end=_time(end) if phase == "finished" else None,
            limit=_limit(limit),
            priority=int(priority or 0),
            restarts=int(restarts or 0),
            node_list=hosts,
            name=name,
            tasks=_tasks(job) if job.endswith("]") else 1,
        )
    except (ValueError, OverflowError):
        return None


# Thousands of rows say the same few things.
@functools.lru_cache(maxsize=1024)
def _state(text: str) -> tuple[str, str]:
    known = parse_state(text)
    return known.value, known.phase


_limit = functools.lru_cache(maxsize=1024)(clock_seconds)


def _time(text: str) -> int | None:
    return int(text) if text.isdigit() and text != "0" else None


@functools.lru_cache(maxsize=1024)
def _reason(text: str) -> str:
    """`ReqNodeNotAvail, UnavailableNodes:n[1-9]` as `ReqNodeNotAvail`."""
    found = re.match(r"\(?([A-Za-z_]+)", text)
    return found.group(1) if found and found.group(1) != "None" else ""


@functools.lru_cache(maxsize=1024)
def _tasks(job: str) -> int:
    """How many tasks an id stands for; `12_[0-9%2]` for ten."""
    found = re.match(r"[0-9]+_\[([0-9,:-]+)(\.\.\.)?(?:%[0-9]+)?\]\Z", job)
    if found is None:
        # An id we cannot read is better counted once than not at all.
        return 1
    # slurmrestd may cut a long list short: what is left of its last number says nothing.
    told = found[1].rpartition(",")[0] if found[2] else found[1]
    return len(expand_array_spec(told)) if told else 1


_SCALE = {"": 1 << 20, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40, "P": 1 << 50}


@functools.lru_cache(maxsize=4096)
def _resources(tres: str) -> tuple[int, int]:
    """Bytes of memory and number of GPUs of `cpu=1,mem=100M,gres/gpu=2`."""
    memory = gpus = typed = 0
    for part in tres.split(","):
        name, _, value = part.partition("=")
        if name == "mem":
            memory = memory_bytes(value)
        elif name == "gres/gpu" and value.isdigit():
            gpus = int(value)
        elif name.startswith("gres/gpu:") and value.isdigit():
            typed += int(value)
    # Where a type is counted, the sum of all types is, too; unless only types are accounted.
    return memory, gpus or typed


def memory_bytes(text: str) -> int:
    """`100M` or `1.50G` in bytes; a bare number counts MiB, and 0 stands for what is no size."""
    found = re.match(r"([0-9.]+)([KMGTP]?)\Z", text)
    return int(float(found.group(1)) * _SCALE[found.group(2)]) if found else 0
