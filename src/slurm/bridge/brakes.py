"""How much may be deleted or asked for: a breaker for unproved losses, and speed limits."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from slurm.bridge.settings import Brakes

# The pause before a gang asks again: twice as long each time, up to this many seconds.
_FIRST_S, _LONGEST_S = 0.5, 300.0


@dataclass
class Resubmissions:
    """How soon a gang may ask Slurm again; the caller gives the time.

    A job that Slurm drops at once would otherwise be submitted again as fast as Slurm can drop it,
    until there is no room left for the jobs of others.
    """

    _asked: dict[str, tuple[int, float]] = field(default_factory=dict)

    def wait(self, gang: str, now: float) -> float:
        """Seconds until the gang may ask."""
        times, last = self._asked.get(gang, (0, 0.0))
        pause = min(_LONGEST_S, _FIRST_S * 2 ** min(times, 20)) if times else 0.0
        return max(0.0, last + pause - now)

    def asked(self, gang: str, now: float) -> None:
        """It asks now."""
        self._asked[gang] = (self._asked.get(gang, (0, 0.0))[0] + 1, now)

    def forget(self, gang: str) -> None:
        """It has what it asked for, or is gone."""
        self._asked.pop(gang, None)


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
