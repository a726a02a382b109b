"""One allocation, several phases: steps of 1, 4 and 1 nodes in turn, then two of 2 at once."""

import sys
import time

from slurm import Cluster, JobContext, task


@task
def split(text: str) -> list[str]:
    return text.split()


@task(nodes=4, all_ranks=True)
def count_letters(words: list[str], ctx: JobContext) -> int:
    return sum(len(word) for word in words[ctx.rank :: ctx.world_size])


@task
def add_up(numbers: list[int]) -> int:
    return sum(numbers)


@task(nodes=2)
def simulate(seed: int, ctx: JobContext) -> tuple[int, int, float, float]:
    begun = time.time()
    time.sleep(1)
    return seed, ctx.world_size, begun, time.time()


if __name__ == "__main__":
    with Cluster(*sys.argv[1:]) as cluster:
        with cluster.allocate(nodes=4, ntasks_per_node=1, time="10min") as allocation:
            words = split("the quick brown fox jumps over the lazy dog").result()
            counts = count_letters(words).result()
            print("letters on each of four nodes:", counts)
            print("in all:", add_up(counts).result())
            left, right = simulate(1), simulate(2)  # both at once, on two nodes each
        (seed, ranks, begun, ended), (_, _, begun2, ended2) = left.result(), right.result()
        print("ranks of each simulation:", ranks)
        print("side by side:", max(begun, begun2) < min(ended, ended2))
        print(
            "one job for all:", left.id.split(".")[0] == right.id.split(".")[0] == allocation.job.id
        )
        print("steps:", allocation.job.result()["steps"])
