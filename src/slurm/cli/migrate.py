"""`slurm migrate FILE`: the edits that a program of slurm-sdk 0.4 needs, as a diff."""

from __future__ import annotations

import difflib
import io
import tokenize
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from slurm.cli.frame import FORM, Form, Said
from slurm.cli.screen import Screen
from slurm.errors import UsageError


@dataclass(frozen=True)
class Edits(Said):
    """What was proposed, or written."""

    diff: Annotated[str, "The edits, as a unified diff; empty where there are none."]
    by_hand: Annotated[tuple[str, ...], "What needs a decision: line, and what to do."]
    written: Annotated[bool, "Whether the file was changed."]

    def lines(self, screen: Screen) -> Iterable[str]:
        """The diff as it is: a wrapped line is none that `patch` takes."""
        return self.message.splitlines()


def migrate(
    file: Annotated[Path, Parameter(name="FILE", help="A program written for slurm-sdk 0.4.")],
    *,
    write: Annotated[bool, Parameter(negative="", help="Change the file.")] = False,
    form: Form = FORM,
) -> Edits:
    """Show the edits that a program of slurm-sdk 0.4 needs; the file stays as it is.

    What needs a decision of yours is listed with its line. Needs the extra `migrate`.
    """
    from slurm import migration

    try:
        raw = file.read_bytes()
        encoding, _ = tokenize.detect_encoding(io.BytesIO(raw).readline)
        before = raw.decode(encoding)
    except (OSError, SyntaxError, UnicodeDecodeError) as error:
        raise UsageError(f"{file} cannot be read: {error}", hint="name a Python file") from error
    made = migration.migrate_checked(before, str(file))
    lines = difflib.unified_diff(
        before.splitlines(keepends=True),
        made.text.splitlines(keepends=True),
        str(file),
        f"{file} (migrated)",
    )
    diff = "".join(lines)
    written = write and made.text != before
    if written:
        file.write_bytes(made.text.encode(encoding))
    places = _lines_after(before, made.text) if written else {}
    by_hand = tuple(f"{file}:{places.get(line, line)}: {what}" for line, what in made.by_hand)
    done = f"wrote {file}" if written else diff or f"{file}: nothing to rename"
    text = "\n".join([done.rstrip("\n"), *(["", "by hand:", *by_hand] if by_hand else [])])
    return Edits(True, text, diff, by_hand, written)


def _lines_after(before: str, after: str) -> dict[int, int]:
    """Where each line of the file stands once it is written; a changed one where its change is."""
    old, new = before.splitlines(), after.splitlines()
    places: dict[int, int] = {}
    for _, start, end, first, last in difflib.SequenceMatcher(a=old, b=new).get_opcodes():
        for line in range(start, end):
            moved = first + min(line - start, max(last - first - 1, 0))
            places[line + 1] = min(moved, max(len(new) - 1, 0)) + 1
    return places
