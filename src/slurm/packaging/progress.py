"""What packaging says while it works: steps that take time, and the words of the programs it runs.

A step is told to the logger `slurm.packaging` (INFO), a program's own lines too (DEBUG). Steps also
appear on a terminal; with `SLURM_SDK_VERBOSE=1`, or `--verbose`, all lines do, wherever it goes.
"""

from __future__ import annotations

import contextlib
import contextvars
import logging
import os
import sys
from collections.abc import Callable, Iterator

#: Takes a step (`build`, `push`, `upload`, `install`), a line, and whether a program said it.
Listener = Callable[[str, str, bool], None]

log = logging.getLogger("slurm.packaging")


def _show(step: str, text: str, detail: bool) -> None:
    verbose = os.environ.get("SLURM_SDK_VERBOSE", "") not in ("", "0")
    if verbose or (not detail and sys.stderr is not None and sys.stderr.isatty()):
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(f"  {text}\n" if detail else f"slurm-sdk: {text}\n")
            sys.stderr.flush()


_listener: contextvars.ContextVar[Listener] = contextvars.ContextVar("listener", default=_show)


def tell(step: str, text: str) -> None:
    """A step begins or ends."""
    log.info("%s", text)
    _listener.get()(step, text, False)


def quote(step: str, line: str) -> None:
    """A program that carries out a step said this."""
    log.debug("%s: %s", step, line)
    _listener.get()(step, line, True)


@contextlib.contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """While it is open, what is told goes to this listener instead of the terminal."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)
