"""Workloads of other projects: their kinds on the API server, and objects of them.

The definitions are our own and hold what the bridge and its users read of each kind.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import msgspec
from bridge_bed import Bed

from slurm.bridge.kube import Kube, KubeError

JOB_SET = ("jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets")
LEADER_WORKERS = ("leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet", "leaderworkersets")
POD_GROUP = ("scheduling.x-k8s.io", "v1alpha1", "PodGroup", "podgroups")
KINDS = (JOB_SET, LEADER_WORKERS, POD_GROUP)
_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


async def install_kinds(kube: Kube) -> None:
    """Define them, and wait until the API server serves them."""
    for group, version, kind, plural in KINDS:
        free = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        schema = {"type": "object", "properties": {"spec": free, "status": free}}
        served = {"name": version, "served": True, "storage": True}
        name = f"{plural}.{group}"
        # Groups that end in k8s.io are guarded: a definition there says that it is no official one.
        meta = {"name": name, "annotations": {"api-approved.kubernetes.io": "unapproved, a test"}}
        spec = {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
            "versions": [{**served, "schema": {"openAPIV3Schema": schema}}],
        }
        body = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}
        await kube.ask("POST", _DEFINITIONS, body={**body, "metadata": meta, "spec": spec})
    for group, version, _, plural in KINDS:
        for _ in range(600):
            with contextlib.suppress(KubeError):
                await kube.ask("GET", f"/apis/{group}/{version}/{plural}")
                break
            await asyncio.sleep(0.1)


async def make(
    bed: Bed, kind: tuple[str, str, str, str], name: str, spec: dict[str, Any], **meta: Any
) -> dict[str, Any]:
    """Create an object in the scenario's namespace; returns what makes others its children."""
    group, version, word, plural = kind
    api = f"{group}/{version}"
    body = {"apiVersion": api, "kind": word, "metadata": {"name": name, **meta}, "spec": spec}
    path = f"/apis/{api}/namespaces/{bed.namespace}/{plural}"
    made = msgspec.json.decode(await bed.kube.ask("POST", path, body=body))
    uid = made["metadata"]["uid"]
    return {"apiVersion": api, "kind": word, "name": name, "uid": uid, "controller": True}
