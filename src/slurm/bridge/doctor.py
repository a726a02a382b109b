"""What is wrong with a bridge, and where a pod is on its way: for people."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import msgspec

from slurm.api.rest_client import RestClient
from slurm.bridge.actions import JobView
from slurm.bridge.gang import STATES, job_of
from slurm.bridge.kube import Access, Kube, KubeError
from slurm.bridge.kube_types import Node, Pod
from slurm.bridge.manifests import ADMISSION, REGISTRATIONS, WEBHOOK_NAME, failure_policy
from slurm.bridge.metrics import Metrics
from slurm.bridge.names import ACCOUNT, CONDITION, GATE, HELD, MANAGED, NODE, USER
from slurm.bridge.nodes import SlurmNode, shape_of, slurm_name
from slurm.bridge.paths import BadName, api_path
from slurm.bridge.service import cluster_identity
from slurm.bridge.settings import Settings
from slurm.bridge.slurm_jobs import SlurmJobs
from slurm.errors import RestError, SlurmError

_WAYS = {
    True: "external jobs; nodes are registered over REST (Slurm 25.11 and later)",
    False: "external jobs on nodes that slurm.conf declares EXTERNAL (Slurm 25.05)",
}
_OLD = "a sleeping batch job beside slurmd on each node (before Slurm 25.05)"


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    what: str
    good: bool
    detail: str
    fix: str = ""


@asynccontextmanager
async def _both(settings: Settings, access: Access) -> AsyncIterator[tuple[Kube, SlurmJobs]]:
    at = settings.slurm
    client = RestClient(
        at.url, token_file=at.token_file, user=at.user, ca_file=at.ca_file, timeout=at.timeout
    )
    async with Kube(access) as kube:
        slurm = SlurmJobs(client, await cluster_identity(kube), Metrics(), cluster=at.cluster)
        try:
            yield kube, slurm
        finally:
            slurm.close()


async def examine(settings: Settings, access: Access) -> list[Finding]:
    """Look at everything that an installation needs."""
    async with _both(settings, access) as (kube, slurm):
        found = [Finding("Kubernetes", True, f"{access.url} answers")]
        found += await _slurm_findings(slurm)
        found += [_identity(settings), *await _webhook(kube)]
        nodes = await _nodes(kube)
        known = await slurm.nodes() if all(f.good for f in found if f.what == "Slurm") else {}
        return [*found, *_node_findings(settings, nodes, known), _policy(settings, nodes)]


async def _slurm_findings(slurm: SlurmJobs) -> list[Finding]:
    try:
        answer = await slurm.call("GET", "nodes/")
    except RestError as error:
        return [Finding("Slurm", False, error.message, error.hint or "")]
    about = (answer.get("meta") or {}).get("slurm") or {}
    way = _WAYS[slurm.registers_nodes] if slurm.external_jobs else _OLD
    detail = f"cluster {slurm.cluster}, Slurm {about.get('release')}, API {slurm.client.version}"
    return [Finding("Slurm", True, detail), Finding("placeholders", True, way)]


def _identity(settings: Settings) -> Finding:
    rules = len(settings.identity)
    if rules:
        return Finding("identity", True, f"{rules} rules")
    fix = "add to the configuration: identity: [{namespace: NAME, user: SLURMUSER}]"
    return Finding("identity", False, "no rule: every pod is refused", fix)


async def _webhook(kube: Kube) -> list[Finding]:
    for plural in REGISTRATIONS:
        try:
            content = await kube.ask("GET", api_path(plural, api=ADMISSION, name=WEBHOOK_NAME))
        except KubeError as error:
            fix = "install what `slurm bridge render` prints"
            return [Finding("webhook", False, error.message, fix)]
        hooks = msgspec.json.decode(content).get("webhooks") or []
        if not all(hook["clientConfig"].get("caBundle") for hook in hooks):
            fix = "is a bridge running? With certificates: files, give the authority to the chart"
            detail = f"{plural}: the API server does not know the bridge's authority"
            return [Finding("webhook", False, detail, fix)]
    return [Finding("webhook", True, "registered")]


async def _nodes(kube: Kube) -> list[Node]:
    rows: list[Any] = msgspec.json.decode(await kube.ask("GET", api_path("nodes")))["items"]
    return msgspec.convert(rows, list[Node], strict=False)


def _node_findings(
    settings: Settings, nodes: list[Node], known: dict[str, SlurmNode]
) -> list[Finding]:
    mine = [n for n in nodes if settings.nodes.label in n.metadata.labels]
    if not mine:
        fix = f"kubectl label node NODE {settings.nodes.label}="
        return [Finding("nodes", False, "no node is given to Slurm", fix)]
    found = []
    for node in mine:
        slurm = known.get(slurm_name(node))
        if slurm is None:
            fix = "is the bridge running? MaxNodeCount in slurm.conf must leave room for it"
            found.append(Finding(node.metadata.name, False, "Slurm does not have it", fix))
            continue
        shape = shape_of(node, settings.nodes)
        bigger = slurm.cpus > shape.cpus or slurm.memory > shape.memory
        detail = f"{'+'.join(sorted(slurm.states))}, {slurm.cpus} CPUs, {slurm.memory} MiB"
        fix = "Slurm counts on more than Kubernetes has: pods would be refused" if bigger else ""
        found.append(Finding(node.metadata.name, not bigger, detail, fix))
    return found


def _policy(settings: Settings, nodes: list[Node]) -> Finding:
    granted = failure_policy(settings, nodes)
    if granted == settings.failure_policy:
        return Finding("failurePolicy", True, granted)
    fix = "let the bridge taint Slurm's nodes (nodes.taint: NoSchedule)"
    return Finding("failurePolicy", False, "Ignore is refused: a node has no taint", fix)


async def explain_pod(settings: Settings, access: Access, namespace: str, name: str) -> list[str]:
    """The pod's way, step by step, and what comes next."""
    async with _both(settings, access) as (kube, slurm):
        try:
            path = api_path("pods", namespace=namespace, name=name)
            content = await kube.ask("GET", path)
        except (BadName, KubeError) as error:
            return [f"pod {namespace}/{name}: {error.message}"]
        pod = msgspec.json.decode(content, type=Pod, strict=False)
        number = job_of(pod)
        job: JobView | None = None
        trouble = ""
        if number is not None:
            try:
                job = await slurm.job(number)
            except SlurmError as error:
                trouble = error.message
        return way_of(pod, job, trouble)


