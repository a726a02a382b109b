"""`slurm cluster up | down | status | render`: a real Slurm cluster, as processes or containers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from slurm import stack
from slurm.cli import DONE, REFUSED, cluster_hosts, cluster_native
from slurm.cli.cluster_life import (
    Asked,
    Dir,
    Json,
    Name,
    Patience,
    app,
    found_file,
    in_containers,
    place,
    say,
    show_status,
    up_in_containers,
    what_about_jobs,
)
from slurm.cli.frame import ONE_OR_MORE
from slurm.errors import OptionError
from slurm.stack import life, native_life, site
from slurm.stack.plan import container_plan
from slurm.stack.read import FILE_NAME, read_topology
from slurm.stack.render import rendered, write
from slurm.stack.state import made

__all__ = ["app", "cluster_hosts"]


@app.command
def up(
    *,
    dir: Annotated[
        Path | None,
        Parameter(name="--dir", help="The cluster's own directory; native needs one."),
    ] = None,
    topology: Annotated[
        Path | None,
        Parameter(help="The topology file; left out: cluster.toml in --dir or here, if any."),
    ] = None,
    engine: Annotated[
        Literal["native", "podman", "docker"] | None,
        Parameter(help="How the daemons run; left out: as the topology says, else native."),
    ] = None,
    nodes: Annotated[
        int | None, Parameter(help="Number of compute nodes.", validator=ONE_OR_MORE)
    ] = None,
    cpus: Annotated[
        int | None, Parameter(help="CPUs that each node offers.", validator=ONE_OR_MORE)
    ] = None,
    memory: Annotated[
        int | None, Parameter(help="Memory that each node offers, in MiB.", validator=ONE_OR_MORE)
    ] = None,
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
    """Start a whole Slurm, as a topology file says or as the options say; ready when a job has run.

    In containers, the same command after an interruption goes on where it ended. With --json the
    cluster's status is printed as `slurm cluster status --json` does.
    """
    asked = Asked(name, nodes, cpus, memory, tuple(conf_line or ()), accounting)
    source = topology or found_file(dir)
    if source is not None or engine in ("podman", "docker"):
        if file:
            raise OptionError("--file is for --engine native only", hint="use [conf] in the file")
        return up_in_containers(dir, source, engine, asked, json=json)
    if dir is None:
        raise OptionError(
            "--dir is needed for a cluster of plain processes",
            hint="slurm cluster up --dir DIRECTORY, or in containers: --engine podman",
        )
    return _up_native(dir, asked, dict(_read_file(argument) for argument in file or []), json)


def _up_native(dir: Path, asked: Asked, files: dict[str, str], json: bool) -> int:
    cluster = stack.up(
        dir,
        nodes=1 if asked.nodes is None else asked.nodes,
        cpus=8 if asked.cpus is None else asked.cpus,
        memory_mb=4000 if asked.memory is None else asked.memory,
        name=asked.name,
        extra_conf=asked.conf,
        files=files,
        accounting=asked.accounting,
    )
    native_life.register(made(cluster.dir).cluster)
    return cluster_native.tell_up(cluster, json=json)


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
    for name in dict.fromkeys(_shown(name) for name in changed):
        print(f"written: {directory / name}")
    print(f"{len(changed)} files written" if changed else "all files are as they should be")
    for notice in plan.notices:
        print(f"note: {notice}")
    return DONE


def _shown(name: str) -> str:
    """A file as it is listed; the exporter's sources are one thing."""
    return "exporter/" if name.startswith("exporter/") else name


@app.command
def down(
    name: Name = None,
    /,
    *,
    dir: Dir = None,
    requeue: Annotated[
        bool, Parameter(negative="", help="Put running jobs back into the queue.")
    ] = False,
    now: Annotated[bool, Parameter(negative="", help="End running jobs.")] = False,
    patience: Patience = 3600,
) -> int:
    """Stop all daemons in order; queued jobs and accounting stay, `up` goes on with them.

    In containers it asks what becomes of running jobs, and waits for them where nobody can answer;
    a cluster of plain processes ends them. A cluster that is down already is left as it is.
    """
    directory = place(name, dir)
    if requeue and now:
        raise OptionError("--requeue and --now were given", hint="say one of them")
    if in_containers(directory):
        jobs = "requeue" if requeue else "end" if now else what_about_jobs(directory)
        if not jobs:
            print("nothing was done")
            return REFUSED
        life.down(directory, say, jobs, patience)
    else:
        stack.down(directory)
    print(f"the cluster in {directory} is down; `slurm cluster up --dir {directory}` goes on")
    return DONE


@app.command
def status(name: Name = None, /, *, dir: Dir = None, json: Json = False) -> int:
    """Show services, nodes, jobs and memory enforcement; exit code 3 unless all is up.

    The JSON is one object:
    name, dir, engine: strings;
    state: "up", "degraded" or "down";
    enforcement: what holds jobs to their memory, or "none: " and the reason;
    nodes: {name: state as Slurm says it, or "unknown"};
    notes: a list of strings;
    of plain processes:
    daemons: a list of {name, pid (null: not running), port (null: a unix socket), log};
    env: the variables that a client needs;
    of containers:
    version: Slurm's; doing: a step that was interrupted, or "";
    controller: the service that has the queue, or "";
    services: a list of {name, container, state, healthy, address, image};
    hosts: {another host: "joined", "missing" or "not answering"};
    jobs: {state: count}.
    """
    directory = place(name, dir)
    if in_containers(directory):
        return show_status(directory, json=json)
    return cluster_native.show_status(directory, json=json)


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
