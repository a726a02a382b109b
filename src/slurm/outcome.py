"""The truth about a job: what its records, its exit event and the scheduler say together.

`judge` reads one table. Its rows are tried in order; the first that fits is the answer. A row
either settles the job or says what is still needed, so no combination is left to chance.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from enum import Enum

from slurm.api.slurm_commands import UNANSWERED
from slurm.evidence import Evidence
from slurm.model.states import JobState
from slurm.rundir import EXIT, EXIT_NOT_WRITTEN, Event

#: How long a directory is read anew for a record that should be there (network file systems lag).
RESULT_GRACE = 60.0
#: The same where the scheduler already says that the job failed.
FAILURE_GRACE = 5.0
#: The same where it says that the node is lost: only long enough to read the directory once more.
NODE_GRACE = 1.0
#: A job whose script has ended, and which the scheduler still calls running after this, has a
#: scheduler that missed its end (seen after a restart of slurmd): the files decide.
STALE = 30.0


#: The script's exit code where a controller that had forgotten the job starts it a second time.
EXIT_RAN_BEFORE = 75


class Verdict(Enum):
    """What a row of the table says."""

    VALUE = "the value is there"
    RAISED = "the function raised"
    EXITED = "the function ended the interpreter"
    FAILED = "the scheduler says how it ended"
    OUT_OF_MEMORY = "the kernel killed a process of the job"
    RESULT_LOST = "completed, and no record"
    JOB_LOST = "unknown to the scheduler, and no record"
    NOT_WRITTEN = "the result could not be written"
    ENDED = "ended, and the scheduler cannot say why"
    UNTRUSTED = "the run directory is not ours alone"
    ASK = "the scheduler has to be asked now"
    WAIT = "not over"

    @property
    def settled(self) -> bool:
        """Whether the job is over."""
        return self not in (Verdict.ASK, Verdict.WAIT)


# ---- how the table looks at the evidence --------------------------------------------------------


def _record(seen: Evidence) -> str:
    if seen.ranks > 1 and seen.trouble() is not None:
        return "error"
    if seen.value() is not None:
        return "value" if seen.complete else "some"
    return "none" if seen.trouble() is None else "error"


def _exit(seen: Evidence) -> str:
    found = seen.value() or seen.trouble()
    event = seen.last_exit() if found is None else seen.exits.get(found.attempt)
    if event is None and found is not None:
        # A later attempt found the value and ended without running.
        event = seen.last_exit()
    if found is None and event is not None and _of_an_earlier_attempt(event, seen):
        event = None
    if event is None:
        return "not-written" if found is None and _scheduler_saw_not_written(seen) else "none"
    code = event.number("code", -1)
    if found is None:
        return "not-written" if code == EXIT_NOT_WRITTEN else "alone"
    good = code == 0
    return "agrees" if good == (_record(seen) in ("value", "some")) else "disagrees"


def _of_an_earlier_attempt(event: Event, seen: Evidence) -> bool:
    """The scheduler speaks of the end of a later attempt, of which nothing was read yet."""
    over = seen.state is not None and seen.state.phase == "finished"
    return over and seen.status is not None and seen.status.restarts > event.number("attempt")


def _scheduler_saw_not_written(seen: Evidence) -> bool:
    """A full disk takes the exit event, too; the exit code still reaches the scheduler."""
    return seen.status is not None and seen.status.exit_code == EXIT_NOT_WRITTEN


def _scheduler(seen: Evidence) -> str:
    if seen.unknown_for is not None:
        return "unknown"
    state = seen.state
    if state is None or seen.status is None:
        return "unasked"
    if seen.status.state == UNANSWERED:
        # The controller has forgotten the job: nothing of it runs, and files decide if they can.
        return "unknown" if seen.last_exit() is not None else "waiting"
    if state.phase != "finished":
        return "waiting"
    if state.may_requeue and seen.requeue and seen.over_count < 2:
        return "waiting"
    return "completed" if state.succeeded else "failed"


def _again(seen: Evidence) -> bool:
    """Whether the job goes on after its last exit event: it is in the queue, or runs, anew."""
    event, status, state = seen.last_exit(), seen.status, seen.state
    if event is None or status is None or state is None:
        return False
    return state.phase == "pending" or status.restarts > event.number("attempt")


def _waited(seen: Evidence, grace: float) -> bool:
    if seen.unknown_for is None and seen.status is not None and seen.status.state == UNANSWERED:
        return True
    return max(seen.over_for or 0.0, seen.unknown_for or 0.0) >= grace


def _long(seen: Evidence) -> bool:
    """A record that should be there had its time to appear."""
    return _waited(seen, RESULT_GRACE)


def _shortly(seen: Evidence) -> bool:
    """The same where no record is expected."""
    return _waited(seen, FAILURE_GRACE)


def _never_ran(seen: Evidence) -> bool:
    """It got no node, so there is no record to wait for."""
    return seen.status is not None and not seen.status.nodes


def _node_lost(seen: Evidence) -> bool:
    """Nothing more will come from there."""
    return seen.state in (JobState.NODE_FAIL, JobState.BOOT_FAIL) and _waited(seen, NODE_GRACE)


def _ran_before(seen: Evidence) -> bool:
    """Slurm forgot the job and started it anew; the first one may still bring its result."""
    return seen.status is not None and seen.status.exit_code == EXIT_RAN_BEFORE


def _ran_before_long_ago(seen: Evidence) -> bool:
    return _ran_before(seen) and _long(seen)


def _plain_failure(seen: Evidence) -> bool:
    """The script ended by itself with an error: nothing that a requeue could follow."""
    event = seen.last_exit()
    return (
        (seen.unreachable_for or 0.0) >= RESULT_GRACE
        and event is not None
        and event.number("code") != 0
        and event.fields.get("signal") == "0"
    )


def _unrecorded(seen: Evidence) -> bool:
    """The node itself says that no record was written: the note and the exit lie in one file."""
    return seen.attempt not in seen.noted


def _stale(seen: Evidence) -> bool:
    """The scheduler calls running what ended long ago."""
    return (
        (seen.exit_for or 0.0) >= STALE
        and seen.state is not None
        and seen.state.phase == "active"
        and not _again(seen)
    )


def _stale_exit(seen: Evidence) -> bool:
    return _stale(seen) and _left_by_itself(seen)


def _stale_end(seen: Evidence) -> bool:
    return _stale(seen) and _unrecorded(seen)


def _left_by_itself(seen: Evidence) -> bool:
    """Exit code 0 and nothing recorded: the function ended the interpreter."""
    event = seen.last_exit()
    return _unrecorded(seen) and event is not None and event.number("code", -1) == 0


def _stopped_from_outside(seen: Evidence) -> bool:
    """The script was told to end, by a scheduler that does not know the job (any more)."""
    event = seen.last_exit()
    stopped = event is not None and event.fields.get("signal") == "TERM"
    return stopped and _shortly(seen)


def _oom(seen: Evidence) -> bool:
    found = seen.value() or seen.trouble()
    return seen.ranks_oom or (found is not None and bool(found.header.get("oom")))


def _exited(seen: Evidence) -> bool:
    found = seen.trouble()
    return found is not None and found.kind == EXIT


def _told_to_end(seen: Evidence) -> bool:
    """It raised because it was told to end, and it may be requeued: only the scheduler knows."""
    found = seen.trouble()
    stopped = found is not None and bool(found.header.get("stopped"))
    return seen.requeue and stopped and not _stale(seen)


def _told_to_go_on(seen: Evidence) -> bool:
    return _told_to_end(seen) and _again(seen)


def _always(seen: Evidence) -> bool:
    return True


_ANY = "*"

# record, exit event, scheduler, further condition, verdict
_TABLE: list[tuple[str, str, str, Callable[[Evidence], bool], Verdict]] = [
    ("value", "agrees", _ANY, _oom, Verdict.OUT_OF_MEMORY),
    ("value", "agrees", _ANY, _always, Verdict.VALUE),
    # What a function raises while its job is requeued or preempted is not its outcome.
    ("error", "agrees", "unasked", _told_to_end, Verdict.ASK),
    ("error", "agrees", "waiting", _told_to_go_on, Verdict.WAIT),
    ("error", "agrees", "waiting", _told_to_end, Verdict.ASK),
    ("error", "agrees", _ANY, _oom, Verdict.OUT_OF_MEMORY),
    ("error", "agrees", _ANY, _exited, Verdict.EXITED),
    ("error", "agrees", _ANY, _always, Verdict.RAISED),
    # A value whose process died on its way out (a crash at exit, a cancel, a lost node) counts;
    # with several ranks the others may be what failed, and the scheduler knows.
    ("value", "disagrees", _ANY, _oom, Verdict.OUT_OF_MEMORY),
    ("value", "disagrees", "unasked", _always, Verdict.ASK),
    ("value", "disagrees", "waiting", lambda seen: _stale(seen) and seen.ranks == 1, Verdict.VALUE),
    ("value", _ANY, "waiting", _always, Verdict.WAIT),
    ("value", _ANY, "failed", lambda seen: seen.ranks > 1, Verdict.FAILED),
    ("value", _ANY, "unasked", _always, Verdict.WAIT),
    ("value", _ANY, _ANY, _oom, Verdict.OUT_OF_MEMORY),
    ("value", _ANY, _ANY, _always, Verdict.VALUE),
    # Values of some ranks, where those of all are wanted: the others come, or are lost.
    ("some", _ANY, _ANY, _oom, Verdict.OUT_OF_MEMORY),
    ("some", "none", "unasked", _always, Verdict.WAIT),
    ("some", "none", "waiting", _always, Verdict.WAIT),
    ("some", _ANY, "unasked", _always, Verdict.ASK),
    ("some", _ANY, "waiting", _always, Verdict.ASK),
    ("some", _ANY, "failed", _always, Verdict.FAILED),
    ("some", _ANY, _ANY, _long, Verdict.RESULT_LOST),
    # `sys.exit(0)` is an exit record with code 0: it agrees with nothing, and is no value.
    ("error", "disagrees", _ANY, _exited, Verdict.EXITED),
    ("error", "disagrees", "unasked", _always, Verdict.ASK),
    ("error", _ANY, "unasked", _always, Verdict.WAIT),
    ("error", "disagrees", "waiting", _stale, Verdict.RAISED),
    ("error", _ANY, "waiting", _always, Verdict.WAIT),
    ("error", _ANY, _ANY, _oom, Verdict.OUT_OF_MEMORY),
    ("error", _ANY, _ANY, _exited, Verdict.EXITED),
    ("error", _ANY, _ANY, _always, Verdict.RAISED),
    ("none", "not-written", _ANY, _always, Verdict.NOT_WRITTEN),
    ("none", "alone", _ANY, _oom, Verdict.OUT_OF_MEMORY),
    ("none", "alone", "unasked", _plain_failure, Verdict.ENDED),
    ("none", "alone", "unasked", _always, Verdict.ASK),
    ("none", "alone", "waiting", _again, Verdict.WAIT),
    ("none", "alone", "waiting", _stale_exit, Verdict.EXITED),
    ("none", "alone", "waiting", _stale_end, Verdict.ENDED),
    ("none", "alone", "waiting", _always, Verdict.ASK),
    ("none", "alone", "completed", _unrecorded, Verdict.EXITED),
    ("none", "alone", "failed", _unrecorded, Verdict.FAILED),
    ("none", "alone", "failed", _long, Verdict.RESULT_LOST),
    ("none", "alone", "unknown", _left_by_itself, Verdict.EXITED),
    ("none", "alone", "unknown", _stopped_from_outside, Verdict.JOB_LOST),
    ("none", "alone", "unknown", _shortly, Verdict.ENDED),
    ("none", _ANY, "completed", _long, Verdict.RESULT_LOST),
    ("none", "none", "failed", _never_ran, Verdict.FAILED),
    ("none", "none", "failed", _ran_before_long_ago, Verdict.JOB_LOST),
    ("none", "none", "failed", _ran_before, Verdict.WAIT),
    ("none", "none", "failed", _node_lost, Verdict.FAILED),
    ("none", "none", "failed", _shortly, Verdict.FAILED),
    ("none", _ANY, "unknown", _long, Verdict.JOB_LOST),
    (_ANY, _ANY, _ANY, _always, Verdict.WAIT),
]


@functools.cache
def _rows(
    record: str, ended: str, scheduler: str
) -> list[tuple[Callable[[Evidence], bool], Verdict]]:
    """The rows that fit, in their order: ten thousand open calls are judged after each poll."""
    key = (record, ended, scheduler)
    return [
        (condition, verdict)
        for *pattern, condition, verdict in _TABLE
        if all(p in (_ANY, k) for p, k in zip(pattern, key, strict=True))
    ]


def judge(seen: Evidence) -> Verdict:
    """What the evidence says."""
    for condition, verdict in _rows(_record(seen), _exit(seen), _scheduler(seen)):
        if condition(seen):
            return verdict
    raise AssertionError("no row fits")  # the last row fits everything
