"""Who acts: a Lease that one replica holds, and the fence that stops the one who lost it."""

from __future__ import annotations

import asyncio
import logging
import time
from datetime import datetime, timezone
from typing import Any

import msgspec

from slurm.bridge.kube import Kube, KubeError
from slurm.bridge.paths import api_path
from slurm.errors import SlurmError

log = logging.getLogger("slurm.bridge.lease")


class NotLeader(SlurmError):
    """This replica must not write: it does not hold the lease."""

    code = "SLURM-E811"


class Lease:
    """Takes the lease, renews it, and knows until when it may be relied on.

    Clocks of two hosts are never compared: another's lease has run out when it was not renewed for
    its length by this host's own clock. A holder stops two thirds into it, before others may start.
    """

    def __init__(self, kube: Kube, namespace: str, name: str, holder: str, seconds: float) -> None:
        self._kube, self._name, self.holder, self._seconds = kube, name, holder, seconds
        self._all = api_path("leases", api="coordination.k8s.io/v1", namespace=namespace)
        self._path = api_path(
            "leases", api="coordination.k8s.io/v1", namespace=namespace, name=name
        )
        self._valid_until = 0.0
        self._seen: tuple[str, float] = ("", 0.0)
        self.gained = asyncio.Event()
        self.lost = asyncio.Event()
        self.lost.set()

    def held(self) -> bool:
        """Whether this replica may write now."""
        return time.monotonic() < self._valid_until

    def check(self) -> None:
        """Raise `NotLeader` unless this replica may write now."""
        if not self.held():
            raise NotLeader(f"{self.holder} does not hold the lease {self._name}")

    async def run(self) -> None:
        """Try to hold it until cancelled, then let go, so that the next need not wait."""
        try:
            while True:
                await self._round()
                await asyncio.sleep(self._seconds / 5 if self.held() else self._seconds / 8)
        finally:
            await self._let_go()

    async def _round(self) -> None:
        begun = time.monotonic()
        try:
            if await self._try():
                self._valid_until = begun + self._seconds * 2 / 3
        except KubeError as error:
            log.warning("lease: %s", error)
        if self.held() and not self.gained.is_set():
            log.info("%s holds the lease", self.holder)
            self.lost.clear()
            self.gained.set()
        elif not self.held() and self.gained.is_set():
            log.warning("%s lost the lease", self.holder)
            self.gained.clear()
            self.lost.set()

    async def _try(self) -> bool:
        """One attempt to take or renew it; the API server lets one of two writers win."""
        try:
            lease = await self._get()
        except KubeError as error:
            if error.status != 404:
                raise
            body = {"metadata": {"name": self._name}, "spec": self._spec(0)}
            return await self._write("POST", self._all, body)
        spec, version = lease.get("spec") or {}, lease["metadata"]["resourceVersion"]
        if version != self._seen[0]:
            self._seen = (version, time.monotonic())
        mine = spec.get("holderIdentity") == self.holder
        length = float(spec.get("leaseDurationSeconds") or self._seconds)
        expired = time.monotonic() - self._seen[1] > length
        if not mine and spec.get("holderIdentity") and not expired:
            return False
        turns = int(spec.get("leaseTransitions") or 0) + (0 if mine else 1)
        lease["spec"] = {**spec, **self._spec(turns)}
        return await self._write("PUT", self._path, lease)

    async def _get(self) -> dict[str, Any]:
        content = await self._kube.ask("GET", self._path, timeout=self._seconds / 3)
        value: dict[str, Any] = msgspec.json.decode(content)
        return value

    async def _write(self, method: str, path: str, body: object) -> bool:
        try:
            await self._kube.ask(method, path, body=body, timeout=self._seconds / 3)
        except KubeError as error:
            if error.status == 409:
                return False
            raise
        return True

    def _spec(self, turns: int) -> dict[str, object]:
        now = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        return {
            "holderIdentity": self.holder,
            "leaseDurationSeconds": max(1, round(self._seconds)),
            "renewTime": now,
            "leaseTransitions": turns,
        }

    async def _let_go(self) -> None:
        if not self.held():
            return
        self._valid_until = 0.0
        try:
            lease = await self._get()
            if lease["spec"].get("holderIdentity") == self.holder:
                lease["spec"]["holderIdentity"] = ""
                await self._write("PUT", self._path, lease)
        except KubeError as error:
            log.info("lease: not given back: %s", error)
