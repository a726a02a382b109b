"""Signals to the processes of a job: to its batch shell, to its steps, or to all of them."""

from __future__ import annotations

import signal
from collections.abc import Mapping

from slurm.api.embedded import host, supervisor
from slurm.api.embedded.queue import Job


def ask_to_end(job: Job, directory: str, table: Mapping[int, int]) -> bool:
    """Send SIGTERM to all processes of a job, stopped ones too; False if it has none yet."""
    processes = _processes(job, table)
    # Each rank hears it from here; its srun would tell it a second time.
    starters = supervisor.step_starters(directory, job.run, processes)
    supervisor.mark_told(directory, job.run)
    host.send_signal([pid for pid in processes if pid not in starters], signal.SIGTERM)
    host.send_signal(processes, signal.SIGCONT)
    return bool(processes)


def kill(job: Job) -> None:
    """Send SIGKILL to all processes of a job; its supervisor records the end."""
    host.send_signal(_processes(job, host.process_table()), signal.SIGKILL)


def send(job: Job, directory: str, signum: int, scope: str) -> None:
    """Send a signal to the "batch" shell, to the "steps" or to all, "full"."""
    table = host.process_table()
    processes = _processes(job, table)
    starters = supervisor.step_starters(directory, job.run, processes)
    ranks = [rank for starter in starters for rank in host.descendants(table, starter)]
    running = supervisor.read_running(directory, job.run)
    shell = running.batch_pid if running is not None else None
    alone = [shell] if shell is not None and shell in processes else []
    targets = {"batch": alone, "steps": ranks, "full": processes}
    host.send_signal(targets[scope], signum)


def _processes(job: Job, table: Mapping[int, int]) -> list[int]:
    """All processes of a running job; its supervisor is not one of them."""
    return [] if job.pid is None else host.descendants(table, job.pid)
