"""Ranks on two nodes that find each other as torch.distributed does, with gloo or plain sockets."""

import importlib.util
import os
import socket
import sys
import time

from slurm import Cluster, JobContext, task


def sum_with_torch(rank: int) -> int:
    import torch
    import torch.distributed as distributed

    distributed.init_process_group("gloo")
    total = torch.tensor([rank])
    distributed.all_reduce(total)
    return int(total[0])


def sum_with_sockets(rank: int, world: int, address: tuple[str, int]) -> int:
    if rank == 0:
        with socket.create_server(("", address[1])) as server:
            others = [server.accept()[0] for _ in range(world - 1)]
            total = sum(int(other.recv(16)) for other in others)
            for other in others:
                other.sendall(str(total).encode())
        return total
    for _ in range(300):
        try:
            with socket.create_connection(address) as first:
                first.sendall(str(rank).encode())
                return int(first.recv(16))
        except OSError:  # rank 0 is not there yet
            time.sleep(0.1)
    raise TimeoutError(f"nobody listens at {address}")


@task(nodes=2, ntasks_per_node=1, mem="500M", all_ranks=True, time="10min")
def add_up_ranks(ctx: JobContext) -> int:
    meeting = ctx.torch_distributed_env()
    os.environ.update(meeting)
    if importlib.util.find_spec("torch"):
        return sum_with_torch(ctx.rank)
    place = meeting["MASTER_ADDR"], int(meeting["MASTER_PORT"])
    return sum_with_sockets(ctx.rank, ctx.world_size, place)


if __name__ == "__main__":
    with Cluster(*sys.argv[1:]):
        print("srun started them:", add_up_ranks().result())
        print("torchrun did:", add_up_ranks.with_options(launch="torchrun")().result())
