"""What it costs a client to have many jobs in flight."""

from __future__ import annotations

from typing import Any

from benchmarks.figures import Row, Section
from benchmarks.ground import Ground

#: The first poll comes some seconds after the last submission; the steady state after it.
SETTLE_S = 8
CALLS_PER_MINUTE = 2.0


def in_flight(ground: Ground) -> Section:
    """1,000 jobs in the queue: memory, threads, calls and looks."""
    count, window = ground.times(1000, 100), ground.times(60, 10)
    base = str(ground.folder("many"))
    client = ground.peer("in flight", "in_flight.py", base, env=ground.slurm_env)
    before = client.play("look")
    after = client.play(f"submit {count}")
    began = client.play(f"wait {SETTLE_S}")
    ended = client.play(f"wait {window}")
    over = None if ground.quick else client.play("cancel")
    ground.end_peers()
    minutes = (ended["time"] - began["time"]) / 60
    grown = (began["rss_kib"] - before["rss_kib"]) / count
    rows: tuple[Row, ...] = (
        _one("client memory per job", grown, "KiB"),
        _one("threads with 20 jobs", before["threads"], ""),
        Row(f"threads with {count} more", (ended["threads"],), "", None, float(before["threads"])),
        _one("submission, per job", _per(after, before, "time", count) * 1000, "ms"),
        Row(
            "commands sent to the scheduler, per minute",
            (_per(ended, began, "calls", minutes),),
            "",
            None,
            CALLS_PER_MINUTE,
        ),
        _one("polls of the watcher, per minute", _per(ended, began, "polls", minutes), ""),
        _one(
            "looks at the events folder, per second", _per(ended, began, "looks", minutes * 60), ""
        ),
        _one(
            "files opened and folders listed, per second",
            _per(ended, began, "files", minutes * 60),
            "",
        ),
        _one(
            "CPU time while waiting, of one core",
            100 * _per(ended, began, "cpu", minutes * 60),
            "%",
        ),
    )
    if over:
        rows += (
            _one("all cancelled from outside: scancel itself", over["scancel"] * 1000, "ms"),
            _one("... until every future has ended", over["settled"] * 1000, "ms"),
        )
    note = (
        f"Counted for {window} s, beginning {SETTLE_S} s after the last of {count} submissions, "
        "while a thread of the client waits for a result. Files include the sweep of all open "
        "runs every 30 s."
    )
    return Section(f"{count:,} jobs in flight on real Slurm", rows, (note,))


def _one(name: str, value: float, unit: str) -> Row:
    return Row(name, (float(value),), unit)


def _per(later: dict[str, Any], sooner: dict[str, Any], what: str, by: float) -> float:
    return float(later[what] - sooner[what]) / by
