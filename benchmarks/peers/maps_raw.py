"""An array with nothing around it: `maps_raw.py DIRECTORY`, sbatch and squeue."""

import os
import subprocess
import sys
import time

from protocol import serve

#: Often enough to see the end, and not so often that the looking slows the array down.
LOOK_S = 0.1


def main() -> None:
    directory = sys.argv[1]
    script = os.path.join(directory, "raw.sh")
    with open(script, "w") as f:
        f.write(f"#!/bin/bash\n{sys.executable} -c pass\n")

    def play(order: str) -> float:
        count = int(order.partition(" ")[2])
        flags = ["--parsable", f"--array=0-{count - 1}", f"--output={directory}/%A_%a.out"]
        began = time.perf_counter()
        job = subprocess.check_output(["sbatch", *flags, script], text=True).strip()
        while _is_there(job):
            if time.perf_counter() - began > 110:
                raise TimeoutError(f"array {job} does not end")
            time.sleep(LOOK_S)
        return time.perf_counter() - began

    version = subprocess.check_output(["sbatch", "--version"], text=True).split()[-1]
    serve({"version": version}, play)


def _is_there(job: str) -> bool:
    done = subprocess.run(["squeue", "--noheader", f"--jobs={job}"], capture_output=True)
    return done.returncode == 0 and bool(done.stdout.strip())


if __name__ == "__main__":
    main()
