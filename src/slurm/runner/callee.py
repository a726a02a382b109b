"""What a warm worker does: it reads calls from a socket, runs them and sends back the outcomes."""

import os
import socket
import struct
import time
from typing import Any, Dict, Iterator, List, Tuple

from slurm import rundir
from slurm.importing import Importing
from slurm.runner import run as runner
from slurm.runner.trouble import trouble

#: Kinds of frames; those that come back are the kinds of records.
FUNCTION, CALL, FORGET = "f", "c", "x"
_KINDS = {FUNCTION: 0, CALL: 1, rundir.VALUE: 2, rundir.ERROR: 3, rundir.EXIT: 4, FORGET: 5}
_NAMES = {number: name for name, number in _KINDS.items()}
_FRAME = struct.Struct("=BQQQ")


def encode_frame(kind: str, number: int, detail: int, data: bytes) -> bytes:
    """One frame: its kind, two numbers and bytes."""
    return _FRAME.pack(_KINDS[kind], number, detail, len(data)) + data


class Frames:
    """Puts frames together again out of the pieces that a socket gives."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> Iterator[Tuple[str, int, int, bytes]]:
        """The frames that are whole now: kind, both numbers and bytes."""
        self._data += data
        at = 0
        while len(self._data) - at >= _FRAME.size:
            kind, number, detail, size = _FRAME.unpack_from(self._data, at)
            if len(self._data) - at - _FRAME.size < size:
                break
            start = at + _FRAME.size
            at = start + size
            yield _NAMES[kind], number, detail, bytes(self._data[start:at])
        del self._data[:at]


def encode_detail(function: int, chunk: bool, apart: bool) -> int:
    """The second number of a call; `apart`: its bytes are the name of a file with the arguments."""
    return function << 2 | chunk << 1 | apart


def work(connection: socket.socket, job: str) -> None:
    """Serve calls until the other side is gone."""
    stream = connection.makefile("rb")
    functions = {}  # type: Dict[int, _Function]
    while True:
        head = stream.read(_FRAME.size)
        if len(head) < _FRAME.size:
            return
        kind, number, detail, size = _FRAME.unpack(head)
        data = stream.read(size)
        if _NAMES[kind] == FUNCTION:
            functions[number] = _Function(data)
        elif _NAMES[kind] == FORGET:
            functions.pop(number, None)
        else:
            began = time.monotonic()
            outcome, body = _call(functions[detail >> 2], data, detail, f"{job}.{number}.call.pkl")
            spent = int(1e6 * (time.monotonic() - began))
            connection.sendall(encode_frame(outcome, number, spent, body))
        # What a call was given and what came of it is not kept until the next one.
        data = body = b""


def _call(function: "_Function", data: bytes, detail: int, name: str) -> Tuple[str, bytes]:
    """The kind of an outcome, and its header and payload; a large value goes to a file."""
    run = os.environ["SLURM_SDK_RUN"]
    blob = data  # type: Any
    if detail & 1:
        path = data.decode()
        blob = rundir.Stretch(path, 0, os.path.getsize(path))
    outcome, header, payload, _ = function.call(run, blob, chunk=bool(detail & 2))
    if rundir.size_of(payload) > rundir.LARGE:
        try:
            header = dict(header, **rundir.store_value(run, name, payload))
        except OSError as error:
            outcome = rundir.ERROR
            header = {
                "error": "ResultNotWritten",
                "message": f"the value of the call could not be written: {error}",
                "hint": "make room on the file system of the base directory",
            }
        payload = b""
    return outcome, rundir.encode_function(header, payload)


class _Function:
    """A function that is loaded when it is first called."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._loaded = None  # type: Any
        self._inject = None  # type: Any

    def _load(self) -> Any:
        if self._loaded is None:
            header, pickled = rundir.decode_function(self._data, "a function")
            runner.extend_path(header)
            with Importing(header["target"].partition(":")[0]):
                self._loaded = runner.get_function(header, pickled)
            self._inject = header.get("context")
        return self._loaded

    def call(self, run: str, data: Any, chunk: bool) -> Tuple[str, Dict[str, Any], Any, int]:
        """The outcome of one call, or of a chunk of calls, whose values come as one list."""
        from slurm.runner.arguments import load_arguments

        base = os.environ["SLURM_SDK_BASE"]
        try:
            function = self._load()
            with Importing("a module of the arguments"):
                args, kwargs = load_arguments(data, run, base)
            if chunk:
                value = [self._one(function, list(one), {}) for one in args]  # type: Any
            else:
                value = self._one(function, list(args), kwargs)
        except BaseException as error:  # noqa: BLE001 - whatever the function raises is its outcome
            return trouble(error)
        return runner.kept(value)

    def _one(self, function: Any, args: List[Any], kwargs: Dict[str, Any]) -> Any:
        if self._inject:
            from slurm.context import JobContext

            name, position = self._inject
            if name not in kwargs and position is not None and len(args) >= position:
                args.insert(position, JobContext.from_environment())
            else:
                kwargs.setdefault(name, JobContext.from_environment())
        return runner.settle(function(*args, **kwargs))
