"""How jobs fail: the function's own exception with its traceback, or a typed error with a fix."""

import os
import sys
import traceback

from slurm import Cluster, JobCancelled, JobError, UnpicklableResult, task


@task
def parse(text: str) -> int:
    return int(text)


@task
def leave() -> None:
    sys.exit("no licence found")


@task
def die() -> None:
    os._exit(3)


@task
def numbers() -> object:
    return (n for n in range(3))  # a generator cannot be sent back


if __name__ == "__main__":
    with Cluster(*sys.argv[1:]) as cluster:
        wrong, left, died, unsent = parse("12x"), leave(), die(), numbers()
        waiting = cluster.submit(parse, begin="now+1hour")("1")

    try:
        wrong.result()
    except ValueError as error:
        print("--- the function's own exception; the job's traceback is its cause")
        traceback.print_exception(error, file=sys.stdout)

    for job in (left, died):
        try:
            job.result()
        except JobError as error:
            print(f"--- {job.name}: exit code {error.exit_code}\n{error}")
    try:
        unsent.result()
    except UnpicklableResult as error:
        print(f"--- {unsent.name}\n{error}")

    waiting.cancel()
    try:
        waiting.result(timeout=60)
    except JobCancelled as error:
        print(f"--- {waiting.state}\n{error}")
