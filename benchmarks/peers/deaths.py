"""How soon our client raises after a job died: `deaths.py BASE`, one order per way to die."""

import os
import signal
import subprocess
import sys
import time

from protocol import serve

import slurm
from slurm import Cluster, task

PATIENCE_S = 90


@task
def die(how: str, note: str, after: float) -> None:
    """Tell when and who, then die in this way; `wait` waits to be killed."""
    time.sleep(after)
    with open(note + ".new", "w") as f:
        # The clock of this host, which the client shares.
        f.write(f"{os.getpid()} {time.monotonic()}\n")
    os.rename(note + ".new", note)
    if how == "exception":
        raise ValueError("as asked")
    if how == "exit":
        os._exit(3)
    time.sleep(PATIENCE_S)


def main() -> None:
    cluster = Cluster("local", job_base_dir=sys.argv[1])
    count = [0]

    def play(order: str) -> float:
        how, _, after = order.partition(" ")
        count[0] += 1
        note = os.path.join(sys.argv[1], f"note-{os.getpid()}-{count[0]}")
        job = cluster.submit(die)(how, note, float(after or 0))
        pid, ended = _await_note(note, PATIENCE_S)
        if how in ("kill", "scancel"):
            time.sleep(0.5)
            ended = time.monotonic()
        if how == "kill":
            os.kill(pid, signal.SIGKILL)
        elif how == "scancel":
            subprocess.run(["scancel", job.id], check=True, timeout=60)
        error = _error(job)
        noticed = time.monotonic()
        assert error is not None, how
        return noticed - ended

    serve({"version": slurm.__version__}, play)


def _error(job: "slurm.Job[None]") -> "BaseException | None":
    try:
        job.result(PATIENCE_S)
    except (slurm.SlurmError, ValueError) as error:
        return error
    return None


def _await_note(path: str, patience: float) -> "tuple[int, float]":
    deadline = time.monotonic() + patience
    while not os.path.exists(path):
        if time.monotonic() > deadline:
            raise TimeoutError(f"no {path}")
        time.sleep(0.005)
    with open(path) as f:
        pid, at = f.read().split()
    return int(pid), float(at)


if __name__ == "__main__":
    main()
