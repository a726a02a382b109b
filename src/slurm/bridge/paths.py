"""Paths of the Kubernetes API: the one function that builds them, from checked names."""

from __future__ import annotations

import re
from urllib.parse import quote

from slurm.errors import SlurmError

#: A name of Kubernetes: labels of a DNS name. No slash, no percent sign, no `..`, nothing else.
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_API = re.compile(rf"v1|{_NAME.pattern}/v[0-9]+((alpha|beta)[0-9]+)?")
_PLURAL = re.compile(r"[a-z]+")
_PARTS = frozenset({"", "status", "binding"})
_LONGEST = 253


class BadName(SlurmError):
    """A name that Kubernetes does not give: no path is made of it."""

    code = "SLURM-E801"


def api_path(
    plural: str, *, api: str = "v1", namespace: str = "", name: str = "", part: str = ""
) -> str:
    """The path of a kind, of those in a namespace, or of one object; `BadName` for other text.

    Names come from pods, and the request goes out with the rights of the bridge.
    """
    _check("API", api, _API)
    _check("kind", plural, _PLURAL)
    words = ["api" if api == "v1" else "apis", *api.split("/")]
    if namespace:
        _check("namespace", namespace, _NAMESPACE)
        words += ["namespaces", namespace]
    words.append(plural)
    if name:
        _check("name", name, _NAME)
        words.append(name)
    if part:
        if part not in _PARTS:
            raise BadName(f"{part!r} is no part of an object")
        words.append(part)
    return "/" + "/".join(quote(word, safe="") for word in words)


def _check(what: str, text: str, shape: re.Pattern[str]) -> None:
    if len(text) > _LONGEST or not shape.fullmatch(text):
        raise BadName(
            f"{what} {text[:80]!r} is not one that Kubernetes gives",
            hint="use lower-case letters, digits, '-' and, in names of objects, '.'",
        )
