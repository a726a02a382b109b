"""The controller's health: what sdiag says, in base units."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

#: sdiag's words, by section -> our name, and how many of them make one base unit.
_NUMBERS: dict[tuple[str, str], tuple[str, float]] = {
    ("", "Server thread count"): ("server_threads", 1),
    ("", "RPC queue enabled"): ("rpc_queue_enabled", 1),
    ("", "Agent queue size"): ("agent_queue_size", 1),
    ("", "Agent count"): ("agents", 1),
    ("", "Agent thread count"): ("agent_threads", 1),
    ("", "DBD Agent queue size"): ("dbd_queue_size", 1),
    ("", "Jobs submitted"): ("jobs_submitted", 1),
    ("", "Jobs started"): ("jobs_started", 1),
    ("", "Jobs completed"): ("jobs_completed", 1),
    ("", "Jobs canceled"): ("jobs_canceled", 1),
    ("", "Jobs failed"): ("jobs_failed", 1),
    ("main", "Last cycle"): ("main_last_cycle_seconds", 1e6),
    ("main", "Max cycle"): ("main_max_cycle_seconds", 1e6),
    ("main", "Mean cycle"): ("main_mean_cycle_seconds", 1e6),
    ("main", "Total cycles"): ("main_cycles", 1),
    ("main", "Mean depth cycle"): ("main_mean_depth", 1),
    ("main", "Last queue length"): ("main_queue_length", 1),
    ("backfill", "Total backfilled jobs (since last slurm start)"): ("backfilled_jobs", 1),
    ("backfill", "Total cycles"): ("backfill_cycles", 1),
    ("backfill", "Last cycle"): ("backfill_last_cycle_seconds", 1e6),
    ("backfill", "Max cycle"): ("backfill_max_cycle_seconds", 1e6),
    ("backfill", "Mean cycle"): ("backfill_mean_cycle_seconds", 1e6),
    ("backfill", "Last depth cycle"): ("backfill_last_depth", 1),
    ("backfill", "Last queue length"): ("backfill_queue_length", 1),
    ("backfill", "Last table size"): ("backfill_table_size", 1),
}
_SECTIONS = {
    "Main schedule statistics": "main",
    "Backfilling stats": "backfill",
    "Main scheduler exit": "main_exit",
    "Backfill exit": "backfill_exit",
    "Remote Procedure Call statistics by message type": "rpc_type",
    "Remote Procedure Call statistics by user": "rpc_user",
    "Pending RPC": "pending",
    "Latency": "other",
}
_CALLS = re.compile(
    r"\s+(\S+)\s+\(\s*[0-9]+\)\s+count:([0-9]+)\s+ave_time:[0-9]+\s+total_time:([0-9]+)"
)


@dataclass(frozen=True)
class Calls:
    """How often something was asked of the controller since it counts, and what it took."""

    count: int
    seconds: float


@dataclass(frozen=True)
class Controller:
    """What the controller says of itself; a number that its version does not know is left out."""

    numbers: dict[str, float] = field(default_factory=dict)
    #: By the name of the message, and by user.
    by_type: dict[str, Calls] = field(default_factory=dict)
    by_user: dict[str, Calls] = field(default_factory=dict)
    #: Epoch seconds since when it counts: it starts anew each night.
    since: int | None = None
    #: Its clock when it answered, epoch seconds.
    now: int | None = None


def controller_command() -> list[str]:
    """Ask the controller how it fares."""
    return ["sdiag"]


def parse_controller(text: str) -> Controller:
    """What sdiag printed; lines that are not known are passed over."""
    section = ""
    found = Controller(since=_epoch("Data since", text), now=_epoch("sdiag output at", text))
    for line in text.splitlines():
        if line and not line[0].isspace():
            heading = next((s for words, s in _SECTIONS.items() if line.startswith(words)), None)
            # A plain line between two sections belongs to none of them.
            section = heading if heading is not None else ""
        calls = _CALLS.match(line) if section in ("rpc_type", "rpc_user") else None
        if calls:
            target = found.by_type if section == "rpc_type" else found.by_user
            target[calls[1]] = Calls(int(calls[2]), int(calls[3]) / 1e6)
            continue
        name, _, value = line.strip().rpartition(":")
        known = _NUMBERS.get((section, name))
        if known and re.match(r"\s*[0-9]+\Z", value):
            found.numbers[known[0]] = int(value) / known[1]
    return found


def _epoch(words: str, text: str) -> int | None:
    match = re.search(rf"^{words} .*\(([0-9]+)\)", text, re.MULTILINE)
    return int(match[1]) if match else None
