"""Large values, as arguments that many calls share and as results: time and memory."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from benchmarks.figures import Row, Section
from benchmarks.ground import Ground

JOBLIB = ("joblib==1.6.0", "numpy==2.4.6")
CALLS = 100
#: How much more than the value itself a process may need.
MORE = 0.3


def heavy(ground: Ground) -> Section:
    """One table of numpy that many calls read, and one that comes back; joblib does the same."""
    mib = ground.times(500, 100)
    place = str(ground.folder("heavy"))
    peers = {"ours": ground.peer("ours heavy", "heavy_ours.py", place, env=ground.embedded_env)}
    peers["joblib"] = ground.peer(
        "joblib", "heavy_joblib.py", env=ground.bare_env, needs=JOBLIB, cwd=ground.folder("joblib")
    )
    ground.versions["joblib"] = str(peers["joblib"].facts["version"])
    orders = {
        f"a table of {mib} MiB that {CALLS} calls read": f"share {mib} {CALLS}",
        f"a value of {mib} MiB that comes back": f"give {mib}",
    }
    rows: list[Row] = []
    for what, order in orders.items():
        turns: dict[str, Callable[[], Any]] = {
            name: functools.partial(peer.play, order) for name, peer in peers.items()
        }
        found = ground.alternate(ground.times(3, 1), turns)
        rows += _rows(what, found, mib, given=order.startswith("give"))
    notes = (
        "Ours on the embedded scheduler: a packed map in two workers with `common=`, and a job of "
        "its own for the value; the start of the job is in the time. joblib's two processes are "
        "up, with its defaults: it writes large arguments to /dev/shm and maps them, and sends "
        "values through a pipe.",
        "The client's peak is by how much its resident memory rose; for a value that includes the "
        "value itself. A worker's own memory is what it shares with nobody.",
    )
    return Section("Large values", tuple(rows), notes)


def _rows(what: str, found: dict[str, list[Any]], mib: int, given: bool) -> list[Row]:
    parts = {"total": ("time", "s"), "peak": ("the client's peak", "MiB")}
    if not given:
        parts["own"] = ("a worker's own memory", "MiB")
    limit = {"peak": (1 + MORE) * mib if given else MORE * mib, "own": (1 + MORE) * mib}
    return [
        Row(
            f"{what}, {name}: {words}",
            tuple(answer[part] for answer in answers),
            unit,
            limit=limit.get(part) if name == "ours" else None,
        )
        for part, (words, unit) in parts.items()
        for name, answers in found.items()
        if answers
    ]
