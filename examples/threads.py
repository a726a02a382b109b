"""A task with two CPUs: OpenMP and BLAS get them by default, and so can a pool of threads."""

import os
import sys
import zlib
from concurrent.futures import ThreadPoolExecutor

from slurm import Cluster, JobContext, task


@task(cpus_per_task=2, time="10min")
def checksums(sizes: list[int], ctx: JobContext) -> tuple[list[int], int, str]:
    # zlib works without the interpreter's lock, so both threads really run at the same time.
    with ThreadPoolExecutor(ctx.cpus) as pool:
        found = list(pool.map(lambda size: zlib.crc32(bytes(size)), sizes))
    return found, ctx.cpus, os.environ["OMP_NUM_THREADS"]


if __name__ == "__main__":
    with Cluster(*sys.argv[1:]):
        found, cpus, threads = checksums([1_000_000, 2_000_000]).result()
        print("checksums:", found == [zlib.crc32(bytes(n)) for n in (1_000_000, 2_000_000)])
        print(f"CPUs: {cpus}, OMP_NUM_THREADS: {threads}")
