"""A cluster of your own from one file: what it is made of, and how to use it once it is up."""

import subprocess
import sys
import tempfile
from pathlib import Path

from slurm import Cluster, task

TOPOLOGY = """
name = "lab"

[[nodes]]
names = "n[1-2]"
cpus = 2
memory = "2GiB"

[[partitions]]
name = "short"
default = true
max_time = "1h"

[login]
enabled = true
"""


@task(time="5min", mem="200MiB")
def hello() -> str:
    return "hello from a job"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "cluster.toml")
        file.write_text(TOPOLOGY)
        # `slurm cluster up --topology cluster.toml` starts it; `render` only writes the files.
        command = [sys.executable, "-m", "slurm.cli", "cluster", "render", f"{folder}/lab"]
        subprocess.run([*command, "--topology", str(file)], check=True, stdout=subprocess.DEVNULL)
        conf = Path(folder, "lab", "shared", "slurm.conf").read_text()
        for line in conf.splitlines():
            if line.startswith(("NodeName=n", "PartitionName=")):
                print(line.split(" State")[0])

    # Once it is up, its name is enough: Cluster.from_stack("lab").
    stack = sys.argv[1] if len(sys.argv) > 1 else "local"
    cluster = Cluster(stack) if stack in ("local", "embedded") else Cluster.from_stack(stack)
    with cluster:
        print(hello().result(timeout=120))
