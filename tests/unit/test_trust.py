"""Whose files are executed: a base directory, a run or a Slurmfile of another user is refused."""

from __future__ import annotations

import os
import stat
import struct
import subprocess
from pathlib import Path
from typing import Any

import pytest

from slurm import rundir
from slurm.api import run_files
from slurm.api.agent import Agent
from slurm.api.agent_error import AgentError
from slurm.config import find_slurmfile
from slurm.errors import ConfigError
from slurm.rundir import private

pytestmark = pytest.mark.attack
OTHER = 12345
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="giving a file to another user needs root")


class Recording:
    """A scheduler that notes what is submitted."""

    kind = "slurm"

    def __init__(self) -> None:
        self.submitted: list[str] = []

    def submit(self, script: str, env: dict[str, str], cwd: str) -> str:
        self.submitted.append(script)
        return "7"


def agent(base: Path) -> Agent:
    return Agent(Recording(), str(base))


def refused(base: Path) -> str:
    with pytest.raises(AgentError) as found:
        agent(base).prepare_base()
    assert found.value.kind == "rundir"
    hint = found.value.hint or ""
    assert "job_base_dir=" in hint
    assert ("chmod go-w" in hint) == ("writable by others" in found.value.message)
    return found.value.message


# ---- the base directory -------------------------------------------------------------------------


def test_a_new_base_is_private(tmp_path: Path) -> None:
    agent(tmp_path / "a" / "b").prepare_base()
    assert stat.S_IMODE((tmp_path / "a" / "b").stat().st_mode) == 0o700


@as_root
@pytest.mark.parametrize("mode", [0o777, 0o770, 0o707])
def test_a_base_that_others_may_write_is_refused(tmp_path: Path, mode: int) -> None:
    base = tmp_path / "base"
    base.mkdir()
    os.chown(base, -1, OTHER)
    base.chmod(mode)
    assert f"mode 0{mode:o}" in refused(base)


@pytest.mark.parametrize("depth", [1, 2])
def test_a_base_below_a_folder_that_everybody_may_write_is_refused(
    tmp_path: Path, depth: int
) -> None:
    """Somebody could put another base in its place while jobs wait."""
    base = tmp_path / "a" / "b" / "base"
    base.mkdir(parents=True)
    above = base.parents[depth - 1]
    above.chmod(0o1777)
    agent(base).prepare_base()  # in a sticky one nobody moves what is ours
    above.chmod(0o777)
    assert f"{above} of user" in refused(base)


@pytest.mark.parametrize("relative", [False, True])
def test_a_link_to_a_base_lies_where_others_cannot_turn_it(tmp_path: Path, relative: bool) -> None:
    """Scripts name the base as it was given: what a link on the way leads to can change."""
    base, shared = tmp_path / "own" / "base", tmp_path / "shared"
    base.mkdir(parents=True)
    shared.mkdir()
    link, second = shared / "jobs", tmp_path / "jobs"
    link.symlink_to("../own/base" if relative else base)
    second.symlink_to("shared/jobs" if relative else link)
    for given in (link, second):
        shared.chmod(0o755)
        agent(given).prepare_base()
        shared.chmod(0o1777)
        agent(given).prepare_base()  # in a sticky one nobody turns what is ours
        shared.chmod(0o777)
        assert f"{shared} of user" in refused(given)


@as_root
def test_a_link_of_another_user_leads_to_no_base(tmp_path: Path) -> None:
    base, shared = tmp_path / "base", tmp_path / "shared"
    base.mkdir()
    shared.mkdir()
    shared.chmod(0o1777)
    link = shared / "jobs"
    link.symlink_to(base)
    os.chown(link, OTHER, OTHER, follow_symlinks=False)
    assert f"{link} is a link of user {OTHER}" in refused(link)


@as_root
def test_a_base_of_another_user_is_refused(tmp_path: Path) -> None:
    base = tmp_path / "base"
    base.mkdir(mode=0o755)
    os.chown(base, OTHER, OTHER)
    assert f"belongs to user {OTHER}" in refused(base)


