"""What callbacks are made of: the order of events, notifications, spans, rows and HTML."""

from __future__ import annotations

import dataclasses
import http.server
import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from slurm.callbacks import BaseCallback, NotifyCallback, OpenTelemetryCallback, contexts
from slurm.callbacks.base import HOOKS
from slurm.callbacks.contexts import ALL, CompletedContext, SubmitEndContext
from slurm.callbacks.lines import Callbacks, Line
from slurm.callbacks.progress import MOST, Display, ProgressCallback, Row, clock, together
from slurm.callbacks.terminal import TerminalDisplay, line
from slurm.errors import OptionError
from slurm.html import job_html, rows_html
from slurm.model.states import JobState
from waiting import until


def completed(name: str = "train", run: str = "train-1", **facts: Any) -> CompletedContext:
    known: dict[str, Any] = {
        "time": 130.0,
        "job": SimpleNamespace(outcome=lambda: (None, ValueError("bad luck"))),
        "job_id": "7",
        "state": JobState.COMPLETED,
        "succeeded": True,
        "reason": "",
        "node": "n1",
        "exit_code": 0,
        "submitted": 100.0,
        "started": 110.0,
        "ended": 130.0,
    }
    return CompletedContext(name=name, run=run, **{**known, **facts})


def submitted(run: str = "train-1", jobs: int = 1, **facts: Any) -> SubmitEndContext:
    made: Any = tuple(SimpleNamespace(id=f"7_{n}") for n in range(jobs))
    known: dict[str, Any] = {
        "time": 100.5,
        "name": "train",
        "options": {},
        "count": jobs,
        "is_array": jobs > 1,
        "is_packed": False,
        "is_workflow": False,
        "cluster": None,
        "duration": 0.5,
        "jobs": made,
    }
    return SubmitEndContext(run=run, **{**known, **facts})


# ---- hooks and contexts -------------------------------------------------------------------------


def test_every_hook_has_a_context_that_says_where_it_runs() -> None:
    told = {cls.hook: cls.where for cls in ALL}
    assert told == {hook: where for hook, where in HOOKS.items() if "wait" not in hook}


def test_contexts_cannot_be_changed_by_a_callback_for_the_next_one() -> None:
    for cls in ALL:
        assert dataclasses.fields(cls)
        assert cls.__dataclass_params__.frozen  # type: ignore[attr-defined]


def test_times_are_told_as_seconds_in_the_queue_and_in_the_run() -> None:
    assert completed().waited == 10.0
    assert completed().duration == 20.0
    assert completed(started=None).duration is None
    assert completed(run="flow-1/tasks/train/train-1").is_child
    assert not completed().is_child


def test_old_names_of_contexts_can_be_imported() -> None:
    import slurm.callbacks as package

    assert package.JobStatusUpdatedContext is contexts.StatusChangeContext
    with pytest.raises(AttributeError):
        package.nothing  # noqa: B018


