"""The oldest Pythons: what runs on login nodes and in jobs parses there, and runs where found."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

import slurm
from pythons import of_version
from slurm.api import bundle

SOURCE = Path(str(slurm.__file__)).parent

# On login nodes, whose system Python may be old: the agent, and what makes an environment there.
FLOOR_3_6 = [
    *(name.partition(".")[2].replace(".", "/") for name in bundle.MODULES),
    *("runner/environment", "runner/install"),
]
# In the job, so that it can say what is wrong.
FLOOR_3_8 = [
    "importing.py",
    *sorted(str(p.relative_to(SOURCE)) for p in (SOURCE / "runner").glob("*.py")),
]
FLOOR_3_10 = sorted(str(p.relative_to(SOURCE)) for p in SOURCE.rglob("*.py"))


def _refused(names: list[str], version: tuple[int, int]) -> list[str]:
    """What an old Python says of each of these files that it cannot read."""
    found = []
    for name in names:
        try:
            ast.parse((SOURCE / name).read_text(), name, feature_version=version)
        except (SyntaxError, SyntaxWarning) as error:
            found.append(f"{name}: {error}")
    return found


def _newer_than_3_6(name: str) -> Iterator[str]:
    """What `feature_version` does not refuse."""
    for node in ast.walk(ast.parse((SOURCE / name).read_text())):
        if isinstance(node, ast.NamedExpr):
            yield f"{name}:{node.lineno}: walrus"
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            module = (node.module or "") if isinstance(node, ast.ImportFrom) else ""
            names = [alias.name for alias in node.names]
            if module == "__future__" and "annotations" in names:
                yield f"{name}:{node.lineno}: annotations came with 3.7"
            if "dataclasses" in (module, *names):
                yield f"{name}:{node.lineno}: dataclasses came with 3.7"


def test_what_the_agent_needs_parses_on_python_3_6() -> None:
    folders = [name for name in FLOOR_3_6 if (SOURCE / name).is_dir()]
    names = [f"{n}/__init__.py" if n in folders else f"{n}.py" for n in FLOOR_3_6]
    assert _refused(names, (3, 6)) == []
    assert [line for name in names for line in _newer_than_3_6(name)] == []


def test_what_starts_the_job_parses_on_python_3_8() -> None:
    assert _refused(FLOOR_3_8, (3, 8)) == []


def test_everything_parses_on_python_3_10() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", SyntaxWarning)
        assert _refused(FLOOR_3_10, (3, 10)) == []


# ---- the real ones ------------------------------------------------------------------------------


# The package itself needs 3.10; a stand-in for it lets its oldest parts be imported alone.
_ALONE = """
import sys, types
package = types.ModuleType("slurm")
package.__path__ = [sys.argv[1] + "/slurm"]
sys.modules["slurm"] = package
"""

_AGENT = (
    _ALONE
    + """
import os, tempfile
from slurm import rundir
from slurm.api import agent, slurm_commands, slurm_environ, slurm_refusals, slurm_site
from slurm.model import ids, states
run = tempfile.mkdtemp()
for name in rundir.FOLDERS:
    os.mkdir(os.path.join(run, name))
who = rundir.Identity("7", 1, 0, 2)
rundir.append_record(run, who, rundir.VALUE, {"a": 1}, b"x" * 10)
rundir.append_record(run, who, rundir.VALUE, {}, b"y" * 2000000)
small, large = rundir.all_records(run)
assert small.payload == b"x" * 10 and small.index == 1
assert rundir.load_payload(run, large).read() == b"y" * 2000000
rundir.append_event(run, rundir.format_event("exit", who, code=0))
rundir.write_atomically(os.path.join(run, rundir.ARGUMENTS), rundir.encode_arguments([b"a", b"b"]))
assert rundir.read_arguments(run, 1) == b"b"
made = agent.Agent(None, run + "/base")
made.prepare_base()
assert made.changes(None) == ({}, [])
answer = made.__class__(None, os.path.dirname(run)).read_run(os.path.basename(run), {})
assert len(answer["segments"]) == 1 and answer["untrusted"] is None
assert states.parse_state("CANCELLED by 0") is states.JobState.CANCELLED
assert str(ids.parse_job_id("12_3;cluster")) == "12_3"
import shutil
shutil.rmtree(run)
print("good")
"""
)


@pytest.mark.parametrize("minor", [6, 7, 8, 9, 10, 12, 13])
def test_the_agent_runs_on_a_real_python(minor: int) -> None:
    done = subprocess.run(
        [of_version(minor), "-B", "-I", "-S", "-c", _AGENT, str(SOURCE.parent)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "good\n", "")


@pytest.mark.parametrize("minor", [6, 7, 8, 9, 10, 12, 13])
def test_slurm_is_called_from_a_real_python(minor: int) -> None:
    code = _ALONE + "from slurm.api.slurm_scheduler import SlurmScheduler\nprint('good')\n"
    done = subprocess.run(
        [of_version(minor), "-B", "-I", "-S", "-c", code, str(SOURCE.parent)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "good\n", "")


@pytest.mark.parametrize("minor", [6, 7])
def test_a_python_that_is_too_old_for_the_runner_is_told_so(minor: int, run: Path) -> None:
    runner = SOURCE / "runner" / "__main__.py"
    done = subprocess.run(
        [of_version(minor), "-B", "-S", str(runner), str(run)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 78
    assert f"this Python is 3.{minor}; the runner needs 3.8 or newer" in done.stderr


@pytest.mark.parametrize("minor", [8, 9])
def test_the_runner_on_an_old_python_says_that_the_versions_differ(minor: int, run: Path) -> None:
    """By value, pickled on another Python: refused with the reason, on what runs 3.8 and 3.9."""
    from slurm import rundir
    from slurm.packaging.function import ship_function

    function = ship_function(lambda: 1, ())
    rundir.write_atomically(str(run / rundir.FUNCTION), function.data)
    blobs = rundir.encode_arguments([b""])
    rundir.write_atomically(str(run / rundir.ARGUMENTS), blobs)
    done = subprocess.run(
        [of_version(minor), "-B", "-S", str(SOURCE / "runner" / "__main__.py"), str(run)],
        env={"PATH": os.environ["PATH"], "SLURM_JOB_ID": "5", "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 1, done.stderr
    (record,) = rundir.all_records(str(run))
    assert record.header["error"] == "PythonMismatch"
    assert re.search(rf"this job runs Python 3\.{minor} ", record.header["message"])


@pytest.mark.parametrize("minor", [10, 12, 13])
def test_the_package_imports_on_every_python_it_is_made_for(minor: int) -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import slurm\n"
        "for name in slurm.__all__: getattr(slurm, name)\n"
        "print('good')\n"
    )
    done = subprocess.run(
        [of_version(minor), "-B", "-I", "-S", "-c", code, str(SOURCE.parent)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "good\n", "")
