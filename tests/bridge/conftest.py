"""A real Kubernetes control plane and a real Slurm with slurmrestd, once for the session."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from bridge_bed import PLACES, Bed, bed
from bridge_kubernetes import REPOSITORY, ControlPlane
from bridge_slurm import SlurmRest
from bridge_workloads import install_kinds

from slurm.bridge.kube import Kube

Scenario = Callable[[Bed], Awaitable[None]]
# A user of the namespace; nothing more than `edit` gives.
_USER_RIGHTS = [
    {"apiGroups": ["", "batch", "apps", "scheduling.k8s.io"], "resources": ["*"], "verbs": ["*"]}
]


@pytest.fixture(scope="session")
def folder() -> Iterator[Path]:
    place = Path(tempfile.mkdtemp(prefix="bridge-", dir="/tmp"))
    yield place
    shutil.rmtree(place, ignore_errors=True)


@pytest.fixture(scope="session")
def slurm_rest(folder: Path) -> Iterator[SlurmRest]:
    place = folder / "slurm"
    place.mkdir()
    slurm = SlurmRest(place)
    try:
        yield slurm.start()
    finally:
        slurm.stop()


@pytest.fixture(scope="session")
def control_plane(folder: Path, slurm_rest: SlurmRest) -> Iterator[ControlPlane]:
    place = folder / "kubernetes"
    place.mkdir()
    plane = ControlPlane(place, slurm_rest.root / "usr" / "bin" / "etcd")
    try:
        plane.start()
        asyncio.run(_rights(plane))
        yield plane
    finally:
        plane.stop()


async def _rights(plane: ControlPlane) -> None:
    """The bridge's own rights as shipped, those of an ordinary user, and other projects' kinds."""
    shipped = (REPOSITORY / "deploy" / "kustomize" / "base" / "bridge.yaml").read_bytes()
    # Those of a namespace come with the namespace: Bed.prepare.
    made = ("slurm-bridge", "kube-system", None)
    objects = [
        o
        for o in _documents(shipped)
        if o["kind"] in PLACES and o["metadata"].get("namespace") in made
    ]
    group = "rbac.authorization.k8s.io"
    name = {"metadata": {"name": "test-user"}}
    objects.append({"kind": "ClusterRole", **name, "rules": _USER_RIGHTS})
    reference = {"apiGroup": group, "kind": "ClusterRole", "name": "test-user"}
    subject = {"apiGroup": group, "kind": "User", "name": "alice"}
    objects.append(
        {"kind": "ClusterRoleBinding", **name, "roleRef": reference, "subjects": [subject]}
    )
    async with Kube(plane.access()) as kube:
        for body in objects:
            place = PLACES[body["kind"]].format(body["metadata"].get("namespace"))
            await kube.ask("POST", place, body=body)
        await install_kinds(kube)


def _documents(content: bytes) -> list[dict[str, Any]]:
    parts = content.split(b"\n---\n")
    return [value for part in parts if isinstance(value := msgspec.yaml.decode(part), dict)]


@pytest.fixture
def world(control_plane: ControlPlane, slurm_rest: SlurmRest) -> Callable[..., None]:
    """Runs a scenario in a world of its own: `world(scenario, nodes=2)`."""

    def play(
        scenario: Scenario, slurm: SlurmRest = slurm_rest, limit: float = 170, **more: Any
    ) -> None:
        async def whole() -> None:
            async with bed(control_plane, slurm, **more) as made:
                await asyncio.wait_for(scenario(made), limit)

        asyncio.run(whole())

    return play