def test_importing_callbacks_loads_nothing_but_the_standard_library() -> None:
    code = (
        "import sys, slurm.callbacks as c\n"
        "[getattr(c, n) for n in c.__all__ if n != 'OpenTelemetryCallback']\n"
        "print([m for m in ('rich', 'textual', 'IPython', 'opentelemetry', 'msgspec', 'cyclopts')"
        " if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"


# ---- lines --------------------------------------------------------------------------------------


class Hears(BaseCallback):
    def __init__(self) -> None:
        self.heard: list[Any] = []
        self.open = threading.Event()

    def on_completed(self, ctx: CompletedContext) -> None:
        self.open.wait(30)
        self.heard.append(ctx.name)

    def on_array_progress(self, ctx: Any) -> None:
        self.heard.append(ctx.done)


def test_events_are_heard_in_order_and_the_thread_goes_when_nothing_is_left() -> None:
    hears = Hears()
    line_of = Line(hears)
    for number in range(50):
        line_of.put(lambda number=number: completed(str(number)))  # type: ignore[misc]
    assert hears.heard == []
    hears.open.set()
    assert line_of.drain(time.monotonic() + 30)
    assert hears.heard == [str(number) for number in range(50)]
    until("the thread has gone", lambda: line_of._thread is None)


def test_progress_that_waits_to_be_told_is_told_once_with_the_newest_numbers() -> None:
    hears, done = Hears(), [0]
    callbacks = Callbacks([hears])

    def progress() -> Any:
        return contexts.ArrayProgressContext(
            time=0, run="r", name="n", job_id="1", total=9, done=done[0], succeeded=0, failed=0,
            running=0,
        )  # fmt: skip

    callbacks.tell(completed("first"))
    for number in range(1, 10):
        done[0] = number
        callbacks.tell_latest("on_array_progress", progress, "key")
    hears.open.set()
    callbacks._lines[0].drain(time.monotonic() + 30)
    assert hears.heard == ["first", 9]


def test_a_hook_that_nobody_overrides_costs_no_thread() -> None:
    callbacks = Callbacks([BaseCallback()])
    callbacks.tell(completed())
    assert not callbacks.listen("on_completed")
    assert callbacks._lines[0]._thread is None


def test_a_line_that_does_not_empty_in_time_says_so() -> None:
    hears = Hears()
    line_of = Line(hears)
    line_of.put(completed)
    assert not line_of.drain(time.monotonic() + 0.05)
    hears.open.set()
    assert line_of.drain(time.monotonic() + 30)


# ---- notify -------------------------------------------------------------------------------------


@pytest.fixture
def hook_server() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    got: list[dict[str, Any]] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            size = int(self.headers["Content-Length"])
            got.append({**json.loads(self.rfile.read(size)), "auth": self.headers.get("X-Key")})
            self.send_response(204)
            self.end_headers()

        def log_message(self, *args: Any) -> None:
            """Quiet."""

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/hook", got
    server.shutdown()
    server.server_close()


def test_a_webhook_gets_one_post_per_run_also_for_an_array(
    hook_server: tuple[str, list[dict[str, Any]]],
) -> None:
    url, got = hook_server
    notify = NotifyCallback(webhook=url, headers={"X-Key": "k"})
    notify.on_submit_end(submitted(jobs=3))
    notify.on_completed(completed())
    notify.on_completed(completed(succeeded=False, state=JobState.FAILED))
    assert got == []
    notify.on_completed(completed())
    assert len(got) == 1
    assert (got[0]["failed"], got[0]["run"], got[0]["auth"]) == (1, "train-1", "k")
    assert got[0]["text"].startswith("train: FAILED\njob 7 after 20 s\n1 failed")


def test_mail_goes_through_sendmail_and_words_through_the_command(tmp_path: Path) -> None:
    for name in ("sendmail", "pager"):
        program = tmp_path / name
        program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {tmp_path}/{name}.args\n'
                           f"cat > {tmp_path}/{name}.in\n")  # fmt: skip
        program.chmod(0o755)
    notify = NotifyCallback(
        email="ada@example.com",
        command=[str(tmp_path / "pager"), "{title}", "--", "{text}"],
        sendmail=[str(tmp_path / "sendmail"), "-t"],
    )
    notify.on_completed(completed(succeeded=False, state=JobState.OUT_OF_MEMORY))
    mail = (tmp_path / "sendmail.in").read_text()
    assert "To: ada@example.com" in mail
    assert "Subject: train: OUT_OF_MEMORY" in mail
    assert "bad luck" in mail
    assert (tmp_path / "pager.args").read_text().startswith("train: OUT_OF_MEMORY\n--\njob 7")


def test_one_way_that_fails_does_not_keep_the_others_from_telling(
    hook_server: tuple[str, list[dict[str, Any]]],
) -> None:
    url, got = hook_server
    notify = NotifyCallback(command=["/no/such/program"], webhook=url)
    with pytest.raises(OSError, match="no/such/program"):
        notify.on_completed(completed())
    assert len(got) == 1


def test_only_what_was_asked_for_is_told(hook_server: tuple[str, list[dict[str, Any]]]) -> None:
    url, got = hook_server
    notify = NotifyCallback(webhook=url, when="failure")
    notify.on_completed(completed())
    notify.on_completed(completed(cached=True))
    assert got == []


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "no way to notify"),
        ({"desktop": True, "when": "sometimes"}, "when='sometimes'"),
        ({"command": "ls -l"}, "not a list of words"),
        ({"email": "a@b\nBcc: c@d"}, "line break"),
        ({"webhook": "file:///etc/passwd"}, "not a web address"),
    ],
)
def test_a_wrong_way_to_notify_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        NotifyCallback(**given)


# ---- spans --------------------------------------------------------------------------------------


