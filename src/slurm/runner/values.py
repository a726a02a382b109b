"""How values are pickled and unpickled: large buffers apart, and no class reset on the way."""

import _pickle

from slurm import rundir

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, List, Optional, Union

    Found = Optional[Callable[[Any], Any]]
    Pickled = Union[bytes, rundir.Stretch]

#: Buffers of so many bytes lie apart from the pickle of their value.
APART = 128 << 10


class _Sink:
    """What a pickler writes, by reference: what is large is not copied."""

    def __init__(self) -> None:
        self.pieces = []  # type: List[Any]

    def write(self, data: "Any") -> None:
        if type(data) is _pickle.PickleBuffer:
            data = data.raw()  # of some size, but not large enough to lie apart
        # A view is lent for the time of this call.
        self.pieces.append(bytes(data) if type(data) is memoryview else data)


def dump(make: "Callable[..., Any]", value: "Any") -> "rundir.Content":
    """The pickle of a value by a pickler that `make` makes: bytes, or pieces where it is large.

    The pieces are the value's own memory: they are written before it may change. What is not
    larger than `rundir.SMALL` is bytes, for records and frames that hold small values themselves.
    """
    sink = _Sink()
    buffers = []  # type: List[Any]

    def in_band(buffer: "Any") -> bool:
        raw = buffer.raw()
        if raw.nbytes < APART:
            return True
        buffers.append(raw)
        return False

    make(sink, protocol=5, buffer_callback=in_band).dump(value)
    pieces = rundir.pack(sink.pieces, buffers) if buffers else rundir.Pieces(sink.pieces)
    return pieces if pieces.size > rundir.SMALL else rundir.joined(pieces)


def dumps(value: "Any") -> "rundir.Content":
    """Pickle a value; classes that only exist in the client's script go by value."""
    try:
        return dump(_pickle.Pickler, value)
    except Exception:  # noqa: BLE001 - pickle raises many types; cloudpickle has the last word
        from slurm.runner import wrapped

        return dump(wrapped.Pickler, value)


class _Unpickler(_pickle.Unpickler):
    def __init__(self, file: "Any", find: "Found", buffers: "List[Any]") -> None:
        super().__init__(file, buffers=buffers)
        self._find = find

    def persistent_load(self, pid: "Any") -> "Any":
        if self._find is None:
            raise _pickle.UnpicklingError(f"an unexpected reference to {pid!r}")
        return self._find(pid)


def loads(data: "Pickled", update: bool = False, find: "Found" = None, own: bool = False) -> "Any":
    """The object of a pickle; classes that travel by value stay as they are where they are known.

    `update`: the pickle is a call, and what has changed in them since the last one counts.
    `find` gives what a reference stands for. `own`: nothing of it is mapped from its file.
    """
    whole = isinstance(data, bytes)
    careful = rundir.names(data, b"cloudpickle")
    if whole and not careful and find is None and not rundir.is_packed(data):  # type: ignore[arg-type]
        return _pickle.loads(data)  # type: ignore[arg-type]

    def load(stream: "Any", buffers: "List[Any]") -> "Any":
        if careful:
            from slurm.runner.classes import Unpickler

            return Unpickler(stream, update, find, buffers).load()
        return _Unpickler(stream, find, buffers).load()

    if isinstance(data, rundir.Stretch):
        return data.load(load, own)
    if rundir.is_packed(data):
        return rundir.load_packed(data, load)
    import io

    return load(io.BytesIO(data), [])
