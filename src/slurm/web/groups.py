"""The queue as people read it: arrays folded, searched, filtered and sorted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from slurm.model.states import parse_state
from slurm.monitor.queue import JobRow
from slurm.monitor.snapshot import Snapshot

#: Lines of one page.
PAGE = 100
_ORDER = {"active": 0, "pending": 1, "unknown": 2, "finished": 3}


@dataclass(frozen=True)
class Group:
    """A job, or an array with all of its tasks that are known."""

    base: str
    rows: tuple[JobRow, ...]
    #: Tasks that ended since we look and have left the queue, by state.
    ended: Mapping[str, int]

    @property
    def is_array(self) -> bool:
        """Whether it is folded."""
        return len(self.rows) > 1 or "_" in self.rows[0].job_id

    @cached_property
    def row(self) -> JobRow:
        """The task that says most: one that runs, else one that waits."""
        return min(self.rows, key=lambda row: _ORDER[row.phase])

    @cached_property
    def counts(self) -> Counter[str]:
        """How many tasks are `active`, `pending`, `good` and `bad`."""
        found = Counter[str]()
        for row in self.rows:
            if row.phase != "finished":
                found[row.phase] += row.tasks
        ended = Counter(self.ended)
        here = Counter[str]()
        for row in self.rows:
            if row.phase == "finished":
                here[row.state] += row.tasks
        # What ended while we looked is in both for some minutes.
        for state, count in (ended | here).items():
            found["good" if parse_state(state).succeeded else "bad"] += count
        return found

    @property
    def state(self) -> str:
        """The state of the whole."""
        return self.row.state

    @property
    def tasks(self) -> int:
        """How many tasks there are, as far as anybody knows."""
        return sum(self.counts.values())

    @cached_property
    def words(self) -> str:
        """What a search looks at."""
        seen = {
            word.lower()
            for row in self.rows[:50]
            for word in (
                *(row.job_id, row.name, row.user, row.account, row.partition, row.qos),
                *(row.state, row.reason, row.node_list),
            )
        }
        return "\n".join(seen)


def grouped(
    rows: Iterable[JobRow], ended: Callable[[str], Mapping[str, int]], before: Mapping[str, Group]
) -> dict[str, Group]:
    """The jobs by id, those that run first; a group that has not changed is taken from `before`."""
    members: dict[str, list[JobRow]] = {}
    for row in rows:
        members.setdefault(row.base, []).append(row)
    found = {}
    for base, those in members.items():
        is_array = len(those) > 1 or "_" in those[0].job_id
        gone = ended(base) if is_array else {}
        last = before.get(base)
        same = last is not None and last.rows == tuple(those) and last.ended == gone
        found[base] = last if same and last else Group(base, tuple(those), gone)
    return dict(sorted(found.items(), key=lambda item: _place(item[1])))


def _place(group: Group) -> tuple[int, int, int]:
    """What runs first, the newest of it first; then what waits, the first in line first."""
    row = group.row
    number = int(group.base) if group.base.isdigit() else 0
    first = {"active": -(row.start or 0), "pending": -row.priority, "finished": -(row.end or 0)}
    return _ORDER[row.phase], first.get(row.phase, 0), -number


@dataclass(frozen=True)
class Filter:
    """What somebody wants to see of the queue; all empty: everything."""

    q: str = ""
    user: str = ""
    partition: str = ""
    account: str = ""
    state: str = ""
    sort: str = ""
    page: int = 1

    @classmethod
    def of(cls, query: Mapping[str, str]) -> Filter:
        """Out of the query of an address; what cannot be read counts as not said."""
        page = query.get("page", "1")
        names = ("q", "user", "partition", "account", "state", "sort")
        texts = {name: query.get(name, "")[:200].strip() for name in names}
        return cls(**texts, page=max(1, int(page)) if page.isdecimal() and len(page) < 6 else 1)

    def query(self, **changes: Any) -> dict[str, object]:
        """The query that asks for the same but for the changes."""
        mine: dict[str, object] = {**self.__dict__, "page": "", **changes}
        return {key: value for key, value in mine.items() if value}

    def takes(self, group: Group) -> bool:
        """Whether a group is wanted."""
        row = group.row
        plain = (
            (not self.user or row.user == self.user)
            and (not self.partition or row.partition == self.partition)
            and (not self.account or row.account == self.account)
        )
        return plain and self._in_state(group) and self._found(group)

    def _in_state(self, group: Group) -> bool:
        if not self.state:
            return True
        if self.state in ("active", "pending"):
            return bool(group.counts[self.state])
        return bool(group.counts["good" if self.state == "done" else "bad"])

    def _found(self, group: Group) -> bool:
        return all(word in group.words for word in self.q.lower().split())


#: What can be sorted by -> how, and whether the largest comes first.
SORTS: dict[str, tuple[Callable[[Group], Any], bool]] = {
    "job": (lambda g: int(g.base) if g.base.isdigit() else 0, True),
    "name": (lambda g: g.row.name.lower(), False),
    "user": (lambda g: g.row.user, False),
    "partition": (lambda g: g.row.partition, False),
    "cpus": (lambda g: g.row.cpus * g.tasks, True),
    "time": (lambda g: g.row.start or g.row.submit or 0, False),
}


def chosen(groups: Iterable[Group], wanted: Filter) -> list[Group]:
    """The groups that are wanted, in the order that is wanted."""
    found = [group for group in groups if wanted.takes(group)]
    if wanted.sort in SORTS:
        key, largest = SORTS[wanted.sort]
        found.sort(key=key, reverse=largest)
    return found


def totals(snapshot: Snapshot) -> Counter[str]:
    """How many tasks run, wait, or ended well or badly in the last minutes."""
    found = Counter[str]()
    for row in snapshot.rows.values():
        name = row.phase
        if name == "finished":
            name = "good" if parse_state(row.state).succeeded else "bad"
        found[name] += row.tasks
    return found


def names(groups: Iterable[Group], of: Callable[[JobRow], str], most: int = 200) -> Sequence[str]:
    """The names that a filter offers, the most frequent first."""
    counts = Counter(of(group.row) for group in groups)
    return [name for name, _ in counts.most_common(most) if name not in ("", "(null)")]
