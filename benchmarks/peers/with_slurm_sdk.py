"""The same with PyPI's slurm-sdk 0.4: `with_slurm_sdk.py DIRECTORY`, by its own Python."""

import sys
import time

from other_noop import noop
from protocol import serve

import slurm  # the other project of this name, in its own environment
from slurm.cluster import Cluster

#: `get_result` alone looks every 5 s; its users can ask for more, so we do.
POLL_S = 0.05


def main() -> None:
    cluster = Cluster(backend_type="local", job_base_dir=sys.argv[1], default_packaging="none")

    def play(_: str) -> float:
        began = time.perf_counter()
        with cluster:
            job = noop()
        if not job.wait(timeout=60, poll_interval=POLL_S):
            raise RuntimeError(f"job {job.id}: {job.get_status()}")
        value = job.get_result()
        taken = time.perf_counter() - began
        assert value == 1
        return taken

    serve({"version": slurm.__version__}, play)


if __name__ == "__main__":
    main()
