"""What the author of a pod may try against Slurm and the bridge, on the parts that decide."""

from __future__ import annotations

import ast
import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import slurm.bridge
from slurm.bridge.admission import Question, mutate
from slurm.bridge.identity import Requester, identify, possible
from slurm.bridge.kube import Kube, KubeError
from slurm.bridge.kube_types import Pod
from slurm.bridge.owners import Made, Owners, UnreadOwner
from slurm.bridge.parameters import problems
from slurm.bridge.paths import BadName, api_path
from slurm.bridge.settings import NodeSettings, Rule, Settings
from slurm.bridge.sizes import Contradiction, read_gres
from slurm.bridge.translation import job_description, needs_of

GRES = {"nvidia.com/gpu": "gpu", "example.com/fpga": "fpga"}
PREFIXES = ("slurm-sdk/", "slurmjob.slinky.slurm.net/")
HOSTILE = (
    "../../team-b/jobs/x", "x/../../../secrets/key", "a?watch=1", "a%2F..%2Fb", "a#b", "..", ".",
    "a b", "a\nb", "A", "-a", "a-", "", "a" * 300, "x\x00", "é", "%2e%2e", "a//b", "a;b",
)  # fmt: skip


def pod(spec: dict[str, Any] | None = None, **meta: Any) -> Pod:
    meta = {"name": "p", "namespace": "team", "uid": "u1", **meta}
    return msgspec.convert({"metadata": meta, "spec": spec or {}}, Pod, strict=False)


# ---- sizes ---------------------------------------------------------------------------------------

_AMOUNTS = st.fixed_dictionaries(
    {},
    optional={
        "cpu": st.integers(0, 200_000).map(lambda n: f"{n}m"),
        "memory": st.integers(0, 1 << 42).map(str),
        "nvidia.com/gpu": st.integers(0, 16).map(str),
        "example.com/fpga": st.integers(0, 4).map(str),
    },
)
_CONTAINERS = st.lists(
    st.fixed_dictionaries({"resources": st.fixed_dictionaries({"requests": _AMOUNTS})}), max_size=3
)
_SPECS = st.fixed_dictionaries(
    {"containers": _CONTAINERS, "initContainers": _CONTAINERS, "overhead": _AMOUNTS}
)
_KIND = st.sampled_from(["gpu", "gpu:a100", "gpu:v100", "gres/gpu", "GPU", "fpga", "shard", "none"])
_SEPARATED = st.tuples(_KIND, st.sampled_from([":", "="]), st.integers(0, 20)).map(
    lambda t: f"{t[0]}{t[1]}{t[2]}"
)
_VALUES = {
    "cpu-per-task": st.integers(0, 300).map(str),
    "mem-per-node": st.sampled_from(["1", "1Mi", "4Gi", "1Ti"]),
    "gres": st.lists(_SEPARATED | st.text(":,=/gpua0129", max_size=12), max_size=3).map(",".join),
    "exclusive": st.sampled_from(["true", "false", "user"]),
    "min-nodes": st.just("1"),
}
_ASKED = st.fixed_dictionaries({}, optional=_VALUES)


@pytest.mark.attack
@settings(max_examples=400, deadline=None)
@given(_SPECS, _ASKED, st.sampled_from(PREFIXES))
def test_no_annotation_makes_a_pod_smaller_to_slurm_than_it_is(
    spec: dict[str, Any], asked: dict[str, str], prefix: str
) -> None:
    annotations = {prefix + name: text for name, text in asked.items()}
    made = pod(spec, annotations=annotations)
    needs = needs_of(made, GRES)
    try:
        job = job_description("pod/u1", [made], cluster="c", gres=GRES)
    except Contradiction:
        refused = mutate(
            Question("CREATE", "team", "bob", (), made),
            Settings(identity=[Rule(user="alice")], nodes=NodeSettings(gres=GRES)),
        )
        assert not refused.allowed
        return
    assert job.get("cpus_per_task", 0) >= (needs.cpus or 0)
    assert job.get("memory_per_node", {"number": 0})["number"] >= (needs.memory or 0)
    told = read_gres(job["tres_per_node"]) if "tres_per_node" in job else []
    for name, count in needs.gres:
        assert sum(one.count for one in told if one.name.lower() == name) >= count


