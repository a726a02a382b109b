"""Pods as a Slurm job: what they ask for, who they are, and how the job names them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from slurm.bridge.grouping import group_of
from slurm.bridge.kube_types import Amounts, Container, Pod, Resources
from slurm.bridge.names import ACCOUNT, USER
from slurm.bridge.parameters import fields
from slurm.bridge.quantities import mebibytes_up, quantity, whole_up
from slurm.bridge.sizes import Needs, sizes_of
from slurm.model.hostlist import collapse_hostlist, expand_hostlist

SCHEMA = "slurm-sdk-bridge/1"
# Slurm cuts longer ones.
_NAME_LENGTH = 200
# What the placeholder is before external jobs exist: it holds its share and does nothing.
SLEEPER = "#!/bin/sh\n# Holds resources for pods; it ends when they end.\nexec sleep infinity\n"


@dataclass(frozen=True)
class Claim:
    """What a placeholder says of itself: which Kubernetes, gang and pods it stands for."""

    cluster: str
    gang: str
    pods: tuple[str, ...]
    names: tuple[str, ...] = ()
    outcome: str = ""

    def text(self) -> str:
        """The claim as the job carries it."""
        parts = {"schema": SCHEMA, "cluster": self.cluster, "gang": self.gang}
        shown = {**parts, "pods": list(self.pods), "names": list(self.names)}
        return json.dumps({**shown, "outcome": self.outcome} if self.outcome else shown)


def read_claim(text: str, cluster: str) -> Claim | None:
    """The claim in a job's comment, or None for a job that is not ours: that is never touched."""
    try:
        value = json.loads(text) if text.startswith("{") else None
    except ValueError:
        return None
    if not isinstance(value, dict) or value.get("schema") != SCHEMA:
        return None
    pods, names, gang = value.get("pods"), value.get("names"), value.get("gang")
    if value.get("cluster") != cluster or not isinstance(pods, list) or not isinstance(gang, str):
        return None
    shown = tuple(map(str, names)) if isinstance(names, list) else ()
    return Claim(cluster, gang, tuple(map(str, pods)), shown, str(value.get("outcome") or ""))


def needs_of(pod: Pod, gres: Mapping[str, str]) -> Needs:
    """A pod's requests as Kubernetes counts them: containers together, or the largest start-up."""
    asked = requests_of(pod)
    cpu, memory = asked.get("cpu"), asked.get("memory")
    counts: dict[str, int] = {}
    for name, kind in gres.items():
        if amount := asked.get(name):
            counts[kind] = counts.get(kind, 0) + whole_up(str(amount))
    return Needs(
        max(1, whole_up(str(cpu))) if cpu else None,
        max(1, mebibytes_up(str(memory))) if memory else None,
        tuple(sorted(counts.items())),
    )


def requests_of(pod: Pod) -> dict[str, Decimal]:
    """What the pod needs on a node: as kube-scheduler counts it."""
    spec = pod.spec
    total = _sum(*(_asked(c) for c in spec.containers))
    standing: dict[str, Decimal] = {}
    peak: dict[str, Decimal] = {}
    for container in spec.initContainers:
        if container.restartPolicy == "Always":
            # A sidecar starts before, and goes on running beside, what follows it.
            standing = _sum(standing, _asked(container))
            peak = _most(peak, standing)
        else:
            peak = _most(peak, _sum(standing, _asked(container)))
    total = _most(_sum(total, standing), peak)
    if spec.resources is not None:
        total = _most(total, _amounts(spec.resources))
    return _sum(total, {name: quantity(v) for name, v in spec.overhead.items()})


def job_description(
    gang: str,
    pods: Sequence[Pod],
    *,
    cluster: str,
    gres: Mapping[str, str],
    partition: str | None = None,
    mcs_label: str | None = None,
    excluded: Sequence[str] = (),
    external: bool = True,
) -> dict[str, Any]:
    """The job for these pods, one node for each: the largest pod decides what a node must have.

    Annotations ask for more than the pods request, never for less. Raises `Contradiction`.
    """
    wants = [needs_of(pod, gres) for pod in pods]
    first = pods[0]
    asked = fields(first.metadata.annotations)
    claim = Claim(
        cluster, gang, tuple(p.metadata.uid for p in pods), tuple(p.key for p in pods)[:32]
    )
    job: dict[str, Any] = {
        "name": _job_name(gang, first),
        "admin_comment": claim.text(),
        "current_working_directory": "/tmp",
        "environment": ["SLURM_SDK_BRIDGE=1"],
        # A requeued placeholder would come back without its pods.
        "requeue": False,
        "nodes": str(len(pods)),
        "tasks": len(pods),
        "tasks_per_node": 1,
        "user_id": first.metadata.annotations.get(USER, ""),
        **({"flags": ["EXTERNAL_JOB"]} if external else {}),
        **{
            key: value
            for key, value in (("partition", partition), ("mcs_label", mcs_label))
            if value
        },
        **asked,
    }
    for size in ("cpus_per_task", "memory_per_node", "tres_per_node"):
        job.pop(size, None)
    job |= sizes_of(wants, asked)
    if account := first.metadata.annotations.get(ACCOUNT):
        job["account"] = account
    for bound in ("minimum_nodes", "maximum_nodes"):
        # The gang waited until its number of pods fits the bounds.
        job.pop(bound, None)
    if "time_limit" not in job and first.spec.activeDeadlineSeconds:
        minutes = -(-first.spec.activeDeadlineSeconds // 60)
        job["time_limit"] = {"set": True, "number": minutes}
    job["user_id"] = first.metadata.annotations.get(USER, "")
    job["excluded_nodes"] = _all_excluded(asked.get("excluded_nodes"), excluded)
    return {key: value for key, value in job.items() if value not in ("", [])}


def _all_excluded(wished: object, computed: Sequence[str]) -> list[str]:
    """Nodes not to use. Never the opposite: a job that requires a node dies with that node."""
    names = {*computed, *(expand_hostlist(wished) if isinstance(wished, str) else ())}
    return [collapse_hostlist(names)] if names else []


def _job_name(gang: str, first: Pod) -> str:
    kind, _, rest = gang.partition("/")
    return (first.key if kind == "pod" else group_of(rest))[:_NAME_LENGTH]


def _asked(container: Container) -> dict[str, Decimal]:
    return _amounts(container.resources)


def _amounts(resources: Resources) -> dict[str, Decimal]:
    """Requests; a limit without a request is the request."""
    merged: Amounts = {**resources.limits, **resources.requests}
    return {name: quantity(value) for name, value in merged.items()}


def _sum(*parts: Mapping[str, Decimal]) -> dict[str, Decimal]:
    total: dict[str, Decimal] = {}
    for part in parts:
        for name, value in part.items():
            total[name] = total.get(name, Decimal(0)) + value
    return total


def _most(one: Mapping[str, Decimal], other: Mapping[str, Decimal]) -> dict[str, Decimal]:
    zero = Decimal(0)
    return {k: max(one.get(k, zero), other.get(k, zero)) for k in {**one, **other}}
