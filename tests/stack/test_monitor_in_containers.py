"""The exporter on newer Slurms: by their commands, by slurmrestd, and both say the same."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from lab import Lab

from slurm.monitor.families import FAMILIES
from slurm.stack import life

pytestmark = [pytest.mark.full, pytest.mark.timeout(900)]

SOURCE = Path(__file__).parents[2] / "src" / "slurm"
PORT = 9341
#: What differs between two looks at the same cluster, or says how it was looked at.
_OWN = re.compile(
    r"slurm_sdk_(snapshot_age|part_age|start_timestamp|collection|commands|build_info|folded"
    r"|unreadable_rows|node_load|node_memory_bytes\{.*free|scheduler_|job_|jobs_.*_total)"
)


Scrape = Callable[[], dict[str, float]]


class Site:
    """A cluster with jobs of several kinds, a drained node, a reservation and slurmrestd."""

    def __init__(self, lab: Lab, place: Path) -> None:
        self.lab = lab
        self.token_file = place / f"token-{lab.name}"
        self.url = f"http://127.0.0.1:{lab.record.ports['slurmrestd'][1]}"
        self.renew()

    def renew(self, lifespan: int = 3600) -> None:
        """Put a new token where the exporter looks for it."""
        words = ("scontrol", "token", "username=root", f"lifespan={lifespan}")
        self.token_file.write_text(self.lab.stack.fleet.must(*words))

    @contextlib.contextmanager
    def by_rest(self, *options: str) -> Iterator[Scrape]:
        """An exporter here that asks slurmrestd."""
        words = [sys.executable, "-m", "slurm.cli", "monitor", "serve", "--port", "0"]
        words += ["--interval", "1", "--rest", self.url, "--token-file", str(self.token_file)]
        with subprocess.Popen([*words, *options], stderr=subprocess.PIPE, text=True) as process:
            try:
                assert process.stderr is not None
                line = process.stderr.readline()
                assert "http" in line, line + process.stderr.read()
                url = "http" + line.split("http")[1].split(";")[0]
                yield lambda: _series(_here(url))
            finally:
                process.terminate()

    @contextlib.contextmanager
    def by_commands(self) -> Iterator[Scrape]:
        """An exporter in slurmctld's container, which has Python and Slurm and nothing else."""
        name = f"{self.lab.name}-slurmctld"
        self.lab.podman("exec", name, "mkdir", "-p", "/tmp/sdk")
        self.lab.podman("cp", str(SOURCE), f"{name}:/tmp/sdk/slurm")
        serve = ("python3", "-m", "slurm.monitor", "serve", "--address", "0.0.0.0")
        words = ["podman", "exec", "--env", "PYTHONPATH=/tmp/sdk", name, *serve]
        process = subprocess.Popen([*words, "--interval", "1"], stderr=subprocess.DEVNULL)
        try:
            yield lambda: _series(self.lab.podman("exec", name, "python3", "-c", _SCRAPE))
        finally:
            self.lab.podman("exec", name, "sh", "-c", _END)
            process.wait(60)


# From there, since this machine need not have a way into the cluster's network.
_SCRAPE = f"""
import urllib.request
try:
    print(urllib.request.urlopen("http://127.0.0.1:{PORT}/metrics", timeout=10).read().decode())
except OSError:
    pass
"""
#: The process in the container, by its own words; the image has no pkill.
_END = """
for p in /proc/[0-9]*; do
  if tr '\\0' ' ' < $p/cmdline 2>/dev/null | grep -q '^python3 -m slurm.monitor'; then
    kill ${p#/proc/}
  fi
done
"""


