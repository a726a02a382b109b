"""What an answer to "why" consists of."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated


@dataclass(frozen=True)
class Limit:
    """A limit that a job meets, in words: value, use and distance are texts with their units."""

    name: Annotated[str, "Slurm's name of the limit, and whose it is."]
    value: Annotated[str, "The limit."]
    used: Annotated[str, "How much of it is used now; empty: it counts for each job alone."]
    asked: Annotated[str, "What this job asks for."]
    distance: Annotated[str, "How much has to become free, or how much is asked for too much."]


@dataclass(frozen=True)
class Fix:
    """One thing that helps: the exact command, and what it does."""

    command: Annotated[str, "What to type; empty where no command helps."]
    effect: Annotated[str, "What that does."]


@dataclass(frozen=True)
class Why:
    """Why a job waits, or how it ended."""

    reason: Annotated[str, "Slurm's reason code, or the kind of failure."]
    text: Annotated[str, "What that means for this job."]
    waits: Annotated[bool, "Whether it starts by itself sooner or later, without anybody's help."]
    limits: Annotated[list[Limit], "The limits that it meets."] = field(default_factory=list)
    position: Annotated[int | None, "Its place among all that waits in the partition."] = None
    ahead: Annotated[int | None, "How many jobs of higher priority wait there."] = None
    starts: Annotated[float | None, "When Slurm expects it to start, epoch seconds."] = None
    evidence: Annotated[list[str], "What was seen: nodes, licences, lines of the log."] = field(
        default_factory=list
    )
    fixes: Annotated[list[Fix], "What helps, the best first."] = field(default_factory=list)
