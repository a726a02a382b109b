"""What is shared by rule: fair shares, licences, reservations, and how far accounting is behind."""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from slurm.model.states import parse_state
from slurm.monitor.queue import JobRow


@dataclass(frozen=True)
class Share:
    """The share of an account, or of a user in it (then `user` is not "")."""

    account: str
    user: str
    #: The part of its parent's it may use, 0 to 1; None where sshare gives none.
    share: float | None
    #: Raw use in (weighted) seconds, with decay.
    usage: float
    #: The part of all use, 0 to 1.
    used: float | None
    #: 0 (used far more than its share) to 1; only users have one under Fair Tree.
    factor: float | None


@dataclass(frozen=True)
class Licence:
    """A kind of licence that jobs can ask for."""

    name: str
    total: int
    used: int


@dataclass(frozen=True)
class Reservation:
    """Nodes that are set aside for a time."""

    name: str
    state: str
    nodes: int
    #: Epoch seconds.
    start: int
    end: int


class Sharing(NamedTuple):
    """All of it; None stands for what nobody told."""

    shares: tuple[Share, ...] | None = None
    licences: tuple[Licence, ...] | None = None
    reservations: tuple[Reservation, ...] | None = None
    #: Seconds that accounting is behind.
    accounting_lag: float | None = None


def shares_command() -> list[str]:
    """Ask for all shares."""
    columns = "Account,User,NormShares,RawUsage,EffectvUsage,FairShare"
    return ["sshare", "-a", "-P", "-n", "-o", columns]


def parse_shares(text: str) -> list[Share]:
    """The rows of `shares_command`; no row can be read of a cluster without fair share."""
    rows = []
    for line in text.splitlines():
        fields = [field.strip() for field in line.split("|")]
        if len(fields) == 6 and fields[0]:
            account, user, share, usage, used, factor = fields
            numbers = (_number(share), _number(usage) or 0.0, _number(used), _number(factor))
            rows.append(Share(account, user, *numbers))
    return rows


def licences_command() -> list[str]:
    """Ask for all licences."""
    return ["scontrol", "show", "licenses", "-o"]


def parse_licences(text: str) -> list[Licence]:
    """The rows of `licences_command`."""
    rows = []
    for line in text.splitlines():
        values = dict(re.findall(r"(\w+)=(\S*)", line))
        if {"LicenseName", "Total", "Used"} <= values.keys():
            counts = (_number(values["Total"]), _number(values["Used"]))
            rows.append(Licence(values["LicenseName"], *(int(n or 0) for n in counts)))
    return rows


def reservations_command() -> list[str]:
    """Ask for all reservations."""
    return ["scontrol", "show", "reservations", "-o"]


def parse_reservations(text: str) -> list[Reservation]:
    """The rows of `reservations_command`."""
    rows = []
    for line in text.splitlines():
        values = dict(re.findall(r"(\w+)=(\S*)", line))
        start, end = _number(values.get("StartTime", "")), _number(values.get("EndTime", ""))
        if "ReservationName" in values and start is not None and end is not None:
            nodes = int(_number(values.get("NodeCnt", "")) or 0)
            state = values.get("State", "").lower()
            name = values["ReservationName"]
            rows.append(Reservation(name, state, nodes, int(start), int(end)))
    return rows


def accounting_command(job_ids: Iterable[str], since: int) -> list[str]:
    """Ask accounting whether it knows that these jobs are over."""
    begin = f"uts{max(1000000, since)}"
    columns = ["-X", "-n", "-P", "--starttime", begin, "-o", "JobID,State"]
    return ["sacct", "-a", *columns, "-j", ",".join(job_ids)]


def accounting_lag(text: str, ended: dict[str, int], now: int) -> float:
    """For how long accounting has not been told of an end; `ended` is when jobs were over."""
    rows = (line.split("|") for line in text.splitlines())
    told = {row[0] for row in rows if len(row) == 2 and parse_state(row[1]).phase == "finished"}
    return float(max((now - end for job, end in ended.items() if job not in told), default=0))


def last_ended(rows: Iterable[JobRow]) -> dict[str, int]:
    """The few jobs that ended last, and when: those that accounting is asked for."""
    over = [(row.end, row.job_id) for row in rows if row.end is not None]
    return {job: end for end, job in heapq.nlargest(20, over)}


def _number(text: str) -> float | None:
    # More digits than anything has: no number.
    return float(text) if re.match(r"[0-9]{1,30}(\.[0-9]+)?\Z", text) else None
