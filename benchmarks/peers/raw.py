"""Slurm with nothing around it: `raw.py DIRECTORY`, sbatch and a tight squeue loop."""

import os
import subprocess
import sys
import time

from protocol import serve


def main() -> None:
    directory = sys.argv[1]
    script = os.path.join(directory, "raw.sh")
    with open(script, "w") as f:
        f.write(f"#!/bin/bash\n{sys.executable} -c pass\n")

    def sbatch(*flags: str) -> str:
        command = ["sbatch", "--parsable", f"--output={directory}/%j.out", *flags, script]
        return subprocess.check_output(command, text=True).strip()

    def play(order: str) -> object:
        kind, _, count = order.partition(" ")
        began = time.perf_counter()
        if kind == "submit":
            for _ in range(int(count)):
                sbatch("--begin=now+1hour")
            return time.perf_counter() - began
        asked = time.time()
        job = sbatch()
        # Also while it is COMPLETING the job is there: raw means that it is gone.
        while _state(job) not in ("", "COMPLETED"):
            if time.perf_counter() - began > 60:
                raise TimeoutError(f"job {job} does not end")
        taken = time.perf_counter() - began
        # Slurm opens the log when it starts the script, and nothing is written to it.
        started = os.stat(f"{directory}/{job}.out").st_mtime - asked
        return {"total": taken, "run": taken - started}

    version = subprocess.check_output(["sbatch", "--version"], text=True).split()[-1]
    serve({"version": version}, play)


def _state(job: str) -> str:
    command = ["squeue", "--noheader", f"--jobs={job}", "--format=%T"]
    done = subprocess.run(command, capture_output=True, text=True)
    # A job that the controller has forgotten is an error for squeue; it is gone.
    return done.stdout.strip() if done.returncode == 0 else ""


if __name__ == "__main__":
    main()
