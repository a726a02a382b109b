"""A client with many jobs in flight: `in_flight.py BASE`; it tells what watching them costs."""

import os
import resource
import subprocess
import sys
import threading
import time
from typing import Any

from our_tasks import noop
from protocol import serve

import slurm
from slurm import Cluster

#: How many files Python opened and folders it listed, in all threads.
_files = [0]


def _audit(event: str, _: object) -> None:
    if event in ("open", "os.scandir", "os.listdir"):
        _files[0] += 1


def main() -> None:
    cluster = Cluster("local", job_base_dir=sys.argv[1])
    submit = cluster.submit(noop, begin="now+1hour")
    jobs = [submit(1) for _ in range(20)]  # the first ones load modules and start the threads
    # Somebody waits, as users do: then files are looked at more often.
    threading.Thread(target=jobs[0].exception, daemon=True).start()
    sys.addaudithook(_audit)

    def play(order: str) -> dict[str, Any]:
        kind, _, count = order.partition(" ")
        if kind == "submit":
            jobs.extend(submit(1) for _ in range(int(count)))
        elif kind == "wait":
            time.sleep(float(count))
        elif kind == "cancel":
            return _cancelled(jobs)
        return _state(cluster, len(jobs))

    serve({"version": slurm.__version__}, play)


def _cancelled(jobs: Any) -> dict[str, Any]:
    """Cancel all jobs from outside, and see how long it takes until each future knows."""
    began = time.monotonic()
    subprocess.run(["scancel", "--user", str(os.geteuid())], check=True, timeout=60)
    asked = time.monotonic()
    for job in jobs:
        try:
            job.exception(max(0.1, began + 90 - time.monotonic()))
        except slurm.JobCancelled:
            continue
    return {"scancel": asked - began, "settled": time.monotonic() - asked}


def _state(cluster: Cluster, count: int) -> dict[str, Any]:
    with open("/proc/self/status") as f:
        status = dict(line.split(":", 1) for line in f)
    used = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "jobs": count,
        "rss_kib": int(status["VmRSS"].split()[0]),
        "threads": int(status["Threads"]),
        "polls": cluster._watcher.polls,
        "looks": cluster._watcher.looks,
        "calls": cluster.backend.agent.scheduler.calls,  # type: ignore[attr-defined]
        "files": _files[0],
        "cpu": used.ru_utime + used.ru_stime,
        "time": time.monotonic(),
    }


if __name__ == "__main__":
    main()
