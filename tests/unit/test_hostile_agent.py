"""A hostile login node: whatever it answers, the client says so in a typed error, and soon."""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from slurm import errors
from slurm.api import link, openssh
from slurm.api.backend import JobKey
from slurm.api.ssh import SshBackend

pytestmark = pytest.mark.attack

#: Takes ssh's place: finds the marker in what the client sends, then answers as it is told.
FAKE = """#!{python}
import os, re, sys, time
sys.path.insert(0, {source!r})
from slurm.api import frames
if "-G" in sys.argv:
    sys.exit(0)
seen = b""
while (found := re.search(rb"slurm-agent-[0-9a-f]{{24}}", seen)) is None:
    seen += os.read(0, 65536)
# What follows the bundle are frames; each begins with its magic.
while b"\\xf5SdK" not in seen:
    seen += os.read(0, 65536)
out = sys.stdout.buffer
def send(data):
    out.write(data)
    out.flush()
class Stream:
    data = seen[seen.index(b"\\xf5SdK"):]
    def read(self, count):
        if not self.data:
            self.data = os.read(0, 65536)
        piece, self.data = self.data[:count], self.data[count:]
        return piece
stream = Stream()
HELLO = dict(base="/evil", scheduler="slurm", host="evil", user="eve", problem=None, sdk=True,
             home="/", executable="/bin/python3", agent_python=[3, 11, 0], python={{}}, pid=1)
send(b"\\n" + found[0] + b"\\n")
while True:
    asked = frames.read(stream)
    number, verb = asked["id"], asked["verb"]
    def answer(ok, id=number):
        send(frames.encode({{"id": id, "ok": ok}}))
    if verb == "hello" and not {at_hello!r}:
        answer(HELLO)
    elif verb == "ping":
        answer(time.time())
    else:
        exec({words!r})
"""


