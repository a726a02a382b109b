"""A warm worker of a packed map: a forked process that calls the function for ranges of items."""

import contextlib
import json
import os
import pickle
import signal
import struct
import sys
import time
from typing import Any, Callable, Dict, List, Optional, Set, Tuple

from slurm import rundir
from slurm.importing import Importing
from slurm.runner import batches, premises, signals
from slurm.runner.arguments import UpstreamResult, argument_loader, common_loader
from slurm.runner.board import BEGUN, DATA, DONE, LIMIT, Board, Call
from slurm.runner.run import (
    LACKING,
    Refused,
    extend_path,
    get_function,
    hooked,
    kept,
    say,
    settle,
)
from slurm.runner.trouble import trouble
from slurm.runner.values import loads

#: A range ends after so many seconds, or when its outcomes fill the board.
LONGEST = 0.1
#: After so many seconds two processes surely see what the other wrote to shared memory.
SETTLED = 0.05
#: A value that is larger is written by the worker itself, as a record of its own.
LARGE = 256 << 10

_ORDER = struct.Struct("=QQ")


class Waits(Exception):
    """An item lacks the value of a call that may still come."""

    def __init__(self, call: Call) -> None:
        super().__init__(call)
        self.call = call


class Stop:
    """Stands between the signals of a worker and the context of the item it works on."""

    def __init__(self) -> None:
        self.context: Any = None
        self.signal: Optional[int] = None

    def request_stop(self, number: int) -> None:
        """Tell the function of the current item, and begin no other."""
        self.signal = number
        if self.context is not None:
            self.context.request_stop(number)


class Calls:
    """The function and the arguments of all items, loaded once and inherited by every worker."""

    def __init__(
        self,
        run: str,
        who: rundir.Identity,
        function: Callable[..., Any],
        common: Callable[[], Dict[str, Any]],
        inject: Any,
        retry: Optional[Dict[str, Any]] = None,
    ) -> None:
        self.run = run
        self.who = who
        self.function = function
        hooks = sys.modules.get("slurm.runner.callbacks")
        self._hooks = function if hooks and isinstance(function, hooks.Hooks) else None
        self.common = common
        self.retry = retry
        self.stop = Stop()
        self._inject = inject
        #: Whether values count only if the modules here hold what the client's did.
        self.compared = premises.waits(run)
        self._arguments = rundir.ArgumentFile(run)
        #: Calls that are known to bring no value.
        self.failed: Set[Call] = set()
        self.base = base = os.environ.get("SLURM_SDK_BASE", os.path.dirname(run))
        self._load = argument_loader(run, base)

    @property
    def graceful(self) -> bool:
        """Whether the function can see that it should stop."""
        return bool(self._inject)

    def arguments(self, index: int) -> Tuple[List[Any], Dict[str, Any]]:
        """The arguments of one item, as the function gets them."""
        blob = self._arguments[index]
        if self._hooks is not None:
            self._hooks.index = index
        with Importing("a module of the arguments"):
            # `Q` is the code of a reference to a job or to a shared object; most calls have none.
            try:
                loaded = self._load(blob) if rundir.names(blob, b"Q") else loads(blob, update=True)
            except UpstreamResult as error:
                if error.asked not in self.failed and self._may_come(error):
                    raise Waits(error.asked) from None
                raise Refused("UpstreamFailed", str(error), LACKING) from error
            args, kwargs = loaded[0], loaded[1]
            if self.common is not dict:
                kwargs = dict(self.common(), **kwargs)
        if self._inject:
            self._add_context(index, args, kwargs)
        return args, kwargs

    def _may_come(self, lacking: Any) -> bool:
        from slurm.runner.behind import may_come

        return may_come(self.base, lacking)

    def _add_context(self, index: int, args: List[Any], kwargs: Dict[str, Any]) -> None:
        from slurm.context import JobContext

        environ = dict(os.environ, SLURM_ARRAY_TASK_ID=str(index), SLURM_SDK_OFFSET="0")
        context = self.stop.context = JobContext(environ, self.run)
        name, position = self._inject
        if name in kwargs:
            return
        if position is not None and len(args) >= position:
            args.insert(position, context)
        else:
            kwargs[name] = context


