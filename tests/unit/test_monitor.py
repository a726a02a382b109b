"""The monitor's pure parts: what three versions of Slurm say, what happened, what is served."""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import itertools
import re
import socket
import ssl
import subprocess
import time
import tracemalloc
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from slurm.api.agent_error import AgentError
from slurm.api.backend import Backend
from slurm.api.slurm_site import only_looks
from slurm.errors import ConfigError, OptionError
from slurm.monitor import Collector, JobEvent, NodeEvent, Snapshot, sharing
from slurm.monitor.collector import BACK_OFF, LONGEST, STALE, pause
from slurm.monitor.controller import parse_controller
from slurm.monitor.events import events
from slurm.monitor.exporter import MOST_AT_ONCE, PATIENCE, Exporter, ExporterServer
from slurm.monitor.exposition import Samples, number, render
from slurm.monitor.measure import Caps, measure, measure_tally
from slurm.monitor.nodes import nodes_command, parse_nodes, parse_state
from slurm.monitor.queue import JobRow, memory_bytes, parse_queue, queue_command
from slurm.monitor.serving import Serving
from slurm.monitor.tally import Histogram, Tally
from slurm.monitor.webconfig import Passwords, WebConfig, load_web_config
from slurm.stack.services import EXPORTER_PORT

RECORDED = Path(__file__).parent / "recorded"
VERSIONS = ("22.05", "24.11", "26.05")


def _text(version: str, name: str) -> str:
    return (RECORDED / version / f"monitor-{name}.txt").read_bytes().decode()


def _line(job: str = "7", state: str = "PENDING", **more: str) -> str:
    values = {
        "reason": "Priority", "user": "ann", "account": "lab", "partition": "main", "qos": "normal",
        "cpus": "2", "nodes": "1", "tres": "cpu=2,mem=1G,node=1,gres/gpu=1", "submit": "100",
        "eligible": "110", "start": "N/A", "end": "N/A", "limit": "1:00:00", "priority": "9",
        "restarts": "0", "hosts": "", "name": "train", **more,
    }  # fmt: skip
    return "\x1f".join([job, state, *values.values()])


def _taken(*lines: str, before: Snapshot | None = None) -> Snapshot:
    text = "".join(line + "\x1f\x1e\n" for line in lines)
    rows, bad = parse_queue(text, before.rows if before else {})
    return Snapshot(1.0, rows=rows, unreadable={"squeue": bad})


def _happened(before: Snapshot, after: Snapshot) -> list[tuple[str, str]]:
    return [(e.what, e.row.job_id) for e in events(before, after) if isinstance(e, JobEvent)]


# ---- what Slurm says ----------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_every_row_of_every_version_is_read(version: str) -> None:
    rows, bad = parse_queue(_text(version, "queue"), {})
    assert bad == 0
    jobs = list(rows.values())
    ends = {"OUT_OF_MEMORY", "TIMEOUT", "NODE_FAIL", "CANCELLED", "COMPLETED", "FAILED"}
    assert {row.state for row in jobs if row.phase == "finished"} == ends
    assert {"JobHeldUser", "BeginTime", "Dependency"} <= {row.reason for row in jobs}
    assert 100 << 20 in {row.memory for row in jobs}
    assert [row.tasks for row in jobs if row.job_id.endswith("]")] > [1]
    assert all(row.start and not row.end for row in jobs if row.phase == "active")
    nodes, bad = parse_nodes(_text(version, "nodes"))
    assert bad == 0
    assert [node.name for node in nodes] == ["r1", "r2", "r3"]
    assert nodes[1].state == "down"
    assert nodes[1].reason == "power = off, r2 [rack 4]"
    assert set(nodes[2].partitions) == {"main", "long", "staff"}
    found = parse_controller(_text(version, "controller"))
    assert found.numbers["server_threads"] >= 1
    assert found.numbers["main_cycles"] > found.numbers["main_last_cycle_seconds"] > 0
    assert found.by_type["REQUEST_SUBMIT_BATCH_JOB"].count > 10
    assert found.by_user["alice"].seconds > 0
    assert found.now is not None and found.since is not None and found.now > found.since
    assert sharing.parse_licences(_text(version, "licences")) == [sharing.Licence("matlab", 4, 2)]
    [reserved] = sharing.parse_reservations(_text(version, "reservations"))
    assert (reserved.name, reserved.nodes, reserved.end - reserved.start) == ("maint", 1, 3600)
    shares = sharing.parse_shares(_text(version, "shares"))
    assert ("lab", "alice") in {(share.account, share.user) for share in shares}
    assert "\nslurm_sdk_up 1\n" in _text(version, "metrics")


