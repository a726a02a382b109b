"""Runs one call inside a job: loads function and arguments, calls, and records what came of it."""

from __future__ import annotations

import gc
import os
import sys
import time

from slurm import rundir
from slurm.importing import Importing
from slurm.runner import signals
from slurm.runner.beat import Beat
from slurm.runner.memory import OomCounter
from slurm.runner.usage import Usage
from slurm.runner.values import dumps, loads

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Tuple


#: What to do about a call that lacks the value of another one.
LACKING = "look at that job, mend it and submit again"
#: What the log says of one that had to wait.
GOES_ON = "slurm-sdk: what this needs still runs; it goes on in a job behind that\n"


class Refused(Exception):
    """The runner cannot run this payload; the text says why and what to do."""

    def __init__(self, error: str, message: str, hint: str) -> None:
        super().__init__(message)
        self.error = error
        self.hint = hint


class Postponed(BaseException):
    """What this call needs still runs; the call was submitted anew behind that."""


def main(argv: List[str]) -> int:
    """Run the call of this process; the exit code is the outcome's."""
    if len(argv) not in (2, 5):
        sys.stderr.write("usage: python -m slurm.runner RUN [PACK ITEMS WORKERS]\n")
        return 2
    run = os.path.abspath(argv[1])
    who = identity()
    if "SLURM_SDK_OWNER" in os.environ:
        from slurm.runner import owner

        owner.watch()
    if len(argv) == 5:
        from slurm.runner.packed import run_pack

        return run_pack(run, who, *map(int, argv[2:]))
    again = who.attempt or os.environ.get("SLURM_SDK_AGAIN")
    if again and has_value(run, who):
        sys.stderr.write("slurm-sdk: an earlier attempt has the value; nothing to run\n")
        return 0
    note(run, rundir.format_event("start", who, pid=os.getpid(), time=int(time.time())))
    if "SLURM_SDK_RANKS" in os.environ:
        from slurm.runner.ranks import announce

        announce(os.environ)
    oom = OomCounter()
    try:
        with Beat(run), Usage() as usage:
            kind, header, payload, code = outcome(run, who)
    except Postponed:
        say(GOES_ON)
        return 0
    header["oom"] = oom.kills()
    header["stopped"] = signals.stopped()
    header["usage"] = usage.report()
    return record(run, who, kind, header, payload, code)


def identity() -> rundir.Identity:
    """Who this process is, from the variables that Slurm sets."""
    env = os.environ
    job = env.get("SLURM_ARRAY_JOB_ID") or env.get("SLURM_JOB_ID") or "0"
    if env.get("SLURM_STEP_ORDER"):
        job += "." + env["SLURM_STEP_ORDER"]
    return rundir.Identity(
        job,
        int(env.get("SLURM_ARRAY_TASK_ID") or 0) + int(env.get("SLURM_SDK_OFFSET") or 0),
        int(env.get("RANK" if "SLURM_SDK_LAUNCH" in env else "SLURM_PROCID") or 0),
        int(env.get("SLURM_RESTART_COUNT") or 0),
    )


def has_value(run: str, who: rundir.Identity) -> bool:
    """Whether an earlier attempt of this very process has recorded a value: the first is final."""
    try:
        return any(
            (found.index, found.rank) == (who.index, who.rank)
            and found.kind == rundir.VALUE
            and not found.header.get("oom")
            for found in rundir.all_records(run)
        )
    except (rundir.Untrusted, OSError):
        return False  # loading the function says what is wrong


def outcome(run: str, who: rundir.Identity) -> Tuple[str, Dict[str, Any], Any, int]:
    """Call the function: the kind of record, its header and payload, and the exit code."""
    try:
        function, args, kwargs = load(run, who)
        value = settle(function(*args, **kwargs))
        if who.rank:
            is_as_keyed(run, again=True, void=True)
    except Postponed:
        raise
    except (Refused, SystemExit) as error:
        return _raised(error)
    except BaseException as error:  # noqa: BLE001 - whatever the function raises is its outcome
        from slurm.runner import postmortem

        place = postmortem.keep(run, error)
        kind, header, payload, code = _raised(error)
        header["frames"] = place
        return kind, header, payload, code
    return kept(value)


