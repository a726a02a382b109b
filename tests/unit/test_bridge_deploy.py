"""What installs the bridge is what the code says: the kustomize base, the chart's rights."""

from __future__ import annotations

import ssl
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from slurm.bridge import install
from slurm.bridge.certificates import Certificate, load, make_certificate
from slurm.bridge.doctor import way_of
from slurm.bridge.install import installation, rights
from slurm.bridge.kube_types import Pod
from slurm.bridge.settings import EXAMPLE, Settings
from slurm.cli import main

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"


def test_the_kustomize_base_is_what_render_prints(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["bridge", "render"])
    base = (DEPLOY / "kustomize" / "base" / "bridge.yaml").read_text()
    assert capsys.readouterr().out == base, (
        "slurm bridge render > deploy/kustomize/base/bridge.yaml"
    )


@pytest.mark.parametrize(
    "name", ["node", "pod", "binding", "daemon", "registration", "lease", "secret"]
)
def test_the_chart_gives_the_same_rights(name: str) -> None:
    file = DEPLOY / "helm" / "slurm-bridge" / "files" / f"{name}-rules.yaml"
    assert msgspec.yaml.decode(file.read_bytes()) == getattr(install, f"{name.upper()}_RULES")


SHAPES = [
    Settings(namespaces=["team-a", "team-b"]),
    Settings(namespaces=["team-a"], mode="direct"),
    Settings(namespaces=["team-a"], certificates="files"),
    Settings(namespace_selector={"slurm": "yes"}),
]


@pytest.mark.attack
@pytest.mark.parametrize("settings", SHAPES)
def test_the_bridge_has_no_more_rights_than_it_needs(settings: Settings) -> None:
    everywhere = [rule for _, place, rules in rights(settings) if not place for rule in rules]
    reach = {(verb, what) for r in everywhere for verb in r["verbs"] for what in r["resources"]}
    if settings.namespaces:
        assert not {what for _, what in reach} & {"pods", "pods/status", "pods/binding", "events"}
    created = {what for verb, what in reach if verb in ("create", "update")}
    assert created <= ({"events"} if settings.namespace_selector else set())
    registrations = [r for r in everywhere if "admissionregistration.k8s.io" in r["apiGroups"]]
    assert all(r["resourceNames"] == ["slurm-bridge"] for r in registrations)
    verbs = [r["verbs"] for r in registrations]
    assert verbs == [["get"], *([["patch"]] if settings.certificates == "self" else [])]
    every = [(place, rule) for _, place, rules in rights(settings) for rule in rules]
    secrets = [(place, r) for place, r in every if "secrets" in r["resources"]]
    assert {place for place, _ in secrets} <= {settings.namespace}
    assert bool(secrets) == (settings.certificates == "self")
    bindings = any("pods/binding" in rule["resources"] for _, rule in every)
    assert bindings == (settings.mode == "direct")
    assert not any("*" in rule[key] for _, rule in every for key in ("verbs", "resources"))


def test_what_is_installed_holds_no_secret_and_no_address_without_tls() -> None:
    text = msgspec.json.encode(installation(EXAMPLE)).decode()
    assert '"kind":"Secret"' not in text
    places = [DEPLOY / "helm" / "slurm-bridge" / "values.yaml", *DEPLOY.rglob("kustomization.yaml")]
    assert all("http://" not in each for each in (text, *(p.read_text() for p in places)))


def test_a_certificate_is_believed_by_who_believes_its_authority_and_is_renewed_in_time() -> None:
    old = make_certificate(["bridge.home.svc"], life=timedelta(days=20))
    new = make_certificate(["bridge.home.svc"], older=old.authority)
    assert new.renew_at() > old.renew_at()
    both = new.authority.count(b"BEGIN CERTIFICATE")
    assert both == 2, "callers believe the old one, too, until all replicas have the new one"
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    load(server, new)
    assert _speaks(server, new.authority, "bridge.home.svc")
    assert not _speaks(server, old.authority, "bridge.home.svc")
    assert not _speaks(server, new.authority, "other.svc")


def _speaks(server: ssl.SSLContext, authority: bytes, name: str) -> bool:
    """Whether a handshake in memory succeeds."""
    client = ssl.create_default_context(cadata=authority.decode())
    client.verify_flags |= ssl.VERIFY_X509_STRICT  # Python's own way from 3.13 on
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    one = client.wrap_bio(to_client, to_server, server_hostname=name)
    two = server.wrap_bio(to_server, to_client, server_side=True)
    for side in (one, two, one, two):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
        except ssl.SSLError:
            return False
    return True


def test_a_certificate_in_a_secret_is_base64() -> None:
    assert Certificate(b"a", b"b", b"c").data() == {
        "tls.crt": "YQ==", "tls.key": "Yg==", "ca.crt": "Yw=="}  # fmt: skip


def test_explain_says_where_a_pod_is() -> None:
    pod = {
        "metadata": {
            "name": "p",
            "namespace": "n",
            "uid": "u",
            "labels": {"slurm-sdk/managed": "true"},
            "annotations": {"slurm-sdk/as-user": "alice", "slurm-sdk/held": "cancelled"},
        }
    }
    lines = way_of(msgspec.convert(pod, Pod), None)
    assert lines == [
        "pod n/p (u)",
        "  admitted as Slurm user alice",
        "  held: cancelled",
        "  no Slurm job yet",
    ]
