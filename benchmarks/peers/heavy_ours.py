"""Large values with Slurm SDK on the embedded scheduler: `heavy_ours.py DIRECTORY`."""

import sys
from typing import Any

from heavy_work import look, make, played
from protocol import serve

import slurm
from slurm import Cluster, task

PATIENCE_S = 300


def main() -> None:
    """Serve rounds in one cluster."""
    with Cluster("embedded", job_base_dir=sys.argv[1]) as cluster:
        looking, giving = task(look), task(make)
        cluster.submit(giving)(1).result(PATIENCE_S)

        def share(table: Any, count: int) -> list[Any]:
            two = looking.with_options(cpus_per_task=2)
            array = two.map(range(count), common={"table": table}, pack=count)
            return array.results(PATIENCE_S)

        def give(mib: int) -> Any:
            return giving(mib).result(PATIENCE_S)

        serve({"version": slurm.__version__}, lambda order: played(share, give, order))


if __name__ == "__main__":
    main()
