"""What to do next for one gang: a pure function of its pods, its Slurm jobs and the nodes.

It is asked again after every change and after every restart, and never remembers: whoever dies
between two actions is followed by somebody who sees the same world and goes on from there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from enum import Enum

from slurm.bridge.actions import (
    Action,
    End,
    Evict,
    Expire,
    Hold,
    JobView,
    Mark,
    Place,
    Release,
    Submit,
    Tell,
)
from slurm.bridge.allotment import outside, too_small
from slurm.bridge.feasibility import objection
from slurm.bridge.grouping import Gang
from slurm.bridge.kube_types import Node, Pod
from slurm.bridge.names import FINALIZER, GATE, HELD, JOB, NODE, RESUBMIT
from slurm.model.states import JobState


class Verdict(Enum):
    """What a job's state means for a pod."""

    WAIT = "nothing to do yet"
    PLACE = "the pod may run on the job's node"
    FINE = "the pod runs where it should"
    RESUBMIT = "ask Slurm again"
    HOLD = "leave the pod waiting until somebody says otherwise"
    EVICT = "the pod must leave; its owner makes another"
    EXPIRE = "the pod's time is up: it fails"


W, P, F, R, H, E, X = Verdict  # one letter each, for the table below

# Job state: verdict for a pod that waits, for one that has been placed, and the word for people.
STATES: dict[JobState, tuple[Verdict, Verdict, str]] = {
    # A placed pod's job is in the queue again: somebody requeued it, and its node is free.
    JobState.PENDING: (W, E, "SlurmRequeued"),
    JobState.REQUEUED: (W, E, "SlurmRequeued"),
    JobState.REQUEUE_HOLD: (W, E, "SlurmRequeued"),
    JobState.REQUEUE_FED: (W, E, "SlurmRequeued"),
    JobState.SPECIAL_EXIT: (W, E, "SlurmRequeued"),
    JobState.RESV_DEL_HOLD: (W, E, "SlurmReservationDeleted"),
    JobState.EXPEDITING: (W, F, "SlurmExpediting"),
    JobState.CONFIGURING: (W, F, "SlurmConfiguring"),
    JobState.POWER_UP_NODE: (W, F, "SlurmPowerUp"),
    JobState.RUNNING: (P, F, "SlurmRunning"),
    # Its CPUs are lent to others: a pod that went on would be there twice.
    JobState.SUSPENDED: (W, E, "SlurmSuspended"),
    JobState.STOPPED: (W, F, "SlurmStopped"),
    JobState.SIGNALING: (W, F, "SlurmSignaling"),
    JobState.RESIZING: (W, F, "SlurmResizing"),
    JobState.STAGE_OUT: (W, F, "SlurmStageOut"),
    JobState.COMPLETING: (W, F, "SlurmCompleting"),
    JobState.LAUNCH_FAILED: (W, F, "SlurmLaunchFailed"),
    JobState.RECONFIG_FAIL: (W, F, "SlurmReconfigFail"),
    JobState.UPDATE_DB: (W, F, "SlurmUpdateDb"),
    JobState.COMPLETED: (R, E, "SlurmCompleted"),
    JobState.CANCELLED: (H, E, "SlurmCancelled"),
    JobState.FAILED: (R, E, "SlurmFailed"),
    JobState.TIMEOUT: (R, X, "SlurmTimeout"),
    JobState.NODE_FAIL: (R, E, "SlurmNodeFail"),
    JobState.PREEMPTED: (R, E, "SlurmPreempted"),
    JobState.BOOT_FAIL: (R, E, "SlurmBootFail"),
    JobState.DEADLINE: (H, X, "SlurmDeadline"),
    JobState.OUT_OF_MEMORY: (R, E, "SlurmOutOfMemory"),
    JobState.REVOKED: (R, E, "SlurmRevoked"),
    JobState.UNKNOWN: (W, F, "SlurmUnknown"),
}
MISSING = (R, E, "SlurmJobMissing")


@dataclass(frozen=True)
class World:
    """All that a decision needs to know."""

    gang: Gang
    # Every job that names this gang or is named by a pod of it.
    jobs: Mapping[int, JobView] = field(default_factory=dict)
    # Jobs that Slurm has twice been heard not to know.
    missing: frozenset[int] = frozenset()
    # Kubernetes' nodes by the name that Slurm has for them.
    nodes: Mapping[str, Node] = field(default_factory=dict)
    # Pods that nobody will end: deleted, and their node gone or silent for too long.
    stuck: frozenset[str] = frozenset()
    # Ungated pods that kube-scheduler has not bound in the time it had.
    unbound: frozenset[str] = frozenset()
    # Whether late members had time to appear.
    settled: bool = True
    # Whether the bridge binds pods itself.
    direct: bool = False
    # Whether the pods came so lately that the job may start at once: nothing is said of waiting.
    early: bool = False
    # Kubernetes' resources that are generic resources of Slurm.
    gres: Mapping[str, str] = field(default_factory=dict)
    # Seconds that a pod may take to stop; a DELETE may ask for years.
    longest_grace: float = 600.0


