"""multiprocessing inside a task, with each start method, for functions and classes of a script."""

import multiprocessing
import sys
from dataclasses import dataclass

from slurm import Cluster, task


@dataclass
class Point:
    """A class of this script."""

    x: int
    y: int


def mirrored(point: Point) -> Point:
    return Point(point.y, point.x)


@task(cpus_per_task=2, time="10min")
def mirror(points: list[Point], method: str) -> list[Point]:
    with multiprocessing.get_context(method).Pool(2) as pool:
        return pool.map(mirrored, points)


if __name__ == "__main__":
    with Cluster(*sys.argv[1:]):
        for method in ("fork", "spawn", "forkserver"):
            found = mirror([Point(1, 2), Point(3, 4)], method).result()
            print(f"{method}: {found}")
