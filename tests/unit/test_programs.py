"""The table of programs from outside: whatever src and tests start is in it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from needed import need
from slurm import programs
from slurm.api.upkeep import CONTAINERS
from slurm.cli import doctor
from slurm.packaging.container.engines import ENGINES

ROOT = Path(__file__).parents[2]
FOLDERS = ("src/slurm", "tests", "benchmarks")
#: What starts a program whose name, or whose list of words, is its first argument.
STARTERS = {
    *(f"subprocess.{name}" for name in ("run", "Popen", "call", "check_call", "check_output")),
    *(f"os.{name}" for name in ("execv", "execve", "execvp", "execvpe", "posix_spawn")),
    "asyncio.create_subprocess_exec", "shutil.which",
}  # fmt: skip
#: Made by the tests, or by the product itself.
OWN = {"slurm", "link", "addr", "no-such-program"}
Function = ast.FunctionDef | ast.AsyncFunctionDef


class Module:
    """One file: its functions, and which of them start what they are given."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.tree = ast.parse(path.read_text())
        self.functions = [n for n in ast.walk(self.tree) if isinstance(n, Function)]
        #: Name of a function -> which of its arguments is the program or the words.
        self.starters: dict[str, int] = {}
        for _ in range(3):  # a starter may be called by another
            for function in self.functions:
                names = [a.arg for a in function.args.args if a.arg not in ("self", "cls")]
                if function.args.vararg:
                    names.append(function.args.vararg.arg)
                for _, words in self.starts(function):
                    for head in self.heads(words, function):
                        if isinstance(head, ast.Name) and head.id in names:
                            self.starters[function.name] = names.index(head.id)

    def starts(self, scope: ast.AST) -> Iterator[tuple[ast.Call, ast.expr]]:
        """The calls that start programs, each with the program or its words."""
        for node in ast.walk(scope):
            if not isinstance(node, ast.Call):
                continue
            called = ast.unparse(node.func)
            place = 0 if called in STARTERS else self.starters.get(called.removeprefix("self."))
            if place is not None and len(node.args) > place:
                yield node, node.args[place]

    def heads(self, value: ast.expr, scope: ast.AST, depth: int = 0) -> list[ast.expr]:
        """What a program's name may be: constants, and names that nothing here gives a value."""
        again = depth + 1
        if depth > 8:
            return []
        match value:
            case ast.List(elts=[first, *_]) | ast.Tuple(elts=[first, *_]):
                return self.heads(first, scope, again)
            case ast.Starred(value=inner) | ast.BinOp(left=inner) | ast.NamedExpr(value=inner):
                return self.heads(inner, scope, again)
            case ast.IfExp(body=one, orelse=other):
                return self.heads(one, scope, again) + self.heads(other, scope, again)
            case ast.BoolOp(values=values):
                return [head for each in values for head in self.heads(each, scope, again)]
            case ast.Subscript(value=inner, slice=ast.Constant(value=0)):
                return self.heads(inner, scope, again)
            case ast.Call(func=ast.Name(id="list" | "tuple" | "str"), args=[inner, *_]):
                return self.heads(inner, scope, again)
            case ast.Call(func=func, args=[inner, *_]) if ast.unparse(func) == "shutil.which":
                return self.heads(inner, scope, again)
            case ast.Call(func=ast.Name(id=name)):
                made = [f for f in self.functions if f.name == name]
                returned = [
                    (node.value, f)
                    for f in made
                    for node in ast.walk(f)
                    if isinstance(node, ast.Return) and node.value is not None
                ]
                return [head for found, f in returned for head in self.heads(found, f, again)]
            case ast.Name(id=name):
                given = [*_given(scope, name)]
                if not given and name not in _arguments(scope):
                    given = [
                        each for node in self.tree.body for each in _given(node, name, outside=True)
                    ]
                return [h for each in given for h in self.heads(each, scope, again)] or [value]
        return [value]


def _arguments(scope: ast.AST) -> set[str]:
    return {node.arg for node in ast.walk(scope) if isinstance(node, ast.arg)}


def _given(scope: ast.AST, name: str, *, outside: bool = False) -> Iterator[ast.expr]:
    """The values that a name is given in a scope, or outside functions."""
    if outside and isinstance(scope, Function | ast.ClassDef):
        return
    for node in ast.walk(scope):
        match node:
            case ast.Assign(targets=targets, value=value):
                if any(isinstance(t, ast.Name) and t.id == name for t in targets):
                    yield value
            case ast.AnnAssign(target=ast.Name(id=found), value=ast.expr() as value):
                if found == name:
                    yield value
            case ast.For(target=ast.Name(id=found), iter=ast.List() | ast.Tuple() as values):
                if found == name:
                    yield from values.elts
            case ast.comprehension(target=ast.Name(id=found), iter=ast.Tuple() as values):
                if found == name:
                    yield from values.elts