def calls_there(run: str, who: rundir.Identity) -> Calls:
    """The calls, once the values are there that all of them need."""
    while True:
        try:
            return _load_calls(run, who)
        except UpstreamResult as error:
            from slurm.runner.behind import postpone

            postpone(run, who, error)


def _load_calls(run: str, who: rundir.Identity) -> Calls:
    """The function and what all its calls have in common, loaded before the workers are forked."""
    try:
        rundir.check_private(run, os.stat(run))
        header, pickled = rundir.read_function(run)
        rundir.ArgumentFile(run)
    except (rundir.Untrusted, OSError, ValueError) as error:
        raise Refused("UntrustedRun", str(error), "submit the run again") from error
    extend_path(header)
    with Importing(header["target"].partition(":")[0]):
        function = get_function(header, pickled)
    common = common_loader(run, os.environ.get("SLURM_SDK_BASE", os.path.dirname(run)))
    function = hooked(function, run, who, header)
    with open(os.path.join(run, rundir.METADATA)) as f:
        retry = json.load(f).get("item_retry")
    return Calls(run, who, function, common, header.get("context"), retry)


class Worker:
    """One warm process. It gets ranges through a pipe and shows its outcomes on its board."""

    def __init__(self, calls: Calls, others: List["Worker"]) -> None:
        self.board = Board()
        self.range: Optional[Tuple[int, int]] = None
        self.taken = 0  # how many outcomes of the range are written
        self.asked = 0.0  # since when the range is to end with the item under way
        self.status: Optional[int] = None
        self.since = 0.0
        self.rate = 0.0
        orders, self._orders = os.pipe()
        self.answers, answers = os.pipe()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):  # a full disk: the child would say it twice
                stream.flush()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                for other in [self, *others]:
                    other.close()
                _serve(calls, self.board, orders, answers)
            except BaseException as error:  # noqa: BLE001 - the process ends here, but not silently
                say(f"slurm-sdk: a worker cannot go on: {type(error).__name__}: {error}\n")
            finally:
                os._exit(70)
        os.close(orders)
        os.close(answers)

    def close(self) -> None:
        """Close this side's ends of the pipes; an idle worker ends then."""
        os.close(self._orders)
        os.close(self.answers)

    def order(self, first: int, stop: int) -> None:
        """Give the worker a range; it answers with one byte when it has ended."""
        self.board.clear(stop - first)
        self.range = (first, stop)
        self.taken, self.asked = 0, 0.0
        self.since = time.monotonic()
        with contextlib.suppress(BrokenPipeError):  # it is dead, which is noticed elsewhere
            os.write(self._orders, _ORDER.pack(first, stop))

    def shorten(self, now: float) -> Optional[Tuple[int, int]]:
        """Take back what a worker that is slow has not begun; None: nothing, or not yet.

        The limit is lowered first and looked at again later: by then the worker has either seen it
        or shown that it had begun one more item.
        """
        assert self.range is not None
        first, stop = self.range
        if not self.asked:
            self.board.limit = self.board.begun
            self.asked = now
        elif now - self.asked >= SETTLED:
            cut = first + max(self.board.begun, self.board.limit)
            if cut < stop:
                self.range = (first, cut)
                return cut, stop
        return None

    def gone(self) -> bool:
        """Whether the process has ended; its wait status is kept."""
        if self.status is None:
            with contextlib.suppress(ChildProcessError):
                pid, status = os.waitpid(self.pid, os.WNOHANG)
                self.status = status if pid else None
        return self.status is not None

    def reap(self) -> Optional[int]:
        """The wait status of a worker that has closed its pipe: it has nothing more to say."""
        until = time.monotonic() + 0.5
        while not self.gone():
            if time.monotonic() > until:
                self.signal(signal.SIGKILL)
            time.sleep(0.002)
        return self.status

    def signal(self, number: int) -> None:
        """Pass a signal on."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)


def exit_code(status: Optional[int]) -> Optional[int]:
    """The exit code of a worker that ended by itself."""
    return os.WEXITSTATUS(status) if status is not None and os.WIFEXITED(status) else None


def how_it_ended(status: Optional[int]) -> str:
    """How a worker ended, as the rest of a sentence."""
    if status is None:
        return "died"
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        try:
            return f"was killed by {signal.Signals(number).name}"
        except ValueError:
            return f"was killed by signal {number}"
    return f"ended with exit code {os.WEXITSTATUS(status)}"


def _serve(calls: Calls, board: Board, orders: int, answers: int) -> None:
    """The life of a worker: one range after the other until its parent has no more."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signals.install(calls.stop if calls.graceful else None, graceful=calls.graceful)
    _scatter_random()
    while True:
        order = os.read(orders, _ORDER.size)
        if len(order) < _ORDER.size:
            break
        _work(calls, board, *_ORDER.unpack(order))
        os.write(answers, b".")
    _leave()


