"""`slurm top`: its rows, and the program itself driven by keys."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import pytest

from slurm.api.slurm_commands import JobStatus
from slurm.cli.top_rows import job_rows, node_row
from slurm.errors import SchedulerUnreachable


def status(job_id: str, state: str = "RUNNING", **facts: Any) -> JobStatus:
    start = 100 if state == "RUNNING" else None
    known = JobStatus(job_id, state, "", "n1", None, None, 90, start, None, 0, "/jobs/nap-1", "nap")
    return known._replace(**facts)


QUEUE = [
    status("6_1", "PENDING", reason="Resources", nodes=""),
    status("5"),
    status("6_0"),
    status("6_10", nodes="n2"),
]
NODE = {
    "name": "n1", "state": "MIXED", "cpus": 8, "allocated_cpus": 2, "memory": 4096,
    "allocated_memory": 1024, "gres": "gpu:2", "reason": "",
}  # fmt: skip


def test_an_array_is_one_row_until_it_is_unfolded() -> None:
    folded = job_rows(QUEUE, now=165)
    assert [row.job_id for row in folded] == ["6", "5"]
    assert folded[0].state == "2 running, 1 pending"
    assert (folded[0].time, folded[0].nodes, folded[0].reason) == ("1:05", "2", "Resources")
    rows = job_rows(QUEUE, {"6"}, now=165)
    assert [row.job_id for row in rows] == ["6", "6_0", "6_1", "6_10", "5"]


def test_a_node_is_shown_by_what_is_used() -> None:
    row = node_row(NODE)
    assert (row.cpus, row.memory, row.gpus) == ("2/8", "1.0/4.0 GiB", "gpu:2")


class FakeJob:
    def __init__(self, job_id: str, cancelled: list[str]) -> None:
        self._id, self._cancelled = job_id, cancelled

    def log_lines(self, lines: int, stderr: bool = False) -> list[str]:
        return [f"the log of {self._id}", "on stderr" if stderr else "on stdout"]

    def cancel(self) -> None:
        self._cancelled.append(self._id)


class FakeCluster:
    """Answers as a cluster does; the queue of a real one changes under a test's hands."""

    def __init__(self) -> None:
        self.cancelled: list[str] = []
        self.down = False
        self.backend = self

    def queue(self) -> list[JobStatus]:
        if self.down:
            raise SchedulerUnreachable("the controller is away")
        return QUEUE

    def nodes(self) -> list[dict[str, Any]]:
        return [NODE]

    def attach(self, job_id: str) -> FakeJob:
        return FakeJob(job_id, self.cancelled)

    def __repr__(self) -> str:
        return "<Cluster fake>"


def drive(cluster: FakeCluster, keys: list[str], check: Callable[[Any], None]) -> None:
    pytest.importorskip("textual")
    from textual.worker import WorkerCancelled

    from slurm.cli.top_app import Top

    async def main() -> None:
        app = Top(cluster, interval=60)  # type: ignore[arg-type]
        async with app.run_test(size=(100, 30)) as pilot:
            for key in ["", *keys]:
                if key:
                    await pilot.press(key)
                for _ in range(3):  # work goes to threads and comes back
                    with contextlib.suppress(WorkerCancelled):  # a newer look took its place
                        await app.workers.wait_for_complete()
                    await pilot.pause()
            check(app)

    asyncio.run(asyncio.wait_for(main(), 60))


def text_of(app: Any) -> str:
    """All that is on the screen, as text."""
    return "\n".join(
        "".join(segment.text for segment in strip)
        for strip in app.screen._compositor.render_strips()
    )


def test_jobs_nodes_and_the_log_of_the_job_under_the_cursor_are_shown() -> None:
    def check(app: Any) -> None:
        shown = text_of(app)
        assert "2 running, 1 pending" in shown
        assert "the log of 5" in shown
        assert "on stdout" in shown

    drive(FakeCluster(), ["down"], check)


def test_enter_unfolds_an_array_and_its_elements_have_logs() -> None:
    drive(FakeCluster(), ["enter", "down"], lambda app: _has(app, "6_10", "the log of 6_0"))


def test_e_shows_the_other_stream_and_2_the_nodes() -> None:
    drive(FakeCluster(), ["down", "e"], lambda app: _has(app, "on stderr"))
    drive(FakeCluster(), ["2"], lambda app: _has(app, "1.0/4.0 GiB", "MIXED"))


def test_cancel_asks_first_and_enter_means_no() -> None:
    cluster = FakeCluster()
    drive(cluster, ["down", "c"], lambda app: _has(app, "Cancel job 5 (nap)?"))
    drive(cluster, ["down", "c", "enter"], lambda app: None)
    drive(cluster, ["down", "c", "n"], lambda app: None)
    assert cluster.cancelled == []
    drive(cluster, ["c", "y"], lambda app: None)
    assert cluster.cancelled == ["6"]


def test_a_scheduler_that_does_not_answer_is_said_and_the_last_rows_stay() -> None:
    cluster = FakeCluster()

    def check(app: Any) -> None:
        cluster.down = True

    drive(cluster, [], check)
    drive(cluster, ["r"], lambda app: _has(app, "the controller is away"))


@pytest.mark.parametrize("begin", ["_look", "_read_log"])
def test_what_a_thread_finds_while_the_program_ends_is_let_go(
    monkeypatch: pytest.MonkeyPatch, begin: str
) -> None:
    pytest.importorskip("textual")
    from slurm.cli.top_app import Top

    ended: list[bool] = []
    close = Top._close_all

    async def closing(app: Top) -> None:
        await close(app)  # the tables are gone, the threads are not
        getattr(app, begin)()
        await app.workers.wait_for_complete()
        ended.append(True)

    monkeypatch.setattr(Top, "_close_all", closing)
    drive(FakeCluster(), ["down"], lambda app: None)
    assert ended


@pytest.mark.attack
def test_a_name_of_others_neither_ends_the_program_nor_commands_the_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = "[/foo] [bold]x \x1b[2J\u202e"
    monkeypatch.setattr("test_top.QUEUE", [status("5", name=name)])
    drive(FakeCluster(), ["c"], lambda app: _has(app, "[/foo] [bold]x \ufffd[2J\ufffd"))


def _has(app: Any, *texts: str) -> None:
    shown = text_of(app)
    for text in texts:
        assert text in shown, shown
