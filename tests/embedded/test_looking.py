"""Looking never changes: whatever verb looks at a run, its files and the queue stay as they are."""

from __future__ import annotations

import asyncio
import contextlib
import json
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from served import dashboard
from slurm import Cluster, rundir, task
from slurm.api.backend import Backend
from slurm.api.looking import Looking, OnlyLooks
from slurm.cli import verbs
from slurm.cli.eff import eff
from slurm.cli.frame import Common
from slurm.cli.graph import graph
from slurm.cli.logs import logs
from slurm.cli.ls import ls
from slurm.cli.mcp import CHANGES, LOOKS, ByName, tool_of
from slurm.cli.show import show
from slurm.cli.views import nodes, partitions, queue
from slurm.cli.why import why
from slurm.errors import UntrustedRun, UsageError
from waiting import holds, until

pytestmark = pytest.mark.attack


#: Submits a map whose parts no small job goes on with (nodes may not call sbatch), and leaves.
HALF = """
import os, sys
import slurm.target
from slurm import Cluster, task
from slurm.api import parts

@task(time="5min")
def square(x):
    print("item", x)
    return x * x

slurm.target.SMALL_ARRAY = 3
parts._submit_pump = lambda *_: None
if __name__ == "__main__":
    with Cluster("embedded", job_base_dir=sys.argv[1]) as cluster:
        cluster._limits = {"max_job_count": 5}
        print(square.map(range(9)).run, flush=True)
        os._exit(0)
"""


@pytest.fixture
def half(tmp_path: Path) -> Path:
    """A run whose first part is over while its second waits for a client to submit it."""
    script, base = tmp_path / "half.py", tmp_path / "jobs"
    script.write_text(HALF)
    command = [sys.executable, str(script), str(base)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90)
    assert done.returncode == 0, done.stderr
    run = base / done.stdout.split()[-1]
    sent = sum(1 for _ in run.glob(rundir.SUBMIT + "/*.id"))
    assert 0 < sent < json.loads((run / rundir.PARTS).read_text())["parts"]
    backend = Cluster("embedded", job_base_dir=base).backend
    until("the first part is over", lambda: backend.queue() == [])
    return run


def tree(folder: Path) -> dict[str, tuple[int, int, int]]:
    """All files and folders with mode, size and time of the last change."""
    found = [folder, *folder.rglob("*")]
    infos = {str(path): path.lstat() for path in found}
    return {path: (i.st_mode, i.st_size, i.st_mtime_ns) for path, i in infos.items()}


