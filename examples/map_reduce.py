"""Map and reduce: an array counts words, one job adds them up where the counts lie."""

import sys
from collections import Counter

from slurm import Cluster, Job, task

TEXTS = [
    "the quick brown fox jumps over the lazy dog",
    "the dog sleeps while the fox runs",
    "a fox and a dog are no friends",
]


@task(time="5min")
def count(text: str) -> Counter[str]:
    return Counter(text.split())


@task(time="5min")
def merge(counts: list[Counter[str]]) -> Counter[str]:
    return sum(counts, Counter())


if __name__ == "__main__":
    with Cluster(*sys.argv[1:]):
        counts = count.map(TEXTS)
        # The array as an argument is the list of its values. merge starts when all have succeeded,
        # and reads them on the cluster: nothing comes back to this program on the way.
        total: Job[Counter[str]] = merge(counts)  # type: ignore[arg-type]
        some = merge([counts[0], counts[2]])  # type: ignore[list-item]

    print("most common:", total.result(timeout=120).most_common(3))
    print(
        "words:",
        total.result().total(),
        "and in two of the texts:",
        some.result(timeout=120).total(),
    )
