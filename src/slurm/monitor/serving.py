"""Serve the exporter until SIGTERM or Ctrl-C: what `slurm monitor serve` does."""

from __future__ import annotations

import importlib.metadata
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slurm.api.looking import Looking
from slurm.errors import NoScheduler, OptionError
from slurm.monitor.collector import INTERVAL, STALE, Collector
from slurm.monitor.exporter import PORT, Exporter, ExporterServer
from slurm.monitor.measure import Caps
from slurm.monitor.webconfig import WebConfig, load_web_config
from slurm.shutdown import Shutdown

#: More often than this would be a burden on the controller.
SHORTEST = 1.0
#: Seconds until the thread that reads thousands of rows lets a scrape go first; 5 ms is usual.
TURN = 0.001


@dataclass(frozen=True)
class Serving:
    """What a person asked for; the names are those of the options."""

    address: str = "127.0.0.1"
    port: int = PORT
    interval: float = INTERVAL
    stale_after: float = STALE
    #: Users, and accounts, with series of their own.
    top: int = 50
    #: Running jobs with series of their own.
    per_job: int = 0
    web_config: Path | None = None

    def check(self) -> None:
        """Refuse what cannot be meant."""
        if self.interval < SHORTEST:
            raise OptionError(
                f"--interval {self.interval:g} is too short: the controller serves everybody",
                hint=f"{SHORTEST:g} second or more; {INTERVAL:g} is usual",
            )
        if not 0 <= self.port <= 65535:
            raise OptionError(f"--port {self.port} is no port", hint="0 takes any that is free")
        for name, value in (("--top", self.top), ("--per-job", self.per_job)):
            if value < 0:
                raise OptionError(f"{name} {value} is less than nothing", hint="0 for none")


def rest_arguments(url: str | None, token_file: Path | None) -> dict[str, Any]:
    """The arguments of `Cluster` that lead to slurmrestd; none where no URL was given."""
    if url is None and token_file is not None:
        raise OptionError(
            f"--token-file {token_file} is for slurmrestd only", hint="--rest http://HOST:6820"
        )
    if url is None:
        return {}
    return {"backend_type": "rest", "rest_url": url, "token_file": token_file}


@contextmanager
def running(backend: Looking, asked: Serving) -> Iterator[ExporterServer]:
    """An exporter that collects and answers, for as long as the block lasts."""
    asked.check()
    if backend.kind == "embedded":
        raise NoScheduler(
            "the embedded scheduler has nothing that a monitor could collect",
            hint="a real Slurm: slurm cluster up, or --hostname LOGIN-NODE",
        )
    web = load_web_config(asked.web_config) if asked.web_config else WebConfig()
    collector = Collector(backend, interval=asked.interval, stale_after=asked.stale_after)
    exporter = Exporter(collector, caps=Caps(asked.top, asked.per_job), version=_version())
    server = ExporterServer(exporter, asked.address, asked.port, web)
    answering = threading.Thread(target=server.serve_forever, name="exporter", daemon=True)
    collector.start()
    answering.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        collector.stop()


def serve(backend: Looking, asked: Serving, began: Callable[[ExporterServer], None]) -> None:
    """Serve until SIGTERM or Ctrl-C; `began` is told once it listens. The process is ours alone."""
    sys.setswitchinterval(TURN)
    with running(backend, asked) as server, Shutdown() as shutdown:
        began(server)
        shutdown.wait()


def _version() -> str:
    try:
        return importlib.metadata.version("slurm-sdk")
    except importlib.metadata.PackageNotFoundError:
        return ""  # a bare copy of the package, in a container