@pytest.mark.parametrize("text", ["gpu:a100:1,gpu:v100:1", "gpu:a100:0,gpu:v100:0"])
def test_an_annotation_that_contradicts_the_requests_is_refused_with_both(text: str) -> None:
    spec = {"containers": [{"resources": {"requests": {"nvidia.com/gpu": "8"}}}]}
    made = pod(spec, annotations={"slurm-sdk/gres": text})
    with pytest.raises(Contradiction, match="fewer than the 8 gpu requested"):
        job_description("pod/u1", [made], cluster="c", gres=GRES)
    config = Settings(identity=[Rule(user="alice")])
    answer = mutate(Question("CREATE", "team", "bob", (), made), config)
    assert "fewer than the 8 gpu requested" in answer.message


@pytest.mark.parametrize("text", ["gpu:8,gpu:0", "gpu:8,GPU:0", "gpu,gpu:a100:1", "gpu:2K", "none"])
def test_a_resource_is_named_once_and_by_a_whole_number(text: str) -> None:
    assert problems({"slurm-sdk/gres": text})


def test_the_type_that_an_annotation_names_is_kept_and_its_count_is_the_larger() -> None:
    spec = {"containers": [{"resources": {"requests": {"nvidia.com/gpu": "4"}}}]}
    for text, expected in (("gpu:a100:2", 4), ("gpu:a100:6", 6)):
        made = pod(spec, annotations={"slurm-sdk/gres": text})
        job = job_description("pod/u1", [made], cluster="c", gres=GRES)
        assert job["tres_per_node"] == f"gres/gpu:a100:{expected}"


# ---- what rules allow ----------------------------------------------------------------------------


@pytest.mark.attack
@pytest.mark.parametrize(
    ("name", "given", "more"),
    [("partition", "gpu", "gpu,admins"), ("qos", "high", "free"), ("reservation", "r1", "r1,r2")],
)
def test_only_what_a_rule_lists_can_be_asked_for(name: str, given: str, more: str) -> None:
    key = {"partition": "partitions", "qos": "qos", "reservation": "reservations"}[name]
    plain = Rule(user="alice")
    listed = msgspec.convert({"user": "alice", "allow" + key.capitalize(): [given]}, Rule)
    every = msgspec.convert({"user": "alice", "allow" + key.capitalize(): ["*"]}, Rule)
    who, asks = Requester("team"), {f"slurm-sdk/{name}": given}
    assert f"{given!r} is not allowed here" in identify([plain], who, asks).problem
    assert identify([listed], who, asks).problem == ""
    assert possible([plain], who, "alice", "", asks)
    assert possible([listed], who, "alice", "", asks) == ""
    beyond = {f"slurm-sdk/{name}": more}
    assert identify([listed], who, beyond).problem
    assert identify([every], who, beyond).problem == ""
    assert possible([plain, listed], who, "alice", "", beyond)


def test_the_bridge_s_own_partition_needs_no_rule() -> None:
    asks = {"slurm-sdk/partition": "bridge"}
    assert identify([Rule(user="alice")], Requester("team"), asks, "bridge").problem == ""


# ---- paths ---------------------------------------------------------------------------------------


@pytest.mark.attack
@pytest.mark.parametrize("name", HOSTILE)
def test_no_path_is_made_of_a_name_that_kubernetes_does_not_give(name: str) -> None:
    where = {"api": "batch/v1", "namespace": "team"}
    if name:
        with pytest.raises(BadName):
            api_path("jobs", **where, name=name)
        with pytest.raises(BadName):
            api_path("jobs", api="batch/v1", namespace=name, name="x")
    with pytest.raises(BadName):
        api_path("jobs", api=name, namespace="team")


@given(st.text(max_size=40))
def test_a_path_has_the_parts_that_it_was_made_of(name: str) -> None:
    try:
        path = api_path("jobs", api="batch/v1", namespace="team", name=name)
    except BadName:
        return
    assert path == "/apis/batch/v1/namespaces/team/jobs" + (f"/{name}" if name else "")
    assert not set("/?#%\\") & set(name)


