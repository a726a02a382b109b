"""Who a pod is to Slurm: user and account from a mapping, within which annotations choose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from slurm.bridge.names import PREFIX
from slurm.bridge.parameters import asked
from slurm.bridge.settings import Rule


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


def identify(rules: Sequence[Rule], who: Requester, annotations: Mapping[str, str]) -> Identity:
    """The identity that the first fitting rule gives, with the annotations' choice checked."""
    rule = next((r for r in rules if _fits(r, who)), None)
    if rule is None:
        return Identity(
            problem=f"no identity rule maps namespace {who.namespace!r}, service account "
            f"{who.service_account!r} to a Slurm user; ask who runs the bridge to add one"
        )
    wanted = asked(annotations)
    if "group-id" in wanted:
        return Identity(problem=f"annotation {PREFIX}group-id: Slurm takes the user's own group")
    if "priority" in wanted and not rule.allow_priority:
        return Identity(problem=f"annotation {PREFIX}priority is not allowed here; use nice or qos")
    user, wrong = _choice("user-id", wanted.get("user-id"), rule.user, rule.allow_users)
    account, other = _choice("account", wanted.get("account"), rule.account, rule.allow_accounts)
    if not user and not wrong:
        wrong = (
            f"choose a Slurm user with annotation {PREFIX}user-id: {', '.join(rule.allow_users)}"
        )
    return Identity(user, account, "; ".join(filter(None, (wrong, other))))


def possible(rules: Sequence[Rule], who: Requester, user: str, account: str) -> bool:
    """Whether some rule for this namespace and service account may have given this identity.

    The scheduler asks it again of what admission wrote, in case something got past admission.
    """
    return any(
        fnmatchcase(who.namespace, r.namespace)
        and fnmatchcase(who.service_account, r.service_account)
        and user in (r.user, *r.allow_users)
        and account in (r.account, *r.allow_accounts)
        for r in rules
    )


def _fits(rule: Rule, who: Requester) -> bool:
    by_person = not rule.users and not rule.groups
    return (
        fnmatchcase(who.namespace, rule.namespace)
        and fnmatchcase(who.service_account, rule.service_account)
        and (by_person or who.user in rule.users or bool(set(who.groups) & set(rule.groups)))
    )


def _choice(name: str, wanted: str | None, given: str, allowed: list[str]) -> tuple[str, str]:
    """The value, and what is wrong with the one that was asked for."""
    if wanted is None or wanted == given:
        return given, ""
    if wanted in allowed:
        return wanted, ""
    may = ", ".join(filter(None, (given, *allowed))) or "none"
    return given, f"annotation {PREFIX}{name}: {wanted[:80]!r} is not allowed here; allowed: {may}"
