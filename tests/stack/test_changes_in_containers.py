"""Changes and faults of clusters in containers: nothing that was acknowledged is lost."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from lab import Lab, marking

from slurm.errors import StackError
from slurm.stack import backup, change, health, life

pytestmark = [pytest.mark.full, pytest.mark.timeout(1800)]


def slurm_version(lab: Lab, service: str) -> str:
    return lab.podman("exec", f"{lab.name}-{service}", "scontrol", "--version").split()[-1]


def controller_answers(lab: Lab) -> bool:
    return lab.stack.fleet.answers()


@pytest.fixture(scope="module")
def lab(make_lab: Callable[..., Lab]) -> Lab:
    return make_lab()


@pytest.fixture
def fresh_lab(make_lab: Callable[..., Lab]) -> Callable[..., Lab]:
    return make_lab


def add_lines(lab: Lab, *lines: str) -> str:
    listed = ", ".join(f'"{line}"' for line in lines)
    return f"{lab.text}[conf]\nslurm = [{listed}]\n"


def test_apply_reads_files_again_where_that_is_enough(lab: Lab) -> None:
    before = lab.podman("ps", "--quiet", "--filter", f"label=slurm-sdk.cluster={lab.name}")
    change.apply(lab.directory, add_lines(lab, "MessageTimeout=33"), lab.said.append)
    conf = lab.podman("exec", f"{lab.name}-slurmctld", "scontrol", "show", "config")
    assert any("MessageTimeout" in line and "33" in line for line in conf.splitlines())
    after = lab.podman("ps", "--quiet", "--filter", f"label=slurm-sdk.cluster={lab.name}")
    assert after == before


def test_apply_starts_daemons_anew_where_slurm_needs_it_and_jobs_live_on(lab: Lab) -> None:
    job = lab.batch(marking(1), "--array=101-120")
    text = add_lines(lab, "SelectTypeParameters=CR_CPU_Memory")
    done = change.apply(lab.directory, text, lab.said.append, patience=240)
    assert {"slurmctld", "slurmd-n1", "slurmd-n2"} <= set(done.renewed)
    assert "mysql" not in done.renewed
    lab.wait_empty()
    assert lab.accounted(job) == ["COMPLETED"] * 20
    assert lab.marks() == sorted(str(n) for n in range(101, 121))


def test_a_change_that_ends_slurmctld_is_taken_back(lab: Lab) -> None:
    before = (lab.directory / "cluster.toml").read_text()
    with pytest.raises(StackError, match="taken back") as caught:
        text = add_lines(lab, "JobSubmitPlugins=nosuch")
        change.apply(lab.directory, text, lab.said.append)
    assert any("job_submit" in line for line in caught.value.evidence)
    assert (lab.directory / "cluster.toml").read_text() == before
    assert health.look(lab.directory).state == "up"


def test_scale_adds_nodes_and_takes_them_away_again(lab: Lab) -> None:
    change.apply(lab.directory, change.scaled(lab.directory, 3), lab.said.append)
    assert set(health.look(lab.directory).nodes) == {"n1", "n2", "n3"}
    change.apply(lab.directory, change.scaled(lab.directory, 2), lab.said.append)
    assert set(health.look(lab.directory).nodes) == {"n1", "n2"}
    assert health.look(lab.directory).state == "up"


def test_a_node_that_was_killed_gives_its_job_back_at_once(lab: Lab) -> None:
    job = lab.batch("sleep 600", "--requeue", "--nodelist=n1")
    wait_for_state(lab, job, "RUNNING")
    lab.podman("kill", f"{lab.name}-slurmd-n1")
    lab.podman("rm", "--force", f"{lab.name}-slurmd-n1")
    lab.up()
    state = lab.user("squeue", "-h", "-o", "%T", "-j", job)
    lab.user("scancel", job)
    assert state == "PENDING"
    assert health.look(lab.directory).state == "up"


def test_slurmdbd_and_database_killed_under_load_lose_no_record(lab: Lab) -> None:
    job = lab.batch(marking(1), "--array=201-230")
    for service in ("slurmdbd", "mysql"):
        lab.podman("kill", f"{lab.name}-{service}")
    time.sleep(5)
    lab.up()
    lab.wait_empty()
    assert lab.accounted(job) == ["COMPLETED"] * 30


def test_a_controller_killed_ten_seconds_after_the_last_submission_loses_nothing(
    lab: Lab,
) -> None:
    job = lab.batch(marking(1), "--array=301-360")
    time.sleep(10)
    lab.podman("kill", f"{lab.name}-slurmctld")
    lab.up()
    # Ends of the last seconds were forgotten: once they are old enough, status says which.
    time.sleep(30)
    for left in lab.stack.fleet.lingering():
        lab.podman("exec", f"{lab.name}-slurmctld", "scontrol", "requeue", left)
        lab.podman(*release(lab, left))
    lab.wait_empty()
    assert not any("nobody works on" in note for note in health.look(lab.directory).notes)
    # A task that began or ended in the last seconds may have been launched twice.
    assert {m for m in lab.marks() if m.startswith("3")} == {str(n) for n in range(301, 361)}
    assert len(lab.accounted(job)) == 60


def release(lab: Lab, job: str) -> tuple[str, ...]:
    """A requeued job would wait two minutes."""
    words = ("scontrol", "update", f"jobid={job}", "starttime=now")
    return ("exec", f"{lab.name}-slurmctld", *words)


def wait_for_state(lab: Lab, job: str, state: str) -> None:
    end = time.monotonic() + 120
    while lab.user("squeue", "-h", "-o", "%T", "-j", job) != state:
        assert time.monotonic() < end, lab.user("squeue")
        time.sleep(0.5)


def test_upgrade_under_load_loses_no_running_queued_or_held_job(
    fresh_lab: Callable[..., Lab],
) -> None:
    lab = fresh_lab('version = "24.11"\n')
    job = lab.batch(marking(2), "--array=1-40")
    held = lab.batch(marking(0), "--hold")
    wait_for_running(lab)

    change.upgrade(lab.directory, "26.05", lab.said.append)

    assert slurm_version(lab, "slurmctld").startswith("26.05")
    assert slurm_version(lab, "slurmd-n2").startswith("26.05")
    lab.user("scontrol", "release", held)
    lab.wait_empty()
    assert lab.marks() == sorted([*map(str, range(1, 41)), held])
    assert lab.accounted(job) == ["COMPLETED"] * 40
    assert any("slurmctld was away for" in line for line in lab.said)
    assert 'version = "26.05"' in (lab.directory / "cluster.toml").read_text()
    with pytest.raises(StackError, match="no way back"):
        change.upgrade(lab.directory, "24.11", lab.said.append)
    life.destroy(lab.directory, lab.said.append)


def wait_for_running(lab: Lab) -> None:
    end = time.monotonic() + 120
    while "RUNNING" not in lab.user("squeue", "-h", "-o", "%T"):
        assert time.monotonic() < end
        time.sleep(0.5)


_UPGRADE = """
import sys
from pathlib import Path
from slurm.stack import change
change.upgrade(Path(sys.argv[1]), "26.05", print)
"""


@pytest.mark.parametrize("service", ["slurmdbd", "slurmctld", "slurmd-n1"])
def test_an_upgrade_that_was_killed_goes_on_where_it_ended(
    fresh_lab: Callable[..., Lab], service: str
) -> None:
    lab = fresh_lab('version = "24.11"\n')
    job = lab.batch(marking(1), "--array=1-20")
    program = subprocess.Popen([sys.executable, "-c", _UPGRADE, str(lab.directory)])
    end = time.monotonic() + 300
    while not lab.record.doing.endswith(f": {service}"):
        assert program.poll() is None and time.monotonic() < end
        time.sleep(0.01)
    program.kill()
    program.wait()

    change.upgrade(lab.directory, "26.05", lab.said.append)

    lab.wait_empty()
    assert lab.accounted(job) == ["COMPLETED"] * 20
    assert lab.marks() == sorted(map(str, range(1, 21)))
    assert slurm_version(lab, "slurmd-n2").startswith("26.05")
    assert health.look(lab.directory).doing == ""
    life.destroy(lab.directory, lab.said.append)


def test_22_05_is_not_brought_to_24_11_and_goes_on_running_jobs(
    fresh_lab: Callable[..., Lab],
) -> None:
    lab = fresh_lab('version = "22.05"\n')
    before = lab.podman("ps", "--quiet", "--filter", f"label=slurm-sdk.cluster={lab.name}")
    with pytest.raises(StackError, match=r"24\.11 does not understand the state of 22\.05") as e:
        change.upgrade(lab.directory, "24.11", lab.said.append)
    assert "23.11" in str(e.value)
    after = lab.podman("ps", "--quiet", "--filter", f"label=slurm-sdk.cluster={lab.name}")
    assert before == after
    job = lab.batch(marking(0))
    lab.wait_empty()
    assert lab.accounted(job) == ["COMPLETED"]
    life.destroy(lab.directory, lab.said.append)


def test_a_backup_brings_queue_and_accounting_back_after_destroy(
    fresh_lab: Callable[..., Lab], tmp_path: Path
) -> None:
    lab = fresh_lab()
    ended = lab.batch(marking(0))
    lab.wait_empty()
    waiting = lab.batch("true", "--begin=now+1hour")
    folder = backup.backup(lab.stack, target=tmp_path / "backup")
    assert folder.stat().st_mode & 0o777 == 0o700
    life.destroy(lab.directory, lab.said.append)

    backup.restore(folder, lab.directory, lab.said.append)

    assert lab.user("squeue", "-h", "-o", "%i") == waiting
    assert lab.accounted(ended) == ["COMPLETED"]
    life.destroy(lab.directory, lab.said.append)


def test_two_clusters_live_side_by_side(fresh_lab: Callable[..., Lab], lab: Lab) -> None:
    other = fresh_lab("[[nodes]]\nnames = 'm1'\n")
    assert other.record.site.subnet != lab.record.site.subnet
    assert other.record.ports["login"][1] != lab.record.ports["login"][1]
    assert health.look(other.directory).state == health.look(lab.directory).state == "up"
    life.destroy(other.directory, other.said.append)
    assert health.look(lab.directory).state == "up"
