"""A task in an image: `in_a_container.py local IMAGE` runs it; without IMAGE it is a dry run."""

import platform
import sys

from slurm import Cluster, task

backend, image = (*sys.argv[1:], "", "")[:2]
packaging = {
    "type": "container",
    "image": image or "docker.io/library/python:3.11-slim",
    "runtime": "podman",  # or pyxis, apptainer, oci; left out: what the cluster has
    "mounts": ["/tmp:/data:ro"],
    "env": {"HF_HOME": "/data/hf"},
}


@task(time="10min", mem="500MiB", packaging=packaging)
def where() -> str:
    return platform.freedesktop_os_release()["PRETTY_NAME"]


if __name__ == "__main__":
    with Cluster(backend or "local") as cluster:
        plan = cluster.explain(where)()
        print("packaging:", plan.environment.kind, plan.environment.details["image"])
        print("podman starts it:", "podman" in plan.script)
        if image:
            print("it ran in", where().result(timeout=300))
        else:
            print("nothing was submitted; name an image to run it")