def _started(path: Path) -> Iterator[tuple[str, int]]:
    """The programs that a file starts by a name that stands in it, with the line."""
    if not re.search(r"subprocess|os\.exec|os\.posix_spawn|shutil\.which", path.read_text()):
        return
    module = Module(path)
    outside = [node for node in module.tree.body if not isinstance(node, Function | ast.ClassDef)]
    for scope in [*module.functions, *outside]:
        for call, words in module.starts(scope):
            for head in module.heads(words, scope):
                if isinstance(head, ast.Constant) and isinstance(head.value, str):
                    yield head.value, call.lineno


def _known(name: str) -> bool:
    base = name.rpartition("/")[2]
    if re.fullmatch(r"python3?(\.\d+)?|\.?/?.*\.(sh|py)", base):
        return True
    return base in programs._BY_NAME or base in programs.EVERYWHERE or base in OWN


def test_every_program_that_is_started_is_in_the_table() -> None:
    files = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
    found = {(name, f"{path.relative_to(ROOT)}:{line}")
             for path in files for name, line in _started(path)}  # fmt: skip
    assert {"podman", "sbatch", "git", "chromium", "ssh-keygen"} <= {name for name, _ in found}
    strangers = sorted(place for place in found if not _known(place[0]))
    assert not strangers, "add them to src/slurm/programs.py, with package and need"


@pytest.mark.parametrize(
    "code",
    [
        "subprocess.run(['frobnicate', '-x'])",
        "words = ['frobnicate', *rest]\nsubprocess.Popen(words)",
        "def call(words):\n  subprocess.run([*words])\ncall(['frobnicate'])",
        "class A:\n  def f(self, *words):\n    os.execvp(words[0], words)\n"
        "  def g(self):\n    self.f('frobnicate', 'x')",
        "def made():\n  return ['frobnicate', '-x']\nsubprocess.run(made())",
        "shutil.which('frobnicate')",
    ],
)
def test_the_search_finds_a_program_however_its_words_are_made(tmp_path: Path, code: str) -> None:
    file = tmp_path / "module.py"
    file.write_text(code + "\n")
    assert "frobnicate" in {name for name, _ in _started(file)}
    assert not _known("frobnicate")


def test_a_program_is_in_the_table_once_and_every_tier_has_programs() -> None:
    names = [program.name for program in programs.PROGRAMS]
    assert len(names) == len(set(names))
    assert not programs.EVERYWHERE & set(names)
    for tier in programs.TIERS:
        assert programs.needs(tier), tier
        assert all(program.package for program in programs.needs(tier)), tier


def test_the_tiers_of_the_table_are_targets_of_make() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for tier in (*programs.TIERS, programs.FAULTS):
        assert re.search(rf"^{tier.removeprefix('make ')}:", makefile, re.MULTILINE), tier


def test_the_helpers_of_podman_are_found_where_they_lie(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    helper = tmp_path / "catatonit"
    helper.touch()
    monkeypatch.setattr(programs.shutil, "which", lambda *_, **__: None)
    entry = programs.named("catatonit")._replace(places=(f"{tmp_path}/cata*",))
    monkeypatch.setitem(programs._BY_NAME, "catatonit", entry)
    assert programs.find("catatonit") == str(helper)
    helper.unlink()
    helper.symlink_to(tmp_path / "gone")
    assert programs.find("catatonit") is None
    assert programs.find("podman") is None


def test_a_missing_program_fails_the_test_and_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(programs, "find", lambda name: None if name == "catatonit" else name)
    need("podman")
    with pytest.raises(pytest.fail.Exception, match=r"apt-get install .* catatonit"):
        need("podman", "catatonit")


def test_the_doctor_names_what_the_podman_that_is_here_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONTAINERS_CONF", str(tmp_path / "none"))
    monkeypatch.setattr("sys.platform", "linux")
    absent = {"catatonit", "slurmctld", "nft"}
    monkeypatch.setattr(programs, "find", lambda name: None if name in absent else f"/none/{name}")
    found = doctor._programs()
    assert (found.result, found.name) == (doctor.NOTE, "programs")
    assert found.text == (
        "catatonit is not installed: podman starts no container with an init process"
    )
    assert found.fix == "apt-get install --no-install-recommends catatonit"
    absent |= {"podman"}
    assert doctor._programs().result == doctor.GOOD


def test_the_engines_of_images_and_clusters_are_in_the_table() -> None:
    assert {*ENGINES, *CONTAINERS} <= set(programs._BY_NAME)
