"""Pods on a real Kubernetes placed by a real Slurm, in both modes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from bridge_bed import Bed

from slurm.bridge.kube import KubeError
from slurm.bridge.names import FINALIZER, GATE, HELD, JOB, NODE, USER

World = Callable[..., None]
BOTH = pytest.mark.parametrize("mode", ["gate", pytest.param("direct", marks=pytest.mark.full)])


@BOTH
def test_a_pod_takes_its_eight_steps_from_applied_to_started(world: World, mode: str) -> None:
    async def scenario(bed: Bed) -> None:
        await bed.bridge(mode=mode)
        await bed.registered()
        # 1, 2: applied, and admitted with gate, finalizer and identity.
        admitted = await bed.create("p", cpu="2")
        assert GATE in admitted.gates
        assert FINALIZER in admitted.metadata.finalizers
        assert admitted.metadata.annotations[USER] == "1234"
        assert admitted.spec.nodeName == ""
        # 3, 4: placement has begun, and a placeholder stands for it.
        number = await bed.job_of("p")
        (job,) = bed.jobs()
        assert (job["job_id"], job["user_id"]) == (number, 1234)
        assert "EXTERNAL_JOB" in job["flags"]
        # 5, 6: Slurm has chosen a node, and the bridge has seen it.
        pod = await bed.until_pod("p", lambda p: p is not None and NODE in p.metadata.annotations, "")
        assert pod is not None
        (job,) = bed.jobs()
        assert job["job_state"] == ["RUNNING"]
        assert pod.metadata.annotations[NODE] == job["nodes"]
        # 7, 8: bound to that node, and started by its kubelet.
        (running,) = await bed.running("p")
        assert running.spec.nodeName == job["nodes"]
        # The end of the pod is the end of the job, with its outcome on record.
        await bed.exit("p")
        await bed.until(lambda: bed.jobs()[0]["job_state"] == ["CANCELLED"], "the job ended")
        assert '"outcome": "Succeeded"' in bed.jobs()[0]["admin_comment"]
        reasons = [e.partition(":")[0] for e in await bed.events("p")]
        assert {"Submitted", "Placed"} <= set(reasons)

    world(scenario)
