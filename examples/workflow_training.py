"""A training workflow: it runs on the cluster, trains epoch by epoch and evaluates after each."""

import json
import sys
from pathlib import Path
from typing import Any

from slurm import Cluster, WorkflowContext, task, workflow


@task(time="10min")
def train(epoch: int, weights: str) -> str:
    """One epoch of a descent towards 3, from the weights of the epoch before."""
    path = Path(weights)
    x = json.loads(path.read_text()) if path.exists() else 0.0
    x -= 0.4 * 2 * (x - 3)
    path.write_text(json.dumps(x))
    snapshot = path.with_suffix(f".{epoch}")
    snapshot.write_text(json.dumps(x))
    return str(snapshot)


@task(time="5min")
def evaluate(snapshot: str) -> float:
    return round((float(json.loads(Path(snapshot).read_text())) - 3) ** 2, 4)


@workflow(time="1d")
def training(epochs: int, ctx: WorkflowContext) -> Any:
    """Submit from the cluster: the laptop may be closed, and a requeue repeats nothing."""
    weights = str(ctx.shared_dir / "weights")
    losses = []
    for epoch in range(epochs):
        snapshot = train(epoch, weights)
        losses.append(evaluate(snapshot))  # waits for this epoch, beside the next one
        if snapshot.result().endswith(".1"):
            print("halfway, in job", ctx.job_id)
    # Jobs may be returned: the workflow ends, and its result is made of their values.
    return {"losses": losses, "weights": weights}


if __name__ == "__main__":
    with Cluster(*sys.argv[1:]):
        job = training(4)
    result = job.result(timeout=120)
    print("losses:", result["losses"])
    print("it said:", job.stdout().split(",")[0])
    print("children:", *sorted(folder.name for folder in Path(job.path, "tasks").iterdir()))
