"""The bridge's decisions for pods: what it does next, from every state, and after any death."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

import pytest

from slurm.bridge.actions import (
    Action,
    End,
    Evict,
    Hold,
    JobView,
    Mark,
    Place,
    Release,
    Submit,
    Tell,
)
from slurm.bridge.gang import STATES, World, decide, job_of, outcome
from slurm.bridge.grouping import Gang, gang_key, gang_of
from slurm.bridge.kube_types import (
    Condition,
    ContainerState,
    ContainerStatus,
    Gate,
    Meta,
    Node,
    NodeSpec,
    NodeStatus,
    Pod,
    PodSpec,
    PodStatus,
    SchedulingGroup,
    Taint,
    Terminated,
)
from slurm.bridge.names import FINALIZER, GATE, HELD, JOB, MANAGED, NODE, RESUBMIT
from slurm.bridge.translation import Claim
from slurm.model.states import JobState

HERE = "cluster-uid"


def node(name: str, ready: str = "True", **spec: object) -> Node:
    status = NodeStatus(conditions=[Condition("Ready", ready)])
    return Node(Meta(name=name), NodeSpec(**spec), status)  # type: ignore[arg-type]


NODES = {name: node(name) for name in ("n1", "n2", "n3")}


def pod(name: str = "a", job: int | None = None, **more: object) -> Pod:
    """A waiting pod; `on` binds it, `phase` and `deleted` say how it is."""
    on, phase = str(more.get("on", "")), str(more.get("phase", "Pending"))
    gated = bool(more.get("gated", not on))
    labels = {MANAGED: "true", **({JOB: str(job)} if job is not None else {})}
    annotations = dict(more.get("annotations", {}))  # type: ignore[call-overload]
    meta = Meta(
        name=name,
        namespace="ns",
        uid=f"uid-{name}",
        labels=labels,
        annotations=annotations,
        finalizers=[FINALIZER],
        deletionTimestamp="2030-01-01T00:00:00Z" if more.get("deleted") else None,
    )
    spec = PodSpec(nodeName=on, schedulingGates=[Gate(GATE)] if gated else [])
    return Pod(meta, spec, PodStatus(phase=phase))


def job(number: int, state: JobState, *pods: Pod, nodes: tuple[str, ...] = ()) -> JobView:
    claim = Claim(HERE, "k", tuple(p.metadata.uid for p in pods))
    return JobView(number, state, claim, nodes)


def decided(pods: list[Pod], *jobs: JobView, **more: object) -> list[Action]:
    least = more.pop("least", 1)
    gang = Gang("k", tuple(pods), least)  # type: ignore[arg-type]
    world = World(gang, {j.id: j for j in jobs}, nodes=NODES, **more)  # type: ignore[arg-type]
    return decide(world)


def kinds(actions: list[Action]) -> list[str]:
    return [type(a).__name__ for a in actions]


def test_every_state_of_slurm_has_a_row() -> None:
    assert set(STATES) == set(JobState)


def test_a_new_pod_gets_a_job() -> None:
    assert decided([pod()]) == [Submit((pod(),))]


def test_a_running_job_places_its_pod_on_its_node() -> None:
    waiting = pod(job=7)
    assert decided([waiting], job(7, JobState.RUNNING, waiting, nodes=("n2",))) == [
        Place(waiting, "n2", 7)
    ]


def test_a_live_job_that_names_the_pod_is_adopted_instead_of_a_second_one() -> None:
    actions = decided([pod()], job(7, JobState.RUNNING, pod(), nodes=("n1",)))
    assert actions == [Mark((pod(),), 7)]


def test_of_two_jobs_for_one_pod_the_older_is_kept() -> None:
    first, second = job(7, JobState.PENDING, pod()), job(8, JobState.PENDING, pod())
    assert decided([pod()], second, first) == [
        Mark((pod(),), 7),
        End(second, "nobody waits for it"),
    ]


def test_a_pod_of_the_same_name_does_not_inherit_the_job_of_the_one_before() -> None:
    before = replace_uid(pod(), "uid-old")
    actions = decided([pod()], job(7, JobState.RUNNING, before, nodes=("n1",)))
    assert kinds(actions) == ["End", "Submit"]


def replace_uid(old: Pod, uid: str) -> Pod:
    import msgspec

    return msgspec.structs.replace(old, metadata=msgspec.structs.replace(old.metadata, uid=uid))


def test_a_job_that_slurm_has_not_answered_for_is_waited_for() -> None:
    assert decided([pod(job=7)]) == []
    assert decided([pod(job=7, on="n1", phase="Running")]) == []


def test_a_job_proved_missing_costs_a_placed_pod_its_place_and_says_that_it_is_unproved() -> None:
    placed = pod(job=7, on="n1", phase="Running")
    (action,) = decided([placed], missing=frozenset({7}))
    assert isinstance(action, Evict)
    assert action.unproved


@pytest.mark.parametrize(
    "state", [s for s in JobState if s.finished and s not in (JobState.TIMEOUT, JobState.DEADLINE)]
)
def test_every_other_end_of_the_job_evicts_the_placed_pod(state: JobState) -> None:
    placed = pod(job=7, on="n1", phase="Running")
    (action,) = decided([placed], job(7, state, placed, nodes=("n1",)))
    assert isinstance(action, Evict)
    assert not action.unproved
    assert str(state) in action.message


def test_a_job_out_of_time_lets_its_pod_fail_instead_of_vanish() -> None:
    placed = pod(job=7, on="n1", phase="Running")
    assert kinds(decided([placed], job(7, JobState.TIMEOUT, placed))) == ["Expire"]


def test_a_waiting_job_that_an_administrator_cancels_holds_its_pod() -> None:
    waiting = pod(job=7)
    (hold,) = decided([waiting], job(7, JobState.CANCELLED, waiting))
    assert isinstance(hold, Hold)
    assert HELD in hold.message
    assert decided([pod(annotations={HELD: "x"})]) == []


def test_a_pod_that_asks_for_it_is_submitted_again_after_a_cancel() -> None:
    waiting = pod(job=7, annotations={RESUBMIT: "true"})
    assert kinds(decided([waiting], job(7, JobState.CANCELLED, waiting))) == ["Tell", "Mark"]


@pytest.mark.parametrize("state", [JobState.PREEMPTED, JobState.NODE_FAIL, JobState.TIMEOUT])
def test_a_waiting_pod_whose_job_died_asks_again(state: JobState) -> None:
    waiting = pod(job=7)
    actions = decided([waiting], job(7, state, waiting))
    assert actions[-1] == Mark((waiting,), None)


def test_a_pod_that_ended_ends_its_job_before_it_is_released() -> None:
    done = pod(job=7, on="n1", phase="Succeeded")
    running = job(7, JobState.RUNNING, done, nodes=("n1",))
    assert decided([done], running) == [End(running, "Succeeded"), Release(done)]


def test_a_failed_pod_s_exit_code_is_on_record() -> None:
    done = pod(job=7, on="n1", phase="Failed")
    status = PodStatus("Failed", containerStatuses=[
        ContainerStatus("main", ContainerState(Terminated(3)))])  # fmt: skip
    done = Pod(done.metadata, done.spec, status)
    assert outcome([done]) == "Failed (exit code 3)"


def test_a_deleted_pod_that_still_runs_keeps_its_job_until_it_has_stopped() -> None:
    leaving = pod(job=7, on="n1", phase="Running", deleted=True)
    assert decided([leaving], job(7, JobState.RUNNING, leaving, nodes=("n1",))) == []


def test_a_deleted_pod_on_a_dead_node_is_released_with_its_job() -> None:
    leaving = pod(job=7, on="n1", phase="Running", deleted=True)
    running = job(7, JobState.RUNNING, leaving, nodes=("n1",))
    actions = decided([leaving], running, stuck=frozenset({"uid-a"}))
    assert actions == [End(running, "Deleted"), Release(leaving, gone=True)]


def test_a_deleted_waiting_pod_ends_its_job() -> None:
    leaving = pod(job=7, deleted=True)
    waiting = job(7, JobState.PENDING, leaving)
    assert kinds(decided([leaving], waiting)) == ["End", "Release"]


def test_an_incomplete_gang_waits() -> None:
    assert kinds(decided([pod("a"), pod("b")], least=3)) == ["Tell"]


def test_a_gang_whose_group_does_not_exist_waits() -> None:
    (tell,) = decided([pod("a")], least=None)
    assert isinstance(tell, Tell)
    assert tell.reason == "GroupMissing"


def test_a_gang_gets_one_node_for_each_pod_in_a_steady_order() -> None:
    pods = [pod("a", 7), pod("b", 7), pod("c", 7)]
    running = job(7, JobState.RUNNING, *pods, nodes=("n1", "n2", "n3"))
    assert [(a.pod.metadata.name, a.node) for a in decided(pods, running)] == [  # type: ignore[union-attr]
        ("a", "n1"), ("b", "n2"), ("c", "n3")]  # fmt: skip


def test_a_half_placed_gang_never_puts_two_pods_on_one_node() -> None:
    placed = pod("b", 7, gated=False, annotations={NODE: "n1"})
    pods = [pod("a", 7), placed, pod("c", 7)]
    running = job(7, JobState.RUNNING, *pods, nodes=("n1", "n2", "n3"))
    assert [(a.pod.metadata.name, a.node) for a in decided(pods, running)] == [  # type: ignore[union-attr]
        ("a", "n2"), ("c", "n3")]  # fmt: skip


def test_a_gang_that_became_smaller_while_waiting_asks_again() -> None:
    pods = [pod("a", 7), pod("b", 7, deleted=True)]
    waiting = job(7, JobState.PENDING, *pods)
    assert kinds(decided(pods, waiting)) == ["Release", "Mark", "End"]


def test_a_late_member_of_a_running_gang_gets_a_job_of_its_own() -> None:
    first = [pod("a", 7, on="n1", phase="Running"), pod("b", 7, on="n2", phase="Running")]
    running = job(7, JobState.RUNNING, *first, nodes=("n1", "n2"))
    assert decided([*first, pod("c")], running, least=2) == [Submit((pod("c"),))]


@pytest.mark.parametrize(
    ("bad", "word"),
    [
        (node("n1", ready="False"), "not ready"),
        (node("n1", unschedulable=True), "cordoned"),
        (node("n1", taints=[Taint("x", "NoSchedule")]), "taint x"),
    ],
)
def test_a_node_that_kubernetes_would_refuse_is_given_back(bad: Node, word: str) -> None:
    waiting = pod(job=7)
    running = job(7, JobState.RUNNING, waiting, nodes=("n1",))
    world = World(Gang("k", (waiting,)), {7: running}, nodes={"n1": bad})
    tell, mark, end = decide(world)
    assert isinstance(tell, Tell)
    assert word in tell.message
    assert (mark, type(end)) == (Mark((waiting,), None), End)


def test_in_direct_mode_a_pod_without_gate_and_node_is_bound_after_a_death() -> None:
    between = pod(job=7, gated=False, annotations={NODE: "n2"})
    running = job(7, JobState.RUNNING, between, nodes=("n2",))
    assert decided([between], running, direct=True) == [Place(between, "n2", 7)]
    assert decided([between], running) == []


def test_groups_of_one_name_in_two_namespaces_do_not_meet() -> None:
    def member(namespace: str) -> Pod:
        group = SchedulingGroup("train")
        return Pod(Meta(namespace=namespace, uid="u"), PodSpec(schedulingGroup=group))

    assert gang_key(member("a"), {}) != gang_key(member("b"), {})
    assert gang_of("podgroup/a/train", [member("a")], {"podgroup/a/train": 4}).least == 4


# ---- the whole life, with deaths at every point --------------------------------------------------


@dataclass
class Model:
    """Kubernetes and Slurm as far as the decisions see them, and a bridge that may die."""

    pods: dict[str, Pod] = field(default_factory=dict)
    jobs: dict[int, JobView] = field(default_factory=dict)
    foreign: JobView | None = None
    evicted: set[str] = field(default_factory=set)

    def world(self) -> World:
        named = {j for p in self.pods.values() if (j := job_of(p)) is not None}
        missing = frozenset(named - set(self.jobs))
        return World(Gang("k", tuple(self.pods.values()), 2), dict(self.jobs), missing, NODES)

    def act(self, action: Action) -> None:
        match action:
            case Submit(pods):
                number = max(self.jobs, default=0) + 1
                self.jobs[number] = job(number, JobState.PENDING, *pods)
            case Mark(pods, number):
                for each in pods:
                    self._update(each, number)
            case Place(each, where, _):
                self._replace(pod(each.metadata.name, job_of(each), on=where, phase="Running"))
            case End(ended, _):
                self.jobs[ended.id] = replace(ended, state=JobState.CANCELLED)
            case Evict(each):
                self.evicted.add(each.metadata.name)
                self.pods.pop(each.metadata.uid)
            case Hold(pods):
                for each in pods:
                    self._update(each, None, {HELD: "x"})
            case Release(each):
                self.pods.pop(each.metadata.uid, None)

    def _update(self, each: Pod, number: int | None, notes: dict[str, str] | None = None) -> None:
        if each.metadata.uid in self.pods:
            self._replace(pod(each.metadata.name, number, annotations=notes or {}))

    def _replace(self, each: Pod) -> None:
        self.pods[each.metadata.uid] = each

    def slurm_starts(self) -> None:
        for number, waiting in list(self.jobs.items()):
            if waiting.state == JobState.PENDING:
                nodes = tuple(NODES)[: len(waiting.claim.pods)]
                self.jobs[number] = replace(waiting, state=JobState.RUNNING, nodes=nodes)


@pytest.mark.parametrize("seed", range(300))
def test_whatever_dies_whenever_each_pod_ends_with_one_job_and_one_node(seed: int) -> None:
    chance = random.Random(seed)
    model = Model({f"uid-{n}": pod(n) for n in "abc"})
    for _ in range(chance.randrange(12)):
        actions = decide(model.world())
        # The bridge dies after some of its actions; the next one sees what they left.
        for action in actions[: chance.randrange(len(actions) + 1)]:
            model.act(action)
        if chance.random() < 0.5:
            model.slurm_starts()
        if chance.random() < 0.2 and model.jobs:
            number = chance.choice(list(model.jobs))
            if model.jobs[number].live:
                end = chance.choice([JobState.PREEMPTED, JobState.NODE_FAIL, JobState.FAILED])
                model.jobs[number] = replace(model.jobs[number], state=end)
    for _ in range(12):
        for action in decide(model.world()):
            model.act(action)
        model.slurm_starts()
        live = [j for j in model.jobs.values() if j.live]
        claimed = [u for j in live for u in j.claim.pods if u in model.pods]
        assert len(claimed) == len(set(claimed)), "two live jobs stand for one pod"
    # A gang that lost a member to Slurm waits for its owner to make another.
    whole = len(model.pods) >= 2 or any(p.spec.nodeName for p in model.pods.values())
    for each in model.pods.values():
        if whole:
            assert each.spec.nodeName, (seed, each, model.jobs)
    places = [p.spec.nodeName for p in model.pods.values()]
    if not model.evicted:
        assert len(places) == len(set(places))
