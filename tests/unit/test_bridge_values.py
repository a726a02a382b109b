"""The bridge's pure parts: quantities, annotations, identity, jobs, nodes, admission, brakes."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from slurm.bridge.admission import (
    DAEMON_SETS,
    Question,
    mutate,
    read_question,
    read_review,
    validate,
)
from slurm.bridge.brakes import Breaker
from slurm.bridge.feasibility import objection
from slurm.bridge.identity import Requester, identify, possible
from slurm.bridge.kube_types import Node, Pod
from slurm.bridge.manifests import failure_policy, selector, webhooks
from slurm.bridge.names import (
    ACCOUNT,
    FINALIZER,
    GATE,
    HELD,
    JOB,
    MANAGED,
    REASON,
    SLURM_NAME,
    TAINT,
    USER,
)
from slurm.bridge.nodes import (
    Cordon,
    Create,
    Delete,
    SetFeatures,
    SetState,
    SetTaint,
    SlurmNode,
    permanent,
    plan_node,
    shape_of,
)
from slurm.bridge.parameters import PARAMETERS, fields, problems
from slurm.bridge.pod_writes import ungate
from slurm.bridge.quantities import mebibytes_up, whole_up
from slurm.bridge.room import room_for
from slurm.bridge.settings import Brakes, NodeSettings, Rule, Settings, parse_settings
from slurm.bridge.translation import Claim, job_description, needs_of, read_claim
from slurm.errors import ConfigError

GRES = {"nvidia.com/gpu": "gpu"}


def pod(spec: dict[str, Any] | None = None, **meta: Any) -> Pod:
    meta = {"name": "p", "namespace": "team", "uid": "u1", **meta}
    return msgspec.convert({"metadata": meta, "spec": spec or {}}, Pod, strict=False)


def owned(uid: str, **more: Any) -> dict[str, Any]:
    """The owner reference of a DaemonSet's pod."""
    owner = {"kind": "DaemonSet", "apiVersion": "apps/v1", "name": "d", "controller": True}
    return {"ownerReferences": [{**owner, "uid": uid, **more}]}


def containers(*requests: dict[str, str]) -> list[dict[str, Any]]:
    return [{"name": f"c{n}", "resources": {"requests": r}} for n, r in enumerate(requests)]


# ---- quantities and needs ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "whole", "mib"),
    [("500m", 1, 1), ("2", 2, 1), ("1.5", 2, 1), ("1Gi", 1 << 30, 1024), ("1G", 10**9, 954),
     ("1", 1, 1), ("0", 0, 0), ("1e3", 1000, 1), ("128974848", 128974848, 123)],
)  # fmt: skip
def test_a_quantity_is_rounded_up(text: str, whole: int, mib: int) -> None:
    assert whole_up(text) == whole
    assert mebibytes_up(text) == mib


@pytest.mark.parametrize("text", ["", "x", "1Zi", "--1", "1 Gi", "1;rm"])
def test_what_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"quantity|unit"):
        whole_up(text)


def test_containers_count_together_and_init_containers_by_the_largest() -> None:
    spec = {
        "containers": containers({"cpu": "500m", "memory": "1Gi"}, {"cpu": "700m"}),
        "initContainers": [{"name": "i", "resources": {"requests": {"cpu": "3"}}}],
        "overhead": {"cpu": "100m"},
    }
    need = needs_of(pod(spec), GRES)
    assert (need.cpus, need.memory) == (4, 1024)