def _raised(error: BaseException) -> Tuple[str, Dict[str, Any], Any, int]:
    from slurm.runner.trouble import trouble

    return trouble(error)


def settle(value: Any) -> Any:
    """What the function returned; a coroutine is run to its end."""
    kind = type(value)  # of the value itself only what its class has: it may answer to any name
    if not (hasattr(kind, "__await__") and hasattr(kind, "cr_frame")):
        return value
    import asyncio

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(value)
    # In a notebook a loop runs already in this thread: this one needs a thread of its own.
    import contextvars
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(contextvars.copy_context().run, asyncio.run, value).result()


def kept(value: Any) -> Tuple[str, Dict[str, Any], Any, int]:
    """The outcome of a call that returned a value."""
    try:
        pack = getattr(type(value), "__slurm_record__", None)
        header, payload = pack(value) if pack else ({}, dumps(value))
        return rundir.VALUE, header, payload, 0
    except Exception as error:  # noqa: BLE001 - pickling calls the user's own code
        from slurm.runner.trouble import unpicklable

        return unpicklable(value, error)


def load(run: str, who: rundir.Identity) -> Tuple[Any, List[Any], Dict[str, Any]]:
    """The function and the arguments of this call, after owner, mode and versions are verified."""
    try:
        rundir.check_private(run, os.stat(run))
        header, pickled = rundir.read_function(run)
        blob = rundir.read_arguments(run, who.index)
    except (rundir.Untrusted, OSError, ValueError) as error:
        raise Refused("UntrustedRun", str(error), "submit the run again") from error
    if header["by"] == "value" or rundir.names(blob, b"cloudpickle"):
        # Byte code in the arguments is as fragile as that of the function.
        check_version(header)
    extend_path(header)
    with Importing(header["target"].partition(":")[0]):
        function = get_function(header, pickled)
        args, kwargs = call_arguments(run, who, blob)
    args = list(args)
    inject = header.get("context")
    if inject:
        context = make_context(header)
        signals.install(context, graceful=True)
        name, position = inject
        if name not in kwargs:
            if position is not None and len(args) >= position:
                args.insert(position, context)
            else:
                kwargs[name] = context
    else:
        signals.install(None, graceful=False)
    if header.get("workflow"):
        from slurm.runner.workflow import orchestrate

        function = orchestrate(function, run, who.index)
    function = hooked(function, run, who, header)
    is_as_keyed(run, void=who.rank != 0)
    return function, args, kwargs


def is_as_keyed(run: str, again: bool = False, void: bool = False) -> bool:
    """Whether the modules that were imported hold what the keys of this run speak of."""
    if not os.path.exists(os.path.join(run, rundir.CACHE_VALUES)):
        return True
    from slurm.runner import premises

    return premises.look(run, again, void)


def call_arguments(run: str, who: rundir.Identity, blob: Any) -> Tuple[List[Any], Dict[str, Any]]:
    """The arguments of this call, with the values of the jobs among them."""
    # `Q` is the code of a reference to a job or to a shared object; most calls have none.
    if not rundir.names(blob, b"Q") and not os.path.exists(os.path.join(run, rundir.SHARED)):
        loaded = loads(blob, update=True)
        return loaded[0], loaded[1]
    from slurm.runner.arguments import UpstreamResult, load_arguments, load_common

    base = os.environ.get("SLURM_SDK_BASE", os.path.dirname(run))
    while True:
        try:
            args, kwargs = load_arguments(blob, run, base)
            return args, dict(load_common(run, base), **kwargs)
        except UpstreamResult as error:
            from slurm.runner.behind import postpone

            postpone(run, who, error)


def hooked(function: Any, run: str, who: rundir.Identity, header: Dict[str, Any]) -> Any:
    """The function as it is called: itself, where no callback came with the run."""
    if not os.path.exists(os.path.join(run, rundir.CALLBACKS)):
        return function
    from slurm.runner.callbacks import with_hooks

    return with_hooks(function, run, who, header)