def changed(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """The paths that differ."""
    return sorted(path for path in {**before, **after} if before.get(path) != after.get(path))


def look_everywhere(run: Path) -> None:
    """Every verb that looks, by the path of the run and by its name."""
    plain = Common(cluster="embedded", job_base_dir=str(run.parent))
    for common, name in ((plain, run.name), (Common(), str(run))):
        assert show(name, common=common).run == run.name
        why(name, common=common)
        why(name, task=8, common=common)
        assert list(logs(str(run) if name == str(run) else name, task=0, common=common))
        assert eff(name, common=common).calls
        graph(name, common=common)
    assert [row.run for row in ls(common=plain).runs] == [run.name]
    queue(common=plain)
    nodes(common=plain)
    partitions(common=plain)


def in_tools(run: Path) -> None:
    """The same as tools for assistants."""
    common = ByName(cluster="embedded", job_base_dir=str(run.parent))
    for verb in verbs():
        if verb.name in LOOKS:
            tool = tool_of(verb, common)
            given = {"run": run.name} if "run" in tool.schema["properties"] else {}
            given |= {"task": 0} if verb.name == "logs" else {}  # type: ignore[dict-item]
            answer, wrong = tool.call(given)
            assert not wrong, (verb.name, answer)


def in_top(run: Path) -> None:
    """`slurm top` with the log of one of its jobs."""
    from textual.worker import WorkerCancelled

    from slurm.cli.top_app import Top

    cluster = Common(cluster="embedded", job_base_dir=str(run.parent)).look()

    async def main() -> None:
        async with Top(cluster, interval=60).run_test() as pilot:
            with contextlib.suppress(WorkerCancelled):  # a newer look took its place
                await pilot.app.workers.wait_for_complete()
            first = cluster.attach(run.name)
            first[0].watch()
            await pilot.pause()

    asyncio.run(asyncio.wait_for(main(), 60))


def in_browser(run: Path) -> None:
    """The pages of the dashboard about it."""
    job = (run / rundir.SUBMIT / "0.id").read_text()
    with dashboard("--cluster", "embedded", "--job-base-dir", str(run.parent)) as served:
        served.enter()
        for page in ("/", "/runs", f"/runs/{run.name}", f"/jobs/{job}", f"/jobs/{job}_0"):
            status, *_ = served.ask(page)
            assert status == 200, page


@pytest.mark.parametrize("way", [look_everywhere, in_tools, in_top, in_browser])
def test_looking_at_a_run_changes_neither_its_files_nor_the_queue(
    half: Path, way: Callable[[Path], None]
) -> None:
    """Its next part waits for a client, and who only looks is none."""
    cluster = Cluster("embedded", job_base_dir=half.parent)
    before, jobs = tree(half.parent), cluster.queue()
    way(half)
    # The watchers of those who looked live on in this process.
    holds("the files stay", lambda: changed(before, tree(half.parent)) == [], 2)
    assert cluster.queue() == jobs == []


def test_who_attaches_from_python_goes_on_with_an_own_run(half: Path) -> None:
    array = Cluster("embedded", job_base_dir=half.parent).attach(half.name)
    assert array.results(90) == [x * x for x in range(9)]


def test_a_backend_that_looks_has_no_verb_that_changes(tmp_path: Path) -> None:
    whole = Cluster("embedded", job_base_dir=tmp_path).backend
    only = OnlyLooks(whole)
    changing = {name for name in vars(Backend) if not name.startswith("_")} - {"find_job"}
    assert {"submit_job", "advance", "retry", "request", "remove_runs", "run"} <= changing
    assert not [name for name in changing if hasattr(only, name)]
    assert changing.isdisjoint(vars(Looking))
    for verb in ("submit", "advance", "request", "read_value", "run", "store_put", "put_sdk"):
        with pytest.raises(UsageError, match="only looks"):
            only.call(verb)


# ---- nothing is unpickled -----------------------------------------------------------------------


class Bomb(Exception):
    """Leaves a file behind where it is unpickled."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path

    def __reduce__(self) -> Any:
        return open, (self.path, "w")


@pytest.fixture
def cloned(tmp_path: Path) -> tuple[Path, Path]:
    """A run directory of somebody else, as `git clone` leaves it: yours, modes 755 and 644."""

    @task(time="5min")
    def bad(x: int) -> None:
        raise ValueError(f"no {x}")

    mark, base = tmp_path / "mark", tmp_path / "repository" / "jobs"
    with Cluster("embedded", job_base_dir=base):
        job = bad(1)
        assert isinstance(job.exception(90), ValueError)
    run = base / job.run
    (segment,) = (run / rundir.RESULTS).iterdir()
    (record,) = rundir.decode_records(segment.read_bytes())[0]
    who = rundir.Identity(record.job, record.index, record.rank, record.attempt)
    bomb = pickle.dumps(Bomb(str(mark)))
    segment.write_bytes(rundir.encode_record(who, record.kind, record.header, bomb))
    metadata = json.loads((run / rundir.METADATA).read_text())
    secret = tmp_path / "id_rsa"
    secret.write_text("PRIVATE KEY\n")
    metadata["options"]["output"] = metadata["options"]["error"] = str(secret)
    (run / rundir.METADATA).write_text(json.dumps(metadata))
    for path in (p for p in [base, *base.rglob("*")] if not p.is_symlink()):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return run, mark


def test_nothing_of_a_cloned_run_is_unpickled_and_no_file_outside_of_it_is_read(
    cloned: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    run, mark = cloned
    monkeypatch.chdir(run.parents[1])
    found = why(str(run))
    assert "ValueError: no 1" in found.answer.text
    shown = show(str(run))
    assert shown.failed
    with pytest.raises(UntrustedRun, match="lies outside of its run") as refused:
        list(logs(str(run)))
    assert "--job-base-dir" in str(refused.value.hint)
    assert "PRIVATE KEY" not in found.as_json() + shown.as_json()
    # One that was named by its owner may have its log where the owner wanted it.
    named = Common(cluster="embedded", job_base_dir=str(run.parent))
    assert [line.line for line in logs(run.name, common=named)] == ["PRIVATE KEY"]
    assert not mark.exists()


@pytest.mark.parametrize("kind", ["link", "folder", "hard link"])
def test_no_link_in_a_run_leads_out_of_it(cloned: tuple[Path, Path], kind: str) -> None:
    run, _ = cloned
    secret = run.parents[2] / "id_rsa"
    metadata = json.loads((run / rundir.METADATA).read_text())
    metadata["options"]["output"] = "mine/id_rsa"
    (run / rundir.METADATA).write_text(json.dumps(metadata))
    if kind == "folder":
        (run / "mine").symlink_to(secret.parent)
    else:
        (run / "mine").mkdir()
        link = (
            (run / "mine/id_rsa").symlink_to
            if kind == "link"
            else (run / "mine/id_rsa").hardlink_to
        )
        link(secret)
    with pytest.raises(UntrustedRun, match="lies outside of its run"):
        list(logs(str(run)))


def test_tools_take_names_of_the_configured_base_only(
    cloned: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    run, mark = cloned
    monkeypatch.chdir(run.parents[1])
    here = ByName(cluster="embedded", job_base_dir=str(run.parents[2] / "own"))
    inside = ByName(cluster="embedded", job_base_dir=str(run.parent))
    for verb in verbs():
        if verb.name not in (*LOOKS, *CHANGES, "result"):
            continue
        tool = tool_of(verb, here)
        if "run" not in tool.schema["properties"]:
            continue
        for path in (str(run), f"../jobs/{run.name}", f"./jobs/{run.name}", "~/x"):
            answer, wrong = tool.call({"run": path})
            assert wrong and "is a path" in json.dumps(answer), (verb.name, answer)
        answer, wrong = tool.call({"run": f"jobs/{run.name}"})
        assert wrong and "no run" in json.dumps(answer), (verb.name, answer)
        if verb.name in LOOKS:
            answer, wrong = tool_of(verb, inside).call({"run": run.name})
            assert "PRIVATE KEY" not in json.dumps(answer), verb.name
            assert not mark.exists(), verb.name


def test_a_profile_brings_no_code_to_who_only_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "Slurmfile.toml"
    file.write_text(
        '[default]\nbackend_type = "embedded"\ncallbacks = ["no_such_module:Nothing"]\n'
    )
    monkeypatch.chdir(tmp_path)
    assert Common().look().defaults == {}
