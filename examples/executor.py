"""concurrent.futures over warm workers: thousands of small calls without a job for each."""

import os
import sys
import tempfile
from concurrent.futures import as_completed
from pathlib import Path

from slurm import Cluster, WorkerDied


def square(number: int) -> int:
    return number * number


def crash_once(marker: str) -> str:
    if not Path(marker).exists():
        Path(marker).touch()
        os._exit(1)
    return "finished by another worker"


def crash() -> None:
    os._exit(1)


if __name__ == "__main__":
    with (
        tempfile.TemporaryDirectory(dir=".") as folder,
        Cluster(*sys.argv[1:]) as cluster,
        cluster.executor(max_workers=2, time="10min") as pool,
    ):
        print("one call:", pool.submit(square, 12).result())
        print("in order:", list(pool.map(square, range(5))))
        print("10,000 in chunks:", sum(pool.map(square, range(10_000), chunksize=500)))
        futures = [pool.submit(square, n) for n in range(100)]
        print("as they end:", sum(future.result() for future in as_completed(futures)))
        print("a worker died:", pool.submit(crash_once, os.path.abspath(f"{folder}/x")).result())
        try:
            pool.submit(crash).result()
        except WorkerDied as error:
            print("a deadly call:", str(error).splitlines()[0])
