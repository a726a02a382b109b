"""Makes an environment on the cluster, once for all who need it; on Python 3.6.

A job's script starts it where the environment is not there. One process makes it, the others wait
for that. It is made in a folder of its own and appears under its name when it is whole, so that
nobody ever uses a half one, whoever dies when.
"""

import contextlib
import json
import os
import shutil
import signal
import sys
import time
from typing import Any, Callable, List

if not __package__:
    # Started by path: the folder above `slurm` takes the place of this script's own folder.
    sys.path[0] = __file__.rsplit("/", 3)[0]
    if sys.version_info < (3, 7):
        # The package's first file is written for newer ones; what is needed here is not.
        import types

        sys.modules["slurm"] = types.ModuleType("slurm")
        sys.modules["slurm"].__path__ = [sys.path[0] + "/slurm"]  # type: ignore[attr-defined]

from slurm import rundir
from slurm.runner.environment_state import FAILED, LOCK, LOG, failure_of, is_ready
from slurm.runner.install import Failed, install, located
from slurm.runner.lease import Lease, holder
from slurm.runner.protected import protect, remove_tree

_GONE = "it was removed meanwhile (slurm gc, slurm env rm): submit again"

#: How often those who wait look, in seconds.
PAUSE = 0.5


def main(argv: List[str]) -> int:
    """Make sure that an environment is there, and with a second folder its copy on this node."""
    if len(argv) not in (2, 3):
        sys.stderr.write("usage: environment.py FOLDER [COPY]\n")
        return 2
    folders = [os.path.abspath(path) for path in argv[1:]]
    signal.signal(signal.SIGTERM, _stop)
    try:
        ensure(folders[0], _from_recipe)
        if len(folders) == 2:
            stage(*folders)
    except Failed as error:
        return refuse(error)
    except OSError as error:
        return refuse(_no_room(folders[-1], error))
    return 0


def _stop(signum: int, frame: Any) -> None:
    raise SystemExit(128 + signum)


def ensure(folder: str, make: Callable[[str, str], None]) -> None:
    """Return when the environment is ready; raises `Failed` when it cannot be made."""
    if not os.path.isdir(folder):
        raise Failed("the environment {} is gone".format(folder), _GONE)
    lease = Lease(os.path.join(folder, LOCK))
    before = failure_of(folder)
    waited = False
    while not is_ready(folder):
        failure = failure_of(folder)
        if failure and (failure.get("owner") == owner() or (waited and failure != before)):
            # It failed for this very job, or while this one waited: once more helps nobody.
            raise Failed(failure["message"], failure["hint"], failure["evidence"])
        if lease.take():
            try:
                if not is_ready(folder):
                    _make(folder, lease.token, make)
            finally:
                lease.release()
            return
        if not waited:
            say("waiting for the environment that {} makes".format(_who(folder)))
            waited = True
        _after_a_death(folder, lease)


def _after_a_death(folder: str, lease: Lease) -> None:
    """Wait a moment, unless whoever makes the environment has died."""
    gone = lease.break_dead()
    if gone is None:
        time.sleep(PAUSE)
        return
    say("{} has died while it made the environment".format(gone.get("host", "its maker")))
    if gone["dead"]:
        remove_tree(os.path.join(folder, gone["token"]))


def _make(folder: str, token: str, make: Callable[[str, str], None]) -> None:
    begun = time.time()
    target = os.path.join(folder, token)
    try:
        make(folder, target)
        protect(target)
        _publish(folder, target)
    except (Failed, OSError, SystemExit) as error:
        remove_tree(target)
        if isinstance(error, SystemExit):
            raise  # told to stop: whoever comes next makes it
        failed = error if isinstance(error, Failed) else _no_room(folder, error)
        _note_failure(folder, failed)
        raise failed from error
    with contextlib.suppress(OSError):
        os.unlink(os.path.join(folder, FAILED))
    say("the environment is ready after {:.1f} s".format(time.time() - begun))


