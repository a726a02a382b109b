"""Tells the ranks of a job who they are, in the variables that distributed frameworks read."""

from __future__ import annotations

import os
import time

from slurm import rundir

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Mapping, MutableMapping, Tuple

#: What frameworks read, and Slurm's own variable for it.
_NAMES = {"RANK": "SLURM_PROCID", "LOCAL_RANK": "SLURM_LOCALID", "WORLD_SIZE": "SLURM_NTASKS"}
#: How long ranks wait for the first one to say where they meet.
PATIENCE = 120.0


def announce(environ: MutableMapping[str, str]) -> None:
    """Set RANK, LOCAL_RANK and WORLD_SIZE where srun started several ranks and nobody set them.

    MASTER_ADDR and MASTER_PORT are the same for all ranks: the script has set them, but for steps,
    whose ranks agree by themselves. A job of one process gets none of this: frameworks would take
    it for a distributed one.
    """
    if not environ.get("SLURM_SDK_RANKS"):
        return
    for name, source in _NAMES.items():
        if source in environ:
            environ.setdefault(name, environ[source])
    environ["SLURM_SDK_WORLD"] = environ.get("WORLD_SIZE", "1")
    if "SLURM_STEP_ORDER" in environ and not environ.get("MASTER_PORT"):
        host, port = meet(environ)
        environ.setdefault("MASTER_ADDR", host)
        environ.setdefault("MASTER_PORT", str(port))


def meet(environ: Mapping[str, str]) -> Tuple[str, int]:
    """Where the ranks of a step meet: rank 0 finds a free port of its node and writes it down."""
    order, attempt = environ.get("SLURM_STEP_ORDER", "0"), environ.get("SLURM_RESTART_COUNT", "0")
    element = environ.get("SLURM_ARRAY_TASK_ID", "0")
    name = f"meet.{environ.get('SLURM_JOB_ID', '0')}.{order}.{element}.{attempt}"
    path = os.path.join(environ["SLURM_SDK_RUN"], rundir.SUBMIT, name)
    if int(environ.get("SLURM_PROCID") or 0) == 0:
        host, port = reachable_name(environ.get("SLURMD_NODENAME")), free_port()
        rundir.write_atomically(path, f"{host} {port}\n".encode())
        return host, port
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            with open(path) as f:
                host, _, text = f.read().strip().partition(" ")
            return host, int(text)
        except (OSError, ValueError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def reachable_name(*names: object) -> str:
    """The first of these names, or this host's own, that can be looked up; else its address."""
    import socket  # slow to import, and only ranks need it

    for name in (*names, os.uname().nodename):
        if name:
            try:
                socket.getaddrinfo(str(name), None)
                return str(name)
            except OSError:
                continue
    return "127.0.0.1"


def free_port() -> int:
    """A port of this host that nobody listens on."""
    import socket  # slow to import, and only ranks need it

    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])
