"""`slurm cluster logs | exec | apply | upgrade ...`: what is done to a cluster in containers."""

from __future__ import annotations

import json as jsons
import subprocess
import sys
from pathlib import Path
from typing import Annotated, NamedTuple

from cyclopts import App, Parameter

from slurm.cli import DONE, REFUSED, UNREACHABLE, cluster_native
from slurm.cli.frame import COUNT, ONE_OR_MORE, SECONDS
from slurm.errors import OptionError, StackError, nearest
from slurm.stack import backup as backups
from slurm.stack import change, health, life, native_life, record
from slurm.stack import join as joining
from slurm.stack.converge import Stack, open_stack
from slurm.stack.fleet import some
from slurm.stack.ownership import check_found
from slurm.stack.read import FILE_NAME, parse_topology

app = App(
    name="cluster",
    help="Bring a real Slurm cluster up on this machine, look at it, change it, take it down.",
    help_format="plaintext",
)

Name = Annotated[
    str | None, Parameter(help="The cluster's name; left out: the only one that is there.")
]
Dir = Annotated[
    Path | None, Parameter(name="--dir", help="The cluster's own directory, instead of a name.")
]
Json = Annotated[bool, Parameter(name="--json", negative="", help="Print JSON for a program.")]
Yes = Annotated[bool, Parameter(name="--yes", negative="", help="Do not ask.")]
Patience = Annotated[float, Parameter(help="Seconds to wait for running jobs.", validator=SECONDS)]
Words = Annotated[str, Parameter(allow_leading_hyphen=True, help="The command.")]
Service = Annotated[
    str | None, Parameter(help="Where; left out: on the login node, else beside slurmctld.")
]
User = Annotated[str | None, Parameter(help="As whom; left out: the topology's first user.")]


class Asked(NamedTuple):
    """What the options of `up` say about a cluster that has no file."""

    name: str | None
    nodes: int | None
    cpus: int | None
    memory: int | None
    conf: tuple[str, ...]
    accounting: bool

    def topology(self, engine: str) -> str:
        """The same as the text of a cluster.toml."""
        size = {"cpus": self.cpus, "memory": self.memory and f"{self.memory}M"}
        lines = [f'name = "{self.name}"'] if self.name else []
        lines.append(f'engine = "{engine}"')
        if not self.accounting:
            lines += ["[database]", 'kind = "none"']
        if self.conf:
            lines += ["[conf]", f"slurm = {jsons.dumps(list(self.conf))}"]
        if self.nodes or any(size.values()):
            count = self.nodes or 2
            lines += ["[[nodes]]", f'names = "n[1-{count}]"' if count > 1 else 'names = "n1"']
            lines += [f"{key} = {jsons.dumps(value)}" for key, value in size.items() if value]
        return "\n".join(lines) + "\n"

    @property
    def anything(self) -> bool:
        """Whether an option was given that a file would decide."""
        return self != Asked(None, None, None, None, (), True)


def say(line: str) -> None:
    """Tell a person what was done just now; what a program reads stays on standard output."""
    print(line, file=sys.stderr, flush=True)


def found_file(dir: Path | None) -> Path | None:
    """The cluster.toml that is meant when none is named; another user's is refused."""
    if dir is not None and record.load(dir) is None and not (dir / FILE_NAME).exists():
        return None
    file = (dir or Path()) / FILE_NAME
    if not file.is_file():
        return None
    check_found(file)
    return file


def place(name: str | None, dir: Path | None) -> Path:
    """The directory of the cluster that is meant."""
    return dir.expanduser().resolve() if dir is not None else record.find(name)


def in_containers(directory: Path) -> bool:
    """Whether the cluster of a directory runs in containers."""
    return record.load(directory) is not None


def up_in_containers(
    dir: Path | None, source: Path | None, engine: str | None, asked: Asked, *, json: bool
) -> int:
    """`slurm cluster up` with podman or docker."""
    if source is not None and asked.anything:
        raise OptionError(
            f"{source} says what the cluster is, and options were given, too",
            hint="write it into the file",
        )
    text = source.read_text(encoding="utf-8") if source else asked.topology(engine or "podman")
    topology = parse_topology(text, str(source or FILE_NAME))
    if engine is not None and engine != topology.engine:
        raise OptionError(
            f"--engine {engine}, but {source} has engine = {topology.engine!r}",
            hint="leave --engine out, or change the file",
        )
    if topology.engine == "native":
        return cluster_native.up_from_file(dir, topology, text, json=json)
    directory = (dir or record.default_directory(topology.name)).expanduser().resolve()
    stack = life.up(directory, topology, text, say)
    if json:
        return show_status(directory, json=True)
    name = stack.record.name
    print(f"cluster {name} is up: Slurm {stack.record.version}, nodes {', '.join(stack.nodes)}")
    for notice in stack.plan.notices:
        print(f"note: {notice}")
    _print_pages(stack)
    for host, state in joining.hosts(stack, stack.fleet.states()).items():
        if state == "missing":
            print(f"{host} has not joined: slurm cluster join {host} {name}")
    print(
        f"\nnow type:\n  slurm cluster exec {name} sinfo\nor in Python:\n"
        f'  Cluster.from_stack("{name}")\n\nand at the end:\n  slurm cluster down {name}'
    )
    return DONE


