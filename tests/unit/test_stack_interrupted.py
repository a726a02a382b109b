"""A command on a cluster is killed at each of its steps; the same command again goes on."""

from __future__ import annotations

import copy
import itertools
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from fake_podman import FakePodman

from slurm.errors import BackupDamaged, StackError
from slurm.stack import backup, change, converge, fleet, join, life, site, state
from slurm.stack.engine import Engine, Said
from slurm.stack.read import parse_topology
from slurm.stack.record import load

OLD = 'name = "lab"\nversion = "24.11"\n'
WIDER = OLD + '[[nodes]]\nnames = "n[1-3]"\nmemory = "3GiB"\n[rest]\nenabled = true\n'
_WRITES = ("os.rename", "os.remove", "os.mkdir", "os.symlink", "os.rmdir")


class Killed(BaseException):
    """The process is no more."""


@dataclass
class Knife:
    """Counts what a process does to the world, and ends it at one of those moments.

    With SIGKILL nothing comes after it; Ctrl-C is an exception that is heard once.
    """

    at: int = -1
    interrupt: bool = False
    count: int = 0

    def step(self) -> None:
        self.count += 1
        if self.interrupt and self.count - 1 == self.at:
            raise KeyboardInterrupt
        if not self.interrupt and self.count > self.at >= 0:
            raise Killed


_knife: Knife | None = None


def _hear(event: str, arguments: tuple[Any, ...]) -> None:
    if _knife is None:
        return
    written = event == "open" and isinstance(arguments[1], str) and set("wax+") & set(arguments[1])
    if written or event in _WRITES:
        _knife.step()


sys.addaudithook(_hear)


@dataclass
class World:
    """A host, what is on it, and the place of the cluster."""

    podman: FakePodman
    directory: Path
    said: list[str]

    def run(self, command: Callable[[], object], at: int, interrupt: bool) -> int:
        """Run as much of a command as comes before one step; how many steps it took."""
        global _knife
        _knife = Knife(at, interrupt)
        try:
            command()
        except (Killed, KeyboardInterrupt):
            pass
        finally:
            steps, _knife = _knife.count, None
        return steps

    def up(self) -> None:
        file = self.directory / "cluster.toml"
        text = file.read_text() if file.exists() else OLD
        life.up(self.directory, parse_topology(text), text, self.said.append)

    def check(self, version: str) -> None:
        """The cluster is whole, of one release, and all of it is in service."""
        record = load(self.directory)
        assert record is not None
        assert (record.version, record.doing) == (version, "")
        assert f'version = "{version}"' in (self.directory / "cluster.toml").read_text()
        wanted = converge.open_stack(self.directory).containers
        boxes = {box.service: box for box in self.podman.boxes.values()}
        assert set(boxes) == {c.service for c in wanted}
        for container in wanted:
            box = boxes[container.service]
            assert (box.state, box.image) == ("running", container.image), container.service
        assert (self.podman.reasons, self.podman.reserved) == ({}, "")
        assert self.podman.wrong == []


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """A cluster of 24.11 that is up, on a host that exists in memory alone."""
    found = World(FakePodman(), tmp_path / "lab", [])

    def call(_: Engine, *words: str, **options: Any) -> Any:
        if _knife is not None:
            _knife.step()
        return found.podman.call(*words, **options)

    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setattr(life, "check_engine", lambda _: None)
    monkeypatch.setattr(Engine, "call", call)
    monkeypatch.setattr("slurm.stack.engine.shutil.which", lambda name: name)
    monkeypatch.setattr(life, "ensure_image", lambda *_: False)
    monkeypatch.setattr(life, "check_podman", lambda: None)
    monkeypatch.setattr(site, "look", site.Site)
    monkeypatch.setattr(life.subprocess, "run", _secrets)
    monkeypatch.setattr(fleet.time, "sleep", lambda _: None)
    # Each look at the clock is a second later.
    seconds = itertools.count()
    monkeypatch.setattr(backup.time, "strftime", lambda *_: f"{next(seconds):06}")
    found.up()
    yield found


