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
from rest_site import Site, topology

from slurm import Cluster
from slurm.api.backend import JobKey
from slurm.cli.doctor import checks
from slurm.errors import (
    CommandRefused,
    JobCancelled,
    SchedulerUnreachable,
    SubmitLimit,
    SubmitRefused,
)
from slurm.stack import life

pytestmark = [pytest.mark.full, pytest.mark.timeout(900)]


@pytest.fixture(scope="module", params=["24.11", "26.05"])
def site(
    request: pytest.FixtureRequest, make_lab: Callable[..., Lab], place: Path
) -> Iterator[Site]:
    shared = place / f"shared-{request.param}"
    shared.mkdir()
    lab = make_lab(topology(request.param, shared))
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
    with pytest.raises(SubmitRefused, match="partition does not exist") as caught:
        cluster.submit(math.factorial, partition="nosuch")(5)
    assert "Invalid partition name" in caught.value.evidence[0]


def test_a_limit_on_submissions_is_the_same_error_as_with_sbatch(cluster: Cluster) -> None:
    held = [cluster.submit(math.factorial, qos="few", hold=True)(n) for n in range(2)]
    with pytest.raises(SubmitLimit, match="limit"):
        cluster.submit(math.factorial, qos="few")(5)
    for job in held:
        job.cancel()


def test_the_limits_of_the_cluster_are_told(cluster: Cluster, site: Site) -> None:
    limits = cluster.backend.limits()
    assert limits["MaxArraySize"] == "1001"
    assert limits["MaxSubmitJobs"] == "2"
    assert ("SLURM_VERSION" in limits) == (site.version != "24.11")


def test_a_map_is_one_array_and_one_of_it_can_be_cancelled(cluster: Cluster) -> None:
    array = cluster.submit(time.sleep, array_throttle=2).map([0, 0, 600])
    array[2].sent()
    assert [array[n].result(timeout=120) for n in (0, 1)] == [None, None]
    wait_for(cluster, array[2].id, "RUNNING")
    array[2].cancel()
    with pytest.raises(JobCancelled):
        array[2].result(timeout=120)
    assert {job.id.partition("_")[0] for job in array} == {array[0].id.partition("_")[0]}


def test_what_waits_of_an_array_is_held_whole(cluster: Cluster) -> None:
    array = cluster.submit(time.sleep, begin="2035-01-01").map([0, 0])
    keys = [key_of(cluster, job.id) for job in array]
    with pytest.raises(CommandRefused, match="as a whole"):
        cluster.backend.request("hold", keys[:1])
    cluster.backend.request("hold", keys)
    # Who is root holds as an administrator.
    assert {reason_of(cluster, job.id) for job in array} == {"JobHeldAdmin"}
    cluster.backend.request("release", keys)
    assert "JobHeldAdmin" not in {reason_of(cluster, job.id) for job in array}
    array.cancel()


def test_a_signal_reaches_the_script_of_a_job(site: Site) -> None:
    scheduler = site.scheduler()
    body = f'trap "touch {site.shared}/signalled; exit" USR1; touch {site.shared}/set\n'
    body += "for i in {1..600}; do sleep 0.2; done"
    script = site.script("signal.sh", ["--mem=20M", "--output=/dev/null"], body)
    job = scheduler.submit(str(script), {"PATH": "/usr/bin:/bin"}, str(site.shared))
    await_file(site.shared / "set")
    scheduler.signal([job], 10)
    await_file(site.shared / "signalled")


def test_a_job_waits_for_another_and_gets_its_value(cluster: Cluster) -> None:
    first = cluster.submit(math.factorial)(4)
    assert cluster.submit(math.factorial)(first).result(timeout=120) == math.factorial(24)  # type: ignore[arg-type]


def test_why_a_job_waits_is_told(cluster: Cluster) -> None:
    held = cluster.submit(math.factorial, hold=True, licenses="matlab:2")(4)
    after = cluster.submit(math.factorial)(held)  # type: ignore[arg-type]
    told = cluster.backend.explain(key_of(cluster, held.id))["job"]
    assert (told["Reason"], told["Licenses"]) == ("JobHeldUser", "matlab:2")
    facts = cluster.backend.explain(key_of(cluster, after.id))
    assert facts["job"]["Reason"] == "Dependency"
    assert facts["upstream"][0][::2] == (held.id, "PENDING")
    assert facts["partition"]["PartitionName"] == "main"
    assert {job["user"] for job in cluster.backend.all_jobs()} == {"root"}
    held.cancel()
    after.cancel()


def test_a_variable_with_a_line_break_arrives_whole(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TWO_LINES", "a\nb")
    assert cluster.submit(os.getenv)("TWO_LINES").result(timeout=120) == "a\nb"


def test_an_option_without_a_word_in_rest_is_refused_before_anything_is_sent(
    cluster: Cluster,
) -> None:
    with pytest.raises(SubmitRefused, match="--propagate has no word"):
        cluster.submit(math.factorial, sbatch={"propagate": "NONE"})(5)


def test_nodes_and_partitions_are_those_of_the_cluster(cluster: Cluster) -> None:
    assert [node["name"] for node in cluster.backend.nodes()] == ["n1", "n2"]
    cluster.submit(math.factorial)(3).result(timeout=120)  # 24.11 shows the default in jobs only
    found = {partition["name"]: partition for partition in cluster.backend.partitions()}
    assert [name for name, partition in found.items() if partition["default"]] == ["main"]
    assert (found["main"]["nodes"], found["main"]["cpus"]) == (2, 8)
    assert (found["main"]["time_limit"], found["main"]["available"]) == ("infinite", "up")
    assert (found["side"]["time_limit"], found["side"]["default_time"]) == ("1:00:00", "30:00")


def test_a_token_that_is_refused_says_how_to_make_another(cluster: Cluster, site: Site) -> None:
    site.token_file.write_text("not.a.token")
    try:
        with pytest.raises(SchedulerUnreachable, match="token"):
            cluster.backend.nodes()
    finally:
        site.renew()
    assert json.dumps(cluster.backend.nodes())


def key_of(cluster: Cluster, job_id: str) -> JobKey:
    row = next(r for r in cluster.backend.queue() if r.job_id == job_id)
    return JobKey(job_id, row.work_dir)


def wait_for(cluster: Cluster, job_id: str, state: str) -> None:
    end = time.monotonic() + 120
    while state not in [r.state for r in cluster.backend.queue() if r.job_id == job_id]:
        assert time.monotonic() < end, cluster.backend.queue()
        time.sleep(0.5)


def reason_of(cluster: Cluster, job_id: str) -> str:
    return next(r.reason for r in cluster.backend.queue() if r.job_id == job_id)


def await_file(path: Path) -> None:
    end = time.monotonic() + 120
    while not path.exists():
        assert time.monotonic() < end, path
        time.sleep(0.2)


def test_the_doctor_looks_over_slurmrestd(cluster: Cluster) -> None:
    found = {check.name: check for check in checks(cluster, True)}
    assert "bad" not in {check.result for check in found.values()}
    assert "Slurm cluster " in found["scheduler"].text and found["job"].result == "ok"
