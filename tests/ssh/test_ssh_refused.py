"""What can be wrong with a connection, each as a typed error with ssh's own words."""

from __future__ import annotations

import getpass
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from server import Sshd, free_port, make_key

from slurm import Cluster, errors


def refused(kind: type[errors.SlurmError], **arguments: object) -> errors.SlurmError:
    with pytest.raises(kind) as caught:
        Cluster(**arguments).queue()  # type: ignore[arg-type]
    assert type(caught.value) is kind
    return caught.value


@pytest.fixture
def sshd(make_sshd: Callable[..., Sshd]) -> Sshd:
    return make_sshd()


def test_a_host_that_nobody_knows(sshd: Sshd) -> None:
    error = refused(errors.HostNotFound, **sshd.arguments(hostname="nowhere.invalid"))
    assert "nowhere.invalid" in str(error) and error.evidence


def test_a_port_where_nothing_listens(sshd: Sshd) -> None:
    error = refused(errors.HostUnreachable, **sshd.arguments(port=free_port()))
    assert "refused" in str(error)


def test_a_key_that_the_host_does_not_accept(sshd: Sshd, tmp_path: Path) -> None:
    other = make_key(tmp_path / "other")
    error = refused(errors.AuthenticationFailed, **sshd.arguments(identity_file=other))
    assert "slurm login 127.0.0.1" in str(error)


def test_a_host_key_that_changed(sshd: Sshd, tmp_path: Path) -> None:
    other = make_key(tmp_path / "other")
    public = Path(f"{other}.pub").read_text().split()[:2]
    sshd.known_hosts.write_text(f"[127.0.0.1]:{sshd.port} {' '.join(public)}\n")
    refused(errors.HostKeyChanged, **sshd.arguments())


def test_a_host_key_that_is_not_known_is_not_taken_without_a_word(sshd: Sshd) -> None:
    sshd.known_hosts.write_text("")
    refused(errors.HostKeyUnknown, **sshd.arguments())
    refused(errors.HostKeyUnknown, **sshd.arguments(ssh_options={"StrictHostKeyChecking": "ask"}))
    assert sshd.known_hosts.read_text() == ""


def test_a_host_that_wants_to_talk_to_a_person(make_sshd: Callable[..., Sshd]) -> None:
    sshd = make_sshd(settings=("PasswordAuthentication yes",))
    # The first line of sshd's configuration that names an option counts.
    config = sshd.folder / "sshd_config"
    sshd.stop()
    text = sshd.write_config().read_text().replace("PasswordAuthentication no\n", "")
    config.write_text(text)
    sshd.write_config = lambda: config  # type: ignore[method-assign]
    sshd.start()
    other = make_key(sshd.folder / "other")
    error = refused(errors.LoginNeeded, **sshd.arguments(identity_file=other))
    assert error.hint and "slurm login 127.0.0.1 --username" in error.hint


def test_no_python_names_what_was_tried(sshd: Sshd) -> None:
    error = refused(errors.RemotePythonMissing, **sshd.arguments(remote_python="/no/such/python3"))
    assert "/no/such/python3" in str(error)


def test_a_python_that_is_too_old_is_passed_over(sshd: Sshd, tmp_path: Path) -> None:
    old = tmp_path / "python3"
    old.write_text("#!/bin/sh\nexit 86\n")
    old.chmod(0o755)
    error = refused(errors.RemotePythonMissing, **sshd.arguments(remote_python=str(old)))
    assert any("no Python of 3.6" in line for line in error.evidence)


def test_a_base_directory_that_cannot_be_made(sshd: Sshd) -> None:
    from slurm import task

    cluster = Cluster(job_base_dir="/proc/nowhere", **sshd.arguments())
    with pytest.raises(errors.RunDirError, match="/proc/nowhere"), cluster:
        task(len)([])


@pytest.mark.parametrize(
    "arguments",
    [
        {"hostname": "-oProxyCommand=touch x"},
        {"hostname": "a b"},
        {"hostname": "me:secret@host"},
        {"hostname": "host", "username": "-x"},
        {"hostname": "host", "port": 0},
        {"hostname": "host", "port": "ssh"},
        {"hostname": "host", "ssh_options": ["-x"]},
        {"hostname": "host", "ssh_options": {"A\nB": 1}},
        {"hostname": "host", "remote_python": "python; rm x"},
        {"hostname": "host", "connect_timeout": 0},
        {"hostname": "host", "password": "secret"},
        {"backend_type": "ssh"},
        {"backend_type": "embedded", "hostname": "host"},
        {"username": "me"},
    ],
)
def test_an_argument_that_ssh_could_misread_is_refused(arguments: dict[str, object]) -> None:
    with pytest.raises(errors.OptionError) as caught:
        Cluster(**arguments)  # type: ignore[arg-type]
    assert "secret" not in str(caught.value)


# ---- what the login shell is, and what it prints ------------------------------------------------

SHELLS = [
    shell for shell in ("sh", "bash", "dash", "zsh", "tcsh", "csh", "fish") if shutil.which(shell)
]


@pytest.mark.parametrize("shell", SHELLS)
def test_any_login_shell_will_do(make_sshd: Callable[..., Sshd], shell: str) -> None:
    path = shutil.which(shell)
    sshd = make_sshd(settings=(f'ForceCommand {path} -c "$SSH_ORIGINAL_COMMAND"',))
    assert Cluster(**sshd.arguments()).backend.hello()["scheduler"] == "slurm"


def test_noise_of_the_login_shell_is_passed_over(make_sshd: Callable[..., Sshd]) -> None:
    sshd = make_sshd(settings=("Banner /etc/passwd",))
    noise = 'printf "Welcome\\n\\001\\365SdK garbage\\n%.0s" 1 2 3; seq 2000; echo oops >&2\n'
    for name in (".bashrc", ".profile", ".zshenv", ".cshrc"):
        (sshd.home / name).write_text(noise)
    assert Cluster(**sshd.arguments()).backend.hello()["home"] == str(sshd.home)


def test_noise_without_end_is_not_read_for_ever(make_sshd: Callable[..., Sshd]) -> None:
    sshd = make_sshd(settings=("ForceCommand yes",))
    refused(errors.ProtocolError, **sshd.arguments())


def test_the_user_is_the_one_who_logged_in(sshd: Sshd) -> None:
    cluster = Cluster(**sshd.arguments())
    assert cluster.backend.hello()["home"] == str(sshd.home)
    assert f"{getpass.getuser()}@127.0.0.1" in repr(cluster)


@pytest.mark.skipif(getpass.getuser() != "root", reason="what is tried is root's")
def test_root_trusts_no_group_over_there_either(sshd: Sshd, tmp_path: Path) -> None:
    arguments = sshd.arguments(job_base_dir=str(tmp_path), trust_group=True)
    error = refused(errors.RunDirError, **arguments)
    assert f"trust_group = true with {tmp_path} is not for root" in str(error)
