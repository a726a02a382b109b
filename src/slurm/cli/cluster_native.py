"""What `slurm cluster` does with a cluster of plain processes."""

from __future__ import annotations

import json as jsons
import os
import subprocess
from pathlib import Path

from slurm import stack
from slurm.cli import DONE, UNREACHABLE
from slurm.errors import StackError, nearest
from slurm.stack import ClusterStatus, RunningCluster, native_life, record
from slurm.stack.processes import last_lines
from slurm.stack.state import made
from slurm.stack.topology import Topology


def up_from_file(dir: Path | None, topology: Topology, text: str, *, json: bool) -> int:
    """`slurm cluster up` with `engine = "native"` in the file."""
    directory = dir or record.default_directory(topology.name)
    return tell_up(native_life.up(directory.expanduser(), topology, text), json=json)


def tell_up(cluster: RunningCluster, *, json: bool) -> int:
    """Say that a cluster is up, and what to type now."""
    status = cluster.status()
    if json:
        print(jsons.dumps(status.as_dict(), indent=2))
        return DONE
    print(f"cluster {cluster.name} is up in {cluster.dir}: nodes {', '.join(cluster.nodes)}")
    print(f"memory enforcement: {status.enforcement}")
    _print_notes(status)
    print("\nnow type:")
    for key, value in cluster.env.items():
        print(f"  export {key}={value}")
    print(
        f'  sinfo\nor in Python:\n  Cluster.from_stack("{cluster.name}")\n\nand at the end:\n'
        f"  slurm cluster down {cluster.name}"
    )
    return DONE


def show_status(directory: Path, *, json: bool) -> int:
    """`slurm cluster status`."""
    found = stack.status(directory)
    if json:
        print(jsons.dumps(found.as_dict(), indent=2))
    else:
        _print_status(found)
    return DONE if found.state == "up" else UNREACHABLE


def show_logs(directory: Path, daemon: str | None, lines: int, *, follow: bool) -> int:
    """`slurm cluster logs`: each line with its daemon, unless one is named."""
    logs = {one.name: one.log for one in stack.status(directory).daemons}
    if daemon is None:
        for name, log in logs.items():
            print("\n".join(f"{name}: {line}" for line in last_lines(Path(log), lines)))
        return DONE
    found = next((name for name in (daemon, f"slurmd-{daemon}") if name in logs), None)
    if found is None:
        close = nearest(daemon, list(logs))
        raise StackError(
            f"this cluster has no daemon {daemon!r}",
            hint=f"did you mean {close!r}?" if close else f"one of: {', '.join(logs)}",
        )
    if follow:
        words = ["tail", "-n", str(lines), "-F", logs[found]]
        return subprocess.run(words).returncode
    print("\n".join(last_lines(Path(logs[found]), lines)))
    return DONE


def run_inside(directory: Path, words: list[str]) -> int:
    """`slurm cluster exec` and `shell`: a command that Slurm's variables lead to this cluster."""
    env = {**os.environ, **made(directory).cluster.client_env}
    try:
        return subprocess.run(words, env=env).returncode
    except OSError as error:
        raise StackError(f"{words[0]} cannot be started: {error.strerror}") from error


def apply(directory: Path, text: str, *, dry_run: bool) -> int:
    """`slurm cluster apply`: shows the difference first."""
    what = native_life.compare(directory, text)
    print("\n".join(what.diff), end="\n" if what.diff else "")
    for verb, nodes in (("new", what.new), ("anew", what.anew), ("removed", what.removed)):
        if nodes:
            print(f"{verb}: {', '.join(nodes)}")
    if what.accounts:
        print("accounting: QOS, accounts or users change")
    if what.nothing:
        print("all is as the file says")
    elif not dry_run:
        native_life.apply(directory, text)
    return DONE


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
