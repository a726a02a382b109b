"""Knowing a daemon again, stopping it and nothing else, on real processes of this test."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from slurm.errors import StackError
from slurm.stack import cgroups, daemons, down, state
from slurm.stack.native_plan import NativeCluster, Request, native_plan
from slurm.stack.ports import free_ports, is_free, listens, socket_listens
from slurm.stack.processes import (
    Process,
    identify,
    job_processes,
    last_lines,
    launch,
    stop,
    uninterrupted,
    wait_until,
)
from waiting import holds

ENV = {"PATH": os.environ["PATH"], "MARK": "mine"}


@pytest.fixture
def bystander() -> Iterator[subprocess.Popen[bytes]]:
    """A process that nobody may touch."""
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()


def lab(directory: Path, accounting: bool = False) -> NativeCluster:
    asked = Request(name="lab", accounting=accounting).topology()
    plan = native_plan(asked, directory, "box", "root", [2, 3, 1], "22.05", "no cgroups here")
    return NativeCluster(plan, directory)


def test_a_launched_daemon_has_a_session_of_its_own_and_is_not_our_child(tmp_path: Path) -> None:
    daemon = launch(["sh", "-c", "echo $MARK; exec sleep 600"], tmp_path / "log", ENV, None)
    try:
        assert wait_until(lambda: os.getsid(daemon.pid) == daemon.pid, 30)
        with pytest.raises(ChildProcessError):
            os.waitpid(daemon.pid, os.WNOHANG)
        assert daemon.alive()
        assert wait_until(lambda: last_lines(tmp_path / "log") == ["mine"], 30)
    finally:
        assert stop(daemon)
    assert not daemon.alive()


def test_a_daemon_that_ends_at_once_is_an_error_or_a_dead_process(tmp_path: Path) -> None:
    try:
        daemon = launch(["sh", "-c", "echo sorry"], tmp_path / "log", ENV, None)
    except StackError as error:
        assert "ended at once" in error.message
    else:
        assert daemon.gone_within(30)


def test_a_daemon_deaf_to_sigterm_is_killed(tmp_path: Path) -> None:
    deaf = "trap '' TERM; echo ready; while :; do sleep 0.1; done"
    daemon = launch(["sh", "-c", deaf], tmp_path / "log", ENV, None)
    assert wait_until(lambda: last_lines(tmp_path / "log") == ["ready"], 30)
    assert stop(daemon, patience=0.5)
    assert not daemon.alive()


def test_a_pid_that_now_belongs_to_another_process_is_not_signalled(
    bystander: subprocess.Popen[bytes],
) -> None:
    now = identify(bystander.pid)
    assert now is not None
    for stale in (replace(now, started=now.started - 1), replace(now, boot="an earlier boot")):
        assert not stale.alive()
        stale.send(signal.SIGKILL)
        assert stop(stale)
    holds("the bystander lives", lambda: bystander.poll() is None, 0.1)


def test_down_leaves_a_process_alone_that_only_has_a_daemons_old_pid(
    tmp_path: Path, bystander: subprocess.Popen[bytes]
) -> None:
    now = identify(bystander.pid)
    assert now is not None
    old = replace(now, started=now.started - 1)
    state.State(lab(tmp_path), "none", {"slurmctld": old}).save()
    down(tmp_path)
    down(tmp_path)
    assert bystander.poll() is None
    found = state.load(tmp_path)
    assert found is not None and found.processes == {}


def test_down_where_no_cluster_was_made_says_so(tmp_path: Path) -> None:
    with pytest.raises(StackError, match="no cluster was ever made"):
        down(tmp_path)
    with pytest.raises(StackError, match="no cluster was ever made"):
        down(tmp_path / "nowhere")


def test_what_is_saved_is_loaded_again(tmp_path: Path) -> None:
    saved = state.State(lab(tmp_path), "cgroup v1", {"munged": Process(1, 2, "b")}, ["closed"])
    saved.save()
    assert state.load(tmp_path) == saved


def test_a_damaged_or_foreign_state_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "cluster.json").write_text('{"version": 1, "topol')
    with pytest.raises(StackError, match="cannot be read"):
        state.load(tmp_path)
    (tmp_path / "cluster.json").write_text('{"version": 99}')
    with pytest.raises(StackError, match="another version"):
        state.load(tmp_path)


def test_two_processes_cannot_change_one_cluster_at_the_same_time(tmp_path: Path) -> None:
    code = f"from slurm.stack import down; down({str(tmp_path)!r})"
    state.State(lab(tmp_path), "none").save()
    with state.locked(tmp_path):
        second = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert f"(process {os.getpid()}, since" in second.stderr
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_only_processes_of_this_clusters_jobs_are_found(tmp_path: Path) -> None:
    step = tmp_path / "slurmstepd"
    step.write_text("#!/bin/sh\nsleep 600 &\nwait\n")
    step.chmod(0o755)
    in_job = {"SLURMD_NODENAME": "n1", "SLURM_CLUSTER_NAME": "lab"}
    cases: list[tuple[list[str], dict[str, str]]] = [
        ([str(step)], {"SLURM_CONF": "/one"}),
        (["sleep", "601"], {"SLURM_CONF": "/one", **in_job}),
        # Not of this cluster: another's step, a client, a job of another cluster that is a client.
        ([str(step)], {"SLURM_CONF": "/other"}),
        (["sleep", "602"], {"SLURM_CONF": "/one"}),
        (["sleep", "603"], {**in_job, "SLURM_CONF": "/one", "SLURM_CLUSTER_NAME": "other"}),
    ]
    log = tmp_path / "log"
    launched = [launch(argv, log, {"PATH": ENV["PATH"], **env}, None) for argv, env in cases]
    children = [child for one in (0, 2) for child in children_of(launched[one].pid)]
    try:
        found = job_processes("/one", "lab")
        assert set(launched) & set(found) == set(launched[:2])
        assert set(found) - set(launched) == {children[0]}
    finally:
        for process in (*launched, *children):
            process.send(signal.SIGKILL)


def children_of(pid: int) -> list[Process]:
    """The children of a process, as soon as it has one."""
    listed = Path(f"/proc/{pid}/task/{pid}/children")
    assert wait_until(lambda: bool(listed.read_text()), 30)
    return [child for word in listed.read_text().split() if (child := identify(int(word)))]


def test_free_ports_are_different_free_and_not_the_kernels_for_clients() -> None:
    found = free_ports(50)
    assert len(set(found)) == 50
    assert all(is_free(port) for port in found)
    low, high = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    if low < 12_000:
        pytest.skip(f"this host gives clients all ports from {low}: nothing is left below")
    assert all(not low <= port <= high for port in found)


def test_a_port_is_ready_only_when_the_right_process_listens(
    bystander: subprocess.Popen[bytes],
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert not is_free(port)
        assert listens(os.getpid(), port)
        assert not listens(bystander.pid, port)
    assert not listens(os.getpid(), port)


def test_a_unix_socket_is_ready_when_somebody_listens(tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        assert not socket_listens(path)
        server.listen()
        assert socket_listens(path)
    assert not socket_listens(path)


def test_a_host_without_the_memory_controller_says_why_nothing_is_enforced(tmp_path: Path) -> None:
    why = cgroups.why_not_enforced(tmp_path)
    assert why == f"no cgroup v1 memory controller is mounted at {tmp_path}/memory"


def test_a_waiting_shell_is_not_left_behind_by_launch(tmp_path: Path) -> None:
    daemon = launch([sys.executable, "-c", "input()"], tmp_path / "log", ENV, None)
    # Its standard input is empty, so it ends by itself.
    assert daemon.gone_within(30)
    assert "EOFError" in "\n".join(last_lines(tmp_path / "log"))


def test_mariadb_has_a_temporary_directory_of_its_own(tmp_path: Path) -> None:
    # In a shared one a server that starts removes the temporary tables of the others.
    fleet = daemons.daemons(lab(tmp_path, accounting=True))
    (database,) = (d for d in fleet if d.name == "mariadbd")
    assert f"--tmpdir={tmp_path}/db/tmp" in database.argv


def test_ctrl_c_while_a_daemon_is_started_is_heard_when_it_is_written_down() -> None:
    written = False
    with pytest.raises(KeyboardInterrupt), interruptible(), uninterrupted():
        signal.raise_signal(signal.SIGINT)
        written = True
    assert written


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Tests that run in the background were started with the interrupt ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