@as_root
@pytest.mark.parametrize("name", [".sdk", ".environments", ".wheels", ".snapshots", ".tools"])
def test_a_store_that_another_user_made_first_is_refused(tmp_path: Path, name: str) -> None:
    """In a sticky directory, such as a shared scratch, anybody may make it first."""
    base = tmp_path / "base"
    base.mkdir()
    base.chmod(0o1777)
    agent(base).prepare_base()
    (base / name).mkdir(exist_ok=True)
    os.chown(base / name, OTHER, OTHER)
    assert f"belongs to user {OTHER}" in refused(base)
    (base / name).rmdir()
    (base / name).symlink_to("/tmp")
    os.lchown(base / name, OTHER, OTHER)
    assert f"is a link of user {OTHER}" in refused(base)


def test_a_base_for_a_group_of_ones_own_is_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """umask 002 goes with a group for each user."""
    monkeypatch.setattr("slurm.rundir.private._is_own_group", lambda gid: True)
    base = tmp_path / "base"
    base.mkdir()
    base.chmod(0o775)
    agent(base).prepare_base()


# ---- what is submitted --------------------------------------------------------------------------


def run_of(base: Path) -> Path:
    run = base / "train-20260101-120000-abc123"
    for folder in ("", rundir.SUBMIT):
        (run / folder).mkdir(mode=0o700, parents=True)
    (run / rundir.SUBMIT / "1.sh").write_text("#!/bin/bash\n")
    (run / rundir.SUBMIT / "1.sh").chmod(0o600)
    return run


@as_root
@pytest.mark.parametrize("place", ["", "submit", "submit/1.sh"])
@pytest.mark.parametrize("theirs", [True, False])
def test_a_script_that_others_may_have_written_is_not_submitted(
    tmp_path: Path, place: str, theirs: bool
) -> None:
    from slurm.api import one_job

    run = run_of(tmp_path)
    made = agent(tmp_path)
    plan: dict[str, Any] = {"cwd": str(tmp_path), "options_set": []}
    assert one_job.submit(made, str(run), f"{rundir.SUBMIT}/1.sh", plan, {}) == "7"
    if theirs:
        os.chown(run / place, OTHER, OTHER)
    else:
        (run / place).chmod(0o777)
    with pytest.raises(AgentError) as found:
        one_job.submit(made, str(run), f"{rundir.SUBMIT}/1.sh", plan, {})
    assert found.value.kind == "untrusted"
    assert len(made.scheduler.submitted) == 1


def test_the_refusal_names_the_place() -> None:
    with pytest.raises(FileNotFoundError):
        run_files.check_script("/nowhere", "x.sh")


# ---- Slurmfile.toml -----------------------------------------------------------------------------


