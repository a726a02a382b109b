"""The dashboard as a service: an unprivileged user, and a helper of root that does two things."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from needed import need
from slurm.errors import CommandRefused
from slurm.web.helper import LEAST, become
from slurm.web.logfiles import Opener
from waiting import until

ROOT = Path(__file__).parents[2]
UNITS = ROOT / "deploy" / "systemd"
pytestmark = [
    pytest.mark.packages,
    pytest.mark.skipif(os.geteuid() != 0, reason="two users need root"),
]
#: The dashboard, a user whose job it is, and another user.
WEB, VICTIM, OTHER = (pwd.getpwnam(name).pw_uid for name in ("games", "nobody", "daemon"))


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that everybody may pass through, with a log of one user and one of root."""
    found = Path(tempfile.mkdtemp(dir="/tmp"))
    found.chmod(0o755)
    for name, owner in (("theirs", VICTIM), ("roots", 0)):
        (found / name).write_text(f"words of {name}")
        os.chown(found / name, owner, -1)
        (found / name).chmod(0o600)
    yield found
    shutil.rmtree(found)


@pytest.fixture
def helper(folder: Path) -> Iterator[str]:
    """The helper as a process of root, with commands of Slurm that say who runs them."""
    commands = folder / "bin"
    commands.mkdir()
    for name in ("scancel", "scontrol"):
        words = '#!/bin/sh\n[ "$*" != "77" ] || { echo "not yours" >&2; exit 1; }\n'
        words += f'echo "$(id -u) $(id -G) {name} $*" >> {folder}/acts\n'
        (commands / name).write_text(words)
        (commands / name).chmod(0o755)
    (folder / "acts").touch()
    (folder / "acts").chmod(0o666)
    path = str(folder / "helper.sock")
    command = [sys.executable, "-m", "slurm.web.helper", "--user", "games"]
    process = subprocess.Popen(
        [*command, "--socket", path, "--least-uid", "2"],
        env={**os.environ, "PATH": f"{commands}:{os.environ['PATH']}"},
    )
    try:
        until("the socket", lambda: os.path.exists(path) and os.stat(path).st_uid == WEB)
        yield path
    finally:
        process.terminate()
        process.wait(10)


#: A child of another thread would keep this one's pipe open.
FORKING = threading.Lock()


def as_user(uid: int, do: Callable[[], Any]) -> str:
    """What a process of another user gets, or is refused."""
    with FORKING:
        read, write = os.pipe()
        pid = os.fork()
        if pid:
            os.close(write)
    if not pid:
        try:
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            try:
                said = repr(do())
            except CommandRefused as error:
                said = f"refused: {error.message}"
            except OSError as error:
                said = f"OSError: {error.strerror}"
            os.write(write, said.encode())
        finally:
            os._exit(0)
    with os.fdopen(read) as pipe:
        said = pipe.read()
    os.waitpid(pid, 0)
    return said


@pytest.mark.attack
def test_the_dashboard_reads_a_log_with_the_rights_of_its_owner_alone(
    folder: Path, helper: str
) -> None:
    def read(name: str, uid: int) -> str:
        return as_user(WEB, lambda: Opener(helper).read(str(folder / name), uid, 0).data)

    assert read("theirs", VICTIM) == "b'words of theirs'"
    assert "Permission denied" in read("roots", VICTIM)
    for uid in (0, 1, -1):
        assert f"user {uid} is the system's" in read("roots", uid)
    (folder / "link").symlink_to(folder / "theirs")
    assert "symbolic link" in read("link", VICTIM)
    assert "not a plain" in read("../etc/passwd", VICTIM)
    assert "not known" in read("theirs", 4_000_000)


@pytest.mark.attack
def test_keys_of_the_cluster_are_no_user_s_logs(folder: Path, helper: str) -> None:
    """SlurmUser is above 1000 on Debian: who reads its files makes tokens for everybody."""
    for name in ("slurm", "munge"):
        key = folder / f"{name}.key"
        key.write_text("the key")
        key.chmod(0o600)
        uid = pwd.getpwnam(name).pw_uid
        os.chown(key, uid, -1)

        def read(path: str = str(key), uid: int = uid) -> Any:
            return Opener(helper).read(path, uid, 0).data

        assert f"user {uid} is the system's" in as_user(WEB, read)
    for uid in (999, 60_000, 61_184, 64_030, 65_534, 65_535):
        said = as_user(0, lambda uid=uid: become(uid, LEAST))  # type: ignore[misc]
        assert f"user {uid} is the system's" in said
    assert "not known" in as_user(0, lambda: become(65_536, LEAST))