def test_rows_that_are_damaged_are_counted_and_passed_over() -> None:
    found = _taken("nonsense", _line(), _line("8", cpus="many"), "\x1f" * 30)
    assert [row.job_id for row in found.rows.values()] == ["7"]
    assert found.unreadable == {"squeue": 3}
    nodes, bad = parse_nodes("torn\x1frow\x1f\x1e\n\n")
    assert (nodes, bad) == ([], 1)
    assert parse_controller("Server thread count: many\n\x00garbage").numbers == {}


def test_a_name_may_hold_line_breaks_and_separators() -> None:
    found = _taken(_line(name='a\nb\x1f<script>"\\'), _line("8"))
    assert [row.name for row in found.rows.values()] == ['a\nb\x1f<script>"\\', "train"]


def test_states_of_nodes_are_a_state_and_flags() -> None:
    assert parse_state("mixed+drain") == ("mixed", ("drain",))
    assert parse_state("IDLE*") == ("idle", ("not_responding",))
    assert parse_state("idle+cloud+powered_down") == ("idle", ("cloud", "powered_down"))
    assert parse_state("draining") == ("unknown", ("drain",))
    assert parse_state("") == ("unknown", ())


def test_generic_resources_are_counted_by_type() -> None:
    gres = ["gpu:a100:4(S:0-1),gpu:2,fs:1K", "gpu:a100:2(IDX:0,2),gpu:1(IDX:4),fs:0"]
    first = ["n1", "mixed", "1/7/0/8", "0.5", "4000", "10", "N/A"]
    fields = [*first, *gres, "26.05", "main*", "Unknown", "none"]
    [node], _ = parse_nodes("\x1f".join(fields) + "\x1f\x1e\n")
    assert [(g.name, g.type, g.total, g.used) for g in node.gres] == [
        ("gpu", "a100", 4, 2), ("gpu", "", 2, 1), ("fs", "", 1024, 0),
    ]  # fmt: skip
    assert node.free_memory is None
    assert [memory_bytes(text) for text in ("1.50G", "100M", "64", "?")] == [
        3 << 29, 100 << 20, 64 << 20, 0,
    ]  # fmt: skip


def test_a_monitor_runs_only_commands_that_look() -> None:
    assert only_looks(["squeue", "-a"])
    assert only_looks(["scontrol", "show", "licenses"])
    assert only_looks(["scontrol", "-o", "show", "assoc_mgr"])
    assert not only_looks(["scontrol", "-o", "update", "nodename=n1"])
    assert not only_looks(["sdiag", "--reset"])
    assert not only_looks(["scontrol", "update", "nodename=n1"])
    assert not only_looks(["scancel", "1"])


# ---- what happened ------------------------------------------------------------------------------


def test_a_job_is_submitted_started_and_ended_once_each() -> None:
    waits = _taken(_line())
    runs = _taken(_line(state="RUNNING", start="130"), before=waits)
    over = _taken(_line(state="COMPLETED", start="130", end="190"), before=runs)
    assert _happened(Snapshot(0.0), waits) == [("submitted", "7")]
    assert _happened(waits, runs) == [("started", "7")]
    assert _happened(runs, over) == [("ended", "7")]
    assert _happened(over, _taken(before=over)) == []
    [started] = events(waits, runs)
    [ended] = events(runs, over)
    assert isinstance(started, JobEvent) and started.wait == 20
    assert isinstance(ended, JobEvent) and ended.run_time == 60