@as_root
def test_a_slurmfile_of_another_user_is_refused_unless_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody puts one into /tmp, and it names a callback that runs a program."""
    below = tmp_path / "mine"
    below.mkdir()
    file = tmp_path / "Slurmfile.toml"
    file.write_text('[default]\ncallbacks = ["subprocess:check_output"]\n')
    monkeypatch.chdir(below)
    assert find_slurmfile() == file
    os.chown(file, OTHER, OTHER)
    with pytest.raises(ConfigError, match=f"belongs to user {OTHER}") as found:
        find_slurmfile()
    assert f"SLURMFILE={file}" in str(found.value.hint)
    monkeypatch.setenv("SLURMFILE", str(file))
    assert find_slurmfile() == file


@as_root
def test_a_slurmfile_that_others_may_write_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "Slurmfile.toml"
    file.write_text("[default]\n")
    monkeypatch.chdir(tmp_path)
    for mode in (0o666, 0o622, 0o646):
        file.chmod(mode)
        os.chown(file, -1, OTHER)
        with pytest.raises(ConfigError, match="writable by others"):
            find_slurmfile()
    file.chmod(0o644)
    assert find_slurmfile() == file


@as_root
def test_a_link_of_another_user_leads_to_no_slurmfile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "real.toml").write_text("[default]\n")
    link = tmp_path / "Slurmfile.toml"
    link.symlink_to("real.toml")
    monkeypatch.chdir(tmp_path)
    assert find_slurmfile() == link
    os.lchown(link, OTHER, OTHER)
    with pytest.raises(ConfigError, match=f"link of user {OTHER}"):
        find_slurmfile()


# ---- staging on the node's own disk -------------------------------------------------------------


@as_root
def test_a_staged_environment_that_somebody_else_put_there_first_is_not_used(
    tmp_path: Path,
) -> None:
    from slurm.packaging.environments import setup_lines

    top = tmp_path / "slurm-sdk-0123456789"
    python = top / "key" / rundir.CURRENT / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\n")
    line = setup_lines("/base/.environments/key", str(top / "key"), "python3")[1]

    def makes_it() -> bool:
        script = f"sdk_made() {{ echo made; }}\n{line}\n"
        done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=30)
        return done.stdout == "made\n"

    tmp_path.chmod(0o1777)
    assert not makes_it()
    os.chown(tmp_path, OTHER, OTHER)
    tmp_path.chmod(0o777)  # without the sticky bit it may be exchanged
    assert makes_it()
    os.chown(tmp_path, os.getuid(), -1)
    os.chown(top, OTHER, OTHER)
    assert makes_it()
    elsewhere = top.rename(tmp_path / "elsewhere")
    os.chown(elsewhere, os.getuid(), -1)
    top.symlink_to(elsewhere)
    assert makes_it()


@pytest.mark.parametrize("what", ["file", "folder of a file", "base"])
def test_a_group_of_one_s_own_that_an_access_list_widens_is_refused(
    tmp_path: Path, what: str
) -> None:
    """The group's part of the mode is then what the list's users may do, as umask 002 shows it."""
    if not private._is_own_group(tmp_path.stat().st_gid):
        pytest.skip("this user has no group of their own")
    folder = tmp_path / "folder"
    folder.mkdir()
    file = folder / "Slurmfile.toml"
    file.write_text("")
    for path in (folder, file):
        path.chmod(0o775)
    look = {
        "file": lambda: private.check_file(str(file)),
        "folder of a file": lambda: private.open_unchanged(str(file)).close(),
        "base": lambda: private.check_base(str(folder)),
    }[what]
    look()
    # Version 2; the owner rwx, another user rwx, the group rwx, the mask rwx, others r-x.
    entries = [(1, 7, -1), (2, 7, OTHER), (4, 7, -1), (16, 7, -1), (32, 5, -1)]
    words = struct.pack("<I", 2) + b"".join(struct.pack("<HHi", *entry) for entry in entries)
    try:
        os.setxattr(file if what == "file" else folder, "system.posix_acl_access", words)
    except OSError as error:
        pytest.skip(f"this file system has no access lists: {error.strerror}")
    with pytest.raises(rundir.Untrusted, match="writable by others"):
        look()


def _staged(tmp_path: Path) -> Path:
    """An environment in a base directory, ready to be copied to a node."""
    folder = tmp_path / "base" / rundir.BASE_ENVIRONMENTS / "key"
    (folder / "t1" / "bin").mkdir(parents=True, mode=0o700)
    (folder / "t1" / "bin" / "python").write_text("ours")
    (folder / rundir.CURRENT).symlink_to("t1")
    return folder


@as_root
@pytest.mark.parametrize(
    "way", ["theirs", "theirs, open", "their link", "a file", "open around it", "key of theirs"]
)
def test_a_job_stages_into_no_folder_that_another_user_prepared(tmp_path: Path, way: str) -> None:
    """The name in /tmp is known beforehand: the job ends with the reason and writes nothing."""
    from slurm.runner import environment

    folder = _staged(tmp_path)
    around = tmp_path / "tmp"
    around.mkdir()
    around.chmod(0o777 if way == "open around it" else 0o1777)
    top, elsewhere = around / "slurm-sdk-0123456789", tmp_path / "mine"
    elsewhere.mkdir(mode=0o700)
    if way == "their link":
        top.symlink_to(elsewhere)
        os.lchown(top, OTHER, OTHER)
    elif way == "a file":
        top.write_text("")
        os.chown(top, OTHER, OTHER)
    elif way == "key of theirs":
        top.mkdir(mode=0o700)
        (top / "key").mkdir()
        os.chown(top / "key", OTHER, OTHER)
    elif way != "open around it":
        top.mkdir()
        top.chmod(0o777 if way == "theirs, open" else 0o755)
        os.chown(top, OTHER, OTHER)
    with pytest.raises((environment.Failed, OSError)):
        environment.stage(str(folder), str(top / "key"))
    assert list(elsewhere.iterdir()) == []
    assert not list(around.rglob("python"))


@as_root
def test_a_job_stages_into_a_folder_of_its_own(tmp_path: Path) -> None:
    from slurm.runner import environment

    folder, around = _staged(tmp_path), tmp_path / "tmp"
    around.mkdir()
    around.chmod(0o1777)
    copy = around / "slurm-sdk-0123456789" / "key"
    environment.stage(str(folder), str(copy))
    assert (copy / rundir.CURRENT / "bin" / "python").read_text() == "ours"


# ---- words that must stay unwritten -------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("index_url", "HTTPS://u:pw@index/simple"),
        ("index_url", "https://token@index/simple"),
        ("extra_index_urls", ["https://a/simple", "http://u:pw@b/simple"]),
        ("dependencies", ["numpy", "mine @ git+https://u:pw@host/mine.git"]),
        ("find_links", ["https://u:pw@host/wheels"]),
        ("python_mirror", "Https://u:pw@host/pythons"),
    ],
)
def test_no_password_is_taken_in_an_address(name: str, value: object) -> None:
    from slurm.errors import PackagingError
    from slurm.packaging.wheel import refuse_credentials

    with pytest.raises(PackagingError, match=r"\*\*\*@") as found:
        refuse_credentials({name: value})
    assert name in str(found.value)
    assert "pw@" not in str(found.value)


def test_addresses_without_a_password_are_good() -> None:
    from slurm.packaging.wheel import refuse_credentials

    refuse_credentials(
        {
            "index_url": "https://index/simple?a=b@c",
            "dependencies": ["mine @ git+ssh://git@host/mine.git", "numpy>=2", "a@ file:///x@y"],
            "find_links": "/wheels",
        }
    )


@as_root
def test_nobody_can_keep_others_from_pulling_images(tmp_path: Path) -> None:
    """The file that processes of one user wait for may be another user's."""
    golden = Path(__file__).parent / "golden_containers" / "podman_plain.sh"
    text = golden.read_text()
    begin = text.index('  sdk_lock="${TMPDIR')
    lines = text[begin : text.index("  ( flock 9;", begin)]
    lock = tmp_path / f"slurm-sdk-pull-{os.getuid()}"
    lock.write_text("")
    os.chown(lock, OTHER, OTHER)
    script = f'export TMPDIR={tmp_path}\n{lines}\necho "$sdk_lock"\n'
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=30)
    assert done.stdout.strip() != str(lock), done.stderr
    lock.unlink()
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=30)
    assert done.stdout.strip() == str(lock)
    assert lock.stat().st_uid == os.getuid()


