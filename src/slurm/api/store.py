"""The agent's verbs about what is stored once for many runs; on Python 3.6.

That is environments, wheels, snapshots of working trees, and copies of the SDK.
"""

import contextlib
import os
import subprocess
import sys
import tarfile
import time
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence

from slurm import rundir
from slurm.api import folders, run_files, starting, whole
from slurm.api.agent_error import AgentError
from slurm.runner import environment_state
from slurm.runner.protected import protect, remove_tree

#: What is stored in which folder of the base directory.
KINDS = {
    "environment": rundir.BASE_ENVIRONMENTS,
    "wheel": rundir.BASE_WHEELS,
    "snapshot": rundir.BASE_SNAPSHOTS,
    "sdk": rundir.BASE_SDK,
}
#: The state of what a death has left half done.
LEFT_OVER = "left over"


def place(agent: Any, name: str) -> str:
    """The path of something stored; only names in our own folders are taken."""
    path = os.path.normpath(os.path.join(agent.base, name))
    tops = [os.path.join(agent.base, folder) + os.sep for folder in KINDS.values()]
    if not any(path.startswith(top) for top in tops):
        raise AgentError("rundir", "{!r} is no place in the store".format(name))
    return path


def put(agent: Any, name: str, data: bytes) -> None:
    """Store a small file, whole or not at all."""
    path = place(agent, name)
    try:
        rundir.make_private_folder(os.path.dirname(path))
        rundir.write_atomically(path, data)
    except OSError as error:
        raise AgentError(
            "rundir", "{} cannot be written: {}".format(path, error.strerror)
        ) from error


def unpack(agent: Any, name: str, archive_name: str) -> None:
    """Unpack an archive as a folder that is read-only, whole or not at all; the archive goes."""
    path, packed = place(agent, name), place(agent, archive_name)
    temporary = "{}.{}.{}.new".format(path, os.getpid(), time.time())
    try:
        rundir.make_private_folder(temporary)
        sizes = []
        with tarfile.open(packed) as archive:
            for member in archive:
                # Made by our own client; still nothing may leave the folder.
                if member.name.startswith("/") or ".." in member.name.split("/"):
                    raise AgentError("rundir", "{!r} leaves the snapshot".format(member.name))
                archive.extract(member, temporary, set_attrs=False)
                if member.isfile() and "\n" not in member.name:
                    sizes.append((member.name, member.size))
        whole.write_list(temporary, sizes)
        protect(temporary)
        if os.path.isdir(path) and not whole.is_whole(path):
            _take_away(path)  # it has lost files
        os.rename(temporary, path)
    except (OSError, tarfile.TarError) as error:
        remove_tree(temporary)
        if not os.path.isdir(path):  # else another client was quicker
            text = getattr(error, "strerror", None) or str(error)
            raise AgentError("rundir", "{} cannot be written: {}".format(path, text)) from error
    finally:
        with contextlib.suppress(OSError):
            os.unlink(packed)


# ---- environments -------------------------------------------------------------------------------


def state(agent: Any, key: str) -> Dict[str, Any]:
    """How an environment fares: ready, making, failed or unmade; and its last lines."""
    folder = place(agent, "{}/{}".format(rundir.BASE_ENVIRONMENTS, key))
    return environment_state.describe(folder)


def make(agent: Any, key: str, sdk: str) -> Dict[str, Any]:
    """Begin to make an environment here, in a process of its own; returns at once."""
    folder = place(agent, "{}/{}".format(rundir.BASE_ENVIRONMENTS, key))
    home = os.path.join(agent.base, rundir.BASE_SDK, sdk)
    run_files.check_code(agent.base, home)
    program = os.path.join(home, "slurm/runner/environment.py")
    found = state(agent, key)
    if found["state"] in ("ready", "making"):
        return found
    # It has a session of its own: it goes on when the connection ends.
    starting.popen(
        [sys.executable, program, folder],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        cwd="/",
    )
    return dict(found, state="making")


# ---- what there is, and what goes ---------------------------------------------------------------


