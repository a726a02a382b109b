"""What must be true after a run of the campaign, checked on what was seen; pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from campaign_plan import Expected, Plan, expected

#: No call of a client lasts longer than its timeout and this; a submission has no timeout.
BOUND = 60.0
#: How often a packed map tries an item whose worker dies.
WORKER_TRIES = 3
#: Seconds after the end of an execution within which its result is certainly on the disk.
COMMITTED = 10.0

#: Errors of a job that a fault explains. What is not here must leave every outcome as it was.
EXPLAINS: dict[str, set[str]] = {
    "runner": {"JobFailed", "WorkerDied"},
    "slurmstepd": {"JobFailed", "NodeFailed", "JobCancelled"},
    "slurmd": {"JobFailed", "NodeFailed", "JobCancelled"},
    "slurmctld": {"JobLost", "NodeFailed", "JobCancelled"},
    "munged": {"JobFailed", "NodeFailed", "JobCancelled"},
    "disk": {"ResultNotWritten", "ResultLost", "JobFailed", "RunDirNotVisible"},
}
#: Why a submission may be refused.
REFUSES: dict[str, set[str]] = {
    "slurmctld": {"SchedulerUnreachable"},
    "munged": {"SchedulerUnreachable"},
    "disk": {"RunDirError"},
    "network": {"HostUnreachable", "ConnectionLost"},
    "connection": {"ConnectionLost"},
}
#: What may keep a value out of the cache, or out of sight; a miss is no wrong answer.
MISSES = {"runner", "slurmstepd", "slurmd", "disk", "files"}


@dataclass(frozen=True)
class Execution:
    """One time that the function of an item was called."""

    label: str
    nonce: str
    job: str
    restart: str
    began: float
    ended: float | None


@dataclass
class Seen:
    """All that was seen of a run."""

    said: list[dict[str, Any]] = field(default_factory=list)
    marks: list[str] = field(default_factory=list)
    #: Of two judges: outcomes of the elements of each run.
    judged: list[dict[str, list[str]]] = field(default_factory=list)
    paused: float = 0.0
    #: Whether the client was ended by a fault, and what it said where it was not.
    client_ended: bool = False
    client_code: int | None = 0
    client_error: str = ""
    left: list[str] = field(default_factory=list)

    @property
    def outcomes(self) -> dict[str, str]:
        """What the first judge says, by label."""
        told = self.judged[0] if self.judged else {}
        return {label: text for run, texts in told.items() for label, text in labelled(run, texts)}


def labelled(run: str, texts: list[str]) -> Iterator[tuple[str, str]]:
    """The outcomes of a run's elements under their labels."""
    name = run.rpartition("/")[2].rsplit("-", 3)[0]
    for index, text in enumerate(texts):
        yield f"{name}.{index}", text


def executions(marks: list[str]) -> list[Execution]:
    """The executions that left a mark, in the order of their beginnings."""
    rows = [line.split() for line in marks]
    ends = {row[2]: float(row[5]) for row in rows if row[1] == "end"}
    return [
        Execution(label, nonce, job, restart, float(at), ends.get(nonce))
        for label, what, nonce, job, restart, at in rows
        if what == "begin"
    ]


def violations(plan: Plan, seen: Seen) -> list[str]:
    """Everything that is not as promised."""
    return [
        *_of_the_client(plan, seen),
        *_of_outcomes(plan, seen),
        *_of_executions(plan, seen),
        *_of_the_cache(plan, seen),
        *seen.left,
    ]


def _of_the_client(plan: Plan, seen: Seen) -> Iterator[str]:
    if seen.client_code is None:
        yield "the client hangs"
    elif seen.client_code != 0 and not seen.client_ended:
        yield f"the client ended with {seen.client_code}: {seen.client_error}"
    refusals = _explained(plan, REFUSES)
    for row in seen.said:
        if row["seconds"] > row.get("timeout", 0) + seen.paused + BOUND:
            yield f"a call took {row['seconds']:.0f} s: {row}"
        if "refused" in row and row["refused"] not in refusals:
            yield f"{row['name']} was refused without a reason: {row['refused']}: {row['why']}"


def _explained(plan: Plan, table: dict[str, set[str]]) -> set[str]:
    broken = [f.victim for f in plan.faults if f.how != "paused" or f.victim == "disk"]
    return {name for victim in broken for name in table.get(victim, ())}


