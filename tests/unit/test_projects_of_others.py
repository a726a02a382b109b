"""What another user puts above a project, into /tmp or into the working directory is not run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import types
from pathlib import Path

import pytest

from slurm import Cluster, config
from slurm.cli import env
from slurm.errors import ConfigError, PackagingError
from slurm.packaging import Request, build, check_packaging
from slurm.packaging.capture import take
from slurm.packaging.container.image import _recipe
from slurm.packaging.project import check_settings, project_of
from slurm.packaging.source import find_root
from slurm.packaging.tree import code_folder, read_tree
from slurm.rundir import mounts
from slurm.submitit.core.utils import cloudpickle_dump, pickle_load

pytestmark = pytest.mark.attack

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="giving a file to another user needs root")
OTHER = 54321
HOSTILE = """[build-system]
requires = []
build-backend = "evil"
backend-path = ["."]
[project]
name = "x"
version = "1"
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A program in a folder of one's own, below one that others can write into."""
    (tmp_path / "mine").mkdir()
    file = tmp_path / "mine" / "job.py"
    file.write_text("")
    return file


@as_root
@pytest.mark.parametrize("way", ["their file", "open file", "their link"])
def test_a_project_that_another_user_put_above_is_not_built(
    tmp_path: Path, source: Path, way: str
) -> None:
    file = tmp_path / "pyproject.toml"
    file.write_text(HOSTILE)
    if way == "their file":
        os.chown(file, OTHER, OTHER)
    elif way == "open file":
        file.chmod(0o666)
    else:
        file.rename(tmp_path / "real")
        file.symlink_to("real")
        os.lchown(file, OTHER, OTHER)
    with pytest.raises(PackagingError, match="can run code") as refused:
        project_of(str(source))
    assert str(tmp_path) in str(refused.value.hint)
    with pytest.raises(PackagingError, match="can run code"):
        find_root(str(source))
    take(str(source))  # captured code is what this process imports: a project above changes nothing


@as_root
@pytest.mark.parametrize("given", [{}, {"dockerfile": "Dockerfile"}])
def test_no_image_is_built_after_a_recipe_of_others(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch, given: dict[str, str]
) -> None:
    """Found above the program, or by a relative name in the working directory."""
    recipe = tmp_path / "Dockerfile"
    recipe.write_text("FROM scratch\n")
    monkeypatch.chdir(tmp_path)
    function = types.FunctionType(compile("", str(source), "exec"), {"__name__": "job"})

    def found(**named: str) -> tuple[str, str]:
        packaging = check_packaging({"type": "container", **given, **named})
        return _recipe(Request(Cluster("embedded"), packaging, function, {}))

    assert found() == (str(tmp_path), str(recipe))
    os.chown(recipe, OTHER, OTHER)
    with pytest.raises(PackagingError, match=f"belongs to user {OTHER}"):
        found()
    assert found(dockerfile=str(recipe)) == (str(tmp_path), str(recipe))


@as_root
def test_env_build_of_the_working_directory_is_of_no_project_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pyproject.toml").write_text(HOSTILE)
    os.chown(tmp_path / "pyproject.toml", OTHER, OTHER)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(PackagingError, match="can run code"):
        env._packaging(Cluster("embedded"), None, None, None, None)
    assert env._packaging(Cluster("embedded"), None, tmp_path, None, None).kind == "wheel"


def test_submitit_writes_through_no_link_of_others(tmp_path: Path) -> None:
    """A log folder of a group: somebody puts a link to a file of ours where we will write."""
    mine = tmp_path / "mine"
    mine.write_text("mine")
    for name in ("7_0_result.pkl.save_tmp", "7_0_result.pkl"):
        (tmp_path / name).symlink_to(mine)
    cloudpickle_dump("new", tmp_path / "7_0_result.pkl")
    assert mine.read_text() == "mine"
    assert pickle_load(tmp_path / "7_0_result.pkl") == "new"


