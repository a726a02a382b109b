"""The same example programs as on this machine, unchanged but for the cluster line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from server import Sshd

sys.path.insert(0, str(Path(__file__).parents[1] / "docs"))

from promises import EXAMPLES, PROMISES

# These choose their backend themselves.
OWN = {"debug_backend", "slurmfile_profile"}
# One of each kind; the others cross the same wire.
QUICK = {"first_tasks", "parameter_sweep", "workflow_dag", "executor"}
LINE = "Cluster(*sys.argv[1:]"


@pytest.mark.parametrize(
    "name",
    [
        name if name in QUICK else pytest.param(name, marks=pytest.mark.full)
        for name in sorted(set(PROMISES) - OWN)
    ],
)
def test_an_example_keeps_its_promise_over_ssh(name: str, slurm_sshd: Sshd, tmp_path: Path) -> None:
    text = (EXAMPLES / f"{name}.py").read_text()
    assert LINE in text
    reach = {**slurm_sshd.arguments(), "job_base_dir": str(tmp_path / "jobs")}
    words = ", ".join(f"{key}={value!r}" for key, value in reach.items())
    script = tmp_path / f"{name}.py"
    script.write_text(text.replace(LINE, f"Cluster({words}"))
    env = {k: v for k, v in os.environ.items() if not k.startswith("SLURM_CONF")}
    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=tmp_path,
        env={**env, "HOME": str(tmp_path)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=150,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    for promise in PROMISES[name]:
        assert promise in done.stdout, f"{promise!r} is not in\n{done.stdout}\n{done.stderr}"


def test_a_slurmfile_profile_leads_over_ssh(slurm_sshd: Sshd, tmp_path: Path) -> None:
    from slurm import Cluster, task

    reach = slurm_sshd.arguments()
    options = reach.pop("ssh_options")
    lines = ["[hpc]", f'job_base_dir = "{tmp_path}/jobs"']
    lines += [f"{key} = {json.dumps(value)}" for key, value in reach.items()]
    lines += ["[hpc.ssh_options]", *(f"{k} = {json.dumps(v)}" for k, v in options.items())]
    (tmp_path / "Slurmfile.toml").write_text("\n".join(lines) + "\n")
    with Cluster.from_file(tmp_path / "Slurmfile.toml", "hpc") as cluster:
        assert cluster.backend_type == "ssh"
        assert task(divmod)(7, 2).result(timeout=60) == (3, 1)  # type: ignore[arg-type, call-arg]