def test_every_path_is_made_in_one_place() -> None:
    folder = Path(slurm.bridge.__file__).parent
    found = [
        f"{file.name}:{node.lineno}"
        for file in sorted(folder.glob("*.py"))
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and (node.value.startswith(("/api", "/apis")) or "/namespaces/" in node.value)
    ]
    assert found == [], "use slurm.bridge.paths.api_path"


# ---- owners --------------------------------------------------------------------------------------


class Answering(Kube):
    """Answers from a table, and remembers what it was asked."""

    def __init__(self, objects: dict[str, Any]) -> None:
        self.objects, self.asked = objects, list[str]()

    async def ask(self, method: str, path: str, **_: Any) -> bytes:
        self.asked.append(path)
        found = self.objects.get(path, 404)
        if isinstance(found, int):
            raise KubeError(f"{method} {path}: no", status=found)
        return json.dumps(found).encode()


JOB = "/apis/batch/v1/namespaces/team/jobs/work"


def made(name: str = "work", uid: str = "j1", **more: Any) -> Made:
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid, "controller": True}
    return msgspec.convert({"metadata": {"ownerReferences": [{**owner, **more}]}}, Made)


def run(work: Callable[[Owners], Awaitable[Any]], objects: dict[str, Any]) -> tuple[Any, list[str]]:
    kube = Answering(objects)
    try:
        return asyncio.run(work(Owners(kube))), kube.asked  # type: ignore[arg-type]
    except UnreadOwner as error:
        return error, kube.asked


@pytest.mark.attack
@pytest.mark.parametrize("name", HOSTILE)
def test_an_owner_with_a_hostile_name_is_refused_and_never_asked_for(name: str) -> None:
    answer, asked = run(lambda owners: owners.wishes("team", made(name)), {})
    assert isinstance(answer, UnreadOwner)
    assert asked == []
    group = msgspec.convert({"metadata": {"labels": {"scheduling.x-k8s.io/pod-group": name}}}, Made)
    answer, asked = run(lambda owners: owners.wishes("team", group), {})
    assert asked == []
    assert isinstance(answer, UnreadOwner) or name == ""


@pytest.mark.parametrize("status", [0, 403, 404, 500])
def test_an_owner_that_cannot_be_read_is_a_reason_to_refuse(status: int) -> None:
    answer, _ = run(lambda owners: owners.wishes("team", made()), {JOB: status})
    assert isinstance(answer, UnreadOwner)
    assert "its owner Job team/work cannot be read" in answer.message


def test_an_owner_is_believed_only_if_it_is_the_very_one() -> None:
    there = {"metadata": {"uid": "j1", "annotations": {"slurm-sdk/comment": "hello"}}}
    answer, _ = run(lambda owners: owners.wishes("team", made()), {JOB: there})
    assert answer == {"slurm-sdk/comment": "hello"}
    for uid in ("j2", ""):
        answer, _ = run(lambda owners, uid=uid: owners.wishes("team", made(uid=uid)), {JOB: there})
        assert "another uid" in answer.message


def test_a_group_that_is_not_there_yet_asks_for_nothing_and_an_unread_one_is_refused() -> None:
    spec = {"spec": {"schedulingGroup": {"podGroupName": "g"}}}
    member = msgspec.convert(spec, Made)
    path = "/apis/scheduling.k8s.io/v1alpha2/namespaces/team/podgroups/g"
    assert run(lambda owners: owners.wishes("team", member), {})[0] == {}
    answer, _ = run(lambda owners: owners.wishes("team", member), {path: 403})
    assert isinstance(answer, UnreadOwner)


@pytest.mark.attack
def test_a_daemon_set_is_one_only_if_it_is_there() -> None:
    claim = made("d", "d1", apiVersion="apps/v1", kind="DaemonSet")
    path = "/apis/apps/v1/namespaces/kube-system/daemonsets/d"

    def look(uid: str) -> Any:
        objects = {path: {"metadata": {"uid": uid}}} if uid else {}
        return run(lambda owners: owners.daemon("kube-system", claim), objects)[0]

    assert look("d1") is True
    assert isinstance(look("d2"), UnreadOwner)
    assert isinstance(look(""), UnreadOwner)
    assert run(lambda owners: owners.daemon("kube-system", made()), {})[0] is False
