"""Tables of squeue and sacct in which no value can pass for a field, a row or a column.

A user chooses a job's name, comment and paths, and each may hold line breaks and control
characters. So every field of an answer ends with a mark that is made for this one question: no
job that was submitted before can hold it. This file is also sent to login nodes and runs on
Python 3.6.
"""

import os
from typing import Callable, Generic, Iterable, List, Sequence, TypeVar

T = TypeVar("T")


class UnreadableAnswer(ValueError):
    """A Slurm command answered with text in a form we do not know; nothing was guessed."""


class Question(Generic[T]):
    """A command, and how its answer is read."""

    def __init__(self, command: List[str], read: Callable[[str], T]) -> None:
        """`read` takes what the command printed."""
        self.command = command
        self.read = read


def new_mark() -> str:
    """What ends each field of one answer. It begins with no digit: squeue would read a width."""
    return "\x1f" + os.urandom(8).hex() + "\x1e"


def squeue(
    fields: Sequence[str],
    options: Iterable[str],
    read: Callable[[List[List[str]]], T],
    mark: str = "",
) -> Question[T]:
    """Ask squeue for these fields of its `-O`; `read` takes the rows."""
    end = mark or new_mark()
    # A field with a suffix and no width comes whole, since Slurm 20.02.
    form = ",".join(field + ":" + end for field in fields)
    command = ["squeue", "-h", *options, "-O", form]
    return Question(command, lambda text: read(rows("squeue", text, len(fields), end)))


def sacct(
    fields: Sequence[str],
    options: Iterable[str],
    read: Callable[[List[List[str]]], T],
    mark: str = "",
) -> Question[T]:
    """Ask accounting for these fields; `read` takes the rows."""
    end = mark or new_mark()
    # -p and not -P: the last field ends with the mark as well.
    command = ["sacct", "-n", "-p", "--delimiter", end, *options, "-o", ",".join(fields)]
    return Question(command, lambda text: read(rows("sacct", text, len(fields), end)))


def rows(program: str, text: str, count: int, mark: str) -> List[List[str]]:
    """The rows of an answer, each of `count` fields; what does not fit is refused."""
    fields = text.split(mark)
    rest = fields.pop()
    if rest.strip():
        raise UnreadableAnswer("{}'s answer ends within a row: {!r}".format(program, rest[-200:]))
    if len(fields) % count:
        raise UnreadableAnswer(
            "{} answered with a row we do not know: {!r}".format(program, fields[-1][:200])
        )
    found = [fields[i : i + count] for i in range(0, len(fields), count)]
    for row in found:
        # A row begins on a line of its own. With -M a line "CLUSTER: name" stands above the rows
        # of each cluster.
        row[0] = row[0].rpartition("\n")[2]
    return found
