"""Our packed map: `packed.py BACKEND BASE`."""

import os
import sys
import time
from typing import Any

from noop_item import noop
from protocol import serve

import slurm
from slurm import Cluster, PackedArray

PATIENCE_S = 110


def main() -> None:
    cluster = Cluster(sys.argv[1], job_base_dir=sys.argv[2])
    one = noop.with_options(cpus_per_task=2)

    def play(order: str) -> dict[str, Any]:
        count = int(order.partition(" ")[2])
        with cluster:
            began = time.perf_counter()
            array = one.map(range(count), pack=count)
            submitted = time.perf_counter()
            array.wait(PATIENCE_S)
            over = time.perf_counter()
            values = array.results()
            ended = time.perf_counter()
        assert values == list(range(count)) and isinstance(array, PackedArray)
        array.members[0].wait(PATIENCE_S)
        (rate,) = array.rates
        folders = ("events", "results", "values", "logs", "beats")
        run = os.path.join(cluster.base, array.run)
        return {
            "rate": rate,
            "submit": submitted - began,
            "total": ended - began,
            "read": ended - over,
            "files": sum(len(os.listdir(os.path.join(run, name))) for name in folders),
        }

    serve({"version": slurm.__version__}, play)


if __name__ == "__main__":
    main()