def job_of(pod: Pod) -> int | None:
    """The number of a pod's job."""
    text = pod.metadata.labels.get(JOB, "")
    return int(text) if text.isdigit() else None


def finished(pod: Pod, stuck: frozenset[str]) -> bool:
    """Whether the pod needs Slurm no longer: over, deleted before it ran, or beyond help."""
    never_ran = pod.metadata.deletionTimestamp is not None and not pod.spec.nodeName
    return pod.over or never_ran or pod.metadata.uid in stuck


def decide(world: World) -> list[Action]:
    """What to do now, in this order; the first that fails ends the round."""
    if half_marked := list(_half_marked(world)):
        return half_marked
    cohorts: dict[int | None, list[Pod]] = {}
    for pod in world.gang.pods:
        cohorts.setdefault(job_of(pod), []).append(pod)
    fresh = cohorts.pop(None, [])
    actions: list[Action] = []
    for number, pods in cohorts.items():
        actions += _follow(number or 0, tuple(pods), world)
    actions += _begin(tuple(fresh), world, started=_started(cohorts, world))
    return actions


def _half_marked(world: World) -> Iterator[Action]:
    """Somebody died while writing a job's number on a gang: the other pods are that job's, too."""
    pods = world.gang.pods
    named = {job_of(p) for p in pods}
    for job in world.jobs.values():
        if job.live and job.id in named:
            rest = tuple(
                p
                for p in pods
                if job_of(p) is None and p.metadata.uid in job.claim.pods and _waits(p, world)
            )
            if rest:
                yield Mark(rest, job.id)


def _waits(pod: Pod, world: World) -> bool:
    return GATE in pod.gates and not finished(pod, world.stuck)


def _started(cohorts: Mapping[int | None, list[Pod]], world: World) -> bool:
    """Whether a part of the gang has its nodes already, so that late members may follow alone."""
    return any(
        job is not None and job in world.jobs and world.jobs[job].state == JobState.RUNNING
        for job in cohorts
    )


def _begin(fresh: tuple[Pod, ...], world: World, *, started: bool) -> Iterator[Action]:
    """For pods without a job: adopt one that names them, or ask for one."""
    yield from (Release(p, p.metadata.uid in world.stuck) for p in fresh if _releasable(p, world))
    waiting = tuple(p for p in fresh if _waits(p, world))
    wanted = {p.metadata.uid for p in waiting}
    named = {job_of(p) for p in world.gang.pods}
    adopted = False
    for job in sorted(world.jobs.values(), key=lambda j: j.id):
        if not job.live or job.id in named:
            continue
        if not adopted and wanted and set(job.claim.pods) == wanted:
            adopted = True
            yield Mark(waiting, job.id)
        else:
            # It stands for pods that are gone, or for the same pods a second time.
            yield End(job, "nobody waits for it")
    if adopted or not waiting or any(HELD in p.metadata.annotations for p in waiting):
        return
    least = world.gang.least
    if least is None:
        yield Tell(waiting, "GroupMissing", "the PodGroup of these pods does not exist")
    elif len(waiting) < least and not started:
        yield Tell(waiting, "GangIncomplete", f"{len(waiting)} of {least} pods are there")
    elif world.gang.most is not None and len(waiting) > world.gang.most:
        words = f"{len(waiting)} pods are there, and max-nodes is {world.gang.most}"
        yield Tell(waiting, "GangTooLarge", words)
    elif world.settled:
        yield Submit(waiting)


def _releasable(pod: Pod, world: World) -> bool:
    return FINALIZER in pod.metadata.finalizers and finished(pod, world.stuck)


def _follow(number: int, pods: tuple[Pod, ...], world: World) -> list[Action]:
    """For pods whose job is `number`."""
    job = world.jobs.get(number)
    done = [p for p in pods if finished(p, world.stuck)]
    rest = tuple(p for p in pods if not finished(p, world.stuck))
    releases = [Release(p, p.metadata.uid in world.stuck) for p in done if _releasable(p, world)]
    if job is None and number not in world.missing:
        # Unknown is not gone: wait until Slurm has said so twice.
        return []
    if not rest:
        ending: list[Action] = [End(job, outcome(done))] if job and job.live else []
        return [*ending, *releases]
    waiting = tuple(p for p in rest if GATE in p.gates)
    if job and not job.nodes and job.live and len(rest) < len(job.claim.pods):
        # A member left before Slurm chose nodes: ask again for those who are still there.
        return [*releases, Mark(rest, None), End(job, "the gang became smaller")]
    return [*releases, *_apply(job, number, waiting, rest, world)]


