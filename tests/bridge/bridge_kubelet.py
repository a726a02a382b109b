"""A small kubelet: pods on its nodes start, end when their annotation says so, and can be killed.

It runs no container. It stands in for kubelets, of which none can run beside the tests; what it
writes into a pod's status is what a kubelet writes.
"""

from __future__ import annotations

import asyncio
from typing import Any

from slurm.bridge.kube import STRATEGIC, Kube, KubeError, Watched
from slurm.bridge.kube_types import Pod

EXIT = "test/exit"


class Kubelet:
    """`dead` holds the names of nodes whose kubelet does nothing more."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube
        self.dead: set[str] = set()
        self.started: list[str] = []
        self.slow_exit = 0.0
        self._watched = Watched(kube, "/api/v1/pods", Pod, self._changed)
        self._queue: asyncio.Queue[Pod] = asyncio.Queue()

    def _changed(self, old: Pod | None, new: Pod | None) -> None:
        if new is not None and new.spec.nodeName and new.spec.nodeName not in self.dead:
            self._queue.put_nowait(new)

    async def run(self) -> None:
        watch = asyncio.ensure_future(self._watched.run())
        workers = [asyncio.ensure_future(self._work()) for _ in range(8)]
        try:
            await asyncio.gather(watch, *workers)
        finally:
            for task in (watch, *workers):
                task.cancel()

    async def _work(self) -> None:
        while True:
            pod = await self._queue.get()
            try:
                await self._look(pod)
            except KubeError as error:
                if error.status not in (404, 409):
                    await asyncio.sleep(0.2)
                    self._queue.put_nowait(pod)

    async def _look(self, pod: Pod) -> None:
        code = pod.metadata.annotations.get(EXIT)
        if pod.over:
            if pod.metadata.deletionTimestamp is not None:
                await self._delete(pod)
        elif pod.metadata.deletionTimestamp is not None:
            await asyncio.sleep(self.slow_exit)
            await self._status(pod, "Failed", 143)
            await self._delete(pod)
        elif pod.spec.activeDeadlineSeconds == 1:
            await self._status(pod, "Failed", 143, reason="DeadlineExceeded")
        elif pod.status.phase == "Pending":
            self.started.append(pod.metadata.uid)
            await self._status(pod, "Running")
        elif code is not None:
            await self._status(pod, "Failed" if code != "0" else "Succeeded", int(code))

    async def _status(self, pod: Pod, phase: str, code: int | None = None, **more: Any) -> None:
        state: dict[str, Any] = {"running": {"startedAt": None}}
        if code is not None:
            state = {"terminated": {"exitCode": code}}
        container = {"name": "main", "image": "none", "imageID": "", "ready": code is None}
        status = {"phase": phase, **more, "containerStatuses": [
            {**container, "restartCount": 0, "state": state}]}  # fmt: skip
        await self._kube.ask(
            "PATCH",
            f"{_path(pod)}/status",
            body={"metadata": {"uid": pod.metadata.uid}, "status": status},
            content_type=STRATEGIC,
        )

    async def _delete(self, pod: Pod) -> None:
        body = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "gracePeriodSeconds": 0,
            "preconditions": {"uid": pod.metadata.uid},
        }
        await self._kube.ask("DELETE", _path(pod), body=body)


def _path(pod: Pod) -> str:
    return f"/api/v1/namespaces/{pod.metadata.namespace}/pods/{pod.metadata.name}"
