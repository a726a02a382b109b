"""The worker: finds the call of its job, makes it, and writes down what came of it."""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import sys
import time

from slurm.submitit.core import utils
from slurm.submitit.core.job_environment import JobEnvironment, redirect_logs

TYPE_CHECKING = False  # `typing` is slow to import, and every job imports this module

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

#: How long a worker waits for its call to appear: network file systems lag.
PATIENCE_S = 60.0


def run_call(folder: str, staged: str | bytes, keep: bool = False) -> Any:
    """What the SDK's runner calls in a job: make the call that was staged for it.

    `staged` is where the client left the call, or the call itself where it has no files there;
    `keep` says that the value is returned, besides being written to the folder.
    """
    os.environ["SUBMITIT_FOLDER"] = folder
    env = JobEnvironment()
    paths = env.paths
    redirect_logs(env, paths)
    # Behind the SDK: a snapshot that the job was submitted from goes before its original.
    sys.path.insert(1, os.getcwd())
    if env.global_rank == 0:
        _adopt(staged, paths.name_of("submitted_pickle"))
    value = process_job(folder)
    return value if keep else None


def run_item(folder: str, call: bytes) -> Any:
    """What the runner calls for one of many calls that share a job: the value is returned."""
    os.environ["SUBMITIT_FOLDER"] = folder
    found: utils.DelayedSubmission = utils.load_pickle(io.BytesIO(call))
    return found.result()


def _adopt(staged: str | bytes, target: str) -> None:
    """Give a staged call its final name; client and worker both do, and the first one wins."""
    if isinstance(staged, bytes):
        if not os.path.exists(target):
            with utils.written(target) as f:
                f.write(staged)
        return
    with contextlib.suppress(FileNotFoundError):
        os.rename(staged, target)


def process_job(folder: Path | str) -> Any:
    """Make the call of this job, write its result, and return it; what it raises is raised."""
    os.environ["SUBMITIT_FOLDER"] = str(folder)
    env = JobEnvironment()
    paths = env.paths
    delayed = _load(paths.name_of("submitted_pickle"))
    handler = env._handle_signals(paths, delayed)
    try:
        value = delayed.result()
    except BaseException as error:  # any end is an outcome; it is raised again
        _stop(handler)
        write_error(paths, error)
        raise
    _stop(handler)
    del delayed
    try:
        _write_result(("success", value), paths.name_of("result_pickle"))
    except Exception as error:  # pickling calls the user's code; raised again
        write_error(paths, error)
        raise
    return value


def _stop(handler: Any) -> None:
    """Listen no more; a plug-in's own handler need not have such a method."""
    stop = getattr(handler, "stop_listening", None)
    if stop is not None:
        stop()


def write_error(paths: utils.JobPaths, error: BaseException) -> None:
    """Write a failure as the job's result: the text of its traceback."""
    import traceback  # slow to import, and most jobs succeed

    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    _write_result(("error", text), paths.name_of("result_pickle"))


def _write_result(outcome: tuple[str, Any], path: str) -> None:
    """Write an outcome whole or not at all; most need no cloudpickle, which is slow to import."""
    try:
        with utils.written(path) as f:
            pickle.dump(outcome, f, pickle.HIGHEST_PROTOCOL)
    except Exception:  # noqa: BLE001 - pickle raises many types; cloudpickle has the last word
        utils.cloudpickle_dump(outcome, path)


def _load(path: str) -> utils.DelayedSubmission:
    deadline = time.monotonic() + PATIENCE_S
    pause = 0.01
    while True:
        try:
            return utils.DelayedSubmission.load(path)
        except FileNotFoundError:
            if time.monotonic() > deadline:
                raise
        time.sleep(pause)
        pause = min(1.0, 2 * pause)


def submitit_main() -> None:
    """Be the worker of a job: `python -m slurm.submitit.core._submit FOLDER`."""
    if len(sys.argv) != 2:
        sys.exit(f"usage: {sys.argv[0]} FOLDER")
    process_job(sys.argv[1])