def _from_recipe(folder: str, target: str) -> None:
    try:
        with open(os.path.join(folder, rundir.RECIPE)) as f:
            recipe = json.load(f)
    except (OSError, ValueError) as error:
        text = "the recipe of the environment {} is not there: {}".format(folder, error)
        raise Failed(text, _GONE) from error
    say("making the environment {} ({})".format(os.path.basename(folder), recipe.get("label", "")))
    base = os.path.dirname(os.path.dirname(folder))
    log, constraints = os.path.join(folder, LOG), target + ".constraints"
    with open(log, "w"):
        pass
    try:
        install(located(recipe, base, constraints), base, target, log)
    finally:
        for name in (constraints, constraints + ".hashed"):
            with contextlib.suppress(OSError):
                os.unlink(name)


def stage(folder: str, copy: str) -> None:
    """Copy an environment to this node's own disk, once."""
    above, shared = os.path.dirname(copy), os.path.join(folder, rundir.CURRENT)
    try:
        # Others may write to the folder around it, too, and know the name beforehand.
        rundir.make_private_folder(above)
        rundir.check_private(above, os.lstat(above))
        rundir.check_way(above)
        rundir.make_private_folder(copy)
        rundir.check_private(copy, os.lstat(copy))
    except rundir.Untrusted as error:
        raise Failed(str(error), 'name another folder: {"stage": "/local/scratch"}') from error

    def from_shared(_: str, target: str) -> None:
        say("copying the environment to {}".format(copy))
        shutil.copytree(os.path.realpath(shared), target, symlinks=True)

    ensure(copy, from_shared)


def _publish(folder: str, target: str) -> None:
    """Let the environment appear under its name; the first one stays."""
    try:
        os.symlink(os.path.basename(target), os.path.join(folder, rundir.CURRENT))
    except FileExistsError:
        remove_tree(target)


def _no_room(folder: str, error: OSError) -> Failed:
    text = "{} cannot be written: {}".format(folder, error.strerror or error)
    return Failed(text, "make room there, or choose another job_base_dir")


# ---- failures -----------------------------------------------------------------------------------


def owner() -> str:
    """Whose failure it is: an attempt of a job, all elements of an array together."""
    env = os.environ
    job = env.get("SLURM_ARRAY_JOB_ID") or env.get("SLURM_JOB_ID") or str(os.getpid())
    return "{}:{}:{}".format(env.get("SLURM_SDK_RUN", ""), job, env.get("SLURM_RESTART_COUNT", "0"))


def _note_failure(folder: str, failed: Failed) -> None:
    told = {
        "owner": owner(),
        "token": os.urandom(8).hex(),
        "message": str(failed),
        "hint": failed.hint,
        "evidence": failed.evidence,
    }
    with contextlib.suppress(OSError):  # a full disk must not hide the failure itself
        data = json.dumps(told).encode()
        rundir.write_atomically(os.path.join(folder, FAILED), data, sync=False)


def refuse(failed: Failed) -> int:
    """Say why in the log, and record it as the outcome of this job."""
    for line in failed.evidence:
        sys.stderr.write("  | {}\n".format(line))
    say(str(failed))
    run = os.environ.get("SLURM_SDK_RUN")
    if run is None or sys.version_info < (3, 8):
        return 1
    from slurm.runner import run as runner

    header = {
        "error": "EnvironmentFailed",
        "message": str(failed),
        "hint": failed.hint,
        "evidence": failed.evidence,
    }
    return runner.record(run, runner.identity(), rundir.ERROR, header, b"", 1)


def say(text: str) -> None:
    """A line in the job's log."""
    sys.stderr.write("slurm-sdk: {}\n".format(text))
    sys.stderr.flush()


def _who(folder: str) -> str:
    return str(holder(os.path.join(folder, LOCK)).get("host") or "another job")


if __name__ == "__main__":
    sys.exit(main(sys.argv))
