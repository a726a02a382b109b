"""Retries: by kind of failure, with more resources, and what a job's history tells of them."""

import sys
import tempfile
from pathlib import Path

from slurm import Cluster, Retry, task

if __name__ == "__main__":
    with tempfile.NamedTemporaryFile(dir=Path.home(), prefix="retry-", delete=False) as file:
        log = Path(file.name)  # where the nodes see it too

    @task(time="10min", mem="200M", retry=Retry(times=3, on=(ConnectionError,), oom="mem*2"))
    def download(part: int) -> int:
        with log.open("a") as f:
            f.write(f"{part}\n")
        tries = log.read_text().split().count(str(part))
        if tries <= part:
            raise ConnectionError(f"part {part}: busy, try {tries}")
        if part == 3:
            raise ValueError("part 3 is damaged: no other try will mend it")
        return 10 * part

    @task
    def total(parts: list[int]) -> int:
        return sum(parts)

    with Cluster(*sys.argv[1:]):
        array = download.map(range(3))
        sum_of_all = total(array)
        damaged = download(3)

        print("total:", sum_of_all.result())
        for job in array:
            print(f"part {job.index}:", [attempt.error or "it worked" for attempt in job.history])
        try:
            damaged.result()
        except ValueError as error:
            print("for good:", error)
        print("attempts:", len(damaged.history))
    log.unlink()
