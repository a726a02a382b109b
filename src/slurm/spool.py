"""Spool: the large arguments of calls that wait lie on disk, not in memory a second time."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Iterator
from typing import Any, BinaryIO

from slurm import rundir

#: What is smaller is copied in memory.
FROM = 16 << 20
#: The most files open at a time; further content is copied in memory.
MOST_FILES = 64

_CHUNK = 1 << 20
_open: weakref.WeakSet[BinaryIO] = weakref.WeakSet()


class Spooled(rundir.Pieces):
    """A content in a file without a name, which is gone when nobody needs it any more.

    It is read piece by piece, by one thread at a time.
    """

    _file: BinaryIO
    _size: int

    @property
    def size(self) -> int:
        """How many bytes they are."""
        return self._size

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> Iterator[bytes]:
        self._file.seek(0)
        while piece := self._file.read(_CHUNK):
            yield piece


def keep(content: rundir.Content) -> rundir.Content:
    """The content as it is now, whatever its maker does with its buffers from now on."""
    if all(type(piece) is bytes for piece in rundir.pieces_of(content)):
        return content  # nothing can change it
    size = rundir.size_of(content)
    if size >= FROM and len(_open) < MOST_FILES:
        try:
            return _spooled(content, size)
        except OSError:
            pass  # no room, or no file to be had: memory is what is left
    return rundir.joined(content)


def _spooled(content: rundir.Content, size: int) -> Spooled:
    if shutil.disk_usage(tempfile.gettempdir()).free < 2 * size:
        raise OSError("a program's argument must not fill the disk")
    file: Any = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - it lives as long as the content
    for piece in rundir.pieces_of(content):
        view = memoryview(piece).cast("B")
        while view:
            view = view[file.write(view) :]
    found = Spooled()
    found._file, found._size = file, size
    _open.add(file)
    return found
