"""Small programs, each with one change: does a value that was cached before it still count?

A file of cases is text: `# name`, `## FILE` and its content, `## call` and the lines of the client,
`## change FILE: OLD => NEW`. Where nothing else is said, each case is two programs: the task in a
module that is imported, and in the script itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).parent
CHANGES = ("functions", "classes", "imports", "values", "strange", "outside", "patches")

_RUN = """
if __name__ == "__main__":
    import sys
    from slurm import Cluster
    with Cluster(sys.argv[1], job_base_dir=sys.argv[2]):
        {lead}
        job = {call}
        print(ascii(job.result(*([60] if sys.argv[1] != "debug" else []))), job.cached)
"""


@dataclass
class Case:
    """A program, and what changes in it."""

    name: str
    files: dict[str, str] = field(default_factory=dict)
    call: str = "f(3)"
    modes: tuple[str, ...] = ("tasks", "script")
    change: tuple[str, str, str] = ("", "", "")

    def before(self, mode: str) -> dict[str, str]:
        """The files of the program."""
        files = {name: text for name, text in self.files.items() if name != "tasks.py"}
        tasks = "from slurm import task\n" + self.files["tasks.py"]
        tasks = tasks.replace("@cached", "@task(cache=True)")
        *lead, call = self.call.strip().splitlines()
        run = _RUN.format(lead="\n        ".join(lead) or "pass", call=call)
        if mode == "script":
            return {**files, "main.py": tasks + run}
        return {**files, "tasks.py": tasks, "main.py": "from tasks import *\n" + run}

    def changed(self, mode: str) -> tuple[str, str]:
        """The file that changes, and its content then."""
        file, old, new = self.change
        file = "main.py" if mode == "script" and file == "tasks.py" else file
        text = self.before(mode)[file]
        assert text.count(old) >= 1, f"{self.name}: {old!r} is not in {file}"
        return file, text.replace(old, new, 1)


def read_cases(name: str) -> Iterator[Case]:
    """The cases of a file."""
    text = (HERE / f"{name}.txt").read_text()
    for block in ("\n" + text).split("\n# ")[1:]:
        title, _, rest = block.partition("\n")
        case = Case(title.strip())
        for part in ("\n" + rest).split("\n## ")[1:]:
            head, _, body = part.partition("\n")
            word, _, more = head.partition(" ")
            if word == "change":
                file, _, change = more.partition(": ")
                old, _, new = change.partition(" =>")
                case.change = (file, _plain(old), _plain(new.removeprefix(" ")))
            elif word == "call":
                case.call = body
            elif word == "modes":
                case.modes = tuple(more.split())
            else:
                case.files[head.strip()] = body.rstrip("\n") + "\n"
        yield case


def _plain(text: str) -> str:
    return text.replace("\\n", "\n")


def all_programs(*names: str) -> list[tuple[Case, str]]:
    """All programs of some files: a case, and where its task is."""
    return [(case, mode) for name in names for case in read_cases(name) for mode in case.modes]
