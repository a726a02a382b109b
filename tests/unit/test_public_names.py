"""The public names: each importable first, never rebound, documented, and cheap to get at."""

from __future__ import annotations

import importlib
import inspect
import json
import pkgutil
import subprocess
import sys
import types

import pytest

import slurm

# What `import slurm` may load beside itself: it stands at the top of every job and every script.
CHEAP = {
    "__future__", "_collections", "_collections_abc", "_functools", "_operator", "_sre",
    "_typing", "_weakrefset", "_thread", "collections", "contextlib", "copyreg", "enum",
    "functools", "importlib", "itertools", "keyword", "operator", "re", "reprlib", "sre_compile",
    "sre_constants", "sre_parse", "sys", "types", "typing", "warnings", "abc", "_abc",
}  # fmt: skip
# The module of each of these costs more than all of `import slurm` should.
DEAR = {
    "asyncio", "concurrent", "dataclasses", "email", "http", "inspect", "json", "logging",
    "multiprocessing", "pathlib", "pickle", "socket", "ssl", "sqlite3", "subprocess", "tempfile",
    "threading", "traceback", "unittest", "urllib", "uuid", "xml",
}  # fmt: skip
# What lies in the copy that travels, or is imported by what does.
SHIPPED = [
    "slurm", "slurm.task", "slurm.cluster", "slurm.job", "slurm.context", "slurm.packaging",
    "slurm.packaging.function", "slurm.packaging.arguments", "slurm.packaging.sdk", "slurm.api",
    "slurm.api.agent", "slurm.api.backend", "slurm.runner.run", "slurm.submission",
    "slurm.rendering", "slurm.watcher", "slurm.debug", "slurm.errors",
]  # fmt: skip


def fresh(code: str, *arguments: str) -> object:
    """What a program prints as JSON, in an interpreter that has imported nothing yet."""
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def submodules() -> list[str]:
    """All modules of the package that can be imported without starting anything."""
    found = pkgutil.walk_packages(slurm.__path__, "slurm.", onerror=lambda name: None)
    return sorted(m.name for m in found if not m.name.endswith("__main__"))


# ---- names --------------------------------------------------------------------------------------

ALONE = """
import json, sys
import slurm
wrong = []
for name in slurm.__all__:
    found = getattr(slurm, name)
    if getattr(found, "__name__", None) != name:
        wrong.append(name)
print(json.dumps(wrong))
"""


def test_each_public_name_is_what_it_says() -> None:
    assert fresh(ALONE) == []


FIRST = """
import json, os, sys
import slurm
names = slurm.__all__
wrong = []
for name in names:
    # A child of a process that has imported nothing but the package: each name comes first once.
    pid = os.fork()
    if pid == 0:
        space = {}
        try:
            exec(f"from slurm import {name}", space)
            good = getattr(space[name], "__name__", None) == name
        except BaseException:
            good = False
        os._exit(0 if good else 1)
    if os.waitpid(pid, 0)[1] != 0:
        wrong.append(name)
print(json.dumps(wrong))
"""


def test_each_public_name_can_be_the_first_to_be_imported() -> None:
    assert fresh(FIRST) == []


AFTER = """
import importlib, json, os, sys, types
# Only to be quick: what the standard library loads here need not be loaded by each child.
import asyncio, concurrent.futures, dataclasses, inspect, logging, pickle, shutil, subprocess
import slurm
wrong = []
# Only a name that a module has, too, can become that module.
names = [name for name in slurm.__all__ if f"slurm.{name}" in sys.argv[1:]]
for module in sys.argv[1:]:
    pid = os.fork()
    if pid == 0:
        try:
            importlib.import_module(module)
        except ImportError:
            os._exit(0)  # a part whose extra is not installed
        from slurm import task
        good = all(not isinstance(getattr(slurm, n), types.ModuleType) for n in names)
        good = good and slurm.task is task and task.__name__ == "task" and callable(task)
        os._exit(0 if good else 1)
    if os.waitpid(pid, 0)[1] != 0:
        wrong.append(module)
print(json.dumps(wrong))
"""


@pytest.mark.timeout(660)
def test_no_import_of_a_submodule_rebinds_a_public_name() -> None:
    # Only a module right below the package is set as an attribute of it.
    modules = [name for name in submodules() if name.count(".") == 1]
    assert "slurm.task" in modules
    assert fresh(AFTER, *modules) == []


