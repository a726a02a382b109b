"""submitit and the drop-in for it: `drop_in.py submitit|slurm.submitit slurm|local DIRECTORY`."""

import importlib
import os
import sys
import time
from typing import Any

from calls import noop
from protocol import serve

#: The commands that a scheduler has to answer; sbatch is called by both for each submission.
_QUESTIONS = ("squeue", "sacct", "scontrol", "sinfo")
_asked = [0]


def _audit(event: str, args: Any) -> None:
    if event == "subprocess.Popen" and os.path.basename(str(args[1][0])) in _QUESTIONS:
        _asked[0] += 1


class Rolling:
    """Submits a job that waits every 5 s and looks at its state every second."""

    def __init__(self, submitit: Any) -> None:
        self._executor = submitit.AutoExecutor(folder=sys.argv[3] + "/%j", cluster=sys.argv[2])
        self._executor.update_parameters(
            timeout_min=5, slurm_additional_parameters={"begin": "now+1hour"}
        )
        self._jobs: list[Any] = []
        sys.addaudithook(_audit)

    def go_on(self, seconds: int) -> int:
        """Do so for a while; how many questions the scheduler was asked."""
        _asked[0] = 0
        for _ in range(seconds // 5):
            self._jobs.append(self._executor.submit(noop, 1))
            for _ in range(5):  # once a second, as submitit's own `wait` does
                assert self._jobs[-1].state
                assert not self._jobs[0].done()
                time.sleep(1)
        return _asked[0]


def main() -> None:
    submitit = importlib.import_module(sys.argv[1])
    executor = submitit.AutoExecutor(folder=sys.argv[3] + "/%j", cluster=sys.argv[2])
    executor.update_parameters(timeout_min=5)
    rolling: list[Rolling] = []

    def play(order: str) -> float:
        kind, _, count = order.partition(" ")
        if kind == "roll":
            rolling[:] = rolling or [Rolling(submitit)]
            return rolling[0].go_on(int(count))
        began = time.perf_counter()
        if kind == "map":
            jobs = executor.map_array(noop, range(int(count)))
            assert [job.result() for job in jobs] == list(range(int(count)))
        else:
            assert executor.submit(noop, 1).result() == 1
        return time.perf_counter() - began

    serve({"version": submitit.__version__}, play)


if __name__ == "__main__":
    main()