@pytest.fixture(scope="module", params=["24.11", "26.05"])
def site(
    request: pytest.FixtureRequest, make_lab: Callable[..., Lab], place: Path
) -> Iterator[Site]:
    lab = make_lab(f'version = "{request.param}"\n[rest]\nenabled = true\n')
    reserve = ("starttime=now+3600", "duration=60", "nodes=n2", "users=root")
    lab.stack.fleet.must("scontrol", "create", "reservation", "reservationname=maint", *reserve)
    lab.stack.fleet.must("scontrol", "update", "nodename=n2", "state=drain", "reason=bad disk")
    busy = lab.batch("sleep 3000", "--time=90", "--job-name=a\nb")
    lab.batch("true", "--hold")
    lab.batch("true", "--array=0-98:2%5", "--begin=now+1hour")
    failed = lab.batch("exit 3")
    _until("one runs, one has failed", lambda: _states(lab, busy, failed) == ["RUNNING", "FAILED"])
    yield Site(lab, place)
    life.destroy(lab.directory, lab.said.append)


def _states(lab: Lab, *jobs: str) -> list[str]:
    return [lab.user("squeue", "-h", "-t", "all", "-o", "%T", "-j", job) for job in jobs]


def test_commands_and_slurmrestd_say_the_same(site: Site) -> None:
    with site.by_commands() as there, site.by_rest() as here:
        _until(
            "first snapshots", lambda: there().get("slurm_sdk_up") == here()["slurm_sdk_up"] == 1
        )
        # What happened in between may be seen by one of them only.
        end = time.monotonic() + 60
        while (odd := _differences(there, here)) and time.monotonic() < end:
            time.sleep(0.5)
        assert sorted(odd) == []
        both = there(), here()
    for found in both:
        assert found['slurm_sdk_jobs{state="running",partition="main"}'] == 1
        assert found['slurm_sdk_jobs{state="failed",partition="main"}'] == 1
        assert found['slurm_sdk_jobs_pending{reason="BeginTime",partition="main"}'] == 50
        assert found['slurm_sdk_jobs_pending{reason="JobHeldUser",partition="main"}'] == 1
        assert found['slurm_sdk_node_reason_info{node="n2",reason="bad disk"}'] == 1
        assert found["slurm_sdk_nodes_usable"] == 1
        assert found['slurm_sdk_reservation_nodes{reservation="maint",state="inactive"}'] == 1
        assert found["slurm_sdk_accounting_lag_seconds"] >= 0
        assert found['slurm_sdk_scheduler_rpc_total{type="REQUEST_SUBMIT_BATCH_JOB"}'] >= 4
        assert found["slurm_sdk_scheduler_main_cycles_total"] > 0
        names = {series.partition("{")[0] for series in found}
        told = {family.series for family in FAMILIES.values() if family.kind != "histogram"}
        missing = {name for name in told - names if "_job_" not in name}
        # Of a cluster without GPUs and licences; backfill has a mean only after its first cycle.
        assert missing <= {
            "slurm_sdk_license",
            "slurm_sdk_node_gres",
            "slurm_sdk_partition_gres",
            "slurm_sdk_scheduler_backfill_mean_cycle_seconds",
        }


def test_an_expired_token_leaves_old_numbers_and_a_new_one_brings_new_ones(site: Site) -> None:
    site.renew(lifespan=8)
    with site.by_rest("--stale-after", "20") as scrape:
        _until("first snapshot", lambda: scrape()["slurm_sdk_up"] == 1)
        refused = 'slurm_sdk_collection_failures_total{cause="token"}'
        _until("expired", lambda: scrape()[refused] > 0)
        found = scrape()
        assert found["slurm_sdk_up"] == 0
        # Served with its age, for as long as it is not too old.
        if found["slurm_sdk_snapshot_age_seconds"] < 20:
            assert "slurm_sdk_nodes_usable" in found
        _until("too old", lambda: "slurm_sdk_nodes_usable" not in scrape())
        site.renew()
        _until("back", lambda: scrape().get("slurm_sdk_nodes_usable") == 1)
        assert scrape()["slurm_sdk_up"] == 1


def _differences(one: Scrape, other: Scrape) -> set[tuple[str, float]]:
    both = [{(k, v) for k, v in scrape().items() if not _OWN.match(k)} for scrape in (one, other)]
    return both[0] ^ both[1]


def _here(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return str(answer.read().decode())


def _series(text: str) -> dict[str, float]:
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def _until(what: str, true: Callable[[], object], seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, f"not within {seconds} s: {what}"
        time.sleep(0.5)
