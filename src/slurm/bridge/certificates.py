"""The webhook's certificate: made here and renewed in time, kept in a Secret for all replicas."""

from __future__ import annotations

import base64
import logging
import ssl
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from slurm.bridge.kube import Kube, KubeError
from slurm.bridge.paths import api_path

log = logging.getLogger("slurm.bridge.certificates")

LIFE = timedelta(days=90)
RENEW_BEFORE = timedelta(days=30)
_SECRET = "slurm-bridge-webhook"


@dataclass(frozen=True)
class Certificate:
    """A certificate, its key, and the authorities that callers should believe (PEM)."""

    certificate: bytes
    key: bytes
    authority: bytes

    def renew_at(self) -> datetime:
        """When a new one should be made."""
        made = x509.load_pem_x509_certificate(self.certificate)
        return made.not_valid_after_utc - RENEW_BEFORE

    def data(self) -> dict[str, str]:
        """As a Secret holds it."""
        parts = {"tls.crt": self.certificate, "tls.key": self.key, "ca.crt": self.authority}
        return {name: base64.b64encode(value).decode() for name, value in parts.items()}


def make_certificate(
    names: Sequence[str], *, life: timedelta = LIFE, older: bytes = b""
) -> Certificate:
    """A self-made authority and a certificate for these names.

    `older` authorities stay believed, so that replicas may change over one after the other.
    """
    now = datetime.now(timezone.utc)
    authority_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    authority = _sign("slurm-bridge-ca", authority_key, authority_key, "slurm-bridge-ca", now, life)
    leaf = _sign(names[0], key, authority_key, "slurm-bridge-ca", now, life, names)
    pem = serialization.Encoding.PEM
    private = key.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return Certificate(leaf.public_bytes(pem), private, authority.public_bytes(pem) + _last(older))


def _sign(
    subject: str,
    key: ec.EllipticCurvePrivateKey,
    signer: ec.EllipticCurvePrivateKey,
    issuer: str,
    now: datetime,
    life: timedelta,
    names: Sequence[str] = (),
) -> x509.Certificate:
    def named(text: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:64])])

    builder = (
        x509.CertificateBuilder()
        .subject_name(named(subject))
        .issuer_name(named(issuer))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        # A little before now: clocks differ.
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + life)
        .add_extension(x509.BasicConstraints(ca=not names, path_length=None), critical=True)
        # Without what follows, callers that check strictly (Python from 3.13 on) refuse it.
        .add_extension(_key_usage(authority=not names), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
        )
    )
    if names:
        builder = builder.add_extension(
            x509.SubjectAlternativeName([_alternative(name) for name in names]), critical=False
        )
    return builder.sign(signer, hashes.SHA256())


def _key_usage(*, authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not authority,
        key_cert_sign=authority,
        crl_sign=authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _alternative(name: str) -> x509.GeneralName:
    from ipaddress import ip_address

    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _last(authorities: bytes) -> bytes:
    """The newest of earlier authorities: the one before it is believed no longer."""
    end = b"-----END CERTIFICATE-----\n"
    first, found, _ = authorities.partition(end)
    return first + found


def load(context: ssl.SSLContext, certificate: Certificate) -> None:
    """Use the certificate for new connections."""
    with tempfile.NamedTemporaryFile() as both:
        both.write(certificate.certificate + certificate.key)
        both.flush()
        context.load_cert_chain(both.name)


def read_files(folder: str | Path) -> Certificate:
    """The files that cert-manager writes."""
    place = Path(folder)
    names = ("tls.crt", "tls.key", "ca.crt")
    first, second, third = (
        (place / n).read_bytes() if (place / n).exists() else b"" for n in names
    )
    return Certificate(first, second, third)


class CertificateSecret:
    """The certificate in the bridge's Secret."""

    def __init__(self, kube: Kube, namespace: str, names: Sequence[str]) -> None:
        self._kube, self._names = kube, list(names)
        self._namespace = namespace

    async def current(self) -> Certificate:
        """The one that is there, or a new one where it is missing, of other names, or old.

        Two replicas may try at once: the API server lets one win, the other reads what it wrote.
        """
        for _ in range(3):
            secret = await self._read()
            there = _from(secret) if secret else None
            now = datetime.now(timezone.utc)
            if there and there.renew_at() > now and _is_for(there, self._names):
                return there
            made = make_certificate(self._names, older=there.authority if there else b"")
            if await self._write(secret, made):
                log.info("made a certificate for %s", self._names[0])
                return made
        raise KubeError("the webhook's certificate could not be kept: others write it all the time")

    def _path(self, name: str = "") -> str:
        return api_path("secrets", namespace=self._namespace, name=name)

    async def _read(self) -> dict[str, Any] | None:
        try:
            content = await self._kube.ask("GET", self._path(_SECRET))
        except KubeError as error:
            if error.status == 404:
                return None
            raise
        value: dict[str, Any] = msgspec.json.decode(content)
        return value

    async def _write(self, secret: dict[str, Any] | None, made: Certificate) -> bool:
        body: dict[str, Any] = secret or {
            "metadata": {"name": _SECRET},
            "type": "kubernetes.io/tls",
        }
        body["data"] = made.data()
        method, path = ("PUT", self._path(_SECRET)) if secret else ("POST", self._path())
        try:
            await self._kube.ask(method, path, body=body)
        except KubeError as error:
            if error.status == 409:
                return False
            raise
        return True


def _from(secret: Mapping[str, Any]) -> Certificate | None:
    data = secret.get("data") or {}
    try:
        parts = [base64.b64decode(data[name]) for name in ("tls.crt", "tls.key", "ca.crt")]
        found = Certificate(*parts)
        found.renew_at()
    except (KeyError, ValueError):
        return None
    return found


def _is_for(certificate: Certificate, names: Sequence[str]) -> bool:
    made = x509.load_pem_x509_certificate(certificate.certificate)
    held = made.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return {*held.get_values_for_type(x509.DNSName)} >= {n for n in names if not n[:1].isdigit()}
