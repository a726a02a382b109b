"""Slurm with nothing around it: `with_raw.py DIRECTORY`, sbatch and squeue of `python -c pass`."""

import os
import subprocess
import sys
import time

from protocol import serve_orders

#: Often enough to see the end of an array, and not so often that the looking slows it down.
LOOK_S = 0.1


class Raw:
    """The commands, with one script."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.script = os.path.join(folder, "raw.sh")
        with open(self.script, "w") as f:
            f.write(f"#!/bin/bash\n{sys.executable} -c pass\n")

    def sbatch(self, *flags: str) -> str:
        command = ["sbatch", "--parsable", *flags, self.script]
        return subprocess.check_output(command, text=True).strip()

    def one(self, _: str) -> dict[str, float]:
        """Submit, then look in a tight loop."""
        began, asked = time.perf_counter(), time.time()
        job = self.sbatch(f"--output={self.folder}/%j.out")
        # Also while it is COMPLETING the job is there: raw means that it is gone.
        while _state(job) not in ("", "COMPLETED"):
            pass
        taken = time.perf_counter() - began
        # Slurm opens the log when it starts the script, and nothing is written to it.
        started = os.stat(f"{self.folder}/{job}.out").st_mtime - asked
        return {"total": taken, "run": taken - started}

    def submit(self, count: str) -> float:
        """Single submissions in a row."""
        began = time.perf_counter()
        for _ in range(int(count)):
            self.sbatch("--begin=now+1hour", "--output=/dev/null")
        return time.perf_counter() - began

    def map(self, count: str) -> dict[str, float]:
        """An array, until squeue no longer knows it."""
        began = time.perf_counter()
        array = f"--array=0-{int(count) - 1}"
        job = self.sbatch(array, f"--output={self.folder}/%A_%a.out")
        while _state(job):
            time.sleep(LOOK_S)
        return {"total": time.perf_counter() - began}

    def hold(self, count: str) -> dict[str, float]:
        """An array that waits."""
        began = time.perf_counter()
        self.sbatch("--hold", f"--array=0-{int(count) - 1}", "--output=/dev/null")
        return {"total": time.perf_counter() - began}


def _state(job: str) -> str:
    command = ["squeue", "--noheader", f"--jobs={job}", "--format=%T"]
    done = subprocess.run(command, capture_output=True, text=True)
    # A job that the controller has forgotten is an error for squeue; it is gone.
    return done.stdout.strip() if done.returncode == 0 else ""


def main() -> None:
    raw = Raw(sys.argv[1])
    version = subprocess.check_output(["sbatch", "--version"], text=True).split()[-1]
    names = ("one", "submit", "map", "hold")
    serve_orders(version, {name: getattr(raw, name) for name in names})


if __name__ == "__main__":
    main()
