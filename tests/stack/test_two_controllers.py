"""A primary controller and its backup on one state: who is in charge, and that nothing is lost."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from lab import Lab, marking, until

from slurm.stack import change, health, life
from waiting import age

pytestmark = [pytest.mark.full, pytest.mark.timeout(1800)]

_TWO = '[controller]\nbackup = true\ntakeover = "10s"\n'


@pytest.fixture(scope="module")
def lab(make_lab: Callable[..., Lab]) -> Lab:
    return make_lab(_TWO)


def in_charge(lab: Lab) -> str:
    return lab.stack.fleet.in_charge()


def running(lab: Lab) -> int:
    return len(lab.user("squeue", "-h", "-t", "RUNNING", "-o", "%i").split())


def test_the_backup_takes_over_and_a_running_array_ends(lab: Lab) -> None:
    assert health.look(lab.directory).controller == "slurmctld"
    job = lab.batch(marking(40), "--array=1-8")
    until(lambda: running(lab) == 4, lambda: lab.user("squeue"))
    # What happened in the last five seconds before a crash is not on disk.
    age(time.time(), 8)
    lab.podman("kill", f"{lab.name}-slurmctld")

    until(lambda: in_charge(lab) == "slurmctld-backup", lambda: lab.said)
    status = health.look(lab.directory)
    assert (status.state, status.controller) == ("degraded", "slurmctld-backup")
    later = lab.batch(marking(0))
    lab.wait_empty()
    assert lab.marks() == sorted([*map(str, range(1, 9)), later])
    assert lab.accounted(job) == ["COMPLETED"] * 8

    lab.up()
    assert health.look(lab.directory).controller == "slurmctld"
    assert health.look(lab.directory).state == "up"


def test_both_controllers_take_over_a_changed_file(lab: Lab) -> None:
    text = f'{lab.text}[conf]\nslurm = ["MessageTimeout=33"]\n'
    change.apply(lab.directory, text, lab.said.append)
    lab.podman("stop", "--time", "60", f"{lab.name}-slurmctld")
    until(lambda: in_charge(lab) == "slurmctld-backup", lambda: lab.said)
    conf = lab.podman("exec", f"{lab.name}-slurmctld-backup", "scontrol", "show", "config")
    assert any("MessageTimeout" in line and "33" in line for line in conf.splitlines())
    lab.up()


def test_an_upgrade_brings_both_to_the_new_release_and_loses_no_job(lab: Lab) -> None:
    job = lab.batch(marking(2), "--array=101-120")
    change.upgrade(lab.directory, "26.05", lab.said.append)
    for service in ("slurmctld", "slurmctld-backup"):
        version = lab.podman("exec", f"{lab.name}-{service}", "scontrol", "--version")
        assert version.split()[-1].startswith("26.05")
    lab.wait_empty()
    assert lab.accounted(job) == ["COMPLETED"] * 20
    assert health.look(lab.directory).controller == "slurmctld"
    life.destroy(lab.directory, lab.said.append)
