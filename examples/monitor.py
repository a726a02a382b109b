"""Look at a cluster from a program: the queue, nodes and partitions as data."""

import sys
import time

from slurm import Cluster, task


@task(time="5min", mem="200MiB", job_name="watched")
def nap(seconds: float) -> float:
    print("sleeping", flush=True)
    time.sleep(seconds)
    return seconds


if __name__ == "__main__":
    with Cluster(*sys.argv[1:]) as cluster:
        job = nap(120)
        next(iter(job.log_lines(follow=True)))  # its first line: it runs now
        mine = [row for row in cluster.queue() if row.name == "watched"]
        print("in the queue:", [row.state for row in mine])
        for node in cluster.backend.nodes():
            print("node:", node["name"], node["state"])
        print("partitions:", len(cluster.backend.partitions()) >= 1)
        job.cancel()
        job.wait(timeout=120)
        print("and now:", job.state)

    print("in a terminal: slurm top, slurm monitor serve, slurm monitor dashboards")
