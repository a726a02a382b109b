"""How an environment fares, told from the files in its folder; on Python 3.6."""

import json
import os
from typing import Any, Dict, Optional, Tuple

from slurm import rundir
from slurm.runner.lease import holder, is_dead

LOCK = "lock"
FAILED = "failed.json"
LOG = "log.txt"


def is_ready(folder: str) -> bool:
    """Whether the environment is there, whole."""
    return os.path.exists(os.path.join(folder, rundir.CURRENT, "bin", "python"))


def failure_of(folder: str) -> Dict[str, Any]:
    """Why it could not be made when it was last tried; nothing where it was not."""
    try:
        with open(os.path.join(folder, FAILED)) as f:
            found = json.load(f)
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def describe(folder: str) -> Dict[str, Any]:
    """What an environment is and how it fares."""
    try:
        with open(os.path.join(folder, rundir.RECIPE)) as f:
            recipe = json.load(f)
    except (OSError, ValueError):
        recipe = {}
    state, failure = _state(folder)
    return {
        "state": state,
        "label": recipe.get("label", ""),
        "python": (recipe.get("python") or {}).get("version", ""),
        "wheel": recipe.get("wheel") or "",
        "wheels": recipe.get("wheels") or [],
        "failure": failure,
        "log": _last_line(os.path.join(folder, LOG)) if state == "making" else "",
    }


def _state(folder: str) -> Tuple[str, Optional[Dict[str, Any]]]:
    if is_ready(folder):
        return "ready", None
    who = holder(os.path.join(folder, LOCK))
    if who and not is_dead(who):
        return "making", None
    failure = failure_of(folder)
    return ("failed", failure) if failure else ("unmade", None)


def _last_line(path: str) -> str:
    try:
        with open(path, errors="replace") as f:
            f.seek(max(0, os.path.getsize(path) - 2000))
            lines = [line.strip() for line in f if line.strip()]
    except OSError:
        return ""
    return lines[-1] if lines else ""
