"""From nothing to a job that has run, and what Prometheus finds on the newest Slurm."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from lab import Lab, until

from slurm.stack import life

pytestmark = [pytest.mark.full, pytest.mark.timeout(1800)]


def test_up_to_the_first_job_takes_less_than_a_minute_once_images_exist(
    make_lab: Callable[..., Lab],
) -> None:
    # The first makes the images that are missing.
    for _ in range(2):
        begun = time.monotonic()
        lab = make_lab()
        took = time.monotonic() - begun
        assert any(line.startswith("jobs run on") for line in lab.said)
        life.destroy(lab.directory, lab.said.append)
    assert took < 60


def test_the_newest_slurmctld_is_scraped_as_well(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab('version = "26.05"\n[monitoring]\nenabled = true\n')
    own = {f"slurmctld-{what}" for what in ("jobs", "nodes", "partitions", "scheduler")}
    wanted = dict.fromkeys({"prometheus", "slurm", "node", *own}, "up")
    until(lambda: lab.targets() == wanted, lab.targets)
    assert lab.query("slurm_nodes") == 2
    life.destroy(lab.directory, lab.said.append)