def test_a_job_that_came_and_went_between_two_looks_is_seen_whole() -> None:
    over = _taken(_line(state="FAILED", start="130", end="131"))
    assert [what for what, _ in _happened(Snapshot(0.0), over)] == ["submitted", "started", "ended"]


def test_tasks_that_leave_the_row_of_their_array_are_not_submitted_again() -> None:
    waits = _taken(_line("7_[0-9]"))
    some = _taken(_line("7_[2-9%2]"), _line("7_0", "RUNNING", start="120"),
                  _line("7_1", "COMPLETED", start="120", end="121"), before=waits)  # fmt: skip
    tally = Tally()
    tally.add(events(Snapshot(0.0), waits))
    tally.add(events(waits, some))
    assert tally.submitted["main"] == 10
    assert tally.started["main"] == 2
    assert tally.ended == {("main", "COMPLETED"): 1}
    assert not tally.gone


def test_a_requeue_is_one_and_its_second_start_counts() -> None:
    runs = _taken(_line(state="RUNNING", start="130"))
    back = _taken(_line(restarts="1", submit="140"), before=runs)
    again = _taken(_line(state="RUNNING", start="150", restarts="1"), before=back)
    assert _happened(runs, back) == [("requeued", "7")]
    assert _happened(back, again) == [("started", "7")]


def test_a_job_that_vanished_is_said_to_be_gone() -> None:
    runs = _taken(_line(state="RUNNING", start="130"))
    assert _happened(runs, _taken(before=runs)) == [("gone", "7")]


def test_a_clock_that_was_set_back_gives_no_waiting_time() -> None:
    over = _taken(_line(state="COMPLETED", start="90", end="80"))
    tally = Tally()
    tally.add(events(Snapshot(0.0), over))
    assert tally.started["main"] == 1
    assert not tally.waits
    assert not tally.run_times


def test_nodes_that_change_come_and_go_are_told() -> None:
    [one, two, three], _ = parse_nodes(_text("22.05", "nodes"))
    drained = dataclasses.replace(one, flags=("drain",))
    found = events(Snapshot(0.0, nodes=(one, two)), Snapshot(1.0, nodes=(drained, three)))
    assert {e.node: (e.before, e.after) for e in found if isinstance(e, NodeEvent)} == {
        "r1": (one, drained), "r3": (None, three), "r2": (two, None),
    }  # fmt: skip


# ---- what is served -----------------------------------------------------------------------------


def test_labels_cannot_break_out_of_their_quotes() -> None:
    samples = Samples()
    samples.put("node_reason_info", 1, "n1", 'a"} 1\nevil{x="\\')
    text = render(samples, True).decode()
    assert text.splitlines()[-1] == (
        r'slurm_sdk_node_reason_info{node="n1",reason="a\"} 1\nevil{x=\"\\"} 1'
    )
    assert number(float("inf")) == "+Inf"
    assert number(0.1) == "0.1"
    with pytest.raises(ValueError, match="labels"):
        samples.put("up", 1, "surplus")


def test_beyond_the_cap_users_count_together() -> None:
    lines = [_line(str(n), "RUNNING", user=f"u{n}", start="1", cpus=str(n)) for n in range(1, 9)]
    found = measure(_taken(*lines), Caps(names=2)).found
    users = {labels[0]: value for labels, value in found["user_cpus"].items()}
    assert users == {"u8": 8, "u7": 7, "other": 21}
    assert found["folded"]["user",] == 6
    assert "job_cpus" not in found
    assert len(measure(_taken(*lines), Caps(jobs=3)).found["job_cpus"]) == 3


