"""Reads the code blocks of a Markdown page and runs them as a reader would: one program a page."""

from __future__ import annotations

import difflib
import itertools
import re
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "llms.txt", "examples/README.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]

_BLOCK = re.compile(
    r"(?:^<!-- (?P<note>[^>]*) -->\n)?^```(?P<kind>\w*)\n(?P<text>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)

# A page is written for a laptop; a machine that runs the tests may have Slurm's packages.
_LAPTOP = "import slurm.api.connect\nslurm.api.connect._without_slurm = lambda: True\n"

# The same for the programs that a page's commands start; a job knows its scheduler.
_LAPTOP_SITE = """\
import os
if "SLURM_JOB_ID" not in os.environ:
    import slurm.api.connect
    slurm.api.connect._without_slurm = lambda: True
"""

_RAISES = """\
try:
{code}
except Exception:
    import traceback
    traceback.print_exc(file=sys.stdout)
"""


class Block(NamedTuple):
    """One fenced block: its language, its text, the comment above it, and where it begins."""

    kind: str
    text: str
    note: str
    line: int

    @property
    def excused(self) -> str:
        """The reason why this block is not run, or nothing."""
        return self.note.partition("not run: ")[2].strip()


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def on_a_laptop(env: Mapping[str, str], folder: Path) -> dict[str, str]:
    """An environment with our programs on PATH, in which every Python takes this for a laptop."""
    (folder / "sitecustomize.py").write_text(_LAPTOP_SITE)
    known = env.get("PYTHONPATH", "")
    return {
        **env,
        "PATH": f"{Path(sys.executable).parent}:{env['PATH']}",
        "PYTHONPATH": f"{folder}:{known}" if known else str(folder),
    }


def blocks_of(page: Path) -> list[Block]:
    text = page.read_text()
    found = _BLOCK.finditer(text)
    return [
        Block(m["kind"], m["text"], m["note"] or "", text[: m.start("kind")].count("\n") + 1)
        for m in found
    ]


def write_files(page: Path, folder: Path) -> None:
    """Blocks under `<!-- file: NAME -->` are files that the page's program and commands find."""
    for block in blocks_of(page):
        if block.note.startswith("file: "):
            (folder / block.note.removeprefix("file: ").strip()).write_text(block.text)


def program_of(page: Path, laptop: bool) -> tuple[str, list[tuple[Block, str | None]]]:
    """All Python blocks of a page as one program, and each block with the output it shows."""
    blocks = blocks_of(page)
    parts = ["import sys\n", _LAPTOP if laptop else ""]
    expected: list[tuple[Block, str | None]] = []
    for block, after in itertools.zip_longest(blocks, blocks[1:]):
        if block.kind != "python" or block.excused or block.note.startswith("file: "):
            continue
        shown = after.text if after is not None and after.kind == "text" else None
        raises = shown is not None and "\nTraceback (most recent call last):" in f"\n{shown}"
        code = _RAISES.format(code=textwrap.indent(block.text, "    ")) if raises else block.text
        parts.append(f"print({_mark(len(expected))!r}, flush=True)\n{code}")
        expected.append((block, shown))
    return "\n".join(parts), expected


def _mark(number: int) -> str:
    return f"---- block {number}"


def run_page(page: Path, folder: Path, env: Mapping[str, str], *, laptop: bool) -> None:
    """Run a page's program and compare what each block prints with what the page shows."""
    write_files(page, folder)
    program, expected = program_of(page, laptop)
    (folder / "first.py").write_text(program)
    done = subprocess.run(
        [sys.executable, "first.py"],
        cwd=folder,
        env=dict(env),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=150,
    )
    where = f"{page.name} ended with exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
    assert done.returncode == 0, where
    outputs = re.split(r"^---- block \d+\n", done.stdout, flags=re.MULTILINE)[1:]
    assert len(outputs) == len(expected), where
    for (block, shown), printed in zip(expected, outputs, strict=True):
        if shown is not None and stable(printed) != stable(shown):
            diff = difflib.unified_diff(
                stable(shown).splitlines(), stable(printed).splitlines(), "shown", "printed", n=9
            )
            raise AssertionError(f"{page.name}, line {block.line}\n" + "\n".join(diff))


def missing_lines(shown: str, printed: str) -> list[str]:
    """What a page shows of a command's output and the command did not print."""
    found = {line.strip() for line in stable(printed).splitlines()}
    return [line for line in stable(shown).splitlines() if line.strip() not in found]


def stable(text: str) -> str:
    """A text without what differs from machine to machine: ids, hosts, paths, line numbers."""
    # Newer Pythons underline the place in a traceback, each in its own way.
    text = re.sub(r"^[ ~^]+$\n", "", text, flags=re.MULTILINE)
    # The frame inside the SDK that raises is not what a reader looks for.
    text = re.sub(r'^  File "[^"]*/slurm/job\.py".*\n(    .*\n)+', "", text, flags=re.MULTILINE)
    text = re.sub(r'File "[^"]*", line \d+', "File", text)
    text = re.sub(r"\bjob \d+", "job N", text)
    text = re.sub(r"-\d{8}-\d{6}-[0-9a-f]{6}", "-RUN", text)
    text = re.sub(r"(?<= on )[\w.-]+$", "HOST", text, flags=re.MULTILINE)
    text = re.sub(r"(?<= on )[\w.-]+(?= \()", "HOST", text, flags=re.MULTILINE)
    text = re.sub(r"/\S*/slurm_script: line \d+", "slurm_script", text)
    text = re.sub(r"/\S*/slurm_jobs", "~/slurm_jobs", text)
    return "\n".join(line.rstrip() for line in text.strip().splitlines())
