"""A cluster over two hosts: the other one joins over SSH, takes jobs, and leaves."""

from __future__ import annotations

import io
import os
import platform
import tarfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from lab import Lab
from otherhost import OtherHost

from slurm import Cluster, NoSharedFiles
from slurm.errors import StackError
from slurm.model.hostlist import expand_hostlist
from slurm.stack import health, join, life

pytestmark = pytest.mark.timeout(900)

_TOPOLOGY = """
[network]
address = "{here}"
srun_ports = "60001-60040"
[database]
kind = "none"
[rest]
enabled = true
[[hosts]]
name = "laptop"
address = "{there}"
{host}
[[nodes]]
names = "n1"
[[nodes]]
names = "{nodes}"
host = "laptop"
memory = "{memory}"
"""


class Site(NamedTuple):
    """The cluster, and the host that is to join it."""

    lab: Lab
    laptop: OtherHost

    def join(self) -> None:
        stack = self.lab.stack
        join.join(stack, join.host_of(stack, "laptop"), self.laptop.ssh)

    def leave(self) -> None:
        stack = self.lab.stack
        join.leave(stack, join.host_of(stack, "laptop"), self.laptop.ssh)

    def over_rest(self) -> Cluster:
        """The cluster by its slurmrestd, which has no slurmdbd to ask here."""
        file = self.laptop.folder / "token"
        file.write_text(self.lab.stack.fleet.must("scontrol", "token", "username=root"))
        url = f"http://127.0.0.1:{self.lab.record.ports['slurmrestd'][1]}"
        jobs = self.laptop.folder / "jobs"
        return Cluster("rest", rest_url=url, token_file=file, job_base_dir=jobs, mem="50M")

    @property
    def hosts(self) -> dict[str, str]:
        return health.look(self.lab.directory).hosts


@pytest.fixture(scope="module")
def make_site(make_lab: Callable[..., Lab], place: Path) -> Iterator[Callable[..., Site]]:
    """Brings a cluster up on this host that has nodes on another one, too."""
    made: list[Site] = []

    def make(host: str, nodes: str, memory: str, more: str = "") -> Site:
        laptop = OtherHost(place / f"laptop-{uuid.uuid4().hex[:8]}").__enter__()
        where = {"here": laptop.here, "there": laptop.address, "host": host}
        text = _TOPOLOGY.format(**where, nodes=nodes, memory=memory)
        try:
            made.append(Site(make_lab(more + text), laptop))
        except BaseException:
            laptop.__exit__(None, None, None)
            raise
        return made[-1]

    yield make
    for site in made:
        site.laptop.__exit__(None, None, None)
        life.destroy(site.lab.directory, site.lab.said.append)


@pytest.fixture(scope="module")
def site(make_site: Callable[..., Site]) -> Site:
    return make_site("shared = false", "m1", "1GiB")


def test_before_it_joins_a_host_is_missing_and_nothing_but_slurm_is_published_for_it(
    site: Site,
) -> None:
    status = health.look(site.lab.directory)
    assert status.state == "up" and status.hosts == {"laptop": "missing"}
    ports = {}
    for service in ("slurmctld", "slurmd-n1", "login"):
        listed = site.lab.podman("port", f"{site.lab.name}-{service}").split("\n")
        ports[service] = {line.split("->")[1].strip() for line in listed if line}
    outside = {p.split(":")[1] for of in ports.values() for p in of if site.laptop.here in p}
    assert {"6817", "6830", "60001", "60040"} <= outside and "22" not in outside
    assert all(p.startswith((site.laptop.here, "127.0.0.1")) for of in ports.values() for p in of)


def test_what_a_host_gets_is_handed_over_once_and_only_for_the_word_of_the_command(
    site: Site,
) -> None:
    stack = site.lab.stack
    laptop = join.host_of(stack, "laptop")
    command = join.invite(stack, laptop)
    key = (site.lab.directory / "secrets" / "slurm.key").read_bytes()
    word = command.split("hand-over laptop ")[1].split()[0]
    with pytest.raises(StackError, match="used already"):
        join.hand_over(stack, laptop, "0" * 32)
    with tarfile.open(fileobj=io.BytesIO(join.hand_over(stack, laptop, word))) as archive:
        member = archive.getmember("secrets/slurm.key")
        content = archive.extractfile(member)
        assert content is not None and content.read() == key
        assert {m.mode & 0o077 for m in archive.getmembers()} == {0}
        assert [n for n in archive.getnames() if "secrets/" in n and "key" in n] == [member.name]
    with pytest.raises(StackError, match="used already"):
        join.hand_over(stack, laptop, word)


