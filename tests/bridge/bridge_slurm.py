"""A real slurmctld and slurmrestd of Debian's newest Slurm, in a root directory of their own."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import time
from pathlib import Path

from bridge_kubernetes import built
from bridge_processes import Daemon, free_port, listens

from slurm.api.rest_client import RestClient
from slurm.errors import RestError

CONF = """\
ClusterName={name}
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
AuthType=auth/slurm
CredType=cred/slurm
AuthAltTypes=auth/jwt
AuthAltParameters=jwt_key={at}/etc/jwt.key
StateSaveLocation={at}/state
SlurmctldPidFile={at}/slurmctld.pid
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
PreemptType=preempt/partition_prio
PreemptMode=CANCEL
MaxNodeCount=2048
GresTypes=gpu
NodeSet=all Feature=bridge
PartitionName=all Nodes=all Default=YES PriorityTier=1 OverSubscribe=NO
PartitionName=urgent Nodes=all PriorityTier=9 OverSubscribe=NO
SchedulerParameters=sched_min_interval=50000,batch_sched_delay=0,sched_interval=1,bf_interval=1
ReturnToService=2
MinJobAge={min_job_age}
MessageTimeout=10
"""
# The root's /tmp, /proc, /dev and host names are this machine's, seen by the daemon alone.
ENTER = """\
for each in /tmp /proc /dev /etc/hosts; do mount --bind $each "$0$each"; done
exec chroot "$0" "$@"
"""


class SlurmRest:
    def __init__(
        self,
        folder: Path,
        name: str = "bridge",
        min_job_age: int = 300,
        extra: str = "",
        suite: str = "forky",
    ) -> None:
        self.folder, self.name, self._age, self._extra = folder, name, min_job_age, extra
        self.root = built("build-slurm-rest", SUITE=suite)
        self.port, self.rest_port = free_port(), free_port()
        self.token_file = folder / "token"
        self.socket = folder / "run" / "slurmrestd"
        env = {"SLURM_CONF": str(folder / "etc" / "slurm.conf")}
        self.controller = Daemon("slurmctld", self._inside("slurmctld", "-D"), folder, env)
        self.rest = self._rest_daemon(env)

    def _rest_daemon(self, env: dict[str, str], *versions: str) -> Daemon:
        flags = ["-u", "65534", "-g", "65534", "-a", "rest_auth/jwt", "-s", "openapi/slurmctld"]
        flags += ["-d", ",".join(versions)] if versions else []
        where = [f"127.0.0.1:{self.rest_port}", f"unix:{self.socket}"]
        command = self._inside("slurmrestd", *flags, *where)
        return Daemon("slurmrestd", command, self.folder, {**env, "SLURM_JWT": "daemon"})

    def serve_only(self, *versions: str) -> None:
        """Start slurmrestd anew with these data parsers."""
        self.rest.stop()
        env = {"SLURM_CONF": str(self.folder / "etc" / "slurm.conf")}
        self.rest = self._rest_daemon(env, *versions)
        self.start_rest()

    def slurmd(self, node: str) -> Daemon:
        """A slurmd for a node that `extra` declares."""
        env = {"SLURM_CONF": str(self.folder / "etc" / "slurm.conf")}
        return Daemon("slurmd", self._inside("slurmd", "-D", "-N", node), self.folder, env)

    def _inside(self, *command: str) -> list[str]:
        into = ["unshare", "--mount", "--propagation", "private", "sh", "-c", ENTER]
        return [*into, str(self.root), *command]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.rest_port}"

    @property
    def client(self) -> RestClient:
        return RestClient(self.url, token_file=self.token_file)

    def start(self) -> SlurmRest:
        for part in ("etc", "state", "run"):
            (self.folder / part).mkdir(parents=True, exist_ok=True)
        # slurmrestd, as nobody, makes its socket there.
        (self.folder / "run").chmod(0o777)
        # slurmrestd runs as nobody and reads the configuration.
        for place in (self.folder, *self.folder.parents):
            if str(place).startswith("/tmp/"):
                place.chmod(place.stat().st_mode | 0o111)
        text = CONF.format(name=self.name, port=self.port, at=self.folder, min_job_age=self._age)
        (self.folder / "etc" / "slurm.conf").write_text(text + self._extra)
        (self.folder / "etc" / "cgroup.conf").write_text("CgroupPlugin=disabled\n")
        for name, size in (("jwt.key", 32), ("slurm.key", 1024)):
            path = self.folder / "etc" / name
            if not path.exists():
                path.write_bytes(os.urandom(size))
                path.chmod(0o600)
        self.write_token()
        self.start_controller()
        self.start_rest()
        return self

    def start_controller(self) -> None:
        self.controller.start().until(lambda: listens(self.port))

    def start_rest(self) -> None:
        self.socket.unlink(missing_ok=True)
        self.rest.start().until(self._answers)

    def _answers(self) -> bool:
        try:
            self.client.call("GET", "ping/")
        except RestError:
            return False
        return True

    def stop(self) -> None:
        self.rest.stop()
        self.controller.stop()

    def write_token(self, life: float = 86400) -> None:
        """Give the bridge a token; a negative life has run out already."""
        self.token_file.write_bytes(self.token("root", life) + b"\n")

    def token(self, user: str, life: float = 86400) -> bytes:
        """A token as `scontrol token` makes it."""
        now = int(time.time())
        head, claims = {"alg": "HS256", "typ": "JWT"}, {"exp": int(now + life), "iat": now - 1}
        text = b".".join(_coded(json.dumps(p).encode()) for p in (head, {**claims, "sun": user}))
        key = (self.folder / "etc" / "jwt.key").read_bytes()
        return text + b"." + _coded(hmac.new(key, text, hashlib.sha256).digest())


def _coded(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")
