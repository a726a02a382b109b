"""What every client does with the calls: a graph of them, and the time until a death is told."""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from typing import Any

LAYERS = 10
#: How long a call may take to start.
PATIENCE_S = 100


def layers(count: int, submit: Callable[[Any, Any], Any]) -> list[Any]:
    """Submit a graph in layers, each node after two of the layer before; the last layer."""
    width = count // LAYERS
    layer = [submit(1, 0) for _ in range(width)]
    for _ in range(LAYERS - 1):
        layer = [submit(layer[i], layer[(i + 1) % width]) for i in range(width)]
    return layer


def total_of(count: int) -> int:
    """What the values of the last layer add up to."""
    return int(2 ** (LAYERS - 1)) * (count // LAYERS)


def seconds_to_notice(
    order: str, folder: str, submit: Callable[[str, str], Any], fails: Callable[[Any], object]
) -> dict[str, Any]:
    """From the last moment in the function, or from the kill, until the client is told.

    The order is the way to die and how long to wait. `submit` starts `die` with its arguments;
    `fails` waits for its failure and returns it.
    """
    how, _, patience = order.partition(" ")
    note = os.path.join(folder, f"note-{time.monotonic_ns()}")
    handle = submit(how, note)
    failed: list[tuple[float, object]] = []

    def wait() -> None:
        failure = fails(handle)
        failed.append((time.monotonic(), failure))

    # Somebody waits from the start, as users do: the moment of the first look is not of our choice.
    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    deadline = time.monotonic() + PATIENCE_S
    while not os.path.exists(note):
        if time.monotonic() > deadline:
            raise TimeoutError("the call did not start")
        time.sleep(0.005)
    with open(note) as f:
        pid, job, at = f.read().split()
    ended = float(at)
    if how in ("kill", "scancel"):
        time.sleep(0.5)
        ended = time.monotonic()
    if how == "kill":
        os.kill(int(pid), signal.SIGKILL)
    elif how == "scancel":
        subprocess.run(["scancel", job], check=True, timeout=60)
    thread.join(max(0.0, ended + float(patience) - time.monotonic()))
    if not failed:
        return {"late": True}
    at_last, failure = failed[0]
    assert failure, how
    return {"total": at_last - ended}


def failure_of(call: Callable[[], object]) -> "BaseException | None":
    """What the call raises, as a value."""
    try:
        call()
    except Exception as error:  # noqa: BLE001 - each library has its own
        return error
    return None
