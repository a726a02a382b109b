"""A loaded Slurm with all that can be seen, its exporter, and a Prometheus that scrapes it."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from needed import need

if TYPE_CHECKING:
    from slurm.stack import RunningCluster

_CONF = (
    "GresTypes=gpu",
    "AccountingStorageTRES=gres/gpu",
    "Licenses=matlab:4",
    "PriorityType=priority/multifactor",
    "NodeName=DEFAULT Gres=gpu:a100:2",
)


def _slurm(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return done.stdout


def until(what: str, true: Callable[[], object], seconds: float = 60) -> None:
    """Wait for something; a guard against hangs, no measure of speed."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, f"not within {seconds} s: {what}"
        time.sleep(0.2)


def sbatch(*options: str, script: str = "sleep 1800") -> str:
    """Submit a script; its job id."""
    words = ["sbatch", "--parsable", "--output=/dev/null", *options, "--wrap", script]
    return _slurm(*words).strip()


@pytest.fixture(scope="session")
def watched_cluster(
    own_slurm_cluster: Callable[..., AbstractContextManager[RunningCluster]],
) -> Iterator[RunningCluster]:
    """Four nodes with GPUs and licences; jobs that run and wait; a reservation, a drained node."""
    files = {"gres.conf": "NodeName=n[1-4] Name=gpu Type=a100 File=/dev/null,/dev/zero\n"}
    with (
        own_slurm_cluster(nodes=4, extra_conf=_CONF, files=files) as cluster,
        pytest.MonkeyPatch.context() as patch,
    ):
        for key, value in cluster.env.items():
            patch.setenv(key, value)
        _slurm("scontrol", "update", "nodename=n4", "state=drain", 'reason=a "bad" disk\\')
        times = ("starttime=now+3600", "duration=60", "nodes=n3", "users=root")
        _slurm("scontrol", "create", "reservation", "reservationname=maint", *times)
        # A name that would like to be a second row, of a job that runs.
        hostile = "<b>\x1f\x1e\n" + "\x1f".join(["7", "RUNNING", *["1"] * 16, "x\x1f\x1e\n"])
        busy = sbatch("--gres=gpu:1", "--licenses=matlab:2", "--time=30", f"--job-name={hostile}")
        sbatch("--hold", "--job-name=" + os.fsdecode(b"caf\xe9 \xff\x80"))
        sbatch("--begin=now+1hour", "--array=0-999%5")
        until("job runs", lambda: "RUNNING" in _slurm("squeue", "-h", "-j", busy, "-o", "%T"))
        yield cluster


@pytest.fixture(autouse=True)
def _on_slurm(
    _clean_environment: None, watched_cluster: RunningCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a test starts itself finds the cluster, too."""
    for key, value in watched_cluster.env.items():
        monkeypatch.setenv(key, value)


@dataclass(frozen=True)
class Served:
    """An exporter that runs as its own process."""

    url: str
    pid: int

    def scrape(self, accept: str = "application/openmetrics-text") -> str:
        """What a scrape gets."""
        request = urllib.request.Request(self.url, headers={"Accept": accept})
        with urllib.request.urlopen(request, timeout=10) as answer:
            return str(answer.read().decode())

    def value(self, series: str) -> float | None:
        """The value of one series, named with its labels."""
        for line in self.scrape().splitlines():
            if line.startswith(series + " "):
                return float(line.rpartition(" ")[2])
        return None


def commands_follow_collections(one: Served) -> bool:
    """Whether Slurm was asked four things for each collection, and four more every two minutes."""
    commands = one.value("slurm_sdk_commands_total") or 0
    collections = one.value("slurm_sdk_collections_total") or 0
    age = time.time() - (one.value("slurm_sdk_start_timestamp_seconds") or 0)
    return 0 < commands <= 4 * (collections + 1) + 4 * (age // 120 + 1)


@contextmanager
def exporting(
    *options: str, command: tuple[str, ...] = (), cwd: Path | None = None
) -> Iterator[Served]:
    """`slurm monitor serve` on a free port."""
    words = command or (sys.executable, "-m", "slurm.cli", "monitor", "serve")
    process = subprocess.Popen(
        [*words, "--port", "0", "--interval", "1", *options],
        stderr=subprocess.PIPE,
        text=True,
        cwd=cwd,
    )
    try:
        assert process.stderr is not None
        line = process.stderr.readline()
        assert "http" in line, line + process.stderr.read()
        yield Served("http" + line.split("http")[1].split(";")[0].split()[0], process.pid)
        process.terminate()
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.communicate()


@pytest.fixture(scope="session")
def served(watched_cluster: RunningCluster) -> Iterator[Served]:
    """The session's exporter, once it has something to say."""
    with exporting() as found:
        until("first snapshot", lambda: found.value("slurm_sdk_up") == 1)
        yield found


@dataclass(frozen=True)
class Prometheus:
    """A real Prometheus."""

    url: str

    def query(self, expr: str) -> list[Any]:
        """The result of an instant query."""
        words = urllib.parse.urlencode({"query": expr})
        with urllib.request.urlopen(f"{self.url}/api/v1/query?{words}", timeout=20) as answer:
            found = json.load(answer)
        assert found["status"] == "success"
        return list(found["data"]["result"])


@contextmanager
def scraping(*jobs: dict[str, Any]) -> Iterator[Prometheus]:
    """A Prometheus with these scrape jobs."""
    need("prometheus")
    folder = Path(tempfile.mkdtemp(prefix="prometheus-"))
    conf = {"global": {"scrape_interval": "1s"}, "scrape_configs": jobs}
    (folder / "prometheus.yml").write_text(json.dumps(conf))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={folder}/prometheus.yml",
                f"--storage.tsdb.path={folder}/data",
                f"--web.listen-address={address}",
            ],
            stdout=log,
            stderr=log,
            env={"PATH": os.environ["PATH"], "GOMAXPROCS": "1"},
        )
    try:
        found = Prometheus(f"http://{address}")
        until("prometheus up", lambda: _answers(f"{found.url}/-/ready"))
        yield found
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def scrape_job(name: str, url: str, **more: Any) -> dict[str, Any]:
    """What Prometheus has to be told to scrape an exporter."""
    target = urllib.parse.urlparse(url).netloc
    return {"job_name": name, "static_configs": [{"targets": [target]}], **more}


@pytest.fixture(scope="session")
def prometheus(served: Served) -> Iterator[Prometheus]:
    """Prometheus, that has scraped the exporter while jobs came and went."""
    with scraping(scrape_job("slurm", served.url)) as found:
        until("first scrape", lambda: found.query("slurm_sdk_up == 1"))
        _churn(served)
        until("churn scraped", lambda: found.query("sum(slurm_sdk_jobs_ended_total) >= 14"))
        yield found


def _churn(served: Served) -> None:
    """Jobs that start and end, some badly, while Prometheus looks."""
    before = served.value('slurm_sdk_jobs_ended_total{partition="main",outcome="completed"}')
    sbatch("--array=0-9", script="sleep 1")
    sbatch("--array=0-3", script="exit 3")
    name = 'slurm_sdk_jobs_ended_total{partition="main",outcome="completed"}'
    until("jobs over", lambda: (served.value(name) or 0) >= (before or 0) + 10)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
