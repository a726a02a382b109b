"""The cache on the cluster: a pointer for each key says where the value of a call lies.

A call leaves a small file of its own. The items of a packed map are too many for that: theirs are
lines of files that each host has for itself, some 250 at most, told apart by how a key begins.
"""

import contextlib
import json
import os
import time
from typing import Any, Dict, List, Optional, Tuple

from slurm import rundir
from slurm.rundir.stamps import have_changed

#: The folder of the lines, and how many characters of a key choose the file.
PACKED, PREFIX = "packed", 2


def remember(
    run: str, who: rundir.Identity, header: Dict[str, Any], place: Tuple[str, int, int]
) -> None:
    """Let later calls with this call's key find the value that was just recorded.

    The newest value wins; each is whole, since the file is renamed into its place.
    """
    key = None if who.rank or header.get("oom") else own_key(run, who.index)
    # Files that changed while the call waited or ran may have given a value of another key.
    if key is not None and not have_changed(run):
        point(os.environ.get("SLURM_SDK_BASE") or os.path.dirname(run), key, run, place)


def point(base: str, key: str, run: str, place: Tuple[str, int, int]) -> None:
    """Let a key point to a record of a run."""
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


def announce(run: str, first: int, stop: int) -> None:
    """Let the keys of a packed job's items point to it, before it works on them.

    Whoever follows such a pointer looks whether the item has a value, so it may come too early; the
    value of an item that others have seen is always found.
    """
    try:
        with open(os.path.join(run, rundir.CACHE_KEYS)) as f:
            keys = f.read().split("\n")
    except OSError:
        return
    base = os.environ.get("SLURM_SDK_BASE") or os.path.dirname(run)
    name, lines = os.path.relpath(run, base), {}  # type: Tuple[str, Dict[str, List[str]]]
    for index in range(first, stop):
        if keys[index].isalnum():
            line = f"{keys[index]} {index} {name}\n"
            lines.setdefault(keys[index][:PREFIX], []).append(line)
    folder = os.path.join(base, rundir.BASE_CACHE, PACKED)
    with contextlib.suppress(OSError):  # the values themselves do not depend on it
        rundir.make_private_folder(folder)
        for start, found in lines.items():
            path = os.path.join(folder, f"{start}-{rundir.host_token()}")
            rundir.append(path, "".join(found).encode(), sync=False)


def _read_lines(path: str) -> List[Tuple[str, int, str]]:
    """Key, index and run of each pointer in a file of lines."""
    found = []  # type: List[Tuple[str, int, str]]
    try:
        lines = rundir.read_trusted(path).decode("utf-8", "replace").split("\n")
    except (OSError, rundir.Untrusted):
        return found
    for line in lines:
        with contextlib.suppress(ValueError):  # torn
            key, index, run = line.split(" ", 2)
            if _safe(run, ""):
                found.append((key, int(index), run))
    return found


def _look_up_items(base: str, keys: List[str]) -> Dict[str, Tuple[str, bytes]]:
    """For each key that an item of a packed map has, and whose value is there: run and record."""
    folder = os.path.join(base, rundir.BASE_CACHE, PACKED)
    names = os.listdir(folder) if keys and os.path.isdir(folder) else []
    wanted, starts = set(keys), {key[:PREFIX] for key in keys}
    places = {}  # type: Dict[str, Dict[int, str]]
    for name in names:
        if name.partition("-")[0] in starts:
            for key, index, run in _read_lines(os.path.join(folder, name)):
                if key in wanted:
                    places.setdefault(run, {})[index] = key
    found = {}  # type: Dict[str, Tuple[str, bytes]]
    for run, items in places.items():
        here = os.path.join(base, run)
        for index, data in _values(here, items).items():
            if own_key(here, index) == items[index]:
                found[items[index]] = (run, data)
    return found


def _values(run: str, wanted: Dict[int, str]) -> Dict[int, bytes]:
    """The values of items of a packed run, each as a record of its own."""
    from slurm.runner import batches  # few need it

    found = {}  # type: Dict[int, bytes]
    with contextlib.suppress(OSError, ValueError, rundir.Untrusted):
        rundir.check_private(run, os.stat(run))
        if have_changed(run) or _is_void(run):
            return found
        for record in batches.item_records(run, wanted):
            if record.kind == rundir.VALUE and record.index in wanted:
                who = rundir.Identity(record.job, record.index, 0, record.attempt)
                data = rundir.encode_record(who, rundir.VALUE, record.header, record.payload)
                found.setdefault(record.index, data)
    return found