def test_a_sidecar_counts_beside_the_containers() -> None:
    sidecar = {"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}}
    spec = {"containers": containers({"cpu": "2"}), "initContainers": [sidecar]}
    assert needs_of(pod(spec), GRES).cpus == 3


def test_a_tiny_memory_request_is_not_all_memory() -> None:
    assert needs_of(pod({"containers": containers({"memory": "10Ki"})}), GRES).memory == 1


# ---- annotations ---------------------------------------------------------------------------------


def test_every_parameter_becomes_a_field_of_slurm() -> None:
    text = {
        "account": "physics", "begin": "2030-01-31T08:00:00Z", "comment": "a line", "gres": "gpu:2",
        "constraints": "a100&ib", "cpu-per-task": "1500m", "deadline": "2031-01-01T00:00:00Z",
        "dependency": "afterok:12", "exclude": "n[1-3]", "exclusive": "true", "group-id": "staff",
        "hold": "true", "job-name": "train", "licenses": "matlab:2", "max-nodes": "4",
        "mem-per-node": "2Gi", "min-nodes": "2", "nice": "10", "partition": "gpu,long",
        "priority": "100", "qos": "high", "reservation": "maint", "timelimit": "2h",
        "user-id": "alice", "wckey": "w",
    }  # fmt: skip
    assert set(text) == set(PARAMETERS)
    annotations = {f"slurm-sdk/{name}": value for name, value in text.items()}
    assert problems(annotations) == []
    got = fields(annotations)
    assert set(got) == {p.field for p in PARAMETERS.values()}
    assert got["time_limit"] == {"set": True, "number": 120}
    assert got["cpus_per_task"] == 2


def test_the_other_bridge_s_annotations_are_understood() -> None:
    assert fields({"slurmjob.slinky.slurm.net/partition": "gpu"}) == {"partition": "gpu"}


@pytest.mark.parametrize(
    ("name", "value"),
    [("partition", "gpu\nNodeName=x"), ("partition", "a;b"), ("gres", "gpu:2 --uid=0"),
     ("timelimit", "0"), ("timelimit", "-5"), ("priority", "99999999999"), ("nice", "-1"),
     ("exclude", "n[1-999999999]"), ("constraints", "$(reboot)"), ("comment", "a\x00b"),
     ("job-name", "x\ny"), ("dependency", "afterok:1;scancel"), ("begin", "tomorrow"),
     ("cpu-per-task", "0"), ("mem-per-node", "none"), ("exclusive", "maybe"),
     ("licenses", "a b"), ("qos", "q" * 2000), ("min-nodes", "1e9"), ("account", "../x")],
)  # fmt: skip
def test_a_malicious_or_wrong_value_is_refused_in_words(name: str, value: str) -> None:
    (said,) = problems({f"slurm-sdk/{name}": value})
    assert said.startswith(f"annotation slurm-sdk/{name}: ")
    assert fields({f"slurm-sdk/{name}": value}) == {}


def test_a_misspelt_annotation_names_the_right_one() -> None:
    assert problems({"slurm-sdk/partion": "x"}) == [
        "annotation slurm-sdk/partion is not known; did you mean slurm-sdk/partition?"
    ]


# ---- identity ------------------------------------------------------------------------------------

RULES = [
    Rule(namespace="team", users=["eve"], user="eve", allow_priority=True),
    Rule(namespace="team", user="alice", account="physics", allow_accounts=["chemistry"]),
    Rule(namespace="ci-*", service_account="runner", user="ci"),
]


def test_the_first_rule_that_fits_says_who_a_pod_is() -> None:
    assert identify(RULES, Requester("team", user="eve"), {}).user == "eve"
    assert identify(RULES, Requester("team", user="job-controller"), {}).user == "alice"
    assert identify(RULES, Requester("ci-7", "runner"), {}).user == "ci"


def test_nobody_is_anybody_without_a_rule() -> None:
    assert (
        "no identity rule maps namespace 'other'" in identify(RULES, Requester("other"), {}).problem
    )
    assert identify(RULES, Requester("ci-7", "default"), {}).problem


@pytest.mark.parametrize(
    "annotation", ["user-id=root", "user-id=0", "account=other", "priority=9", "group-id=root"]
)
def test_annotations_choose_only_what_the_rule_allows(annotation: str) -> None:
    name, _, value = annotation.partition("=")
    assert identify(RULES, Requester("team"), {f"slurm-sdk/{name}": value}).problem
    allowed = identify(RULES, Requester("team"), {"slurm-sdk/account": "chemistry"})
    assert (allowed.account, allowed.problem) == ("chemistry", "")


def test_the_scheduler_believes_only_an_identity_that_some_rule_gives() -> None:
    who = Requester("team")
    assert possible(RULES, who, "alice", "chemistry", {}) == ""
    assert possible(RULES, who, "root", "", {})
    assert possible(RULES, who, "", "", {})
    assert possible(RULES, Requester("other"), "alice", "physics", {})
    assert possible(RULES, who, "alice", "physics", {"slurm-sdk/partition": "admins"})


# ---- jobs ----------------------------------------------------------------------------------------


def described(*pods: Pod, **more: Any) -> dict[str, Any]:
    return job_description("pod/u1", pods, cluster="c", gres=GRES, **more)


def test_a_pod_becomes_an_external_job_that_names_it_and_requires_no_node() -> None:
    spec = {"containers": containers({"cpu": "2", "memory": "1Gi", "nvidia.com/gpu": "1"})}
    one = pod(spec, annotations={USER: "alice", ACCOUNT: "physics", "slurm-sdk/user-id": "root"})
    got = described(one, partition="all", excluded=["n1", "n2"])
    assert got["flags"] == ["EXTERNAL_JOB"]
    assert (got["user_id"], got["account"], got["partition"]) == ("alice", "physics", "all")
    assert (got["cpus_per_task"], got["memory_per_node"]["number"]) == (2, 1024)
    assert got["tres_per_node"] == "gres/gpu:1"
    assert got["excluded_nodes"] == ["n[1-2]"]
    assert "required_nodes" not in got
    assert got["requeue"] is False
    claim = read_claim(got["admin_comment"], "c")
    assert claim is not None
    assert (claim.pods, claim.names) == (("u1",), ("team/p",))


def test_the_largest_pod_of_a_gang_says_what_a_node_must_have() -> None:
    small, large = (
        pod({"containers": containers({"cpu": c, "memory": m})}, uid=u)
        for u, c, m in (("a", "1", "4Gi"), ("b", "3", "1Gi"))
    )
    got = described(small, large)
    assert (got["nodes"], got["tasks"], got["cpus_per_task"]) == ("2", 2, 3)
    assert got["memory_per_node"]["number"] == 4096


def test_the_user_s_excluded_nodes_are_kept_beside_the_infeasible_ones() -> None:
    got = described(pod(annotations={"slurm-sdk/exclude": "m[1-2]"}), excluded=["n1"])
    assert got["excluded_nodes"] == ["m[1-2],n1"]


def test_a_pod_s_deadline_is_the_job_s_time_limit() -> None:
    assert described(pod({"activeDeadlineSeconds": 90}))["time_limit"]["number"] == 2


@pytest.mark.parametrize(
    "text",
    ["", "{}", "{", "[]", "hello", '{"pods": []}', '{"schema": "other", "pods": []}',
     json.dumps({"schema": "slurm-sdk-bridge/1", "cluster": "other", "gang": "g", "pods": []})],
)  # fmt: skip
def test_another_s_job_is_never_taken_for_ours(text: str) -> None:
    assert read_claim(text, "c") is None


def test_a_claim_survives_the_way_to_slurm() -> None:
    claim = Claim("c", "pod/u", ("u",), ("ns/p",), "Succeeded")
    assert read_claim(claim.text(), "c") == claim


# ---- nodes ---------------------------------------------------------------------------------------

SETTINGS = NodeSettings()


def node(ready: str = "True", labels: dict[str, str] | None = None, **more: Any) -> Node:
    status = {
        "allocatable": {"cpu": "7800m", "memory": "16Gi", "nvidia.com/gpu": "2"},
        "conditions": [{"type": "Ready", "status": ready}],
        "addresses": [{"type": "InternalIP", "address": "10.0.0.5"}],
    }
    taints = more.pop("taints", [{"key": TAINT, "effect": "NoSchedule"}])
    meta = {"name": "w1", "labels": {SETTINGS.label: "", **(labels or {})}, **more.pop("meta", {})}
    spec = {"taints": taints, **more}
    return msgspec.convert({"metadata": meta, "spec": spec, "status": status}, Node, strict=False)


def slurm(*states: str, **more: Any) -> SlurmNode:
    base: dict[str, Any] = {
        "cpus": 7, "memory": 16384, "gres": "gpu:2", "features": ("bridge",),
    }  # fmt: skip
    flags = frozenset(states or ("IDLE",)) | {"EXTERNAL"}
    return SlurmNode("w1", flags, **{**base, **more})


def test_a_labelled_node_is_made_in_slurm_with_an_address_and_what_it_can_give() -> None:
    (create,) = plan_node(node(), None, SETTINGS)
    assert isinstance(create, Create)
    assert create.shape.conf() == (
        "NodeName=w1 State=EXTERNAL NodeAddr=10.0.0.5 CPUs=7 RealMemory=16384 Feature=bridge "
        "Gres=gpu:2 GresConf=count=2,name=gpu,file=/dev/slurm-sdk-gpu[0-1]"
    )


def test_what_daemon_sets_ask_for_is_not_slurm_s() -> None:
    daemon = pod({"containers": containers({"cpu": "2", "memory": "1Gi"})}, **owned("d1"))
    other = pod({"containers": containers({"cpu": "2"})})
    counted = permanent([daemon, other], {"d1"})
    assert counted == [daemon]
    assert shape_of(node(), SETTINGS, counted).cpus == 5


@pytest.mark.attack
def test_a_pod_that_only_says_that_a_daemon_set_owns_it_shrinks_no_node() -> None:
    huge = {"containers": containers({"cpu": "7", "memory": "15Gi"})}
    forged = [
        pod(huge, **owned("made-up")),
        pod(huge, **owned("")),
        pod(huge, **owned("d1", apiVersion="evil.example/v1")),
        pod(huge, **owned("d1", controller=False)),
        pod(huge, labels={MANAGED: "true"}, **owned("d1")),
    ]
    assert permanent(forged, {"d1"}) == []


def test_a_node_in_step_needs_nothing() -> None:
    assert plan_node(node(), slurm(), SETTINGS) == []


def test_a_little_less_memory_after_a_boot_makes_no_new_node() -> None:
    assert plan_node(node(), slurm(memory=16200), SETTINGS) == []


def test_another_name_in_slurm_is_used() -> None:
    (create,) = plan_node(node(labels={SLURM_NAME: "slurm-w1"}), None, SETTINGS)
    assert isinstance(create, Create)
    assert create.shape.name == "slurm-w1"


def test_a_busy_node_of_another_size_is_drained_and_the_drain_is_not_undone() -> None:
    (drain,) = plan_node(node(), slurm("MIXED", cpus=4), SETTINGS)
    assert isinstance(drain, SetState)
    assert (drain.state, drain.reason[: len(REASON)]) == ("DRAIN", REASON)
    assert plan_node(node(), slurm("MIXED", "DRAIN", cpus=4, reason=drain.reason), SETTINGS) == []
    idle = plan_node(node(), slurm("IDLE", "DRAIN", cpus=4, reason=drain.reason), SETTINGS)
    assert [type(a) for a in idle] == [Delete, Create]


@pytest.mark.parametrize(
    ("there", "unready", "state"),
    [(node(unschedulable=True), 0, "DRAIN"), (node("False"), 0, "DRAIN"),
     (node("False"), 99, "DOWN"),
     (node(meta={"deletionTimestamp": "2030-01-01T00:00:00Z"}), 0, "DRAIN")],
)  # fmt: skip
def test_a_node_out_of_service_leaves_service_in_slurm(
    there: Node, unready: float, state: str
) -> None:
    (action,) = plan_node(there, slurm(), SETTINGS, unready_for=unready)
    assert isinstance(action, SetState)
    assert action.state == state


def test_only_our_own_drain_is_undone() -> None:
    ours = slurm("IDLE", "DRAIN", reason=REASON + "the node is cordoned")
    assert plan_node(node(), ours, SETTINGS) == [SetState("w1", "RESUME")]
    assert plan_node(node(), slurm("IDLE", "DRAIN", reason="disk"), SETTINGS) == []


def test_slurm_s_drain_cordons_where_that_is_wanted() -> None:
    wish = NodeSettings(cordon_when_drained=True)
    assert plan_node(node(), slurm("IDLE", "DRAIN", reason="disk"), wish) == [Cordon(node())]


def test_a_node_that_left_kubernetes_leaves_slurm_when_its_jobs_are_gone() -> None:
    assert [type(a) for a in plan_node(None, slurm("MIXED"), SETTINGS)] == [SetState]
    assert plan_node(None, slurm(), SETTINGS) == [Delete("w1")]
    unlabelled = node(taints=[], meta={"labels": {}})
    assert plan_node(unlabelled, slurm(), SETTINGS) == [Delete("w1")]


def test_a_node_of_slurmd_s_is_never_deleted() -> None:
    theirs = SlurmNode("w1", frozenset({"IDLE"}))
    assert plan_node(None, theirs, SETTINGS) == []
    assert plan_node(node(), theirs, SETTINGS) == []


def test_features_follow_without_a_new_node() -> None:
    with_partition = node(meta={"annotations": {"slurm-sdk/partitions": "gpu"}})
    (action,) = plan_node(with_partition, slurm(), SETTINGS)
    assert action == SetFeatures("w1", ("bridge", "gpu"), "")


def test_the_taint_is_put_on_and_taken_off() -> None:
    assert plan_node(node(taints=[]), slurm(), SETTINGS) == [
        SetTaint(node(taints=[]), "NoSchedule")
    ]
    assert plan_node(node(), slurm(), NodeSettings(taint="none")) == [SetTaint(node(), None)]


def test_an_old_slurm_gets_states_only() -> None:
    assert plan_node(node(), None, SETTINGS, registers=False) == []
    (drain,) = plan_node(node(unschedulable=True), slurm(), SETTINGS, registers=False)
    assert isinstance(drain, SetState)


# ---- feasibility and room ------------------------------------------------------------------------


def test_a_node_selector_and_an_affinity_keep_a_pod_away() -> None:
    assert objection(pod({"nodeSelector": {"zone": "a"}}), node(taints=[]))
    assert (
        objection(pod({"nodeSelector": {"zone": "a"}}), node(taints=[], labels={"zone": "a"}))
        is None
    )
    rule = {"key": "zone", "operator": "In", "values": ["b"]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [rule]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
    picky = pod({"affinity": {"nodeAffinity": required}})
    assert objection(picky, node(taints=[], labels={"zone": "a"}))
    assert objection(picky, node(taints=[], labels={"zone": "b"})) is None


def test_pods_that_are_still_ending_hold_their_share() -> None:
    big = pod({"containers": containers({"cpu": "6"})})
    leaving = pod({"containers": containers({"cpu": "4"})}, uid="u2")
    assert not room_for(big, node(), [leaving])
    assert room_for(big, node(), [])


# ---- admission -----------------------------------------------------------------------------------

BRIDGE = "system:serviceaccount:slurm-bridge:slurm-bridge"
CONFIG = Settings(namespaces=["team"], identity=RULES[1:])


def create(manifest: Pod, user: str = "bob", **more: Any) -> Question:
    return Question("CREATE", "team", user, (), manifest, **more)


def update(old: Pod, new: Pod, user: str = "bob", **more: Any) -> Question:
    return Question("UPDATE", "team", user, (), new, old, **more)


def admitted(**more: Any) -> Pod:
    annotations = {USER: "alice", **more.pop("annotations", {})}
    labels = {MANAGED: "true", **more.pop("labels", {})}
    spec = {"schedulingGates": [{"name": GATE}], **more}
    return pod(spec, annotations=annotations, labels=labels, finalizers=[FINALIZER])


def test_a_new_pod_gets_gate_toleration_finalizer_and_identity() -> None:
    answer = mutate(create(pod({"nodeName": "w1"})), CONFIG)
    assert answer.allowed
    assert {(p["op"], p["path"]) for p in answer.patch} == {
        ("remove", "/spec/nodeName"), ("add", "/metadata/labels"), ("add", "/metadata/annotations"),
        ("add", "/metadata/finalizers"), ("add", "/spec/schedulingGates"),
        ("add", "/spec/tolerations")}  # fmt: skip
    direct = Settings(namespaces=["team"], identity=RULES[1:], mode="direct")
    paths = [p["path"] for p in mutate(create(pod()), direct).patch]
    assert "/spec/schedulerName" in paths


@pytest.mark.parametrize(
    ("manifest", "words"),
    [(pod(labels={JOB: "1"}), "label slurm-sdk/job is the bridge's own"),
     (pod(annotations={USER: "root"}), "annotation slurm-sdk/as-user is the bridge's own"),
     (pod(annotations={"slurm-sdk/user-id": "root"}), "'root' is not allowed here"),
     (pod(annotations={"slurm-sdk/timelimit": "x"}), "'x' cannot be used"),
     (pod(labels={"slurm-sdk/partition": "gpu"}), "did you mean annotation slurm-sdk/partition?"),
     (pod({"resourceClaims": [{"name": "x"}]}), "resourceClaims are not supported"),
     (pod({"topologySpreadConstraints": [{"topologyKey": "zone"}]}), "topologySpreadConstraints")],
)  # fmt: skip
def test_a_pod_that_cannot_be_placed_is_refused_with_the_reason(manifest: Pod, words: str) -> None:
    answer = mutate(create(manifest), CONFIG)
    assert not answer.allowed
    assert words in answer.message


def test_only_a_verified_daemon_set_s_pod_from_its_controller_is_left_alone() -> None:
    made = pod(**owned("d1"))
    assert mutate(create(made, DAEMON_SETS, daemon=True), CONFIG).patch == []
    # Its namespace is not listed, its owner was not found, or somebody else makes it.
    assert mutate(create(made, DAEMON_SETS), CONFIG).patch
    assert mutate(create(made, daemon=True), CONFIG).patch
    assert mutate(create(made), CONFIG).patch
    assert not validate(create(made, DAEMON_SETS), CONFIG, BRIDGE).allowed


def test_a_kubelet_adds_the_pods_of_its_own_files_and_no_others() -> None:
    mirror = pod(annotations={"kubernetes.io/config.mirror": "hash"})
    assert mutate(create(mirror, "system:node:w1"), CONFIG).patch == []
    assert mutate(create(mirror), CONFIG).patch
    assert mutate(create(pod(), "system:node:w1"), CONFIG).patch


def test_what_an_owner_s_annotations_ask_for_is_checked_and_copied() -> None:
    asks = {"slurm-sdk/timelimit": "30"}
    answer = mutate(create(pod(), inherited=asks), CONFIG)
    assert any(asks.items() <= p["value"].items() for p in answer.patch if "annot" in p["path"])
    assert not mutate(create(pod(), inherited={"slurm-sdk/user-id": "root"}), CONFIG).allowed


@pytest.mark.parametrize(
    "new",
    [admitted(labels={JOB: "9"}), admitted(annotations={USER: "root"}),
     admitted(schedulingGates=[]),
     admitted(annotations={HELD: "x"}), admitted(annotations={"slurm-sdk/priority": "9"}),
     admitted(annotations={"slurm-sdk/partition": "a b"}),
     admitted(annotations={"slurm-sdk/partition": "admins"}),
     admitted(annotations={"slurm-sdk/qos": "free"})],
)  # fmt: skip
def test_nobody_but_the_bridge_changes_what_admission_wrote(new: Pod) -> None:
    assert not validate(update(admitted(), new), CONFIG, BRIDGE).allowed
    assert validate(update(admitted(), new, BRIDGE), CONFIG, BRIDGE).allowed


def test_a_user_may_release_a_held_pod_and_choose_another_partition() -> None:
    held = admitted(annotations={HELD: "job 7 was cancelled"})
    new = admitted(annotations={"slurm-sdk/partition": "long"})
    listed = Settings(namespaces=["team"], identity=[Rule(user="alice", allow_partitions=["long"])])
    assert validate(update(held, new), listed, BRIDGE).allowed
    assert not validate(update(held, new), CONFIG, BRIDGE).allowed


def test_a_placed_pod_cannot_be_resized() -> None:
    question = update(admitted(), admitted(), subresource="resize")
    assert "cannot be resized" in validate(question, CONFIG, BRIDGE).message


def test_a_question_is_read_from_the_api_server_s_json() -> None:
    request = {
        "uid": "r1",
        "operation": "CREATE",
        "namespace": "team",
        "userInfo": {"username": "bob", "groups": ["people"]},
        "object": {
            "metadata": {"name": "p", "creationTimestamp": None},
            "spec": {"containers": []},
        },
    }
    question = read_question(read_review(json.dumps({"request": request}).encode()), {})
    assert (question.user, question.groups, question.pod.metadata.name) == ("bob", ("people",), "p")


def test_a_pod_s_own_affinity_terms_each_get_the_node() -> None:
    rule = {"key": "zone", "operator": "Exists"}
    terms = [{"matchExpressions": [rule]}, {"matchFields": [rule]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    there = pod({"schedulingGates": [{"name": GATE}], "affinity": {"nodeAffinity": required}})
    paths = [op["path"].rpartition("nodeSelectorTerms/")[2] for op in ungate(there, "w1", pin=True)]
    assert {"0/matchFields", "1/matchFields/-"} <= set(paths)


# ---- settings, webhooks, brakes ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "words"),
    [("slurm: {ulr: x}", "ulr"), ("mode: fast", "mode"), ("identity: [{namespace: a}]", "rule 1"),
     ("namespaces: [a]\nnamespaceSelector: {b: c}", "both"),
     ("failurePolicy: Ignore\nnodes: {taint: none}", "without a taint"), ("{", "line"),
     ("slurm: {url: 'http://slurm.example:6820'}", "unencrypted"),
     ("slurm: {url: 'http://127.0.0.1.evil.example:6820'}", "unencrypted"),
     ("slurm: {url: 'https://u:pw@slurm.example'}", "a password")],
)  # fmt: skip
def test_a_wrong_configuration_is_refused_with_its_place(text: str, words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_settings(text)
    assert words in str(refused.value)


def test_the_webhook_concerns_opted_in_namespaces_only() -> None:
    (expression,) = selector(CONFIG)["matchExpressions"]
    assert expression["values"] == ["team"]
    assert selector(Settings(namespace_selector={"slurm": "yes"})) == {
        "matchLabels": {"slurm": "yes"}
    }
    for hook in webhooks(CONFIG, "Q0E=", BRIDGE):
        assert hook["webhooks"][0]["failurePolicy"] == "Fail"
        assert hook["webhooks"][0]["timeoutSeconds"] <= 5


def test_ignore_is_granted_only_where_every_node_keeps_strangers_out() -> None:
    lax = Settings(failure_policy="Ignore")
    assert failure_policy(lax, [node()]) == "Ignore"
    assert failure_policy(lax, [node(), node(taints=[])]) == "Fail"
    assert failure_policy(lax, []) == "Fail"


def test_many_unproved_losses_trip_the_breaker_and_proved_ones_do_not() -> None:
    breaker = Breaker(Brakes(missing_per_minute=3, cooldown=100))
    assert [breaker.allows(1.0, unproved=True) for _ in range(5)] == [True] * 3 + [False] * 2
    assert breaker.is_open(2.0)
    assert breaker.allows(2.0, unproved=False)
    assert not breaker.allows(70.0, unproved=True)
    assert breaker.allows(102.0, unproved=True)


def test_evictions_have_a_speed_limit() -> None:
    breaker = Breaker(Brakes(evictions_per_minute=2))
    assert [breaker.allows(1.0, unproved=False) for _ in range(3)] == [True, True, False]
    assert breaker.allows(62.0, unproved=False)
