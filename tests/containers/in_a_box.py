"""What an ordinary user runs in the box, on a real Slurm with a real Apptainer: IMAGE..."""

import json
import os
import sys

sys.path.insert(0, os.path.dirname(__file__))

import work

from slurm import Cluster, ContainerFailed


def use(image: str) -> dict[str, object]:
    """A task, ranks, an array and a workflow in an image."""
    os.environ["A_TOKEN"] = "very secret"
    given = {"type": "container", "image": image, "tls_verify": False}
    with Cluster(job_base_dir=os.path.expanduser("~/jobs"), packaging=given, time="5m") as cluster:
        looked = cluster.submit(work.look, secrets=["A_TOKEN"])("A_TOKEN")
        waited, left = work.flow(1).result(timeout=120)  # type: ignore[call-arg]
        return {
            "packaging": cluster.explain(work.rank)().environment.details["runtime"],
            "look": looked.result(timeout=120),
            "ranks": cluster.submit(work.rank, ntasks=2)().result(timeout=120),
            "array": work.square.map(range(3)).get_results(timeout=120),
            "workflow": [waited, list(left)],
        }


def without_python(image: str) -> str:
    """What is said of an image with no such Python."""
    given = {"type": "container", "image": image, "tls_verify": False, "python": "python9"}
    with Cluster(job_base_dir=os.path.expanduser("~/jobs"), packaging=given, time="5m"):
        try:
            work.square(1).result(timeout=120)
        except ContainerFailed as error:
            return str(error)
    return ""


print(json.dumps({image: use(image) for image in sys.argv[1:]} | {"": without_python(sys.argv[1])}))
