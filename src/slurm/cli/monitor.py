"""`slurm monitor serve | rules | dashboards`: the cluster for Prometheus and Grafana."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from slurm.cli.ended import Ended
from slurm.cli.frame import (
    COMMON,
    COUNT,
    FORM,
    PORT_OR_ANY,
    SECONDS,
    Answer,
    Common,
    Form,
    within,
)
from slurm.cli.screen import Screen, screen_of
from slurm.monitor.collector import INTERVAL, STALE
from slurm.monitor.exporter import PORT, ExporterServer, is_loopback
from slurm.monitor.serving import Serving, rest_arguments
from slurm.monitor.serving import serve as serve_until_ended

app = App(
    name="monitor",
    help="Metrics of the cluster for Prometheus, with alert rules and Grafana dashboards.",
    help_format="plaintext",
)


@dataclass(frozen=True)
class Written(Answer):
    """Files that were written."""

    files: Annotated[list[str], "Their paths."]

    def lines(self, screen: Screen) -> Iterable[str]:
        """A path a line."""
        return self.files


@app.command
def serve(
    *,
    address: Annotated[str, Parameter(help="Where to listen.")] = "127.0.0.1",
    port: Annotated[
        int, Parameter(help="The port; 0 takes any that is free.", validator=PORT_OR_ANY)
    ] = PORT,
    interval: Annotated[
        float,
        Parameter(help="Seconds between two collections at least.", validator=within(0.1, 10**6)),
    ] = INTERVAL,
    stale_after: Annotated[
        float,
        Parameter(help="Seconds after which old data are no longer served.", validator=SECONDS),
    ] = STALE,
    top: Annotated[
        int,
        Parameter(
            help="Users, and accounts, with series of their own; else `other`.", validator=COUNT
        ),
    ] = 50,
    per_job: Annotated[
        int, Parameter(help="Running jobs with series of their own.", validator=COUNT)
    ] = 0,
    web_config: Annotated[
        Path | None, Parameter(help="web.yml with TLS and passwords, as other exporters take it.")
    ] = None,
    rest: Annotated[
        str | None, Parameter(help="Ask slurmrestd at this URL in place of Slurm's commands.")
    ] = None,
    token_file: Annotated[
        Path | None, Parameter(help="The token for it, read anew each time; else $SLURM_JWT.")
    ] = None,
    common: Common = COMMON,
) -> Ended:
    """Serve the metrics of the cluster to Prometheus, until ended.

    One collection in the background feeds every scrape: Slurm is asked equally often whoever looks.
    """
    asked = Serving(address, port, interval, stale_after, top, per_job, web_config)
    backend = common.backend(**rest_arguments(rest, token_file))
    serve_until_ended(backend, asked, lambda server: _began(server, asked))
    return Ended()


def _began(server: ExporterServer, asked: Serving) -> None:
    import sys

    said = [f"Serving {server.url}; Ctrl-C ends it."]
    if not is_loopback(asked.address) and server.web.tls is None:
        said.append("Who reaches this port sees who runs what: --web-config has TLS and passwords.")
    screen = screen_of(sys.stderr)
    for sentence in said:
        for line in screen.wrap(sentence):
            print(screen.shown(line), file=sys.stderr, flush=True)


@app.command
def rules(
    directory: Annotated[Path, Parameter(help="Where slurm-alerts.yml is put.")],
    /,
    *,
    form: Form = FORM,
) -> Written:
    """Write the alert rules for Prometheus."""
    from slurm.monitor.alerts import FILE_NAME, alert_rules

    return _write(directory, {FILE_NAME: alert_rules()})


@app.command
def dashboards(
    directory: Annotated[Path, Parameter(help="Where the dashboards are put, a file each.")],
    /,
    *,
    form: Form = FORM,
) -> Written:
    """Write the dashboards for Grafana."""
    from slurm.monitor.dashboards import dashboard_files

    return _write(directory, dashboard_files())


def _write(directory: Path, files: dict[str, str]) -> Written:
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (directory / name).write_text(text, encoding="utf-8")
    return Written([str(directory / name) for name in files])
