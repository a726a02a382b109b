"""`slurm dashboard` as a process of its own, and how a program asks it."""

from __future__ import annotations

import http.client
import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from waiting import until


@dataclass
class Served:
    """A dashboard that runs as its own process."""

    base: str
    process: subprocess.Popen[str]
    #: A link that lets one browser in, once.
    link: str
    cookie: str = field(default="")

    def ask(
        self, path: str, *, method: str = "GET", body: str | None = None, **headers: str
    ) -> tuple[int, dict[str, str], str]:
        """One request, with the session's cookie unless told otherwise."""
        place = urlsplit(self.base)
        connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=60)
        sent = {"Accept": "text/html", "Cookie": self.cookie}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body, {k: v for k, v in sent.items() if v})
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        return answer.status, {k.lower(): v for k, v in answer.getheaders()}, text

    def ask_until(self, path: str, words: str) -> str:
        """A page once it has some words: what Slurm takes long to tell comes a little later."""
        text = ""

        def there() -> bool:
            nonlocal text
            text = self.ask(path)[2]
            return words in text

        until(f"{words} in {path}", there)
        return text

    def enter(self) -> None:
        """Use the link, as a browser would."""
        status, headers, _ = self.ask(self.link.removeprefix(self.base))
        assert status == 200
        self.cookie = headers["set-cookie"].partition(";")[0]

    @property
    def resident(self) -> int:
        """Bytes of memory that the server holds."""
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(r"VmRSS:\s+(\d+) kB", text)
        assert found
        return int(found[1]) * 1024


@contextmanager
def dashboard(*options: str, cwd: Path | None = None) -> Iterator[Served]:
    """`slurm dashboard` on a free port."""
    words = [sys.executable, "-m", "slurm.cli", "dashboard", "--port", "0", "--interval", "1"]
    process = subprocess.Popen(
        [*words, *options], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, cwd=cwd
    )
    try:
        assert process.stderr is not None
        line = process.stderr.readline()
        found = re.search(r"(https?://[^/\s]+)(\S*)", line)
        assert found, line + process.stderr.read()
        threading.Thread(target=process.stderr.read, daemon=True).start()
        yield Served(found[1], process, found[0])
        process.terminate()
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()


def events(served: Served, path: str) -> Iterator[tuple[str, Any]]:
    """What the stream of a page sends."""
    place = urlsplit(served.base)
    connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=120)
    sent = {"Accept": "text/event-stream", "Cookie": served.cookie}
    connection.request("GET", path, headers=sent)
    answer = connection.getresponse()
    assert answer.status == 200, answer.read()
    name = ""
    try:
        while line := answer.readline().decode():
            if line.startswith("event: "):
                name = line[7:].strip()
            elif line.startswith("data: "):
                yield name, json.loads(line[6:])
    finally:
        connection.close()
