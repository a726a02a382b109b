"""The items of a packed map that cannot begin yet: a job that is not over brings what they need."""

from typing import Dict, List, Set

from slurm.runner.board import Call
from slurm.runner.ranges import Queue
from slurm.runner.workers import Calls


class Waiting:
    """Items without an outcome, by the call whose value they lack."""

    def __init__(self) -> None:
        self._items: Dict[Call, List[int]] = {}
        self._jobs: Set[str] = set()
        #: Whether they were left to another job.
        self.moved = False

    def __len__(self) -> int:
        return sum(map(len, self._items.values()))

    def add(self, item: int, call: Call) -> None:
        """Note that an item lacks the value of a call."""
        self._items.setdefault(call, []).append(item)

    def look(self, calls: Calls, queue: Queue) -> bool:
        """Put items back into the queue that need not wait any more; whether there are some."""
        from slurm.runner.behind import look

        self._jobs = set()
        for call, jobs in look(calls.base, list(self._items)).items():
            if jobs:
                self._jobs.update(jobs)
                continue
            if jobs is not None:
                calls.failed.add(call)
            for item in self._items.pop(call):
                queue.give_back(item, item + 1)
        return queue.left > 0

    def move(self, calls: Calls) -> None:
        """Leave them to a job behind those that the last look has found."""
        from slurm.runner.behind import move

        move(calls.run, calls.who, self._jobs)
        self.moved = True
