"""Programs of several clients: each is a process of its own, with its own code, on one cluster."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_MAIN = """
import json, os, sys
from slurm import Cluster
import work

if __name__ == "__main__":
    with Cluster(**json.loads(os.environ["CLUSTER"])) as cluster:
        made = eval(os.environ["CALL"])
        jobs = list(made) if hasattr(made, "results") else [made]
        print(json.dumps([[job.result(180), job.cached] for job in jobs]))
"""


#: A module of tasks; tests add tasks of their own.
WORK = """
import json, os
from pathlib import Path
from slurm import File, task
import helper

TABLE = json.loads((Path(__file__).parent / "table.json").read_text())

@task(time="5min", mem="60M", cache=True)
def plus(x, y=0):
    return x + y + helper.STEP

@task(time="5min", mem="60M", cache=True)
def tabled(x):
    return TABLE["k"] + x

@task(time="5min", mem="60M", cache=True)
def length(file):
    return len(Path(file).read_text())
"""


@dataclass
class Client:
    """A folder with somebody's code, and the cluster that it uses."""

    folder: Path
    #: What `Cluster` is given.
    cluster: dict[str, Any]
    env: dict[str, str] = field(default_factory=dict)

    def write(self, **files: str) -> None:
        """Write modules (`work`) and data (`table_json`)."""
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "main.py").write_text(_MAIN)
        for name, text in files.items():
            stem, _, kind = name.partition("_")
            (self.folder / f"{stem}.{kind or 'py'}").write_text(text)

    def start(self, call: str, **env: str) -> subprocess.Popen[str]:
        """Begin a program that makes one call."""
        told = {"CLUSTER": json.dumps(self.cluster, default=str), "CALL": call}
        return subprocess.Popen(
            [sys.executable, "main.py"],
            cwd=self.folder,
            env={**os.environ, **self.env, **told, **env},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def call(self, call: str, **env: str) -> list[tuple[Any, bool]]:
        """The values of a call, and whether each was found."""
        return answer(self.start(call, **env))


def answer(process: subprocess.Popen[str]) -> list[tuple[Any, bool]]:
    """What a program that was started came to."""
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0, err
    return [(value, cached) for value, cached in json.loads(out)]
