"""A parameter sweep: one array, one line per combination, failures kept apart and tried again."""

import itertools
import sys
import tempfile
from pathlib import Path

from slurm import Cluster, task

quota = Path(tempfile.mkdtemp(dir=".")).resolve() / "quota"


@task(time="5min", mem="200MiB")
def train(lr: float, depth: int, quota: str, epochs: int = 10) -> float:
    print(f"lr={lr} depth={depth}")
    if depth == 4 and not Path(quota).exists():
        raise MemoryError(f"depth {depth} is too much")
    return abs(lr - 0.01) * 10 + abs(depth - 3) + 1 / epochs


grid = [{"lr": lr, "depth": depth} for lr, depth in itertools.product((0.1, 0.01), (2, 3, 4))]

if __name__ == "__main__":
    with Cluster(*sys.argv[1:]) as cluster:
        print(str(cluster.explain(train).map(grid, common={"quota": ""})).splitlines()[0])
        # A dict is the keywords of one call; `common` goes to all; at most four run at a time.
        array = train.map(grid, common={"quota": str(quota), "epochs": 20}, max_concurrent=4)
        for job in array.as_completed(timeout=120):
            print(f"    item {job.index}: {job.state.code}")
        print(array.progress)
        print("failed:", [grid[job.index] for job in array.failed])
        print("log of item 1:", array[1].stdout().strip())

        quota.touch()  # what was wrong is mended; only what failed runs again
        losses = array.retry_failed(mem="400MiB").results(timeout=120)

    best = min(range(len(grid)), key=losses.__getitem__)
    print(f"best: {grid[best]}, loss {losses[best]:.2f}")
