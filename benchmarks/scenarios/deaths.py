"""How soon a client knows that a job died."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.figures import Row, Section
from benchmarks.ground import SUBMITIT, Ground

NOTICED_MS = 5000.0
LONG_S = 25
SUBMITIT_PATIENCE_S = 20

WAYS = {
    "exception": "the function raises",
    "exit": "os._exit(3)",
    "kill": "SIGKILL of the runner",
    "scancel": "scancel from outside",
}


def deaths(ground: Ground) -> Section:
    """Each way to die a few times, in turn; then once after a longer run, and with submitit."""
    env = ground.slurm_env
    ours = ground.peer("deaths", "deaths.py", str(ground.folder("dead")), env=env)
    assert ours is not None
    ours.play("exception")
    turns: dict[str, Callable[[], Any]] = {
        text: lambda way=way: ours.play(way)  # type: ignore[misc]
        for way, text in WAYS.items()
    }
    found = ground.alternate(ground.times(5, 2), turns)
    if not ground.quick:
        found[f"the function raises after {LONG_S} s"] = [ours.play(f"exception {LONG_S}")]
    rows = [Row(name, _ms(values), limit=NOTICED_MS) for name, values in found.items()]
    notes = [
        "From the last moment in the function (or the kill, or the start of scancel) to the "
        "exception in the client. The longer a job runs, the rarer the client looks: at most "
        "once a second while somebody waits."
    ]
    peer = None
    if not ground.quick:
        folder = str(ground.folder("subdead"))
        patience = str(SUBMITIT_PATIENCE_S)
        program = "deaths_submitit.py"
        peer = ground.peer("submitit deaths", program, folder, patience, env=env, needs=SUBMITIT)
    if peer is not None:
        for way in ("exception", "exit"):
            seconds = ground.alternate(1, {way: lambda way=way: peer.play(way)})[way]  # type: ignore[misc]
            late = any(value > SUBMITIT_PATIENCE_S - 2 for value in seconds)
            name = f"submitit, {WAYS[way]}" + (" (not noticed by then)" if late else "")
            rows += [Row(name, _ms(seconds))] if seconds else []
    return Section("Time until a death is noticed, real Slurm", tuple(rows), tuple(notes))


def _ms(values: list[float]) -> tuple[float, ...]:
    return tuple(value * 1000 for value in values)
