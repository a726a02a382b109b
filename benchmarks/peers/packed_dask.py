"""The same with Dask's distributed scheduler on this host, by its own Python."""

import time

import distributed
from protocol import serve


def noop(item: int) -> int:
    """Give the item back."""
    return item


def main() -> None:
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None, host="127.0.0.1"
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        client.gather(client.map(noop, range(10)))

        def play(order: str) -> float:
            count = int(order.partition(" ")[2])
            began = time.perf_counter()
            values = client.gather(client.map(noop, range(count), pure=False))
            taken = time.perf_counter() - began
            assert values == list(range(count))
            return taken

        serve({"version": distributed.__version__}, play)


if __name__ == "__main__":
    main()
