"""How much may be deleted: a breaker that trips on too many unproved losses, and a speed limit."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from slurm.bridge.settings import Brakes


@dataclass
class Breaker:
    """Counts evictions of the last minute; the caller gives the time.

    A pod whose job Slurm no longer knows is evicted only while few are: many at once mean that
    Slurm lost its state or that another cluster answers. Then all such evictions stop for a while.
    """

    brakes: Brakes
    _unproved: deque[float] = field(default_factory=deque)
    _all: deque[float] = field(default_factory=deque)
    _open_until: float = 0.0

    def is_open(self, now: float) -> bool:
        """Whether unproved evictions are stopped."""
        return now < self._open_until

    def allows(self, now: float, *, unproved: bool) -> bool:
        """Whether one more pod may be evicted now; counts it where it may."""
        for times in (self._unproved, self._all):
            while times and times[0] <= now - 60:
                times.popleft()
        if unproved:
            if self.is_open(now):
                return False
            if len(self._unproved) >= self.brakes.missing_per_minute:
                self._open_until = now + self.brakes.cooldown
                return False
        if len(self._all) >= self.brakes.evictions_per_minute:
            return False
        self._all.append(now)
        if unproved:
            self._unproved.append(now)
        return True