def _is_void(run: str) -> bool:
    """Whether a process of a run found other things in its modules than the keys speak of."""
    return os.path.exists(os.path.join(run, rundir.CACHE_VOID))


def _safe(run: str, segment: str) -> bool:
    """Whether a pointer stays within the base directory."""
    outside = os.path.normpath(run).startswith(("..", "/"))
    return not outside and os.path.basename(segment) == segment


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
        if pointer is not None:
            run = str(pointer["run"])
            data = _record(os.path.join(base, run), key, *pointer["place"])
            if data is not None:
                found[key] = (run, data)
    found.update(_look_up_items(base, [key for key in keys if key not in found]))
    for run in {run for run, _ in found.values()}:
        path = os.path.join(base, run, rundir.METADATA)
        # A run that was deleted does not count.
        with contextlib.suppress(OSError), open(path, "rb") as f:
            metadata[run] = f.read()
    return {key: one for key, one in found.items() if one[0] in metadata}, metadata


def clear(base: str, target: Optional[str]) -> int:
    """Forget all keys, or those of the calls of one function; how many they were."""
    folder = os.path.join(base, rundir.BASE_CACHE)
    keys = set(os.listdir(folder)) - {PACKED} if os.path.isdir(folder) else set()
    targets = {}  # type: Dict[str, Optional[str]]
    count = 0
    for key in keys:
        run = str((_pointer(base, key) or {}).get("run", ""))
        if target is None or _target(base, run, targets) == target:
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(folder, key))
                count += 1
    packed = os.path.join(folder, PACKED)
    for name in os.listdir(packed) if os.path.isdir(packed) else ():
        count += _clear_lines(base, os.path.join(packed, name), target, targets)
    return count


def _clear_lines(
    base: str, path: str, target: Optional[str], targets: Dict[str, Optional[str]]
) -> int:
    found = _read_lines(path)
    kept = []  # type: List[str]
    for key, index, run in found:
        if target is not None and _target(base, run, targets) != target:
            kept.append(f"{key} {index} {run}\n")
    with contextlib.suppress(OSError):
        if kept:
            # What a job adds at this moment is lost: it would only have saved the next call.
            rundir.write_atomically(path, "".join(kept).encode(), sync=False)
        else:
            os.unlink(path)
        return len(found) - len(kept)
    return 0


def _target(base: str, run: str, known: Dict[str, Optional[str]]) -> Optional[str]:
    if run not in known:
        try:
            with open(os.path.join(base, run, rundir.METADATA)) as f:
                known[run] = str(json.load(f).get("target"))
        except (OSError, ValueError):
            known[run] = None
    return known[run]


def _pointer(base: str, key: str) -> Optional[Dict[str, Any]]:
    try:
        data = rundir.read_trusted(os.path.join(base, rundir.BASE_CACHE, os.path.basename(key)))
        pointer = json.loads(data.decode())
        segment, start, size = pointer["place"]
        run = os.path.normpath(str(pointer["run"]))
        if not _safe(run, segment):
            return None
        return {"run": run, "place": (segment, int(start), int(size))}
    except (OSError, ValueError, KeyError, TypeError, ArithmeticError, RecursionError):
        return None
    except rundir.Untrusted:
        return None  # missing, torn or planted: the call is made again


def _record(run: str, key: str, segment: str, start: int, size: int) -> Optional[bytes]:
    """The bytes of a value's record, if they still are one of this key and its value is there."""
    try:
        rundir.check_private(run, os.stat(run))
        with rundir.open_trusted(os.path.join(run, rundir.RESULTS, segment)) as f:
            if not 0 <= start < start + size <= os.fstat(f.fileno()).st_size:
                return None
            f.seek(start)
            data = f.read(size)  # type: bytes
    except (OSError, ValueError, rundir.Untrusted):
        return None
    records, _ = rundir.decode_records(data)
    if len(records) != 1 or records[0].kind != rundir.VALUE:
        return None
    if own_key(run, records[0].index) != key or _is_void(run):
        return None  # a pointer that lies under another key's name
    name = records[0].header.get("file")
    if name is not None and not os.path.exists(os.path.join(run, rundir.VALUES, str(name))):
        return None
    return data
