"""The same deaths with submitit: `deaths_submitit.py DIRECTORY PATIENCE`, by its own Python."""

import os
import sys
import time

import submitit
from protocol import serve


def die(how: str, note: str) -> None:
    """Tell when, then die in this way."""
    with open(note + ".new", "w") as f:
        f.write(f"{os.getpid()} {time.monotonic()}\n")
    os.rename(note + ".new", note)
    if how == "exception":
        raise ValueError("as asked")
    os._exit(3)


def main() -> None:
    folder, patience = sys.argv[1], float(sys.argv[2])
    executor = submitit.AutoExecutor(folder=folder + "/%j", cluster="slurm")
    executor.update_parameters(timeout_min=5)
    count = [0]

    def play(how: str) -> float:
        count[0] += 1
        note = os.path.join(folder, f"note-{os.getpid()}-{count[0]}")
        job = executor.submit(die, how, note)
        deadline = time.monotonic() + patience
        # What `result()` does, with an end: it looks once a second.
        while not job.done() and time.monotonic() < deadline:
            time.sleep(1)
        noticed = time.monotonic()
        if noticed < deadline:
            assert job.exception() is not None
        with open(note) as f:
            return noticed - float(f.read().split()[1])

    serve({"version": submitit.__version__}, play)


if __name__ == "__main__":
    main()
