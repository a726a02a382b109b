"""A training that survives its time limit: it saves, stops in time, and goes on in the next job."""

import json
import random
import signal
import sys
import time
from pathlib import Path

from slurm import Cluster, JobContext, Retry, task


class Unfinished(Exception):
    """Saved, and to be continued: `retry` names it, so the cluster runs the call again."""


def save(path: Path, state: dict[str, float]) -> None:
    """With torch: torch.save(state, fresh). The rename leaves no half file behind a kill."""
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(state))
    fresh.replace(path)


@task(time="1h", mem="300MiB", retry=Retry(times=20, on=(Unfinished,)))
def train(epochs: int, ctx: JobContext) -> dict[str, float]:
    """Fit y = w * x by gradient descent; ctx is found by its annotation."""
    saved = ctx.checkpoint_dir / "state.json"  # the same directory in every attempt
    state = json.loads(saved.read_text()) if saved.exists() else {"epoch": 0, "w": 0.0}
    pace = 0.1 if state["epoch"] == 0 else 0  # slow at first, so that it can be stopped below
    print(f"begins at epoch {state['epoch']}", flush=True)
    data = [(x, 3 * x) for x in random.Random(0).choices(range(1, 5), k=32)]
    while state["epoch"] < epochs:
        slope = sum(2 * x * (state["w"] * x - y) for x, y in data) / len(data)
        state["w"] -= 0.01 * slope
        state["epoch"] += 1
        time.sleep(pace)
        save(saved, state)
        print(f"epoch {state['epoch']}", flush=True)
        if ctx.should_stop:  # a minute before the time limit, or preempted
            raise Unfinished(f"stopped by {ctx.stop_signal}")
    return state


if __name__ == "__main__":
    with Cluster(*sys.argv[1:]):
        job = train(500)
        for line in job.log_lines(follow=True):
            if line == "epoch 5":
                job.signal(signal.SIGUSR2)  # what the scheduler sends before the time limit
                break
        result = job.result(timeout=120)

    print(f"trained {result['epoch']} epochs, w = {result['w']:.2f}")
    print("attempts:", len(job.history), "- first:", job.history[0].error.rpartition(".")[2])
    print("the last one began later than at 0:", not job.stdout().startswith("begins at epoch 0\n"))
