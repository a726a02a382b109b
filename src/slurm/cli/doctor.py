"""`slurm doctor`: check that everything works, and say what does not and how it is mended."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from slurm import programs
from slurm.cli import DONE, REFUSED, UNREACHABLE
from slurm.cli.frame import COMMON, Answer, Common
from slurm.cli.screen import Screen, size
from slurm.errors import SlurmError

if TYPE_CHECKING:
    from slurm.cluster import Cluster

GOOD, NOTE, BAD = "ok", "note", "bad"
#: The clocks of two machines may differ by this much before files look odd.
CLOCK = 5.0
#: Less free space than this is told.
SPACE = 1 << 30
#: So long the proof by a job may take.
PROOF = 120.0


@dataclass(frozen=True)
class Check:
    """One thing that was checked."""

    name: Annotated[str, "What was checked."]
    result: Annotated[str, "ok, note or bad."]
    text: Annotated[str, "What was found."]
    fix: Annotated[str, "What helps; empty where nothing has to be mended."] = ""


@dataclass(frozen=True)
class Diagnosis(Answer):
    """What works and what does not."""

    cluster: Annotated[str, "The cluster that was looked at."]
    checks: Annotated[list[Check], "What was checked, in order."]

    @property
    def exit_code(self) -> int:
        """3 where the cluster cannot be reached, 4 where something else is bad."""
        bad = [check.name for check in self.checks if check.result == BAD]
        if not bad:
            return DONE
        return UNREACHABLE if bad[0] in ("connection", "scheduler") else REFUSED

    def lines(self, screen: Screen) -> Iterator[str]:
        """A line for each, and what helps below it."""
        colours = {GOOD: "green", NOTE: "yellow", BAD: "red"}
        yield self.cluster
        for check in self.checks:
            mark = screen.paint(f"{check.result:<5}", colours[check.result])
            first, *rest = [*screen.wrap(check.text, indent=" " * 21)] or [""]
            yield f"  {mark} {check.name:<12} {first.strip()}"
            yield from rest
            if check.fix:
                yield from screen.wrap(check.fix, indent=" " * 26, first=" " * 21 + "fix: ")


def doctor(
    *,
    job: Annotated[
        bool, Parameter(negative="--no-job", help="Prove with a job what nodes see.")
    ] = True,
    common: Common = COMMON,
) -> Diagnosis:
    """Check connection, scheduler, Python, directories, limits, accounting, containers and clock.

    A small job proves what the nodes see. Exit code 3: not reachable; 4: something else is bad.
    """
    cluster = common.connect()
    return Diagnosis(repr(cluster).strip("<>"), list(checks(cluster, job)))


def checks(cluster: Cluster, with_job: bool) -> Iterator[Check]:
    """Check one thing after the other; after the first two nothing works without them."""
    if cluster.backend_type == "debug":
        yield from _debug_checks(cluster)
        return
    begin = time.monotonic()
    try:
        facts = cluster.backend.check()
        took = time.monotonic() - begin
        cluster.backend.queue()
    except SlurmError as error:
        name = "scheduler" if "facts" in locals() else "connection"
        text = ": ".join([error.message, *error.evidence[-1:]])
        yield Check(name, BAD, text, error.hint or "")
        return
    kind = cluster.backend.hello()["scheduler"]
    yield Check("connection", GOOD, f"{facts['host']} answers in {took * 1000:.0f} ms")
    text = " ".join(filter(None, (kind, facts["version"])))
    yield Check("scheduler", GOOD, ", ".join(filter(None, (text, facts["origin"]))))
    yield _python(cluster, facts)
    yield _directory(facts)
    yield _trust(cluster, facts)
    yield _clock(facts, took)
    for question in (_nodes, _limits, _accounting):
        try:
            yield question(cluster)
        except SlurmError as error:
            yield Check(question.__name__.strip("_"), BAD, error.message, error.hint or "")
    yield _containers(facts)
    yield _programs()
    if kind != "embedded":
        yield Check("calls", GOOD, f"{facts['calls']} commands of Slurm's today")
    if with_job:
        yield from _proof(cluster)


def _debug_checks(cluster: Cluster) -> Iterator[Check]:
    """There is no scheduler, and nothing is written: calls run in this process."""
    yield Check("scheduler", GOOD, "none: calls run in this process, at the first result()")
    yield Check("python", GOOD, "{}.{}.{}".format(*sys.version_info[:3]))
    yield _programs()


def _python(cluster: Cluster, facts: dict[str, Any]) -> Check:
    here = "{}.{}.{}".format(*sys.version_info[:3])
    if cluster.backend_type != "ssh":
        return Check("python", GOOD, f"{here}, here and on the nodes")
    there = cluster.backend.hello()["python"]
    if there["same"] is None:
        text = f"{here} here; none of the same minor version was found on {facts['host']}"
        if there["any"] is not None:
            text += f", but {there['any'][0]}"
        fix = f"set python= to a Python {sys.version_info[0]}.{sys.version_info[1]} of the cluster"
        return Check("python", NOTE, text, fix)
    return Check("python", GOOD, f"{here} here; {there['same'][0]} on the cluster")


def _directory(facts: dict[str, Any]) -> Check:
    text = f"{facts['base']}: {facts['runs']} runs, {size(facts['free'])} free"
    if not facts["writable"]:
        return Check("directory", BAD, f"{facts['base']} cannot be written",
                     "choose another: job_base_dir in the Slurmfile")  # fmt: skip
    if facts["free"] < SPACE:
        return Check("directory", NOTE, text, "slurm gc --dry-run shows what can go")
    return Check("directory", GOOD, text)


def _trust(cluster: Cluster, facts: dict[str, Any]) -> Check:
    if not cluster.trust_group:
        return Check("trust", GOOD, "files of yours alone are run and unpickled")
    text = (
        f"trust_group = true: runs of members of the group {facts['group']} in "
        f"{facts['shared']} are unpickled and run again where you ask for it"
    )
    if facts["closed"]:
        text += f"; they cannot read yours: {facts['base']} is closed to the group"
        return Check("trust", NOTE, text, f"chmod g+rx {facts['base']}")
    return Check("trust", GOOD, text)


def _clock(facts: dict[str, Any], took: float) -> Check:
    off = facts["time"] - (time.time() - took / 2)
    text = f"{abs(off):.1f} s apart from this machine's"
    if abs(off) > CLOCK + took:
        fix = "no decision compares two clocks, but ages are shown wrong: set the clock (chrony)"
        return Check("clock", NOTE, text, fix)
    return Check("clock", GOOD, text)


def _nodes(cluster: Cluster) -> Check:
    rows = cluster.backend.nodes()
    away = [r["name"] for r in rows if any(w in r["state"] for w in ("DOWN", "DRAIN", "FAIL"))]
    text = f"{len(rows)} nodes in {len(cluster.backend.partitions())} partitions"
    if away:
        return Check("nodes", NOTE, f"{text}; away: {', '.join(away[:5])}", "slurm nodes says why")
    return Check("nodes", GOOD, text)


def _limits(cluster: Cluster) -> Check:
    found = cluster.backend.limits()
    names = ("MaxArraySize", "MaxSubmitJobs", "MaxJobCount")
    told = [f"{name} {found[name]}" for name in names if found.get(name)]
    return Check("limits", GOOD, ", ".join(told) or "none that we know of")


def _accounting(cluster: Cluster) -> Check:
    kind = str(cluster.backend.limits().get("AccountingStorageType", ""))
    if cluster.backend.hello()["scheduler"] == "embedded":
        return Check("accounting", GOOD, "the scheduler itself remembers jobs for a week")
    if not kind or kind.endswith("none"):
        text = "none: jobs that Slurm has forgotten can only be judged by their files"
        return Check("accounting", NOTE, text)
    cluster.backend.accounting(["1"], time.time() - 60)
    return Check("accounting", GOOD, kind.rpartition("/")[2])


def _containers(facts: dict[str, Any]) -> Check:
    found = facts["containers"]
    return Check("containers", GOOD if found else NOTE, ", ".join(found) or "no program for them")


def _programs() -> Check:
    """What this machine lacks for projects, and for the engines that are installed here."""
    from slurm.stack.preflight import lacking_for

    lacking = programs.missing(programs.CODE)
    if programs.find("podman"):
        lacking += lacking_for("podman")
    if programs.find("slurmctld"):
        lacking += programs.missing(programs.NATIVE)
    if not lacking:
        return Check("programs", GOOD, "nothing is missing on this machine")
    fix = programs.install_command(lacking)
    return Check("programs", NOTE, "; ".join(programs.said(lacking)), fix)


# ---- what only a job can tell -------------------------------------------------------------------


def _proof(cluster: Cluster) -> Iterator[Check]:
    """Let a job look around; what it cannot do is found here and not in a real run."""
    from slurm.diagnosis import look_around
    from slurm.task import task

    try:
        job = cluster.submit(task(look_around, time="5min"))(cluster.base)
        if not job.wait(PROOF) and not job.settled:
            job.cancel()
            text = f"the job {job.id} is still {job.state.value} after {PROOF:.0f} s ({job.reason})"
            yield Check("job", NOTE, text, "slurm why last")
            return
        seen = job.result()
    except SlurmError as error:
        yield Check("job", BAD, error.message, error.hint or "")
        return
    ran = job.timings.elapsed or 0
    yield Check(
        "job", GOOD, f"ran on {job.node or seen['node']} with Python {seen['python']}, {ran:.0f} s"
    )
    if cluster.backend.hello()["scheduler"] == "embedded":
        return
    if seen["memory"]:
        yield Check("memory", GOOD, "limits are enforced by control groups")
    else:
        yield Check("memory", NOTE, "no control group of Slurm's: peaks are what processes held")
    if not seen["sbatch"]:
        text = "nodes cannot call sbatch: long maps and retries need an open client"
        yield Check("submission", NOTE, text)
