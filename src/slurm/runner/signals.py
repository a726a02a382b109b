"""Turns the warning signal, and TERM where the function can see it, into `should_stop`."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # the names of signals as enumerations, in `signal`, are slow to make
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_stopped = []  # type: list[int]


def stopped() -> bool:
    """Whether TERM came: what the function raised since then may be an echo of that."""
    return bool(_stopped)


def install(context: Any, graceful: bool) -> None:
    """Install the handlers.

    The warning before the time limit must never kill a function that does not know it. TERM only
    becomes a flag for functions that take a JobContext: others die of it at once, as they should.
    """
    name = os.environ.get("SLURM_SDK_WARNING", "USR2")
    number = getattr(_signal, "SIG" + name, _signal.SIGUSR2)

    def warned(signum: int, frame: Any) -> None:
        if context is not None:
            context.request_stop(number)

    def terminated(signum: int, frame: Any) -> None:
        _stopped.append(signum)
        context.request_stop(signum)

    try:
        _signal.signal(number, warned)
        if graceful:
            _signal.signal(_signal.SIGTERM, terminated)
    except ValueError:
        # Not the main thread: the debug backend runs there, where no scheduler sends signals.
        pass
