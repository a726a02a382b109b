"""What a module reads when it is imported: the job compares before its value is kept."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

#: How a module takes what a file says, where `g` reads it.
HELPERS = {
    "a value": "T = read()\ndef g(): return T['k']\n",
    "a table that is filled": "T = {}\nT.update(read())\ndef g(): return T['k']\n",
    "a class": "class C:\n    t = read()\ndef g(): return C.t['k']\n",
    "a default": "def g(t=read()): return t['k']\n",
    "an enumeration": "import enum\nE = enum.Enum('E', read())\ndef g(): return E.k.value\n",
    "a named tuple": "import collections as c\nN = c.namedtuple('N', 'k', defaults=[read()['k']])\n"
    "def g(): return N().k\n",
    "a name that is gone": "_t = read()\nT = _t['k'] + 0\ndel _t\ndef g(): return T\n",
    "a class in a branch": "if read()['k'] == 1:\n    class C:\n        k = 1\n"
    "else:\n    class C:\n        k = 2\ndef g(): return C.k\n",
    "a base": "class A: k = 1\nclass B: k = 2\nclass C((None, A, B)[read()['k']]): pass\n"
    "def g(): return C.k\n",
    "a factory of a field": "import dataclasses as d\n_t = read()\n@d.dataclass\nclass C:\n"
    "    t: dict = d.field(default_factory=_t.copy)\ndel _t\ndef g(): return C().t['k']\n",
    "what globals() takes": "globals()['T'] = read()['k']\ndef g(): return globals()['T']\n",
    "a context variable": "import contextvars as c\nV = c.ContextVar('V', default=read()['k'])\n"
    "def g(): return V.get()\n",
    "a file that was closed": "with open(__file__) as f: T = read()\ndef g(): return T['k']\n",
}
_READ = """
import json, os, pathlib
def read():
    return json.loads(pathlib.Path({data!r}).read_text())
"""
_PROJECT = """
[project]
name = "probe"
version = "1"
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"
[tool.setuptools]
py-modules = ["tasks", "helper"]
"""
_MAIN = """
import json, pathlib, sys
import slurm
import tasks

if __name__ == "__main__":
    base, first, later, call, packaging = sys.argv[1:]
    data = pathlib.Path({data!r})
    with slurm.Cluster("embedded", job_base_dir=base, packaging=packaging) as cluster:
        data.write_text(json.dumps({{"k": int(later)}}))
        if call == "call":
            jobs = [tasks.f(1)]
        elif call == "map":
            jobs = list(tasks.f.map([1, 2]))
        elif call == "batch":
            with cluster.batch():
                jobs = [tasks.f(1), tasks.f(2)]
        elif call == "ranks":
            jobs = [tasks.f.with_options(ntasks=2)(1)]
        else:
            packed = tasks.f.map([1, 2, 3], pack=3)
            print(json.dumps([packed.results(timeout=100), [job.cached for job in packed], ""]))
            raise SystemExit
        values = [job.result(timeout=100) for job in jobs]
        said = "" if jobs[0].cached else jobs[0].stderr()
        print(json.dumps([values, [job.cached for job in jobs], said]))
"""


class Program(NamedTuple):
    """A program whose module reads a file when it is imported."""

    folder: Path
    base: Path
    data: Path

    def run(
        self, now: int, later: int | None = None, call: str = "call", packaging: str = "auto"
    ) -> tuple[list[int], list[bool], str]:
        """Values, whether they were found, and the job's log; the file changes to `later`."""
        self.data.write_text(json.dumps({"k": now}))
        given = [str(self.base), str(now), str(now if later is None else later), call, packaging]
        done = subprocess.run(
            [sys.executable, "main.py", *given],
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=170,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        values, cached, said = json.loads(done.stdout.splitlines()[-1])
        return values, cached, said + done.stderr


def write(tmp_path: Path, helper: str, lazy: bool = False) -> Program:
    found = Program(tmp_path / "code", tmp_path / "jobs", tmp_path / "data.json")
    found.folder.mkdir()
    (found.folder / "helper.py").write_text(_READ.format(data=str(found.data)) + helper)
    top, inner = ("", "    import helper\n") if lazy else ("import helper\n", "")
    (found.folder / "tasks.py").write_text(
        f"from slurm import task\n{top}@task(cache=True)\ndef f(x):\n{inner}    return helper.g()\n"
    )
    (found.folder / "main.py").write_text(_MAIN.format(data=str(found.data)))
    return found


@pytest.mark.parametrize("packaging", ["auto", pytest.param("none", marks=pytest.mark.full)])
@pytest.mark.parametrize(
    "call",
    [
        "call",
        "pack",
        *(pytest.param(call, marks=pytest.mark.full) for call in ("map", "batch", "ranks")),
    ],
)
def test_a_value_of_a_file_that_changed_before_the_job_read_it_is_not_kept(
    tmp_path: Path, call: str, packaging: str
) -> None:
    program = write(tmp_path, HELPERS["a value"])
    values, _, said = program.run(1, later=2, call=call, packaging=packaging)
    assert set(values) == {2}
    assert call == "pack" or "helper.T is another value here" in said
    values, cached, _ = program.run(1, call=call, packaging=packaging)
    assert (set(values), any(cached)) == ({1}, False)
    values, cached, _ = program.run(1, call=call, packaging=packaging)
    assert (set(values), all(cached)) == ({1}, True)
    values, cached, _ = program.run(2, call=call, packaging=packaging)
    assert (set(values), any(cached)) == ({2}, False)


@pytest.mark.parametrize(
    "helper",
    [pytest.param(name, marks=[] if name == "a class" else [pytest.mark.full]) for name in HELPERS],
)
def test_all_that_an_import_makes_of_a_file_is_compared(tmp_path: Path, helper: str) -> None:
    program = write(tmp_path, HELPERS[helper])
    assert program.run(1, later=2)[0] == [2]
    assert program.run(1)[:2] == ([1], [False])
    assert program.run(1)[:2] == ([1], [True])


def test_a_module_that_only_the_job_imports_and_that_reads_a_file_is_not_cached(
    tmp_path: Path,
) -> None:
    program = write(tmp_path, HELPERS["a value"], lazy=True)
    values, _, said = program.run(1)
    assert values == [1]
    assert "import helper where the task is defined" in said
    assert program.run(2)[:2] == ([2], [False])


def test_paths_below_the_code_are_the_same_wherever_it_lies(tmp_path: Path) -> None:
    here = "HERE = pathlib.Path(__file__).parent\ndef g(): return HERE.name == 'x'\n"
    program = write(tmp_path, here)
    (program.folder / "pyproject.toml").write_text(_PROJECT)
    assert program.run(1)[1] == [False]
    assert program.run(1)[1] == [True]


@pytest.mark.full
@pytest.mark.timeout(600)
def test_in_a_wheel_what_an_import_reads_counts_as_well(tmp_path: Path) -> None:
    program = write(tmp_path, HELPERS["a value"] + "HERE = os.path.dirname(__file__)\n")
    (program.folder / "pyproject.toml").write_text(_PROJECT)
    assert program.run(1, later=2, packaging="wheel")[0] == [2]
    assert program.run(1, packaging="wheel")[:2] == ([1], [False])
    assert program.run(1, packaging="wheel")[:2] == ([1], [True])
    assert program.run(2, packaging="wheel")[:2] == ([2], [False])
