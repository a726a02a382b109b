"""A race: one order, played by every library that can, in alternation, each beside ours."""

from __future__ import annotations

import dataclasses
import re
import statistics
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from benchmarks.figures import Row
from benchmarks.ground import Ground
from benchmarks.libraries import LIBRARIES, OURS, Library
from benchmarks.peer import PeerFailed, PeerLate

#: What an allocation may take to come up, beyond the time of an answer.
WARM_UP_S = 30.0


@dataclass(frozen=True)
class Race:
    """What is asked, how often, and how long one answer may take."""

    question: str
    order: str
    rounds: int = 1
    cap_s: float = 60.0
    unit: str = "s"
    #: The part of the answer that is compared, where it comes in parts.
    part: str = "total"
    size: int = 0
    aligned: bool = False
    keys: tuple[str, ...] = ()
    #: Played before the clock runs, so that an allocation is up and caches are full.
    warm_up: str = ""
    #: What ours plays where it has another word for the same.
    ours: str = ""
    #: For orders that look at the time themselves, what they need before it runs.
    set_up_s: float = 0.0
    #: Whether all play at the same time: for orders that mostly wait.
    together: bool = False
    #: Whether what was submitted is still in the queue afterwards.
    leaves_jobs: bool = False

    def order_of(self, library: Library) -> str:
        return self.ours if self.ours and library == OURS else self.order


@dataclass
class Answers:
    """What the libraries answered, as they gave it, and who was late."""

    race: Race
    found: dict[str, list[Any]]
    late: set[str]

    def rows(self, part: str = "", unit: str = "", question: str = "") -> list[Row]:
        """One row for each library, with its ratio to ours; another part on demand."""
        part, unit = part or self.race.part, unit or self.race.unit
        each = {key: self._values(key, part, unit) for key in self.found}
        base = each.get(OURS.key)
        return [
            Row(
                one.label,
                tuple(each[one.key]),
                unit,
                ratio=_ratio(each[one.key], base),
                question=question or self.race.question,
                library=one.key,
                size=self.race.size,
                late=one.key in self.late,
            )
            for one in LIBRARIES
            if each.get(one.key)
        ]

    def _values(self, key: str, part: str, unit: str) -> list[float]:
        scale = {"ms": 1000.0, "us": 1e6}.get(unit, 1.0)
        answers = self.found[key]
        if key in self.late:
            # Rounds before the late one would hide it.
            return [self.race.cap_s * scale] if part == self.race.part else []
        parts = [one.get(part) if isinstance(one, dict) else one for one in answers]
        return [one * scale for one in parts if one is not None]


def run(ground: Ground, race: Race) -> Answers:
    """Play the race; a library that fails or is late is left out from then on."""
    word = race.order.partition(" ")[0]
    late: set[str] = set()
    turns: dict[str, Callable[[], Any]] = {}
    for library in ground.able(word, race.keys):
        try:
            peer = ground.library(library)
            if word not in peer.facts["orders"]:
                continue
            if race.warm_up:
                peer.play(race.warm_up, race.cap_s + WARM_UP_S)
        except PeerFailed as error:
            ground.leave_out(library.label, race.order, one_line(error))
            ground.empty_queue(library.key)
            continue
        turns[library.key] = lambda library=library: _turn(ground, race, library, late)  # type: ignore[misc]
    if race.together:
        found = _together(race.rounds, turns)
    else:
        found = ground.alternate(race.rounds, turns, race.aligned)
    return Answers(race, {key: [v for v in values if v] for key, values in found.items()}, late)


def _together(rounds: int, turns: dict[str, Callable[[], Any]]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {key: [] for key in turns}
    with ThreadPoolExecutor(max(1, len(turns))) as threads:
        for _ in range(rounds):
            playing = {key: threads.submit(turn) for key, turn in turns.items()}
            for key, answer in playing.items():
                found[key].append(answer.result() if not answer.exception() else None)
    return found


def _turn(ground: Ground, race: Race, library: Library, late: set[str]) -> Any:
    if library.key in late:
        return None
    before = ground.cost_so_far(library.key)
    try:
        peer = ground.library(library)
        answer = peer.play(race.order_of(library), race.cap_s + race.set_up_s)
        if isinstance(answer, dict) and answer.get("late"):
            peer.close(at_once=True)
            raise PeerLate(f"{library.label} told nothing within {race.cap_s} s")
    except PeerLate:
        late.add(library.key)
        ground.empty_queue(library.key)
        return None
    except PeerFailed as error:
        ground.leave_out(library.label, race.order, one_line(error))
        raise
    if race.leaves_jobs:
        ground.empty_queue(library.key)
    cost = {what: now - before[what] for what, now in ground.cost_so_far(library.key).items()}
    return {**(answer if isinstance(answer, dict) else {"total": answer}), **cost}


def bettered(rows: list[Row], limit: float, of: str) -> Row:
    """How many times another library's median ours is, as a row with a target."""
    medians = {row.library: row.median for row in rows}
    name = f"{OURS.label}, as a multiple of {of}"
    return Row(name, (medians[OURS.key] / medians[of],), "x", limit=limit)


def renamed(row: Row, name: str) -> Row:
    """The same figures under another name, outside of any race."""
    return dataclasses.replace(row, name=name, question="", library="", ratio=None)


def named(row: Row, prefix: str) -> Row:
    """The same figures with words before the name."""
    return dataclasses.replace(row, name=prefix + row.name)


def held_to(row: Row, limit: float) -> Row:
    """The same figures with a target for the median."""
    return dataclasses.replace(row, limit=limit, limit_of="median")


def _ratio(values: list[float], base: list[float] | None) -> float | None:
    if not values or not base or not statistics.median(base):
        return None
    return statistics.median(values) / statistics.median(base)


def one_line(error: Exception) -> str:
    """What was said, without the places of this run."""
    return re.sub(r"/\S+/", "", " ".join(str(error).split()))[:200]
