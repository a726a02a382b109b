"""Evidence: all that files and the scheduler have told about one call of one job."""

from __future__ import annotations

from dataclasses import dataclass, field

from slurm.api.slurm_commands import JobStatus
from slurm.model.states import JobState, parse_state
from slurm.rundir import ERROR, EXIT, VALUE, Event, Record


@dataclass
class Evidence:
    """What is known about one call of one job; it grows as files and answers come in."""

    ranks: int = 1
    requeue: bool = False
    #: Whether the value is the list of all ranks' values.
    every_rank: bool = False
    records: list[Record] = field(default_factory=list)
    begins: dict[int, Event] = field(default_factory=dict)
    starts: dict[int, Event] = field(default_factory=dict)
    noted: set[int] = field(default_factory=set)
    exits: dict[int, Event] = field(default_factory=dict)
    status: JobStatus | None = None
    #: Seconds since the scheduler first answered that it does not know the job.
    unknown_for: float | None = None
    #: Seconds since the scheduler first said that the job is over.
    over_for: float | None = None
    #: How many answers in a row said so.
    over_count: int = 0
    #: When the newest exit event was read, by this client's own clock; and seconds since then.
    exit_at: float | None = None
    exit_for: float | None = None
    #: Seconds since the scheduler last answered, while it does not.
    unreachable_for: float | None = None

    def add(self, event: Event) -> None:
        """Take in one event of this call."""
        attempt = event.number("attempt")
        if event.kind == "begin":
            self.begins[attempt] = event
        elif event.kind == "start":
            self.starts.setdefault(attempt, event)
        elif event.kind == "record":
            self.noted.add(attempt)
        elif event.kind == "exit":
            self.exits[attempt] = event

    @property
    def state(self) -> JobState | None:
        """The scheduler's last word, None when it was not asked or does not know the job."""
        return None if self.status is None else parse_state(self.status.state)

    @property
    def attempt(self) -> int:
        """The newest attempt that left a trace."""
        traces = [*self.begins, *self.exits, *(r.attempt for r in self.records)]
        return max(traces, default=0)

    def value(self) -> Record | None:
        """Rank 0's value; the first one is final."""
        return next((r for r in self.records if r.kind == VALUE and r.rank == 0), None)

    @property
    def complete(self) -> bool:
        """Whether every rank whose value is wanted has left one: files of nodes come one by one."""
        first = self.value()
        if first is None or not self.every_rank:
            return first is not None
        there = {record.rank for record in self.records if record.kind == VALUE}
        return len(there) >= int(first.header.get("ranks", 1))

    def trouble(self) -> Record | None:
        """The failure of the lowest rank that has one, of the newest attempt."""
        if not self.records:
            return None  # as of most of ten thousand open calls, which are judged after each poll
        newest = self.attempt
        found = [r for r in self.records if r.kind in (ERROR, EXIT) and r.attempt == newest]
        # A rank that was stopped because another failed has nothing of its own to say.
        return min(found, key=lambda r: (bool(r.header.get("stopped")), r.rank), default=None)

    def last_exit(self) -> Event | None:
        """The exit event of the newest attempt."""
        return self.exits.get(self.attempt) if self.exits else None

    @property
    def ranks_oom(self) -> bool:
        """Whether the script heard that a rank was killed for memory."""
        event = self.last_exit()
        return event is not None and "oom" in event.fields
