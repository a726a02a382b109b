"""What goes wrong around the exporter: it says so, serves what it knows, and comes back."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from conftest import Served, exporting, sbatch, until
from slurm.api.connect import connect
from slurm.monitor import Collector
from slurm.monitor.collector import SELDOM, STALE

if TYPE_CHECKING:
    from slurm.stack import RunningCluster

pytestmark = pytest.mark.xdist_group("monitor")

FAKETIME = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1")


def test_a_dead_controller_leaves_old_numbers_that_say_their_age(
    watched_cluster: RunningCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Slurm's commands try for nine seconds by default; the exporter's give up sooner.
    hasty = tmp_path / "slurm.conf"
    hasty.write_text(Path(watched_cluster.env["SLURM_CONF"]).read_text() + "MessageTimeout=3\n")
    monkeypatch.setenv("SLURM_CONF", str(hasty))
    with exporting("--stale-after", "3") as one:
        until("snapshot", lambda: one.value("slurm_sdk_up") == 1)
        watched_cluster.stop_daemon("slurmctld")
        try:
            until("noticed", lambda: one.value("slurm_sdk_up") == 0)
            until("too old to be served", lambda: one.value("slurm_sdk_nodes_usable") is None)
            assert (one.value("slurm_sdk_snapshot_age_seconds") or 0) > 3
            failed = 'slurm_sdk_collection_failures_total{cause="unreachable"}'
            assert (one.value(failed) or 0) > 0
        finally:
            watched_cluster.start_daemon("slurmctld")
        until("back", lambda: one.value("slurm_sdk_nodes_usable") == 3, 90)
        assert one.value("slurm_sdk_up") == 1


@pytest.mark.full
def test_a_controller_that_hangs_keeps_no_scrape_waiting(watched_cluster: RunningCluster) -> None:
    pid = watched_cluster.pid("slurmctld")
    assert pid is not None
    with exporting("--stale-after", "10") as one:
        until("snapshot", lambda: one.value("slurm_sdk_up") == 1)
        os.kill(pid, signal.SIGSTOP)
        try:
            slowest = 0.0
            end = time.monotonic() + 120
            while one.value("slurm_sdk_up") != 0:
                began = time.monotonic()
                assert one.scrape()
                slowest = max(slowest, time.monotonic() - began)
                assert time.monotonic() < end
                time.sleep(0.1)
            # slurmctld is silent for tens of seconds; a scrape does not wait for it.
            assert slowest < 5
            until("too old to be served", lambda: one.value("slurm_sdk_nodes_usable") is None)
        finally:
            os.kill(pid, signal.SIGCONT)
        until("back", lambda: one.value("slurm_sdk_nodes_usable") == 3, 120)


@pytest.mark.full
def test_without_slurmdbd_shares_grow_old_and_jobs_are_still_counted(
    watched_cluster: RunningCluster,
) -> None:
    now = [0.0]
    collector = Collector(connect("local", "~/slurm_jobs"), clock=lambda: now[0])
    assert collector.collect()
    first = collector.view().snapshot
    assert first is not None and first.shares and first.older["shares"] == 0
    watched_cluster.stop_daemon("slurmdbd")
    try:
        ended = sbatch(script="true")
        until("over", lambda: _state(ended) == "COMPLETED")
        now[0] = SELDOM + 1
        assert collector.collect(), collector.view().health.problem
        second = collector.view().snapshot
        assert second is not None
        assert second.shares
        assert ended in second.jobs
        # Nobody says that accounting is up to date while it is away.
        assert second.accounting_lag is None
        assert second.controller.numbers["dbd_queue_size"] > 0
        # sshare may still be answered, by slurmctld: then they are not old.
        assert second.older["shares"] in (0, SELDOM + 1)
    finally:
        watched_cluster.start_daemon("slurmdbd")
    now[0] += SELDOM + STALE
    until("accounting answers", lambda: _collected(collector, now).accounting_lag is not None)


def _collected(collector: Collector, now: list[float]):
    now[0] += SELDOM
    assert collector.collect()
    return collector.view().snapshot


def _more_than(one: Served, collections: float) -> bool:
    return (one.value("slurm_sdk_collections_total") or 0) > collections


# libfaketime mistakes a sleep until a moment of the other clock, as Python's are, for one by the
# clock that it fakes.
_SLEEPS = """
import runpy, select, sys, time
time.sleep = lambda seconds: select.select([], [], [], seconds)
sys.argv[0] = "monitor"
runpy.run_module("slurm.monitor", run_name="__main__")
"""


@pytest.mark.full
def test_a_clock_that_jumps_changes_no_age_and_no_counter(
    watched_cluster: RunningCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert FAKETIME.exists(), "make packages installs faketime"
    offset = tmp_path / "offset"
    offset.write_text("+0\n")
    monkeypatch.setenv("LD_PRELOAD", str(FAKETIME))
    monkeypatch.setenv("FAKETIME_TIMESTAMP_FILE", str(offset))
    monkeypatch.setenv("FAKETIME_NO_CACHE", "1")
    # A person who sets the clock does not touch this one.
    monkeypatch.setenv("FAKETIME_DONT_FAKE_MONOTONIC", "1")
    command = (sys.executable, "-c", _SLEEPS, "serve")
    with exporting("--stale-after", "60", command=command) as one:
        monkeypatch.delenv("LD_PRELOAD")
        until("snapshot", lambda: one.value("slurm_sdk_up") == 1)
        began = one.value("slurm_sdk_start_timestamp_seconds") or 0
        for jump in ("+10d", "-10d", "+0"):
            offset.write_text(jump + "\n")
            done = one.value("slurm_sdk_collections_total") or 0
            until("three more", functools.partial(_more_than, one, done + 3))
            assert one.value("slurm_sdk_up") == 1
            assert (one.value("slurm_sdk_snapshot_age_seconds") or 0) < 60
            assert one.value("slurm_sdk_nodes_usable") == 3
            assert one.value('slurm_sdk_jobs_vanished_total{partition="main"}') == 0
            assert one.value('slurm_sdk_jobs_submitted_total{partition="main"}') == 0
        assert one.value("slurm_sdk_start_timestamp_seconds") == began
        job = sbatch(script="sleep 1")
        until("over", lambda: _state(job) == "COMPLETED")
        ended = 'slurm_sdk_jobs_ended_total{partition="main",outcome="completed"}'
        until("seen", lambda: one.value(ended) == 1)
        # Its wait is by the controller's clock alone.
        assert one.value('slurm_sdk_job_wait_seconds_bucket{partition="main",le="3600.0"}') == 1


@pytest.mark.full
def test_an_exporter_that_was_killed_begins_with_nothing_and_counts_no_old_job(
    watched_cluster: RunningCluster,
) -> None:
    ended = 'slurm_sdk_jobs_ended_total{partition="main",outcome="completed"}'
    words = [sys.executable, "-m", "slurm.monitor", "serve", "--port", "0", "--interval", "1"]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as killed:
        assert killed.stderr is not None
        killed.stderr.readline()
        killed.send_signal(signal.SIGKILL)
    job = sbatch(script="true")
    until("over", lambda: _state(job) == "COMPLETED")
    with exporting() as one:
        until("snapshot", lambda: one.value("slurm_sdk_up") == 1)
        # What ended before is in the gauge, and in no counter.
        assert (one.value('slurm_sdk_jobs{state="completed",partition="main"}') or 0) >= 1
        assert one.value(ended) == 0
        assert one.value('slurm_sdk_jobs_submitted_total{partition="main"}') == 0
        again = sbatch(script="true")
        until("seen", lambda: one.value(ended) == 1)
        assert _state(again) == "COMPLETED"


def _state(job: str) -> str:
    words = ["squeue", "-h", "-t", "all", "-o", "%T", "-j", job]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    return done.stdout.strip()
