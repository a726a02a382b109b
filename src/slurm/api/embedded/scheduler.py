"""The scheduler itself: takes jobs, starts what may start, and brings each one to its end."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable, Iterable

from slurm.api.embedded import host, signals, supervisor
from slurm.api.embedded.engine import REASONS, outcome
from slurm.api.embedded.environment import RUN_VARIABLE, Attempt, job_environment, log_files
from slurm.api.embedded.live import LiveBatch, Timer, interpreter, write_batch
from slurm.api.embedded.place import Place
from slurm.api.embedded.queue import Batch, Job, Queue
from slurm.api.embedded.request import Need, make_request, need_of
from slurm.api.embedded.waiting import NO_REASON, Waiting
from slurm.api.sbatch_lines import BadRequest, add_environment, read_options

# One turn of the event loop starts no more jobs than this: requests are not kept waiting.
_STARTS_PER_TURN = 16
# A job that is lost again and again is not started for ever; Slurm's max_batch_requeue is 5, too.
_MOST_RESTARTS = 5


class Scheduler:
    """The queue in motion. Time comes in as an argument; nothing here waits."""

    def __init__(
        self,
        files: Place,
        queue: Queue,
        machine: host.Machine,
        *,
        kill_wait: float,
        user: str,
        watch: Callable[[int], None],
    ) -> None:
        self.files = files
        self.queue = queue
        self.machine = machine
        self.kill_wait = kill_wait
        self.node = os.uname().nodename.split(".")[0]
        self.running: dict[int, Job] = {}
        self.waiting = Waiting(queue, self._finish)
        self.live = self.waiting.live
        self.jobs = self.waiting.jobs
        self.lanes = self.waiting.lanes
        self.timers = self.waiting.timers
        self.free = Need(machine.cpus, machine.memory_mb, machine.gpus)
        self._free_devices = list(range(machine.gpus))
        self._user = user
        self._watch = watch
        self._boot = host.boot_id()
        self._full: set[int] = set()
        self._over: list[LiveBatch] = []

    # ---- taking jobs ----------------------------------------------------------------------------

    def submit(
        self, key: str, script: str, name: str, environ: dict[str, str], cwd: str, umask: int
    ) -> int:
        """Take a submission; gives its job id. The same key gives the same id again."""
        known = self.queue.batch_with_key(key)
        if known is not None:
            return known
        now = time.time()
        interpreter(script.split("\n", 1)[0])
        options = add_environment(read_options(script), environ)
        request = make_request(options, name, now)
        need = need_of(request, self.machine)
        self.waiting.check(request)
        indices: tuple[int | None, ...] = request.array or (None,)
        first = self.queue.reserve_ids(len(indices) + (request.array is not None))
        work_dir = os.path.join(cwd, request.chdir or "").rstrip("/") or "/"
        batch = Batch(first, key, options, name, cwd, work_dir, request.name, umask, int(now))
        own = first + (request.array is not None)  # an array's id is not one of its elements'
        jobs = {
            index: Job(own + number, first, index, held=request.hold)
            for number, index in enumerate(indices)
        }
        directory = self.files.batch(first)
        try:
            write_batch(directory, script, environ)
            self.queue.add(batch, jobs.values())
            self.queue.commit()
        except BaseException:  # raised again; nothing half may stay
            self.queue.rollback()
            shutil.rmtree(directory, ignore_errors=True)
            raise
        self.waiting.enter(LiveBatch(batch, request, need, directory, jobs))
        self.waiting.consider_batch(first, now)
        return first

    def recover(self, now: float) -> None:
        """Take over what an earlier scheduler left: waiting, running, ended or lost jobs."""
        batch_ids = sorted({job.batch for job in self.queue.unfinished()})
        self._clear_away(batch_ids)
        jobs: dict[int, dict[int | None, Job]] = {}
        for job in self.queue.jobs_of(batch_ids):
            jobs.setdefault(job.batch, {})[job.index] = job
        batches = list(self.queue.batches(batch_ids))
        self._lose([job for lost in set(batch_ids) - {b.id for b in batches}
                    for job in jobs[lost].values()], now)  # fmt: skip
        batch_ids = [batch.id for batch in batches]
        for batch in batches:
            request = make_request(batch.options, batch.script_name, batch.submit)
            try:
                need = need_of(request, self.machine)
            except BadRequest:  # the machine became smaller: as much as there is
                need = Need(self.machine.cpus, self.machine.memory_mb, self.machine.gpus)
            directory = self.files.batch(batch.id)
            self.waiting.enter(LiveBatch(batch, request, need, directory, jobs[batch.id]))
        for batch_id in batch_ids:
            for job in [job for job in jobs[batch_id].values() if job.end is None]:
                running = supervisor.read_running(self.files.batch(batch_id), job.run)
                if running is not None:
                    self._adopt(job, running, now)
        for batch_id in batch_ids:
            self.waiting.consider_batch(batch_id, now)
        self.waiting.settle(now)

    def _lose(self, jobs: Iterable[Job], now: float) -> None:
        """End jobs of which the queue does not know any more what they are."""
        for job in jobs:
            if job.end is None:
                job.state, job.reason, job.end = "NODE_FAIL", REASONS["NODE_FAIL"], int(now)
                self.queue.changed(job)

    def _clear_away(self, batch_ids: Iterable[int]) -> None:
        """Remove what ended batches left behind when a scheduler was killed."""
        jobs = self.files.batch(0).rpartition("/")[0]
        for name in set(os.listdir(jobs)) - {str(batch_id) for batch_id in batch_ids}:
            shutil.rmtree(os.path.join(jobs, name), ignore_errors=True)

    def _adopt(self, job: Job, running: supervisor.Running, now: float) -> None:
        job.start = int(running.started)
        self._occupy(job, running.pid, running.devices)
        if running.lives(self._boot):
            self._watch(running.pid)
            self._set_limits(job, running.started)
            if job.ending:  # it was under way: all of it, once more
                ending, job.ending = job.ending, ""
                self.end_jobs([job], ending, now)
        else:
            self.attempt_over(running.pid, now)

    # ---- what runs ------------------------------------------------------------------------------

    def start_ready(self, now: float) -> bool:
        """Start jobs that fit; True if more may be started at once."""
        for _ in range(_STARTS_PER_TURN):
            job_id = self.lanes.pick(self.free, self._full, now)
            if job_id is None:
                return False
            self._start(self.jobs[job_id], now)
        return True

    def _start(self, job: Job, now: float) -> None:
        live = self.live[job.batch]
        request = live.request
        self.lanes.remove(job.id)
        devices = tuple(self._free_devices[: live.need.gpus])
        attempt = Attempt(
            job.id, job.batch, job.index, job.restarts, int(now), request, self.node, self._user,
            live.batch.cwd, self.files.directory, live.need.cpus, devices,
        )  # fmt: skip
        output, error = log_files(attempt)
        job.start = int(now)
        try:
            environ = job_environment(attempt, live.environ())
            pid = supervisor.start(
                supervisor.Launch(
                    live.directory, job.run, live.argv(), environ, attempt.work_directory, output,
                    error, request.append, live.batch.umask, self._boot, devices,
                    self.kill_wait,
                )
            )  # fmt: skip
        except (OSError, ValueError) as problem:
            self._finish(job, "FAILED", now, f"JobLaunchFailure: {problem}")
            return
        self._occupy(job, pid, devices)
        self._set_limits(job, now)

    def _occupy(self, job: Job, pid: int, devices: tuple[int, ...]) -> None:
        """Take what the job needs from what is free."""
        live = self.live[job.batch]
        self.lanes.remove(job.id)
        if not job.ending:
            job.state, job.reason = "RUNNING", NO_REASON
        job.node, job.pid, job.devices = self.node, pid, devices
        self.running[pid] = job
        self.free = self.free.plus(live.need, -1)
        self._free_devices = [d for d in self._free_devices if d not in devices]
        live.running += 1
        live.begun.add(job.index)
        live.last_start = max(live.last_start, job.start or 0)
        if live.full:
            self._full.add(job.batch)
        self.queue.changed(job)
        self.waiting.touch(job)

    def _set_limits(self, job: Job, start: float) -> None:
        request = self.live[job.batch].request
        if request.time_limit is None:
            return
        end = start + request.time_limit
        self.timers.add(end, "limit", job)
        if request.early_signal is not None:
            early = max(start, end - request.early_signal.seconds)
            self.timers.add(early, "early signal", job)

    def attempt_over(self, pid: int, now: float) -> None:
        """A supervisor has ended: so has its job, in one way or another."""
        job = self.running.pop(pid, None)
        if job is None:
            return
        live = self.live[job.batch]
        self.free = self.free.plus(live.need)
        self._free_devices = sorted({*self._free_devices, *job.devices})
        live.running -= 1
        self._full.discard(job.batch)
        self._lend(job, -job.waiting)
        job.pid, job.devices = None, ()
        winner = supervisor.read_running(live.directory, job.run)
        if winner is not None and winner.pid != pid and winner.lives(self._boot):
            # A scheduler that was killed had just started it; this one's start gave way.
            self._adopt(job, winner, now)
            return
        ended = supervisor.read_exit(live.directory, job.run)
        if ended is None:
            mark = f"{RUN_VARIABLE}={job.run}@{self.files.directory}"
            host.send_signal(host.processes_marked(mark), signal.SIGKILL)
        code, signum, end = (ended.code, ended.signal, ended.end) if ended else (0, 0, int(now))
        again = live.request.requeue and job.restarts < _MOST_RESTARTS
        state = outcome(job.ending, code, signum, ended is None, again)
        if state == "PENDING":
            self._again(job, now)
            return
        job.exit_code, job.signal = code, signum
        reason = REASONS.get(state, NO_REASON)
        if state == "FAILED" and signum == supervisor.LAUNCH_FAILED:
            reason = "JobLaunchFailure"
        self._finish(job, state, end, reason)

    def job_waits(self, run: str, more: int) -> bool:
        """A process of this attempt begins (1) or ends (-1) to do nothing but wait for other jobs.

        Its CPUs are free for these meanwhile; memory and GPUs it keeps. When it goes on it has its
        CPUs at once, and nothing else starts until there are enough again.
        """
        number = run.partition(".")[0]
        job = self.jobs.get(int(number)) if number.isdigit() else None
        if job is None or job.pid is None or job.run != run:
            return False
        self._lend(job, more)
        return True

    def _lend(self, job: Job, more: int) -> None:
        live = self.live[job.batch]
        job.waiting += more
        share = -(-live.need.cpus // max(1, live.request.tasks))
        lent = min(live.need.cpus, job.waiting * share)
        self.free = self.free.plus(Need(lent - job.lent, 0, 0))
        job.lent = lent

    def _again(self, job: Job, now: float) -> None:
        job.restarts += 1
        job.state, job.reason, job.ending = "PENDING", NO_REASON, ""
        job.start, job.node = None, ""
        self.queue.changed(job)
        self.waiting.consider(job, now)

    def _finish(self, job: Job, state: str, now: float, reason: str) -> None:
        live = self.live[job.batch]
        self.lanes.remove(job.id)
        live.begun.add(job.index)
        job.state, job.reason, job.ending = state, reason, ""
        job.end = int(now)
        live.ended += 1
        live.failed += state != "COMPLETED"
        self.queue.changed(job)
        self.waiting.touch(job)
        if live.over:
            self._over.append(live)

    def store(self) -> bool:
        """Write what changed, then forget the batches that are over; False if the disk is full."""
        if not self.queue.try_commit():
            return False
        # Only now: with the run files gone and no end on disk, a crash would call them lost.
        for live in self._over:
            del self.live[live.batch.id]
            for job in live.jobs.values():
                del self.jobs[job.id]
            shutil.rmtree(live.directory, ignore_errors=True)
        self._over.clear()
        return True

    # ---- bringing jobs to an end ----------------------------------------------------------------

    def end_jobs(self, jobs: Iterable[Job], ending: str, now: float) -> None:
        """Cancel, time out or requeue: a waiting job ends at once, a running one is asked first."""
        asked = []
        for job in jobs:
            if job.pid is None:
                self._finish(job, ending, now, NO_REASON)
                continue
            first = not job.ending or job.state != "COMPLETING"
            job.ending, job.state = ending, "COMPLETING"
            self.queue.changed(job)
            if first:
                asked.append(job)
                self.timers.add(now + self.kill_wait, "kill", job)
        self._ask_to_end(asked, now)

    def _ask_to_end(self, jobs: list[Job], now: float) -> None:
        table = host.process_table() if jobs else {}
        for job in jobs:
            if not signals.ask_to_end(job, self.live[job.batch].directory, table):
                # Its supervisor has not come to start the script yet.
                self.timers.add(now + 0.02, "ask", job)

    def signal_job(self, job: Job, signum: int, scope: str) -> None:
        """Send a signal to processes of a running job; `signals.send` names the scopes."""
        signals.send(job, self.live[job.batch].directory, signum, scope)

    # ---- time -----------------------------------------------------------------------------------

    def fire(self, now: float) -> None:
        """Do all that is due."""
        for timer in self.timers.due(now):
            job = self._job_of(timer)
            if job is None:
                continue
            early = self.live[job.batch].request.early_signal
            if timer.kind == "consider":
                self.live[job.batch].alarms.discard(int(timer.at))
                self.waiting.consider_batch(job.batch, now)
            elif timer.kind == "early signal" and early is not None and not job.ending:
                self.signal_job(job, early.signum, "batch" if early.batch_only else "steps")
            elif timer.kind == "limit" and not job.ending:
                self.end_jobs([job], "TIMEOUT", now)
            elif timer.kind == "ask":
                self._ask_to_end([job], now)
            elif timer.kind == "kill":
                signals.kill(job)
                self.timers.add(now + 1, "kill", job)

    def next_time(self) -> float | None:
        """When `fire` has something to do; timers of ended attempts are forgotten."""
        while (timer := self.timers.first()) is not None and self._job_of(timer) is None:
            self.timers.drop_first()
        return None if timer is None else timer.at

    def _job_of(self, timer: Timer) -> Job | None:
        job = self.jobs.get(timer.job_id)
        if job is None or job.restarts != timer.restarts:
            return None
        return job if timer.kind == "consider" or job.pid is not None else None

    @property
    def idle(self) -> bool:
        """Whether nothing can happen without a request: what is left waits on disk as well."""
        return not self.running and not self.lanes and not self._over and self.next_time() is None
