"""Progress: live lines on a terminal and in a notebook, and not a letter anywhere else."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest

PROGRAM = """
import sys, time
from slurm import Cluster, task

@task
def nap(seconds):
    time.sleep(seconds)
    return seconds

@task
def fail(seconds):
    time.sleep(seconds)
    raise ValueError("no")

with Cluster("embedded", job_base_dir=sys.argv[1]):
    print("value", nap(1.2).result())
    array = nap.map([0.1, 0.1, 0.8])
    print("values", array.results())
    bad = fail(1)
    print("error", bad.exception())
    quick = nap(0)
    print("end")
"""


def on_a_terminal(folder: Path, env: dict[str, str], columns: int = 80) -> str:
    """What a person sees of the program, live lines and all."""
    program = folder / "program.py"
    program.write_text(PROGRAM)
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, str(program), str(folder / "jobs")],
        stdout=theirs,
        stderr=theirs,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": str(columns), **env},
    )
    os.close(theirs)
    seen, until = b"", time.monotonic() + 120
    while time.monotonic() < until:
        if select.select([ours], [], [], 0.5)[0]:
            try:
                data = os.read(ours, 65536)
            except OSError:  # the other side is closed
                break
            seen += data
            if not data:
                break
        elif process.poll() is not None:
            break
    process.wait(60)
    os.close(ours)
    assert process.returncode == 0, seen.decode(errors="replace")
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen.decode(errors="replace"))


def test_a_terminal_shows_one_line_per_run_and_leaves_how_each_ended(tmp_path: Path) -> None:
    seen = on_a_terminal(tmp_path, {"PYTHONIOENCODING": "utf-8", "LC_ALL": "C.UTF-8"})
    assert re.search(r"[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏] nap \d+  (submitted|RUNNING|PENDING)", seen)
    assert re.search(r"✓ nap \d+  0:0\d", seen)
    assert re.search(r"[━─]+ \d/3", seen)
    assert re.search(r"✓ nap \d+ ━+ 3/3", seen)
    assert re.search(r"✗ fail \d+  FAILED", seen)
    lines = [line.strip() for line in seen.replace("\r", "\n").splitlines()]
    assert [line for line in lines if line.startswith(("value", "error", "end"))] == [
        "value 1.2",
        "values [0.1, 0.1, 0.8]",
        "error no",
        "end",
    ]


@pytest.mark.full
def test_one_switch_turns_it_off(tmp_path: Path) -> None:
    seen = on_a_terminal(tmp_path, {"SLURM_SDK_PROGRESS": "0"})
    assert seen.replace("\r", "").splitlines() == [
        "value 1.2",
        "values [0.1, 0.1, 0.8]",
        "error no",
        "end",
    ]


@pytest.mark.full
def test_a_narrow_terminal_without_utf8_gets_plain_lines_that_fit(tmp_path: Path) -> None:
    env = {
        "LC_ALL": "C",
        "PYTHONIOENCODING": "ascii",
        "PYTHONUTF8": "0",
        "PYTHONCOERCECLOCALE": "0",
    }
    seen = on_a_terminal(tmp_path, env, columns=40)
    assert seen.isascii()
    assert re.search(r"\+ nap \d+  0:0\d", seen)
    assert [line for line in re.split(r"[\r\n]+", seen) if len(line) > 40] == []


def test_a_pipe_gets_nothing_but_what_the_program_prints(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, str(program), str(tmp_path / "jobs")],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stderr == ""
    assert done.stdout.splitlines()[0] == "value 1.2"


NOTEBOOK = [
    "import asyncio, time\nfrom slurm import Cluster, task\n"
    'cluster = Cluster("embedded", job_base_dir=BASE)',
    "@task\ndef nap(s):\n    time.sleep(s)\n    return s\n\n@task\nasync def soon(s):\n"
    "    await asyncio.sleep(s)\n    return s",
    "cluster",
    "with cluster:\n    job = nap(1.5)\n    array = nap.map([0.1, 0.2])\njob.result()",
    "job",
    "array.results(); array",
    "with cluster:\n    one, two = soon(0.1), soon(0.2)\nawait asyncio.gather(one, two)",
    'with Cluster("debug"):\n    value = soon(0.1).result()\nvalue',
]


def test_a_notebook_shows_jobs_and_progress_and_awaits_them(tmp_path: Path) -> None:
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    book = nbformat.v4.new_notebook()
    cells = [NOTEBOOK[0].replace("BASE", repr(str(tmp_path / "jobs"))), *NOTEBOOK[1:]]
    book.cells = [nbformat.v4.new_code_cell(cell) for cell in cells]
    client = nbclient.NotebookClient(
        book, timeout=120, resources={"metadata": {"path": str(tmp_path)}}
    )
    client.execute()
    outputs = [
        [{**output.get("data", {}), "stream": output.get("text", "")} for output in cell.outputs]
        for cell in book.cells
    ]
    html = ["".join(o.get("text/html", "") for o in cell) for cell in outputs]
    assert "Cluster · embedded" in html[2]
    assert "<b>nap</b>" in html[3] and "✓" in html[3], outputs[3]
    assert outputs[3][-1]["text/plain"] == "1.5"
    assert "COMPLETED" in html[4] and "nap · job" in html[4]
    assert "2 COMPLETED" in html[5] and "nap · 2 items" in html[5]
    assert outputs[6][-1]["text/plain"] == "[0.1, 0.2]"
    assert outputs[7][-1]["text/plain"] == "0.1"
