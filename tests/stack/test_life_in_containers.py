"""One cluster of Slurm 24.11 through its life: up, a new controller, down and up, destroyed."""

from __future__ import annotations

import importlib
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from lab import Lab, marking, until

from slurm import Cluster
from slurm.api.rest_scheduler import RestScheduler
from slurm.config import load_stack
from slurm.errors import PythonMismatch
from slurm.reach import open_backend
from slurm.stack import health, life
from slurm.stack.build import has_image

pytestmark = pytest.mark.timeout(900)

WORK = """\
import sys
from slurm import task

@task(time="5m", mem="100M")
def double(value):
    return value * 2, sys.version_info[:2]
"""


@pytest.fixture(scope="module")
def lab(make_lab: Callable[..., Lab]) -> Lab:
    return make_lab("[monitoring]\nenabled = true\n[rest]\nenabled = true\n")


def test_after_up_every_service_works_and_python_reaches_it_by_name(lab: Lab) -> None:
    status = health.look(lab.directory)
    assert status.state == "up", status
    assert status.doing == ""
    assert set(status.nodes) == {"n1", "n2"}

    # The image's Python is another than ours: a function of the standard library goes by name.
    with Cluster.from_stack(lab.name, time="5m", mem="50M") as cluster:
        assert cluster.submit(platform.node)().result(timeout=120) in ("slurmd-n1", "slurmd-n2")
    # The way of `slurm --cluster NAME`.
    assert open_backend(load_stack(lab.name)).nodes()[0]["name"] == "n1"


def test_a_function_of_ones_own_runs_on_the_pythons_of_the_cluster(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "their_work.py").write_text(WORK)
    monkeypatch.syspath_prepend(tmp_path)
    work = importlib.import_module("their_work")
    with Cluster.from_stack(lab.name):
        assert work.double(4).result(timeout=120) == (8, (3, 13))
        assert [value for value, _ in work.double.map([1, 2]).results()] == [2, 4]
    del sys.modules["their_work"]


def test_one_that_must_travel_by_value_is_refused_with_both_versions(lab: Lab) -> None:
    def here(value: int) -> int:
        return value

    with (
        Cluster.from_stack(lab.name) as cluster,
        pytest.raises(PythonMismatch, match=r"is 3\.13 .*pickled on Python 3\.") as caught,
    ):
        cluster.submit(here)(4)
    assert 'packaging="source"' in str(caught.value.hint)