def test_a_run_becomes_a_span_with_its_jobs_their_queue_and_their_run_below() -> None:
    trace = pytest.importorskip("opentelemetry.sdk.trace")
    export = pytest.importorskip("opentelemetry.sdk.trace.export")
    memory = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")
    exporter = memory.InMemorySpanExporter()
    provider = trace.TracerProvider()
    provider.add_span_processor(export.SimpleSpanProcessor(exporter))
    spans = OpenTelemetryCallback(provider)
    spans.on_submit_end(submitted(jobs=2))
    spans.on_completed(completed(job_id="7_0"))
    spans.on_completed(completed(job_id="7_1", succeeded=False, state=JobState.TIMEOUT))
    found = {span.name: span for span in exporter.get_finished_spans()}
    assert set(found) == {"train", "job 7_0", "job 7_1", "queued", "run"}
    assert found["job 7_0"].parent.span_id == found["train"].context.span_id
    assert found["run"].end_time - found["run"].start_time == 20_000_000_000
    assert found["job 7_1"].status.description == "TIMEOUT"
    assert found["train"].status.description == "1 failed"


# ---- progress and HTML --------------------------------------------------------------------------


def job(**facts: Any) -> Any:
    known = {
        "settled": False,
        "succeeded": False,
        "known_state": JobState.PENDING,
        "reason": "Resources",
        "node": None,
        "packed": None,
        "id": "7",
        "name": "train",
        "run": "train-1",
        "evidence": SimpleNamespace(status=object()),
        "timings": SimpleNamespace(elapsed=None),
    }
    return SimpleNamespace(**{**known, **facts})


def row(**facts: Any) -> Row:
    known: dict[str, Any] = {
        "name": "train",
        "job_id": "7",
        "total": 1,
        "is_array": False,
        "since": time.time() - 65.5,
        "jobs": [job()],
    }
    return Row(**{**known, **facts})


def test_a_pending_run_is_a_spinner_with_the_reason() -> None:
    assert line(row(), unicode=False).plain[1:] == " train 7  PENDING (Resources)  1:05"


def test_an_array_is_a_bar_with_counts() -> None:
    text = line(row(is_array=True, total=8, done=4, failed=1, running=2), unicode=False).plain
    assert text[1:] == " train 7 ############............ 4/8  1 failed, 2 running  1:05"


def test_what_is_over_has_a_mark_and_its_time() -> None:
    good = row(done=1, ended=time.time(), jobs=[job(settled=True, succeeded=True)])
    assert line(good, unicode=True).plain == "✓ train 7  1:05"
    bad = row(done=1, failed=1, ended=time.time(), state=JobState.TIMEOUT, jobs=[job(settled=True)])
    assert line(bad, unicode=False).plain == "x train 7  TIMEOUT  1:05"


def test_a_line_is_cut_off_where_a_narrow_terminal_ends() -> None:
    import io

    from rich.console import Console

    out = io.StringIO()
    over = row(name="a" * 60, done=1, jobs=[job(settled=True, succeeded=True)])
    display = TerminalDisplay(lambda: ([], []), Console(file=out, width=40, force_terminal=True))
    display.draw([], [row(name="b" * 60)])
    display.close([over], [])
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", out.getvalue()).replace("\r", "\n")
    assert max(map(len, shown.splitlines())) <= 40
    assert len([text for text in shown.splitlines() if "a" in text]) == 1


def test_many_single_calls_of_one_task_share_a_line() -> None:
    rows = [row(jobs=[job()], job_id=str(n), done=int(n < 5)) for n in range(MOST + 4)]
    rows.append(row(name="sweep", is_array=True, total=3))
    shown = together(rows)
    assert [(r.name, r.done, r.total) for r in shown] == [("train", 5, MOST + 4), ("sweep", 0, 3)]
    assert together(rows[:3]) == rows[:3]


def test_times_are_short() -> None:
    assert [clock(s) for s in (0.4, 61, 3723)] == ["0:00", "1:01", "1:02:03"]


def test_html_holds_no_markup_of_names() -> None:
    bad = job(name="<script>", reason="<b>", run="<i>")
    assert "<script>" not in job_html(bad)
    assert "&lt;script&gt;" in job_html(bad)
    assert "<script>" not in rows_html([row(name="<script>", jobs=[bad])])


def test_a_line_that_was_seen_says_how_it_ended_after_a_wait_too_short_to_be_shown() -> None:
    drawn: list[str] = []

    class Paper(Display):
        def draw(self, over: list[Row], live: list[Row]) -> None:
            drawn.extend(f"{one.name} over" for one in over)
            drawn.extend(f"{one.name} live" for one in live)

        close = draw

    progress = ProgressCallback()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("slurm.callbacks.progress._kind_of_display", lambda _: Paper)
        shown = row(name="sweep", is_array=True, total=3)
        progress._rows["run"] = shown
        progress._snapshot()  # it stood on the screen in an earlier wait
        progress.on_wait_begin()
        shown.done = 3
        progress.on_wait_end()
    assert drawn == ["sweep over"]
