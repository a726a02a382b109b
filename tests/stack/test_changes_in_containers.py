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
    before = lab.containers()
    change.apply(lab.directory, add_lines(lab, "MessageTimeout=33"), lab.said.append)
    conf = lab.podman("exec", f"{lab.name}-slurmctld", "scontrol", "show", "config")
    assert any("MessageTimeout" in line and "33" in line for line in conf.splitlines())
    after = lab.containers()
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


def node_memory(lab: Lab) -> set[int]:
    """What Slurm gives to jobs of each node, in MiB."""
    return set(map(int, lab.user("sinfo", "-h", "-N", "-o", "%m").split()))


def test_nodes_of_another_size_are_made_anew_and_services_come_and_go(lab: Lab) -> None:
    text = f'{lab.text}[[nodes]]\nnames = "n[1-2]"\nmemory = "3GiB"\n[rest]\nenabled = true\n'
    before = node_memory(lab)
    done = change.apply(lab.directory, text, lab.said.append)
    assert {"slurmd-n1", "slurmd-n2"} <= set(done.renewed)
    assert not {"mysql", "slurmdbd", "login"} & set(done.renewed)
    assert done.new == ("slurmrestd",)
    assert node_memory(lab) == {1024 + each for each in before}
    assert change.compare(lab.directory, text).nothing
    gone = change.apply(lab.directory, lab.text, lab.said.append)
    assert gone.removed == ("slurmrestd",)
    assert health.look(lab.directory).state == "up"


def test_scale_adds_nodes_and_takes_them_away_again(lab: Lab) -> None:
    change.apply(lab.directory, change.scaled(lab.directory, 3), lab.said.append)
    assert set(health.look(lab.directory).nodes) == {"n1", "n2", "n3"}
    change.apply(lab.directory, change.scaled(lab.directory, 2), lab.said.append)
    assert set(health.look(lab.directory).nodes) == {"n1", "n2"}
    assert health.look(lab.directory).state == "up"


def test_upgrade_under_load_loses_no_running_queued_or_held_job(
    fresh_lab: Callable[..., Lab],
) -> None:
    lab = fresh_lab('version = "24.11"\n')
    job = lab.batch(marking(2), "--array=1-40")
    held = lab.batch(marking(0), "--hold")
    lab.wait_state(job, "RUNNING")

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


_UPGRADE = """
import sys
from pathlib import Path
from slurm.stack import change
change.upgrade(Path(sys.argv[1]), "26.05", print)
"""


@pytest.mark.parametrize("service", ["slurmctld", "slurmd-n1"])
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


def test_20_11_becomes_22_05_with_its_queue(fresh_lab: Callable[..., Lab]) -> None:
    lab = fresh_lab('version = "20.11"\n')
    ended = lab.batch(marking(0))
    lab.wait_empty()
    job = lab.batch(marking(2), "--array=1-10")
    held = lab.batch(marking(0), "--hold")
    lab.wait_state(job, "RUNNING")

    change.upgrade(lab.directory, "22.05", lab.said.append)

    assert slurm_version(lab, "slurmctld").startswith("22.05")
    lab.user("scontrol", "release", held)
    lab.wait_empty()
    assert lab.marks() == sorted([*map(str, range(1, 11)), held, ended])
    assert lab.accounted(job) == ["COMPLETED"] * 10
    assert lab.accounted(ended) == lab.accounted(held) == ["COMPLETED"]
    life.destroy(lab.directory, lab.said.append)


def test_22_05_is_not_brought_to_24_11_and_goes_on_running_jobs(
    fresh_lab: Callable[..., Lab],
) -> None:
    lab = fresh_lab('version = "22.05"\n')
    before = lab.containers()
    with pytest.raises(StackError, match=r"24\.11 does not understand the state of 22\.05") as e:
        change.upgrade(lab.directory, "24.11", lab.said.append)
    assert "23.11" in str(e.value)
    after = lab.containers()
    assert before == after
    job = lab.batch(marking(0))
    lab.wait_empty()
    assert lab.accounted(job) == ["COMPLETED"]
    life.destroy(lab.directory, lab.said.append)


def test_a_backup_under_load_brings_queue_and_accounting_back_after_destroy(
    fresh_lab: Callable[..., Lab], tmp_path: Path
) -> None:
    lab = fresh_lab()
    ended = lab.batch(marking(0))
    lab.wait_empty()
    waiting = lab.batch("true", "--begin=now+1hour")
    running = lab.batch("sleep 600", "--requeue")
    lab.wait_state(running, "RUNNING")
    folder = backup.backup(lab.directory, lab.said.append, tmp_path / "backup")
    assert folder.stat().st_mode & 0o777 == 0o700
    # Whoever runs does not notice.
    assert lab.user("squeue", "-h", "-o", "%T", "-j", running) == "RUNNING"
    life.destroy(lab.directory, lab.said.append)

    backup.restore(folder, lab.directory, lab.said.append)

    assert set(lab.user("squeue", "-h", "-o", "%i").split()) == {waiting, running}
    assert lab.accounted(ended) == ["COMPLETED"]
    # Its node was made anew: it is started again.
    lab.wait_state(running, "RUNNING")
    assert lab.user("squeue", "-h", "-O", "RestartCnt", "-j", running) == "1"
    life.destroy(lab.directory, lab.said.append)


def test_a_cluster_that_is_down_can_be_backed_up_and_comes_back_elsewhere(
    fresh_lab: Callable[..., Lab], tmp_path: Path
) -> None:
    lab = fresh_lab("[login]\nenabled = true\n")
    waiting = lab.batch("true", "--begin=now+1hour")
    life.down(lab.directory, lab.said.append)
    folder = backup.backup(lab.directory, lab.said.append, tmp_path / "backup")
    assert health.look(lab.directory).state == "down"
    life.destroy(lab.directory, lab.said.append)
    elsewhere = Lab(lab.directory.with_name(f"{lab.name}-2"), lab.text)

    backup.restore(folder, elsewhere.directory, lab.said.append)

    assert elsewhere.user("squeue", "-h", "-o", "%i") == waiting
    assert waiting in elsewhere.user("sacct", "-X", "-n", "-P", "-o", "jobid", "-j", waiting)
    life.destroy(elsewhere.directory, lab.said.append)


# A node that is in no default partition, and in none where root's own account may run.
_PARTITIONS = """
[[nodes]]
names = "m[1-2]"
[[partitions]]
name = "debug"
nodes = "m1"
default = true
[[partitions]]
name = "physics"
nodes = "m2"
accounts = ["physics"]
[[accounts]]
name = "physics"
"""


def test_two_clusters_live_side_by_side_each_with_its_partitions(
    fresh_lab: Callable[..., Lab], lab: Lab
) -> None:
    other = fresh_lab(_PARTITIONS)
    assert other.record.site.subnet != lab.record.site.subnet
    assert other.record.ports["login"][1] != lab.record.ports["login"][1]
    assert health.look(other.directory).state == health.look(lab.directory).state == "up"
    life.destroy(other.directory, other.said.append)
    assert health.look(lab.directory).state == "up"