def test_slurmrestd_takes_a_job_and_tells_of_it(lab: Lab, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(lab.stack.fleet.must("scontrol", "token", "username=user", "lifespan=600"))
    url = f"http://127.0.0.1:{lab.record.ports['slurmrestd'][1]}"
    rest = RestScheduler(url, str(token))
    script = tmp_path / "job.sh"
    script.write_text("#!/bin/bash\n#SBATCH --array=0-1\n#SBATCH --mem=20M\nsleep 600\n")
    job = rest.submit(str(script), {"PATH": "/usr/bin:/bin"}, "/home/user")
    end = time.monotonic() + 120
    while [row.state for row in rest.queue()] != ["RUNNING", "RUNNING"]:
        assert time.monotonic() < end, rest.queue()
        time.sleep(0.5)
    assert {row.job_id for row in rest.queue()} == {f"{job}_0", f"{job}_1"}
    rest.cancel([f"{job}_0", f"{job}_1"])
    while rest.queue():
        assert time.monotonic() < end, rest.queue()
        time.sleep(0.5)
    ended = [row for row in rest.status([]) if row.job_id.startswith(f"{job}_")]
    assert [row.state for row in ended] == ["CANCELLED", "CANCELLED"]


def test_secrets_are_for_the_owner_alone_and_not_in_the_configuration(lab: Lab) -> None:
    secrets = lab.directory / "secrets"
    assert secrets.stat().st_mode & 0o777 == 0o700
    private = [p for p in secrets.iterdir() if p.name not in (".gitignore", "login_key.pub")]
    assert {p.stat().st_mode & 0o777 for p in private} == {0o600}
    inside = lab.podman("exec", f"{lab.name}-slurmd-n1", "ls", "-A", "/etc/slurm")
    assert "slurm.conf" in inside
    assert "slurmdbd.conf" not in inside and ".key" not in inside


@pytest.mark.attack
def test_a_user_of_the_cluster_reads_no_secret_of_a_node(lab: Lab) -> None:
    """Also the one who has the number of the user who brought it up."""
    node = f"{lab.name}-slurmd-n1"
    mounted = lab.podman("exec", node, "ls", "/run/secrets").split()
    assert mounted
    owner = lab.directory.joinpath("secrets", mounted[0]).stat().st_uid
    for name in mounted:
        os.chown(lab.directory / "secrets" / name, 1000, 1000)
    try:
        words = ("exec", "--user", "1000", node, "cat", *(f"/run/secrets/{n}" for n in mounted))
        done = subprocess.run(["podman", *words], capture_output=True, text=True, timeout=60)
        assert done.stdout == ""
        assert done.stderr.count("Permission denied") == len(mounted)
    finally:
        for name in mounted:
            os.chown(lab.directory / "secrets" / name, owner, owner)


def test_an_array_survives_a_controller_that_is_made_anew(lab: Lab) -> None:
    job = lab.batch(marking(1), "--array=1-12")
    held = lab.batch(marking(0), "--hold")
    controller = lab.stack.container("slurmctld")
    lab.stack.engine.stop(controller.name, controller.grace)
    lab.podman("rm", controller.name)

    lab.up()

    lab.user("scontrol", "release", held)
    lab.wait_empty()
    assert lab.marks() == sorted([*map(str, range(1, 13)), held])
    assert lab.accounted(job) == ["COMPLETED"] * 12
    assert lab.accounted(held) == ["COMPLETED"]


def test_prometheus_reaches_every_target_and_knows_the_jobs_that_ran(lab: Lab) -> None:
    until(lambda: lab.targets() == {"prometheus": "up", "slurm": "up", "node": "up"}, lab.targets)
    # The array of the test before this one, or at least the job with which `up` ended.
    until(lambda: lab.query("sum(slurm_sdk_jobs_ended_total)") > 0, lab.targets)
    until(lambda: lab.query('slurm_sdk_node_usable{node="n1"}') == 1, lab.targets)
    # Published on loopback alone, and nothing else of monitoring is.
    assert lab.podman("port", f"{lab.name}-prometheus").endswith(lab.prometheus + "\n")
    assert lab.prometheus.startswith("127.0.0.1:")
    assert lab.podman("port", f"{lab.name}-slurm-exporter") == ""


def test_grafana_is_left_out_with_a_word_where_its_image_cannot_be_had(lab: Lab) -> None:
    plan = lab.stack.plan
    there = has_image("podman", plan.topology.images.grafana)
    assert ("grafana" in plan.addresses) == there
    assert any("no grafana" in notice for notice in plan.notices) != there


def test_down_and_up_keep_queue_and_accounting(lab: Lab) -> None:
    running = lab.batch("sleep 600", "--requeue")
    waiting = lab.batch("true", "--begin=now+1hour")
    before = set(lab.user("sacct", "-a", "-X", "-n", "-P", "-o", "jobid").split())

    life.down(lab.directory, lab.said.append, jobs="requeue")
    assert health.look(lab.directory).state == "down"
    lab.up()

    assert {running, waiting} <= set(lab.user("squeue", "-h", "-o", "%i").split())
    assert before <= set(lab.user("sacct", "-a", "-X", "-n", "-P", "-o", "jobid").split())
    lab.user("scancel", running, waiting)


def test_up_again_touches_nothing_that_is_right(lab: Lab) -> None:
    before = lab.podman("ps", "--quiet", "--filter", f"label=slurm-sdk.cluster={lab.name}")
    lab.up()
    after = lab.podman("ps", "--quiet", "--filter", f"label=slurm-sdk.cluster={lab.name}")
    assert before == after


def test_destroy_leaves_nothing_but_the_file(lab: Lab) -> None:
    life.destroy(lab.directory, lab.said.append)
    mine = ("--filter", f"label=slurm-sdk.cluster={lab.name}", "--quiet")
    assert lab.podman("ps", "--all", *mine) == ""
    assert lab.podman("volume", "ls", *mine) == ""
    assert lab.podman("network", "ls", *mine) == ""
    assert {p.name for p in lab.directory.iterdir()} == {".lock", "cluster.toml"}
