"""The page for users of slurm-sdk 0.4: a row for every name, and what it says to stay is there."""

from __future__ import annotations

import fnmatch
import importlib
import importlib.util
import inspect
import json
import re

import pytest
from pages import ROOT

import slurm
from slurm import callbacks
from slurm.callbacks.base import OLD_HOOKS
from slurm.callbacks.older import FIELDS
from slurm.config import KEYS
from slurm.model import older
from slurm.packaging.choose import OPTIONS

PAGE = (ROOT / "docs" / "from-slurm-sdk.md").read_text()
NAMES = json.loads((ROOT / "docs" / "slurm_sdk_names.json").read_text())
_CLASSES = {"SlurmTask": "Task", "WorkflowTask": "Workflow"}
#: What instances have.
_OF_INSTANCES = {"Cluster.backend_type", "Job.cluster", "ArrayJob.cluster"}


def _rows() -> list[tuple[list[str], str, str]]:
    tables = PAGE[PAGE.index("## Every name of") :]
    found = re.findall(r"^\| (`.*?) \| (\w+) \| (.*)\|$", tables, re.MULTILINE)
    return [(re.findall(r"`([^`]+)`", names), answer, here) for names, answer, here in found]


ROWS = _rows()


def _answer(name: str) -> tuple[str, str]:
    """What the page says of a name; a row of its own goes before one with a star."""
    exact = [row for row in ROWS if name in row[0]]
    starred = [row for row in ROWS if any(fnmatch.fnmatchcase(name, one) for one in row[0])]
    found = exact or starred
    assert found, f"no row for {name}"
    # `slurm.task` is a module and a name.
    assert len({row[1] for row in found}) == 1, f"several answers for {name}"
    return found[0][1], found[0][2]


@pytest.mark.parametrize("kind", [kind for kind in NAMES if kind != "version"])
def test_every_name_of_the_wheel_has_a_row_with_an_answer(kind: str) -> None:
    assert len(NAMES[kind]) > 10
    for name in NAMES[kind]:
        answer, here = _answer(name)
        assert answer in ("stays", "renamed", "gone"), name
        assert answer == "stays" or here.strip(), f"{name} is {answer}, and nothing says what to do"


def test_no_row_is_about_a_name_that_never_was() -> None:
    known = [name for kind, names in NAMES.items() if kind != "version" for name in names]
    told = [name for names, _, _ in ROWS for name in names]
    assert [name for name in told if not fnmatch.filter(known, name)] == []


def _is_there(name: str) -> bool:
    owner, _, rest = name.partition(".")
    member, _, argument = rest.partition("(")
    cls = getattr(slurm, _CLASSES.get(owner, owner))
    if owner.endswith("Callback") and member in OLD_HOOKS:
        return True
    if not hasattr(cls, member) and member not in getattr(cls, "__dataclass_fields__", {}):
        return name in _OF_INSTANCES
    if argument in ("", ")"):
        return True
    taken = inspect.signature(getattr(cls, member)).parameters
    return argument.rstrip("=)") in taken or "overrides" in taken or "options" in taken


def test_modules_and_names_that_stay_can_be_imported_and_no_other() -> None:
    for module in NAMES["modules"]:
        there = importlib.util.find_spec(module.rpartition(".")[0]) is not None
        there = there and importlib.util.find_spec(module) is not None
        assert there == (_answer(module)[0] == "stays"), module
    for name in NAMES["names"]:
        module, _, attribute = name.rpartition(".")
        try:
            there = hasattr(importlib.import_module(module), attribute)
        except ImportError:
            there = False
        assert there == (_answer(name)[0] == "stays"), name


def test_members_that_stay_are_there() -> None:
    stays = [name for name in NAMES["members"] if _answer(name)[0] == "stays"]
    assert [name for name in stays if not _is_there(name)] == []


def test_fields_of_contexts_stay_where_a_callback_can_read_them_and_nowhere_else() -> None:
    for name in NAMES["fields"]:
        owner, _, field = name.partition(".")
        cls = getattr(callbacks, owner)
        there = field in cls.__dataclass_fields__ or hasattr(cls, field)
        there = there or field in FIELDS.get(cls.__name__, {})
        assert there == (_answer(name)[0] == "stays"), name


def test_arguments_that_do_not_stay_are_refused_with_a_hint() -> None:
    taken = inspect.signature(slurm.Cluster).parameters
    for name in NAMES["arguments"]:
        argument = name.rstrip("=)").partition("(")[2]
        answer = _answer(name)[0]
        if answer == "stays":
            assert argument in taken or argument in slurm.TaskOptions.__annotations__, name
        elif argument not in ("password", "timeout"):  # one is refused by itself, one is `time=`
            assert older.hint(argument), name
    assert set(older.RENAMED.values()) <= {*taken, *slurm.TaskOptions.__annotations__}


def test_keys_that_stay_are_known() -> None:
    options = {key for kind in OPTIONS.values() for key in kind}
    for name in NAMES["keys"]:
        table, _, key = name.partition(".")
        if table == "packaging" and key != "type":
            assert (key in options) == (_answer(name)[0] == "stays" or key == "runtime"), name
    assert {"callbacks", "packaging", "job_base_dir"} <= set(KEYS)


def test_commands_that_the_page_names_exist() -> None:
    from slurm.cli import build_app

    app = build_app()
    for names, _, here in ROWS:
        if names[0].startswith("slurm ") and "." not in names[0]:
            for command in re.findall(r"`slurm ([a-z]+)", here):
                assert command in app, command
