"""Cached results: what was computed before, here or in another process, is not computed again."""

import sys

from slurm import Cluster, task


@task(cache=True, time="5min")
def simulate(seed: int, steps: int = 1000) -> float:
    state = seed
    for _ in range(steps):
        state = (1103515245 * state + 12345) % 2**31
    return state / 2**31


@task(cache="v1", time="5min")  # the text stands for the code: change it when results change
def mean(values: list[float]) -> float:
    return sum(values) / len(values)


if __name__ == "__main__":
    with Cluster(*sys.argv[1:]) as cluster:
        cluster.clear_cache(simulate)
        cluster.clear_cache(mean)
        seeds = list(range(4))
        first = mean(simulate.map(seeds))
        print(f"first: {first.result():.4f}, from the cache: {first.cached}")

        array = simulate.map(seeds)
        again = mean(array)  # found without waiting for anything
        print(f"again: {again.result():.4f}, from the cache: {again.cached}")

        more = simulate.map([2, 3, 4, 5])
        more.results()
        print("of four more seeds from the cache:", sum(job.cached for job in more))
        print("forgotten:", cluster.clear_cache(simulate), "of simulate")