def _print_pages(stack: Stack) -> None:
    monitoring = stack.plan.topology.monitoring
    pages = {"prometheus": monitoring.prometheus_port, "grafana": monitoring.grafana_port}
    for name, port in pages.items():
        if name in stack.plan.addresses:
            print(f"{name}: http://{monitoring.address}:{port}")
    if "grafana" in stack.plan.addresses:
        print(f"  user admin, password in {stack.record.directory}/secrets/grafana_password")


def show_status(directory: Path, *, json: bool) -> int:
    """`slurm cluster status` of containers."""
    found = health.look(directory)
    code = DONE if found.state == "up" else UNREACHABLE
    if json:
        print(jsons.dumps(found.as_dict(), indent=2))
        return code
    print(f"cluster {found.name} in {found.dir} is {found.state}: Slurm {found.version}")
    if found.doing:
        print(f"unfinished: {found.doing}; the same command again goes on")
    if len([one for one in found.services if one.name.startswith("slurmctld")]) > 1:
        print(f"in charge: {found.controller or 'no controller'}")
    print(f"enforcement: {found.enforcement}")
    for note in found.notes:
        print(f"note: {note}")
    print(f"\n{'service':<18}{'container':<12}{'works':<7}address")
    for one in found.services:
        print(f"{one.name:<18}{one.state:<12}{'yes' if one.healthy else 'no':<7}{one.address}")
    print(f"\n{'node':<18}state")
    for node, state in found.nodes.items():
        print(f"{node:<18}{state}")
    if found.hosts:
        print(f"\n{'host':<18}state")
    for host, state in found.hosts.items():
        more = f"; slurm cluster join {host} {found.name}" if state == "missing" else ""
        print(f"{host:<18}{state}{more}")
    if found.jobs:
        print("\njobs: " + ", ".join(f"{count} {state}" for state, count in found.jobs.items()))
    return code


def _agreed(question: str, yes: bool) -> bool:
    if yes:
        return True
    if not sys.stdin.isatty():
        raise OptionError(f"{question} Nobody can answer here", hint="say --yes")
    return input(f"{question} [y/N] ").strip().lower() in ("y", "yes")


def what_about_jobs(directory: Path) -> str:
    """What `down` does with running jobs: `wait`, `requeue` or `end`; "" where it is given up."""
    jobs = life.running_jobs(directory) if sys.stdin.isatty() else []
    if not jobs:
        return "wait"
    print(f"Still running, and would end with the nodes: {some(jobs)}")
    answers = {"w": "wait", "r": "requeue", "e": "end"}
    question = "Wait for them, requeue them, end them, or nothing of it? [w/r/e/N] "
    return answers.get(input(question).strip().lower()[:1], "")


@app.command
def destroy(name: Name = None, /, *, dir: Dir = None, yes: Yes = False) -> int:
    """Remove a cluster with its queue, its accounting and its shared files; backups stay."""
    directory = place(name, dir)
    if in_containers(directory):
        _say_who_stays(open_stack(directory))
    if not _agreed(f"Destroy the cluster in {directory} with all its data?", yes):
        print("nothing was done")
        return REFUSED
    if in_containers(directory):
        life.destroy(directory, say)
    else:
        native_life.destroy(directory)
    return DONE


def _say_who_stays(stack: Stack) -> None:
    for host, state in joining.hosts(stack, stack.fleet.states()).items():
        if state != "missing":
            say(f"{host} keeps its nodes and its key: slurm cluster leave {host} takes them away")


@app.command
def logs(
    name: Name = None,
    service: Annotated[str | None, Parameter(help="Which; left out: all.")] = None,
    /,
    *,
    dir: Dir = None,
    lines: Annotated[int, Parameter(help="How many of the last lines.", validator=COUNT)] = 40,
    follow: Annotated[bool, Parameter(negative="", help="Go on as they come.")] = False,
) -> int:
    """Show what services said last, each line with its service."""
    directory = place(name, dir)
    if not in_containers(directory):
        return cluster_native.show_logs(directory, service, lines, follow=follow)
    stack = open_stack(directory)
    chosen = [_service(stack, service)] if service else [c.service for c in stack.containers]
    if follow and service:
        program = [stack.engine.program, "logs", "--follow", "--tail", str(lines)]
        return subprocess.run([*program, stack.container(chosen[0]).name]).returncode
    for one in chosen:
        for line in stack.engine.log(stack.container(one).name, lines):
            print(f"{one}: {line}" if not service else line)
    return DONE


def _service(stack: Stack, wanted: str) -> str:
    known = [c.service for c in stack.containers]
    for candidate in (wanted, f"slurmd-{wanted}"):
        if candidate in known:
            return candidate
    close = nearest(wanted, known)
    raise StackError(
        f"the cluster {stack.record.name} has no service {wanted!r}",
        hint=f"did you mean {close!r}?" if close else f"one of: {', '.join(known)}",
    )


