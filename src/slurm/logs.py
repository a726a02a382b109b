"""A job's log, read through the backend: whole, its last lines, or as it grows."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator

from slurm.api.looking import Looking
from slurm.errors import SlurmError

#: So long a request for more is held where the other side can wait.
FOLLOW_HOLD = 1.0
#: How much is read for the last lines at first, and at most.
_TAIL, _TAIL_MOST = 64 << 10, 4 << 20
_KILLED_CHILD = re.compile(r"slurm_script: line \d+: +\d+ .*\( umask \$sdk_umask; trap '' ")


_LABEL = re.compile(r" *(\d+): ?")


class Log:
    """One log file of a run.

    In the log of a job with ranks srun puts `RANK: ` before each line. It is taken away, unless
    `labels` says otherwise; with `rank` only the lines of that rank are there.
    """

    def __init__(
        self,
        backend: Looking,
        run: str,
        name: str,
        *,
        labelled: bool = False,
        labels: bool = False,
        rank: int | None = None,
    ) -> None:
        self._backend = backend
        self._run = run
        self._name = name
        self._labelled = labelled and (rank is not None or not labels)
        self._rank = rank

    def _own(self, lines: list[str]) -> list[str]:
        """The lines that were asked for, as the ranks printed them."""
        if not self._labelled:
            return lines
        found = []
        for line in lines:
            label = _LABEL.match(line)
            if label is None and self._rank is None:
                found.append(line)
            elif label is not None and self._rank in (None, int(label[1])):
                found.append(line[label.end() :])
        return found

    def _blocks(self, offset: int = 0) -> Iterator[bytes]:
        while data := self._backend.read(self._run, self._name, offset):
            yield data
            offset += len(data)

    def text(self) -> str:
        """All of it so far; "" before the job starts."""
        text = b"".join(self._blocks()).decode("utf-8", "replace")
        return "\n".join(self._own(text.split("\n"))) if self._labelled else text

    def last_lines(self, count: int) -> list[str]:
        """The last lines; of very long ones only the end."""
        size = _TAIL
        while True:
            data = self._backend.read(self._run, self._name, -size)
            lines = self._own(data.decode("utf-8", "replace").splitlines())
            if len(lines) > count or len(data) < size or size >= _TAIL_MOST:
                return lines[-count:]
            size *= 4

    def last_words(self, count: int) -> list[str]:
        """The same for an error message: a log that cannot be read must not hide the reason.

        Bash's own report of a killed child is left out: it shows our script, not the user's words.
        """
        try:
            lines = self.last_lines(count + 1)
        except SlurmError:
            return []
        return [line for line in lines if not _KILLED_CHILD.search(line)][-count:]

    def follow(self, count: int, over: Callable[[], bool]) -> Iterator[str]:
        """The last lines, then each new one until the job is over."""
        offset = sum(map(len, self._blocks()))
        yield from self.last_lines(count)
        rest = ""
        while True:
            ended = over()
            data = b"".join(self._blocks(offset))
            offset += len(data)
            *whole, rest = (rest + data.decode("utf-8", "replace")).split("\n")
            yield from self._own(whole)
            if ended and not data:
                break
            if not data and not ended:
                self._await(offset)
        if rest:
            yield from self._own([rest])

    def _await(self, offset: int) -> None:
        """Wait a little for more; a backend that pushes answers when it is there."""
        if self._backend.pushes:
            self._backend.read_when(self._run, self._name, offset, FOLLOW_HOLD)
        else:
            time.sleep(0.2)