# ---- submitit's log folders ---------------------------------------------------------------------


class Mark:
    """Leaves a file behind where it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return open, (str(self.path), "w")


@as_root
@pytest.mark.parametrize("way", ["their file", "open file", "open folder", "their folder", "link"])
@pytest.mark.parametrize("what", ["result", "submitted"])
def test_a_pickle_of_a_log_folder_that_others_may_write_is_refused(
    tmp_path: Path, way: str, what: str
) -> None:
    """The drop-in for submitit keeps results and calls where its user says, with umask's modes."""
    import pickle

    from slurm.errors import UntrustedRun
    from slurm.submitit.core.jobs import Job as FolderJob

    folder, mark = tmp_path / "logs", tmp_path / "mark"
    folder.mkdir(mode=0o755)
    name = {"result": "7_0_result.pkl", "submitted": "7_submitted.pkl"}[what]
    file = folder / name
    file.write_bytes(pickle.dumps(Mark(mark)))
    if way == "their file":
        os.chown(file, OTHER, OTHER)
    elif way == "open file":
        file.chmod(0o666)
    elif way == "open folder":
        folder.chmod(0o777)
    elif way == "their folder":
        os.chown(folder, OTHER, OTHER)
    else:
        file.rename(tmp_path / "theirs")
        file.symlink_to(tmp_path / "theirs")
        os.lchown(file, OTHER, OTHER)
    job: FolderJob[Any] = FolderJob(folder, "7")
    ask = job.submission if what == "submitted" else job._get_outcome_and_result
    with pytest.raises(UntrustedRun if way != "link" else (UntrustedRun, OSError)) as found:
        ask()
    assert not mark.exists()
    if way != "link":
        assert str(folder) in str(found.value) and ("(mode 0" in str(found.value))
        assert "chmod go-w" in str(found.value) or "cp -rL" in str(found.value)


def test_a_pickle_of_ones_own_log_folder_is_read(tmp_path: Path) -> None:
    import pickle

    from slurm.submitit.core.jobs import Job as FolderJob

    (tmp_path / "7_0_result.pkl").write_bytes(pickle.dumps(("success", 5)))
    job: FolderJob[int] = FolderJob(tmp_path, "7")
    assert job._get_outcome_and_result() == ("success", 5)


# ---- runs of others -----------------------------------------------------------------------------


