"""How a measured program talks to the benchmark: one JSON line per round, whatever else it prints.

Every program in this folder is started by the Python of the library that it measures, so this file
keeps to the standard library.
"""

import json
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any


def serve(facts: dict[str, Any], play: Callable[[str], Any]) -> None:
    """Say the facts, then play one round for each line of input and answer with its result."""
    # What libraries and jobs print goes to standard error: standard output is ours alone.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    _say(answers, facts)
    for line in sys.stdin:
        _say(answers, play(line.strip()))


def serve_orders(version: str, orders: Mapping[str, Callable[[str], Any]]) -> None:
    """Serve lines such as `map 100`: the first word says which function gets the rest.

    The functions are the same for every library, so that each scenario can ask all of them:
    `one` (a job of its own, to its result), `submit N` (single calls, not waited for), `map N` (a
    job for each item), `pack N` (all in an allocation that is up), `cold` (an allocation from
    nothing, to the first result), `graph N` (each node after two of the layer before), `hold N`
    (jobs that wait: seconds, and what they add to the memory), `die WAY`.
    """
    facts = {"version": version, "orders": list(orders)}

    def play(order: str) -> Any:
        kind, _, rest = order.partition(" ")
        return orders[kind](rest)

    serve(facts, play)


def resident_kib(pid: object = "self") -> int:
    """The memory of a process that is resident."""
    with open(f"/proc/{pid}/status") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("VmRSS"))


def _say(stream: Any, value: Any) -> None:
    stream.write(json.dumps(value) + "\n")
    stream.flush()
