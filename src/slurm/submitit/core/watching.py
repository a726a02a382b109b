"""InfoWatcher: asks a scheduler about many jobs with few calls; what executors of others build on.

Jobs that the SDK's core submitted have its watcher; this one is for jobs it knows nothing of.
"""

from __future__ import annotations

import subprocess
import time

from slurm import locks
from slurm.model.states import JobState, parse_state
from slurm.submitit.core import logger

#: States of schedulers other than Slurm in which a job is not over.
_OPEN_WORDS = ("READY", "UNKNOWN", "QUEUED", "")
#: So many new jobs are asked about at once; later ones wait for the next call.
BURST = 5
#: An end that the scheduler may take back (a lost node, a preemption) counts when it lasts.
LASTING = 2


def is_over(state: str) -> bool:
    """Whether a state is an end, in Slurm's words or in another scheduler's."""
    known = parse_state(state)
    if known is not JobState.UNKNOWN:
        return known.finished
    return state.strip().upper() not in _OPEN_WORDS


class InfoWatcher:
    """What a scheduler says of jobs, by id.

    A subclass gives the command (`_make_command`) and reads its answer (`read_info`). The command
    runs seldom: some seconds after the first job, then ever more rarely up to every `delay_s`;
    further jobs do not start that over. Jobs that are over are asked about no more.
    """

    def __init__(self, delay_s: int = 60) -> None:
        self._delay_s = delay_s
        self._lock = locks.rlock("submitit")
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._registered: set[str] = set()
            self._finished: set[str] = set()
            self._info_dict: dict[str, dict[str, str]] = {}
            self._lasted: dict[str, tuple[str, int]] = {}
            self._num_calls = 0
            self._watching_since = self._last_call = float("-inf")
            self._fresh: set[str] = set()
            self._tokens = float(BURST)
            self._refilled_at = time.time()

    @property
    def num_calls(self) -> int:
        """How often the scheduler was asked."""
        return self._num_calls

    def register_job(self, job_id: str) -> None:
        """Watch a job."""
        with self._lock:
            if job_id in self._registered:
                return
            if self._registered <= self._finished:
                self._watching_since = time.time()
            self._registered.add(job_id)
            self._fresh.add(job_id)

    def get_info(self, job_id: str, mode: str = "standard") -> dict[str, str]:
        """The fields of a job; `mode` is `force` (ask now), `standard` or `cache` (never ask).

        `new` asks about a job that was never asked about, if not too many were.
        """
        if job_id is None:
            raise RuntimeError("this job has no id")
        with self._lock:
            self.register_job(job_id)
            if job_id not in self._finished:
                self.update_if_long_enough(mode)
            return self._info_dict.get(job_id, {})

    def get_state(self, job_id: str, mode: str = "standard") -> str:
        """The state of a job, UNKNOWN where the scheduler does not tell."""
        words = self.get_info(job_id, mode).get("State", "").split()
        return words[0].rstrip("+") if words else "UNKNOWN"

    def is_done(self, job_id: str, mode: str = "standard") -> bool:
        """Whether a job is over for good."""
        state = self.get_state(job_id, mode)
        if job_id in self._finished:
            return True
        _, lasted = self._lasted.get(job_id, ("", 0))
        return is_over(state) and (not parse_state(state).may_requeue or lasted >= LASTING)

    def times_unknown(self, job_id: str) -> int:
        """How many answers of the scheduler in a row, up to the last one, did not have this job."""
        state, count = self._lasted.get(job_id, ("", 0))
        return 0 if state else count

    def update_if_long_enough(self, mode: str) -> None:
        """Ask the scheduler, if that is due."""
        now = time.time()
        with self._lock:
            if mode == "force":
                # Many jobs may force at the same time.
                due = bool(self._fresh) or now - self._last_call > 0.001
            elif mode == "standard":
                due = self._is_due(now)
            elif mode == "new":
                due = self._asks_for_new(now)
            elif mode == "cache":
                due = False
            else:
                raise ValueError(f"mode={mode!r} must be one of force, standard, new and cache")
            if due:
                self.update()

    def _is_due(self, now: float) -> bool:
        if self._registered <= self._finished:
            return False
        if self._asks_for_new(now):
            return True
        pause = min(self._delay_s, max(2.0, (now - self._watching_since) / 2))
        return now - self._last_call > pause

    def _asks_for_new(self, now: float) -> bool:
        self._tokens = min(BURST, self._tokens + (now - self._refilled_at) / self._delay_s)
        self._refilled_at = now
        if not self._fresh or self._tokens < 1:
            return False
        self._tokens -= 1
        return True

    def update(self) -> None:
        """Ask the scheduler now."""
        with self._lock:
            self._last_call = time.time()
            self._fresh.clear()
            command = self._make_command()
            if command is None:
                return
            self._num_calls += 1
            answer = self._ask(command)
            if answer is not None:
                self._take(self.read_info(answer))

    def _ask(self, command: list[str]) -> bytes | str | None:
        try:
            return subprocess.check_output(command, shell=False)
        except (OSError, subprocess.SubprocessError) as error:
            logger.get_logger().warning("%s did not answer: %s", command[0], error)
            return None

    def _take(self, info: dict[str, dict[str, str]]) -> None:
        self._info_dict.update(info)
        for job_id in self._registered - self._finished:
            state = self.get_state(job_id, "cache") if job_id in info else ""
            before, count = self._lasted.get(job_id, ("", 0))
            count = count + 1 if state == before else 1
            self._lasted[job_id] = (state, count)
            final = not parse_state(state).may_requeue or count > LASTING
            if (is_over(state) and final) or self._array_is_over(job_id):
                self._finished.add(job_id)

    def _array_is_over(self, job_id: str) -> bool:
        """The bare id of an array never ends by itself; it is over when its elements are."""
        elements = [one for one in self._info_dict if one.startswith(f"{job_id}_")]
        return bool(elements) and all(
            is_over(self._info_dict[one].get("State", "")) for one in elements
        )

    def _make_command(self) -> list[str] | None:
        """The command that tells about all jobs; None where there is nothing to ask."""
        raise NotImplementedError

    def read_info(self, string: bytes | str) -> dict[str, dict[str, str]]:
        """The fields of each job in the command's answer, by job id."""
        raise NotImplementedError