@as_root
@pytest.mark.parametrize("place", ["slurm-sdk", "slurm-sdk/wheels"])
@pytest.mark.parametrize("theirs", [True, False])
def test_no_wheel_comes_out_of_a_cache_that_others_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, theirs: bool
) -> None:
    """XDG_CACHE_HOME leads to a scratch disk, where somebody made the folder first."""
    (tmp_path / "slurm-sdk/wheels").mkdir(parents=True)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert code_folder("wheels") == str(tmp_path / "slurm-sdk/wheels")
    if theirs:
        os.chown(tmp_path / place, OTHER, OTHER)
    else:
        (tmp_path / place).chmod(0o1777)
    project = tmp_path / "project"
    project.mkdir()
    (project / "pyproject.toml").write_text("[project]\nname = 'p'\nversion = '1'\n")
    with pytest.raises(PackagingError, match="would be run"):
        build.build_wheel(read_tree(str(project)), {})


@as_root
def test_a_project_of_who_wrote_the_program_is_good(tmp_path: Path, source: Path) -> None:
    """A colleague's project, whose program this user starts; and a group's."""
    file = tmp_path / "pyproject.toml"
    file.write_text(HOSTILE)
    for path in (file, source):
        os.chown(path, OTHER, OTHER)
    assert project_of(str(source)) == str(tmp_path)
    file.chmod(0o664)
    with pytest.raises(PackagingError, match="can run code"):
        project_of(str(source))
    source.chmod(0o664)
    assert project_of(str(source)) == str(tmp_path)


@as_root
@pytest.mark.parametrize("name", ["uv.toml", "pyproject.toml"])
def test_settings_of_others_are_not_read_by_uv(tmp_path: Path, source: Path, name: str) -> None:
    project = source.parent
    (project / "pyproject.toml").write_text("[project]\nname = 'p'\nversion = '1'\n")
    (tmp_path / name).write_text("")
    check_settings(str(project), str(project))
    os.chown(tmp_path / name, OTHER, OTHER)
    with pytest.raises(PackagingError, match=f"belongs to user {OTHER}"):
        check_settings(str(project), str(project))


def test_no_workspace_above_the_copy_says_what_builds_a_wheel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy that is built lies in /tmp, where anybody can put a pyproject.toml for uv."""
    uv = build.find_uv()
    if uv is None:
        pytest.skip("uv is not here")
    mark, common = tmp_path / "mark", tmp_path / "common"
    (common / "evil").mkdir(parents=True)
    (common / "pyproject.toml").write_text(
        "[project]\nname = 'ws'\nversion = '1'\n"
        "[tool.uv.workspace]\nmembers = ['slurm-wheel-*/source']\n"
        "[tool.uv.sources]\nbackend = { path = 'evil' }\n"
    )
    (common / "evil/pyproject.toml").write_text(HOSTILE.replace('"x"', '"backend"'))
    (common / "evil/evil.py").write_text(f"open({str(mark)!r}, 'w')\n")
    project = tmp_path / "project"
    project.mkdir()
    (project / "pyproject.toml").write_text(
        "[project]\nname = 'p'\nversion = '1'\n"
        "[build-system]\nrequires = ['backend']\nbuild-backend = 'backend'\n"
    )
    monkeypatch.setenv("TMPDIR", str(common))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("UV_OFFLINE", "1")
    monkeypatch.setattr(build, "builder", lambda: ([uv, *_BUILD], "uv"))
    with pytest.raises(build.BuildFailed):
        build.build_wheel(read_tree(str(project)), {})
    assert not mark.exists()


_BUILD = ("build", "--wheel", "--out-dir", "{out}", "{source}")


@pytest.mark.parametrize("tool", ["pip", "build"])
def test_nothing_of_the_working_directory_is_imported_to_build_a_wheel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tool: str
) -> None:
    """`python -m pip` looks in the working directory first, which may be /tmp."""
    mark, common, project = tmp_path / "mark", tmp_path / "common", tmp_path / "project"
    common.mkdir()
    project.mkdir()
    (common / f"{tool}.py").write_text(f"open({str(mark)!r}, 'w')\n")
    (project / "pyproject.toml").write_text("[project]\nname = 'p'\nversion = '1'\n")
    monkeypatch.chdir(common)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    words = [sys.executable, "-m", tool, "--help", "{out}", "{source}"]
    monkeypatch.setattr(build, "builder", lambda: (words, tool))
    with pytest.raises(build.BuildFailed):  # no wheel comes of it
        build.build_wheel(read_tree(str(project)), {})
    assert not mark.exists()


@as_root
def test_a_slurmfile_is_read_as_it_was_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who owns a folder above exchanges it between the look and the reading."""
    file = tmp_path / "Slurmfile.toml"
    file.write_text("[default]\n")
    monkeypatch.chdir(tmp_path)
    find = config.find_slurmfile

    def exchanged() -> Path:
        found = find()
        file.unlink()
        file.write_text('[default]\ncallbacks = ["os:getcwd"]\n')
        os.chown(file, OTHER, OTHER)
        return found

    monkeypatch.setattr(config, "find_slurmfile", exchanged)
    with pytest.raises(ConfigError, match="can run code"):
        Cluster.from_env()


