"""A small project: how long a pendulum of some length swings."""

import math
import sys

from slurm import task


@task(time="5min")
def period(length: float) -> float:
    """Seconds of one swing."""
    print("running in", sys.prefix)
    return 2 * math.pi * math.sqrt(length / 9.81)
