"""`slurm cluster join | leave`: other hosts bring nodes into a cluster, and take them away."""

from __future__ import annotations

import shlex
import sys
from typing import Annotated

from cyclopts import Parameter

from slurm.cli import DONE
from slurm.cli.cluster_life import Dir, Name, Patience, app, place, say
from slurm.errors import OptionError
from slurm.stack import join as joining
from slurm.stack.converge import Stack, open_stack
from slurm.stack.topology import Host

HostName = Annotated[str, Parameter(help="A host of cluster.toml that has nodes.")]
Ssh = Annotated[
    str | None,
    Parameter(
        allow_leading_hyphen=True,
        help='How ssh reaches it, such as "me@nas" or "-p 2200 me@nas"; left out: as '
        "[[hosts]] ssh says.",
    ),
]


def _found(name: str | None, dir: Dir, host: str) -> tuple[Stack, Host]:
    stack = open_stack(place(name, dir), say)
    return stack, joining.host_of(stack, host)


def _ssh(host: Host, given: str | None) -> list[str]:
    return shlex.split(given if given is not None else host.ssh)


@app.command
def join(
    host: HostName,
    name: Name = None,
    /,
    *,
    dir: Dir = None,
    ssh: Ssh = None,
    patience: Patience = 3600,
) -> int:
    """Bring the nodes of another host into the cluster: `slurm cluster join macbook lab`.

    Where ssh reaches that host, all is done from here. Else a command is printed that is typed
    there, once and within an hour; it fetches over ssh what the host needs, the key included.
    """
    stack, found = _found(name, dir, host)
    way = _ssh(found, ssh)
    if way:
        joining.join(stack, found, way, patience)
        print(f"{host} has joined the cluster {stack.record.name}")
        return DONE
    command = joining.invite(stack, found)
    print(f"type this on {host}, once and within an hour:\n\n  {command}\n")
    print(f"then look: slurm cluster status {stack.record.name}")
    return DONE


@app.command(name="hand-over", show=False)
def hand_over(host: HostName, word: str, name: Name = None, /, *, dir: Dir = None) -> int:
    """Write what a host needs to standard output, for the command that `join` has printed."""
    if sys.stdout.isatty():
        raise OptionError("this writes a key, and no screen may show it", hint="use the whole line")
    stack, found = _found(name, dir, host)
    sys.stdout.buffer.write(joining.hand_over(stack, found, word))
    return DONE


@app.command
def leave(
    host: HostName,
    name: Name = None,
    /,
    *,
    dir: Dir = None,
    ssh: Ssh = None,
    patience: Patience = 3600,
) -> int:
    """Take the nodes of another host out of the cluster: drained, ended, forgotten.

    It waits for their jobs. Where ssh does not reach the host, end its nodes there first:
    `join.sh leave` in the folder that it was given.
    """
    stack, found = _found(name, dir, host)
    joining.leave(stack, found, _ssh(found, ssh), patience)
    print(f"{host} has left the cluster {stack.record.name}")
    return DONE
