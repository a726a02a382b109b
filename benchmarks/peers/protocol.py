"""How a measured program talks to the benchmark: one JSON line per round, whatever else it prints.

Every program in this folder is started by the Python of the library that it measures, so this file
keeps to the standard library.
"""

import json
import os
import sys
from collections.abc import Callable
from typing import Any


def serve(facts: dict[str, Any], play: Callable[[str], Any]) -> None:
    """Say the facts, then play one round for each line of input and answer with its result."""
    # What libraries and jobs print goes to standard error: standard output is ours alone.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    _say(answers, facts)
    for line in sys.stdin:
        _say(answers, play(line.strip()))


def _say(stream: Any, value: Any) -> None:
    stream.write(json.dumps(value) + "\n")
    stream.flush()
