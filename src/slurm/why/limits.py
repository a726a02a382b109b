"""Which limit a reason code such as QOSGrpCpuLimit speaks of, and how far a job is from it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slurm.api.slurm_site import clock_seconds
from slurm.model.units import format_duration, format_memory
from slurm.why.model import Limit

_KINDS = {
    "cpu": "cpu", "mem": "mem", "memory": "mem", "node": "node", "gres": "gres",
    "license": "license", "bb": "bb", "billing": "billing", "energy": "energy",
    "unknown": "",
}  # fmt: skip
_WORDS = {
    "cpu": "CPUs", "mem": "memory", "node": "nodes", "gres": "GPUs or other devices",
    "license": "licences", "bb": "burst buffer space", "billing": "billing units",
    "energy": "energy", "": "a resource",
}  # fmt: skip
_TRES = "(Cpu|CPU|Memory|Mem|Node|GRES|License|BB|Billing|Energy|Unknown)"
_GRAMMAR = (
    (
        rf"Grp{_TRES}RunMin(?:ute)?s",
        "GrpTRESRunMins",
        "minutes that its running jobs may still use",
    ),
    (rf"Grp{_TRES}Min(?:ute)?s", "GrpTRESMins", "minutes in all"),
    (rf"Grp{_TRES}", "GrpTRES", "at the same time"),
    (rf"Max{_TRES}RunMinsPerUser", "MaxTRESRunMinsPU", "minutes of one user's running jobs"),
    (rf"Max{_TRES}RunMinsPerAccount", "MaxTRESRunMinsPA", "minutes of one account's running jobs"),
    (rf"Max{_TRES}Min(?:ute)?sPerJob", "MaxTRESMinsPJ", "minutes for one job"),
    (rf"Max{_TRES}PerJob", "MaxTRESPJ", "for one job"),
    (rf"Max{_TRES}PerNode", "MaxTRESPN", "for one job on one node"),
    (rf"Max{_TRES}PerUser", "MaxTRESPU", "for one user at the same time"),
    (rf"Max{_TRES}PerAccount", "MaxTRESPA", "for one account at the same time"),
    (rf"Min{_TRES}", "MinTRESPJ", "for one job at least"),
    ("GrpSubmitJobs", "GrpSubmitJobs", "jobs in the queue"),
    ("GrpJobs", "GrpJobs", "jobs at the same time"),
    ("GrpWall", "GrpWall", "minutes of wall time in all"),
    ("MaxSubmitJobs?PerUser", "MaxSubmitJobsPU", "jobs of one user in the queue"),
    ("MaxSubmitJobs?PerAccount", "MaxSubmitJobsPA", "jobs of one account in the queue"),
    ("MaxSubmitJob", "MaxSubmitJobs", "jobs in the queue"),
    ("MaxJobsPerUser", "MaxJobsPU", "jobs of one user at the same time"),
    ("MaxJobsPerAccount", "MaxJobsPA", "jobs of one account at the same time"),
    ("MaxJobs", "MaxJobs", "jobs at the same time"),
    ("MaxWallDurationPerJob", "MaxWallPJ", "wall time for one job"),
)


@dataclass(frozen=True)
class LimitKind:
    """What a reason code names: whose limit it is, which, and of what."""

    #: `qos`, `assoc`, or "" where the code does not say.
    owner: str
    key: str
    #: `cpu`, `mem`, ...; None for limits that count jobs or time, "" for any resource.
    tres: str | None
    words: str

    @property
    def per_job(self) -> bool:
        """Whether each job is measured alone, so that no end of another one helps."""
        return self.key.endswith(("PJ", "PN"))


def limit_kind(reason: str) -> LimitKind | None:
    """What a reason code names; None for codes that speak of no limit."""
    found = re.match(r"(QOS|Assoc)?((?:Grp|Max|Min)\w+)", reason)
    if found is None:
        return None
    owner = {"QOS": "qos", "Assoc": "assoc"}.get(found.group(1) or "", "")
    for pattern, key, words in _GRAMMAR:
        fits = re.match(pattern + r"(Limit|NotSatisfied)?\Z", found.group(2))
        if fits:
            tres = None
            if pattern.find(_TRES) >= 0:
                tres = _KINDS[fits.group(1).lower()]
                words = f"{_WORDS[tres]} {words}"
            return LimitKind(owner or "qos", key, tres, words)
    return None


def met_limits(kind: LimitKind, facts: Mapping[str, Any]) -> list[Limit]:
    """The limits of that kind that the job meets, the one that is farthest away first."""
    job = facts["job"]
    names = {job.get("QOS", ""), facts.get("partition", {}).get("QoS", "")}
    asked = tres_of(job)
    found = []
    for record in facts.get("limits", ()):
        if record["kind"] != kind.owner or (kind.owner == "qos" and record["name"] not in names):
            continue
        for name, (value, used) in record["limits"].items():
            key, _, tres = name.partition("/")
            if key == kind.key and _same(tres, kind.tres):
                one = _measured(kind, record, tres, (value, used), (job, asked))
                if one is not None:
                    found.append(one)
    return [limit for _, limit in sorted(found, key=lambda pair: -pair[0])]


def _same(tres: str, wanted: str | None) -> bool:
    return not wanted or tres == wanted or tres.startswith(wanted + "/")


def _measured(
    kind: LimitKind,
    record: Mapping[str, Any],
    tres: str,
    told: tuple[str, str | None],
    job: tuple[Mapping[str, str], Mapping[str, float]],
) -> tuple[float, Limit] | None:
    """How far the job is from one limit; None where it is not met."""
    value, used = _number(told[0]), _number(told[1] or "0")
    asked = _asked(kind, tres, *job)
    if value is None or used is None:
        return None
    least = kind.key.startswith("Min")
    over = value - asked if least else used + asked - value
    if over <= 0 and not kind.key.endswith("Mins"):
        return None
    unit = _unit(kind, tres)
    own = f"user {record['user']}" if record["user"] else f"account {record['name']}"
    whose = f"QOS {record['name']}" if record["kind"] == "qos" else own
    name = f"{kind.key}{'=' + tres if tres else ''} of {whose}"
    return over, Limit(
        name=name,
        value=shown(value, unit),
        used="" if kind.per_job or least else shown(used, unit),
        asked=shown(asked, unit),
        distance=_distance(kind, shown(abs(over), unit), least, asked > value),
    )


def _distance(kind: LimitKind, amount: str, least: bool, never: bool) -> str:
    if least:
        return f"{amount} too few"
    if kind.per_job or never:
        return f"{amount} too much"
    return f"{amount} {'has' if amount.startswith('1 ') else 'have'} to become free"


def _asked(
    kind: LimitKind, tres: str, job: Mapping[str, str], amounts: Mapping[str, float]
) -> float:
    minutes = (clock_seconds(job.get("TimeLimit", "")) or 0) / 60
    if kind.key in ("MaxWallPJ", "GrpWall"):
        return minutes
    if kind.tres is None:
        return 1
    amount = amounts.get(tres, 0)
    if kind.key == "MaxTRESPN":
        nodes = re.match(r"\d+", job.get("NumNodes", "1"))
        return amount / max(1, int(nodes.group()) if nodes else 1)
    return amount * minutes if "Mins" in kind.key else amount


def tres_of(job: Mapping[str, str]) -> dict[str, float]:
    """What a job asks for: `cpu=2,mem=50M` as numbers, memory in MiB."""
    text = job.get("ReqTRES") or job.get("TRES") or ""
    found: dict[str, float] = {}
    for part in text.split(","):
        name, equals, amount = part.rpartition("=")
        number = _number(amount)
        if equals and number is not None:
            found[name] = number
    return found


_SCALE = {"": 1.0, "K": 1 / 1024, "M": 1.0, "G": 1024.0, "T": 1024.0**2, "P": 1024.0**3}


def _number(text: str) -> float | None:
    """`50M` as MiB, `33.5` as it is; clocks as minutes; None for what is no number."""
    found = re.match(r"([0-9.]+)([KMGTP]?)\Z", text)
    if found is not None:
        return float(found.group(1)) * _SCALE[found.group(2)]
    seconds = clock_seconds(text) if ":" in text else None
    return None if seconds is None else seconds / 60


def _unit(kind: LimitKind, tres: str) -> str:
    if kind.key in ("MaxWallPJ", "GrpWall"):
        return "minutes"
    name = tres.partition("/")[2] or tres or "job"
    return f"{name}-minutes" if "Mins" in kind.key else name


def shown(amount: float, unit: str) -> str:
    """An amount with its unit, for people."""
    if unit == "mem":
        return format_memory(max(1, round(amount)))
    if unit == "minutes":
        return format_duration(round(amount * 60))
    number = f"{amount:.1f}".rstrip("0").rstrip(".")
    plural = "s" if amount != 1 and unit in ("cpu", "node", "job", "gpu") else ""
    return f"{number} {unit.upper() if unit in ('cpu', 'gpu') else unit}{plural}"


def joined(limits: Sequence[Limit]) -> str:
    """The first limit in a sentence."""
    if not limits:
        return ""
    first = limits[0]
    used = f"{first.used} of {first.value} in use" if first.used else f"it is {first.value}"
    return f"{first.name}: {used}, this job asks for {first.asked}: {first.distance}"