def test_counters_and_histograms_begin_with_nothing() -> None:
    found = measure_tally(Tally(), ["main"]).found
    assert found["jobs_started"]["main",] == 0
    assert found["jobs_ended"]["main", "node_fail"] == 0
    histogram = found["job_wait_seconds"]["main",]
    assert isinstance(histogram, Histogram)
    histogram.add(60, 3)
    histogram.add(10**9)
    assert dict(histogram.buckets)["60.0"] == 3
    assert dict(histogram.buckets)["15.0"] == 0
    assert dict(histogram.buckets)["+Inf"] == 4


# ---- the collector ------------------------------------------------------------------------------


class _Told(Backend):
    """A backend that gives recorded answers, or fails; the real one is tried in tests/monitor."""

    def __init__(self) -> None:
        self.fails = False
        self.asked = 0

    def call(self, verb: str, *args: Any) -> Any:
        self.asked += 1
        if self.fails:
            raise AgentError("timeout", "squeue did not answer within 60 s")
        return [[0, self._answer(command), ""] for command in args[0]]

    def _answer(self, command: Sequence[str]) -> str:
        if command[0] == "sinfo" and "-N" not in command:
            return (RECORDED / "26.05" / "partitions.txt").read_text()
        names = {"squeue": "queue", "sinfo": "nodes", "sdiag": "controller", "sshare": "shares"}
        text = _text("26.05", names.get(command[0], "licences"))
        columns = next((word for word in command if word.count(":") > 3), "")
        # The recorded rows end as without a mark, which is made for each question.
        return text.replace("\x1f\x1e\n", columns.rpartition(":")[2] + "\n")


@pytest.mark.parametrize("mark", ["", "7f", "f7", "00"])
def test_no_mark_is_a_width_to_squeue_or_sinfo(mark: str) -> None:
    for command in (queue_command(mark), nodes_command(mark)):
        columns = next(word for word in command if word.count(":") > 3)
        assert re.search(r":\.?[0-9]", columns) is None


def test_old_numbers_are_served_until_they_are_stale_and_counters_stay() -> None:
    now = [0.0]
    backend = _Told()
    collector = Collector(backend, clock=lambda: now[0])
    exporter = Exporter(collector)
    assert b"slurm_sdk_up 0" in exporter.metrics(True)
    assert not exporter.ready
    assert collector.collect()
    backend.fails = True
    now[0] = 100.0
    assert not collector.collect()
    text = exporter.metrics(True).decode()
    assert "slurm_sdk_up 0\n" in text
    assert "slurm_sdk_snapshot_age_seconds 100\n" in text
    assert 'slurm_sdk_nodes{state="down"} 1' in text
    now[0] = STALE + 1
    text = exporter.metrics(True).decode()
    assert "slurm_sdk_nodes{" not in text
    assert "slurm_sdk_jobs_started_total{" in text
    assert collector.view().health.problem.endswith("did not answer within 60 s")
    backend.fails = False
    assert collector.collect()
    assert exporter.ready


def test_reading_asks_nobody() -> None:
    backend = _Told()
    collector = Collector(backend)
    exporter = Exporter(collector)
    collector.collect()
    asked = backend.asked
    for _ in range(50):
        exporter.metrics(False)
        collector.view()
    assert backend.asked == asked


def test_the_pause_grows_with_cost_and_with_failures() -> None:
    assert pause(15, 0.1, 0) == 15
    assert pause(15, 2.0, 0) == 40
    assert pause(15, 100.0, 0) == LONGEST
    assert pause(15, 0.1, 1) == 30
    assert pause(15, 0.1, 9) == BACK_OFF
    assert pause(15, 90.0, 3) == 90


# ---- the port -----------------------------------------------------------------------------------


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    where = ["-keyout", str(tmp_path / "k.pem"), "-out", str(tmp_path / "c.pem")]
    subprocess.run([*words, *names, *where], check=True, capture_output=True, timeout=60)
    return tmp_path


def _serve(web: WebConfig) -> Iterator[ExporterServer]:
    import threading

    collector = Collector(_Told())
    exporter = Exporter(collector)
    collector.collect()
    with ExporterServer(exporter, "127.0.0.1", 0, web) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join(30)