@pytest.fixture
def evil(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A backend whose ssh is a program of the attacker's."""
    source = str(Path(link.__file__).parents[2])

    def made(words: str, at_hello: bool = False) -> SshBackend:
        ssh = tmp_path / "ssh"
        ssh.write_text(
            FAKE.format(python=sys.executable, source=source, words=words, at_hello=at_hello)
        )
        ssh.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        monkeypatch.setattr(link, "QUIET", 0.3)
        monkeypatch.setattr(link, "SIGN_OF_LIFE", 3.0)
        monkeypatch.setattr(link, "LONGEST", 5.0)
        backend = SshBackend(openssh.settings("evil", connect_timeout=1.0), "~/jobs")
        backend.patience = 3.0
        return backend

    return made


IDS = ["None", "[]", "{}", "[1]", "'1'", "float(number)", "True", "number + 1", "-2", "10**400"]


@pytest.mark.parametrize("number", IDS)
def test_an_answer_with_another_number_is_never_taken_for_ours(evil: Any, number: str) -> None:
    backend = evil(f"answer('forged', id={number})")
    began = time.monotonic()
    with pytest.raises(errors.ConnectError):
        backend.queue()
    assert time.monotonic() - began < 40


def test_a_late_answer_finds_nobody(evil: Any) -> None:
    """Of two questions the second is answered first, and the first twice."""
    words = (
        "kept = globals().setdefault('kept', []); kept.append(number)\n"
        "if len(kept) == 2:\n"
        "    answer(b'second'); answer(b'first', id=kept[0]); answer(b'forged', id=kept[0])\n"
        "    answer(b'forged', id=kept[1])\n"
        "if len(kept) == 3: answer(b'third')"
    )
    backend = evil(words)
    backend.facts()
    found: dict[str, bytes] = {}

    def ask(name: str) -> None:
        found[name] = backend.read("run", name)

    first = threading.Thread(target=ask, args=("one",))
    first.start()
    while not backend._link._waiters:
        time.sleep(0.01)
    ask("two")
    first.join(30)
    ask("three")
    assert found == {"one": b"first", "two": b"second", "three": b"third"}


SHAPES = [
    "None", "[]", "'no'", "['request']", "[1, 2, 3, 4]", "[['x'], 'm', [], None]",
    "['request', ['m'], 5, {}]", "['request', 'm', [1, None], 7]", "{}",
]  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
def test_an_error_of_another_shape_is_an_error_of_the_protocol(evil: Any, shape: str) -> None:
    backend = evil(f"send(frames.encode({{'id': number, 'error': {shape}}}))")
    with pytest.raises(errors.ProtocolError) as found:
        backend.queue()
    assert str(found.value)


ANSWERS = ["None", "5", "[]", "'x'", "{}", "{'base': 5}", "dict(HELLO, home=7)", "[[1]]"]


@pytest.mark.parametrize("ok", ANSWERS)
def test_a_greeting_of_another_shape_is_an_error_of_the_protocol(evil: Any, ok: str) -> None:
    backend = evil(f"answer({ok})", at_hello=True)
    with pytest.raises(errors.ProtocolError):
        backend.hello()


FRAMES = {
    "noise": "send(b'x' * 4096)",
    "too large": "import struct; send(struct.pack('>4sBIII', b'\\xf5SdK', 0, 2**32 - 1, 0, 0))",
    "a bomb": (
        "import struct, zlib; z = zlib.compress(b'0' * (1 << 26), 9);"
        "send(struct.pack('>4sBIII', b'\\xf5SdK', 1, 2, len(z), 10) + b'{}' + z)"
    ),
    "deep": (
        "import struct; h = b'[' * 200000;"
        "send(struct.pack('>4sBIII', b'\\xf5SdK', 0, len(h), 0, 0) + h)"
    ),
    "outside": (
        "import struct, json; h = json.dumps({'id': number, 'ok': {'$': [-9, 99]}}).encode();"
        "send(struct.pack('>4sBIII', b'\\xf5SdK', 0, len(h), 0, 0) + h)"
    ),
    "no message": (
        "import struct; h = b'[1]';send(struct.pack('>4sBIII', b'\\xf5SdK', 0, len(h), 0, 0) + h)"
    ),
}


@pytest.mark.parametrize("kind", FRAMES)
def test_what_is_no_frame_ends_the_conversation(evil: Any, kind: str) -> None:
    backend = evil(FRAMES[kind])
    with pytest.raises(errors.ConnectError):
        backend.queue()


@pytest.mark.parametrize("words", ["pass", "answer(0, id=-5)"])
def test_who_answers_signs_of_life_only_is_given_up(evil: Any, words: str) -> None:
    backend = evil(words)
    began = time.monotonic()
    with pytest.raises(errors.ConnectError):
        backend.status([JobKey("1", "run")])
    assert time.monotonic() - began < 40


def test_who_never_greets_is_named_with_the_seconds_that_were_waited(
    evil: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = evil("time.sleep(600)", at_hello=True)
    ask_within = link.Link.ask_within
    monkeypatch.setattr(
        link.Link, "ask_within", lambda self, seconds, *words: ask_within(self, 2, *words)
    )
    with pytest.raises(errors.ConnectionLost, match="evil did not answer within 2 s") as found:
        backend.queue()
    assert "-9" not in str(found.value)


def test_its_words_do_not_command_the_terminal(evil: Any) -> None:
    told = ["request", "\x1b]0;owned\x07\x1b[2J", ["\x9b31m"], "\x1b[8mrm -rf ~"]
    backend = evil(f"send(frames.encode({{'id': number, 'error': {told!r}}}))")
    with pytest.raises(errors.SlurmError) as found:
        backend.queue()
    assert not set(str(found.value)) & set("\x1b\x07\x9b")


def test_who_only_looks_unpickles_nothing_that_it_sends(evil: Any, tmp_path: Path) -> None:
    """The values of runs are code: `result()` runs what the login node sends, looking does not."""
    from slurm.api.looking import OnlyLooks
    from slurm.errors import UntrustedRun
    from slurm.evidence import Evidence
    from slurm.outcome import Verdict
    from slurm.results import Results
    from slurm.rundir import VALUE, Record

    mark = tmp_path / "mark"
    payload = b"cposix\nsystem\n(S'touch " + str(mark).encode() + b"'\ntR."
    evidence = Evidence(ranks=1)
    evidence.records.append(Record("1", 0, 0, 0, VALUE, {}, payload))

    class Subject:
        name, job_id, run, path, node, container = "train", "1", "run", "/run", None, None

    results = Results(OnlyLooks(evil("answer(None)")), "run", evidence, Subject())  # type: ignore[arg-type]
    assert isinstance(results.outcome(Verdict.VALUE, False)[1], UntrustedRun)
    assert not mark.exists()
