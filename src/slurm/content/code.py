"""Byte code as content: what a function does, but not where it was written."""

from __future__ import annotations

import dis
import functools
import inspect
import re
import sys
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from slurm.content.plain import SCALARS, combine, of_scalar
from slurm.content.unseen import Unseen

T = TypeVar("T")
#: A text that may be a name, or a path of names: what `getattr` and `import_module` take.
NAME = re.compile(r"[A-Za-z_]\w*(?:[.:][A-Za-z_]\w*)*\Z")
#: They run or import what a text says: only one that stands there can be seen.
RUNNERS = frozenset(("eval", "exec", "__import__", "import_module", "resolve_name"))
#: They import what lies somewhere.
LOADERS = frozenset(
    ("run_path", "run_module", "spec_from_file_location", "spec_from_loader", "SourceFileLoader",
     "SourcelessFileLoader", "zipimporter", "entry_points")
)  # fmt: skip
#: They read how code is written, and where.
TEXT_READERS = frozenset(
    ("getsource", "getsourcelines", "findsource", "getcomments", "co_firstlineno", "co_lines")
)
#: They reach names that are not written down.
DYNAMIC = frozenset(
    ("getattr", "globals", "vars", "locals", "attrgetter", "methodcaller", "getmembers",
     "__dict__", "__getattribute__", "iter_modules", "walk_packages", "get_objects")
)  # fmt: skip

_GLOBAL = frozenset(("LOAD_GLOBAL", "STORE_GLOBAL", "DELETE_GLOBAL", "LOAD_NAME"))
#: Who asks for a docstring.
READERS = frozenset(("__doc__", "getdoc"))
#: CO_HAS_DOCSTRING of Python 3.14.
_HAS_DOCSTRING = 0x4000000
_IMPORT_NAME = dis.opmap["IMPORT_NAME"]


@dataclass
class Used:
    """What byte code names: identifiers, and modules that it imports."""

    names: set[str] = field(default_factory=set)
    #: Those that stand in texts: modules may be meant.
    texts: set[str] = field(default_factory=set)
    #: Those among them that are looked up in the globals.
    globals: set[str] = field(default_factory=set)
    #: Level, module, names.
    imports: list[tuple[int, str, tuple[str, ...]]] = field(default_factory=list)
    dynamic: bool = False


def _once(read: Callable[[types.CodeType], T]) -> Callable[[types.CodeType], T]:
    """Remember what was read of byte code: by identity, since equal does not mean the same here."""
    known: dict[int, tuple[types.CodeType, T]] = {}

    @functools.wraps(read)
    def look(code: types.CodeType) -> T:
        found = known.get(id(code))
        if found is None:
            if len(known) > 4096:
                known.clear()
            found = known[id(code)] = (code, read(code))
        return found[1]

    return look


@_once
def of_code(code: types.CodeType) -> str:
    """The digest of byte code; comments, docstrings and line numbers are not in it."""
    return _of_code(code, _consts(code), of_code)


@_once
def of_documented(code: types.CodeType) -> str:
    """The same with the docstrings, also those of the functions inside."""
    return _of_code(code, code.co_consts, of_documented)