def _of_outcomes(plan: Plan, seen: Seen) -> Iterator[str]:
    first, second = seen.judged
    for run in sorted({*first, *second}):
        if first.get(run) != second.get(run):
            yield f"{run}: one client says {first.get(run)}, another {second.get(run)}"
    wanted, told = expected(plan), seen.outcomes
    names = Counter(run.rpartition("/")[2].rsplit("-", 3)[0] for run in first)
    yield from (f"{name} was submitted {n} times" for name, n in names.items() if n > 1)
    for row in seen.said:
        if "run" in row and not any(run.startswith(row["run"]) for run in first):
            yield f"{row['run']} was accepted and is gone"
        if "told" in row and row["told"] != "open" and row["told"] != told.get(row["label"]):
            yield f"{row['label']} was {row['told']}, is {told.get(row['label'])}"
    accepted = {row["name"] for row in seen.said if "run" in row}
    for label, text in told.items():
        name = label.partition(".")[0]
        never_sent = name not in accepted and text in ("JobLost", "RunNotFound")
        if not (never_sent and (seen.client_ended or _refused(seen, name))):
            yield from _of_outcome(plan, label, text, wanted.get(label))


def _refused(seen: Seen, name: str) -> bool:
    return any(row.get("name") == name and "refused" in row for row in seen.said)


def _of_outcome(plan: Plan, label: str, text: str, item: Expected | None) -> Iterator[str]:
    kind = text.partition(" ")[0]
    if item is None:
        yield f"{label} was never asked for: {text}"
    elif kind == "open" or ", then " in text:
        yield f"{label} has no final outcome: {text}"
    elif kind == "ValueError" and item.kind != "workflow" and text != f"ValueError {label}":
        yield f"{label} has another's exception: {text}"
    else:
        allowed = {item.outcome, *_explained(plan, EXPLAINS)}
        if allowed > {item.outcome}:
            # A workflow ends as the first child that failed, and what follows that is not run.
            allowed |= {"ValueError"} if item.flaky or item.kind == "workflow" else set()
            allowed |= (
                {"UpstreamFailed"} if label.endswith("sum.0") or item.kind == "workflow" else set()
            )
        if kind not in allowed:
            yield f"{label} should be {item.outcome}, is {text}"


def _missed(seen: Seen) -> set[str]:
    """The labels of items whose values were asked for again and not found in the cache."""
    names = [row["name"] for row in seen.said if "run" in row and "again" in row["name"]]
    return {name.replace("again", ".") for name in names}


def _of_the_cache(plan: Plan, seen: Seen) -> Iterator[str]:
    if not MISSES & {fault.victim for fault in plan.faults}:
        yield from (f"{label} has a value that the cache does not have" for label in _missed(seen))


def _of_executions(plan: Plan, seen: Seen) -> Iterator[str]:
    wanted, missed = expected(plan), _missed(seen)
    told = {label: text for label, text in seen.outcomes.items() if "again" not in label}
    found: dict[str, list[Execution]] = {}
    for one in executions(seen.marks):
        if one.label not in missed:
            found.setdefault(one.label, []).append(one)
    for label, runs in found.items():
        yield from _too_often(plan, label, wanted[label], runs)
        kind, _, value = told.get(label, "").partition(" ")
        if kind == "value" and wanted[label].kind != "workflow":
            yield from _not_the_first(label, value.strip('"'), runs)
    for label, text in told.items():
        if text.startswith("value") and label not in found and label not in missed:
            yield f"{label} has a value and was never executed"


def _too_often(plan: Plan, label: str, item: Expected, runs: list[Execution]) -> Iterator[str]:
    """Executions beyond what retry and Slurm's own relaunches allow."""
    jobs = {one.job for one in runs}
    if len(jobs) > 1 + item.retry:
        yield f"{label} was executed by {len(jobs)} jobs: {sorted(jobs)}"
    # Slurm counts a start that failed before anything ran, too: one execution says nothing.
    if not item.may_requeue and len({one.restart for one in runs}) > 1:
        yield f"{label} was requeued and executed again, which it did not allow"
    again = item.may_requeue and plan.fault("slurmctld") is not None
    most = (WORKER_TRIES + item.retry if item.kind == "packed" else 1) * (2 if again else 1)
    for (job, restart), count in Counter((one.job, one.restart) for one in runs).items():
        if count > most:
            yield f"{label} was executed {count} times by job {job}, restart {restart}"


def _not_the_first(label: str, nonce: str, runs: list[Execution]) -> Iterator[str]:
    """The value is that of an execution, and none began after it was on the disk."""
    mine = next((one for one in runs if one.nonce == nonce), None)
    if mine is None or mine.ended is None:
        yield f"{label} has the value {nonce}, which no execution returned"
        return
    for one in runs:
        if one.began > mine.ended + COMMITTED:
            yield f"{label} was executed again {one.began - mine.ended:.0f} s after its result"
