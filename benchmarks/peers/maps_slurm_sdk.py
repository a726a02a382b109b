"""The same with PyPI's slurm-sdk 0.4: `maps_slurm_sdk.py DIRECTORY`, by its own Python."""

import sys
import time

from other_noop_item import noop
from protocol import serve

import slurm  # the other project of this name, in its own environment
from slurm.cluster import Cluster

#: Its own pause between two looks is 5 s; its users can ask for more, so we do.
POLL_S = 0.05


def main() -> None:
    cluster = Cluster(backend_type="local", job_base_dir=sys.argv[1], default_packaging="none")

    def play(order: str) -> float:
        count = int(order.partition(" ")[2])
        began = time.perf_counter()
        with cluster:
            array = noop.map(list(range(count)))
        for job in array:
            if not job.wait(timeout=110, poll_interval=POLL_S):
                raise RuntimeError(f"job {job.id}: {job.get_status()}")
        values = [job.get_result() for job in array]
        taken = time.perf_counter() - began
        assert values == list(range(count))
        return taken

    serve({"version": slurm.__version__}, play)


if __name__ == "__main__":
    main()
