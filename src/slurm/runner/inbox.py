"""The inbox of an allocation: where clients leave orders for its pilot, each a small file.

It runs where the files are, in the agent and in the pilot, so it keeps to Python 3.6.
"""

import contextlib
import json
import os
from typing import Any, Dict, List, Tuple

from slurm import rundir

#: Words for the pilot: end when all is done; a client is there; end a step; signal a step.
CLOSE, BEAT, CANCEL, SIGNAL = "close", "beat", "cancel", "signal"
#: A word for a block of workers: give back what no worker has begun.
DROP = "drop"

_ORDER = ".json"


def inbox_folder(run: str, job: str) -> str:
    """The inbox of the job `job` of a run; several jobs of one run have one each."""
    return os.path.join(run, rundir.INBOX, job)


def put_order(folder: str, order: Dict[str, Any]) -> int:
    """Leave an order and return its number: no two orders get the same, whoever leaves them."""
    rundir.make_run_folder(folder)
    draft = os.path.join(folder, ".draft.{}.{}".format(os.getpid(), os.urandom(4).hex()))
    rundir.write_atomically(draft, json.dumps(order).encode(), sync=False)
    try:
        number = max([n for n, _ in _numbers(folder)] + [0])
        while True:
            number += 1
            try:
                # A link that fails when the name is taken: the order appears whole, and once.
                os.link(draft, os.path.join(folder, f"{number}{_ORDER}"))
                return number
            except FileExistsError:
                continue
    finally:
        with contextlib.suppress(OSError):
            os.unlink(draft)


def tell(folder: str, words: List[str], text: str = "") -> None:
    """Leave words for the pilot: `close`, `beat`, or `cancel-4_7`."""
    rundir.make_run_folder(folder)
    for word in words:
        rundir.write_atomically(os.path.join(folder, word), text.encode(), sync=False)


def read_inbox(folder: str, known: int) -> Tuple[List[Tuple[int, Dict[str, Any]]], List[str]]:
    """Orders with a higher number than `known`, and all words that lie there."""
    try:
        names = os.listdir(folder)
    except OSError:
        return [], []
    orders = []
    for number, name in sorted(_split(names)):
        if number > known:
            with open(os.path.join(folder, name)) as f:
                orders.append((number, json.load(f)))
    words = [n for n in names if not n.endswith(_ORDER) and not n.startswith(".")]
    return orders, words


def _numbers(folder: str) -> List[Tuple[int, str]]:
    return _split(os.listdir(folder))


def _split(names: List[str]) -> List[Tuple[int, str]]:
    stems = [(name[: -len(_ORDER)], name) for name in names if name.endswith(_ORDER)]
    return [(int(stem), name) for stem, name in stems if stem.isdigit()]