def test_a_host_joins_over_ssh_takes_jobs_and_leaves(site: Site) -> None:
    site.join()
    assert site.hosts == {"laptop": "joined"}
    about = site.lab.user("scontrol", "show", "node", "m1")
    assert "DYNAMIC_NORM" in about and "RealMemory=896" in about and "noshared" in about
    # srun's own connection comes back from there.
    assert site.lab.user("srun", "-p", "laptop", "--mem=20", "-D", "/", "hostname") == "slurmd-m1"
    key = next((site.laptop.folder / "home").rglob("slurm.key"))
    assert key.stat().st_mode & 0o777 == 0o600 and key.parent.stat().st_mode & 0o777 == 0o700

    with Cluster.from_stack(site.lab.name, time="5m", mem="50M") as cluster:
        before = site.lab.user("bash", "-c", "ls slurm_jobs 2>/dev/null | wc -l")
        places: list[dict[str, Any]] = [{"partition": "laptop"}, {"nodelist": "m1"}]
        for where in places:
            with pytest.raises(NoSharedFiles, match="is on laptop, which does not have /home"):
                cluster.submit(platform.node, **where)()
        assert site.lab.user("bash", "-c", "ls slurm_jobs 2>/dev/null | wc -l") == before
        assert cluster.submit(platform.node)().result(timeout=120) == "slurmd-n1"

    with site.over_rest() as cluster:
        for option, name in (("partition", "laptop"), ("nodelist", "m[1-2]")):
            with pytest.raises(NoSharedFiles, match=f"{option}=\\w+ is on a host without the"):
                place: dict[str, Any] = {option: name}
                cluster.submit(platform.node, **place)()

    site.leave()
    assert site.hosts == {"laptop": "missing"}
    assert "m1" not in site.lab.user("sinfo", "-N", "-h")
    assert site.laptop.podman("ps", "--all", "--quiet") == ""
    assert not list((site.laptop.folder / "home").rglob("slurm.key"))


@pytest.mark.full
def test_the_printed_command_brings_a_host_in_that_nobody_reaches_by_ssh(site: Site) -> None:
    stack = site.lab.stack
    site.laptop.let_ssh_in_here()
    programs = site.laptop.folder / "bin"
    programs.mkdir()
    (programs / "ssh").write_text(
        f'#!/bin/sh\nexec /usr/bin/ssh -F {site.laptop.folder}/ssh_config "$@"\n'
    )
    (programs / "ssh").chmod(0o755)
    site.laptop.shell(join.invite(stack, join.host_of(stack, "laptop")))
    join.await_nodes(stack, join.host_of(stack, "laptop"))
    assert site.hosts == {"laptop": "joined"}

    # A controller that is made anew has not forgotten it.
    controller = stack.container("slurmctld")
    stack.engine.stop(controller.name, controller.grace)
    site.lab.up()
    join.await_nodes(stack, join.host_of(stack, "laptop"))
    join.prove(stack, ["m1"])
    site.leave()


@pytest.mark.full
@pytest.mark.parametrize(("version", "nodes"), [("22.05", "m1"), ("26.05", "m[1-2]")])
def test_a_host_with_the_shared_directory_shares_jobs_with_the_first(
    make_site: Callable[..., Site], place: Path, version: str, nodes: str
) -> None:
    count = len(expand_hostlist(nodes))
    home = place / f"home-{version}"
    home.mkdir(mode=0o755)
    more = f'version = "{version}"\n[shared]\nsource = "{home}"\n'
    site = make_site("", nodes, "4TiB", more)
    site.join()
    # It has less than that, and offers less than it has.
    memory = int(site.lab.user("sinfo", "-h", "-n", "m1", "-o", "%m"))
    assert 0 < memory < os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2**20
    job = site.lab.batch("srun --mem=20 hostname > hosts", f"--nodes={count + 1}")
    site.lab.wait_gone(job)
    assert len(site.lab.user("cat", "hosts").split()) == count + 1
    # Steps of a job that is on the other host alone.
    job = site.lab.batch("srun --mem=20 hostname > there", f"--nodelist={nodes}")
    site.lab.wait_gone(job)
    assert len(site.lab.user("cat", "there").split()) == count
    with Cluster.from_stack(site.lab.name, time="5m", mem="50M", nodelist="m1") as cluster:
        assert cluster.submit(platform.node)().result(timeout=120) == "slurmd-m1"
    site.leave()