def inventory(agent: Any, sizes: bool) -> Dict[str, Any]:
    """All that is stored: kind, name, age, size and facts; and what runs that are queued use."""
    items = []  # type: List[Dict[str, Any]]
    for kind, folder in KINDS.items():
        top = os.path.join(agent.base, folder)
        for name in folders.names(top):
            item = _item(kind, top, name, sizes)
            if item is not None:
                items.append(item)
                items += _left_in(kind, top, item, sizes)
    return {"items": items, "used": sorted(_used(agent))}


def _item(kind: str, top: str, name: str, sizes: bool) -> Optional[Dict[str, Any]]:
    path = os.path.join(top, name)
    try:
        changed = os.lstat(path).st_mtime
        size = folders.size(path) if sizes else None
        item = {"kind": kind, "name": name, "size": size}  # type: Dict[str, Any]
        if name.endswith((".new", ".gone", ".tmp", ".tar.gz", ".part")):
            item["state"] = LEFT_OVER
        elif kind == "environment":
            item.update(environment_state.describe(path))
            changed = max([changed] + [_mtime(os.path.join(path, n)) for n in ("used", "lock")])
    except OSError:
        return None  # it went meanwhile
    item["idle"] = max(0.0, time.time() - changed)
    return item


def _left_in(kind: str, top: str, item: Dict[str, Any], sizes: bool) -> Iterator[Dict[str, Any]]:
    """Environments that were begun and never finished, where nobody is at it."""
    if kind != "environment" or item.get("state") in ("making", LEFT_OVER):
        return
    folder = os.path.join(top, item["name"])
    current = os.path.basename(os.path.realpath(os.path.join(folder, rundir.CURRENT)))
    for name in folders.names(folder):
        path = os.path.join(folder, name)
        if name not in (current, rundir.CURRENT) and os.path.isdir(path):
            yield {
                "kind": kind,
                "name": item["name"] + "/" + name,
                "size": folders.size(path) if sizes else None,
                "idle": max(0.0, time.time() - _mtime(path)),
                "state": LEFT_OVER,
            }


def _used(agent: Any) -> Iterator[str]:
    """What the runs of jobs that have not ended need."""
    rows = agent.scheduler.status([])
    for work_dir in {row.work_dir for row in rows if row.end is None}:
        environment = run_files.read_json(os.path.join(work_dir, rundir.ENVIRONMENT))
        if environment is None:
            continue  # no run of ours
        for name in environment.get("needs", ()):
            yield str(name)
        try:
            text = run_files.read_script(os.path.join(work_dir, rundir.SCRIPT))
        except OSError:
            continue
        mark = "export SLURM_SDK_ROOT="
        line = next((ln for ln in text.split("\n") if ln.startswith(mark)), "")
        yield "{}/{}".format(rundir.BASE_SDK, os.path.basename(line.strip("'\"")))


def remove(agent: Any, names: Sequence[str]) -> List[str]:
    """Remove things from the store, each by its place below the base; those that were there."""
    gone = []  # type: List[str]
    for name in names:
        path = place(agent, name)
        if not os.path.lexists(path):
            continue
        try:
            _take_away(path)
        except OSError as error:
            text = "{} cannot be removed: {}".format(path, error.strerror)
            raise AgentError("rundir", text) from error
        gone.append(name)
    return gone


def _take_away(path: str) -> None:
    """Remove something stored: under another name first, so that no job uses half of it."""
    aside = "{}.{}.gone".format(path, os.getpid())
    os.rename(path, aside)
    whole.forget(path)
    remove_tree(aside) if os.path.isdir(aside) else os.unlink(aside)


def _mtime(path: str) -> float:
    try:
        return os.lstat(path).st_mtime
    except OSError:
        return 0.0


#: What a client may ask for; each is given the agent first.
VERBS: Dict[str, Callable[..., Any]] = {
    "store_put": put,
    "store_unpack": unpack,
    "store_list": inventory,
    "store_remove": remove,
    "environment_state": state,
    "environment_make": make,
}
