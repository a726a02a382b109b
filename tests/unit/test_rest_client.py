"""The client of slurmrestd: what each answer means, and what is sent again."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from slurm.api import rest_scheduler
from slurm.api.agent_error import AgentError
from slurm.api.rest_client import RestClient, infinite, number_of, read_answer
from slurm.api.rest_scheduler import RestScheduler
from slurm.errors import (
    ConfigError,
    RestError,
    RestRefused,
    RestTokenRefused,
    RestUnreachable,
    RestVersionNotServed,
)

JSON = "application/json"


def said(*errors: dict[str, object]) -> bytes:
    return json.dumps({"errors": list(errors)}).encode()


@pytest.mark.parametrize(
    ("status", "kind", "content", "expected", "number"),
    [
        # As Slurm 26.05 answers.
        (404, JSON, said({"error_number": 2017, "error": "Invalid job id"}), RestRefused, 2017),
        (404, "text/plain", b"Not Found", RestVersionNotServed, 0),
        (422, JSON, said({"error_number": 2000, "error": "Invalid partition"}), RestRefused, 2000),
        (
            502,
            JSON,
            said({"error_number": 1800, "error": "Unable to contact"}),
            RestUnreachable,
            1800,
        ),
        (500, "text/plain", b"Unspecified error", RestUnreachable, 0),
        (511, JSON, said({"error_number": 1007}), RestTokenRefused, 0),
        (401, "text/plain", b"Authentication failure", RestTokenRefused, 0),
        (200, JSON, said({"error_number": 2021, "error": "no"}), RestRefused, 2021),
    ],
)
def test_an_error_is_told_by_its_number_and_kind_never_by_its_words(
    status: int, kind: str, content: bytes, expected: type[RestError], number: int
) -> None:
    with pytest.raises(expected) as caught:
        read_answer(status, kind, content, "/slurm/v0.0.45/job/1")
    assert type(caught.value) is expected
    assert caught.value.number == number


def test_numbers_are_read_in_both_of_slurm_s_forms() -> None:
    assert number_of(5) == 5
    assert number_of({"set": True, "infinite": False, "number": 7}) == 7
    assert number_of({"set": False, "number": 7}) is None
    assert infinite({"infinite": True, "set": True})


class Server(ThreadingHTTPServer):
    """Answers like slurmrestd, serves some versions, and may close connections that it kept."""

    daemon_threads = True
    versions: tuple[str, ...] = ("v0.0.43",)
    hang_up = False
    silent = False

    def __init__(self, *, listening: bool = True) -> None:
        super().__init__(("127.0.0.1", 0), Answers, bind_and_activate=False)
        self.seen: list[tuple[str, str, str | None]] = []
        #: What is refused, by the end of its path, and Slurm's number for the reason.
        self.refused: dict[str, int] = {}
        # A port that is taken and where nobody listens refuses connections.
        self.server_bind()
        if listening:
            self.server_activate()


class Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def _answer(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.seen.append((self.command, self.path, self.headers.get("X-SLURM-USER-TOKEN")))
        if self.server.silent and self.command == "POST":
            self.close_connection = True
            return
        served = self.path.split("/")[2] in self.server.versions
        number = self.server.refused.get(self.path.partition("/v0.0.43/")[2], 0)
        body = b'{"errors": [], "job_id": 7}' if served else b"Not Found"
        if number:
            body = said({"error_number": number, "error": "Invalid partition name specified"})
        self.send_response(200 if served else 404)
        self.send_header("Content-Type", JSON if served else "text/plain")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        # Closed without a word: the client believes that it was kept.
        self.close_connection = self.server.hang_up

    do_GET = do_POST = do_DELETE = _answer

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    thread = threading.Thread(target=made.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield made
    made.shutdown()
    made.server_close()


def url(server: Server) -> str:
    return f"http://127.0.0.1:{server.server_address[1]}"


def test_the_newest_version_that_both_speak_is_used_and_found_again_after_an_upgrade(
    server: Server,
) -> None:
    client = RestClient(url(server), token="t")
    client.call("GET", "jobs/")
    assert client.version == "v0.0.43"
    server.versions = ("v0.0.44",)
    client.call("POST", "job/submit", body={})
    assert client.version == "v0.0.44"
    assert [p for m, p, _ in server.seen if m == "POST"] == [
        "/slurm/v0.0.43/job/submit",
        "/slurm/v0.0.44/job/submit",
    ]


def test_no_common_version_is_said_with_the_fix(server: Server) -> None:
    server.versions = ()
    with pytest.raises(RestVersionNotServed, match=r"serves none of v0\.0\.45"):
        RestClient(url(server), token="t").call("GET", "jobs/")


def test_a_renewed_token_is_used_at_once(server: Server, tmp_path: Path) -> None:
    file = tmp_path / "token"
    client = RestClient(url(server), token_file=file)
    with pytest.raises(RestTokenRefused, match="cannot be read"):
        client.call("GET", "jobs/")
    for token in ("one", "SLURM_JWT=two\n"):
        file.write_text(token)
        client.call("GET", "jobs/")
    assert [t for _, p, t in server.seen if p.endswith("jobs/")] == ["one", "two"]


def test_a_get_survives_a_connection_that_was_closed_and_a_post_is_not_sent_twice(
    server: Server,
) -> None:
    server.hang_up = True
    client = RestClient(url(server), token="t")
    for _ in range(3):
        client.call("GET", "jobs/")
    with pytest.raises(RestUnreachable) as caught:
        client.call("POST", "job/submit", body={})
    assert caught.value.perhaps_done
    assert [m for m, _, _ in server.seen].count("POST") == 0


def test_nobody_there_is_unreachable_and_certainly_not_done() -> None:
    with pytest.raises(RestUnreachable) as caught:
        RestClient("http://127.0.0.1:1", token="t", versions=("v0.0.45",)).call(
            "POST", "job/submit"
        )
    assert not caught.value.perhaps_done


def test_an_address_of_another_kind_is_refused() -> None:
    with pytest.raises(ConfigError, match="http, https or unix"):
        RestClient("ftp://x")


# ---- the scheduler over it ----------------------------------------------------------------------


def submission(folder: Path, partition: str) -> tuple[str, dict[str, str], str]:
    script = folder / "script.sh"
    script.write_text(f"#!/bin/sh\n#SBATCH --partition={partition}\ntrue\n")
    return str(script), {}, str(folder)


@pytest.mark.parametrize("verb", ["submit", "jobs"])
def test_a_request_that_nobody_took_is_sent_again_until_slurmrestd_listens(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rest_scheduler, "_AWAY_S", 120.0)
    naps = threading.Semaphore(0)
    nap = time.sleep

    def short(_: float) -> None:
        naps.release()
        nap(0.01)

    monkeypatch.setattr(time, "sleep", short)
    server = Server(listening=False)
    scheduler = RestScheduler(url(server))
    calls: dict[str, Callable[[], object]] = {
        "submit": lambda: scheduler.submit(*submission(tmp_path, "main")),
        "jobs": scheduler.all_jobs,
    }
    with ThreadPoolExecutor() as pool:
        answer = pool.submit(calls[verb])
        for _ in range(3):
            assert naps.acquire(timeout=60)
        server.server_activate()
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        assert answer.result(60) == ("7" if verb == "submit" else [])
    server.shutdown()
    server.server_close()
    assert [method for method, _, _ in server.seen].count("POST") == (verb == "submit")


def test_nobody_is_asked_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rest_scheduler, "_AWAY_S", 0.2)
    monkeypatch.setattr(rest_scheduler, "_AGAIN_S", 0.01)
    server = Server(listening=False)
    scheduler = RestScheduler(url(server))
    with pytest.raises(AgentError) as caught:
        scheduler.all_jobs()
    server.server_close()
    assert caught.value.kind == "unreachable"
    assert isinstance(caught.value.__cause__, RestUnreachable)
    assert scheduler.calls > 1


def test_a_submission_that_may_have_arrived_is_not_sent_again(
    server: Server, tmp_path: Path
) -> None:
    server.silent = True
    with pytest.raises(AgentError) as caught:
        RestScheduler(url(server)).submit(*submission(tmp_path, "main"))
    assert caught.value.kind == "timeout"
    assert [method for method, _, _ in server.seen].count("POST") == 1


def test_a_partition_that_slurmrestd_does_not_know_is_refused_by_the_submission(
    server: Server, tmp_path: Path
) -> None:
    server.refused = {"partition/nowhere": 2000, "job/submit": 2000}
    with pytest.raises(AgentError, match="partition does not exist") as caught:
        RestScheduler(url(server)).submit(*submission(tmp_path, "nowhere"))
    assert caught.value.kind == "refused"
    assert "partition=" in str(caught.value.hint)
    assert [path for method, path, _ in server.seen if method == "POST"] == [
        "/slurm/v0.0.43/job/submit"
    ]


def test_requeue_is_refused_with_the_command_where_slurmrestd_has_no_word_for_it(
    server: Server,
) -> None:
    with pytest.raises(AgentError, match=r"v0\.0\.43 has no word for requeue") as caught:
        RestScheduler(url(server)).requeue(["7"])
    assert "scontrol requeue" in str(caught.value.hint)
    assert not [method for method, _, _ in server.seen if method == "POST"]