def way_of(pod: Pod, job: JobView | None, trouble: str = "") -> list[str]:
    """The lines that `explain` prints: a pure function."""
    meta = pod.metadata
    lines = [f"pod {pod.key} ({meta.uid})"]
    if MANAGED not in meta.labels:
        return [*lines, "  it is not the bridge's: its namespace is not opted in"]
    account = meta.annotations.get(ACCOUNT)
    identity = meta.annotations.get(USER, "?") + (f", account {account}" if account else "")
    lines.append(f"  admitted as Slurm user {identity}")
    if HELD in meta.annotations:
        lines.append(f"  held: {meta.annotations[HELD]}")
    number = job_of(pod)
    if number is None:
        said = next((c for c in pod.status.conditions if c.type == CONDITION), None)
        return [*lines, "  no Slurm job yet" + (f": {said.message}" if said else "")]
    lines.append(f"  Slurm job {number}: {_job_words(job, trouble)}")
    if GATE in pod.gates:
        return [*lines, "  waits for Slurm to start the job"]
    lines.append(f"  placed on node {meta.annotations.get(NODE, '?')}")
    bound = f"  bound to {pod.spec.nodeName}" if pod.spec.nodeName else "  not bound yet"
    return [*lines, bound, f"  phase {pod.status.phase}"]


def _job_words(job: JobView | None, trouble: str) -> str:
    if job is None:
        return trouble or "Slurm does not know it any more"
    placed = f" on {','.join(job.nodes)}" if job.nodes else f" ({job.reason})" if job.reason else ""
    return f"{job.state}{placed}; {STATES[job.state][0].value}" if job.live else str(job.state)
