"""How much of a node pods get: never less than they request, whatever their annotations say."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from slurm.bridge.names import PREFIX
from slurm.errors import SlurmError

_PART = re.compile(
    r"(?:gres/)?(?P<name>[A-Za-z0-9_.-]+)(?:[:=](?P<kind>[A-Za-z0-9_.-]+))??"
    r"(?:[:=](?P<count>[0-9]{1,9}))?"
)
# Slurm multiplies by such a letter.
_SCALED = re.compile(r"[0-9]+[A-Za-z]?")


# Slurm keeps them in 16 bits, of which the last values have meanings; of 65537 it makes 1.
_MOST_CPUS = 65_000


class Contradiction(SlurmError):
    """An annotation and the requests of a pod cannot both hold."""

    code = "SLURM-E803"


@dataclass(frozen=True)
class Needs:
    """What one pod asks for, in Slurm's units; None leaves it to the partition's defaults."""

    cpus: int | None
    memory: int | None
    gres: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class Gres:
    """One generic resource, with the type where one is named."""

    name: str
    kind: str
    count: int

    def __str__(self) -> str:
        words = ["gres/" + self.name, *([self.kind] if self.kind else []), str(self.count)]
        return ":".join(words)


def read_gres(text: str) -> list[Gres]:
    """Generic resources as `gpu:2` or `gpu:a100:2,shard:1`; `ValueError` where two speak of one."""
    found: list[Gres] = []
    for part in text.split(","):
        match = _PART.fullmatch(part)
        kind = (match["kind"] or "") if match else ""
        if match is None or match["name"] == "none" or _SCALED.fullmatch(kind):
            raise ValueError("use something like gpu:2 or gpu:a100:2")
        found.append(Gres(match["name"], kind, int(match["count"] or 1)))
    for one in found:
        kinds = [other.kind for other in found if same(one.name, other.name)]
        if len(set(kinds)) < len(kinds) or ("" in kinds and len(kinds) > 1):
            raise ValueError(f"{one.name} stands there more than once; name it once, or by types")
    return found


def same(one: str, other: str) -> bool:
    """Whether two names may be one resource to Slurm."""
    return one.lower() == other.lower()


def sizes_of(wants: Sequence[Needs], asked: Mapping[str, Any]) -> dict[str, Any]:
    """Slurm's fields for CPUs, memory and devices: the larger of requests and annotations.

    `asked` are the fields that annotations name. Raises `Contradiction` where there is no larger.
    """
    cpus = [w.cpus for w in wants if w.cpus]
    memory = [w.memory for w in wants if w.memory]
    if isinstance(there := asked.get("cpus_per_task"), int):
        cpus.append(there)
    if isinstance(box := asked.get("memory_per_node"), dict):
        memory.append(int(box["number"]))
    if cpus and max(cpus) > _MOST_CPUS:
        raise Contradiction(f"{max(cpus)} CPUs are more than Slurm can count; at most {_MOST_CPUS}")
    sizes: dict[str, Any] = {"cpus_per_task": max(cpus)} if cpus else {}
    if memory:
        sizes["memory_per_node"] = {"set": True, "number": max(memory)}
    text = asked.get("tres_per_node")
    gres = _both(wants, read_gres(text) if isinstance(text, str) else [])
    if gres:
        sizes["tres_per_node"] = ",".join(sorted(map(str, gres)))
    return sizes


def _both(wants: Sequence[Needs], asked: list[Gres]) -> list[Gres]:
    requested: dict[str, int] = {}
    for want in wants:
        for name, count in want.gres:
            requested[name] = max(count, requested.get(name, 0))
    found = [one for one in asked if not any(same(one.name, name) for name in requested)]
    for name, count in requested.items():
        named = [one for one in asked if same(one.name, name)]
        if sum(one.count for one in named) >= count:
            found += named
        elif len(named) > 1:
            words = ",".join(map(str, named))
            raise Contradiction(
                f"annotation {PREFIX}gres: {words} is fewer than the {count} {name} requested",
                hint=f"ask for at least {count} in the annotation, or name one type only",
            )
        else:
            found.append(replace(named[0], count=count) if named else Gres(name, "", count))
    return [one for one in found if one.count]