@pytest.mark.attack
def test_clients_that_drip_their_requests_keep_no_scrape_out() -> None:
    serving = contextlib.contextmanager(_serve)
    with serving(WebConfig()) as server, contextlib.ExitStack() as held:
        host, port = str(server.server_address[0]), int(server.server_address[1])
        for _ in range(MOST_AT_ONCE + 8):
            slow = held.enter_context(socket.create_connection((host, port), timeout=30))
            slow.sendall(b"GET /metrics HTT")
        began = time.monotonic()
        for _ in range(5):
            with urllib.request.urlopen(server.url, timeout=30) as answer:
                assert b"slurm_sdk_up" in answer.read()
        assert time.monotonic() < began + PATIENCE


def test_tls_and_passwords_are_those_of_web_yml(certificate: Path) -> None:
    import bcrypt

    hashed = bcrypt.hashpw(b"s3cret", bcrypt.gensalt(4)).decode()
    (certificate / "web.yml").write_text(
        "tls_server_config: {cert_file: c.pem, key_file: k.pem}\n"
        f"basic_auth_users: {{prometheus: {hashed}}}\n"
    )
    trust = ssl.create_default_context(cafile=str(certificate / "c.pem"))

    def ask(url: str, password: str | None) -> int:
        request = urllib.request.Request(url)
        if password is not None:
            word = base64.b64encode(f"prometheus:{password}".encode()).decode()
            request.add_header("Authorization", f"Basic {word}")
        try:
            with urllib.request.urlopen(request, timeout=10, context=trust) as answer:
                assert b"slurm_sdk_up 1" in answer.read()
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code

    for server in _serve(load_web_config(certificate / "web.yml")):
        assert [ask(server.url, p) for p in ("s3cret", "s3cret", "wrong", None)] == [
            200, 200, 401, 401,
        ]  # fmt: skip
        with pytest.raises(OSError):
            urllib.request.urlopen(server.url.replace("https", "http"), timeout=10)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("basic_auth_user: {a: b}", "did you mean basic_auth_users"),
        ("basic_auth_users: {a: plain}", "not a bcrypt hash"),
        ("tls_server_config: {cert_file: c.pem}", "needs key_file"),
        ("tls_server_config: {cert_file: x, key_file: y}", "cannot be loaded"),
        ("[1, 2]", "expected names"),
        ("{", "cannot be read"),
    ],
)
def test_a_web_yml_that_protects_nothing_is_refused(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "web.yml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_web_config(tmp_path / "web.yml")
    assert said in str(caught.value)


def test_headers_that_are_no_password_are_turned_away() -> None:
    passwords = Passwords({"a": "$2b$04$" + "x" * 53})
    for header in (None, "", "Basic", "Basic ???", "Bearer x", "Basic " + "QQ=="):
        assert not passwords.admit(header)
    assert Passwords().admit(None)


@pytest.mark.parametrize("wrong", [{"interval": 0.1}, {"port": 70000}, {"top": -1}])
def test_options_that_cannot_be_meant_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(OptionError):
        Serving(**wrong).check()


def test_prometheus_of_a_rendered_cluster_scrapes_the_port_that_is_served() -> None:
    assert Serving().port == EXPORTER_PORT


@pytest.mark.full
def test_forty_thousand_rows_cost_little() -> None:
    lines = [_line(str(n), user=f"u{n % 300}", priority=str(n)) for n in range(40_000)]
    text = "".join(line + "\x1f\x1e\n" for line in lines)
    tracemalloc.start()
    rows, _ = parse_queue(text, {})
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100 << 20
    first = Snapshot(0.0, rows=rows)
    begun = time.process_time()
    again, _ = parse_queue(text, first.rows)
    second = Snapshot(1.0, rows=again)
    assert events(first, second) == []
    render(measure(second, Caps()), True)
    # Far above what it takes, for a busy machine.
    assert time.process_time() - begun < 2.0
    assert all(row is rows[line] for line, row in itertools.islice(again.items(), 100))
    assert isinstance(next(iter(rows.values())), JobRow)
