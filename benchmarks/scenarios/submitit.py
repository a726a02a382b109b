"""The drop-in beside submitit itself: the same program, with another import."""

from __future__ import annotations

import statistics
import sys
import threading
from collections.abc import Callable
from typing import Any

from benchmarks.figures import Row, Section
from benchmarks.ground import Ground, timed
from benchmarks.libraries import LIBRARIES
from benchmarks.peer import Peer, environment

OURS, THEIRS = "slurm.submitit", "submitit"
SUBMITIT = next(one for one in LIBRARIES if one.key == "submitit")
#: The longest that ours may take, as a part of theirs.
ONE_JOB, MAP_100, LOCAL_200, QUESTIONS, IMPORT = 1 / 1.8, 1 / 3, 1 / 10, 1 / 10, 1 / 2


def drop_in(ground: Ground) -> Section:
    """One job, arrays, questions to the scheduler, and the import."""
    rows: list[Row] = []
    if not ground.able("drop-in", [SUBMITIT.key]):
        return Section("The drop-in beside submitit", ())
    on_slurm = _pair(ground, "slurm", ground.slurm_env)
    one, many = ground.times(8, 3), ground.times(3, 2)
    rows += _compared(ground, "one job on Slurm", one, on_slurm, "one", ONE_JOB)
    rows += _compared(ground, "map_array(100) on Slurm", many, on_slurm, "map 100", MAP_100)
    local = _pair(ground, "local", ground.embedded_env)
    size = 40 if ground.quick else 200
    rows += _compared(ground, f"map_array({size}), local", 1, local, f"map {size}", LOCAL_200)
    rows += _questions(on_slurm, ground.times(3, 1))
    ground.empty_queue()
    rows += _imports(ground)
    note = (
        "Both run the same program. submitit leaves 0.2 s between two local submissions and looks "
        "for a result once a second; questions are squeue, sacct and scontrol of a client that "
        "submits a job every 5 s and looks at its state."
    )
    return Section("The drop-in beside submitit", tuple(rows), (note,))


def _pair(ground: Ground, cluster: str, env: dict[str, str]) -> dict[str, Peer]:
    found = {}
    for name in (THEIRS, OURS):
        needs = SUBMITIT.needs if name == THEIRS else ()
        place = str(ground.folder(f"drop-in-{cluster}-{name}"))
        label = f"{name} {cluster}"
        peer = ground.peer(label, "drop_in.py", name, cluster, place, env=env, needs=needs)
        found[name] = peer
    for peer in found.values():
        peer.play()  # the first call also fills caches
    return found


def _compared(
    ground: Ground, title: str, rounds: int, pair: dict[str, Peer], order: str, limit: float
) -> list[Row]:
    turns: dict[str, Callable[[], Any]] = {
        name: lambda peer=peer: peer.play(order) for name, peer in pair.items()
    }
    found = ground.alternate(rounds, turns)
    return _rows(title, {name: [1000 * v for v in found[name]] for name in found}, "ms", limit)


def _questions(pair: dict[str, Peer], minutes: int) -> list[Row]:
    """Both at the same time: they only wait."""
    found: dict[str, list[float]] = {}

    def count(name: str) -> None:
        pair[name].play("roll 40")  # what is done for the first few jobs is not done all the time
        asked = sum(pair[name].play("roll 60") for _ in range(minutes))
        found[name] = [60 * asked / minutes]

    threads = [threading.Thread(target=count, args=(name,)) for name in pair]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return _rows("questions to the scheduler per hour", found, "", QUESTIONS)


def _imports(ground: Ground) -> list[Row]:
    programs = {
        THEIRS: (environment(*SUBMITIT.needs), "import submitit; submitit.AutoExecutor"),
        OURS: (sys.executable, "import slurm.submitit as submitit; submitit.AutoExecutor"),
    }

    def takes(python: str, code: str) -> Callable[[], float]:
        env = ground.own_env if python == sys.executable else ground.bare_env
        return lambda: timed([python, "-c", code], env) - timed([python, "-c", "pass"], env)

    turns = {name: takes(*program) for name, program in programs.items()}
    found = ground.alternate(ground.times(15, 7), turns)
    milliseconds = {name: [1000 * v for v in found[name]] for name in found}
    return _rows("import, above a bare interpreter", milliseconds, "ms", IMPORT)


def _rows(title: str, found: dict[str, list[float]], unit: str, limit: float) -> list[Row]:
    if any(not found.get(name) for name in (THEIRS, OURS)):
        return []
    base = statistics.median(found[THEIRS])
    ours = statistics.median(found[OURS]) / base
    return [
        Row(f"{title}: submitit", tuple(found[THEIRS]), unit),
        Row(f"{title}: ours", tuple(found[OURS]), unit, ours, limit, "ratio"),
    ]
