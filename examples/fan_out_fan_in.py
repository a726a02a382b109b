"""A graph with fan-out and fan-in: jobs as arguments are its edges, a batch makes it few calls."""

import sys

from slurm import Cluster, task


@task(time="5min")
def load(shard: int) -> list[int]:
    return list(range(10 * shard, 10 * shard + 10))


@task(time="5min")
def clean(values: list[int]) -> list[int]:
    return [v for v in values if v % 3]


@task(time="5min")
def mean(values: list[int]) -> float:
    return sum(values) / len(values)


@task(time="5min")
def summary(means: dict[str, float], shards: int) -> str:
    return f"{shards} shards, means from {min(means.values()):.1f} to {max(means.values()):.1f}"


if __name__ == "__main__":
    with Cluster(*sys.argv[1:]) as cluster:
        # Written as a loop over shards, sent as one array per task: four submissions for 19 jobs.
        with cluster.batch():
            means = {}
            for shard in range(6):
                cleaned = clean(load(shard))  # type: ignore[arg-type]
                means[f"shard {shard}"] = mean(cleaned)  # type: ignore[arg-type]
            last = summary(means, shards=6)  # type: ignore[arg-type]

        print(last.result(timeout=120))
        runs = {job.run for job in means.values()}
        print(f"{len(means)} means in {len(runs)} array; shard 5: {means['shard 5'].result():.1f}")