def make_context(header: Dict[str, Any]) -> Any:
    """What the function's context parameter receives."""
    if header.get("workflow"):
        from slurm.runner.workflow import context

        return context()
    from slurm.context import JobContext

    return JobContext.from_environment()


def extend_path(header: Dict[str, Any]) -> None:
    """Add the client's own import path behind the SDK and before what Python found by itself.

    Code that was captured with the call goes before all.
    """
    known = set(sys.path)
    added = [entry for entry in header.get("path", ()) if entry not in known]
    sys.path[1:1] = added
    if any(f"/{rundir.BASE_SNAPSHOTS}/" in entry for entry in added):
        # Runs share a snapshot, and none adds byte code to it; its modes do not keep root from it.
        sys.dont_write_bytecode = True
    if header.get("captured"):
        from slurm.runner import captured

        try:
            captured.install(header["captured"])
        except (rundir.Untrusted, OSError, ValueError) as error:
            raise Refused(
                "UntrustedRun", f"the captured code cannot be read: {error}", "submit the run again"
            ) from error


def get_function(header: Dict[str, Any], pickled: bytes) -> Any:
    """The function itself: imported where it travels by reference, else unpickled."""
    if header["by"] == "reference":
        module, _, qualname = header["target"].partition(":")
        __import__(module)
        found = sys.modules[module]  # type: Any
        for part in qualname.split("."):
            found = getattr(found, part)
        return getattr(found, "unwrapped", found)
    check_version(header)
    from slurm.runner import children

    children.install()
    # The pickle needs cloudpickle, which imports much: nothing of that is ever garbage.
    gc.disable()
    import cloudpickle  # noqa: F401

    gc.freeze()
    gc.enable()
    return loads(pickled, update=True)


def check_version(header: Dict[str, Any]) -> None:
    """Refuse code that was pickled by value on another Python: it would crash when it is called."""
    there, here = tuple(header["python"][:2]), tuple(sys.version_info[:2])
    if there != here:
        raise Refused(
            "PythonMismatch",
            "code of this call was pickled by value on Python {}.{}, and this job runs Python "
            "{}.{} ({}): its byte code cannot run here".format(*there, *here, sys.executable),
            "use a Python {}.{} there (python=, or an image that has it), or put the function and "
            "what it is given into a module that the node can import".format(*there),
        )


def record(
    run: str, who: rundir.Identity, kind: str, header: Dict[str, Any], payload: Any, code: int
) -> int:
    """Write the outcome; what cannot be written is said in the log and by exit code 74."""
    header.setdefault("python", "{}.{}.{}".format(*sys.version_info[:3]))
    ranks = os.environ.get("SLURM_SDK_WORLD", "")
    if ranks.isdigit():
        header["ranks"] = int(ranks)
    try:
        place = rundir.append_record(run, who, kind, header, payload)
        line = rundir.format_event("record", who, outcome=kind, time=int(time.time()))
        rundir.append_event(run, line)
    except OSError as error:
        say(f"slurm-sdk: the result could not be written: {error}\n")
        return rundir.EXIT_NOT_WRITTEN
    if kind == rundir.VALUE and os.path.exists(os.path.join(run, rundir.CACHE_KEYS)):
        from slurm.runner.cache import remember

        if not who.rank and is_as_keyed(run, again=True):
            remember(run, who, header, place)
    return code


def note(run: str, line: str) -> None:
    """Write an event that may be missing: a full disk must not keep the function from running."""
    try:
        rundir.append_event(run, line)
    except OSError as error:
        say(f"slurm-sdk: an event could not be written: {error}\n")


def say(text: str) -> None:
    """Write to the log; a log that cannot be written (disk full, closed) changes no outcome."""
    try:  # noqa: SIM105 - contextlib is slow to import
        sys.stderr.write(text)
    except (OSError, ValueError, AttributeError):
        pass