@app.command(name="exec")
def execute(
    name: Annotated[str, Parameter(help="The cluster's name.")],
    /,
    *words: Words,
    service: Service = None,
    user: User = None,
) -> int:
    """Run a command in the cluster: `slurm cluster exec lab sinfo -N`."""
    if not words:
        raise OptionError("no command was given", hint=f"slurm cluster exec {name} sinfo")
    return _inside(place(name, None), list(words), service, user)


@app.command
def shell(
    name: Name = None, /, *, dir: Dir = None, service: Service = None, user: User = None
) -> int:
    """Open a shell in the cluster."""
    return _inside(place(name, dir), ["bash", "-l"], service, user)


def _inside(directory: Path, words: list[str], service: str | None, user: str | None) -> int:
    if not in_containers(directory):
        return cluster_native.run_inside(directory, words)
    stack = open_stack(directory)
    usual = "login" if "login" in stack.plan.addresses else "slurmctld"
    where = _service(stack, service) if service else usual
    who = user or (stack.plan.users[0].name if where == "login" else "root")
    home = f"{stack.plan.topology.shared.path}/{who}" if where == "login" and who != "root" else "/"
    argv = [stack.engine.program, "exec", "--interactive", "--user", who, "--workdir", home]
    if sys.stdin.isatty() and sys.stdout.isatty():
        argv.append("--tty")
    return subprocess.run([*argv, stack.container(where).name, *words]).returncode


@app.command
def token(
    name: Name = None,
    /,
    *,
    dir: Dir = None,
    user: User = None,
    seconds: Annotated[
        int, Parameter(help="How long it is good for.", validator=ONE_OR_MORE)
    ] = 3600,
) -> int:
    """Print a token for REST, as a line for the shell: `SLURM_JWT=...`."""
    stack = open_stack(place(name, dir))
    who = user or stack.plan.users[0].name
    print(stack.fleet.must("scontrol", "token", f"username={who}", f"lifespan={seconds}").strip())
    return DONE


@app.command
def apply(
    name: Name = None,
    /,
    *,
    dir: Dir = None,
    topology: Annotated[
        Path | None, Parameter(help="The new file; left out: cluster.toml in the directory.")
    ] = None,
    patience: Patience = 3600,
    dry_run: Annotated[bool, Parameter(negative="", help="Only show what would change.")] = False,
) -> int:
    """Change a running cluster to what a topology file says now; shows the difference first."""
    directory = place(name, dir)
    text = (topology or directory / FILE_NAME).read_text(encoding="utf-8")
    if not in_containers(directory):
        return cluster_native.apply(directory, text, dry_run=dry_run)
    return _change(directory, text, patience, dry_run)


@app.command
def scale(
    nodes: Annotated[int, Parameter(help="How many nodes there should be.", validator=ONE_OR_MORE)],
    name: Name = None,
    /,
    *,
    dir: Dir = None,
    patience: Patience = 3600,
) -> int:
    """Add nodes, or drain and remove them: `slurm cluster scale 8 lab`."""
    directory = place(name, dir)
    return _change(directory, change.scaled(directory, nodes), patience, dry_run=False)


def _change(directory: Path, text: str, patience: float, dry_run: bool) -> int:
    what = change.compare(directory, text)
    print("\n".join(what.diff), end="\n" if what.diff else "")
    for verb, services in (("new", what.new), ("anew", what.renewed), ("removed", what.removed)):
        if services:
            print(f"{verb}: {', '.join(services)}")
    if what.unfinished:
        print(f"unfinished: {what.unfinished}")
    if what.nothing:
        print("all is as the file says")
    elif not dry_run:
        change.apply(directory, text, say, patience)
    return DONE


@app.command
def upgrade(
    name: Name = None,
    /,
    *,
    to: Annotated[str, Parameter(help="Slurm's new release, such as 26.05.")],
    dir: Dir = None,
    patience: Patience = 3600,
) -> int:
    """Bring a running cluster to another release of Slurm without losing a job.

    A backup, then slurmdbd, slurmctld, and the nodes one by one: drain, wait for its jobs, make
    anew, resume. After an interruption the same command goes on.
    """
    change.upgrade(place(name, dir), to, say, patience)
    return DONE


@app.command
def backup(
    name: Name = None,
    /,
    *,
    dir: Dir = None,
    to: Annotated[Path | None, Parameter(help="A folder to make; left out: in backups/.")] = None,
) -> int:
    """Copy database, state, secrets and cluster.toml into a folder, and print its path."""
    print(backups.backup(place(name, dir), say, to.expanduser().resolve() if to else None))
    return DONE


@app.command
def restore(
    folder: Annotated[Path, Parameter(help="What `slurm cluster backup` made.")],
    /,
    *,
    dir: Dir = None,
) -> int:
    """Bring a cluster up again from a backup, after it was destroyed or on another host."""
    found = record.load(folder.resolve())
    name = found.name if found else "restored"
    directory = (dir or record.default_directory(name)).expanduser().resolve()
    backups.restore(folder.resolve(), directory, say)
    print(f"the cluster {name} is up again")
    return DONE
