"""OpenSSH as a program: its command line, its control socket, and what its complaints mean."""

from __future__ import annotations

import hashlib
import os
import re
import stat
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from slurm import errors
from slurm.api.bundle import BOOT, NO_PYTHON

#: Pythons that are looked for, in this order.
PYTHONS = (
    "python3",
    *(f"python3.{minor}" for minor in range(14, 5, -1)),
    "/usr/bin/python3",
    "/usr/local/bin/python3",
    "/usr/libexec/platform-python",
)


@dataclass(frozen=True)
class SshSettings:
    """How a host is reached; all that is left out is as the user's own ssh configuration says."""

    hostname: str
    username: str | None = None
    port: int | None = None
    identity_file: str | None = None
    jump_host: str | None = None
    options: tuple[str, ...] = ()
    connect_timeout: float = 20.0
    python: str | None = None

    @property
    def words(self) -> list[str]:
        """The options of ssh that say which host is meant and how it is reached."""
        found: list[str] = []
        for option in self.options:
            found += ["-o", option]
        if self.username:
            found += ["-l", self.username]
        if self.port:
            found += ["-p", str(self.port)]
        if self.identity_file:
            found += ["-i", os.path.expanduser(self.identity_file)]
        if self.jump_host:
            found += ["-J", self.jump_host]
        return found

    @property
    def name(self) -> str:
        """The host as a person would write it."""
        user = f"{self.username}@" if self.username else ""
        return f"{user}{self.hostname}" + (f":{self.port}" if self.port else "")

    @property
    def login_command(self) -> str:
        """What a person types to log in where ssh has to ask something."""
        import shlex

        words = ["slurm", "login", self.hostname]
        for name, value in (
            ("--username", self.username),
            ("--port", self.port),
            ("--identity-file", self.identity_file),
            ("--jump-host", self.jump_host),
        ):
            words += [name, str(value)] if value else []
        for option in self.options:
            words += ["--ssh-option", option]
        return shlex.join(words)


def settings(
    hostname: object,
    *,
    username: str | None = None,
    port: int | str | None = None,
    identity_file: str | os.PathLike[str] | None = None,
    jump_host: str | None = None,
    ssh_options: Mapping[str, object] | Sequence[str] = (),
    connect_timeout: float = 20.0,
    remote_python: str | None = None,
) -> SshSettings:
    """Check the arguments of a connection; what could be taken for something else is refused."""
    if not hostname or not isinstance(hostname, str):
        raise errors.OptionError(
            'backend_type="ssh" needs a hostname',
            hint='Cluster(backend_type="ssh", hostname="login.hpc.example.com")',
        )
    host = hostname
    if "@" in host:
        user, _, host = hostname.rpartition("@")
        if ":" in user:
            raise errors.OptionError(
                "hostname contains a password; passwords are never taken as arguments",
                hint="use a key, or log in once by hand: slurm login HOST",
            )
        username = username or user
    for name, value in (("hostname", host), ("username", username), ("jump_host", jump_host)):
        if value is not None and not re.fullmatch(
            r"[A-Za-z0-9_.:,@%\[\]][-\w.:,@%\[\]+\\]*", value
        ):
            raise errors.OptionError(
                f"{name}={value!r} is not a name that ssh could take",
                hint="letters, digits, dots, dashes and colons; not a dash first",
            )
    return SshSettings(
        host,
        username,
        _port(port),
        os.fspath(identity_file) if identity_file is not None else None,
        jump_host,
        _options(ssh_options),
        _seconds(connect_timeout),
        _python(remote_python),
    )


def _port(port: int | str | None) -> int | None:
    if port is None:
        return None
    if not str(port).isdigit() or not 0 < int(port) < 65536:
        raise errors.OptionError(f"port={port!r} is not a port", hint="a number from 1 to 65535")
    return int(port)


def _seconds(value: float) -> float:
    if not 0 < float(value) <= 3600:
        raise errors.OptionError(
            f"connect_timeout={value!r} is not a number of seconds", hint="such as 20"
        )
    return float(value)


def _options(given: Mapping[str, object] | Sequence[str]) -> tuple[str, ...]:
    if isinstance(given, str):
        given = (given,)
    pairs = (
        [f"{name}={value}" for name, value in given.items()]
        if isinstance(given, Mapping)
        else [str(option) for option in given]
    )
    for pair in pairs:
        if not re.fullmatch(r"[A-Za-z]\w*[= ][^\n\r\0]+", pair):
            raise errors.OptionError(
                f"ssh_options has {pair!r}, which is not an option of ssh_config",
                hint='write them as in ssh_config: ssh_options={"ForwardAgent": "no"}',
            )
    return tuple(pairs)


