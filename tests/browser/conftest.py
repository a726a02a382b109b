"""A real Slurm with jobs, the dashboard as a process of its own, and a real Chromium."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from chromium import Browser, Page, chromium

from served import Served, dashboard, events, until

if TYPE_CHECKING:
    from slurm.stack import RunningCluster

#: What an attacker would write into names, comments, reasons and logs.
ATTACK = '<img src=x onerror="window.pwned=1"><script>window.pwned=1</script>"\'>&lt;'
_CONF = (
    "GresTypes=gpu",
    "AccountingStorageTRES=gres/gpu",
    "Licenses=matlab:4",
    "PriorityType=priority/multifactor",
    "AccountingStoreFlags=job_comment,job_env,job_script",
    "NodeName=DEFAULT Gres=gpu:a100:2",
    "PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP",
    "PartitionName=gpu Nodes=n3 MaxTime=60 State=UP",
)
_GRES = {"gres.conf": "NodeName=n[1-4] Name=gpu Type=a100 File=/dev/null,/dev/zero\n"}


def slurm(*command: str) -> str:
    """Run one of Slurm's commands."""
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout


def sbatch(*options: str, script: str = "sleep 600") -> str:
    """Submit a script; its job id."""
    return slurm("sbatch", "--parsable", *options, "--wrap", script).strip()


@dataclass
class Jobs:
    """The jobs that every test finds."""

    talks: str
    waits: str
    held: str
    array: str
    failed: str
    victim: str
    folder: Path
    #: A run of this SDK that waits for a map.
    run: str


@pytest.fixture(scope="session")
def watched(
    own_slurm_cluster: Callable[..., AbstractContextManager[RunningCluster]],
) -> Iterator[RunningCluster]:
    """Four nodes with GPUs, two partitions, a drained node."""
    with (
        own_slurm_cluster(nodes=4, extra_conf=_CONF, files=_GRES) as cluster,
        pytest.MonkeyPatch.context() as patch,
    ):
        for key, value in cluster.env.items():
            patch.setenv(key, value)
        slurm("scontrol", "update", "nodename=n4", "state=drain", f"reason={ATTACK[:60]}")
        yield cluster


@pytest.fixture(autouse=True)
def _on_slurm(
    _clean_environment: None, watched: RunningCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key, value in watched.env.items():
        monkeypatch.setenv(key, value)


@pytest.fixture(scope="session")
def jobs(watched: RunningCluster, tmp_path_factory: pytest.TempPathFactory) -> Jobs:
    """Jobs that run, wait, are held, and failed; with what an attacker would write."""
    folder = tmp_path_factory.mktemp("logs")
    lines = folder / "lines.sh"
    lines.write_text(
        f"while :; do echo '{ATTACK.replace(chr(39), '')} line' $((n=n+1)); sleep 1; done\n"
    )
    talks = sbatch(
        *(f"--output={folder}/talks.out", f"--job-name=talks {ATTACK}", f"--comment={ATTACK}"),
        *("--gres=gpu:1", "--time=60"),
        script=f"bash {lines}",
    )
    plain = f"--output={folder}/%j.out"
    return Jobs(
        talks=talks,
        waits=sbatch(plain, f"--dependency=afterok:{talks}", "--job-name=waits"),
        held=sbatch(plain, "--hold", "--job-name=held"),
        array=sbatch("--output=/dev/null", "--array=0-39%4", "--job-name=sweep", script="sleep 3"),
        failed=sbatch(plain, "--job-name=failed", script="echo last words; exit 3"),
        victim=sbatch("--output=/dev/null", "--job-name=victim"),
        folder=folder,
        run=_sdk_run(folder / "runs"),
    )


def _sdk_run(base: Path) -> str:
    """A map of this SDK and a call that waits for it; the name of the latter's run."""
    import slurm as sdk

    @sdk.task(time="10min", mem="50M")
    def square(number: int) -> int:
        return number * number

    @sdk.task(time="10min", mem="50M")
    def total(numbers: list[int]) -> int:
        return sum(numbers)

    with sdk.Cluster(backend_type="local", job_base_dir=str(base)):
        return total(square.map(range(6))).run  # type: ignore[arg-type]


@pytest.fixture(scope="session")
def served(watched: RunningCluster, jobs: Jobs) -> Iterator[Served]:
    """The session's dashboard."""
    with dashboard("--job-base-dir", f"{jobs.folder}/runs") as found:
        yield found


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """The session's Chromium."""
    with chromium() as found:
        yield found


@pytest.fixture(scope="session")
def entered(served: Served, browser: Browser) -> Served:
    """The dashboard, once the browser went through its link; others use the same cookie."""
    page = browser.page()
    page.go(served.link)
    page.until("location.pathname === '/'")
    cookies: list[dict[str, Any]] = browser.call("Storage.getCookies")["cookies"]
    found = next(c for c in cookies if c["name"].startswith("slurm-dashboard"))
    served.cookie = f"{found['name']}={found['value']}"
    page.close()
    return served


@dataclass
class Viewers:
    """Nine who watch the queue from the session's begin on, beside the pages of the tests."""

    served: Served
    begun: float
    memory: int
    #: Of each: the number of the collection that it saw last, and the parts that it got.
    seen: list[list[int]]
    first: int = 0

    def collections(self) -> list[int]:
        """The number of the last collection that each has seen."""
        return [one[0] for one in self.seen]

    def parts(self) -> list[int]:
        """How many new pages each got."""
        return [one[1] for one in self.seen]


@pytest.fixture(scope="session")
def viewers(entered: Served) -> Iterator[Viewers]:
    """The nine, in threads of this process."""
    found = Viewers(entered, time.monotonic(), 0, [[0, 0] for _ in range(9)])
    stop = threading.Event()

    def watch(mine: list[int]) -> None:
        for name, told in events(entered, "/"):
            if name == "state":
                mine[0] = int(told["about"].split()[0])
            mine[1] += name == "part"
            if stop.is_set():
                return

    threads = [threading.Thread(target=watch, args=(one,), daemon=True) for one in found.seen]
    for thread in threads:
        thread.start()
    until("all have seen it", lambda: min(found.collections()) > 0)
    found.first, found.memory = min(found.collections()), entered.resident
    yield found
    stop.set()


@pytest.fixture
def page(viewers: Viewers, entered: Served, browser: Browser) -> Iterator[Page]:
    """A page in the browser that was let in; nothing may run that is not ours."""
    found = browser.page()
    yield found
    assert found.run("window.pwned") is None
    assert found.complaints() == []
    found.close()
