"""Large pickles: written piece by piece without a copy, and read from where they lie in a file.

The large buffers of a value (pickle protocol 5, out of band) lie behind its pickle, each where
memory that is mapped from the file is aligned. A process that loads such a value maps them
privately: it may change them, and processes of one node share what none has changed.
"""

import os
import struct
import zlib

from slurm.rundir.private import open_trusted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Iterable, Iterator, List, Optional, Tuple, Union

    Content = Union[bytes, "Pieces"]
    #: Makes what unpickles: of a stream and of the buffers that lie apart.
    Load = Callable[[Any, List[Any]], Any]

#: What is larger is neither put together nor read as a whole where it can be avoided.
SMALL = 1 << 20
_MAGIC = b"\xf5SdKbuf1"
_HEAD = struct.Struct(">QQ")
_SIZE = struct.Struct(">Q")
#: Vector units like it, and no page is cut by it.
_ALIGN = 64
_CHUNK = 1 << 20


class Pieces(tuple):  # type: ignore[type-arg]
    """Bytes in several pieces, in their order."""

    @property
    def size(self) -> int:
        """How many bytes they are."""
        return sum(memoryview(piece).nbytes for piece in self)


def size_of(content: "Content") -> int:
    """How many bytes a content has."""
    return content.size if isinstance(content, Pieces) else len(content)


def pieces_of(content: "Content") -> "Iterable[Any]":
    """The pieces of a content."""
    return content if isinstance(content, Pieces) else (content,)


def joined(content: "Content") -> bytes:
    """A content in one, as a copy that no later change of a buffer reaches."""
    return b"".join(content) if isinstance(content, Pieces) else content


def checksum(content: "Content") -> int:
    """The checksum of a content."""
    crc = 0
    for piece in pieces_of(content):
        crc = zlib.crc32(piece, crc)
    return crc


def pack(pickled: "List[Any]", buffers: "List[Any]") -> Pieces:
    """A pickle and the buffers that belong to it, as they are written."""
    size = sum(len(piece) for piece in pickled)
    table = [_SIZE.pack(buffer.nbytes) for buffer in buffers]
    pieces = [_MAGIC, _HEAD.pack(size, len(buffers)), *table, *pickled]
    at = len(_MAGIC) + _HEAD.size + _SIZE.size * len(buffers) + size
    for buffer in buffers:
        gap = -at % _ALIGN
        pieces += [bytes(gap), buffer]
        at += gap + buffer.nbytes
    return Pieces(pieces)


def is_packed(content: "Content") -> bool:
    """Whether buffers lie behind the pickle, so that it has to begin where memory is aligned."""
    first = content[0] if isinstance(content, Pieces) else content
    return bytes(first[: len(_MAGIC)]) == _MAGIC


def gap_before(content: "Content", at: int) -> int:
    """How many bytes have to be left out before a content, if it would begin at `at`."""
    return -at % _ALIGN if is_packed(content) else 0


def _places(head: bytes, count: int) -> "Iterator[Tuple[int, int]]":
    """Where each buffer begins, from the start of the pickle's own header, and its size."""
    (size, _) = _HEAD.unpack_from(head, len(_MAGIC))
    table = len(_MAGIC) + _HEAD.size
    at = table + _SIZE.size * count + size
    for number in range(count):
        (length,) = _SIZE.unpack_from(head, table + _SIZE.size * number)
        at += -at % _ALIGN
        yield at, length
        at += length


def load_packed(data: bytes, load: "Load") -> "Any":
    """The object of a packed pickle that is in memory; what it holds is its own."""
    import io

    size, count = _HEAD.unpack_from(data, len(_MAGIC))
    start = len(_MAGIC) + _HEAD.size + _SIZE.size * count
    view = memoryview(data)
    buffers = [bytearray(view[at : at + length]) for at, length in _places(data, count)]
    return load(io.BytesIO(view[start : start + size]), buffers)


