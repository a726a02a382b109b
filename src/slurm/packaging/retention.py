"""What of the store on a cluster may go: what nothing has used for a while."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from slurm.api.store import KINDS, LEFT_OVER
from slurm.packaging.sdk import sdk_hash

if TYPE_CHECKING:
    from slurm.cluster import Cluster

#: What nothing has used for so many seconds goes, unless another time is said.
MONTH = 30 * 86400.0
#: What a death has left half done goes after a day.
DAY = 86400.0


@dataclass(frozen=True)
class Stored:
    """One thing in the store: an environment, a wheel, a snapshot or a copy of the SDK."""

    kind: str
    name: str
    #: Seconds since it was last used, on the cluster's own clock.
    idle: float
    size: int | None = None
    #: `ready`, `making`, `failed`, `unmade` or `left over`; empty for what is just there.
    state: str = ""
    label: str = ""
    python: str = ""
    #: Places of the wheels that an environment is made of.
    made_of: tuple[str, ...] = ()

    @property
    def place(self) -> str:
        """Its path below the base directory."""
        return f"{KINDS[self.kind]}/{self.name}"


def stored(found: Iterable[dict[str, Any]]) -> list[Stored]:
    """The rows of an agent's answer."""
    return [
        Stored(
            kind=str(row["kind"]),
            name=str(row["name"]),
            idle=float(row["idle"]),
            size=row.get("size"),
            state=str(row.get("state") or ""),
            label=str(row.get("label") or ""),
            python=str(row.get("python") or ""),
            made_of=tuple(filter(None, [row.get("wheel"), *(row.get("wheels") or ())])),
        )
        for row in found
    ]


def expired(
    items: Sequence[Stored], used: Collection[str], older: float = MONTH, own_sdk: str = ""
) -> list[Stored]:
    """What may go: not used by a queued run, not being made, and idle for longer than `older`."""
    going = [item for item in items if _may_go(item, used, older, own_sdk)]
    kept = {place for item in items if item not in going for place in item.made_of}
    return [
        item
        for item in going
        if item.kind != "wheel" or not any(p.startswith(item.place + "/") for p in kept)
    ]


def _may_go(item: Stored, used: Collection[str], older: float, own_sdk: str) -> bool:
    if item.state == LEFT_OVER:
        return item.idle > DAY
    if item.state == "making" or (item.kind == "sdk" and item.name == own_sdk):
        return False
    in_use = any(name == item.place or name.startswith(item.place + "/") for name in used)
    return not in_use and item.idle > older


def look(cluster: Cluster, sizes: bool = True) -> tuple[list[Stored], set[str]]:
    """What is stored on a cluster, and what of it queued runs need; one round trip."""
    found = cluster.backend.store_list(sizes)
    return stored(found["items"]), set(found["used"])


def sweep(cluster: Cluster, older: float = MONTH, dry_run: bool = False) -> list[Stored]:
    """Remove what may go from a cluster's store; what went, or with `dry_run` would go."""
    items, used = look(cluster)
    going = expired(items, used, older, sdk_hash())
    if going and not dry_run:
        cluster.backend.store_remove([item.place for item in going])
    return going