def _work(calls: Calls, board: Board, first: int, stop: int) -> None:
    """Call the function for a range of items; what is not begun in time is left to others."""
    counters, words, data = board.counters, board.words, board.data
    function, arguments = calls.function, calls.arguments
    clock = time.monotonic
    until, at = clock() + LONGEST, 0
    for number, index in enumerate(range(first, stop)):
        counters[BEGUN] = number + 1
        if number >= counters[LIMIT]:
            counters[BEGUN] = number
            return
        kind = batches.VALUE
        try:
            args, kwargs = arguments(index)
            value = function(*args, **kwargs)
            if hasattr(type(value), "__await__"):
                value = settle(value)
            if calls.compared:
                premises.look(calls.run, again=True, void=True)
        except Waits as error:
            kind, blob = batches.WAITS, json.dumps(error.call).encode()
        except BaseException as error:  # noqa: BLE001 - whatever the function raises is its outcome
            kind, blob = _encoded(_tried_again(calls, index, trouble(error)))
        else:
            kind, blob = _pickled(value)
        if rundir.size_of(blob) > LARGE:
            _write_alone(calls, index, blob)
            kind, blob = batches.ELSEWHERE, b""
        data[at : at + len(blob)] = blob
        words[number] = kind | len(blob)
        counters[DONE] = number + 1
        at += len(blob)
        if clock() > until or at > DATA - LARGE or calls.stop.signal is not None:
            return


#: Most values are small, and need no more than this.
_SIMPLE = (int, float, complex, bool, type(None))


def _pickled(value: Any) -> Tuple[int, Any]:
    if type(value) in _SIMPLE:
        return batches.VALUE, pickle.dumps(value, protocol=5)
    return _encoded(kept(value))


_Outcome = Tuple[str, Dict[str, Any], Any, int]


def _tried_again(calls: Calls, index: int, outcome: _Outcome) -> _Outcome:
    """The outcome of an item that raised, after the retries that its task allows."""
    rules = calls.retry or {"times": 0}
    for number in range(rules["times"]):
        worth_it = set(outcome[1].get("types") or ()) & set(rules["on"])
        if outcome[0] != rundir.ERROR or not worth_it or calls.stop.signal is not None:
            break
        time.sleep(rules["backoff"] * 2**number)
        try:
            args, kwargs = calls.arguments(index)
            value = settle(calls.function(*args, **kwargs))
            if calls.compared:
                premises.look(calls.run, again=True, void=True)
        except BaseException as error:  # noqa: BLE001 - whatever the function raises is its outcome
            outcome = trouble(error)
        else:
            return kept(value)
    return outcome


def _encoded(outcome: _Outcome) -> Tuple[int, Any]:
    kind, header, payload, _ = outcome
    if kind == rundir.VALUE:
        return batches.VALUE, payload
    return batches.TROUBLE, batches.encode_trouble(kind, header, payload, LARGE)


def _write_alone(calls: Calls, index: int, blob: Any) -> None:
    """Write a large value as a record of its own; who cannot ends with the code that says so."""
    try:
        python = "{}.{}.{}".format(*sys.version_info[:3])
        who = calls.who._replace(index=index)
        rundir.append_record(calls.run, who, rundir.VALUE, {"python": python}, blob)
    except OSError as error:
        say(f"slurm-sdk: the result could not be written: {error}\n")
        os._exit(rundir.EXIT_NOT_WRITTEN)


def _scatter_random() -> None:
    """Give numpy's global generator a state of this worker's own; `random` does it by itself."""
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()


def _leave() -> None:
    """End without running what the parent registered for its own exit."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(
            Exception
        ):  # the log may be full or closed: nobody is left to tell
            stream.flush()
    ended = getattr(sys.modules.get("multiprocessing.util"), "_exit_function", None)
    if ended is not None:
        ended()
    os._exit(0)