class Stretch:
    """A large pickle in a file that only this user can have written: loaded, never read as one.

    `group`: one whose members are trusted, too.
    """

    def __init__(self, path: str, start: int, size: int, group: "Optional[int]" = None) -> None:
        self._path = path
        self._group = group
        self._start = start
        self._size = size

    def load(self, load: "Load", own: bool = False) -> "Any":
        """Unpickle it. `own`: its buffers are read into memory, and need the file no more."""
        with open_trusted(self._path, self._group) as f:
            f.seek(self._start)
            head = f.read(len(_MAGIC) + _HEAD.size)
            if not is_packed(head):
                f.seek(self._start)
                return load(f, [])
            _, count = _HEAD.unpack_from(head, len(_MAGIC))
            if _SIZE.size * count > self._size:
                raise ValueError(f"{self._path} is damaged: a table of buffers is not whole")
            head += f.read(_SIZE.size * count)
            places = list(_places(head, count))
            if any(at + length > self._size for at, length in places):
                raise ValueError(f"{self._path} is damaged: a buffer is not whole")
            buffers = self._read(f, places) if own else self._map(f, places)
            f.seek(self._start + len(head))
            return load(f, buffers)

    def _map(self, f: "Any", places: "List[Tuple[int, int]]") -> "List[Any]":
        import mmap

        first = (self._start // mmap.ALLOCATIONGRANULARITY) * mmap.ALLOCATIONGRANULARITY
        length = self._start + self._size - first
        try:
            mapped = mmap.mmap(f.fileno(), length, access=mmap.ACCESS_COPY, offset=first)
        except OSError:  # a file system without it, or a limit of memory that counts maps
            return self._read(f, places)
        view, at = memoryview(mapped), self._start - first
        return [view[at + start : at + start + size] for start, size in places]

    def _read(self, f: "Any", places: "List[Tuple[int, int]]") -> "List[Any]":
        import mmap

        found = []
        for start, size in places:
            memory = memoryview(mmap.mmap(-1, size))
            f.seek(self._start + start)
            done = 0
            while done < size:
                count = f.readinto(memory[done : done + (64 << 20)])
                if not count:
                    raise ValueError(f"{self._path} is cut short")
                done += count
            found.append(memory)
        return found

    def read(self) -> bytes:
        """All of it, where it is no pickle."""
        with open_trusted(self._path, self._group) as f:
            f.seek(self._start)
            return f.read(self._size)  # type: ignore[no-any-return]

    def check(self, size: int, crc: int) -> bool:
        """Whether its bytes are what their writer says."""
        chunk = memoryview(bytearray(_CHUNK))
        found, left = 0, self._size
        with open_trusted(self._path, self._group) as f:
            if os.fstat(f.fileno()).st_size < self._start + self._size:
                return False
            f.seek(self._start)
            while left:
                count = f.readinto(chunk[: min(left, _CHUNK)])
                if not count:
                    return False
                found, left = zlib.crc32(chunk[:count], found), left - count
        return self._size == size and found == crc

    def names(self, word: bytes) -> bool:
        """Whether the pickle, without what lies behind it, contains a word."""
        with open_trusted(self._path, self._group) as f:
            f.seek(self._start)
            head = f.read(len(_MAGIC) + _HEAD.size)
            left = self._size
            if is_packed(head):
                left, count = _HEAD.unpack_from(head, len(_MAGIC))
                f.seek(_SIZE.size * count, os.SEEK_CUR)
            else:
                f.seek(self._start)
            before = b""
            while left:
                chunk = f.read(min(left, _CHUNK))
                if not chunk:
                    return False
                if word in before + chunk:
                    return True
                before, left = chunk[-len(word) :], left - len(chunk)
        return False


def names(content: "Any", word: bytes) -> bool:
    """Whether a pickle contains a word, as the name of a module that it needs."""
    if isinstance(content, Pieces):
        return any(word in piece for piece in content if isinstance(piece, bytes))
    return content.names(word) if isinstance(content, Stretch) else word in content
