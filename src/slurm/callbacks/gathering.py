"""Which callbacks a cluster has: those it was given, those of the job around it, and progress."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

from slurm.callbacks.lines import Callbacks

if TYPE_CHECKING:
    from slurm.callbacks.base import BaseCallback

#: Set to 0, no cluster shows progress; to 1, all do.
SWITCH = "SLURM_SDK_PROGRESS"


def gather(callbacks: Iterable[BaseCallback] | None, progress: bool | None) -> Callbacks:
    """The callbacks of a new cluster.

    Inside a job those that came with it, unless others are given. A live progress display is added
    where somebody can see it.
    """
    run = os.environ.get("SLURM_SDK_RUN")
    if callbacks is None and run:
        from slurm.callbacks.travel import load_callbacks

        callbacks = load_callbacks(run)
    given = list(callbacks or ())
    if progress is None:
        progress = wants_progress(run is not None)
    if progress:
        from slurm.callbacks.progress import ProgressCallback, shared
        from slurm.packaging.progress import keep_showing

        keep_showing()
        if not any(isinstance(one, ProgressCallback) for one in given):
            given.append(shared())
    return Callbacks(given)


def wants_progress(in_job: bool) -> bool:
    """Whether progress is shown by default: on a terminal or in a notebook, never inside a job."""
    switch = os.environ.get(SWITCH, "")
    if switch:
        return switch.lower() not in ("0", "no", "off", "false")
    if in_job:
        return False
    return in_notebook() or (sys.stderr is not None and sys.stderr.isatty())


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    # Nothing is imported for it: a kernel has loaded it already.
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return type(shell).__name__ == "ZMQInteractiveShell"
