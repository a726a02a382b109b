"""The bridge with older Slurms' ways: declared external nodes, and slurmd beside the kubelet.

Slurm 24.11 is the real one. Of 25.05 there is no Debian package: its API version is served by the
newest slurmrestd.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from bridge_bed import Bed
from bridge_processes import free_port
from bridge_slurm import SlurmRest

World = Callable[..., None]
pytestmark = pytest.mark.full

EXTERNAL = """\
NodeName=declared State=EXTERNAL NodeAddr=127.0.0.1 CPUs=8 RealMemory=16384 Feature=bridge
"""
# The pod has the node's memory: the placeholder's is not enforced.
HYBRID = """\
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SlurmdSpoolDir={at}/spool
SlurmdPidFile={at}/slurmd.pid
NodeName=hybrid NodeAddr=127.0.0.1 NodeHostname=localhost Port={port} CPUs=8 RealMemory=16384 \
Feature=bridge
"""


@pytest.fixture
def place() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="older-", dir="/tmp") as made:
        yield Path(made)


def test_external_jobs_run_on_nodes_that_slurm_conf_declares(world: World, place: Path) -> None:
    async def scenario(bed: Bed) -> None:
        await bed.add_node("declared")
        await bed.bridge()
        await bed.registered()
        await bed.create("p")
        await bed.running("p")
        (job,) = bed.jobs()
        assert "EXTERNAL_JOB" in job["flags"]
        await bed.patch_node("declared", {"spec": {"unschedulable": True}})
        await bed.until(lambda: "DRAIN" in bed.slurm_nodes()["declared"]["state"], "it is drained")
        await bed.delete("p")
        await bed.gone("p")
        assert not bed.live_jobs()

    slurm = SlurmRest(place, name="declares", extra=EXTERNAL)
    try:
        slurm.start()
        slurm.serve_only("v0.0.43")
        world(scenario, slurm, nodes=0)
    finally:
        slurm.stop()


def test_a_sleeping_batch_job_stands_for_a_pod_beside_slurmd_of_24_11(
    world: World, place: Path
) -> None:
    async def scenario(bed: Bed) -> None:
        await bed.add_node("hybrid")
        running = await bed.bridge(identity=[{"user": "daemon"}])
        await bed.registered()
        await bed.create("p")
        await bed.running("p")
        (job,) = bed.jobs()
        assert running.bridge.scheduler.slurm.api == 42  # type: ignore[union-attr]
        assert job["batch_flag"]
        assert "EXTERNAL_JOB" not in job["flags"]
        await bed.exit("p")
        await bed.until(lambda: not bed.live_jobs(), "it ends with the pod")
        assert '"outcome": "Succeeded"' in bed.jobs()[0]["admin_comment"]

    (place / "spool").mkdir()
    extra = HYBRID.format(at=place, port=free_port())
    slurm = SlurmRest(place, name="hybrid", extra=extra, suite="trixie")
    slurmd = slurm.slurmd("hybrid")
    try:
        slurm.start()
        slurmd.start()
        world(scenario, slurm, nodes=0)
    finally:
        slurmd.stop()
        slurm.stop()
