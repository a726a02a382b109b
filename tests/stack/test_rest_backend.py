"""The SDK over slurmrestd: submit, status, cancel, signal, hold, requeue and accounting by HTTP."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from lab import Lab

from slurm import Cluster
from slurm.api.backend import JobKey
from slurm.errors import CommandRefused, JobCancelled, SchedulerUnreachable, SubmitRefused
from slurm.stack import life

pytestmark = [pytest.mark.full, pytest.mark.timeout(900)]

#: Debian's own, which is on every node.
PYTHON = "/usr/bin/python3"


class Site:
    """A cluster with slurmrestd, and a directory that it shares with this process."""

    def __init__(self, lab: Lab, shared: Path) -> None:
        self.lab = lab
        self.shared = shared
        self.version = lab.record.version
        self.token_file = shared / "token"
        self.renew("root")

    def renew(self, user: str) -> None:
        """Put a new token where the client looks for it."""
        words = ("scontrol", "token", f"username={user}", "lifespan=3600")
        self.token_file.write_text(self.lab.stack.fleet.must(*words))

    def cluster(self) -> Cluster:
        """The cluster as a user sees it."""
        return Cluster(
            "rest",
            rest_url=f"http://127.0.0.1:{self.lab.record.ports['slurmrestd'][1]}",
            token_file=self.token_file,
            job_base_dir=self.shared / "jobs",
            time="5m",
            mem="50M",
            python=PYTHON,
        )


@pytest.fixture(scope="module", params=["24.11", "26.05"])
def site(
    request: pytest.FixtureRequest, make_lab: Callable[..., Lab], place: Path
) -> Iterator[Site]:
    shared = place / f"shared-{request.param}"
    shared.mkdir()
    text = f'version = "{request.param}"\n[rest]\nenabled = true\n'
    lab = make_lab(f'{text}[shared]\npath = "{shared}"\nsource = "{shared}"\n')
    yield Site(lab, shared)
    life.destroy(lab.directory, lab.said.append)


@pytest.fixture
def cluster(site: Site, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    # Jobs start where they were submitted, and nodes see only what is shared.
    monkeypatch.chdir(site.shared)
    with site.cluster() as cluster:
        yield cluster


def test_a_call_comes_back_and_accounting_knows_it(cluster: Cluster) -> None:
    job = cluster.submit(math.factorial)(5)
    assert job.result(timeout=120) == 120
    end = time.monotonic() + 60
    while not (rows := [r for r in cluster.backend.accounting([job.id], 0) if r.end]):
        assert time.monotonic() < end
        time.sleep(1)
    assert [row.state for row in rows] == ["COMPLETED"]


def test_a_job_that_runs_is_cancelled(cluster: Cluster) -> None:
    job = cluster.submit(time.sleep)(600)
    wait_for(cluster, job.id, "RUNNING")
    job.cancel()
    with pytest.raises(JobCancelled):
        job.result(timeout=120)


def test_a_held_job_waits_until_it_is_released(cluster: Cluster) -> None:
    job = cluster.submit(os.getpid, hold=True)()
    wait_for(cluster, job.id, "PENDING")
    assert [r.reason for r in cluster.backend.queue() if r.job_id == job.id] == ["JobHeldUser"]
    cluster.backend.request("release", [key_of(cluster, job.id)])
    assert job.result(timeout=120) > 0


def test_requeue_is_done_or_refused_with_the_release_that_can(cluster: Cluster, site: Site) -> None:
    job = cluster.submit(time.sleep, requeue=True)(600)
    wait_for(cluster, job.id, "RUNNING")
    key = key_of(cluster, job.id)
    if site.version == "24.11":
        with pytest.raises(CommandRefused, match="no word for requeue"):
            cluster.backend.request("requeue", [key])
    else:
        cluster.backend.request("requeue", [key])
        wait_for(cluster, job.id, "PENDING")
    job.cancel()


def test_what_slurm_refuses_is_told_in_its_words(cluster: Cluster) -> None:
    with pytest.raises(SubmitRefused, match="Invalid partition name"):
        cluster.submit(math.factorial, partition="nosuch")(5)


def test_an_option_without_a_word_in_rest_is_refused_before_anything_is_sent(
    cluster: Cluster,
) -> None:
    with pytest.raises(SubmitRefused, match="spread-job"):
        cluster.submit(math.factorial, spread_job=True)(5)


def test_nodes_and_partitions_are_those_of_the_cluster(cluster: Cluster) -> None:
    assert [node["name"] for node in cluster.backend.nodes()] == ["n1", "n2"]
    [partition] = cluster.backend.partitions()
    assert (partition["name"], partition["nodes"], partition["cpus"]) == ("main", 2, 4)


def test_a_token_that_is_refused_says_how_to_make_another(cluster: Cluster, site: Site) -> None:
    site.token_file.write_text("not.a.token")
    try:
        with pytest.raises(SchedulerUnreachable, match="token"):
            cluster.backend.nodes()
    finally:
        site.renew("root")
    assert json.dumps(cluster.backend.nodes())


def key_of(cluster: Cluster, job_id: str) -> JobKey:
    row = next(r for r in cluster.backend.queue() if r.job_id == job_id)
    return JobKey(job_id, row.work_dir)


def wait_for(cluster: Cluster, job_id: str, state: str) -> None:
    end = time.monotonic() + 120
    while state not in [r.state for r in cluster.backend.queue() if r.job_id == job_id]:
        assert time.monotonic() < end, cluster.backend.queue()
        time.sleep(0.5)