@as_root
@pytest.mark.parametrize("place", ["", "function.bin", "metadata.json"])
@pytest.mark.parametrize("theirs", [True, False])
def test_nothing_of_a_run_is_taken_to_be_run_again_that_others_may_have_written(
    tmp_path: Path, place: str, theirs: bool
) -> None:
    """What `slurm rerun`, `debug` and `shell` execute: function, arguments, environment."""
    run = run_of(tmp_path)
    (run / "function.bin").write_bytes(b"code")
    (run / "metadata.json").write_text("{}")
    for name in ("function.bin", "metadata.json"):
        (run / name).chmod(0o600)
    made = agent(tmp_path)
    assert made.read_own(run.name, "function.bin") == b"code"
    assert made.read_own(run.name, "nothing.bin") == b""
    if theirs:
        os.chown(run / place, OTHER, OTHER)
    else:
        (run / place).chmod(0o777)
    with pytest.raises(AgentError, match="neither run nor unpickled") as found:
        made.read_own(run.name, place or "function.bin")
    assert found.value.kind == "untrusted" and found.value.hint


@as_root
@pytest.mark.parametrize("place", [".sdk", ".sdk/0123"])
def test_a_program_of_a_store_that_others_made_is_not_started(tmp_path: Path, place: str) -> None:
    """The one that makes environments on the login node."""
    from slurm.api import store

    made = agent(tmp_path)
    made.prepare_base()
    mark, program = tmp_path / "mark", tmp_path / ".sdk/0123/slurm/runner/environment.py"
    program.parent.mkdir(parents=True)
    program.write_text(f"open({str(mark)!r}, 'w')")
    os.chown(tmp_path / place, OTHER, OTHER)
    with pytest.raises(AgentError, match="belongs to user 12345"):
        store.make(made, "0" * 16, "0123")
    assert not mark.exists()


# ---- a group that is trusted --------------------------------------------------------------------


def test_without_trust_a_run_stays_private_wherever_its_base_lies(tmp_path: Path) -> None:
    """Bases of sites are often readable by a group, and hand their group on to what is made."""
    from slurm.api import parts

    base = tmp_path / "base"
    base.mkdir()
    base.chmod(0o2750)
    made = agent(base)
    made.prepare_base()
    parts.make_run(made, str(base / "train-20260101-120000-abc123"), {"function.bin": b"x"})
    rundir.append_event(str(base / "train-20260101-120000-abc123"), "start job=1")
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) & 0o777 for path in base.rglob("*")}
    assert set(modes.values()) == {0o700, 0o600}


@as_root
@pytest.mark.parametrize("mode", [0o2750, 0o750, 0o2770, 0o2755])
def test_only_a_run_that_was_made_for_a_group_hands_its_modes_on(tmp_path: Path, mode: int) -> None:
    run = tmp_path / "run"
    run.mkdir()
    os.chown(run, -1, OTHER)
    run.chmod(mode)
    rundir.make_run_folder(str(run / "output" / "0"))
    rundir.write_atomically(str(run / "output" / "0" / "file"), b"x")
    rundir.append(str(run / "file"), b"x", sync=False)
    shared = mode == 0o2750
    for path in (run / "output", run / "output" / "0"):
        assert stat.S_IMODE(path.stat().st_mode) & 0o777 == (0o750 if shared else 0o700)
    for path in (run / "output" / "0" / "file", run / "file"):
        assert stat.S_IMODE(path.stat().st_mode) == (0o640 if shared else 0o600)
        assert not shared or path.stat().st_gid == OTHER


def test_root_is_never_in_a_group_that_it_trusts(monkeypatch: pytest.MonkeyPatch) -> None:
    group = os.getegid()
    monkeypatch.setattr(os, "getuid", lambda: 1)
    assert rundir.is_trusted(group)
    assert not rundir.is_trusted(54321)
    monkeypatch.setattr(os, "getuid", lambda: 0)
    assert not rundir.is_trusted(group)


@pytest.mark.parametrize("given", ["yes", 1, "lab"])
def test_trust_is_true_or_false(tmp_path: Path, given: Any) -> None:
    from slurm import Cluster
    from slurm.errors import OptionError

    with pytest.raises(OptionError, match=f"trust_group={given!r} is neither True nor False"):
        Cluster("embedded", job_base_dir=tmp_path, trust_group=given)
    with pytest.raises(OptionError, match='does not go with backend_type="debug"'):
        Cluster("debug", job_base_dir=tmp_path, trust_group=True)
