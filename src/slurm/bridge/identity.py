"""Who a pod is to Slurm: user and account from a mapping, within which annotations choose."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from slurm.bridge.kube_types import Pod
from slurm.bridge.names import ACCOUNT, PREFIX, USER
from slurm.bridge.parameters import PARAMETERS, asked
from slurm.bridge.settings import Rule, Settings

_ANY = "*"


@dataclass(frozen=True)
class Requester:
    """Who asks for a pod, as the API server knows it; without a name, what the pod alone says."""

    namespace: str
    service_account: str = "default"
    user: str = ""
    groups: tuple[str, ...] = ()


@dataclass(frozen=True)
class Identity:
    """Slurm's user and account for a pod, or what is wrong."""

    user: str = ""
    account: str = ""
    problem: str = ""


def identify(
    rules: Sequence[Rule], who: Requester, annotations: Mapping[str, str], partition: str = ""
) -> Identity:
    """The identity that the first fitting rule gives, with the annotations' choice checked.

    `partition` is the bridge's own, which everybody may name.
    """
    rule = next((r for r in rules if _fits(r, who)), None)
    if rule is None:
        return Identity(
            problem=f"no identity rule maps namespace {who.namespace!r}, service account "
            f"{who.service_account!r} to a Slurm user; ask who runs the bridge to add one"
        )
    wanted = asked(annotations)
    user, wrong = _choice("user-id", wanted.get("user-id"), rule.user, rule.allow_users)
    account, other = _choice("account", wanted.get("account"), rule.account, rule.allow_accounts)
    if not user and not wrong:
        wrong = (
            f"choose a Slurm user with annotation {PREFIX}user-id: {', '.join(rule.allow_users)}"
        )
    problems = [*filter(None, (wrong, other)), *_beyond(rule, wanted, partition)]
    return Identity(user, account, "; ".join(problems))


def possible(
    rules: Sequence[Rule],
    who: Requester,
    user: str,
    account: str,
    annotations: Mapping[str, str],
    partition: str = "",
) -> str:
    """Why no rule for this namespace and service account gives this identity these wishes; or "".

    It is asked where annotations change, and again before a job is submitted, in case something
    got past admission; then nobody knows any more who created the pod.
    """
    giving = [
        rule
        for rule in _candidates(rules, who)
        if user in (rule.user, *rule.allow_users)
        and account in (rule.account, *rule.allow_accounts)
    ]
    if not giving or not user:
        return f"no rule here gives Slurm user {user[:80]!r} with account {account[:80]!r}"
    wrong = [list(_beyond(rule, asked(annotations), partition)) for rule in giving]
    return "" if [] in wrong else "; ".join(wrong[0])


def problem_of(settings: Settings, pods: Sequence[Pod]) -> str:
    """Why one of these pods may not have what the first asks for, whose wishes count; or ""."""
    wishes, own = pods[0].metadata.annotations, settings.slurm.partition or ""
    for pod in pods:
        meta = pod.metadata
        who = Requester(meta.namespace, pod.spec.serviceAccountName or "default")
        user, account = meta.annotations.get(USER, ""), meta.annotations.get(ACCOUNT, "")
        if wrong := possible(settings.identity, who, user, account, wishes, own):
            return f"{pod.key}: {wrong}"
    return ""


def _candidates(rules: Sequence[Rule], who: Requester) -> Iterator[Rule]:
    """The rules that can have decided: the first for this person, and the first for everybody.

    Where the person is not known, all persons' rules before the one for everybody. No later one
    counts, however much it allows.
    """
    found = False
    for rule in rules:
        if not _place_fits(rule, who):
            continue
        if not (rule.users or rule.groups):
            yield rule
            return
        if not who.user or (not found and _fits(rule, who)):
            found = True
            yield rule


def _place_fits(rule: Rule, who: Requester) -> bool:
    return fnmatchcase(who.namespace, rule.namespace) and fnmatchcase(
        who.service_account, rule.service_account
    )


def _beyond(rule: Rule, wanted: Mapping[str, str], partition: str) -> Iterator[str]:
    """What annotations ask for that the rule does not list."""
    if "group-id" in wanted:
        yield f"annotation {PREFIX}group-id: Slurm takes the user's own group"
    if "priority" in wanted and not rule.allow_priority:
        yield f"annotation {PREFIX}priority is not allowed here; use nice"
    for name, text in wanted.items():
        key = PARAMETERS[name].listed if name in PARAMETERS else ""
        if not key:
            continue
        listed: list[str] = getattr(rule, key)
        own = [partition] if name == "partition" and partition else []
        unknown = [v for v in text.strip().split(",") if v not in (*own, *listed)]
        if unknown and _ANY not in listed:
            may = ", ".join((*own, *listed)) or "none"
            yield (
                f"annotation {PREFIX}{name}: {unknown[0][:80]!r} is not allowed here; "
                f"allowed: {may}"
            )


def _fits(rule: Rule, who: Requester) -> bool:
    by_person = not rule.users and not rule.groups
    return _place_fits(rule, who) and (
        by_person or who.user in rule.users or bool(set(who.groups) & set(rule.groups))
    )


def _choice(name: str, wanted: str | None, given: str, allowed: list[str]) -> tuple[str, str]:
    """The value, and what is wrong with the one that was asked for."""
    if wanted is None or wanted == given:
        return given, ""
    if wanted in allowed:
        return wanted, ""
    may = ", ".join(filter(None, (given, *allowed))) or "none"
    return given, f"annotation {PREFIX}{name}: {wanted[:80]!r} is not allowed here; allowed: {may}"