def test_slurm_task_is_the_decorator_after_every_submodule_is_loaded() -> None:
    code = (
        "import importlib, json, sys\n"
        "for name in sys.argv[1:]:\n"
        "    try:\n"
        "        importlib.import_module(name)\n"
        "    except ImportError:\n"
        "        pass\n"
        "import slurm\n"
        "from slurm import task\n"
        "@task\n"
        "def f(): return 5\n"
        "print(json.dumps([slurm.task is task, f.local(), type(f).__name__]))\n"
    )
    assert fresh(code, *submodules()) == [True, 5, "Task"]


def test_the_submodules_of_these_names_can_still_be_reached() -> None:
    code = (
        "import json, sys, slurm.task, slurm.job\n"
        "import slurm\n"
        "print(json.dumps([slurm.task.__name__, sys.modules['slurm.task'].__name__]))\n"
    )
    assert fresh(code) == ["task", "slurm.task"]


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError):
        slurm.no_such_name  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(ImportError):
        exec("from slurm import no_such_name")


def test_dir_and_star_show_the_public_names() -> None:
    assert set(slurm.__all__) <= set(dir(slurm))
    space: dict[str, object] = {}
    exec("from slurm import *", space)
    assert set(slurm.__all__) <= set(space)


def test_the_public_names_are_sorted_and_each_stands_once() -> None:
    assert sorted(set(slurm.__all__)) == sorted(slurm.__all__)


# ---- docstrings ---------------------------------------------------------------------------------


def test_every_public_name_and_its_methods_are_documented() -> None:
    kinds = (types.FunctionType, property, classmethod, staticmethod)
    bare = []
    for name in slurm.__all__:
        found = getattr(slurm, name)
        parts = {name: found}
        if inspect.isclass(found):
            own = {n: v for n, v in vars(found).items() if isinstance(v, kinds)}
            parts.update({f"{name}.{n}": v for n, v in own.items() if not n.startswith("_")})
        bare += [part for part, value in parts.items() if not inspect.getdoc(value)]
    assert bare == []


def test_a_cluster_shows_only_what_people_use() -> None:
    shown = {name for name in dir(slurm.Cluster("embedded")) if not name.startswith("_")}
    given = {"backend_type", "packaging", "callbacks", "defaults", "trust_group"}
    methods = {
        "accounting", "allocate", "attach", "backend", "base", "batch", "cancel", "clear_cache",
        "diagnose", "directory", "executor", "explain", "from_backend", "from_env", "from_file",
        "from_stack", "get", "get_job", "host", "put", "queue", "run", "submit",
    }  # fmt: skip
    assert shown == given | methods
    assert all(inspect.getdoc(getattr(slurm.Cluster, name)) for name in methods)


# ---- the cost -----------------------------------------------------------------------------------

LOADED = """
import sys
before = set(sys.modules)
import importlib
importlib.import_module(sys.argv[1])
loaded = {name.partition(".")[0] for name in set(sys.modules) - before}
import json
print(json.dumps(sorted(loaded)))
"""


def test_import_slurm_loads_only_the_cheapest_of_the_standard_library() -> None:
    loaded = set(fresh(LOADED, "slurm"))  # type: ignore[call-overload]
    assert loaded & DEAR == set()
    assert loaded - CHEAP - {"slurm"} == set()


@pytest.mark.parametrize("module", SHIPPED)
def test_what_travels_imports_the_standard_library_and_cloudpickle_only(module: str) -> None:
    loaded = set(fresh(LOADED, module))  # type: ignore[call-overload]
    foreign = loaded - sys.stdlib_module_names - {"slurm", "cloudpickle", "_virtualenv"}
    assert foreign == set()


def test_asyncio_is_not_loaded_before_somebody_awaits() -> None:
    for module in ("slurm.cluster", "slurm.job", "slurm.runner.run"):
        assert "asyncio" not in set(fresh(LOADED, module))  # type: ignore[call-overload]


def test_cloudpickle_is_not_loaded_before_something_travels_by_value() -> None:
    for module in ("slurm.cluster", "slurm.runner.run"):
        assert "cloudpickle" not in set(fresh(LOADED, module))  # type: ignore[call-overload]


# ---- the packages below -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "package", ["slurm.api", "slurm.callbacks", "slurm.packaging", "slurm.packaging.container"]
)
def test_a_package_holds_what_it_names(package: str) -> None:
    door = importlib.import_module(package)
    assert door.__all__
    for name in door.__all__:
        assert inspect.getdoc(getattr(door, name)), name
    with pytest.raises(AttributeError):
        _ = door.no_such_name
