"""How long one call takes that does nothing: as a job of its own, and in workers that are up."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from benchmarks import race
from benchmarks.figures import Row, Section, compared
from benchmarks.ground import Ground, timed
from benchmarks.libraries import LIBRARIES
from benchmarks.race import Race

ONE = "One job, submit to result"
SUBMIT = "One submission, not waited for"
COLD = "An allocation from nothing, to its first result"
CALL = "One call in workers that are up"
TO_RAW = 1.3
EMBEDDED_MS = 150.0


def on_slurm(ground: Ground) -> Section:
    """One no-op job on real Slurm; submissions alone; the first and a later call of a pilot."""
    rounds = ground.times(8, 1)
    one = race.run(
        ground, Race(ONE, "one", rounds, unit="ms", aligned=True, warm_up="one", cap_s=30)
    )
    rows = one.rows()
    held = [race.bettered(rows, TO_RAW, "raw")]
    held += [
        race.renamed(row, f"{row.name}, from the moment that Slurm started the script")
        for row in one.rows("run")
    ]
    count = ground.times(25, 10)
    submits = race.run(
        ground, Race(SUBMIT, f"submit {count}", ground.times(3, 1), leaves_jobs=True)
    )
    for key, answers in submits.found.items():
        submits.found[key] = [{"total": each["total"] / count} for each in answers]
    rows += submits.rows(unit="ms")
    cold = race.run(ground, Race(COLD, "cold", ground.times(3, 1), cap_s=45, aligned=True))
    rows += cold.rows(unit="ms")
    call = Race(CALL, "pack 1", ground.times(10, 4), unit="ms", warm_up="pack 1", ours="warm 1")
    rows += race.run(ground, call).rows()
    notes = (
        "slurmctld starts a job when its loop comes round, once a second: up to a second of every "
        "total is that wait. So all turns of a round begin at the same fraction of a second, and "
        "the last rows leave the wait out.",
        f"Submissions are in blocks of {count}, of jobs that begin in an hour; submitit leaves "
        "0.2 s between two on purpose. submitit looks for a result once a second.",
        "Calls in workers that are up are those of `cluster.executor` with ours.",
    )
    return Section("One call", (*rows, *held), notes)


def on_embedded(ground: Ground) -> Section:
    """One no-op job on the warm embedded scheduler, beside submitit's local executor."""
    env = ground.embedded_env
    ours = ground.peer(
        "ours embedded", "with_ours.py", str(ground.folder("ejobs")), "embedded", env=env
    )
    library = next(one for one in LIBRARIES if one.key == "submitit")
    nothing = "no scheduler at all: bash that starts `python -c pass`"
    turns: dict[str, Callable[[], Any]] = {
        nothing: lambda: timed(["bash", "-c", f"{sys.executable} -c pass; exit $?"], env),
        "ours, function by reference": lambda: ours.play("one")["total"],
        "ours, function by value": lambda: ours.play("one value")["total"],
    }
    if ground.able("one", [library.key]):
        folder = str(ground.folder("sublocal"))
        peer = ground.peer(
            "submitit local", library.program, folder, "local", env=env, needs=library.needs
        )
        turns["submitit, local executor"] = peer.play
    for play in turns.values():
        play()
    found = ground.alternate(ground.times(12, 4), turns)
    samples = {name: [1000 * value for value in values] for name, values in found.items()}
    rows = tuple(
        Row(r.name, r.samples, r.unit, r.ratio, EMBEDDED_MS) if r.name.startswith("ours") else r
        for r in compared(samples, nothing)
    )
    note = "Ratios are to a bash that starts `python -c pass`."
    return Section("One job on the embedded scheduler, warm", rows, (note,))
