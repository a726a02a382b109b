"""A whole project on the cluster: built once, installed once, shared by all of its jobs."""

import sys
from pathlib import Path

from slurm import Cluster

# In a project of your own this is `pip install -e .` or `uv sync`.
sys.path.insert(0, str(Path(__file__).parent / "project"))

from pendulum import period


def main() -> None:
    with Cluster(*sys.argv[1:], packaging="wheel") as cluster:
        plan = cluster.explain(period)(1.0)
        print("packaging:", plan.environment.kind, "by", plan.by)
        print("wheel:", plan.environment.details["wheel"])

        one = period(1.0)
        print(f"one swing: {one.result():.3f} s")
        print("in an environment of its own:", ".environments" in one.stdout())

        # The array uses the same environment; nothing is built or sent again.
        swings = period.map([0.25, 1.0, 4.0])
        print("swings:", [round(value, 3) for value in swings.results()])

    # Code as it is now, without a build: what is edited later does not reach the job.
    with Cluster(*sys.argv[1:], packaging="source"):
        print("from a snapshot:", round(period(4.0).result(), 3))


if __name__ == "__main__":
    main()
