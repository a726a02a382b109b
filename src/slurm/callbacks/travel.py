"""How callbacks get into the job: pickled one by one beside the function, loaded once there."""

from __future__ import annotations

import os
import pickle
from collections.abc import Sequence
from typing import TYPE_CHECKING

from slurm import errors, rundir
from slurm.callbacks.base import BaseCallback, log, runs_in_job
from slurm.importing import Importing

if TYPE_CHECKING:
    from slurm.cluster import Cluster

_loaded: dict[str, list[BaseCallback]] = {}


def callbacks_file(cluster: Cluster, workflow: bool) -> dict[str, bytes]:
    """The file of the callbacks that go with a run, none where no callback does."""
    going = [one for one in cluster.callbacks if runs_in_job(one) or (workflow and one.travels)]
    blobs = [blob for blob in map(_pickled, going) if blob]
    return {rundir.CALLBACKS: rundir.joined(rundir.encode_arguments(blobs))} if blobs else {}


def _pickled(callback: BaseCallback) -> bytes:
    from slurm.runner import wrapped

    try:
        data: bytes = wrapped.dumps(callback)
    except Exception as error:  # pickling calls the callback's own code
        if not runs_in_job(callback):
            return b""  # it would only hear of children; what it has to do here it can do
        raise errors.UnpicklableArgument(
            f"the callback {type(callback).__name__} has hooks that run in the job, but cannot "
            f"be sent there: {type(error).__name__}: {error}",
            hint="keep open files, locks and connections out of its attributes, and open them in "
            "the hook",
        ) from error
    return data


def load_callbacks(run: str) -> Sequence[BaseCallback]:
    """The callbacks that came with a run, in the job itself; the same objects each time."""
    if run in _loaded:
        return _loaded[run]
    found = _loaded[run] = []
    try:
        blobs = rundir.split_arguments(rundir.read_trusted(os.path.join(run, rundir.CALLBACKS)))
    except FileNotFoundError:
        return found
    for blob in blobs:
        try:
            with Importing("a module of the callbacks"):
                found.append(pickle.loads(blob))
        except Exception:  # noqa: BLE001 - code of the user's own; the job goes on without it
            log.warning("a callback could not be loaded; the job goes on", exc_info=True)
    return found
