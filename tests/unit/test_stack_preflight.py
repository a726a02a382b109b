"""A cluster whose programs are not all here is refused before anything is made."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from slurm import programs
from slurm.errors import StackError
from slurm.stack import life, preflight
from slurm.stack.read import parse_topology

Lack = Callable[..., None]


@pytest.fixture
def lack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lack:
    """Makes this machine one that has every program but these, and a netavark of this age."""
    settings = tmp_path / "containers.conf"
    settings.write_text('[engine]\n# runtime = "x"\n')
    monkeypatch.setenv("CONTAINERS_CONF", str(settings))
    monkeypatch.setattr(preflight.sys, "platform", "linux")

    def make(*names: str, netavark: str = '{"version": "1.4.0"}') -> None:
        helper = tmp_path / "netavark"
        helper.write_text(f"#!/bin/sh\necho '{netavark}'\n")
        helper.chmod(0o755)

        def find(name: str) -> str | None:
            if name in names:
                return None
            return str(helper) if name == "netavark" else f"/usr/bin/{name}"

        monkeypatch.setattr(programs, "find", find)

    return make


def test_up_in_containers_names_the_missing_package_and_makes_nothing(
    lack: Lack, tmp_path: Path
) -> None:
    lack("catatonit", "iptables")
    text = 'name = "lab"\nengine = "podman"\n'
    with pytest.raises(StackError) as caught:
        life.up(tmp_path / "lab", parse_topology(text), text, print)
    assert "catatonit, iptables" in caught.value.message
    assert "apt-get install --no-install-recommends catatonit iptables" in str(caught.value.hint)
    assert "catatonit is not installed: podman starts no container with an init process" in (
        caught.value.evidence
    )
    assert not (tmp_path / "lab").exists()


def test_each_release_of_netavark_asks_for_its_own_firewall_program(lack: Lack) -> None:
    lack("nft")
    preflight.check_engine("podman")
    lack("iptables", netavark='{"version": "1.14.0", "default_fw_driver": "nftables"}')
    preflight.check_engine("podman")
    lack("nft", netavark='{"version": "1.14.0", "default_fw_driver": "nftables"}')
    with pytest.raises(StackError, match="nft") as caught:
        preflight.check_engine("podman")
    assert "nftables" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("name", "setting"),
    [
        ("catatonit", '[engine]\ninit_path = "/usr/bin/tini"'),
        ("iptables", '[network]\nfirewall_driver = "none"'),
        ("netavark", '[network]\nnetwork_backend = "cni"'),
    ],
)
def test_what_the_settings_of_podman_replace_is_not_asked_for(
    lack: Lack, tmp_path: Path, name: str, setting: str
) -> None:
    lack(name)
    with pytest.raises(StackError, match=name):
        preflight.check_engine("podman")
    (tmp_path / "containers.conf").write_text(setting + "\n")
    preflight.check_engine("podman")


def test_either_runtime_will_do_and_a_client_of_another_machine_needs_none(
    lack: Lack, monkeypatch: pytest.MonkeyPatch
) -> None:
    lack("runc")
    preflight.check_engine("podman")
    lack("runc", "crun")
    with pytest.raises(StackError, match="runc"):
        preflight.check_engine("podman")
    monkeypatch.setattr(preflight.sys, "platform", "darwin")
    preflight.check_engine("podman")


def test_plain_processes_need_the_packages_of_slurm_in_one_command(lack: Lack) -> None:
    lack(*(program.name for program in programs.needs(programs.NATIVE, programs.ACCOUNTING)))
    with pytest.raises(StackError) as caught:
        preflight.check_native(accounting=True)
    assert "munged" in caught.value.message and "slurmctld" in caught.value.message
    assert set(str(caught.value.hint).split()[3:]) == {
        "mariadb-server", "munge", "slurm-client", "slurmctld", "slurmd", "slurmdbd",
    }  # fmt: skip
    with pytest.raises(StackError) as without:
        preflight.check_native(accounting=False)
    assert "mariadb" not in str(without.value)
