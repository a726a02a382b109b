"""The answer of verbs that hand the terminal to something else: how that ended."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated

from slurm.cli.frame import Answer
from slurm.cli.screen import Screen


@dataclass(frozen=True)
class Ended(Answer):
    """A shell, a debugger, a full-screen program or a server has ended."""

    code: Annotated[int, "Its exit code, which is also that of `slurm`."] = 0

    @property
    def exit_code(self) -> int:
        """The same as what ended."""
        return self.code

    def lines(self, screen: Screen) -> Iterable[str]:
        """Nothing: all was said before."""
        return ()
