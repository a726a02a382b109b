"""A module that submits while a job or `slurm run` imports it is refused: jobs would never end."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

UNGUARDED = """
from slurm import Cluster, task

@task
def add(a: int, b: int) -> int:
    return a + b

with Cluster("embedded", job_base_dir={base!r}):
    job = add(2, 3)
print(job.result(60))
"""
GUARD = 'if __name__ == "__main__":'


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )


def slurm(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return run(folder, "-m", "slurm.cli", *words, "--job-base-dir", str(folder / "jobs"))


def only_in_a_job(module: str) -> str:
    """The same module for a client that may import it: only in a job it submits."""
    head, mark, tail = module.partition("with Cluster")
    lines = [f"    {line}" for line in (mark + tail).splitlines()]
    return "\n".join(["import os", head, "if 'SLURM_SDK_RUN' in os.environ:", *lines]) + "\n"


def test_slurm_run_refuses_a_file_that_submits_when_it_is_imported(tmp_path: Path) -> None:
    base = tmp_path / "jobs"
    (tmp_path / "first.py").write_text(UNGUARDED.format(base=str(base)))
    done = slurm(tmp_path, "run", "first.py::add", "1", "2")
    assert "SLURM-E103 SubmittedOnImport: first.py submits add" in done.stderr
    assert GUARD in done.stderr
    assert done.returncode == 2
    assert list(base.glob("add-*")) == []


@pytest.mark.parametrize(
    "call", ["add(1, 2)", "add.map([1, 2], common={'b': 2})[0]", "add.map([(1, 2)] * 4, pack=2)[0]"]
)
def test_a_job_refuses_what_its_module_submits_when_it_is_imported(
    call: str, tmp_path: Path
) -> None:
    base = tmp_path / "jobs"
    (tmp_path / "work.py").write_text(only_in_a_job(UNGUARDED.format(base=str(base))))
    (tmp_path / "main.py").write_text(
        "from slurm import Cluster\nfrom work import add\n"
        f"{GUARD}\n"
        f"    with Cluster('embedded', job_base_dir={str(base)!r}):\n"
        f"        job = {call}\n"
        "    print(type(job.exception(60)).__name__, job.exception(60))\n"
    )
    done = run(tmp_path, "main.py")
    assert "SubmittedOnImport" in done.stdout, done.stderr
    assert "work submits add" in done.stdout
    assert len(list(base.glob("add-*"))) == 1


def test_a_warm_worker_refuses_it_too(tmp_path: Path) -> None:
    base = tmp_path / "jobs"
    (tmp_path / "work.py").write_text(only_in_a_job(UNGUARDED.format(base=str(base))))
    (tmp_path / "main.py").write_text(
        "from slurm import Cluster\nfrom work import add\n"
        f"{GUARD}\n"
        f"    with Cluster('embedded', job_base_dir={str(base)!r}).executor(1) as pool:\n"
        "        print(repr(pool.submit(add, 1, 2).exception(60)))\n"
    )
    done = run(tmp_path, "main.py")
    assert "SubmittedOnImport" in done.stdout, done.stderr
    assert len(list(base.glob("add-*"))) == 0


HOOKS = """
import os
from slurm import BaseCallback, Cluster, task

@task
def note(x: int) -> int:
    return x

class Ledger(BaseCallback):
    def on_run_end(self, ctx):
        print("heard")

if 'SLURM_SDK_RUN' in os.environ:
    with Cluster("embedded", job_base_dir={base!r}):
        note(1)
"""


@pytest.mark.parametrize("call", ["add(1, 2)", "add.map([(1, 2)] * 4, pack=2)[0]"])
def test_a_module_of_a_callback_that_submits_is_refused_in_the_job(
    call: str, tmp_path: Path
) -> None:
    base = tmp_path / "jobs"
    (tmp_path / "hooks.py").write_text(HOOKS.format(base=str(base)))
    (tmp_path / "work.py").write_text(
        "from slurm import task\n\n@task\ndef add(a: int, b: int) -> int:\n    return a + b\n"
    )
    (tmp_path / "main.py").write_text(
        "from slurm import Cluster\nfrom hooks import Ledger\nfrom work import add\n"
        f"{GUARD}\n"
        f"    with Cluster('embedded', job_base_dir={str(base)!r}, callbacks=[Ledger()]) as c:\n"
        f"        job = {call}\n"
        "        print(repr(job.exception(60)))\n"
    )
    done = run(tmp_path, "main.py")
    assert done.stdout.splitlines()[-1] == "None", done.stdout + done.stderr
    files = [path for path in base.glob("add-*/**/*") if path.is_file()]
    logs = "".join(path.read_bytes().decode(errors="replace") for path in files)
    assert "SubmittedOnImport" in logs and "submits note" in logs
    assert "the job goes on" in logs
    assert list(base.glob("note-*")) == []


def test_the_first_program_of_the_readme_can_be_run_both_ways(tmp_path: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", (ROOT / "README.md").read_text(), re.S | re.M)
    text = blocks[0].replace("Cluster()", "Cluster('embedded')")
    (tmp_path / "first.py").write_text(text)
    assert run(tmp_path, "first.py").stdout.splitlines()[-1] == "5"
    done = slurm(tmp_path, "run", "first.py::add", "1", "2", "--cluster", "embedded")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "3"


def test_an_example_submits_only_as_a_program() -> None:
    for path in sorted((ROOT / "examples").glob("*.py")):
        body = ast.parse(path.read_text()).body
        kinds = {type(node) for node in body if not is_guard(node) and not is_harmless(node)}
        definitions = {ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef}
        assert kinds <= {*definitions, ast.ClassDef, ast.Assign, ast.AnnAssign}, path.name


def is_guard(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) == "__name__ == '__main__'"


def is_harmless(node: ast.stmt) -> bool:
    text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return text or ast.unparse(node).startswith("sys.path.insert(")
