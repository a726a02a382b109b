"""The dashboard's pure parts: markup, groups, history, charts, sessions, rights of logs."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import socket
import tempfile
import threading
import time
from collections import Counter
from contextvars import copy_context
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm.errors import CommandRefused, OptionError, SchedulerUnreachable
from slurm.monitor.events import JobEvent
from slurm.monitor.queue import JobRow
from slurm.monitor.snapshot import Snapshot
from slurm.web import logfiles
from slurm.web.charts import Line, chart, quantile_lines, thinned, ticks
from slurm.web.groups import Filter, chosen, grouped
from slurm.web.guard import Guard
from slurm.web.history import MOST, History, Wait, past_jobs
from slurm.web.kept import Kept, Shares, TooManyQuestions, visitor
from slurm.web.logfiles import Opener, read_plain
from slurm.web.logstream import plain
from slurm.web.markup import address, h
from slurm.web.peers import user_of_port
from slurm.web.pieces import lasted, size
from slurm.web.serving import Serving
from slurm.web.sessions import Sessions, claims, user_of


def row(job: str, state: str = "RUNNING", **more: object) -> JobRow:
    phase = {"RUNNING": "active", "PENDING": "pending"}.get(state, "finished")
    known: dict[str, object] = {
        "job_id": job, "state": state, "phase": phase, "reason": "", "user": "ada",
        "account": "lab", "partition": "main", "qos": "normal", "cpus": 1, "nodes": 1,
        "memory": 0, "gpus": 0, "submit": 100, "eligible": 100,
        "start": None if phase == "pending" else 110, "end": 120 if phase == "finished" else None,
        "limit": None, "priority": 1, "restarts": 0, "node_list": "n1", "name": "train",
        "tasks": 1,
    }  # fmt: skip
    return JobRow(**{**known, **more})  # type: ignore[arg-type]


def snapshot(*rows: JobRow) -> Snapshot:
    return Snapshot(1000.0, {repr(one): one for one in rows})


# ---- markup -------------------------------------------------------------------------------------


class Seen(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.words = ""
        self.values: list[str | None] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.values += [value for _, value in attrs]

    def handle_data(self, data: str) -> None:
        self.words += data


@given(st.text(alphabet=st.characters(blacklist_categories=("Cs", "Cc", "Cf"))))
def test_any_text_stays_text_in_elements_and_attributes(words: str) -> None:
    seen = Seen()
    seen.feed(h("p", words, title=words))
    seen.close()
    assert seen.tags == ["p"]
    assert seen.words == words
    assert seen.values == [words]


def test_letters_that_hide_or_turn_others_around_are_made_visible() -> None:
    assert h("b", "a\u202eb\x00c\x1b[31m") == "<b>a\ufffdb\ufffdc\ufffd[31m</b>"


@pytest.mark.parametrize("bad", ["javascript:alert(1)", "//evil.example", "https://x", "/\\evil"])
def test_an_address_that_leads_away_is_refused(bad: str) -> None:
    with pytest.raises(ValueError, match="leads away"):
        h("a", "here", href=bad)


def test_an_address_is_quoted_part_by_part() -> None:
    assert address("nodes", "a/../b?x", by="gpu", page="") == "/nodes/a%2F..%2Fb%3Fx?by=gpu"


# ---- the queue ----------------------------------------------------------------------------------


def test_an_array_is_one_line_with_all_its_tasks() -> None:
    rows = [row("7_1"), row("7_2", "FAILED"), row("7_[3-9]", "PENDING", tasks=7), row("8")]
    found = grouped(rows, lambda _: Counter({"COMPLETED": 4, "FAILED": 1}), {})
    assert list(found) == ["8", "7"] or list(found) == ["7", "8"]
    assert found["7"].counts == {"active": 1, "pending": 7, "good": 4, "bad": 1}
    assert found["7"].tasks == 13
    assert not found["8"].is_array


def test_groups_that_have_not_changed_are_the_same_objects() -> None:
    rows = [row("7_1"), row("8")]
    first = grouped(rows, lambda _: {}, {})
    second = grouped([rows[0], row("8", "COMPLETED")], lambda _: {}, first)
    assert second["7"] is first["7"]
    assert second["8"] is not first["8"]


def test_the_queue_is_searched_and_filtered() -> None:
    rows = [row("1", name="Train ResNet"), row("2", "PENDING", user="bob", reason="Priority")]
    groups = grouped(rows, lambda _: {}, {}).values()
    for query, ids in (
        ({"q": "resnet train"}, ["1"]),
        ({"q": "bob"}, ["2"]),
        ({"state": "pending"}, ["2"]),
        ({"user": "ada", "state": "pending"}, []),
        ({"page": "x", "sort": "nonsense"}, ["1", "2"]),
    ):
        assert [g.base for g in chosen(groups, Filter.of(query))] == ids


# ---- history and charts -------------------------------------------------------------------------


def test_history_is_bounded_and_counts_the_ends_of_arrays() -> None:
    history = History()
    history.add_past([], [Wait(n, 1, "main") for n in range(3 * MOST)])
    ended = [JobEvent("ended", row(f"7_{n}", "COMPLETED")) for n in range(5)]
    history.heard(snapshot(row("7_9")), ended)
    assert len(history.waits()) == MOST
    assert history.ended("7") == {"COMPLETED": 5}
    history.heard(snapshot(row("8")), [])
    assert history.ended("7") == {}
    assert [span.job_id for span in history.spans(0)] == ["7_9", "8"]


def test_the_past_comes_from_accounting_and_jobs_without_an_end_are_passed_over() -> None:
    row = ("5", "ada", "main", "n1", "CANCELLED by 0", "90", "100", "160", "4", "a|\nb")
    line = "".join(value + "#" for value in row) + "\n"
    spans, waits = past_jobs(0, "#").read(line + line.replace("160", "Unknown"))
    assert [(s.job_id, s.state, s.end, s.name) for s in spans] == [("5", "CANCELLED", 160, "a|\nb")]
    assert waits == [Wait(100, 10, "main")]


def test_ten_thousand_points_are_drawn_with_few_and_keep_their_peaks() -> None:
    points = [(float(n), float(n == 7777)) for n in range(10_000)]
    few = thinned(points, 480)
    assert len(few) <= 480
    assert max(few, key=lambda p: p[1]) == (7777.0, 1.0)
    drawn = chart([Line("x", "one", points)], "x", str)
    assert len(drawn) < 20_000
    assert len(quantile_lines(points)[0].points) <= 61
    assert 3 <= len(ticks(0, 6 * 3600)) <= 9


def test_times_and_sizes_are_written_for_people() -> None:
    assert [lasted(n) for n in (5, 65, 3700, 90000)] == ["5 s", "1 m 05 s", "1 h 01 m", "1 d 01 h"]
    assert [size(n) for n in (0, 1536, 4 << 30)] == ["0 B", "1.5 KiB", "4 GiB"]


# ---- answers that are shared --------------------------------------------------------------------


def test_many_who_ask_at_once_get_one_answer() -> None:
    kept, made = Kept(10), list[int]()
    gate = threading.Event()

    def make() -> int:
        gate.wait(30)
        made.append(1)
        return len(made)

    found: list[int] = []
    threads = [
        threading.Thread(target=lambda: found.append(kept.get("k", 60, make))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    gate.set()
    for thread in threads:
        thread.join(30)
    assert found == [1] * 8


def test_questions_are_limited_and_old_answers_stand_in() -> None:
    now = [0.0]
    kept = Kept(10, Shares(1, 0.1, lambda: now[0]), lambda: now[0])
    assert kept.get("a", 5, lambda: 1) == 1
    now[0] = 6.0
    assert kept.get("a", 5, lambda: 2) == 1  # too old, but nothing more may be asked yet
    with pytest.raises(SchedulerUnreachable):
        kept.get("b", 5, lambda: 3)
    now[0] = 20.0
    assert kept.get("a", 5, lambda: 4) == 4


@pytest.mark.attack("uses up the questions of all visitors of the dashboard")
def test_who_asks_without_end_uses_up_no_questions_of_others() -> None:
    now = [0.0]
    kept = Kept(1000, Shares(40, 1, lambda: now[0]), lambda: now[0])

    def asks(who: str, keys: range) -> int:
        mine = copy_context()
        mine.run(visitor.set, who)
        got = 0
        for key in keys:
            with contextlib.suppress(TooManyQuestions):
                got += mine.run(kept.get, (who, key), 5, lambda: 1)
        return got

    assert asks("mallory", range(500)) == 40
    assert asks("alice", range(15)) == 15
    total = 0
    for second in range(1, 121):
        now[0] = float(second)
        total += asks("mallory", range(1000 * second, 1000 * second + 50))
        if second % 4 == 0:
            assert asks("alice", range(second * 100, second * 100 + 2)) == 2
    # Both together stay below what one alone might ask.
    assert total <= 120 / 2 + 1
    now[0] = 1000.0
    assert asks("alice", range(5000, 5100)) == 40  # alone again


# ---- who may look -------------------------------------------------------------------------------


@pytest.mark.attack
def test_a_user_who_logs_in_again_and_again_ends_no_session_of_others() -> None:
    sessions = Sessions()
    first = sessions.open("alice")
    own = [sessions.open("mallory") for _ in range(500)]
    assert sessions.find(first.id) is first
    assert sessions.find(own[-1].id) is own[-1] and sessions.find(own[0].id) is None


@pytest.mark.attack
@pytest.mark.parametrize(
    "token",
    [
        "a.eyJzdW4iOiJyb290IiwiZXhwIjo5OTk5OTk5OTk5fQ.\0",
        "a.eyJzdW4iOiJyb290IiwiZXhwIjo5OTk5OTk5OTk5fQ.\ud800",
        f"a.{base64.urlsafe_b64encode(b'[' * 40_000).decode()}.c",
        *(
            "a." + base64.urlsafe_b64encode(json.dumps({"sun": sun, "exp": 9e9}).encode()).decode()
            for sun in ("a\0b", "\ud800", "-a", "a,b", "", "a b")
        ),
    ],
)
def test_no_token_reaches_slurm_that_could_be_none(token: str) -> None:
    with pytest.raises(CommandRefused, match="not a token of Slurm"):
        user_of(token)


def test_a_link_of_any_letters_is_only_wrong() -> None:
    sessions = Sessions()
    link = sessions.link()
    assert sessions.redeem("\xe9\ud800") is None
    assert sessions.redeem(link) is not None


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="the kernel's list of sockets")
def test_on_loopback_the_kernel_says_who_asks() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        to = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", to)) as client:
            port = client.getsockname()[1]
            assert user_of_port(port, to) == str(os.getuid())
            assert user_of_port(to, port) == str(os.getuid())  # the other end
            assert user_of_port(port, 1) == ""


def test_a_link_lets_one_in_once_and_not_for_ever() -> None:
    now = [0.0]
    sessions = Sessions(lambda: now[0])
    token, late = sessions.link(), sessions.link()
    session = sessions.redeem(token)
    assert session is not None
    assert sessions.find(session.id) is session
    assert sessions.redeem(token) is None
    assert sessions.redeem("") is None
    now[0] = 1000.0
    assert sessions.redeem(late) is None
    now[0] = 30 * 86400.0
    assert sessions.find(session.id) is None


@pytest.mark.parametrize(
    ("host", "known"),
    [
        ("127.0.0.1:9342", True), ("localhost", True), ("LOCALHOST:1", True), ("[::1]:80", True),
        ("127.8.8.8", True), ("evil.example", False), ("localhost.evil.example", False),
        ("10.0.0.1", False), ("", False), ("[::1", False),
    ],
)  # fmt: skip
def test_only_our_own_names_are_answered(host: str, known: bool) -> None:
    guard = Guard(lambda *_: None, Sessions(), frozenset({"localhost", "127.0.0.1"}), False)  # type: ignore[arg-type]
    assert guard.knows(host) is known


@pytest.mark.parametrize("token", ["", "x", "a.b.c", "a.bnVsbA.c"])
def test_what_is_no_token_of_slurm_claims_nothing(token: str) -> None:
    assert claims(token) == {}


@pytest.mark.parametrize(
    "asked",
    [
        Serving(address="0.0.0.0"),
        Serving(address="::"),
        Serving(interval=0.1),
        Serving(port=70000),
        Serving(certificate=Path("cert.pem")),
        Serving(certificate=Path("/nowhere/cert.pem"), key=Path("/nowhere/key.pem")),
    ],
)
def test_what_cannot_be_meant_or_would_be_unsafe_is_refused(asked: Serving) -> None:
    with pytest.raises(OptionError):
        asked.check()


# ---- logs ---------------------------------------------------------------------------------------


def test_a_log_is_read_in_parts_and_anew_where_it_was_cut(tmp_path: Path) -> None:
    log = tmp_path.resolve() / "log"
    log.write_bytes(b"0123456789")
    assert read_plain(str(log), -4, 100).data == b"6789"
    assert read_plain(str(log), 4, 3).data == b"456"
    found = read_plain(str(log), 50, 100)
    assert (found.start, found.data) == (0, b"0123456789")


def test_links_folders_pipes_and_odd_paths_are_not_opened(tmp_path: Path) -> None:
    folder = tmp_path.resolve()
    (folder / "real").mkdir()
    (folder / "real/log").write_text("x")
    (folder / "link").symlink_to(folder / "real/log")
    (folder / "way").symlink_to(folder / "real")
    os.mkfifo(folder / "pipe")
    for name, words in (
        ("link", "symbolic link"),
        ("way/log", "symbolic link"),
        ("pipe", "not a plain file"),
        ("real", "not a plain file"),
        ("real/../real/log", "not a plain path"),
        ("nothing", "No such file"),
    ):
        with pytest.raises(CommandRefused, match=words):
            read_plain(f"{folder}/{name}", 0, 10)
    for path in ("relative", "", "/a\0b"):
        with pytest.raises(CommandRefused):
            read_plain(path, 0, 10)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_root_becomes_the_owner_before_it_opens_a_log(tmp_path: Path) -> None:
    import pwd

    owner = pwd.getpwnam("nobody").pw_uid
    folder = Path("/tmp", f"web-logs-{os.getpid()}")
    folder.mkdir()
    try:
        theirs, secret = folder / "theirs", folder / "secret"
        theirs.write_text("their words")
        os.chown(theirs, owner, -1)
        theirs.chmod(0o600)
        secret.write_text("root's own")
        secret.chmod(0o600)
        opener = Opener()
        opener.start()
        try:
            assert opener.read(str(theirs), owner, 0).data == b"their words"
            with pytest.raises(CommandRefused, match="Permission denied"):
                opener.read(str(secret), owner, 0)
            with pytest.raises(CommandRefused, match="not known"):
                opener.read(str(theirs), 4_000_000, 0)
            assert opener.read(str(theirs), owner, -5).data == b"words"
        finally:
            opener.stop()
    finally:
        for one in folder.iterdir():
            one.unlink()
        folder.rmdir()


@pytest.mark.attack
@pytest.mark.skipif(os.geteuid() != 0, reason="reading with another user's rights needs root")
def test_a_read_that_hangs_neither_holds_up_others_nor_answers_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A user's own file system may answer late or never."""
    real = logfiles.read_plain

    def slow(path: str, offset: int, limit: int) -> logfiles.Piece:
        if "/late" in path:
            time.sleep(2)
            return logfiles.Piece(b"the late answer")
        if "/never" in path:
            time.sleep(3600)
        return real(path, offset, limit)

    monkeypatch.setattr(logfiles, "read_plain", slow)
    with tempfile.NamedTemporaryFile(dir="/tmp") as log, contextlib.closing(Closing()) as made:
        log.write(b"the right answer")
        log.flush()
        os.chmod(log.name, 0o644)
        opener = made.opener
        monkeypatch.setattr(logfiles, "PATIENCE", 1.0)  # the one who asks gives up before
        with pytest.raises(CommandRefused, match="within 1 s"):
            opener.read("/late", 1, 0)
        monkeypatch.setattr(logfiles, "PATIENCE", 30.0)
        began = time.monotonic()
        while time.monotonic() < began + 3:  # beyond the moment at which the late answer comes
            assert opener.read(log.name, 2, 0).data == b"the right answer"
            time.sleep(0.1)

        # Many that never end: the owner of that file system waits, nobody else does.
        hung = [threading.Thread(target=suppressed, args=(opener, "/never", 1)) for _ in range(12)]
        for thread in hung:
            thread.daemon = True
            thread.start()
        refused = ""
        while "too many" not in refused:
            with pytest.raises(CommandRefused) as error:
                opener.read("/never/either", 1, 0)
            refused = str(error.value)
        began = time.monotonic()
        assert opener.read(log.name, 2, 0).data == b"the right answer"
        assert time.monotonic() < began + 10