@pytest.mark.attack
@pytest.mark.parametrize("open_to_all", [False, True])
def test_nobody_but_the_dashboard_is_answered(folder: Path, helper: str, open_to_all: bool) -> None:
    """Its mode keeps others from the socket; and were it open, the kernel says who asks."""
    if open_to_all:
        os.chmod(helper, 0o666)
    said = as_user(OTHER, lambda: Opener(helper).read(str(folder / "theirs"), VICTIM, 0).data)
    assert said.startswith("refused") and "could not be read" in said
    for uid in (OTHER, VICTIM):
        said = as_user(uid, lambda: Opener(helper).act("cancel", "5", VICTIM))
        assert said.startswith("refused: job 5 could not be asked"), said
    assert (folder / "acts").read_text() == ""
    said = as_user(WEB, lambda: Opener(helper).read(str(folder / "theirs"), VICTIM, 0).data)
    assert said == "b'words of theirs'"


@pytest.mark.attack
def test_an_act_is_done_as_the_user_and_is_one_of_four(folder: Path, helper: str) -> None:
    def act(what: Any, job: Any, uid: int = VICTIM) -> str:
        return as_user(WEB, lambda: Opener(helper).act(what, job, uid))

    assert act("cancel", "5_1") == "None"
    assert act("hold", "6") == "None"
    group = pwd.getpwuid(VICTIM).pw_gid
    expected = f"{VICTIM} {group} scancel 5_1\n{VICTIM} {group} scontrol hold 6\n"
    assert (folder / "acts").read_text() == expected
    assert act("cancel", "77") == "refused: not yours"
    for what, job in (("shutdown", "5"), ("cancel", "--user=root"), ("cancel", "5;id"), (["x"], 1)):
        assert act(what, job).startswith("refused"), (what, job)
    assert "is the system's" in act("cancel", "5", 0)
    assert (folder / "acts").read_text() == expected


@pytest.mark.attack
@pytest.mark.parametrize(
    "words",
    [b"", b"{}", b"[]", b"null", b'{"uid": "0"}', b'{"uid": true}', b'{"uid": 65534.0}', b"\xff",
     b'{"uid": [65534], "path": "/x"}', b"x" * 100_000, b"[" * 60_000],
)  # fmt: skip
def test_a_helper_outlives_questions_that_are_none(folder: Path, helper: str, words: bytes) -> None:
    def send() -> None:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(helper)
            connection.sendall(words)

    as_user(WEB, send)
    said = as_user(WEB, lambda: Opener(helper).read(str(folder / "theirs"), VICTIM, 0).data)
    assert said == "b'words of theirs'"


@pytest.mark.attack
def test_a_silent_question_holds_nobody_up_for_long(folder: Path, helper: str) -> None:
    hold, let_go = os.pipe()

    def silent() -> None:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(helper)
            os.read(hold, 1)

    silents = [threading.Thread(target=as_user, args=(WEB, silent)) for _ in range(3)]
    for thread in silents:
        thread.start()
    said = as_user(WEB, lambda: Opener(helper).read(str(folder / "theirs"), VICTIM, 0).data)
    assert said == "b'words of theirs'"
    assert all(thread.is_alive() for thread in silents)  # none of them has said a word yet
    os.write(let_go, b"x" * len(silents))
    for thread in silents:
        thread.join(30)
    os.close(hold)
    os.close(let_go)


def test_the_helper_is_short_enough_to_be_read() -> None:
    assert len((ROOT / "src/slurm/web/helper.py").read_text().splitlines()) < 200


@pytest.mark.parametrize(
    ("unit", "most"), [("slurm-dashboard.service", 1.5), ("slurm-dashboard-helper.service", 2.5)]
)
def test_the_units_are_hardened(unit: str, most: float) -> None:
    need("systemd-analyze")
    command = ["systemd-analyze", "security", "--offline=true", str(UNITS / unit)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    found = re.search(r"Overall exposure level for \S+: ([0-9.]+)", done.stdout)
    assert found, done.stdout + done.stderr
    assert float(found[1]) <= most
    shown = re.search(rf"`{unit}` \| ([0-9.]+)", (ROOT / "docs" / "dashboard.md").read_text())
    assert shown and float(found[1]) <= float(shown[1])  # later releases of systemd say less


def test_the_units_name_what_is_there() -> None:
    """Options of the command lines are those of the programs."""
    import inspect

    from slurm.cli.dashboard import dashboard

    text = (UNITS / "slurm-dashboard.service").read_text()
    options = {o.replace("-", "_") for o in re.findall(r"--([a-z][a-z-]+)", text)}
    assert options <= set(inspect.signature(dashboard).parameters)
    for option in ("--user", "--socket", "--least-uid", "--slurm-user"):
        assert option in (ROOT / "src/slurm/web/helper.py").read_text()