def _apply(
    job: JobView | None,
    number: int,
    waiting: tuple[Pod, ...],
    rest: tuple[Pod, ...],
    world: World,
) -> Iterator[Action]:
    """Act on the row of the table."""
    for_waiting, for_placed, reason = STATES[job.state] if job else MISSING
    placed = [p for p in rest if p not in waiting]
    message = f"Slurm job {number}: {_words(job)}"
    for pod in placed:
        if pod.metadata.deletionTimestamp is not None:
            grace = pod.metadata.deletionGracePeriodSeconds or 0
            if for_placed in (E, X) and grace > world.longest_grace:
                yield Evict(pod, reason, message, unproved=job is None)
            continue  # it is leaving already
        if for_placed is E:
            yield Evict(pod, reason, message, unproved=job is None)
        elif job and len(job.nodes) < len(placed) and outside(pod, job.nodes, world.nodes):
            yield Evict(pod, "SlurmGaveBack", f"Slurm job {number} does not have its node any more")
        elif for_placed is X:
            yield Expire(pod, reason, message)
        elif pod.metadata.uid in world.unbound:
            words = "kube-scheduler does not bind the pod to the node that Slurm chose"
            yield Evict(pod, "NotBound", f"Slurm job {number}: {words}")
        elif world.direct and not pod.spec.nodeName:
            # Somebody died between taking the gate away and binding.
            yield Place(pod, pod.metadata.annotations.get(NODE, ""), number)
    if not waiting:
        return
    if for_waiting is P and job:
        yield from _place(job, waiting, rest, world)
    elif for_waiting is W and job and not world.early:
        yield Tell(waiting, "SlurmPending", message)
    elif for_waiting is H and not any(p.metadata.annotations.get(RESUBMIT) == "true" for p in rest):
        yield Hold(waiting, f"{message}; remove annotation {HELD} to submit it again")
    elif for_waiting in (R, H):
        yield Tell(waiting, reason, message)
        yield Mark(waiting, None)


def _place(
    job: JobView, waiting: tuple[Pod, ...], rest: tuple[Pod, ...], world: World
) -> Iterator[Action]:
    """Give each waiting pod one of the job's nodes that no other pod of the job has."""
    taken = {_node_name(p) for p in rest} - {""}
    free = [
        n for n in job.nodes if n not in world.nodes or world.nodes[n].metadata.name not in taken
    ]
    chosen: list[tuple[Pod, str]] = []
    for pod, name in zip(waiting, free):  # noqa: B905 - a job may have more nodes than pods now
        wrong = _unusable(pod, name, world.nodes.get(name))
        if less := too_small(pod, job.has, world.gres) if job.has else None:
            wrong = f"somebody changed the job: {less}"
        if wrong:
            yield Tell(waiting, "NodeRefused", f"Slurm job {job.id} got node {name}: {wrong}")
            yield Mark(waiting, None)
            if len(waiting) == len(rest):
                yield End(job, f"node {name}: {wrong}")
            return
        chosen.append((pod, world.nodes[name].metadata.name))
    yield from (Place(pod, node, job.id) for pod, node in chosen)


def _unusable(pod: Pod, name: str, node: Node | None) -> str | None:
    """Why a pod must not be put on the node that Slurm chose."""
    if node is None:
        return "Kubernetes has no such node"
    if node.metadata.deletionTimestamp is not None:
        return "the node is being deleted"
    if node.spec.unschedulable:
        return "the node is cordoned"
    if not node.ready:
        return "the node is not ready"
    return objection(pod, node)


def _node_name(pod: Pod) -> str:
    """The node that a pod has or was promised."""
    return pod.spec.nodeName or (
        "" if GATE in pod.gates else pod.metadata.annotations.get(NODE, "")
    )


def _words(job: JobView | None) -> str:
    if job is None:
        return "Slurm does not know it any more"
    if not job.state.pending:
        return str(job.state)
    start = f", estimated start {_clock(job.start)}" if job.start else ""
    return f"{job.state} ({job.reason or 'no reason given yet'}{start})"


def _clock(moment: int) -> str:
    return datetime.fromtimestamp(moment, timezone.utc).strftime("%Y-%m-%dT%H:%MZ")


def outcome(pods: list[Pod]) -> str:
    """How the pods of a job ended, for Slurm's accounting."""
    phases = {p.status.phase if p.over else "Deleted" for p in pods}
    for phase in ("Failed", "Deleted"):
        if phase in phases:
            codes = [
                s.state.terminated.exitCode
                for p in pods
                for s in p.status.containerStatuses
                if s.state.terminated
            ]
            worst = max(codes, default=0)
            return f"{phase} (exit code {worst})" if worst else phase
    return "Succeeded"
