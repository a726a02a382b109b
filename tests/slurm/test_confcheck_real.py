"""The validator of Slurm's files agrees with the Slurm that is installed here."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from slurm.stack.confcheck import check_files
from slurm.stack.native import installed_version
from slurm.stack.plan import container_plan
from slurm.stack.read import parse_topology
from slurm.stack.render import rendered

WRONG = [
    "MaxArraySiz=5",
    "MetricsType=metrics/openmetrics",
    "NodeName=n9 Cpu=4",
    "KillWait=soon",
    "PartitionName=b Nodez=n1",
]


@pytest.mark.parametrize("line", WRONG)
def test_what_the_validator_refuses_the_real_slurm_refuses_too(line: str, tmp_path: Path) -> None:
    version = installed_version()
    plan = container_plan(parse_topology(f'version = "{version}"'))
    text = rendered(plan)["shared/slurm.conf"].text
    # scontrol reads the whole file before it does anything, and this needs no controller.
    assert _scontrol(tmp_path, text).returncode == 0
    assert check_files({"slurm.conf": f"{text}{line}\n"}, version)
    refused = _scontrol(tmp_path, f"{text}{line}\n")
    assert refused.returncode != 0, refused.stdout


def _scontrol(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    (folder / "slurm.conf").write_text(text)
    env = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")}
    argv = ["scontrol", "show", "hostnames", "n1"]
    return subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60)
