"""The dashboard of a cluster that is elsewhere: over SSH, and over slurmrestd."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from lab import Lab
from rest_site import Site, topology

from served import Served, dashboard, events, until
from slurm import Cluster
from slurm.stack import life

pytestmark = [pytest.mark.full, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def site(make_lab: Callable[..., Lab], place: Path) -> Iterator[Site]:
    shared = place / "shared-dashboard"
    shared.mkdir(mode=0o755)
    site = Site(make_lab(topology("24.11", shared)), shared)
    yield site
    life.destroy(site.lab.directory, site.lab.said.append)


@pytest.fixture(params=["ssh", "rest"])
def reached(
    request: pytest.FixtureRequest, site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Cluster, Served]]:
    """The cluster by one of two ways, and its dashboard by the same."""
    if request.param == "ssh":
        cluster = Cluster.from_stack(site.lab.name, time="5m", mem="50M")
        name = site.lab.name
    else:
        cluster = site.cluster()
        name = "default"
        keys = {"rest_url": site.url, "token_file": site.token_file, "backend_type": "rest"}
        keys["job_base_dir"] = site.shared / "jobs"
        lines = [f'{key} = "{value}"\n' for key, value in keys.items()]
        (tmp_path / "Slurmfile.toml").write_text("".join(["[default]\n", *lines]))
        # Jobs start where they were submitted; and no command of this machine may be asked.
        monkeypatch.chdir(site.shared)
        for command in ("scontrol", "sacct", "squeue", "scancel"):
            (tmp_path / command).write_text("#!/bin/sh\necho JobId=1 JobName=anothers\n")
            (tmp_path / command).chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with cluster, dashboard("--cluster", name, cwd=tmp_path) as served:
        served.enter()
        yield cluster, served


def press(served: Served, job: str, act: str) -> None:
    """Answer the question of a job's page with yes."""
    text = served.ask_until(f"/jobs/{job}", f'action="/jobs/{job}/{act}"')
    form = text.split(f'action="/jobs/{job}/{act}"')[1]
    fields = re.findall(r'name="(csrf|submit)" value="([^"]*)"', form)[:2]
    body = "&".join(f"{name}={value}" for name, value in fields)
    kind = "application/x-www-form-urlencoded"
    status, _, said = served.ask(
        f"/jobs/{job}/{act}", method="POST", body=body, Content_Type=kind, Origin=served.base
    )
    assert status < 400, said


def test_a_run_is_shown_with_its_log_and_cancelled(
    reached: tuple[Cluster, Served], site: Site
) -> None:
    cluster, served = reached
    over = cluster.submit(math.factorial)(5)
    assert over.result(120) == 120
    served.ask_until("/runs", over.run)
    served.ask_until("/nodes", "n2")

    job = cluster.submit(time.sleep, setup=["echo it lives"])(600)
    page = served.ask_until(f"/jobs/{job.id}", "Running")
    assert site.lab.name in page and job.run in page
    said = (told["text"] for name, told in events(served, f"/jobs/{job.id}/log") if name == "text")
    assert "it lives" in next(said)
    press(served, job.id, "cancel")
    until("it ends", lambda: job.done() and job.cancelled())


def test_another_job_is_shown_and_says_why_it_waits(
    reached: tuple[Cluster, Served], site: Site
) -> None:
    cluster, served = reached
    who = "root" if cluster.backend.kind == "rest" else "user"
    place = ("exec", "--user", who, "--workdir", "/", f"{site.lab.name}-login", "sbatch")
    words = ("--parsable", "--hold", "--comment=by hand", "--output=/tmp/none", "--wrap=true")
    job = site.lab.podman(*place, *words).strip()
    served.ask_until(f"/jobs/{job}", "Why it waits")
    text = served.ask_until(f"/jobs/{job}", "by hand")
    assert "anothers" not in text and "/tmp/none" in text
    press(served, job, "release")
    served.ask_until(f"/jobs/{job}", "Completed")
