"""A real kubelet with a real containerd: one node that starts what Kubernetes puts there.

There is no registry and no network plugin: the one image is made of this machine's `sleep`, and
pods use the host's network.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import subprocess
import tarfile
from pathlib import Path

from bridge_kubernetes import ADMIN, ControlPlane, built
from bridge_processes import Daemon

IMAGE = "localhost/sleep:1"
_CONTAINERD = """\
version = 2
root = "{at}/lib"
state = "{at}/run"
[grpc]
  address = "{at}/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{image}"
  restrict_oom_score_adj = true
  disable_apparmor = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "native"
  [plugins."io.containerd.grpc.v1.cri".cni]
    conf_dir = "{at}/cni"
"""


class KubeletNode:
    """Start it, wait for the node to be ready, and stop it with all that it started."""

    def __init__(self, plane: ControlPlane, folder: Path, name: str, label: str) -> None:
        self._at, self.name = folder, name
        tools = built("build-kubelet")
        path = f"{tools}/containerd/usr/bin:{os.environ['PATH']}"
        self._env = {**os.environ, "PATH": path}
        self._files(plane)
        self._containerd = Daemon(
            "containerd", ["containerd", "-c", f"{folder}/containerd.toml"], folder, {"PATH": path}
        )
        flags = [f"--config={folder}/kubelet.json", f"--kubeconfig={folder}/kubeconfig"]
        flags += [f"--root-dir={folder}/kubelet", f"--cert-dir={folder}/pki", "--node-ip=127.0.0.1"]
        flags += [f"--hostname-override={name}", f"--node-labels={label}="]
        self._kubelet = Daemon("kubelet", [f"{tools}/kubelet", *flags], folder, {"PATH": path})

    def _files(self, plane: ControlPlane) -> None:
        at = self._at
        (at / "cni").mkdir()
        network = {"cniVersion": "0.4.0", "name": "none", "type": "loopback"}
        (at / "cni" / "none.conf").write_text(json.dumps(network))
        (at / "containerd.toml").write_text(_CONTAINERD.format(at=at, image=IMAGE))
        (at / "kubeconfig").write_text(json.dumps(plane.kubeconfig(ADMIN)))
        (at / "image.tar").write_bytes(_image())
        config = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "containerRuntimeEndpoint": f"unix://{at}/containerd.sock",
            "failCgroupV1": False,
            "failSwapOn": False,
            "cgroupDriver": "cgroupfs",
            "cgroupsPerQOS": False,
            "enforceNodeAllocatable": [],
            "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
            "authorization": {"mode": "AlwaysAllow"},
            "address": "127.0.0.1",
            "port": 0,
            "healthzPort": 0,
        }
        (at / "kubelet.json").write_text(json.dumps(config))

    def start(self) -> None:
        self._containerd.start().until(lambda: self._ctr("version").returncode == 0)
        done = self._ctr("images", "import", "--snapshotter", "native", f"{self._at}/image.tar")
        assert done.returncode == 0, done.stderr
        self._kubelet.start()

    def log(self) -> str:
        return self._kubelet.tail()

    def stop(self) -> None:
        self._kubelet.stop()
        for task in self._ctr("tasks", "ls", "-q").stdout.split():
            self._ctr("tasks", "kill", "-s", "SIGKILL", task)
            self._ctr("tasks", "delete", "--force", task)
        self._containerd.stop()
        with contextlib.suppress(OSError):
            mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
            for mount in reversed([m for m in mounts if m.startswith(f"{self._at}/")]):
                subprocess.run(["umount", "-l", mount], timeout=30)

    def _ctr(self, *words: str) -> subprocess.CompletedProcess[str]:
        where = ["ctr", "-a", f"{self._at}/containerd.sock", "-n", "k8s.io"]
        return subprocess.run(
            [*where, *words], capture_output=True, text=True, timeout=120, env=self._env
        )


def _image() -> bytes:
    """`sleep` and its libraries as an image that containerd can import."""
    linked = subprocess.run(["ldd", "/bin/sleep"], capture_output=True, text=True, check=True)
    files = ["/bin/sleep", *(w for w in linked.stdout.split() if w.startswith("/"))]
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        for name in files:
            tar.add(Path(name).resolve(), arcname=name.lstrip("/"))
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Entrypoint": ["/bin/sleep"], "Cmd": ["infinity"]},
        "rootfs": {
            "type": "layers",
            "diff_ids": ["sha256:" + hashlib.sha256(layer.getvalue()).hexdigest()],
        },
    }
    manifest = [{"Config": "config.json", "RepoTags": [IMAGE], "Layers": ["layer.tar"]}]
    parts = {"layer.tar": layer.getvalue(), "config.json": json.dumps(config).encode()}
    parts["manifest.json"] = json.dumps(manifest).encode()
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w") as tar:
        for name, content in parts.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return whole.getvalue()
