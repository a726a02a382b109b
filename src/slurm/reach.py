"""How the host of a cluster is reached: the arguments of `Cluster` that speak of a connection."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from slurm import errors

if TYPE_CHECKING:
    from typing import TypeAlias

    from slurm.api.connect import RestSettings, SlurmSettings
    from slurm.api.looking import Looking
    from slurm.api.openssh import SshSettings

    Reach: TypeAlias = SshSettings | RestSettings | SlurmSettings

BACKENDS = ("local", "embedded", "debug", "ssh", "rest")

#: Where runs lie that were told nothing else.
DEFAULT_BASE = "~/slurm_jobs"

#: What says how a cluster is reached.
CONNECTION = (
    *("hostname", "username", "port", "identity_file", "jump_host", "ssh_options"),
    *("connect_timeout", "remote_python", "rest_url", "token_file", "slurm_conf"),
)

_SSH_ONLY = ("username", "port", "identity_file", "jump_host", "ssh_options", "remote_python")


def open_backend(arguments: Mapping[str, Any], inside: bool = False) -> Looking:
    """A look at the cluster that `Cluster(**arguments)` means, with nothing else around it."""
    from slurm.api.connect import connect
    from slurm.api.looking import OnlyLooks

    kind = kind_of(arguments.get("backend_type", "local"), arguments.get("hostname"))
    base = str(arguments.get("job_base_dir") or DEFAULT_BASE)
    trust = check_trust(arguments.get("trust_group"))
    return OnlyLooks(connect(kind, base, reach(kind, arguments), True, bool(trust)), inside)


def kind_of(backend_type: str, hostname: str | None) -> str:
    """The type of a backend, checked; a host alone says that it is reached by ssh."""
    if backend_type not in BACKENDS:
        close = errors.nearest(str(backend_type), BACKENDS)
        raise errors.OptionError(
            f"backend_type={backend_type!r} is not known; this version has "
            f"{errors.join_names([repr(b) for b in BACKENDS])}",
            hint=f"did you mean {close!r}?" if close else 'leave it out: "local" is the default',
        )
    return "ssh" if hostname is not None and backend_type == "local" else backend_type


def check_trust(given: object) -> bool | None:
    """`trust_group`, checked; None where nothing was said."""
    if given is not None and not isinstance(given, bool):
        raise errors.OptionError(
            f"trust_group={given!r} is neither True nor False",
            hint="trust_group=True shares job_base_dir with the members of its group",
        )
    return given


def reach(backend_type: str, given: Mapping[str, Any]) -> Reach | None:
    """How a cluster with these arguments is reached; None for one that needs no connection."""
    # Each refuses what belongs to another type, so all three are asked.
    ssh, rest = _ssh(backend_type, given), _rest(backend_type, given)
    conf = _conf(backend_type, given)
    return ssh or rest or conf


def refuse_secrets(options: Mapping[str, Any]) -> None:
    """No password is taken as an argument of a cluster."""
    secret = next((n for n in ("password", "passphrase", "token") if n in options), None)
    if secret is not None:
        raise errors.OptionError(
            f"{secret}= is never taken as an argument: it could land on disk, in a log or in a "
            "list of processes",
            hint="use a key with an ssh-agent, or log in once by hand: slurm login HOST",
        )


def _ssh(backend_type: str, given: Mapping[str, Any]) -> SshSettings | None:
    """How the login node is reached."""
    hostname = given.get("hostname")
    if backend_type == "ssh":
        from slurm.api.openssh import settings

        return settings(
            hostname,
            username=given.get("username"),
            port=given.get("port"),
            identity_file=given.get("identity_file"),
            jump_host=given.get("jump_host"),
            ssh_options=given.get("ssh_options") or (),
            connect_timeout=given.get("connect_timeout", 20.0),
            remote_python=given.get("remote_python"),
        )
    for name in _SSH_ONLY:
        if given.get(name):
            raise errors.OptionError(
                f'{name}={given[name]!r} is for backend_type="ssh" only',
                hint='Cluster(backend_type="ssh", hostname=...)',
            )
    if hostname is not None:
        raise errors.OptionError(
            f"hostname={hostname!r} does not go with backend_type={backend_type!r}",
            hint='leave backend_type out, or say backend_type="ssh"',
        )
    return None


def _rest(backend_type: str, given: Mapping[str, Any]) -> RestSettings | None:
    """How slurmrestd is reached."""
    url, token_file = given.get("rest_url"), given.get("token_file")
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


def _conf(backend_type: str, given: Mapping[str, Any]) -> SlurmSettings | None:
    """Which of several clusters of this machine is meant; None: that of `SLURM_CONF`."""
    slurm_conf = given.get("slurm_conf")
    if not slurm_conf:
        return None
    if backend_type != "local":
        raise errors.OptionError(
            f"slurm_conf={os.fspath(slurm_conf)!r} does not go with backend_type={backend_type!r}",
            hint='it names a cluster of this machine: backend_type="local"',
        )
    from slurm.api.connect import SlurmSettings

    return SlurmSettings(os.path.abspath(os.path.expanduser(os.fspath(slurm_conf))))
