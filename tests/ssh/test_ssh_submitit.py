"""The drop-in for submitit through a real sshd: `AutoExecutor(folder, cluster="ssh://host")`."""

from __future__ import annotations

import getpass
import pickle
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import slurm.submitit as submitit
from slurm.submitit.core.utils import FailedJobError

if TYPE_CHECKING:
    from server import Sshd

    from slurm.stack import RunningCluster


def double(x: int) -> int:
    print("doubling", x)
    return 2 * x


def test_calls_go_to_the_slurm_behind_a_login_node(
    slurm_sshd: Sshd, slurm_cluster: RunningCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SLURM_CONF")
    given = slurm_sshd.arguments()
    executor = submitit.AutoExecutor(
        f"{tmp_path.name}/%j",
        cluster=f"ssh://{getpass.getuser()}@127.0.0.1:{given['port']}",
        slurm_identity_file=given["identity_file"],
        slurm_ssh_options=given["ssh_options"],
    )
    executor.update_parameters(timeout_min=5, slurm_comment="from afar")
    jobs = executor.map_array(double, [1, 2, 3])
    assert [job.result() for job in jobs] == [2, 4, 6]
    assert jobs[2].stdout() == "doubling 3\n"
    assert jobs[0].submission().args == (1,)
    assert jobs[0].state == "COMPLETED"
    assert isinstance(jobs[0], submitit.SlurmJob)
    assert pickle.loads(pickle.dumps(jobs[1])).result() == 4
    home = Path(slurm_sshd.home) / tmp_path.name  # where a relative folder counts from
    assert (home / jobs[2].job_id / f"{jobs[2].job_id}_0_result.pkl").exists()
    error = executor.submit(int, "x").exception()
    assert isinstance(error, FailedJobError)
    assert isinstance(error.__cause__, ValueError)