def _of_code(
    code: types.CodeType, consts: tuple[object, ...], inner: Callable[[types.CodeType], str]
) -> str:
    counts = (
        code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount,
        code.co_flags, code.co_nlocals,
    )  # fmt: skip
    names = (code.co_name, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
    table = getattr(code, "co_exceptiontable", b"")
    found = [_of_const(const, inner) for const in consts]
    return combine("code", repr(counts), repr(names), code.co_code.hex(), table.hex(), *found)


def _consts(code: types.CodeType) -> tuple[object, ...]:
    """The constants without the docstring, which is the first one where there is one."""
    consts = code.co_consts
    if not consts or not isinstance(consts[0], str) or not code.co_flags & inspect.CO_NEWLOCALS:
        return consts  # a class or a module keeps its docstring elsewhere
    if sys.version_info >= (3, 14):
        has_docstring = bool(code.co_flags & _HAS_DOCSTRING)
    else:
        has_docstring = not _loads_first(code)
    return (None, *consts[1:]) if has_docstring else consts


def _loads_first(code: types.CodeType) -> bool:
    loads = ("LOAD_CONST", "RETURN_CONST")
    return any(i.opname.startswith(loads) and i.arg == 0 for i in dis.get_instructions(code))


def _of_const(const: object, inner: Callable[[types.CodeType], str]) -> str:
    if isinstance(const, types.CodeType):
        return inner(const)
    if type(const) in SCALARS:
        return of_scalar(const)
    if isinstance(const, tuple):
        return combine("tuple", *(_of_const(one, inner) for one in const))
    if isinstance(const, frozenset):
        return combine("frozenset", *sorted(_of_const(one, inner) for one in const))
    return combine(type(const).__name__, repr(const))  # Ellipsis, slices of constants


@_once
def used_by(code: types.CodeType) -> Used:
    """What byte code and the functions in it name; what runs unknown text is refused."""
    used = Used()
    for one in _all_codes(code):
        used.names.update(one.co_names)
        used.globals.update(s.argval for s in dis.get_instructions(one) if s.opname in _GLOBAL)
        for const in one.co_consts:
            found = set(names_in(const))
            used.texts |= found
            used.names |= found
        if _IMPORT_NAME in one.co_code[::2]:
            used.imports += _imports(one)
        _refuse_unknown(one, used)
    used.dynamic = not DYNAMIC.isdisjoint(used.names)
    return used


def names_in(const: object) -> Iterator[str]:
    """The names that a constant may stand for."""
    if isinstance(const, str):
        if NAME.match(const):
            yield const
            yield from re.split(r"[.:]", const)
    elif isinstance(const, (tuple, frozenset)):
        for part in const:
            yield from names_in(part)


def _all_codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            yield from _all_codes(const)


def _imports(code: types.CodeType) -> list[tuple[int, str, tuple[str, ...]]]:
    found = []
    steps = [step for step in dis.get_instructions(code) if step.opname != "CACHE"]
    for at, step in enumerate(steps):
        if step.opcode == _IMPORT_NAME:
            level, names = steps[at - 2].argval, steps[at - 1].argval
            level = level if isinstance(level, int) else 0
            found.append((level, str(step.argval), tuple(names or ())))
    return found


def _refuse_unknown(code: types.CodeType, used: Used) -> None:
    """Refuse what imports or runs something that only the running program knows."""
    names = set(code.co_names)
    for name in sorted(names & LOADERS):
        raise Unseen(f"{name} brings in code by its place")
    for name in sorted(names & TEXT_READERS):
        raise Unseen(f"{name} reads how code is written")
    if names >= {"importlib", "reload"}:
        raise Unseen("reload runs a module once more")
    if names.isdisjoint(RUNNERS):
        return
    steps = [s for s in dis.get_instructions(code) if s.opname not in ("CACHE", "PUSH_NULL")]
    for at, step in enumerate(steps):
        name = step.argval
        if not isinstance(name, str) or name not in RUNNERS:
            continue
        if step.opname == "IMPORT_FROM" and steps[at + 1].argval != name:
            raise Unseen(f"{name} goes by another name")
        if not step.opname.startswith("LOAD_"):
            continue
        if name in ("eval", "exec"):
            if "ATTR" in step.opname or "METHOD" in step.opname:
                continue  # a method of that name, as models have
            raise Unseen(f"{name} runs a text")
        text = _constant_given(steps[at + 1 : at + 5])
        if text is None:
            raise Unseen(f"{name} of a name that only the running program knows")
        used.imports.append(import_of(text))


def _constant_given(steps: list[dis.Instruction]) -> str | None:
    """The first argument of a call that follows; None where it is no text that stands there."""
    if not steps or steps[0].opname != "LOAD_CONST" or not isinstance(steps[0].argval, str):
        return None
    for step in steps[1:]:
        if step.opname.startswith(("CALL", "PRECALL", "KW_NAMES")):
            return steps[0].argval
        if not step.opname.startswith("LOAD_"):
            return None
    return None


def import_of(text: str) -> tuple[int, str, tuple[str, ...]]:
    """What a text stands for that is given to `import_module`: level, module, no names."""
    name = text.lstrip(".")
    return len(text) - len(name), name.partition(":")[0], ()