def _python(given: str | None) -> str | None:
    if given is not None and (not given or re.search(r"[^\w./+~ -]", given) or given[0] == "-"):
        raise errors.OptionError(
            f"remote_python={given!r} is not a path or a name of a Python",
            hint='such as remote_python="/opt/python/3.11/bin/python3"',
        )
    return given


# ---- the command line ---------------------------------------------------------------------------


def remote_command(python: str | None) -> str:
    """What the login shell, whichever it is, is asked to run: a search for a Python, then it.

    All of it is one word in single quotes for the login shell, and has neither single quotes nor
    backslashes, `!` or line breaks: bash, zsh, tcsh and fish read it alike.
    """
    found = " ".join(f'"{_at_home(name)}"' for name in ([python] if python else PYTHONS))
    script = (
        f"for p in {found}; do "
        'command -v "$p" >/dev/null 2>&1 || continue; '
        f'"$p" -I -S -c "{BOOT}"; r=$?; '
        f'case $r in 2|{NO_PYTHON}|126|127) echo "slurm-sdk: $p is no Python of 3.6 or newer" >&2;'
        "continue;; esac; exit $r; done; "
        f"echo slurm-sdk: no Python was found >&2; exit {NO_PYTHON}"
    )
    return f"exec /bin/sh -c '{script}'"


def _at_home(name: str) -> str:
    return "$HOME" + name[1:] if name.startswith("~/") else name


def ssh_command(how: SshSettings, control: str | None) -> list[str]:
    """The command that starts the agent; `control` None: the user's own control socket."""
    words = ["ssh", "-T", *how.words, *_common(how), "-o", "BatchMode=yes"]
    if control is not None:
        words += ["-o", "ControlMaster=auto", "-o", f"ControlPath={control}"]
        words += ["-o", "ControlPersist=10m"]
    return [*words, "--", how.hostname, remote_command(how.python)]


def shell_words(how: SshSettings, control: str | None, command: str, tty: bool) -> list[str]:
    """The command that runs a line of shell there, over the open connection where there is one."""
    # Of two equal options the first counts.
    words = ["ssh", "-o", f"RequestTTY={'force' if tty else 'no'}", *how.words, *_common(how)]
    if control is not None:
        words += ["-o", f"ControlPath={control}"]
    return [*words, "--", how.hostname, command]


def login_words(how: SshSettings, control: str) -> list[str]:
    """The command that opens the control socket; ssh asks the user what the host wants."""
    words = ["ssh", "-fN", *how.words, *_common(how), "-o", "ControlMaster=yes"]
    words += ["-o", f"ControlPath={control}", "-o", "ControlPersist=yes"]
    return [*words, "--", how.hostname]


def control_words(how: SshSettings, control: str, verb: str) -> list[str]:
    """The command that checks or ends the process behind a control socket."""
    return ["ssh", "-O", verb, *how.words, "-o", f"ControlPath={control}", "--", how.hostname]


def _common(how: SshSettings) -> list[str]:
    timeout = max(1, round(how.connect_timeout))
    pairs = (f"ConnectTimeout={timeout}", "ServerAliveInterval=15", "ServerAliveCountMax=3")
    found = ["-x", "-a"] if not _named(how, "ForwardAgent") else ["-x"]
    for pair in (*pairs, "RequestTTY=no", "RemoteCommand=none", "LogLevel=ERROR"):
        found += ["-o", pair]
    return found


def _named(how: SshSettings, name: str) -> bool:
    return any(re.split("[= ]", pair)[0].lower() == name.lower() for pair in how.options)


def control_path(how: SshSettings) -> str:
    """Our own control socket for this host: a short name in a directory that only we can enter."""
    folder = control_folder()
    text = "\0".join(map(str, (how.hostname, *how.words)))
    return os.path.join(folder, hashlib.sha256(text.encode()).hexdigest()[:12])


