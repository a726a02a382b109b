"""What a crash leaves in Slurm's books, found and put right.

A slurmctld that was killed goes on from a state that is some seconds old. It waits for ends that
it was told already, and starts jobs that run already, which their nodes refuse as duplicates: then
it takes the node out of service and holds the job. A node's container that was started anew leaves
jobs of which nobody tells slurmctld.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from slurm.stack.fleet import Fleet

# Seconds in which a job may have begun without its processes being there.
_YOUNG = 20
# Seconds after a crash until duplicates have been found.
_SETTLED = 20
_DUPLICATE = "Duplicate jobid"
_HELD = "launch failed requeued held"
_WHY = "slurm-sdk: slurmctld had it as running, and nobody worked on it"
# Of what runs in a node, a job's daemon names it in its title, all else in its environment.
_LOOK = r"""
grep -aohE 'slurmstepd: \[[0-9]+' /proc/[0-9]*/cmdline
grep -aohzE '^SLURM_JOB_ID=[0-9]+' /proc/[0-9]*/environ 2>/dev/null | tr '\0' '\n'
echo asked
"""


@dataclass(frozen=True)
class Left:
    """What a crash left behind.

    `unmanned` are jobs that run for slurmctld alone; `unsure` tells that some are too young to be
    sure. `nodes` and `held` are what slurmctld set aside when it started a job a second time.
    """

    unmanned: tuple[str, ...] = ()
    unsure: bool = False
    nodes: tuple[str, ...] = ()
    held: tuple[str, ...] = ()

    @property
    def anything(self) -> bool:
        """Whether there is something to put right."""
        return bool(self.unmanned or self.nodes or self.held)

    def notes(self, directory: Path) -> tuple[str, ...]:
        """The same for a person, with the command that puts it right."""
        if not self.anything:
            return ()
        found = {
            "nobody works on {}, which slurmctld has as running": self.unmanned,
            "slurmctld took {} out of service (Duplicate jobid)": self.nodes,
            "slurmctld holds {} (launch failed)": self.held,
        }
        what = "; ".join(text.format(", ".join(names)) for text, names in found.items() if names)
        return (f"a crash left this: {what}. Put right by: slurm cluster up --dir {directory}",)


def look(fleet: Fleet) -> Left:
    """Ask slurmctld, and the nodes for what runs there; nothing is changed."""
    columns = "JobID:20,JobArrayID:60,BatchHost:80,StartTime:25,BatchFlag:10"
    said = fleet.ask("squeue", "--noheader", "--states=RUNNING", f"--Format={columns}")
    rows = [line.split() for line in said.text.splitlines()] if said.code == 0 else []
    # A job of srun or salloc has its life at the one who waits for it.
    rows = [row for row in rows if len(row) == 5 and row[4] == "1"]
    present = {node: _present(fleet, node) for node in {row[2] for row in rows}}
    alone = [row for row in rows if row[0] not in (present[row[2]] or {row[0]})]
    ripe = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(time.time() - _YOUNG))
    waiting = fleet.ask("squeue", "--noheader", "--array", "--states=PENDING", "--format=%i|%r")
    pairs = [line.partition("|") for line in waiting.text.splitlines()]
    return Left(
        unmanned=tuple(row[1] for row in alone if row[3] < ripe),
        unsure=any(row[3] >= ripe for row in alone),
        nodes=tuple(node for node, why in fleet.reasons().items() if why == _DUPLICATE),
        held=tuple(job for job, _, why in pairs if why.strip() == _HELD),
    )


def _present(fleet: Fleet, node: str) -> set[str] | None:
    """The jobs that have processes on a node; None where it cannot be asked."""
    said = fleet.inside(node, "bash", "-c", _LOOK)
    words = said.text.splitlines()
    if said.code != 0 or "asked" not in words:
        return None
    return {word.replace("=", "[").rpartition("[")[2] for word in words}


def mend(fleet: Fleet, *, crashed: bool = False) -> list[str]:
    """Put right what a crash left; what was done, in sentences.

    After a crash this waits until Slurm itself has found what it finds late.
    """
    end = time.monotonic() + (_SETTLED if crashed else 0)
    done: list[str] = []
    while True:
        left = look(fleet)
        done += _put_right(fleet, left)
        if not left.unsure and time.monotonic() >= end:
            return done
        time.sleep(1)


def _put_right(fleet: Fleet, left: Left) -> list[str]:
    done = []
    if left.unmanned:
        ended = fleet.requeue(left.unmanned)
        for job in ended:
            fleet.ask("scontrol", "update", f"jobid={job}", f"admincomment={_WHY}")
            fleet.ask("scancel", job)
        again = [job for job in left.unmanned if job not in ended]
        done += [f"nobody worked on {job}: back in the queue" for job in again]
        done += [f"nobody worked on {job}, and it may not be requeued: ended" for job in ended]
    if left.nodes:
        fleet.serve(left.nodes)
        done.append(f"{', '.join(left.nodes)} back in service: a job was started there twice")
    for job in left.held:
        fleet.ask("scontrol", "release", job)
    if left.held:
        done.append(f"released {', '.join(left.held)}, held because a start failed")
    return done