def _secrets(argv: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
    """make-secrets.sh and ssh-keygen."""
    place = Path(argv[-1]).parent
    names = ["login_key", "login_key.pub"] if argv[0] == "ssh-keygen" else ["secrets/jwt.key"]
    for name in names:
        (place / name).parent.mkdir(exist_ok=True)
        (place / name).write_text("secret\n")
    return subprocess.CompletedProcess(argv, 0)


def at_every_step(
    world: World, command: Callable[[], object], *, interrupt: bool = False, every: int = 1
) -> Iterator[int]:
    """The world as it is after the command was killed at each of its steps, one by one."""
    podman, kept = copy.deepcopy(world.podman), world.directory.with_name("kept")
    shutil.copytree(world.directory, kept, symlinks=True)
    at, whole = 0, False
    while not whole:
        shutil.rmtree(world.directory)
        shutil.copytree(kept, world.directory, symlinks=True)
        world.podman = copy.deepcopy(podman)
        whole = world.run(command, at, interrupt) <= at
        yield at
        at += every
    assert at > 10


@pytest.mark.parametrize(
    ("interrupt", "every"),
    [
        (False, 7),
        pytest.param(False, 1, marks=pytest.mark.full),
        pytest.param(True, 1, marks=pytest.mark.full),
    ],
)
def test_an_upgrade_killed_at_any_step_is_rolled_forward_by_the_same_command(
    world: World, interrupt: bool, every: int
) -> None:
    def upgrade() -> None:
        change.upgrade(world.directory, "26.05", world.said.append)

    database = next(b.image for b in world.podman.boxes.values() if b.service == "mysql")
    for _ in at_every_step(world, upgrade, interrupt=interrupt, every=every):
        upgrade()
        world.check("26.05")
        # Each node had a job of ours before it was everybody's.
        assert {"n1", "n2"} <= set(world.podman.canaries)
        assert any(b.image == database for b in world.podman.boxes.values())
        assert [p for p in (world.directory / "backups").iterdir() if p.name[0] != "."]


@pytest.mark.full
def test_an_apply_killed_at_any_step_is_finished_by_the_same_command(world: World) -> None:
    def apply() -> None:
        change.apply(world.directory, WIDER, world.said.append)

    for _ in at_every_step(world, apply):
        what = change.compare(world.directory, WIDER)
        if not what.nothing:
            apply()
        world.check("24.11")
        assert world.podman.boxes["lab-slurmd-n3"].state == "running"
        assert "lab-slurmrestd" in world.podman.boxes


@pytest.mark.full
def test_an_apply_that_ends_slurmctld_is_taken_back_also_after_it_was_killed(world: World) -> None:
    world.podman.poison = "JobSubmitPlugins=nosuch"
    text = OLD + '[conf]\nslurm = ["JobSubmitPlugins=nosuch"]\n'

    def apply() -> None:
        with pytest.raises(StackError, match="taken back"):
            change.apply(world.directory, text, world.said.append)

    for _ in at_every_step(world, apply):
        apply()
        world.check("24.11")
        assert (world.directory / "cluster.toml").read_text() == OLD
        assert (world.directory / "cluster.toml.refused").read_text() == text


def test_the_file_edited_in_its_place_comes_back_as_it_was_when_the_cluster_worked(
    world: World,
) -> None:
    world.podman.poison = "JobSubmitPlugins=nosuch"
    text = OLD + '[conf]\nslurm = ["JobSubmitPlugins=nosuch"]\n'
    (world.directory / "cluster.toml").write_text(text)
    with pytest.raises(StackError, match="taken back"):
        change.apply(world.directory, text, world.said.append)
    assert (world.directory / "cluster.toml").read_text() == OLD
    world.check("24.11")


def test_down_killed_at_any_step_and_up_again_bring_every_node_back(world: World) -> None:
    for _ in at_every_step(world, lambda: life.down(world.directory, world.said.append)):
        world.up()
        world.check("24.11")


def test_a_backup_killed_at_any_step_leaves_no_half_folder_and_up_goes_on(
    world: World, tmp_path: Path
) -> None:
    folder = tmp_path / "copy"

    def save() -> None:
        backup.backup(world.directory, world.said.append, folder)

    for _ in at_every_step(world, save):
        shutil.rmtree(folder, ignore_errors=True)
        save()
        assert (folder / "state.tar").read_bytes() == b"the queue"
        shutil.rmtree(folder)
        world.up()
        world.check("24.11")


def test_a_backup_of_a_cluster_that_is_down_leaves_it_down(world: World, tmp_path: Path) -> None:
    life.down(world.directory, world.said.append)
    folder = backup.backup(world.directory, world.said.append, tmp_path / "copy")
    assert (folder / "database.sql").read_bytes() == b"the accounting"
    assert {box.state for box in world.podman.boxes.values()} == {"exited"}


@pytest.mark.full
def test_a_restore_killed_at_any_step_is_finished_by_the_same_command(
    world: World, tmp_path: Path
) -> None:
    folder = backup.backup(world.directory, world.said.append, tmp_path / "copy")
    life.destroy(world.directory, world.said.append)
    world.podman.state = world.podman.database = b"empty"

    def restore() -> None:
        backup.restore(folder, world.directory, world.said.append)

    for at in at_every_step(world, restore):
        if load(world.directory) is None or load(world.directory).doing:  # type: ignore[union-attr]
            restore()
        world.check("24.11")
        assert (world.podman.state, world.podman.database) == (b"the queue", b"the accounting"), at


@pytest.mark.parametrize("name", ["state.tar", "database.sql", "cluster.toml", "secrets/jwt.key"])
def test_a_backup_that_was_changed_is_refused_before_anything_is_made(
    world: World, tmp_path: Path, name: str
) -> None:
    folder = backup.backup(world.directory, world.said.append, tmp_path / "copy")
    life.destroy(world.directory, world.said.append)
    (folder / name).write_bytes(b"other")
    with pytest.raises(BackupDamaged, match=name):
        backup.restore(folder, world.directory, world.said.append)
    assert world.podman.boxes == {} and world.podman.owned["volume"] == []


def test_a_backup_is_not_restored_over_a_cluster_or_its_volumes(
    world: World, tmp_path: Path
) -> None:
    folder = backup.backup(world.directory, world.said.append, tmp_path / "copy")
    with pytest.raises(StackError, match="there is a cluster in"):
        backup.restore(folder, world.directory, world.said.append)
    with pytest.raises(StackError, match="there is a cluster 'lab' in"):
        backup.restore(folder, tmp_path / "other", world.said.append)
    life.destroy(world.directory, world.said.append)
    world.podman.owned["volume"].append("lab_state")
    with pytest.raises(StackError, match="volumes of a cluster 'lab' are there: lab_state"):
        backup.restore(folder, world.directory, world.said.append)


def test_a_node_on_which_no_job_runs_stays_out_of_service(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakePodman, "_srun", lambda *_: Said(1, "no"))
    with pytest.raises(StackError, match="a job on n1 did not run"):
        change.upgrade(world.directory, "26.05", world.said.append)
    assert world.podman.reasons == {"n1": "slurm-sdk: a job did not run here"}
    assert world.podman.reserved == ""


@pytest.mark.parametrize(
    ("line", "key"),
    [
        ('[network]\nsubnet = "10.9.0.0/24"', "network.subnet"),
        ('[controller]\nstate = "elsewhere"', "controller.state"),
    ],
)
def test_what_no_change_of_a_file_can_do_is_refused_before_anything_is_touched(
    world: World, line: str, key: str
) -> None:
    with pytest.raises(StackError, match=key):
        change.apply(world.directory, f"{OLD}{line}\n", world.said.append)
    world.check("24.11")
    assert (world.directory / "cluster.toml").read_text() == OLD


def test_a_change_waits_for_the_end_of_an_upgrade(world: World) -> None:
    record = load(world.directory)
    assert record is not None
    record.step("upgrade to 24.11: slurmd-n1")
    with pytest.raises(StackError, match="is not finished") as caught:
        change.apply(world.directory, WIDER, world.said.append)
    assert "slurm cluster upgrade lab --to 24.11" in str(caught.value)


def test_the_second_of_two_commands_is_told_who_is_at_work(world: World) -> None:
    with state.locked(world.directory), pytest.raises(StackError) as caught:
        change.upgrade(world.directory, "26.05", world.said.append)
    assert f"(process {os.getpid()}, since" in caught.value.message


def test_the_gpus_of_a_host_that_joins_are_in_slurms_files_before_it_comes(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = '[network]\naddress = "10.1.1.1"\n[[nodes]]\nnames = "n[1-2]"\n'
    host = '[[hosts]]\nname = "box"\naddress = "10.1.1.2"\nshared = false\n'
    nodes = '[[nodes]]\nnames = "b1"\nhost = "box"\n'
    change.apply(world.directory, OLD + network + host + nodes, world.said.append)
    stack = converge.open_stack(world.directory, world.said.append)
    (world.directory / "secrets" / "slurm.key").write_text("secret")
    conf = world.directory / "shared" / "slurm.conf"
    assert "GresTypes" not in conf.read_text()

    class Arrived(Exception):
        """The host gets its files."""

    def remote(ssh: list[str], command: str, data: bytes, problem: str) -> str:
        if "nvidia-smi" in command:
            return "0, NVIDIA H200\n"
        assert "GresTypes=gpu" in conf.read_text()
        raise Arrived

    monkeypatch.setattr(join, "_remote", remote)
    with pytest.raises(Arrived):
        join.join(stack, join.host_of(stack, "box"), ["box"])
    (node,) = converge.open_stack(world.directory).plan.joined
    assert [gpu.type for gpu in node.gpus] == ["h200"]
    assert "box has h200" in world.said