def control_folder() -> str:
    """The private directory of control sockets; one that others could enter is refused."""
    # Windows has no such sockets and no user ids: there each connection stands for itself.
    user = os.getuid() if hasattr(os, "getuid") else 0
    above = os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()
    if not os.path.isdir(above) or len(above) > 50:
        above = "/tmp"
    folder = os.environ.get("SLURM_SDK_SSH_DIR") or os.path.join(above, f"slurm-sdk-ssh-{user}")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    info = os.lstat(folder)
    if hasattr(os, "getuid") and (
        info.st_uid != user or not stat.S_ISDIR(info.st_mode) or info.st_mode & 0o077
    ):
        raise errors.ConnectError(
            f"{folder} is not a directory that only you can use",
            hint="remove it, or set SLURM_SDK_SSH_DIR to a private directory with a short name",
        )
    return folder


# ---- what went wrong ----------------------------------------------------------------------------

_COMPLAINTS: tuple[tuple[str, type[errors.ConnectError], str], ...] = (
    (
        "Could not resolve hostname|Name or service not known|nodename nor servname",
        errors.HostNotFound,
        "the name {host} is not known to the network",
    ),
    (
        "REMOTE HOST IDENTIFICATION HAS CHANGED|Host key .*changed|POSSIBLE DNS SPOOFING",
        errors.HostKeyChanged,
        "the host key of {host} is another than the one you know",
    ),
    (
        "Host key verification failed|host key is known for .* strict|No matching host key",
        errors.HostKeyUnknown,
        "the host key of {host} is not known to you yet",
    ),
    (
        "Connection refused",
        errors.HostUnreachable,
        "{host} refuses connections: no sshd listens at this port",
    ),
    (
        "timed out|No route to host|Network is unreachable|Host is down",
        errors.HostUnreachable,
        "{host} does not answer",
    ),
    (
        "Permission denied|Too many authentication failures|Authentication failed",
        errors.AuthenticationFailed,
        "{host} did not accept the key",
    ),
)

_FIXES: dict[type[errors.ConnectError], str] = {
    errors.HostNotFound: "check hostname=; `ssh {host}` has to work in a terminal",
    errors.HostUnreachable: "check hostname= and port=, VPN and firewall; "
    "jobs that were submitted are not affected",
    errors.HostKeyChanged: "find out from the site why it changed; only then remove the old one: "
    "ssh-keygen -R {host}",
    errors.HostKeyUnknown: "connect once by hand and compare the fingerprint: {login}",
    errors.AuthenticationFailed: "check username= and identity_file=; a key with a passphrase "
    "needs an ssh-agent, or log in once: {login}",
    errors.LoginNeeded: "log in once; it is asked for in your terminal: {login}",
    errors.RemotePythonMissing: 'say where it is: Cluster(..., remote_python="/path/to/python3")',
}

#: Where trying again later can help.
PASSING: tuple[type[errors.ConnectError], ...] = (
    errors.HostUnreachable,
    errors.HostNotFound,
    errors.ConnectionLost,
)


def _how_it_ended(code: int | None, silent: float) -> str:
    """What is to be said of a connection about which ssh itself said nothing that is known."""
    if silent:
        return (
            f"{{host}} did not answer within {silent:.0f} s: ssh was started, and no agent greeted "
            "from there"
        )
    return "ssh to {host} ended" + (f" with exit code {code}" if code is not None else "")


def explain_failure(
    how: SshSettings, code: int | None, said: str, silent: float = 0
) -> errors.ConnectError:
    """The typed error for a connection that did not come about, out of what ssh said.

    `silent`: the seconds after which it was given up, where nobody else ended it.
    """
    lines = [line.strip() for line in said.splitlines() if line.strip(" @\t")]
    words = {"host": how.hostname, "login": how.login_command}
    kind: type[errors.ConnectError]
    if code == NO_PYTHON:
        tried = how.python or ", ".join(PYTHONS)
        kind = errors.RemotePythonMissing
        text = f"no Python of 3.6 or newer was found on {how.hostname}; tried {tried}"
    else:
        kind, text = errors.ConnectionLost, _how_it_ended(code, silent)
        for pattern, found, message in _COMPLAINTS:
            if re.search(pattern, said, re.IGNORECASE):
                kind, text = found, message
                break
        methods = re.findall(r"Permission denied \(([^)]*)\)", said)
        if methods and re.search("password|keyboard-interactive|gssapi", methods[-1]):
            kind = errors.LoginNeeded
            text = "{host} wants more than a key (" + methods[-1] + "): a person has to log in"
        text = text.format(**words)
    hint = _FIXES.get(kind, "`ssh {host}` in a terminal shows more; jobs are not affected")
    return kind(text, hint=hint.format(**words), evidence=lines[-8:])
