"""The streamed agent: complete, small, and alive on the oldest Python that it promises."""

from __future__ import annotations

import ast
import glob
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from slurm.api import bundle, frames


def _pythons() -> list[str]:
    root = os.environ.get("PYENV_ROOT") or str(Path.home() / ".pyenv")
    usual = "/usr/bin:/usr/local/bin"
    found = [shutil.which("python3.6", path=usual) or ""]
    found += sorted(glob.glob(f"{root}/versions/3.6.*/bin/python3"))
    found += sorted(glob.glob(f"{root}/versions/3.1[0-9].*/bin/python3"))[-1:]
    return [*[path for path in found if path], sys.executable]


def _imports(name: str) -> set[str]:
    spec = importlib.util.find_spec(name)
    assert spec and spec.origin
    found: set[str] = set()
    for node in ast.walk(ast.parse(Path(spec.origin).read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        if isinstance(node, ast.ImportFrom) and node.module:
            own = [f"{node.module}.{alias.name}" for alias in node.names]
            modules = [n for n in own if n.startswith("slurm") and _is_module(n)]
            found |= set(modules) or {node.module}
    return {name for name in found if name.partition(".")[0] == "slurm"}


def _is_module(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def test_the_bundle_is_closed_under_imports() -> None:
    shipped = {*bundle.MODULES, *bundle.PACKAGES}
    missing = {name: _imports(name) - shipped for name in bundle.MODULES}
    assert {name: rest for name, rest in missing.items() if rest} == {}


def test_the_first_line_passes_through_shells_as_it_is() -> None:
    assert not set("'\"\\!$`\n") & set(bundle.BOOT)


def test_it_is_small() -> None:
    assert len(bundle.opening("x")) < 96_000


class Alone:
    """An agent in a Python of this machine, without ssh."""

    def __init__(self, python: str, home: Path) -> None:
        self.process = subprocess.Popen(
            [python, "-I", "-S", "-c", bundle.BOOT],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={"HOME": str(home), "PATH": os.environ["PATH"]},
        )
        self.send(bundle.opening("marker"))
        assert self.process.stdout is not None
        assert self.process.stdout.readline() + self.process.stdout.readline() == b"\nmarker\n"

    def send(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def ask(self, verb: str, *args: Any) -> Any:
        self.send(frames.encode({"id": 1, "verb": verb, "args": list(args)}))
        answer = frames.read(self.process.stdout)
        assert "error" not in answer, answer
        return answer["ok"]

    def refuses(self, data: bytes) -> str:
        self.send(data)
        answer = frames.read(self.process.stdout)
        return str(answer["error"][1])


@pytest.fixture
def agent(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    alone = Alone(getattr(request, "param", sys.executable), tmp_path)
    yield alone
    alone.process.kill()
    alone.process.wait(60)
    for pipe in (alone.process.stdin, alone.process.stdout):
        assert pipe is not None
        pipe.close()


@pytest.mark.parametrize("agent", _pythons(), indirect=True)
def test_it_speaks_on_this_python(agent: Alone, tmp_path: Path) -> None:
    facts = agent.ask("hello", "~/jobs", "none", [3, 11, 0], frames.PROTOCOL)
    assert facts["base"] == f"{tmp_path}/jobs" and facts["problem"] is None
    (tmp_path / "jobs" / "run").mkdir(mode=0o700)
    (tmp_path / "jobs" / "run" / "a.txt").write_bytes(b"\0\xff")
    assert agent.ask("read", "run", "a.txt", 0, 100) == b"\0\xff"
    assert agent.ask("find_python", [3, 11])["tried"] is not None
    assert agent.ask("file_put", "x.bin", "p1", 0, b"abc") == 3
    assert agent.ask("follow", 1, {"run": [{}, False, False]}, [], True, 0.1)["runs"] == {}
    process = agent.process
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait(60) == 0


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n" + b" " * 100,
        frames._LAYOUT.pack(b"\xf5SdK", 0, 1 << 31, 0, 0),
        frames.encode({"no": "request"}),
    ],
)
def test_what_is_no_request_ends_the_conversation(agent: Alone, data: bytes) -> None:
    assert agent.refuses(data)
    assert agent.process.wait(60) == 0


@pytest.mark.parametrize("verb", ["__init__", "path", "system", "scheduler"])
def test_only_its_verbs_can_be_asked_for(agent: Alone, verb: str) -> None:
    agent.ask("hello", "~/jobs", "none", [3, 11, 0], frames.PROTOCOL)
    text = agent.refuses(frames.encode({"id": 2, "verb": verb, "args": []}))
    assert "there is no verb" in text


@pytest.mark.parametrize("run", ["../x", "/etc", "a/../../x", "$(touch x)", "; ls"])
def test_a_path_cannot_leave_the_base(agent: Alone, run: str) -> None:
    agent.ask("hello", "~/jobs", "none", [3, 11, 0], frames.PROTOCOL)
    message = {"id": 2, "verb": "read", "args": [run, "passwd", 0, 100]}
    agent.send(frames.encode(message))
    answer = frames.read(agent.process.stdout)
    assert answer.get("ok") == b"" or answer["error"][0] == "not-found"
