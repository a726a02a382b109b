"""Code written for submitit, with one import changed: an array whose jobs survive a preemption."""

import tempfile
import time

import slurm.submitit as submitit
from slurm.submitit.helpers import DelayedSubmission, as_completed


class Search:
    """Adds numbers slowly; after an interruption it goes on where it was."""

    def __init__(self) -> None:
        self.total = self.step = 0
        self.lives = 0

    def __call__(self, seed: int) -> tuple[int, int]:
        """The total, and how often the job was started."""
        self.lives += 1
        print("life", self.lives, flush=True)
        while self.step < 30:
            time.sleep(0.05)
            self.total += seed
            self.step += 1
        return self.total, self.lives

    def checkpoint(self, seed: int) -> DelayedSubmission:
        """What runs after an interruption."""
        return DelayedSubmission(self, seed)


def main() -> None:
    folder = tempfile.mkdtemp(prefix="submitit-example-")
    executor = submitit.AutoExecutor(folder=f"{folder}/%j", cluster="local")
    executor.update_parameters(timeout_min=10, name="search")
    jobs = executor.map_array(Search(), [1, 2, 3])
    while "life 1" not in (jobs[1].stdout() or ""):
        time.sleep(0.05)
    jobs[1]._interrupt()  # as a preemption would
    totals = sorted(job.result()[0] for job in as_completed(jobs, poll_frequency=1))
    print("totals:", totals)
    print("the second job lived", jobs[1].result()[1], "times")


if __name__ == "__main__":
    main()