# ---- file systems -------------------------------------------------------------------------------

_FUSE = """
import os, subprocess, sys
from slurm.rundir import private
base = sys.argv[1]
private.check_private(base, os.stat(base))  # what is mounted was read just now
subprocess.run(["bindfs", base + "/src", base + "/mnt"], check=True)
fd = os.open(base + "/mnt/f", os.O_RDONLY)
subprocess.run(["umount", "-l", base + "/mnt"], check=True)
try:
    private.check_private(base + "/mnt/f", os.fstat(fd))
    print("taken")
except private.Untrusted as error:
    print("refused", error)
"""


@as_root
@pytest.mark.packages
def test_a_file_system_that_went_away_while_it_was_looked_at_is_not_roots(tmp_path: Path) -> None:
    """The program behind it takes its mount away while it answers, and goes on to answer."""
    if shutil.which("bindfs") is None or not os.path.exists("/dev/fuse"):
        pytest.skip("bindfs or /dev/fuse is not here")
    for name in ("src", "mnt"):
        (tmp_path / name).mkdir()
    (tmp_path / "src/f").write_text("x")
    tmp_path.chmod(0o700)
    for name in ("src", "src/f"):
        (tmp_path / name).chmod(0o700)
    words = ["unshare", "-m", sys.executable, "-c", _FUSE, str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert "refused" in done.stdout, done
    assert "not mounted" in done.stdout


def test_a_mount_made_since_the_last_look_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within the second for which the list of mounts is kept, a user mounts another one."""
    info = os.stat(tmp_path)
    first: mounts.Users = ({1: 0}, {})
    lists = iter([first, ({1: 0, info.st_dev: OTHER}, {})])
    monkeypatch.setattr(mounts, "_users", lambda: next(lists))
    monkeypatch.setattr(mounts, "_read", (({}, {}), -60.0))
    known = os.stat_result((0, 0, 1, 0, 0, 0, 0, 0, 0, 0))
    assert mounts.mounted_by(str(tmp_path), known) == 0
    assert mounts.mounted_by(str(tmp_path), info) == OTHER


def test_a_part_of_btrfs_is_who_mounted_it_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its files have device numbers that no list of mounts has: the mount itself tells."""
    _, by_mount = mounts._users()
    monkeypatch.setattr(mounts, "_users", lambda: ({1: 0}, by_mount))
    monkeypatch.setattr(mounts, "_read", (({}, {}), -60.0))
    assert mounts.mounted_by(str(tmp_path), os.stat(tmp_path)) == 0
    monkeypatch.setattr(mounts, "_users", lambda: ({2: 0}, by_mount))
    monkeypatch.setattr(mounts, "_read", (({}, {}), -60.0))
    (tmp_path / "other").mkdir()
    assert mounts.mounted_by(str(tmp_path / "other"), os.stat(tmp_path)) is None
