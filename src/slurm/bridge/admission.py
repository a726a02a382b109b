"""What admission says to a pod: a pure function from the API server's question to its answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from slurm.bridge.identity import Requester, identify, possible
from slurm.bridge.kube_types import Pod
from slurm.bridge.names import (
    ACCOUNT,
    DEVICE_CLASS,
    FINALIZER,
    GATE,
    HELD,
    MANAGED,
    PREFIX,
    RESERVED_ANNOTATIONS,
    RESERVED_LABELS,
    TAINT,
    USER,
)
from slurm.bridge.parameters import PARAMETERS, asked, fields, problems
from slurm.bridge.settings import Settings
from slurm.bridge.sizes import Contradiction, sizes_of
from slurm.bridge.translation import needs_of, requests_of
from slurm.errors import nearest

DAEMON_SETS = "system:serviceaccount:kube-system:daemon-set-controller"
_KUBELETS = "system:node:"
_MIRROR = "kubernetes.io/config.mirror"
Patch = list[dict[str, Any]]


@dataclass(frozen=True)
class Question:
    """One admission request, with what its owners' annotations ask for."""

    operation: str
    namespace: str
    user: str
    groups: tuple[str, ...]
    pod: Pod
    old: Pod | None = None
    subresource: str = ""
    inherited: Mapping[str, str] = field(default_factory=dict)
    # A DaemonSet of a listed namespace controls the pod: read and verified, not said by the pod.
    daemon: bool = False


@dataclass(frozen=True)
class Answer:
    """Yes with changes, or no with the reason."""

    allowed: bool = True
    message: str = ""
    patch: Patch = field(default_factory=list)


class _Who(msgspec.Struct, frozen=True):
    username: str = ""
    groups: list[str] = msgspec.field(default_factory=list)


class Request(msgspec.Struct, frozen=True):
    """The request of an AdmissionReview, its objects still unread."""

    uid: str
    operation: str = ""
    namespace: str = ""
    subResource: str = ""
    userInfo: _Who = msgspec.field(default_factory=_Who)
    object: msgspec.Raw = msgspec.Raw(b"null")
    oldObject: msgspec.Raw = msgspec.Raw(b"null")


class _Review(msgspec.Struct, frozen=True):
    request: Request


_REVIEWS = msgspec.json.Decoder(_Review, strict=False)


def read_review(content: bytes) -> Request:
    """The request in an AdmissionReview; raises `msgspec.MsgspecError` for anything else."""
    return _REVIEWS.decode(content).request


def read_question(
    request: Request, inherited: Mapping[str, str], *, daemon: bool = False
) -> Question:
    """The question in a request; raises `msgspec.MsgspecError` where there is no pod in it."""
    old = msgspec.json.decode(request.oldObject, type=Pod | None, strict=False)
    return Question(
        operation=request.operation,
        namespace=request.namespace,
        user=request.userInfo.username,
        groups=tuple(request.userInfo.groups),
        pod=msgspec.json.decode(request.object, type=Pod, strict=False),
        old=old,
        subresource=request.subResource,
        inherited=inherited,
        daemon=daemon,
    )


def mutate(question: Question, settings: Settings) -> Answer:
    """A new pod: gate, toleration, finalizer and identity on it, or the reason why not."""
    if _left_alone(question):
        return Answer()
    pod, meta = question.pod, question.pod.metadata
    annotations = {**question.inherited, **meta.annotations}
    who = Requester(
        question.namespace,
        pod.spec.serviceAccountName or "default",
        question.user,
        question.groups,
    )
    own = settings.slurm.partition or ""
    identity = identify(settings.identity, who, annotations, own)
    wrong = [*_preset(pod), *_unsupported(pod, settings), *problems(annotations)]
    wrong += _contradiction(pod, annotations, settings)
    wrong += [identity.problem] if identity.problem else []
    if wrong:
        return _refusal(wrong)
    given = {USER: identity.user, **({ACCOUNT: identity.account} if identity.account else {})}
    return Answer(patch=_patch(pod, settings, {**question.inherited, **given}))


def validate(question: Question, settings: Settings, bridge: str) -> Answer:
    """A pod as it will be stored: nobody but the bridge may undo what admission wrote."""
    if question.user == bridge or _left_alone(question):
        return Answer()
    pod, old = question.pod, question.old
    if question.operation == "CREATE":
        ready = GATE in pod.gates and MANAGED in pod.metadata.labels
        ready = ready and USER in pod.metadata.annotations
        lost = "the pod lost its gate, label or user on the way; another webhook removed them"
        return Answer() if ready else _refusal([lost])
    if old is None or MANAGED not in old.metadata.labels:
        added = RESERVED_LABELS & set(pod.metadata.labels) if old else set()
        return (
            _refusal([f"label {n} is the bridge's own" for n in sorted(added)])
            if added
            else Answer()
        )
    if question.subresource == "resize":
        return _refusal(
            ["a pod placed by Slurm cannot be resized: its node was chosen for its size"]
        )
    return _refusal(_changes(question, old, settings))


def _left_alone(question: Question) -> bool:
    """Pods that belong to nodes, not to users: a listed DaemonSet's, and a kubelet's own files."""
    if question.user.startswith(_KUBELETS):
        return _MIRROR in question.pod.metadata.annotations
    return question.daemon and question.user == DAEMON_SETS


