"""A workflow as a graph: fan-out over a map, two ways in parallel, fan-in, and its picture."""

import sys
from typing import Any

from slurm import Cluster, task, workflow
from slurm.graph import read_graph, render


@task(time="5min")
def split(text: str, parts: int) -> list[str]:
    words = text.split()
    return [" ".join(words[n::parts]) for n in range(parts)]


@task(time="5min")
def count_words(text: str) -> int:
    return len(text.split())


@task(time="5min")
def longest_word(text: str) -> str:
    return max(text.split(), key=len)


@task(time="5min")
def report(counts: list[int], longest: list[str]) -> str:
    return f"{sum(counts)} words, the longest is {max(longest, key=len)!r}"


@workflow(time="1h")
def analyse(text: str) -> Any:
    pieces = split(text, 3).result()  # how wide the graph is can depend on a result
    counts = count_words.map(pieces)
    longest = longest_word.map(pieces)
    return report(counts, longest)  # type: ignore[arg-type]  # values are read on the cluster


if __name__ == "__main__":
    with Cluster(*sys.argv[1:]) as cluster:
        job = analyse("a workflow submits its own jobs from inside the cluster and may be requeued")
        print(job.result(timeout=120))

    for line in render(read_graph(cluster, job.run), "text").splitlines():
        print(line.partition("COMPLETED")[0].rstrip(), "|", line.partition("after ")[2])
