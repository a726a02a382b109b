"""What other users may try against a cluster that `slurm cluster up` brings up."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from slurm.cli.cluster_life import found_file
from slurm.errors import StackError
from slurm.stack import layout, life
from slurm.stack.image import template
from slurm.stack.read import parse_topology

pytestmark = pytest.mark.attack
OTHER = 12345
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user needs root")


def refused(directory: Path) -> StackError:
    """Both kinds of clusters refuse it, before anything is made."""
    before = sorted(directory.parent.rglob("*"))
    with pytest.raises(StackError) as native:
        layout.claim(directory)
    text = 'name = "lab"\n[[nodes]]\nnames = "n1"\n'
    with pytest.raises(StackError) as containers:
        life.up(directory, parse_topology(text), text, print)
    assert native.value.message == containers.value.message
    assert sorted(directory.parent.rglob("*")) == before
    return native.value


@as_root
def test_a_directory_of_another_user_is_refused(tmp_path: Path) -> None:
    place = tmp_path / "theirs"
    place.mkdir()
    os.chown(place, OTHER, OTHER)
    error = refused(place)
    assert f"belongs to user {OTHER}" in error.message
    assert "chown" in (error.hint or "")


@as_root
@pytest.mark.parametrize("way", ["their file", "their folder", "open file", "their link"])
def test_a_file_that_another_user_put_here_makes_no_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """Root stands in /tmp, or in a user's directory, and types `slurm cluster up`."""
    file = tmp_path / "cluster.toml"
    file.write_text('[conf]\nslurm = ["PrologSlurmctld=/tmp/evil"]\n')
    monkeypatch.chdir(tmp_path)
    assert found_file(None) == Path("cluster.toml")
    if way == "their folder":
        os.chown(tmp_path, OTHER, OTHER)
    elif way == "open file":
        file.chmod(0o666)
    elif way == "their file":
        os.chown(file, OTHER, OTHER)
    else:
        file.rename("real")
        file.symlink_to("real")
        os.lchown(file, OTHER, OTHER)
    with pytest.raises(StackError, match="what it names is run") as refused:
        found_file(None)
    assert f"--topology {file}" in (refused.value.hint or "")


@as_root
def test_a_new_directory_in_another_user_s_is_refused(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    os.chown(home, OTHER, OTHER)
    assert f"{home} belongs to user {OTHER}" in refused(home / "new").message


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o757])
def test_a_directory_that_others_may_write_is_refused(tmp_path: Path, mode: int) -> None:
    place = tmp_path / "open"
    place.mkdir()
    place.chmod(mode)
    assert "writable by others" in refused(place).message


@as_root
def test_a_link_to_another_user_s_directory_is_refused(tmp_path: Path) -> None:
    place = tmp_path / "theirs"
    place.mkdir()
    os.chown(place, OTHER, OTHER)
    (tmp_path / "link").symlink_to(place)
    assert f"belongs to user {OTHER}" in refused(tmp_path / "link").message


_INSIDE = """\
set -e
mount -t tmpfs tmpfs /run
mkdir -m 0755 /run/secrets
echo the-key > /run/secrets/slurm.key
chmod 0600 /run/secrets/slurm.key
chown {user}:{user} /run/secrets/slurm.key
setpriv --reuid {user} --regid {user} --clear-groups cat /run/secrets/slurm.key
bash {entry} mysql || true
setpriv --reuid {user} --regid {user} --clear-groups cat /run/secrets/slurm.key
"""


@as_root
@pytest.mark.packages
def test_a_secret_is_not_readable_for_a_user_with_the_number_of_who_made_it(tmp_path: Path) -> None:
    entry = tmp_path / "entrypoint.sh"
    entry.write_text(template("entrypoint.sh"))
    script = _INSIDE.format(user=OTHER, entry=entry)
    words = ["unshare", "--mount", "--propagation", "private", "bash", "-c", script]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    # Once as it was mounted, and not again when the service has begun.
    assert done.stdout.count("the-key") == 1, done.stderr
    assert "the secret database_password is missing" in done.stderr
    assert "Permission denied" in done.stderr
