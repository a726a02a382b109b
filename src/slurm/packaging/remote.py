"""Code for a cluster that does not share this machine's files: which Python, and what travels."""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from slurm import locks
from slurm.errors import PythonMismatch
from slurm.packaging.function import by_value_reason, travelling

if TYPE_CHECKING:
    from slurm.api.ssh import SshBackend
    from slurm.cluster import Cluster

#: The oldest Python that can import the SDK.
OLDEST = (3, 10)


def remote_of(cluster: Cluster) -> SshBackend | None:
    """The ssh backend of a cluster, None where jobs use this machine's files."""
    backend = cluster.backend
    if backend.kind != "ssh":
        return None
    return cast("SshBackend", getattr(backend, "inner", backend))


def why_by_value(
    backend: SshBackend, function: Callable[..., Any], options: Mapping[str, object]
) -> str | None:
    """Why a function travels by value to a cluster that has only what is installed there."""
    python = _python(backend, options)[0] or _any(backend)
    return by_value_reason(function) or _not_there(backend, python, function)


@dataclass(frozen=True)
class Interpreter:
    """The Python of a job over there."""

    #: None: the cluster has none that fits, one has to be provided.
    python: str | None
    version: str
    #: What can make an environment there, and what else can run beside the function.
    maker: str
    outside: str
    #: What was found there, for messages.
    tried: str


def interpreter(
    backend: SshBackend,
    options: Mapping[str, object],
    reason: str | None,
    wanted: str | None = None,
) -> Interpreter:
    """Which Python runs a call over there; one of another version only by reference."""
    here = (sys.version_info[0], sys.version_info[1])
    facts = backend.facts()["python"]
    python, version = _python(backend, options)
    if wanted is not None and version != _numbers(wanted):
        python, version = backend.find_python(_numbers(wanted)), _numbers(wanted)
    elif python is None:
        # By reference the newest one there will do; by value only the client's own version.
        found = facts["any"] if reason is None else None
        python = str(found[0]) if found else None
        version = (found[1][0], found[1][1]) if found else here
    if version is not None and (version < OLDEST or (reason and version != here)):
        told = f"{reason}, pickled on Python {here[0]}.{here[1]}" if reason else "by reference"
        raise PythonMismatch(
            f"the job's Python on {backend.how.hostname} is {version[0]}.{version[1]} ({python}), "
            f"but the function travels {'by value' if reason else ''} ({told})",
            hint="put the function into a module of its own, import it, and say "
            f'packaging="source"; or use a Python {here[0]}.{here[1]} there: python=...',
        )
    maker = str((facts["same"] or facts["any"] or [backend.facts()["executable"]])[0])
    outside = str((facts["same"] or facts["any"] or [""])[0])
    tried = ", ".join(facts["tried"]) or "none"
    return Interpreter(python, "{}.{}".format(*(version or here)), maker, outside, tried)


def _numbers(version: str) -> tuple[int, int]:
    major, _, minor = version.partition(".")
    return int(major), int(minor)


def _python(
    backend: SshBackend, options: Mapping[str, object]
) -> tuple[str | None, tuple[int, int] | None]:
    """The job's Python and its version, as far as they can be told."""
    if options.get("conda"):
        return "python", None
    given = options.get("python") or (f"{options['venv']}/bin/python" if options.get("venv") else 0)
    if given:
        found = backend.python_version(str(given))
        # One that only a module or a setup line brings is not there yet.
        return str(given), None if found is None else found[1]
    same = backend.facts()["python"]["same"]
    return (same[0], (same[1][0], same[1][1])) if same else (None, None)


def _any(backend: SshBackend) -> str | None:
    found = backend.facts()["python"]["any"]
    return str(found[0]) if found else None


def _not_there(backend: SshBackend, python: str | None, function: Callable[..., Any]) -> str | None:
    """Why a module of this client cannot be imported over there; None where it can."""
    name = str(function.__module__)
    if is_users_own(sys.modules.get(name)) or python is None:
        own = _digest(getattr(sys.modules.get(name), "__file__", None))
        found = backend.find_module(python, name) if python else None
        if found is not None and found[1] == own != "":
            return None
        return f"module {name} is this machine's own"
    if backend.find_module(python, name) is None:
        return f"module {name} is not installed there"
    return None


def _digest(path: str | None) -> str:
    try:
        with open(str(path), "rb") as f:
            return hashlib.sha256(f.read()).hexdigest()
    except OSError:
        return ""


def is_users_own(module: Any) -> bool:
    """Whether a module is the user's code: from a file that is not part of an installation."""
    path = getattr(module, "__file__", None)
    name = str(getattr(module, "__name__", ""))
    top = name.partition(".")[0]
    if not path or top in sys.stdlib_module_names or top in ("slurm", "cloudpickle", "__main__"):
        return False
    real = os.path.realpath(str(path))
    return "site-packages" not in real and "dist-packages" not in real


# ---- modules that travel ------------------------------------------------------------------------

_registered: Counter[str] = Counter()
_lock = locks.lock("packaging.modules")


@contextlib.contextmanager
def users_modules_by_value(held: Callable[[str], bool]) -> Iterator[None]:
    """While it is open, functions and classes of the user's own modules are pickled by value.

    The far side cannot import them: a script's `import helpers` has to travel with it. Those that
    are `held` there go by name.
    """
    import cloudpickle

    own = [module for module in list(sys.modules.values()) if _travels(module)]
    own = [module for module in own if not held(module.__name__)]
    names = [module.__name__ for module in own]
    with _lock:
        for module in own:
            _registered[module.__name__] += 1
            if _registered[module.__name__] == 1:
                cloudpickle.register_pickle_by_value(module)
    token = travelling.set(frozenset(names))
    try:
        yield
    finally:
        travelling.reset(token)
        with _lock:
            for name in names:
                _registered[name] -= 1
                if not _registered[name] and name in sys.modules:
                    with contextlib.suppress(ValueError):
                        cloudpickle.unregister_pickle_by_value(sys.modules[name])


@contextlib.contextmanager
def sending_to(backend: SshBackend, held: Callable[[str], bool] | None) -> Iterator[None]:
    """While it is open, what is pickled is made for a cluster that shares no files with us."""
    from slurm.files import sent_by

    with users_modules_by_value(held or (lambda _: False)), sent_by(backend):
        yield


def _travels(module: Any) -> bool:
    try:
        name = module.__name__
    except Exception:  # noqa: BLE001 - an object in sys.modules may raise anything
        return False
    return sys.modules.get(name) is module and is_users_own(module)
