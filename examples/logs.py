"""A job's output while it runs and afterwards, its state, and everything in one snapshot."""

import sys
import time

from slurm import Cluster, task


@task(time="10min")
def talk(lines: int) -> str:
    for number in range(lines):
        print(f"line {number}")
        time.sleep(0.1)
    print("a warning", file=sys.stderr)
    return "done"


if __name__ == "__main__":
    with Cluster(*sys.argv[1:]):
        job = talk(5)
        for line in job.log_lines(follow=True):  # ends with the job
            print("followed:", line)

    print("result:", job.result())
    print("stderr:", job.stderr().strip())
    seen = job.snapshot(tail_lines=2)
    print(f"{seen.name}: {seen.state_code}, exit code {seen.exit_code}, ended {seen.is_terminal}")
    print("the last two lines:", seen.stdout_tail.splitlines())
    assert seen.timings.elapsed is not None
    print("the script begins with", job.script.splitlines()[0])
