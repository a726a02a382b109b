"""SignalHandler: what a job does when it is told that its time, or its place, is over.

The handler that Python calls only writes a byte into a pipe. A thread reads it and does the rest,
so that the user's code goes on, holds no lock across a checkpoint that it would wait for, and
hears of the signal even while it is in a long call of a C library.
"""

from __future__ import annotations

import _thread  # all that is needed of `threading`, which is slow to import
import contextlib
import os
import signal
import sys
import time

from slurm.submitit.core import logger
from slurm.submitit.core.utils import DelayedSubmission, JobPaths, UncompletedJobError

TYPE_CHECKING = False  # `typing` is slow to import, and every job imports this module

if TYPE_CHECKING:
    from typing import Any

    from slurm.submitit.core.job_environment import JobEnvironment

#: Where the real end of a job is not known, this part of its time limit counts as the end.
NEARLY = 0.8
#: What ends a process that was checkpointed: not success, and no failure of the function.
REQUEUED = 255


class SignalHandler:
    """Checkpoints a call and puts its job back into the queue when a signal asks for it."""

    def __init__(
        self, env: JobEnvironment, job_paths: JobPaths, delayed: DelayedSubmission
    ) -> None:
        self.env = env
        self._job_paths = job_paths
        self._delayed = delayed
        self._start_time = time.time()
        self._deciding = _thread.allocate_lock()
        self._before: dict[int, Any] = {}
        self._pipe = os.pipe()
        os.set_blocking(self._pipe[1], False)

    # ---- listening ------------------------------------------------------------------------------

    def listen(self) -> None:
        """Take the signals over; nothing happens where this is not the main thread."""
        numbers = (int(self.env._usr_sig()), int(signal.SIGTERM))
        with contextlib.suppress(ValueError):
            for number in numbers:
                self._before[number] = signal.signal(number, self._notice)
        if not self._before:
            return
        owner = os.getpid()
        _thread.start_new_thread(self._watch, (self._pipe[0],))
        # The C level writes the signal's number at once, also while Python code cannot run.
        signal.set_wakeup_fd(self._pipe[1], warn_on_full_buffer=False)
        os.register_at_fork(after_in_child=lambda: self._leave_child(owner))
        end = os.environ.get("SLURM_JOB_END_TIME", "")
        if end.isdigit() and time.time() >= int(end) - warned_before_s():
            # The warning came before this process could hear it.
            os.write(self._pipe[1], bytes([self.env._usr_sig()]))

    def stop_listening(self) -> None:
        """Give the signals back; waits for a decision that is being made, which may be the end."""
        self._deciding.acquire()
        if not self._before:
            return
        signal.set_wakeup_fd(-1)
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    def _leave_child(self, owner: int) -> None:
        """A child of the user's process is not the job: it dies of TERM, and ignores the rest."""
        if self._before and os.getpid() != owner:
            signal.set_wakeup_fd(-1)
            for number in self._before:
                signal.signal(
                    number, signal.SIG_DFL if number == signal.SIGTERM else signal.SIG_IGN
                )
            self._before = {}

    def _notice(self, signum: int, frame: Any) -> None:
        # The C level has told the pipe, unless an event loop of the user's took its place.
        other = signal.set_wakeup_fd(self._pipe[1], warn_on_full_buffer=False)
        if other != self._pipe[1]:
            signal.set_wakeup_fd(other)
            with contextlib.suppress(BlockingIOError):
                os.write(self._pipe[1], bytes([signum]))

    def _watch(self, pipe: int) -> None:
        ours = set(self._before)
        while True:
            for number in os.read(pipe, 64):
                if number in ours:
                    with self._deciding:
                        self._act(signal.Signals(number))

    def _act(self, signum: signal.Signals) -> None:
        """Do what the signal asks for; this may be the end of the process."""
        try:
            if signum == signal.SIGTERM:
                self._terminated(signum)
            else:
                self.checkpoint_and_try_requeue(signum)
        except SystemExit:
            self._end(REQUEUED)
        except BaseException as error:  # noqa: BLE001 - recorded as the job's outcome
            self._record(error)
            self._end(1)

    def _record(self, error: BaseException) -> None:
        from slurm.submitit.core.submission import write_error

        if not isinstance(error, UncompletedJobError):  # that one is logged already
            logger.exception("the job cannot be checkpointed: %s", error)
        write_error(self._job_paths, error)

    @staticmethod
    def _end(code: int) -> None:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)

    # ---- decisions ------------------------------------------------------------------------------

    def has_timed_out(self) -> bool:
        """Whether the signal comes from the time limit, and not from a preemption."""
        left = self.env.time_left()
        if left is not None:
            return left <= warned_before_s() + self.env._slack_s
        limit = 60 * self._delayed._timeout_min
        return time.time() - self._start_time >= NEARLY * limit

    def _terminated(self, signum: signal.Signals) -> None:
        """TERM comes before a preemption, and when a job is cancelled or at its limit."""
        state = self.env.scheduler_state()
        if state == "RUNNING":
            self._checkpoint_and_requeue(signum, timed_out=False)
        elif state is None:
            self.bypass(signum)
        else:
            # It is being ended. If Slurm itself starts it again, it goes on from here.
            self.checkpoint_and_exit(signum)

    def bypass(self, signum: Any, frame: Any = None) -> None:
        """Go on as if nothing had been said."""
        logger.get_logger().warning("signal %s is ignored", _name(signum))

    def checkpoint_and_try_requeue(self, signum: Any, frame: Any = None) -> None:
        """Checkpoint, put the job back into the queue, and exit; raises where it must not go on."""
        self._checkpoint_and_requeue(signum, self.has_timed_out())

    def _checkpoint_and_requeue(self, signum: Any, timed_out: bool) -> None:
        case = "timed out" if timed_out else "preempted"
        logger.get_logger().warning("signal %s: the job is %s", _name(signum), case)
        if self._is_not_first():
            return
        countdown = self._delayed._timeout_countdown - timed_out
        reason = ""
        if checkpoint_of(self._delayed.function) is not None:
            reason = self._checkpoint(countdown)
        elif timed_out:
            reason = "timed-out and not checkpointable"
        if countdown < 0:
            reason = "timed-out too many times"
        if reason:
            text = f"job {self.env.job_id if self._in_a_job() else '?'} is not requeued: {reason}."
            logger.get_logger().warning(text)
            raise UncompletedJobError(text)
        self.env._requeue(countdown)
        sys.exit(-1)

    def checkpoint_and_exit(self, signum: Any, frame: Any = None) -> None:
        """Checkpoint and exit; whether the job goes on is somebody else's decision."""
        logger.get_logger().warning("signal %s: the job is being ended", _name(signum))
        if self._is_not_first():
            return
        if checkpoint_of(self._delayed.function) is not None:
            self._checkpoint(self._delayed._timeout_countdown)
        sys.exit(-1)

    def _is_not_first(self) -> bool:
        """Only the first task decides; the others go on until they are ended."""
        return self.env.global_rank != 0

    def _in_a_job(self) -> bool:
        return self.env._env.get("job_id", "") in os.environ

    def _checkpoint(self, countdown: int) -> str:
        """Let the function say what to run next, and keep it; returns why nothing is to follow."""
        delayed = self._delayed
        method = checkpoint_of(delayed.function)
        assert method is not None
        following = method(*delayed.args, **delayed.kwargs)
        if following is None:
            return "its checkpoint returned None"
        following.set_timeout(delayed._timeout_min, countdown)
        following.dump(self._job_paths.name_of("submitted_pickle"))
        return ""


def warned_before_s() -> float:
    """How long before the time limit the scheduler sends its warning."""
    return float(os.environ.get("SUBMITIT_SIGNAL_DELAY_S") or 90)


def checkpoint_of(function: Any) -> Any:
    """The method that prepares what runs after a requeue; None for plain functions."""
    for name in ("__submitit_checkpoint__", "checkpoint"):
        method = getattr(function, name, None)
        if method is not None:
            return method
    return None


def _name(signum: Any) -> str:
    return signal.Signals(signum).name
