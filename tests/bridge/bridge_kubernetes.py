"""A real Kubernetes control plane without nodes: etcd, API server, controllers and scheduler."""

from __future__ import annotations

import json
import os
import ssl
import subprocess
import urllib.request
from pathlib import Path

import pytest
from bridge_processes import Daemon, free_port
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from slurm.bridge.certificates import make_certificate
from slurm.bridge.kube import Access, read_kubeconfig

REPOSITORY = Path(__file__).resolve().parents[2]
ADMIN, BRIDGE, USER = "admin-token", "bridge-token", "user-token"
BRIDGE_USER = "system:serviceaccount:slurm-bridge:slurm-bridge"


def built(script: str, **env: str) -> Path:
    """What a script of hack/ makes once and keeps; waits where it is being made.

    BUILD_PATIENCE is for how long, in seconds: a machine that cannot build Kubernetes in the time
    of all tiers says that the bridge was not tested.
    """
    patience = float(os.environ.get("BUILD_PATIENCE", "3600"))
    try:
        done = subprocess.run(
            [REPOSITORY / "hack" / script],
            stdout=subprocess.PIPE,
            timeout=patience,
            env={**os.environ, **env},
        )
    except subprocess.TimeoutExpired:
        pytest.skip(f"THE BRIDGE IS NOT TESTED: hack/{script} is not through after {patience:g} s")
    if done.returncode == 3:
        pytest.skip(f"hack/{script}: no go 1.26 here, so no Kubernetes; or set KUBEBUILDER_ASSETS")
    done.check_returncode()
    return Path(done.stdout.decode().strip())


class ControlPlane:
    def __init__(self, folder: Path, etcd: Path) -> None:
        self.folder = folder
        self._bin = built("build-kubernetes")
        self._etcd_program = etcd
        self.port, self._etcd_port, self._peer_port = free_port(), free_port(), free_port()
        self.daemons: dict[str, Daemon] = {}

    def start(self) -> ControlPlane:
        self._secrets()
        for make in (self._etcd, self._apiserver):
            make()
        self._start_others()
        return self

    def stop(self) -> None:
        for daemon in reversed(self.daemons.values()):
            daemon.stop()

    def _secrets(self) -> None:
        made = make_certificate(["localhost", "127.0.0.1", "kubernetes.default.svc"])
        files = {"tls.crt": made.certificate, "tls.key": made.key, "ca.crt": made.authority}
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
        files["sa.key"] = key.private_bytes(
            pem, serialization.PrivateFormat.TraditionalOpenSSL, plain
        )
        files["sa.pub"] = key.public_key().public_bytes(
            pem, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        groups = '"system:serviceaccounts,system:serviceaccounts:slurm-bridge"'
        rows = [f'{ADMIN},admin,1,"system:masters"', f"{BRIDGE},{BRIDGE_USER},2,{groups}"]
        rows.append(f'{USER},alice,3,"people"')
        files["tokens.csv"] = "\n".join(rows).encode() + b"\n"
        for name, content in files.items():
            (self.folder / name).write_bytes(content)
        (self.folder / "kubeconfig").write_text(json.dumps(self.kubeconfig(ADMIN)))

    def kubeconfig(self, token: str) -> dict[str, object]:
        cluster = {
            "server": f"https://127.0.0.1:{self.port}",
            "certificate-authority": str(self.folder / "ca.crt"),
        }
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "t", "cluster": cluster}],
            "users": [{"name": "t", "user": {"token": token}}],
            "contexts": [{"name": "t", "context": {"cluster": "t", "user": "t"}}],
            "current-context": "t",
        }

    def access(self, token: str = ADMIN) -> Access:
        return read_kubeconfig(self.kubeconfig(token))

    def _etcd(self) -> None:
        client, peer = (f"http://127.0.0.1:{p}" for p in (self._etcd_port, self._peer_port))
        flags = [f"--listen-client-urls={client}", f"--advertise-client-urls={client}"]
        flags += [f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}"]
        flags += [f"--initial-cluster=t={peer}", "--name=t", "--unsafe-no-fsync"]
        flags += [f"--data-dir={self.folder / 'etcd'}", "--log-level=error"]
        daemon = Daemon("etcd", [str(self._etcd_program), *flags], self.folder)
        self.daemons["etcd"] = daemon.start()

    def _apiserver(self) -> None:
        at = self.folder
        flags = [f"--etcd-servers=http://127.0.0.1:{self._etcd_port}", "--bind-address=127.0.0.1"]
        flags += ["--advertise-address=127.0.0.1", f"--secure-port={self.port}"]
        flags += [f"--tls-cert-file={at / 'tls.crt'}", f"--tls-private-key-file={at / 'tls.key'}"]
        flags += [f"--client-ca-file={at / 'ca.crt'}", f"--token-auth-file={at / 'tokens.csv'}"]
        flags += ["--service-account-issuer=https://kubernetes.default.svc"]
        flags += [f"--service-account-key-file={at / 'sa.pub'}"]
        flags += [f"--service-account-signing-key-file={at / 'sa.key'}"]
        flags += ["--service-cluster-ip-range=10.96.0.0/16", "--authorization-mode=RBAC"]
        flags += ["--disable-admission-plugins=ServiceAccount", "--endpoint-reconciler-type=none"]
        flags += ["--runtime-config=scheduling.k8s.io/v1alpha2=true"]
        flags += ["--feature-gates=GenericWorkload=true,GangScheduling=true", "--profiling=false"]
        self.daemons["apiserver"] = Daemon(
            "apiserver", [str(self._bin / "kube-apiserver"), *flags], self.folder
        )
        self.start_apiserver()

    def start_apiserver(self) -> None:
        self.daemons["apiserver"].start().until(self._ready)

    def _ready(self) -> bool:
        context = ssl.create_default_context(cafile=str(self.folder / "ca.crt"))
        request = urllib.request.Request(
            f"https://127.0.0.1:{self.port}/readyz", headers={"Authorization": f"Bearer {ADMIN}"}
        )
        try:
            with urllib.request.urlopen(request, context=context, timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def _start_others(self) -> None:
        config = str(self.folder / "kubeconfig")
        flags = [f"--{name}={config}" for name in ("kubeconfig", "authentication-kubeconfig")]
        flags += [f"--authorization-kubeconfig={config}", "--leader-elect=false"]
        flags += ["--kube-api-qps=500", "--kube-api-burst=1000"]
        more = {
            "kube-controller-manager": [
                "--bind-address=127.0.0.1",
                f"--secure-port={free_port()}",
                f"--service-account-private-key-file={self.folder / 'sa.key'}",
                f"--root-ca-file={self.folder / 'ca.crt'}",
                "--controllers=job-controller,garbage-collector-controller,taint-eviction-controller,"
                "namespace-controller,pod-garbage-collector-controller,daemonset-controller,"
                "replicaset-controller,deployment-controller",
                "--node-monitor-grace-period=1h",
            ],
            "kube-scheduler": [f"--secure-port={free_port()}"],
        }
        for name, own in more.items():
            daemon = Daemon(name, [str(self._bin / name), *flags, *own], self.folder)
            self.daemons[name] = daemon.start()
