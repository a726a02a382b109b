"""Several processes of one job: ntasks ranks, started by srun; rank 0's value is the result."""

import sys

from slurm import Cluster, JobContext, task


@task(ntasks=2, cpus_per_task=1, time="10min")
def who(ctx: JobContext) -> tuple[int, int]:
    print(f"rank {ctx.rank} of {ctx.world_size} meets at port {ctx.master_port}", flush=True)
    return ctx.rank, ctx.world_size


@task(ntasks=2, cpus_per_task=1, time="10min")
def one_fails(ctx: JobContext) -> int:
    if ctx.rank == 1:
        raise ValueError("rank 1 does not like its share")
    return ctx.rank


if __name__ == "__main__":
    with Cluster(*sys.argv[1:]):
        print("rank 0:", who().result())
        print("all ranks:", who.with_options(all_ranks=True)().result())
        try:
            one_fails().result()
        except ValueError as error:
            print("raised by a rank:", error)
