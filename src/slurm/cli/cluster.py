"""`slurm cluster up | down | status | render`: a real Slurm cluster on this machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import App, Parameter

from slurm import stack
from slurm.cli import DONE, UNREACHABLE
from slurm.errors import OptionError
from slurm.stack import ClusterStatus, site
from slurm.stack.plan import container_plan
from slurm.stack.read import FILE_NAME, read_topology
from slurm.stack.render import rendered, write

app = App(
    name="cluster",
    help="Bring a real Slurm cluster up on this machine, look at it, take it down.",
    help_format="plaintext",
)

Dir = Annotated[Path, Parameter(name="--dir", help="The cluster's own directory.")]
Json = Annotated[bool, Parameter(name="--json", negative="", help="Print JSON for a program.")]


@app.command
def up(
    *,
    dir: Dir,
    engine: Annotated[
        Literal["native"], Parameter(help="How the daemons run: as processes.")
    ] = "native",
    nodes: Annotated[int, Parameter(help="Number of compute nodes.")] = 1,
    cpus: Annotated[int, Parameter(help="CPUs that each node offers.")] = 8,
    memory: Annotated[int, Parameter(help="Memory that each node offers, in MiB.")] = 4000,
    name: Annotated[str | None, Parameter(help="The cluster's name in Slurm.")] = None,
    conf_line: Annotated[
        list[str] | None,
        Parameter(negative="", help="A line for slurm.conf, KEY=VALUE; repeatable."),
    ] = None,
    file: Annotated[
        list[str] | None,
        Parameter(negative="", help="NAME=PATH: a file to put beside slurm.conf; repeatable."),
    ] = None,
    accounting: Annotated[
        bool, Parameter(negative="--no-accounting", help="With a database and slurmdbd.")
    ] = True,
    json: Json = False,
) -> int:
    """Start munge, MariaDB, slurmdbd, slurmctld and the nodes; ready when a job has run.

    With --json the cluster's status is printed as `slurm cluster status --json` does.
    """
    cluster = stack.up(
        dir,
        nodes=nodes,
        cpus=cpus,
        memory_mb=memory,
        name=name,
        extra_conf=conf_line or [],
        files=dict(_read_file(argument) for argument in file or []),
        accounting=accounting,
    )
    status = cluster.status()
    if json:
        _print_json(status)
        return DONE
    print(f"cluster {cluster.name} is up in {cluster.dir}: nodes {', '.join(cluster.nodes)}")
    print(f"memory enforcement: {status.enforcement}")
    _print_notes(status)
    print("\nnow type:")
    for key, value in cluster.env.items():
        print(f"  export {key}={value}")
    print(f"  sinfo\n\nand at the end:\n  slurm cluster down --dir {cluster.dir}")
    return DONE


@app.command
def render(
    directory: Annotated[Path, Parameter(help="Where the files are written.")],
    /,
    *,
    topology: Annotated[
        Path | None,
        Parameter(help="The topology file; left out: cluster.toml in DIRECTORY, else defaults."),
    ] = None,
    platform: Annotated[
        Literal["ubuntu", "mac", "qnap"] | None,
        Parameter(help="The host's kind, whose override is used; left out: this host's."),
    ] = None,
) -> int:
    """Write all files of a cluster: compose, Slurm's configuration, Containerfile, monitoring.

    They are a function of the topology, readable and stable, hold no secret, and work with plain
    `docker compose` or `podman compose`:

      slurm cluster render lab && cd lab && ./make-secrets.sh && docker compose up -d
    """
    found = directory / FILE_NAME
    source = topology or (found if found.exists() else None)
    plan = container_plan(read_topology(source), site.look())
    changed = write(directory, rendered(plan, platform or ""))
    for name in changed:
        print(f"written: {directory / name}")
    print(f"{len(changed)} files written" if changed else "all files are as they should be")
    for notice in plan.notices:
        print(f"note: {notice}")
    return DONE


@app.command
def down(*, dir: Dir) -> int:
    """Stop daemons and running jobs; queued jobs and accounting stay in the directory.

    A cluster that is down already is left as it is.
    """
    stack.down(dir)
    print(f"the cluster in {dir} is down; `slurm cluster up --dir {dir}` goes on where it ended")
    return DONE


@app.command
def status(*, dir: Dir, json: Json = False) -> int:
    """Show daemons, pids, ports, nodes and memory enforcement; exit code 3 unless all is up.

    The JSON is one object:
    name, dir, engine: strings;
    state: "up", "degraded" or "down";
    enforcement: "cgroup v1", or "none: " and the reason;
    daemons: a list of {name, pid (null: not running), port (null: a unix socket), log};
    nodes: {name: state as Slurm says it, or "unknown"};
    env: the variables that a client needs;
    notes: a list of strings.
    """
    found = stack.status(dir)
    if json:
        _print_json(found)
    else:
        _print_status(found)
    return DONE if found.state == "up" else UNREACHABLE


def _read_file(argument: str) -> tuple[str, str]:
    name, equals, path = argument.partition("=")
    if not equals:
        raise OptionError(
            f"--file {argument!r} is not NAME=PATH", hint="for example: --file oci.conf=./oci.conf"
        )
    try:
        return name, Path(path).expanduser().read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise OptionError(
            f"--file {argument!r}: {path} cannot be read: {error}", hint="name a text file"
        ) from error


def _print_json(status: ClusterStatus) -> None:
    print(json.dumps(status.as_dict(), indent=2))


def _print_notes(status: ClusterStatus) -> None:
    for note in status.notes:
        print(f"note: {note}")


def _print_status(status: ClusterStatus) -> None:
    print(f"cluster {status.name} in {status.dir} is {status.state}")
    print(f"memory enforcement: {status.enforcement}")
    _print_notes(status)
    print(f"\n{'daemon':<14}{'pid':>8}{'port':>8}")
    for daemon in status.daemons:
        print(f"{daemon.name:<14}{daemon.pid or 'down':>8}{daemon.port or '-':>8}")
    print(f"\n{'node':<14}state")
    for node, state in status.nodes.items():
        print(f"{node:<14}{state}")
    if status.state != "down":
        print("\n" + "\n".join(f"export {key}={value}" for key, value in status.env.items()))
