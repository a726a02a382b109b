"""The cache on the cluster: a small file per key that says where the value of a call lies."""

import contextlib
import json
import os
import time
from typing import Any, Dict, List, Optional, Tuple

from slurm import rundir


def remember(
    run: str, who: rundir.Identity, header: Dict[str, Any], place: Tuple[str, int, int]
) -> None:
    """Let later calls with this call's key find the value that was just recorded.

    The newest value wins; each is whole, since the file is renamed into its place.
    """
    key = None if who.rank or header.get("oom") else own_key(run, who.index)
    if key is None:
        return
    base = os.environ.get("SLURM_SDK_BASE") or os.path.dirname(run)
    pointer = {"run": os.path.relpath(run, base), "place": place, "time": int(time.time())}
    path = os.path.join(base, rundir.BASE_CACHE, key)
    # The name is the host's own: process ids of two hosts may be equal.
    temporary = f"{path}.{rundir.host_token()}.{os.getpid()}"
    try:
        rundir.make_private_folder(os.path.dirname(path))
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(fd, "w") as f:
            json.dump(pointer, f)
        os.replace(temporary, path)
    except OSError:
        # The value itself is recorded; only the short cut to it is missing.
        with contextlib.suppress(OSError):
            os.unlink(temporary)


def own_key(run: str, index: int) -> Optional[str]:
    """The key of a call; None where it has none."""
    try:
        with open(os.path.join(run, rundir.CACHE_KEYS)) as f:
            f.seek(index * (rundir.KEY_LENGTH + 1))
            key = f.read(rundir.KEY_LENGTH)
    except OSError:
        return None
    return key if len(key) == rundir.KEY_LENGTH and key.isalnum() else None


def look_up(base: str, keys: List[str]) -> Tuple[Dict[str, Any], Dict[str, bytes]]:
    """For each key whose value is still there: its run and its record; and the runs' metadata."""
    found = {}  # type: Dict[str, Any]
    metadata = {}  # type: Dict[str, bytes]
    for key in keys:
        pointer = _pointer(base, key)
        if pointer is None:
            continue
        run = str(pointer["run"])
        data = _record(os.path.join(base, run), *pointer["place"])
        if data is None:
            continue
        if run not in metadata:
            try:
                with open(os.path.join(base, run, rundir.METADATA), "rb") as f:
                    metadata[run] = f.read()
            except OSError:
                continue  # the run was deleted: what is left of it does not count
        found[key] = (run, data)
    return found, metadata


def clear(base: str, target: Optional[str]) -> int:
    """Forget all keys, or those of the calls of one function; how many they were."""
    folder = os.path.join(base, rundir.BASE_CACHE)
    count = 0
    for key in os.listdir(folder) if os.path.isdir(folder) else ():
        if target is not None and _target(base, key) != target:
            continue
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(folder, key))
            count += 1
    return count


def _target(base: str, key: str) -> Optional[str]:
    pointer = _pointer(base, key)
    try:
        with open(os.path.join(base, str((pointer or {})["run"]), rundir.METADATA)) as f:
            return str(json.load(f).get("target"))
    except (OSError, ValueError, KeyError):
        return None


def _pointer(base: str, key: str) -> Optional[Dict[str, Any]]:
    try:
        data = rundir.read_trusted(os.path.join(base, rundir.BASE_CACHE, os.path.basename(key)))
        pointer = json.loads(data.decode())
        segment, start, size = pointer["place"]
        run = os.path.normpath(str(pointer["run"]))
        if run.startswith(("..", "/")) or os.path.basename(segment) != segment:
            return None
        return {"run": run, "place": (segment, int(start), int(size))}
    except (OSError, ValueError, KeyError, TypeError, rundir.Untrusted):
        return None  # missing, torn or planted: the call is made again


def _record(run: str, segment: str, start: int, size: int) -> Optional[bytes]:
    """The bytes of a value's record, if they still are one and its value is there."""
    try:
        rundir.check_private(run, os.stat(run))
        with rundir.open_trusted(os.path.join(run, rundir.RESULTS, segment)) as f:
            f.seek(start)
            data = f.read(size)  # type: bytes
    except (OSError, rundir.Untrusted):
        return None
    records, _ = rundir.decode_records(data)
    if len(records) != 1 or records[0].kind != rundir.VALUE:
        return None
    name = records[0].header.get("file")
    if name is not None and not os.path.exists(os.path.join(run, rundir.VALUES, str(name))):
        return None
    return data
