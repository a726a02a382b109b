"""A pipeline with `.after`: jobs that follow each other, one of which cleans up in any case."""

import sys
import tempfile
from pathlib import Path

from slurm import Cluster, UpstreamFailed, task

folder = Path(tempfile.mkdtemp(dir=".")).resolve()


@task(time="5min")
def prepare(folder: str, lines: int) -> None:
    Path(folder, "data.txt").write_text("".join(f"{n}\n" for n in range(lines)))


@task(time="5min")
def square(folder: str, number: int) -> int:
    return int(Path(folder, "data.txt").read_text().split()[number]) ** 2


@task(time="5min")
def remove(folder: str) -> bool:
    Path(folder, "data.txt").unlink()
    return True


@task(time="5min")
def report(text: str) -> str:
    return text


if __name__ == "__main__":
    with Cluster(*sys.argv[1:]):
        ready = prepare(str(folder), lines=4)
        # afterok, the default: these start when `ready` has succeeded.
        squares = square.after(ready).map([(str(folder), n) for n in (1, 2, 3, 9)])
        # afterany: starts when all elements are over, however they ended.
        removed = remove.after(squares, kind="afterany")(str(folder))
        alarm = report.after(squares[3], kind="afternotok")("item 3 failed")
        never = report.after(squares)("all is well")

    print("squares:", squares.results(timeout=120, return_exceptions=True))
    print("removed:", removed.result(timeout=120), "-", alarm.result(timeout=120))
    try:
        never.result(timeout=120)
    except UpstreamFailed as error:
        print("never ran:", type(error).__name__)
