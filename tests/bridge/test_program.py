"""`slurm bridge` as users start it and install it: run, doctor, explain, chart."""

from __future__ import annotations

import asyncio
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from bridge_bed import Bed, Program
from bridge_kubernetes import REPOSITORY, built

World = Callable[..., None]


def test_the_program_runs_says_what_it_does_and_gives_its_lease_back(
    world: World, tmp_path: Path
) -> None:
    async def scenario(bed: Bed) -> None:
        program = Program(bed, tmp_path)
        try:
            await program.start()
            await bed.registered()
            await bed.create("p")
            await bed.running("p")
            found = await asyncio.to_thread(program.say, "doctor")
            assert found.returncode == 0, found.stdout + found.stderr
            assert "external jobs; nodes are registered over REST" in found.stdout
            way = await asyncio.to_thread(program.say, "explain", f"{bed.namespace}/p")
            assert f"bound to {bed.nodes[0]}" in way.stdout
            counted = await asyncio.to_thread(program.metrics)
            assert counted["slurm_bridge_leader"] == 1
            assert counted["slurm_bridge_submits_total"] == 1
            assert counted["slurm_bridge_bind_seconds_count"] == 1
            await asyncio.to_thread(program.daemon.stop, signal.SIGTERM)
            path = f"/apis/coordination.k8s.io/v1/namespaces/slurm-bridge/leases/bridge-{bed.token}"
            lease = (await bed.kube.ask("GET", path)).decode()
            assert '"holderIdentity":""' in lease.replace(" ", "")
            assert program.daemon.log.read_text().startswith('{"time"')
        finally:
            program.daemon.stop()

    world(scenario, nodes=1)


@pytest.mark.full
def test_the_chart_and_the_kustomizations_make_what_render_prints(tmp_path: Path) -> None:
    def objects(text: bytes) -> dict[tuple[str, str], dict[str, object]]:
        parts = [msgspec.yaml.decode(p) for p in b"\n".join(text.splitlines()).split(b"\n---\n")]
        return {(o["kind"], o["metadata"]["name"]): o for o in parts if o}

    tools = built("build-helm")

    def run(*words: str) -> bytes:
        return subprocess.run(words, check=True, capture_output=True, timeout=120).stdout

    deploy = REPOSITORY / "deploy"
    base = objects((deploy / "kustomize" / "base" / "bridge.yaml").read_bytes())
    built_base = objects(run(f"{tools}/kustomize", "build", str(deploy / "kustomize" / "base")))
    assert built_base == base
    for overlay in ("direct", "cert-manager"):
        run(f"{tools}/kustomize", "build", str(deploy / "kustomize" / "overlays" / overlay))
    chart = str(deploy / "helm" / "slurm-bridge")
    run(f"{tools}/helm", "lint", "--strict", chart)
    where = ["--namespace", "slurm-bridge", "--kube-version", "1.36.0"]
    template = [f"{tools}/helm", "template", "slurm-bridge", chart, *where]
    made = objects(run(*template))
    _has_cert_manager_s_certificate(objects(run(*template, *_CERT_MANAGER)))
    del base["Namespace", "slurm-bridge"]
    assert set(made) == set(base)
    for key, value in base.items():
        if key[0] == "ConfigMap":
            ours, theirs = (
                msgspec.yaml.decode(o["data"]["config.yaml"])  # type: ignore[index]
                for o in (value, made[key])
            )
            assert ours == theirs
        elif key[0] == "Deployment":
            pod = made[key]["spec"]["template"]  # type: ignore[index]
            pod["metadata"].pop("annotations")
            pod["spec"]["containers"][0].pop("imagePullPolicy")
            assert made[key] == value
        else:
            assert made[key] == value


_CERT_MANAGER = ["--set", "certificateSecret=cert-manager"]


def _has_cert_manager_s_certificate(made: dict[tuple[str, str], Any]) -> None:
    """The one that cert-manager keeps is the one that the bridge reads."""
    spec = made["Certificate", "slurm-bridge"]["spec"]
    assert spec["issuerRef"] == {"name": "slurm-bridge"}
    assert ("Issuer", "slurm-bridge") in made
    config = msgspec.yaml.decode(made["ConfigMap", "slurm-bridge"]["data"]["config.yaml"])
    assert config["certificates"] == "files"
    pod = made["Deployment", "slurm-bridge"]["spec"]["template"]["spec"]
    (volume,) = (v for v in pod["volumes"] if v["name"] == "certificate")
    assert volume["secret"]["secretName"] == spec["secretName"]
