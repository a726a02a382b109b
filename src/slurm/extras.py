"""The extras of the package: what each installs, and what to type where one is missing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from slurm.errors import UsageError

_NAME = "slurm-sdk"
#: The modules of each extra of pyproject.toml.
EXTRAS: dict[str, frozenset[str]] = {
    "bridge": frozenset({"aiohttp", "cryptography", "prometheus_client", "yaml"}),
    "migrate": frozenset({"libcst"}),
    "monitor": frozenset({"bcrypt", "yaml"}),
    "otel": frozenset({"opentelemetry"}),
    "tui": frozenset({"textual"}),
    "web": frozenset({"starlette", "uvicorn"}),
}


@contextmanager
def needs_extra(extra: str, user: str, instead: str = "") -> Iterator[None]:
    """Imports of an extra's modules; a missing one is named with the command that installs it.

    `user` is what needs the extra, `instead` what works without it. Any other failed import stays
    what it is.
    """
    try:
        yield
    except ImportError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in EXTRAS[extra]:
            raise
        raise UsageError(
            f"{user} needs the extra {extra!r}: {missing} is not installed",
            hint=install_command(extra, _origin()) + (f"; {instead}" if instead else ""),
        ) from error


def install_command(extra: str, origin: dict[str, Any] | None) -> str:
    """The command that adds an extra to an installation from `origin` (PEP 610), None if unknown.

    The name alone is never the answer: on PyPI it is another project.
    """
    import shlex
    from urllib.parse import unquote, urlsplit

    url = origin["url"] if origin else ""
    parts = urlsplit(url)
    editable = bool(origin and origin.get("dir_info", {}).get("editable"))
    if not url:
        what = f"slurm_sdk-{_version()}-py3-none-any.whl[{extra}]"
    elif parts.scheme != "file":
        what = f"{_NAME}[{extra}] @ {url}"
    else:
        path = unquote(parts.path)
        here = os.path.isdir(path) and os.path.realpath(path) == os.path.realpath(os.getcwd())
        what = f"{'.' if here else path}[{extra}]"
    return f"pip install {'-e ' if editable else ''}{shlex.quote(what)}"


def _origin() -> dict[str, Any] | None:
    """Where pip took this package from: a clone, a wheel, or None where it did not note it."""
    import json
    from importlib import metadata

    try:
        found = metadata.distribution(_NAME).read_text("direct_url.json")
        said = json.loads(found) if found else None
    except (metadata.PackageNotFoundError, ValueError):
        return None
    return said if isinstance(said, dict) and isinstance(said.get("url"), str) else None


def _version() -> str:
    from slurm import __version__

    return __version__
