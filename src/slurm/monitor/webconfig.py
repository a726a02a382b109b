"""web.yml: TLS and passwords as other Prometheus exporters take them, from the same file."""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slurm.errors import ConfigError, nearest
from slurm.extras import needs_extra

_TLS_KEYS = ("cert_file", "key_file", "client_auth_type", "client_ca_file", "min_version")
_KNOWN = ("tls_server_config", "basic_auth_users", "http_server_config")
#: How the toolkit of the other exporters calls it -> what Python calls it.
_CLIENTS = {
    "NoClientCert": ssl.CERT_NONE,
    "RequestClientCert": ssl.CERT_OPTIONAL,
    "VerifyClientCertIfGiven": ssl.CERT_OPTIONAL,
    "RequireAnyClientCert": ssl.CERT_REQUIRED,
    "RequireAndVerifyClientCert": ssl.CERT_REQUIRED,
}
_VERSIONS = {"TLS12": ssl.TLSVersion.TLSv1_2, "TLS13": ssl.TLSVersion.TLSv1_3}
# Checked for a name that nobody has, so that the time does not tell which names there are.
_NOBODY = "$2b$10$rYwaqvokDlng64poReRIReEOiAGME80zrFmw4KOkOTrVMhSAErZii"


@dataclass(frozen=True)
class Passwords:
    """Who may ask, by bcrypt hash; nobody is asked for a password where there are none."""

    users: Mapping[str, str] = field(default_factory=dict)
    #: Headers that were right, as digests: bcrypt is slow on purpose, and scrapes are many.
    _right: set[bytes] = field(default_factory=set, repr=False)
    _salt: bytes = field(default_factory=lambda: os.urandom(32), repr=False)

    def admit(self, header: str | None) -> bool:
        """Whether an Authorization header names a user with the right password."""
        if not self.users:
            return True
        given = (header or "").encode("utf-8", "replace")
        digest = hashlib.blake2b(given, key=self._salt).digest()
        if digest in self._right:
            return True
        user, password = _credentials(header)
        if not _matches(password, self.users.get(user, _NOBODY)) or user not in self.users:
            return False
        if len(self._right) < 100:
            self._right.add(digest)
        return True


@dataclass(frozen=True)
class WebConfig:
    """What protects the exporter's port."""

    tls: ssl.SSLContext | None = None
    passwords: Passwords = field(default_factory=Passwords)


def load_web_config(path: str | Path) -> WebConfig:
    """Read and check web.yml; paths in it are relative to it."""
    with needs_extra("monitor", f"reading {path}"):
        import yaml
    file = Path(path)
    try:
        found = yaml.safe_load(file.read_text(encoding="utf-8")) or {}
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    _check_keys(path, found, _KNOWN)
    tls = found.get("tls_server_config")
    return WebConfig(
        _context(file, tls) if tls else None,
        Passwords(_users(file, found.get("basic_auth_users") or {})),
    )


def _check_keys(path: str | Path, found: object, known: tuple[str, ...]) -> None:
    if not isinstance(found, dict):
        raise ConfigError(f"{path}: expected names with values, got {found!r}")
    for key in found:
        if key not in known:
            close = nearest(str(key), known)
            hint = f"did you mean {close}?" if close else f"known are {', '.join(known)}"
            # What is passed over here would leave a port open that somebody believes closed.
            raise ConfigError(f"{path}: {key} is not known", hint=hint)


def _users(path: Path, users: object) -> dict[str, str]:
    if not isinstance(users, dict):
        raise ConfigError(f"{path}: basic_auth_users has to map names to bcrypt hashes")
    if users:
        with needs_extra("monitor", f"basic_auth_users in {path}"):
            import bcrypt  # noqa: F401 - said now, not at the first scrape
    for name, value in users.items():
        if not str(value).startswith(("$2a$", "$2b$", "$2y$")) or len(str(value)) != 60:
            raise ConfigError(
                f"{path}: the password of {name} is not a bcrypt hash",
                hint="make one: htpasswd -nBC 10 '' | tr -d ':'",
            )
    return {str(name): str(value) for name, value in users.items()}


def _context(path: Path, tls: object) -> ssl.SSLContext:
    _check_keys(path, tls, _TLS_KEYS)
    settings: dict[str, Any] = dict(tls)  # type: ignore[call-overload]
    for key in ("cert_file", "key_file"):
        if not settings.get(key):
            raise ConfigError(f"{path}: tls_server_config needs {key}")
    client = settings.get("client_auth_type") or "NoClientCert"
    version = settings.get("min_version") or "TLS12"
    for key, value, known in (
        ("client_auth_type", client, tuple(_CLIENTS)),
        ("min_version", version, tuple(_VERSIONS)),
    ):
        if value not in known:
            raise ConfigError(f"{path}: {key} {value!r} is none of {', '.join(known)}")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _VERSIONS[version]
    try:
        context.load_cert_chain(
            path.parent / settings["cert_file"], path.parent / settings["key_file"]
        )
        if settings.get("client_ca_file"):
            context.load_verify_locations(path.parent / settings["client_ca_file"])
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"{path}: a certificate or key cannot be loaded: {error}") from error
    if client != "NoClientCert" and not settings.get("client_ca_file"):
        raise ConfigError(f"{path}: client_auth_type {client} needs client_ca_file")
    context.verify_mode = _CLIENTS[client]
    return context


def _credentials(header: str | None) -> tuple[str, str]:
    scheme, _, text = (header or "").partition(" ")
    if scheme.lower() != "basic":
        return "", ""
    try:
        user, _, password = base64.b64decode(text, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return "", ""
    return user, password


def _matches(password: str, hashed: str) -> bool:
    import bcrypt

    # What bcrypt does not look at, it refuses: the first 72 bytes count.
    return bcrypt.checkpw(password.encode()[:72], hashed.encode())
