"""Whether this process has imported what the client had imported when it made the keys of calls.

A module may read a file, the environment or the clock when it is imported: the job does so again.
A value that was computed from something else than a key speaks of is not stored under that key.
"""

from __future__ import annotations

import os
import sys

from slurm import rundir

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict

_open: Dict[str, Any] = {}
_said = False


def look(run: str, again: bool = False, void: bool = False) -> bool:
    """Look at the modules that were imported by now; whether all is as the keys say.

    What differs is said once. `void`: no value of the run is found by a key then.
    """
    if run not in _open:
        _open[run] = _comparison(run)
    known = _open[run]
    try:
        differs = known if isinstance(known, str) else known.look(again)
    except Exception as error:  # noqa: BLE001 - values of the user may raise anything
        differs = f"{type(error).__name__}: {error}"
    if differs:
        _say(differs)
        if void:
            path = os.path.join(run, rundir.CACHE_VOID)
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))
    return not differs


def waits(run: str) -> bool:
    """Whether there is something to look at in this run."""
    return os.path.exists(os.path.join(run, rundir.CACHE_VALUES))


def _comparison(run: str) -> Any:
    if not waits(run):
        return ""
    try:
        from slurm.content.premises import Comparison

        with rundir.open_trusted(os.path.join(run, rundir.CACHE_VALUES)) as f:
            return Comparison(f.read())
    except Exception as error:  # noqa: BLE001 - a Python without what it needs, a damaged file
        return f"it cannot be compared here ({type(error).__name__}: {error})"


def _say(differs: str) -> None:
    global _said
    if not _said:
        _said = True
        try:
            sys.stderr.write(
                "slurm-sdk: the value is not kept for later calls, for it was computed from "
                f"something else than their key says: {differs}\n"
            )
            sys.stderr.flush()
        except (OSError, ValueError, AttributeError):
            pass  # a log that cannot be written changes no outcome
