"""What installs the bridge is what the code says: the kustomize base, the chart's rights."""

from __future__ import annotations

import ssl
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from slurm.bridge.certificates import Certificate, load, make_certificate
from slurm.bridge.doctor import way_of
from slurm.bridge.install import CLUSTER_RULES, HOME_RULES
from slurm.bridge.kube_types import Pod
from slurm.cli import main

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"


def test_the_kustomize_base_is_what_render_prints(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["bridge", "render"])
    base = (DEPLOY / "kustomize" / "base" / "bridge.yaml").read_text()
    assert capsys.readouterr().out == base, (
        "slurm bridge render > deploy/kustomize/base/bridge.yaml"
    )


@pytest.mark.parametrize(("name", "rules"), [("cluster", CLUSTER_RULES), ("home", HOME_RULES)])
def test_the_chart_gives_the_same_rights(name: str, rules: list[object]) -> None:
    file = DEPLOY / "helm" / "slurm-bridge" / "files" / f"{name}-rules.yaml"
    assert msgspec.yaml.decode(file.read_bytes()) == rules


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
