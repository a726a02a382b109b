"""`slurm dashboard`: the cluster, its jobs and your runs in a browser."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from slurm.cli.ended import Ended
from slurm.cli.frame import COMMON, PORT_OR_ANY, Common, within
from slurm.extras import needs_extra

if TYPE_CHECKING:
    from slurm.web.serving import Dashboard


def dashboard(
    *,
    address: Annotated[str, Parameter(help="Where to listen.")] = "127.0.0.1",
    port: Annotated[
        int | None, Parameter(help="The port; 0 takes any that is free.", validator=PORT_OR_ANY)
    ] = None,
    interval: Annotated[
        float,
        Parameter(help="Seconds between two collections at least.", validator=within(0.1, 10**6)),
    ] = 5.0,
    read_only: Annotated[
        bool, Parameter(negative="", help="Only show: nobody can cancel, hold or requeue.")
    ] = False,
    per_user: Annotated[
        bool,
        Parameter(
            negative="", help="Everybody logs in with a Slurm token; always so off loopback."
        ),
    ] = False,
    certificate: Annotated[Path | None, Parameter(help="TLS: the certificate, PEM.")] = None,
    key: Annotated[Path | None, Parameter(help="TLS: its key, PEM.")] = None,
    name: Annotated[
        tuple[str, ...], Parameter(help="A host name that browsers may call it by.")
    ] = (),
    helper: Annotated[
        str, Parameter(help="The socket of slurm.web.helper, which opens logs as their owners.")
    ] = "",
    common: Common = COMMON,
) -> Ended:
    """Show the cluster, its jobs and your runs in a browser, until ended.

    Needs the extra `web`. It prints a link that works once. One collection in the background feeds
    every page: Slurm is asked equally often whoever looks.
    """
    with needs_extra("web", "slurm dashboard", "slurm queue works without it"):
        import uvicorn  # noqa: F401 - serving imports it later

        from slurm.web.serving import Serving, serve
    asked = Serving(address, port, interval, read_only, per_user, certificate, key, name, helper)
    serve(common.look, asked, _began, None if read_only else common.connect)
    return Ended()


def _began(found: Dashboard) -> None:
    _say(f"Dashboard: {found.link()}")
    if found.site.rules.per_user:
        _say("Everybody logs in with a token of Slurm: scontrol token. Ctrl-C ends it.")
    else:
        _say("The link works once, for 15 minutes. Enter prints another; Ctrl-C ends it.")
        if sys.stdin is not None and sys.stdin.isatty():
            threading.Thread(target=_more_links, args=(found,), daemon=True).start()


def _more_links(found: Dashboard) -> None:
    for _ in sys.stdin:
        _say(f"Dashboard: {found.link()}")


def _say(sentence: str) -> None:
    print(sentence, file=sys.stderr, flush=True)
