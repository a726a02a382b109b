"""Jobs are futures of the standard library: wait, as_completed and callbacks work with them."""

import concurrent.futures
import sys
import threading
import time

from slurm import Cluster, Job, task


@task(time="10min")
def wait_for(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


told = threading.Event()


def tell(job: "concurrent.futures.Future[float]") -> None:
    print("the callback saw", job.result())
    told.set()


if __name__ == "__main__":
    with Cluster(*sys.argv[1:]):
        quick: Job[float] = wait_for(0.1)
        quick.add_done_callback(tell)
        told.wait(timeout=120)
        jobs = [wait_for(seconds) for seconds in (2.0, 0.2)]

    print("in the order of their ends:")
    for job in concurrent.futures.as_completed(jobs, timeout=120):
        print(f"    {job.result()} s")
    done, pending = concurrent.futures.wait(jobs, timeout=120)
    print(f"{len(done)} done, {len(pending)} pending")

    try:
        with Cluster(*sys.argv[1:]):
            endless = wait_for(600)
        endless.result(timeout=1)
    except TimeoutError:
        print("no result within a second; cancelled:", endless.cancel())
