"""How the host of a cluster is reached: the arguments of `Cluster` that speak of a connection."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from slurm import errors

if TYPE_CHECKING:
    from slurm.api.backend import Backend
    from slurm.api.connect import RestSettings, SlurmSettings
    from slurm.api.openssh import SshSettings

#: Where runs lie that were told nothing else.
DEFAULT_BASE = "~/slurm_jobs"

#: What says how a cluster is reached.
CONNECTION = (
    *("hostname", "username", "port", "identity_file", "jump_host", "ssh_options"),
    *("connect_timeout", "remote_python", "rest_url", "token_file", "slurm_conf"),
)


_SSH_ONLY = ("username", "port", "identity_file", "jump_host", "ssh_options", "remote_python")


def open_backend(arguments: Mapping[str, Any]) -> Backend:
    """The backend that `Cluster(**arguments)` has, for a look that needs nothing else of it."""
    from slurm.api.connect import connect

    kind = kind_of(arguments.get("backend_type", "local"), arguments.get("hostname"))
    given = tuple(
        arguments.get(name) or (() if name == "ssh_options" else None) for name in _SSH_ONLY
    )
    timeout = arguments.get("connect_timeout", 20.0)
    how = reached(kind, arguments.get("hostname"), given, timeout, {})
    rest = rest_reached(kind, arguments.get("rest_url"), arguments.get("token_file"))
    local = conf_reached(kind, arguments.get("slurm_conf"))
    base = str(arguments.get("job_base_dir") or DEFAULT_BASE)
    return connect(kind, base, how or rest or local)


def kind_of(backend_type: str, hostname: str | None) -> str:
    """The type of a backend; a host alone says that it is reached by ssh."""
    return "ssh" if hostname is not None and backend_type == "local" else backend_type


def reached(
    backend_type: str,
    hostname: str | None,
    given: tuple[Any, ...],
    connect_timeout: float,
    options: Mapping[str, Any],
) -> SshSettings | None:
    """How the host is reached; None for a cluster that needs no connection."""
    secret = next((n for n in ("password", "passphrase", "token") if n in options), None)
    if secret is not None:
        raise errors.OptionError(
            f"{secret}= is never taken as an argument: it could land on disk, in a log or in a "
            "list of processes",
            hint="use a key with an ssh-agent, or log in once by hand: slurm login HOST",
        )
    if backend_type != "ssh":
        for name, value in zip(_SSH_ONLY, given, strict=True):
            if value:
                raise errors.OptionError(
                    f'{name}={value!r} is for backend_type="ssh" only',
                    hint='Cluster(backend_type="ssh", hostname=...)',
                )
        if hostname is not None:
            raise errors.OptionError(
                f"hostname={hostname!r} does not go with backend_type={backend_type!r}",
                hint='leave backend_type out, or say backend_type="ssh"',
            )
        return None
    from slurm.api.openssh import settings

    username, port, identity_file, jump_host, ssh_options, remote_python = given
    return settings(
        hostname,
        username=username,
        port=port,
        identity_file=identity_file,
        jump_host=jump_host,
        ssh_options=ssh_options,
        connect_timeout=connect_timeout,
        remote_python=remote_python,
    )


def rest_reached(
    backend_type: str, url: str | None, token_file: str | os.PathLike[str] | None
) -> RestSettings | None:
    """How slurmrestd is reached; None for a cluster that has another way."""
    if backend_type == "rest" and url:
        from slurm.api.connect import RestSettings

        return RestSettings(url, os.fspath(token_file) if token_file else None)
    if backend_type == "rest":
        raise errors.OptionError(
            'backend_type="rest" needs rest_url=...',
            hint='Cluster(backend_type="rest", rest_url="http://127.0.0.1:6820", token_file=...)',
        )
    if url or token_file:
        name = "rest_url" if url else "token_file"
        raise errors.OptionError(
            f'{name}= is for backend_type="rest" only', hint='Cluster(backend_type="rest", ...)'
        )
    return None


def conf_reached(
    backend_type: str, slurm_conf: str | os.PathLike[str] | None
) -> SlurmSettings | None:
    """Which of several clusters of this machine is meant; None: that of `SLURM_CONF`."""
    if not slurm_conf:
        return None
    if backend_type != "local":
        raise errors.OptionError(
            f"slurm_conf={os.fspath(slurm_conf)!r} does not go with backend_type={backend_type!r}",
            hint='it names a cluster of this machine: backend_type="local"',
        )
    from slurm.api.connect import SlurmSettings

    return SlurmSettings(os.path.abspath(os.path.expanduser(os.fspath(slurm_conf))))
