"""The whole way to a running container: a real kubelet and containerd on a node of Slurm's."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from bridge_bed import Bed
from bridge_containers import IMAGE, KubeletNode

World = Callable[..., None]


@pytest.mark.full
@pytest.mark.timeout(400)
def test_a_container_runs_where_slurm_placed_its_pod_and_its_end_ends_the_job(
    world: World,
) -> None:
    async def scenario(bed: Bed, folder: Path) -> None:
        name = f"real-{bed.token}"
        # The test's own kubelet leaves it alone.
        bed.kubelet.dead.add(name)
        kubelet = KubeletNode(bed.plane, folder, name, bed.label)
        try:
            kubelet.start()
            bed.nodes.append(name)
            await bed.until_node(name, lambda node: node.ready, "is ready")
            # Without a node controller nobody takes the API server's first taint away.
            await bed.patch_node(name, {"spec": {"taints": None}})
            await bed.bridge()
            await bed.registered()
            pod = bed.pod("p", hostNetwork=True, restartPolicy="Never")
            (container,) = pod["spec"]["containers"]
            container |= {"image": IMAGE, "imagePullPolicy": "Never", "args": ["3"]}
            await bed.apply(pod)
            done = await bed.until_pod(
                "p", lambda p: p is not None and p.over, f"has run: {kubelet.log()}"
            )
            assert done is not None
            assert (done.status.phase, done.spec.nodeName) == ("Succeeded", name)
            await bed.until(lambda: not bed.live_jobs(), "its job ended")
            (job,) = bed.jobs()
            assert (job["nodes"], '"outcome": "Succeeded"' in job["admin_comment"]) == (name, True)
        finally:
            kubelet.stop()

    with tempfile.TemporaryDirectory(prefix="kubelet-", dir="/tmp") as place:
        world(lambda bed: scenario(bed, Path(place)), nodes=0, limit=380)
