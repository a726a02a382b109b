"""Makes a virtual environment after a recipe, with uv or with pip; on Python 3.6.

The recipe is a plain table: which Python, which wheels and requirements, from which index.
"""

import errno
import glob
import os
import signal
import subprocess
import sys
from typing import Any, Callable, Dict, List, Optional, Sequence

from slurm import rundir
from slurm.api import pythons
from slurm.runner import uv_pin

#: A program that works on an environment is stopped after so many seconds.
LIMIT = 3600
_HASH = " --hash="
#: So many of its last lines are evidence.
LINES = 12


class Failed(Exception):
    """The environment cannot be made; the text says why and what to do."""

    def __init__(self, message: str, hint: str, evidence: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.hint = hint
        self.evidence = list(evidence)


def install(recipe: Dict[str, Any], base: str, target: str, log: str) -> None:
    """Make the environment in `target`; programs write to `log`."""
    run = Programs(recipe, base, log)
    python = find_python(recipe)
    uv = None if recipe["installer"] == "pip" else find_uv(base, recipe.get("uv"))
    if uv is None and (python is None or recipe["installer"] == "uv"):
        uv = fetch_uv(base, run)
    if uv is not None:
        _with_uv(recipe, uv, python, target, run)
    else:
        assert python is not None
        _with_pip(recipe, python, target, run)
    found = pythons.version(os.path.join(target, "bin", "python"))
    wanted = recipe["python"]["version"]
    if found is None or "{}.{}".format(*found[1]) != wanted:
        raise Failed(
            "the environment has {} instead of Python {}".format(
                "no Python" if found is None else "Python {}.{}".format(*found[1]), wanted
            ),
            "say which Python to use: python=...",
        )


# ---- programs -----------------------------------------------------------------------------------


class Programs:
    """Starts the programs that work on an environment."""

    def __init__(self, recipe: Dict[str, Any], base: str, log: str) -> None:
        self._log = log
        self._env = dict(os.environ)
        # What the job's shell has activated must not be changed.
        for name in ("VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONPATH", "PYTHONHOME"):
            self._env.pop(name, None)
        self._env["UV_NO_PROGRESS"] = "1"
        # By itself uv takes as many processes as the node has CPUs, whatever the job has.
        for name in ("UV_CONCURRENT_INSTALLS", "UV_CONCURRENT_BUILDS"):
            self._env.setdefault(name, os.environ.get("SLURM_CPUS_PER_TASK") or "2")
        self._env["PIP_DISABLE_PIP_VERSION_CHECK"] = "1"
        self._env["PIP_NO_INPUT"] = "1"
        # Interpreters lie where every node sees them.
        self._env.setdefault("UV_PYTHON_INSTALL_DIR", os.path.join(base, rundir.BASE_PYTHONS))
        if recipe.get("python_mirror"):
            self._env["UV_PYTHON_INSTALL_MIRROR"] = recipe["python_mirror"]

    def __call__(self, words: Sequence[str], what: str, hint: str) -> None:
        """Run a program to its end; its last lines explain a failure."""
        with open(self._log, "a") as f:
            f.write("$ {}\n".format(" ".join(words)))
            f.flush()
            start = f.tell()
            try:
                code = subprocess.call(
                    list(words),
                    stdin=subprocess.DEVNULL,
                    stdout=f,
                    stderr=f,
                    env=self._env,
                    cwd="/",
                    timeout=LIMIT,
                )
            except subprocess.TimeoutExpired:
                text = "{}: {} did not end in {} s".format(what, words[0], LIMIT)
                raise Failed(text, hint) from None
            except OSError as error:
                text = "{}: {} cannot be started: {}".format(what, words[0], error)
                raise Failed(text, hint) from error
        if code:
            lines = _tail(self._log, start)
            if _is_full(os.path.dirname(self._log)) or os.strerror(errno.EDQUOT) in "".join(lines):
                lines.append(os.strerror(errno.ENOSPC))
                hint = "make room there, or choose another job_base_dir"
            elif code == -signal.SIGKILL:
                hint = (
                    "it was killed: most likely the memory of this job is too small to make the "
                    "environment. Make it ahead of time, on the login node: slurm env build, or "
                    '{"build_on": "login"}; or give the job more: mem="2GiB"'
                )
            raise Failed("{} failed with exit code {}".format(what, code), hint, lines)


def _is_full(folder: str) -> bool:
    """Whether a disk has no room left; not every program says that this is what ails it."""
    left = os.statvfs(folder)
    return left.f_bavail * left.f_frsize < 1 << 20 or (left.f_files > 0 and left.f_favail == 0)


def _tail(log: str, start: int) -> List[str]:
    with open(log, errors="replace") as f:
        f.seek(start)
        return [line.rstrip() for line in f if line.strip()][-LINES:]


def find_python(recipe: Dict[str, Any]) -> Optional[str]:
    """An interpreter of the wanted version here: the one that is named, else one that is found."""
    wanted = [int(part) for part in recipe["python"]["version"].split(".")]
    named = recipe["python"].get("path")
    if named:
        found = pythons.version(named)
        if found and found[1][:2] == wanted:
            return str(named)
    same = pythons.find(wanted)["same"]
    return str(same[0]) if same else None


def find_uv(base: str, known: Optional[str] = None) -> Optional[str]:
    """Where uv lies: on PATH, where its own installer puts it, or where we have put it."""
    home = os.path.expanduser("~")
    places = [known] if known else []
    places += ["uv", home + "/.local/bin/uv", home + "/.cargo/bin/uv"]
    places += sorted(glob.glob(os.path.join(base, rundir.BASE_TOOLS, "uv", "bin", "uv")))
    return next((found for found in map(pythons.which, places) if found), None)


def fetch_uv(base: str, run: Callable[..., None]) -> str:
    """Put uv below the base directory, by the pip of a Python that is here."""
    from slurm.runner.protected import remove_tree

    target = os.path.join(base, rundir.BASE_TOOLS, "uv")
    temporary = "{}.{}.new".format(target, os.getpid())
    hint = "install uv on the cluster (pip install --user uv), or name a Python there: python=..."
    pinned = temporary + ".txt"
    # What is fetched is executed: one release, whatever an index offers under its name.
    words = [sys.executable, "-m", "pip", "install", "--quiet", "--target", temporary]
    words += ["--require-hashes", "--no-deps", "--only-binary", ":all:", "--requirement", pinned]
    try:
        os.makedirs(os.path.dirname(pinned), mode=0o700, exist_ok=True)
        with open(pinned, "w") as f:
            marks = "".join(" --hash=sha256:" + one for one in uv_pin.HASHES)
            f.write("uv=={}{}\n".format(uv_pin.VERSION, marks))
        run(words, "fetching uv, which provides Pythons", hint)
        os.rename(temporary, target)
    except OSError:
        pass  # another one was quicker
    finally:
        remove_tree(temporary)
        if os.path.exists(pinned):
            os.unlink(pinned)
    found = find_uv(base)
    if found is None:
        raise Failed("uv was installed into {}, but is not there".format(target), hint)
    return found


# ---- uv, and pip --------------------------------------------------------------------------------


def _with_uv(
    recipe: Dict[str, Any], uv: str, python: Optional[str], target: str, run: Callable[..., None]
) -> None:
    version = recipe["python"]["version"]
    hint = (
        "uv fetches Pythons from outside, and could not: set a mirror that the cluster reaches, "
        'packaging={{"type": ..., "python_mirror": "https://..."}} or UV_PYTHON_INSTALL_MIRROR; or '
        "name a Python {} there: python=...; or use here a Python that the cluster has"
    ).format(version)
    words = [uv, "venv", "--no-project", "--python", python or version, target]
    run(words, "making an environment with Python {}".format(version), hint if not python else _WHY)
    wanted = requirements(recipe)
    if wanted:
        inside = os.path.join(target, "bin", "python")
        flags = ["--python", inside, "--compile-bytecode", "--link-mode", "copy"]
        options = index_flags(recipe, "--index-url", "--extra-index-url")
        for words in (hashed(recipe), wanted):
            if words:
                run([uv, "pip", "install", *flags, *options, *words], _INSTALLING, _WHY)


def _with_pip(recipe: Dict[str, Any], python: str, target: str, run: Callable[..., None]) -> None:
    hint = "install the venv module there (Debian: apt-get install python3-venv), or uv"
    wanted = requirements(recipe)
    inside = os.path.join(target, "bin", "python")
    # A pip that can work on another environment spares this one a copy of its own.
    from_outside = [python, "-m", "pip", "--python", inside]
    bare = not wanted or pythons.succeeds([python, "-m", "pip", "--python", python, "--version"])
    flags = ["--without-pip"] if bare else []
    run([python, "-m", "venv", *flags, target], "making an environment", hint)
    if wanted:
        pip = from_outside if bare else [inside, "-m", "pip"]
        options = index_flags(recipe, "--index-url", "--extra-index-url")
        for words in (hashed(recipe), wanted):
            if words:
                run([*pip, "install", "--no-input", *options, *words], _INSTALLING, _WHY)


_INSTALLING = "installing the project and its dependencies"
_WHY = (
    "the lines above say what is wrong; try it by hand with the command in the log. Without "
    'access to an index on the nodes: {"build_on": "login"}, or {"find_links": [...]}'
)


def hashed(recipe: Dict[str, Any]) -> List[str]:
    """What a lock with hashes holds is installed first: these very files, and nothing beside."""
    if not recipe.get("hashed"):
        return []
    return ["--require-hashes", "--no-deps", "--requirement", recipe["hashed"]]


def requirements(recipe: Dict[str, Any]) -> List[str]:
    """What is installed, in the words of pip: wheels by path, requirements, constraints."""
    words = []  # type: List[str]
    if recipe.get("wheel"):
        extras = ",".join(recipe.get("extras") or ())
        words.append(recipe["wheel"] + ("[{}]".format(extras) if extras else ""))
    words += recipe.get("wheels") or []
    words += recipe.get("dependencies") or []
    if words and recipe.get("constraints"):
        words += ["--constraint", recipe["constraints"]]
    return words


def index_flags(recipe: Dict[str, Any], index: str, extra: str) -> List[str]:
    """Where packages come from."""
    words = [index, recipe["index_url"]] if recipe.get("index_url") else []
    for url in recipe.get("extra_index_urls") or ():
        words += [extra, url]
    for folder in recipe.get("find_links") or ():
        words += ["--find-links", os.path.expanduser(folder)]
    return words


def located(recipe: Dict[str, Any], base: str, constraints: str) -> Dict[str, Any]:
    """The recipe with paths of this cluster, and the versions of its lock in a file."""
    found = dict(recipe, wheels=[os.path.join(base, name) for name in recipe.get("wheels") or ()])
    if recipe.get("wheel"):
        found["wheel"] = os.path.join(base, recipe["wheel"])
    if recipe.get("lock"):
        with open(constraints, "w") as f:
            f.write("".join(line.partition(_HASH)[0] + "\n" for line in recipe["lock"]))
        found["constraints"] = constraints
        if any(_HASH in line for line in recipe["lock"]):
            found["hashed"] = constraints + ".hashed"
            with open(found["hashed"], "w") as f:
                f.write("\n".join(recipe["lock"]) + "\n")
    return found
