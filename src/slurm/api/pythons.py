"""Which Pythons the login node has, and what they can import; on Python 3.6."""

import glob
import json
import os
import subprocess
from typing import Any, Callable, Dict, List, Optional, Sequence

from slurm.api import starting

_ASK = "import json, sys; print(json.dumps([sys.executable, list(sys.version_info[:3])]))"

_FIND = """
import hashlib, importlib.util, json, sys
found = {}
for name in sys.argv[1:]:
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError, AttributeError):
        spec = None
    if spec is None:
        continue
    digest = ""
    try:
        with open(spec.origin, "rb") as f:
            digest = hashlib.sha256(f.read()).hexdigest()
    except (OSError, TypeError, ValueError):
        pass
    found[name] = [str(spec.origin), digest]
print(json.dumps(found))
"""


def which(name: str) -> Optional[str]:
    """Where a program lies, as a shell would find it; `shutil` would cost a megabyte."""
    folders = [""] if os.sep in name else os.environ.get("PATH", os.defpath).split(os.pathsep)
    paths = [os.path.join(folder, name) for folder in folders]
    return next((p for p in paths if os.path.isfile(p) and os.access(p, os.X_OK)), None)


def _ask(command: Sequence[str]) -> Any:
    try:
        done = starting.run(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=30,
            cwd="/",
        )
        return json.loads(done.stdout.decode().strip().rpartition("\n")[2])
    except (OSError, subprocess.SubprocessError, ValueError):
        return None


def succeeds(command: Sequence[str]) -> bool:
    """Whether a short program ends well."""
    nowhere = subprocess.DEVNULL
    try:
        return not subprocess.call(
            list(command), stdin=nowhere, stdout=nowhere, stderr=nowhere, timeout=30, cwd="/"
        )
    except (OSError, subprocess.SubprocessError):
        return False


def version(python: str) -> Optional[List[Any]]:
    """The path and version of an interpreter; None where it cannot be started."""
    found = _ask([python, "-I", "-S", "-c", _ASK])
    return found if isinstance(found, list) and len(found) == 2 else None


def find(wanted: Sequence[int]) -> Dict[str, Any]:
    """A Python of the wanted minor version, and the newest one of 3.10 or later."""
    major, minor = int(wanted[0]), int(wanted[1])
    exact = [f"python{major}.{minor}", "python3"]
    exact += sorted(glob.glob(f"/usr/local/bin/python{major}.{minor}"))
    exact += sorted(glob.glob(f"/opt/*/bin/python{major}.{minor}"))
    home = os.path.expanduser("~")
    exact += sorted(glob.glob(f"{home}/.local/bin/python{major}.{minor}"))
    exact += sorted(glob.glob(f"{home}/.pyenv/versions/{major}.{minor}.*/bin/python"))
    tried: Dict[str, Any] = {}
    for name in exact:
        path = which(name)
        if path and path not in tried:
            tried[path] = version(path)
            if tried[path] and tried[path][1][:2] == [major, minor]:
                return {"same": tried[path], "any": tried[path], "tried": sorted(tried)}
    for number in range(19, 9, -1):
        path = which(f"python3.{number}")
        if path and path not in tried:
            tried[path] = version(path)
    new = [found for found in tried.values() if found and found[1][:2] >= [3, 10]]
    newest: Any = max(new, key=lambda found: found[1]) if new else None
    return {"same": None, "any": newest, "tried": sorted(tried)}


def modules(python: str, names: Sequence[str]) -> Dict[str, Any]:
    """Which of these modules a Python would import: where they lie, and the hash of the file."""
    found = _ask([python, "-c", _FIND, *names])
    return found if isinstance(found, dict) else {}


#: What a client may ask for.
VERBS: Dict[str, Callable[..., Any]] = {
    "python_version": version,
    "find_python": find,
    "find_modules": modules,
}
