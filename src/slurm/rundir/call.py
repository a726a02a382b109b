"""A call as files: its function, and the arguments of all calls, each found by its index."""

import _pickle  # the part of pickle that is written in C: the other one imports re
import os
import struct

from slurm.rundir.names import ARGUMENTS, FUNCTION
from slurm.rundir.pieces import SMALL, Pieces, Stretch, gap_before, joined, pieces_of, size_of
from slurm.rundir.private import open_trusted, read_trusted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Sequence, Tuple

    from slurm.rundir.pieces import Content


_ARGS_MAGIC = b"slurm-args-1\n"
_U64 = struct.Struct(">Q")
_TWO_U64 = struct.Struct(">QQ")


def encode_arguments(blobs: "Sequence[Content]") -> "Content":
    """All calls' pickled arguments as one indexed file: entry i is found without reading others."""
    offset = len(_ARGS_MAGIC) + _U64.size * (len(blobs) + 2)
    table, pieces = [_U64.pack(len(blobs))], []  # type: List[bytes], List[Any]
    for blob in blobs:
        # An entry ends where the next one begins: what lies behind a pickle does not disturb it.
        gap = gap_before(blob, offset)
        table.append(_U64.pack(offset + gap))
        pieces += [bytes(gap), *pieces_of(blob)]
        offset += gap + size_of(blob)
    table.append(_U64.pack(offset))
    whole = Pieces([_ARGS_MAGIC, *table, *pieces])
    return whole if offset > SMALL else joined(whole)


def read_arguments(run: str, index: int, file: str = ARGUMENTS) -> "Any":
    """The pickled arguments of call `index`; of `SHARED`: what calls of a map have in common.

    What is large is not read: it is loaded from where it lies.
    """
    path = os.path.join(run, file)
    with _open_arguments(path) as f:
        try:
            (count,) = _U64.unpack(f.read(_U64.size))
            if not 0 <= index < count:
                raise ValueError(f"{path} has {count} entries; entry {index} was asked for")
            f.seek(len(_ARGS_MAGIC) + _U64.size * (1 + index))
            start, end = _TWO_U64.unpack(f.read(_TWO_U64.size))
        except struct.error as error:
            raise ValueError(f"{path} is cut short: its table is not whole") from error
        # A table that is damaged may name more than any memory holds.
        if not start <= end <= os.fstat(f.fileno()).st_size:
            raise ValueError(f"{path} is cut short: entry {index} is not whole")
        if end - start > SMALL:
            return Stretch(path, start, end - start)
        f.seek(start)
        return bytes(f.read(end - start))


def _open_arguments(path: str) -> "Any":
    """The file, opened behind the first bytes that mark it."""
    f = open_trusted(path)
    if f.read(len(_ARGS_MAGIC)) != _ARGS_MAGIC:
        f.close()
        raise ValueError(f"{path} is not an argument file of this package")
    return f


class ArgumentFile:
    """All calls' pickled arguments, mapped into memory: many are read without many opens."""

    def __init__(self, run: str) -> None:
        import mmap

        self._path = path = os.path.join(run, ARGUMENTS)
        with _open_arguments(path) as f:
            self._data = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)
        try:
            (count,) = _U64.unpack_from(self._data, len(_ARGS_MAGIC))
            (end,) = _U64.unpack_from(self._data, len(_ARGS_MAGIC) + _U64.size * (count + 1))
        except (struct.error, OverflowError) as error:
            raise ValueError(f"{path} is cut short: its table is not whole") from error
        if end > len(self._data):
            raise ValueError(f"{path} is cut short: {len(self._data)} of {end} bytes are there")

    def __getitem__(self, index: int) -> "Any":
        at = len(_ARGS_MAGIC) + _U64.size * (1 + index)
        start, end = _TWO_U64.unpack_from(self._data, at)
        if end - start > SMALL:
            return Stretch(self._path, start, end - start)
        return self._data[start:end]


def split_arguments(data: bytes) -> "List[bytes]":
    """All entries of an argument file."""
    at = len(_ARGS_MAGIC)
    try:
        (count,) = _U64.unpack_from(data, at)
        if count >= len(data):
            raise ValueError(f"an argument file of {len(data)} bytes has no {count} entries")
        offsets = struct.unpack_from(f">{count + 1}Q", data, at + _U64.size)
    except struct.error as error:
        raise ValueError("an argument file is cut short: its table is not whole") from error
    return [data[offsets[i] : offsets[i + 1]] for i in range(count)]


_HEAD = struct.Struct(">I")


def encode_function(header: "Dict[str, Any]", pickled: bytes) -> bytes:
    """The function file: how to get the function, then its pickle where it has one.

    The header is a pickle of plain values, which the runner reads faster than JSON.
    """
    head = _pickle.dumps(header, protocol=4)
    return _HEAD.pack(len(head)) + head + pickled


def read_function(run: str) -> "Tuple[Dict[str, Any], bytes]":
    """The header and the pickle of the run's function."""
    path = os.path.join(run, FUNCTION)
    return decode_function(read_trusted(path), path)


def decode_function(data: bytes, path: str) -> "Tuple[Dict[str, Any], bytes]":
    """The header and the pickle in the bytes of a function file."""
    size = _HEAD.unpack_from(data)[0] if len(data) >= _HEAD.size else len(data)
    head, pickled = data[_HEAD.size : _HEAD.size + size], data[_HEAD.size + size :]
    if len(head) < size:
        raise ValueError(f"{path} is cut short: its header is not whole")
    try:
        return _pickle.loads(head), pickled
    except Exception as error:  # bytes that are no pickle raise many types
        raise ValueError(f"{path} is damaged: its header cannot be read") from error
