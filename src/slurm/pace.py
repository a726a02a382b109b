"""When the scheduler is asked about jobs: soon where it may know something, never in a storm."""

from __future__ import annotations

#: The scheduler is asked some seconds after a submission, then this often.
FIRST_POLL, POLL = 5.0, 30.0
#: After an end that files do not explain the scheduler is asked as soon as it can know, then
#: ever more slowly.
ASK_AFTER = (0.2, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0)
#: Two polls are never closer than this, whatever happens.
POLL_GAP = 0.4
#: So many questions may follow each other quickly; then one comes in so many seconds, however
#: many jobs end without a word.
BURST, REFILL = 5, 2.0

NEVER = float("inf")


class Pace:
    """When the next question to the scheduler is due; one question is about all open jobs.

    Times are those of `time.monotonic`, given by the caller, who also holds a lock around this.
    """

    def __init__(self) -> None:
        #: When the scheduler is asked next, and when it was asked last.
        self.next = NEVER
        self.last = 0.0
        self._tokens = self._firsts = float(BURST)
        self._last_first = 0.0

    def job_came(self, now: float, *, alone: bool) -> bool:
        """Ask about a new job soon, but not about each that comes while others are open.

        Those are asked about all the time. True if that is sooner than what was planned.
        """
        first = self._first(now, alone)
        sooner = first < self.next
        self.next = min(self.next, first)
        return sooner

    def _first(self, now: float, alone: bool) -> float:
        if alone or self.next <= now + FIRST_POLL:
            return now + FIRST_POLL
        self._firsts = min(BURST, self._firsts + (now - self._last_first) / (20 * POLL))
        self._last_first = now
        if self._firsts < 1:
            return now + POLL
        self._firsts -= 1
        return now + FIRST_POLL

    def ask_soon(self, now: float, times: int) -> bool:
        """Ask about an end that files do not explain, for which this is the n-th time.

        True if that is sooner than what was planned.
        """
        wait = ASK_AFTER[min(times - 1, len(ASK_AFTER) - 1)]
        gap = POLL_GAP if self._tokens >= 1 else REFILL
        at = max(now + wait, self.last + gap)
        if at >= self.next:
            return False
        self.next = at
        return True

    def asking(self, now: float, *, any_open: bool) -> None:
        """The scheduler is asked now."""
        self._tokens = min(BURST, self._tokens + (now - self.last) / REFILL)
        self._tokens = max(0.0, self._tokens - 1)
        self.last = now
        self.next = now + POLL if any_open else NEVER

    def not_done(self, now: float) -> None:
        """The scheduler could not be told something yet: it is tried again before long."""
        self.next = min(self.next, now + REFILL)

    def no_answer(self, now: float) -> None:
        """The scheduler did not answer: it is asked again before long."""
        self.next = now + FIRST_POLL

    def nothing_open(self) -> None:
        """There is nothing to ask about."""
        self.next = NEVER
