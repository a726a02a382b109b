"""The nodes and jobs of a cluster in containers, as its slurmctld sees and changes them."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Sequence

from slurm.errors import StackError
from slurm.model.hostlist import expand_hostlist
from slurm.stack.engine import Engine, Said
from slurm.stack.services import ENTRY

#: What begins the reason of every node that we took out of service: only those we bring back.
OURS = "slurm-sdk:"
_PAUSE = 0.3
# Minutes for which a node that was taken out is for our own job alone; it is let go much earlier.
_RESERVED = 10
_CANARY = "slurm-sdk-canary"


def wait_until(what: Callable[[], bool], patience: float, pause: float = _PAUSE) -> bool:
    """Ask again and again, with growing pauses, at most so many seconds."""
    end = time.monotonic() + patience
    while True:
        if what():
            return True
        if time.monotonic() >= end:
            return False
        time.sleep(min(pause, max(0.0, end - time.monotonic())))
        pause = min(pause * 1.5, 3.0)


def some(jobs: Sequence[str]) -> str:
    """How many jobs, and the first of them, for a line that a person reads."""
    names = ", ".join(jobs[:10]) + (" ..." if len(jobs) > 10 else "")
    return f"{len(jobs)} job{'s' if len(jobs) != 1 else ''}: {names}"


def _answers(state: str) -> bool:
    # A star stands behind the state of a node that does not answer.
    return bool(state) and not state.endswith("*") and not state.startswith(("unknown", "down"))


class Fleet:
    """Slurm's own commands, run beside slurmctld."""

    def __init__(self, engine: Engine, controllers: Sequence[str] = ("slurmctld",)) -> None:
        self._engine = engine
        self._controllers = controllers

    @property
    def _place(self) -> str:
        """The container beside whose slurmctld commands are run: the first of two that is there."""
        running: list[str] = []
        if len(self._controllers) > 1:
            seen = self._engine.seen()
            running = [name for name in self._controllers if name in seen and seen[name].running]
        return f"{self._engine.cluster}-{(running or self._controllers)[0]}"

    def in_charge(self) -> str:
        """Of two controllers the one that has the queue, or the only one; "" where none answers."""
        if len(self._controllers) == 1:
            return self._controllers[0] if self.answers() else ""
        for name in self._controllers:
            asked = (f"{self._engine.cluster}-{name}", ENTRY, "health", "in-charge")
            if self._engine.execute(*asked, patience=20).code == 0:
                return name
        return ""

    def ask(self, *words: str, patience: float = 60) -> Said:
        """Run a command in the controller's container."""
        return self._engine.execute(self._place, *words, patience=patience)

    def inside(self, node: str, *words: str) -> Said:
        """Run a command in a node's container."""
        return self._engine.execute(f"{self._engine.cluster}-slurmd-{node}", *words)

    def must(self, *words: str, patience: float = 60) -> str:
        """The same for a command that has to succeed."""
        said = self.ask(*words, patience=patience)
        if said.code != 0:
            raise StackError(
                f"{words[0]} failed in {self._place}",
                evidence=[f"$ {' '.join(words)}", *said.last],
                hint=f"look at the service: slurm cluster logs {self._engine.cluster} slurmctld",
            )
        return said.text

    # ---- nodes ----------------------------------------------------------------------------------

    def states(self) -> dict[str, str]:
        """Every node's state in Slurm's words (`idle`, `drained*`); nothing if none answers."""
        said = self.ask("sinfo", "--noheader", "--Node", "--format=%N %T", patience=20)
        rows = [line.split() for line in said.text.splitlines()] if said.code == 0 else []
        return {row[0]: row[1] for row in rows if len(row) == 2}

    def answer(self, names: Iterable[str]) -> bool:
        """Whether all these nodes have told slurmctld that they are there."""
        told = self.states()
        return all(_answers(told.get(name, "")) for name in names)

    def reasons(self) -> dict[str, str]:
        """Why nodes are out of service, by node."""
        text = self.must("sinfo", "--noheader", "--Node", "--list-reasons", "--format=%N|%100E")
        rows = [line.partition("|") for line in text.splitlines()]
        return {name.strip(): why.strip() for name, _, why in rows}

    def drain(self, names: Sequence[str], why: str) -> None:
        """No new jobs on these nodes, unless somebody else took them out already."""
        taken = self.reasons()
        mine = [name for name in names if taken.get(name, OURS).startswith(OURS)]
        if mine:
            self._update(mine, "DRAIN", f"{OURS} {why}")

    def back(self, names: Sequence[str]) -> None:
        """Back into service, those that we took out, after a job of ours has run there.

        Until then a reservation keeps everybody else's jobs away. A node on which the job does
        not run stays out.
        """
        if left := self._reserved():
            # An interruption came before the job.
            self.drain(left, "a job has not run here yet")
            self._open()
        mine = self._ours(names)
        if not mine:
            return
        self.must(
            *("scontrol", "create", "reservation", f"reservationname={_CANARY}", "users=root"),
            *(f"nodes={','.join(mine)}", "starttime=now", f"duration={_RESERVED}"),
            "flags=ignore_jobs",
        )
        try:
            self.serve(mine)
            self._canary(mine, f"--reservation={_CANARY}")
        except BaseException:  # Ctrl-C, too: nobody has seen a job run there
            self.drain(mine, "a job did not run here")
            raise
        finally:
            self._open()

    def _reserved(self) -> list[str]:
        said = self.ask("scontrol", "show", "reservation", _CANARY, "--oneliner")
        found = re.search(r" Nodes=(\S+)", said.text) if said.code == 0 else None
        return expand_hostlist(found[1]) if found else []

    def _open(self) -> None:
        self.ask("scontrol", "delete", f"reservationname={_CANARY}")

    def resume(self, names: Sequence[str]) -> None:
        """The same at once, without a job of ours."""
        mine = self._ours(names)
        if mine:
            self.serve(mine)

    def _ours(self, names: Sequence[str]) -> list[str]:
        taken = self.reasons()
        return [name for name in names if taken.get(name, "").startswith(OURS)]

    def serve(self, names: Sequence[str]) -> None:
        """Back into service, whoever took them out."""
        self._update(names, "RESUME")

    def let_go(self, names: Sequence[str]) -> None:
        """The nodes' containers are gone: Slurm fails or requeues their jobs now, not in a while.

        Without this a young job can stay RUNNING for half an hour with nobody behind it. The
        nodes come back with `back`, and not by themselves.
        """
        for state in ("DOWN", "DRAIN"):
            self._update(names, state, f"{OURS} its container was started anew")

    def _update(self, names: Sequence[str], state: str, reason: str = "") -> None:
        words = ["scontrol", "update", f"nodename={','.join(names)}", f"state={state}"]
        self.must(*words, *([f"reason={reason}"] if reason else []))

    # ---- jobs -----------------------------------------------------------------------------------

    def running(self, names: Sequence[str] = ()) -> list[str]:
        """Jobs that have something on the nodes; an answer that fails is no empty answer."""
        where = [f"--nodelist={','.join(names)}"] if names else []
        states = "--states=RUNNING,COMPLETING,SUSPENDED,CONFIGURING"
        text = self.must("squeue", "--noheader", "--format=%i", states, *where)
        return text.split()

    def await_no_jobs(self, names: Sequence[str], patience: float) -> None:
        """Wait until nothing runs on these nodes; raises when it takes too long."""
        if wait_until(lambda: not self.running(names), patience):
            return
        raise StackError(
            f"{', '.join(names)} still has jobs after {patience:g} s and was not touched",
            evidence=[some(self.running(names))],
            hint="the same command goes on from here; no new jobs start there meanwhile",
        )

    def requeue(self, jobs: Sequence[str]) -> list[str]:
        """Put running jobs back into the queue, to start at once; those that may not be."""
        kept = [job for job in jobs if self.ask("scontrol", "requeue", job).code != 0]
        for job in jobs:
            if job not in kept:
                # Else they wait for two minutes, until every credential of theirs has expired.
                self.ask("scontrol", "update", f"jobid={job}", "starttime=now")
        return kept

    def counts(self) -> dict[str, int]:
        """Jobs in the queue by state."""
        said = self.ask("squeue", "--noheader", "--array", "--format=%T", patience=20)
        words = said.text.split() if said.code == 0 else []
        return {word.lower(): words.count(word) for word in dict.fromkeys(words)}

    def canary(self, names: Sequence[str]) -> None:
        """See a job run on these nodes: one of the queue, else one of ours; raises if none does."""
        if self.running(names):
            return
        try:
            self._canary(names)
        except StackError:
            # Jobs that waited may have come first.
            if not self.running(names):
                raise

    def _canary(self, names: Sequence[str], *options: str, patience: int = 60) -> None:
        """A job of ours, whatever the limits of the cluster's partitions: it has its own."""
        count, where = str(len(names)), ",".join(names)
        remove = ("scontrol", "delete", f"partitionname={_CANARY}")
        # An interruption may have left one.
        self.ask(*remove)
        self.must(
            *("scontrol", "create", f"partitionname={_CANARY}", f"nodes={where}"),
            *("rootonly=yes", "hidden=yes"),
        )
        said = self.ask(
            *("srun", "--nodes", count, "--ntasks", count, f"--nodelist={where}"),
            *(f"--partition={_CANARY}", "--job-name=canary", f"--immediate={patience}"),
            *("--chdir=/", "--mem=8", "--time=1", *options, "true"),
            patience=patience + 30,
        )
        self.ask(*remove)
        if said.code != 0:
            raise StackError(
                f"a job on {', '.join(names)} did not run",
                evidence=said.last,
                hint=f"look at the node: slurm cluster logs {self._engine.cluster} slurmd-NODE",
            )

    def reconfigure(self) -> bool:
        """All daemons read their files again; whether slurmctld answers after it."""
        if self.ask("scontrol", "reconfigure").code != 0:
            return False
        return wait_until(self.answers, 30)

    def answers(self) -> bool:
        """Whether a controller is up."""
        said = self.ask("scontrol", "ping", patience=20)
        return said.code == 0 and bool(re.search(r"is UP", said.text))
