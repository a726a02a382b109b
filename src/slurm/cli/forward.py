"""`slurm forward RUN PORT`: a port of the job's node, through the login node, on this machine."""

from __future__ import annotations

import inspect
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Annotated

from cyclopts import Parameter

from slurm import errors
from slurm.cli.frame import COMMON, PORT, PORT_OR_ANY, Answer, Common, Run
from slurm.cli.pick import Node, one_job
from slurm.cli.screen import Screen
from slurm.inside import command_inside, python_there
from slurm.runner import relay

#: How long the way to the node may take to open.
OPENING = 60.0


@dataclass(frozen=True)
class Forwarded(Answer):
    """Where the port can be reached now; the program goes on until it is interrupted."""

    url: Annotated[str, "The address on this machine."]
    local_port: Annotated[int, "The port on this machine."]
    node: Annotated[str, "The job's node."]
    port: Annotated[int, "The port there."]
    job_id: Annotated[str, "The job."]

    def lines(self, screen: Screen) -> Iterable[str]:
        """The address, and how to end it."""
        to = f"{self.node}:{self.port}, job {self.job_id}"
        return screen.wrap(f"{self.url} leads to {to}; Ctrl-C ends it")


def forward(
    run: Run,
    port: Annotated[
        int, Parameter(help="The port that the job's program listens on.", validator=PORT)
    ],
    *,
    local_port: Annotated[
        int | None,
        Parameter(
            help="The port on this machine; the same, else a free one.", validator=PORT_OR_ANY
        ),
    ] = None,
    node: Node = None,
    common: Common = COMMON,
) -> Iterator[Forwarded]:
    """Bring a port of a running job to this machine: Jupyter, TensorBoard, a debugger.

    It needs no route to the node: the connection goes through a step of the job itself, so a
    program that listens on the node's loopback only is reached, too.
    """
    for name, value in (("PORT", port), ("--local-port", local_port)):
        if value is not None and not 0 < value < 65536:
            raise errors.OptionError(f"{name} {value} is no port", hint="from 1 to 65535")
    job = one_job(common.attach(run), run, "forward")
    words = python_there(job.cluster, job.run, inspect.getsource(relay), [str(port)])
    inside = command_inside(job, words, node=node)
    with _listening(port, local_port) as here, _relay(inside) as (carrier, process):
        number = here.getsockname()[1]
        where = node or job.node or ""
        yield Forwarded(f"http://127.0.0.1:{number}", number, where, port, job.id)
        threading.Thread(target=_accept, args=(here, carrier), daemon=True).start()
        process.wait()


@contextmanager
def _listening(port: int, local_port: int | None) -> Iterator[socket.socket]:
    for wanted in (local_port,) if local_port is not None else (port, 0):
        here = socket.socket()
        here.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            here.bind(("127.0.0.1", wanted))
        except OSError as error:
            here.close()
            trouble = error
            continue
        here.listen()
        with here:
            yield here
        return
    raise errors.UsageError(
        f"--local-port {local_port} cannot be used: {trouble.strerror}",
        hint="leave it out, and a free one is taken",
    )


@contextmanager
def _relay(inside: list[str]) -> Iterator[tuple[relay.Relay, subprocess.Popen[bytes]]]:
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            inside,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=said,
            start_new_session=True,  # Ctrl-C is for us; we end it
        )
        assert process.stdin is not None and process.stdout is not None
        try:
            carrier = relay.Relay(process.stdout, process.stdin)
            threading.Thread(target=carrier.run, daemon=True).start()
            deadline = time.monotonic() + OPENING
            while not carrier.ready.wait(0.1):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise _no_way(said)
            yield carrier, process
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _no_way(said: IO[bytes]) -> errors.CommandRefused:
    said.seek(0)
    lines = said.read().decode(errors="replace").splitlines()
    return errors.CommandRefused("the way into the job cannot be opened", evidence=lines[-5:])


def _accept(here: socket.socket, carrier: relay.Relay) -> None:
    while True:
        try:
            connection, _ = here.accept()
        except OSError:
            return  # the program ends
        threading.Thread(target=carrier.open, args=(connection,), daemon=True).start()