def _preset(pod: Pod) -> list[str]:
    meta = pod.metadata
    found = [f"label {n}" for n in sorted(RESERVED_LABELS & set(meta.labels))]
    found += [f"annotation {n}" for n in sorted(RESERVED_ANNOTATIONS & set(meta.annotations))]
    wrong = [f"{what} is the bridge's own; remove it" for what in found]
    for label in meta.labels:
        name = label.removeprefix(PREFIX)
        if label.startswith(PREFIX) and label not in RESERVED_LABELS:
            like = f"; did you mean annotation {PREFIX}{name}?" if name in PARAMETERS else ""
            close = None if like else nearest(name, PARAMETERS)
            hint = like or (
                f"; parameters are annotations, such as {PREFIX}{close}" if close else ""
            )
            wrong.append(f"label {label} means nothing to the bridge{hint}")
    return wrong


def _unsupported(pod: Pod, settings: Settings) -> list[str]:
    spec = pod.spec
    affinity = spec.affinity
    wrong = []
    if spec.resourceClaims:
        wrong.append("resourceClaims are not supported; ask for devices as resources or with gres")
    devices = {
        n for n in requests_of(pod) if n.startswith(DEVICE_CLASS) and n not in settings.nodes.gres
    }
    wrong += [f"{name} asks for a device class; map it in nodes.gres" for name in sorted(devices)]
    if any(c.whenUnsatisfiable == "DoNotSchedule" for c in spec.topologySpreadConstraints):
        wrong.append("topologySpreadConstraints with DoNotSchedule: Slurm does not know of them")
    for name in ("podAffinity", "podAntiAffinity"):
        rule = getattr(affinity, name) if affinity else None
        if rule and rule.requiredDuringSchedulingIgnoredDuringExecution:
            wrong.append(f"required {name}: Slurm does not know of it; use preferred, or exclusive")
    if (grace := spec.terminationGracePeriodSeconds or 0) > settings.longest_grace:
        wrong.append(
            f"terminationGracePeriodSeconds {grace}: the pod would outlive its job; "
            f"at most {settings.longest_grace:g}"
        )
    ports = [p for c in spec.containers for p in c.ports if p.hostPort]
    if ports and settings.mode == "direct":
        wrong.append("hostPort: in direct mode nobody checks that it is free on the node")
    return wrong


def _contradiction(pod: Pod, annotations: Mapping[str, str], settings: Settings) -> list[str]:
    """What annotations and requests say that cannot both hold."""
    try:
        sizes_of([needs_of(pod, settings.nodes.gres)], fields(annotations))
    except (Contradiction, ValueError) as error:
        return [str(error.message if isinstance(error, Contradiction) else error)]
    return []


def _changes(question: Question, old: Pod, settings: Settings) -> list[str]:
    """What an update changes that only the bridge may change."""
    pod = question.pod
    wrong = []
    for label in sorted(RESERVED_LABELS):
        if pod.metadata.labels.get(label) != old.metadata.labels.get(label):
            wrong.append(f"label {label} is the bridge's own")
    now, before = pod.metadata.annotations, old.metadata.annotations
    for name in sorted(RESERVED_ANNOTATIONS):
        released = name == HELD and name not in now
        if now.get(name) != before.get(name) and not released:
            wrong.append(f"annotation {name} is the bridge's own")
    if GATE in old.gates and GATE not in pod.gates:
        wrong.append(f"gate {GATE} is removed when Slurm has placed the pod")
    if FINALIZER in old.metadata.finalizers and FINALIZER not in pod.metadata.finalizers:
        wrong.append(f"finalizer {FINALIZER} is removed when the pod has stopped")
    wanted, had = asked(now), asked(before)
    changed = {name for name in {*wanted, *had} if wanted.get(name) != had.get(name)}
    wrong += [
        f"annotation {PREFIX}{name} cannot be changed; create the pod anew"
        for name in sorted(changed)
        if name in PARAMETERS and PARAMETERS[name].guarded
    ]
    if not changed:
        return wrong
    account_of = pod.spec.serviceAccountName or "default"
    who = Requester(pod.metadata.namespace, account_of, question.user, question.groups)
    user, account, own = now.get(USER, ""), now.get(ACCOUNT, ""), settings.slurm.partition or ""
    beyond = possible(settings.identity, who, user, account, now, own)
    wrong += [*problems(now), *_contradiction(pod, now, settings), *([beyond] if beyond else [])]
    return wrong


def _refusal(wrong: list[str]) -> Answer:
    return Answer(allowed=not wrong, message="slurm bridge: " + "; ".join(wrong) if wrong else "")


def _patch(pod: Pod, settings: Settings, annotations: Mapping[str, str]) -> Patch:
    """The changes as a JSON patch."""
    meta, spec = pod.metadata, pod.spec
    patch: Patch = [{"op": "remove", "path": "/spec/nodeName"}] if spec.nodeName else []
    patch += _entries("/metadata/labels", meta.labels, {MANAGED: "true"})
    patch += _entries("/metadata/annotations", meta.annotations, annotations)
    toleration = {"key": TAINT, "operator": "Exists"}
    patch += _item("/metadata/finalizers", meta.finalizers, FINALIZER)
    patch += _item("/spec/schedulingGates", spec.schedulingGates, {"name": GATE})
    patch += _item("/spec/tolerations", spec.tolerations, toleration)
    if settings.mode == "direct":
        patch.append({"op": "add", "path": "/spec/schedulerName", "value": settings.scheduler_name})
    return patch


def _entries(path: str, there: Mapping[str, str], new: Mapping[str, str]) -> Patch:
    if not there:
        return [{"op": "add", "path": path, "value": dict(new)}] if new else []
    return [
        {"op": "add", "path": f"{path}/{key.replace('~', '~0').replace('/', '~1')}", "value": value}
        for key, value in new.items()
    ]


def _item(path: str, there: list[Any], value: object) -> Patch:
    if there:
        return [{"op": "add", "path": path + "/-", "value": value}]
    return [{"op": "add", "path": path, "value": [value]}]
