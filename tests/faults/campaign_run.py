"""Does what a plan says on a real Slurm: starts the client, breaks things, mends them, asks."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from breaking import BreakableSlurm
from campaign_after import CLIENT, Aftermath, in_time, of_place
from campaign_places import FarAway, clock_env, late_files, small_disk
from campaign_plan import Fault, Plan
from campaign_rules import Seen

SIGNALS = {"killed": signal.SIGKILL, "terminated": signal.SIGTERM}
DAEMONS = ("slurmctld", "slurmdbd", "mariadbd", "munged", "slurmd")
#: A guard against hangs.
CLIENT_LIMIT = 240
#: Lines of a daemon's log that may tell why a job ended.
TELLING = re.compile("error|kill|cancel|requeue|missing|not responding|revoked", re.IGNORECASE)


class Trial:
    """One run of the campaign."""

    def __init__(self, plan: Plan, slurm: BreakableSlurm, place: Path) -> None:
        self.plan, self.slurm, self.place = plan, slurm, place
        self.base, self.marks, self.said = place / "base", place / "marks", place / "said"
        self.seen = Seen()
        self.hit: list[str] = []
        self.env = {**os.environ, **slurm.cluster.env}
        self.after = Aftermath(plan, slurm, self.base)
        self._mend: dict[Fault, Callable[[], None]] = {}
        self._logs = {path: path.stat().st_size for path in self._daemon_logs()}
        self.base.mkdir(mode=0o700)

    def _daemon_logs(self) -> list[Path]:
        return sorted((self.slurm.cluster.dir / "log").glob("slurm*.log"))

    def daemons_said(self) -> list[str]:
        """What the controller and the nodes logged since the beginning, but for plain progress."""
        lines = []
        for path in self._daemon_logs():
            with open(path, errors="replace") as f:
                f.seek(self._logs.get(path, 0))
                lines += [f"{path.stem}: {line.rstrip()}" for line in f if TELLING.search(line)]
        return lines[-200:]

    def run(self) -> Seen:
        """All of it; what was seen."""
        with contextlib.ExitStack() as stack:
            self._set_up(stack)
            self._break_and_mend()
            self.after.lay_ghosts()
            self.seen.judged = [self.after.judge(), self.after.judge()]
            self.seen.left += [*self.after.wrong, *self.after.left_behind()]
            if self.marks.exists():
                self.seen.marks = self.marks.read_text().splitlines()
            if self.said.exists():
                lines = self.said.read_text().splitlines(keepends=True)
                self.seen.said = [json.loads(line) for line in lines if line.endswith("\n")]
        return self.seen

    # ---- the client -----------------------------------------------------------------------------

    def _set_up(self, stack: contextlib.ExitStack) -> None:
        reach: dict[str, Any] = {"job_base_dir": str(self.base)}
        env, prefix, clock = dict(self.env), [], {}
        if self.plan.fault("disk"):
            self.disk = stack.enter_context(small_disk(self.base))
        if self.plan.fault("clock"):
            self.offset = self.place / "offset"
            clock = clock_env(self.offset)
        if self.plan.fault("files"):
            self.files = self.place / "files.pid"
            prefix = stack.enter_context(late_files(self.base, self.files))
        if self.plan.ssh:
            self.far = stack.enter_context(FarAway(self.slurm.cluster.env, self.place))
            reach.update(self.far.reach)
            env = {k: v for k, v in env.items() if not k.startswith("SLURM")}
            env["SLURM_SDK_SSH_DIR"] = str(self.far.sockets)
            prefix = self.far.prefix
        env.update(clock)
        order = {
            "reach": reach,
            "calls": [asdict(call) for call in self.plan.calls],
            "marks": str(self.marks),
            "said": str(self.said),
        }
        words = [*prefix, sys.executable, str(CLIENT), "work", json.dumps(order)]
        with open(self.place / "client.err", "w") as error:
            self.client = subprocess.Popen(
                words, env=env, cwd=self.place, stdout=error, stderr=error
            )
        stack.callback(self.client.wait)
        stack.callback(self.client.kill)

    def _break_and_mend(self) -> None:
        """Each fault at its moment, each mended at its own; then the end of the client."""
        # How long Python takes to start says nothing: time counts from the client's first word.
        in_time(lambda: self.said.exists() or self.client.poll() is not None, CLIENT_LIMIT)
        began = time.monotonic()
        moments = [(fault.at, 0, fault) for fault in self.plan.faults]
        moments += [(fault.at + fault.lasts, 1, fault) for fault in self.plan.faults]
        try:
            for at, mended, fault in sorted(moments, key=lambda moment: moment[:2]):
                time.sleep(max(0.0, began + at - time.monotonic()))
                if mended:
                    self._mend.pop(fault, _nothing)()
                else:
                    self._break(fault)
        finally:
            for mend in self._mend.values():
                mend()
        self.slurm.start_all()
        self.slurm.resume_nodes()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.client.wait(CLIENT_LIMIT)
        self.seen.client_code = self.client.poll()
        self.seen.client_error = (self.place / "client.err").read_text()[-2000:]

    # ---- faults ---------------------------------------------------------------------------------

    def _break(self, fault: Fault) -> None:
        kind = "daemon" if fault.victim in DAEMONS else fault.victim
        mend = getattr(self, f"_break_{kind}")(fault)
        if mend is not None:
            self.hit.append(f"{fault.victim} {fault.how}")
            self._mend[fault] = mend

    def _break_daemon(self, fault: Fault) -> Callable[[], None]:
        cluster = self.slurm.cluster
        node = cluster.nodes[fault.node] if fault.victim == "slurmd" else None
        if fault.how == "paused":
            return self._paused(fault, cluster.pid(fault.victim, node) or 0)
        if fault.how == "lost":
            with contextlib.suppress(subprocess.CalledProcessError):  # nobody is there to be told
                self.slurm.lose_node(str(node))
        else:
            cluster.stop_daemon(fault.victim, node, signal=SIGNALS[fault.how])

        def mend() -> None:
            self.slurm.start(fault.victim, node)
            if fault.how == "lost":
                self.slurm.resume_nodes()

        return mend

    def _break_client(self, fault: Fault) -> Callable[[], None] | None:
        if self.client.poll() is not None:
            return None
        self.seen.client_ended = fault.how != "paused"
        return self._signalled(fault, self.client.pid)

    def _break_runner(self, fault: Fault) -> Callable[[], None] | None:
        pid = self._soon(self._runner)
        return self._signalled(fault, pid) if pid else None

    def _break_slurmstepd(self, fault: Fault) -> Callable[[], None] | None:
        pid = self._soon(lambda: above(self._runner(), "slurmstepd"))
        return self._signalled(fault, pid) if pid else None

    def _break_job(self, fault: Fault) -> Callable[[], None] | None:
        """Slurm puts a job that runs and may be requeued back into the queue."""
        with contextlib.suppress(subprocess.CalledProcessError):  # the controller may be away
            for job in self.slurm.run("squeue", "-h", "-t", "R", "-o", "%i").split():
                with contextlib.suppress(subprocess.CalledProcessError):
                    self.slurm.run("scontrol", "requeue", job)
                    return _nothing
        return None

    def _break_disk(self, fault: Fault) -> Callable[[], None]:
        self.disk.fill()
        return self.disk.free

    def _break_clock(self, fault: Fault) -> Callable[[], None]:
        self.offset.write_text("+10d\n" if fault.how == "forward" else "-10d\n")
        # A clock that was set stays so.
        return _nothing

    def _break_files(self, fault: Fault) -> Callable[[], None] | None:
        if fault.how == "late":
            return _nothing  # as it is all the time
        pid = self._soon(lambda: int(self.files.read_text() or 0) if self.files.exists() else 0)
        return self._paused(fault, pid) if pid else None

    def _break_network(self, fault: Fault) -> Callable[[], None]:
        self.far.cut()
        self.seen.paused += fault.lasts
        return self.far.join

    def _break_connection(self, fault: Fault) -> Callable[[], None] | None:
        pid = self._soon(self.far.session)
        return self._signalled(fault, pid) if pid else None

    def _signalled(self, fault: Fault, pid: int) -> Callable[[], None]:
        if fault.how == "paused":
            return self._paused(fault, pid)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, SIGNALS[fault.how])
        return _nothing

    def _paused(self, fault: Fault, pid: int) -> Callable[[], None]:
        self.seen.paused += fault.lasts
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)

        def go_on() -> None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

        # In time even where the next fault asks a controller that stands still.
        timer = threading.Timer(fault.lasts, go_on)
        timer.daemon = True
        timer.start()
        return go_on

    def _soon(self, find: Callable[[], int]) -> int:
        """The victim, which may come a little later; 0 when there is none."""
        end = time.monotonic() + 10
        while not (pid := find()) and time.monotonic() < end:
            time.sleep(0.05)
        return pid

    def _runner(self) -> int:
        """A process that runs a function of this run's."""
        pids = [p for p, words in of_place(self.base) if "/slurm/runner/" in words]
        return pids[self.plan.seed % len(pids)] if pids else 0


def _nothing() -> None:
    pass


def above(pid: int, name: str) -> int:
    """The process of this name that a process descends from, 0 when there is none."""
    while pid > 1:
        with contextlib.suppress(OSError):
            text = Path(f"/proc/{pid}/stat").read_text()
            if text.partition("(")[2].rpartition(")")[0] == name:
                return pid
            pid = int(text.rpartition(")")[2].split()[1])
            continue
        return 0
    return 0