class Closing:
    """A started opener, which stops at the end."""

    def __init__(self) -> None:
        self.opener = Opener()
        self.opener.start()

    def close(self) -> None:
        self.opener.stop()


def suppressed(opener: Opener, path: str, uid: int) -> None:
    with contextlib.suppress(CommandRefused):
        opener.read(path, uid, 0)


def test_another_users_log_is_refused_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.raises(CommandRefused, match=r"job is of user .*dashboard runs as 12345"):
        Opener().read("/var/log/x", 0, 0)


def test_colours_of_terminals_are_taken_out_of_logs() -> None:
    tricks = "a\0b\u202ec\x9bd\x7fe\x1bf\u2066g\ufeff 50%\r 60%\n"
    assert plain(tricks) == "a\ufffdb\ufffdc\ufffdd\ufffde\ufffdf\ufffdg\ufffd 50%\r 60%\n"
    assert plain("\x1b[1;31mred\x1b[0m\r\n\x1b]0;title\x07end") == "red\nend"


def test_the_script_and_the_style_ask_for_nothing_from_elsewhere() -> None:
    from slurm.web.shell import STATIC

    for name in ("dashboard.js", "dashboard.css", "icon.svg"):
        text = (STATIC / name).read_text()
        assert re.findall(r"https?://(?!www\.w3\.org/2000/svg)", text) == []
        assert "innerHTML" not in text
        assert "eval(" not in text
