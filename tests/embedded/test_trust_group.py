"""A base directory of a group: two users of it, and a stranger, each a process of its own."""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import slurm
from needed import need
from slurm import Cluster, RunDirError

pytestmark = [
    pytest.mark.attack,
    pytest.mark.skipif(
        os.geteuid() != 0 or sys.platform != "linux" or not shutil.which("setpriv"),
        reason="several users need root, and the kernel's namespaces",
    ),
]

ALICE, BOB, MALLORY = 23001, 23002, 23003
#: The group that is shared; that of all three; one of Mallory's.
LAB, ALL, HERS = 23100, 23200, 23300

#: The command, as a program of Python.
SLURM = (sys.executable, "-c", "import sys; from slurm.cli import main; sys.exit(main())")

_PASSWD = "".join(
    f"{name}:x:{uid}:{group}::/nowhere:/bin/sh\n"
    for name, uid, group in (("alice", ALICE, LAB), ("bob", BOB, ALL), ("mallory", MALLORY, ALL))
)
_GROUP = f"lab:x:{LAB}:bob\nall:x:{ALL}:alice\nhers:x:{HERS}:mallory\n"

_WORK = """
import arithmetic
from slurm import Cluster, task

@task
def double(x: int, size: int = 0) -> list:
    return [arithmetic.twice(x), b"x" * size]

@task
def boom(x: int) -> None:
    raise ValueError(f"no {x}")

@task
def inside() -> dict:
    found, other = Cluster(), Cluster(job_base_dir="/elsewhere")
    return {"base": found.base, "trust": found.trust_group, "other": other.trust_group}
"""

_DRIVER = """
import json, os, sys
from slurm import Cluster, SlurmError
from slurm.api.looking import JobKey
verb, words = sys.argv[1], json.loads(sys.argv[2])
given = {"job_base_dir": words["base"]}
if words["trust"] is not None:
    given["trust_group"] = words["trust"]
answer = {}
try:
    cluster = Cluster("embedded", progress=False, **given)
    if verb == "submit":
        from work import double
        with cluster:
            job = double(words["x"], words["size"])
        answer = {"value": job.result(timeout=20)[0], "run": job.run, "path": str(job.path)}
    elif verb == "fail":
        from work import boom
        with cluster:
            job = boom(words["x"])
        job.wait(timeout=20)
        answer = {"run": job.run, "path": str(job.path)}
    elif verb == "pass":
        from slurm import task
        theirs = cluster.attach(words["run"])
        with cluster:
            job = task(len)(theirs)
        answer = {"value": job.result(timeout=20)}
    elif verb == "inside":
        from work import inside
        with cluster:
            answer = inside().result(timeout=20)
    elif verb == "result":
        value = cluster.attach(words["run"]).result(timeout=20)
        answer = {"value": value[0], "size": len(value[1])}
    elif verb == "rerun":
        from slurm.resubmission import resubmit
        run = cluster.backend.find_run(words["run"])
        answer = {"value": resubmit(cluster, run, [0], {}, single=True)[0].result(timeout=20)[0]}
    elif verb == "cancel":
        run = cluster.backend.find_run(words["run"])
        answer = {"cancelled": cluster.backend.request("cancel", [JobKey("1", run)])}
except SlurmError as error:
    answer = {"error": type(error).__name__, "message": error.message, "hint": error.hint or ""}
print("answer:" + json.dumps(answer))
"""


@dataclass
class Place:
    """A directory for three users, with a shared base of the group in it."""

    path: Path

    @property
    def base(self) -> Path:
        """The base directory of the group."""
        return self.path / "shared"

    def do(
        self,
        uid: int,
        verb: str,
        run: str = "",
        *,
        trust: bool | None = True,
        base: Path | None = None,
        x: int = 21,
        size: int = 0,
    ) -> dict[str, Any]:
        """What a user gets, or is refused, in a process of their own."""
        words = {"base": str(base or self.base), "trust": trust, "run": run, "x": x, "size": size}
        return self.python(uid, str(self.path / "driver.py"), verb, json.dumps(words))

    def python(self, uid: int, *words: str) -> dict[str, Any]:
        """What a program of a user answers."""
        done = self.run(uid, sys.executable, *words)
        lines = [line for line in done.stdout.splitlines() if line.startswith("answer:")]
        assert lines, done.stdout + done.stderr
        found: dict[str, Any] = json.loads(lines[-1].removeprefix("answer:"))
        return found

    def run(
        self, uid: int, *words: str, before: Sequence[str] = ()
    ) -> subprocess.CompletedProcess[str]:
        """Run a program as a user, where the system knows the three users and their groups.

        `before`: lines of shell that root runs there first.
        """
        name = {ALICE: "alice", BOB: "bob", MALLORY: "mallory"}[uid]
        group = LAB if uid == ALICE else ALL
        home = self.path / name
        lines = [
            f"mount --bind {self.path}/passwd /etc/passwd",
            f"mount --bind {self.path}/group /etc/group",
            *_let_see(self.path / "seen"),
            *before,
            f"cd {home}",
            f'exec setpriv --reuid {uid} --regid {group} --init-groups "$@"',
        ]
        script = " && ".join(lines)
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "PYTHONPATH": f"{home}:{Path(slurm.__file__).parents[1]}",
            "SLURM_SDK_EMBEDDED_DIR": str(home / "e"),
            "SLURM_SDK_EMBEDDED_IDLE_S": "2",
        }
        return subprocess.run(
            ["unshare", "--mount", "sh", "-c", script, "sh", *words],
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )


def _let_see(keep: Path) -> Iterator[str]:
    """Lines of shell that show Python and this package below a home that is closed to others."""
    needed = {Path(sys.base_prefix).resolve(), Path(sys.prefix), Path(slurm.__file__).parents[1]}
    closed: dict[Path, list[Path]] = {}
    for path in sorted(needed):
        for folder in reversed(path.parents):
            if not folder.stat().st_mode & stat.S_IXOTH:
                closed.setdefault(folder, []).append(path)
                break
    for number, path in enumerate(path for paths in closed.values() for path in paths):
        yield f"mkdir -p {keep}/{number} && mount --bind {path} {keep}/{number}"
    number = 0
    for folder, paths in closed.items():
        yield f"mount -t tmpfs -o mode=0755 none {folder}"
        for path in paths:
            yield f"mkdir -p {path} && mount --bind {keep}/{number} {path}"
            number += 1


@pytest.fixture
def place() -> Iterator[Place]:
    """Three homes, and a directory that the group may write and nobody else."""
    path = Path(tempfile.mkdtemp(prefix="sdk-", dir="/tmp"))
    path.chmod(0o755)
    system = [(Path("/etc") / name).read_text() for name in ("passwd", "group")]
    (path / "passwd").write_text(system[0] + _PASSWD)
    (path / "group").write_text(system[1] + _GROUP)
    (path / "driver.py").write_text(_DRIVER)
    for name, uid in (("alice", ALICE), ("bob", BOB), ("mallory", MALLORY)):
        (path / name).mkdir(mode=0o700)
        os.chown(path / name, uid, LAB if uid == ALICE else ALL)
    (path / "alice" / "work.py").write_text(_WORK)
    (path / "alice" / "arithmetic.py").write_text("def twice(x): return 2 * x\n")
    found = Place(path)
    found.base.mkdir()
    os.chown(found.base, 0, LAB)
    found.base.chmod(0o3770)
    probe = found.run(ALICE, "id", "-gn")
    if probe.returncode:
        shutil.rmtree(path)
        pytest.skip(f"no mount namespace here: {probe.stderr.strip()}")
    assert probe.stdout.strip() == "lab"
    yield found
    for pid_file in path.glob("*/e/**/*.pid"):
        with suppress(OSError, ValueError):
            os.kill(int(pid_file.read_text()), signal.SIGTERM)
    shutil.rmtree(path, ignore_errors=True)


@pytest.mark.parametrize("size", [0, 3 << 20])
def test_a_colleague_reads_a_result_where_the_group_is_trusted(place: Place, size: int) -> None:
    made = place.do(ALICE, "submit", size=size)
    assert made.get("value") == 42, made
    assert Path(made["path"]).parent == place.base / "alice"
    for name in (f"alice/{made['run']}", made["path"]):
        assert place.do(BOB, "result", name) == {"value": 42, "size": size}
    modes = {p.name: stat.S_IMODE(p.lstat().st_mode) for p in Path(made["path"]).rglob("*")}
    assert modes["results"] == 0o2750
    assert modes["function.bin"] == 0o640
    stores = {p.name: stat.S_IMODE(p.stat().st_mode) for p in (place.base / "alice").iterdir()}
    assert stores[".sdk"] == 0o2700


def test_without_it_a_colleague_is_refused_and_learns_what_would_help(place: Place) -> None:
    made = place.do(ALICE, "submit")
    found = place.do(BOB, "result", made["path"], trust=False, base=place.base / "alice")
    assert found["error"] == "UntrustedRun"
    for word in (made["path"], "alice (23001)", "bob (23002)", "2750"):
        assert word in found["message"]
    assert "set trust_group = true if you trust the group lab (23100)" in str(found)


def test_a_colleague_runs_a_run_again_from_a_copy_of_its_code(place: Place) -> None:
    """Nothing of another's base is imported by the job: what it needs lies in one's own."""
    made = place.do(ALICE, "submit")
    (place.path / "alice" / "arithmetic.py").write_text("def twice(x): return 0\n")
    assert place.do(BOB, "rerun", made["path"]) == {"value": 42}
    runs = [path for path in (place.base / "bob").iterdir() if path.name.startswith("double")]
    header = (runs[0] / "function.bin").read_bytes()
    assert str(place.base / "bob" / ".snapshots").encode() in header
    assert b"alice/.snapshots" not in header


def test_a_colleague_s_result_is_an_argument(place: Place) -> None:
    made = place.do(ALICE, "submit")
    assert place.do(BOB, "pass", made["path"]) == {"value": 2}


def test_a_stranger_is_refused_with_and_without_it(place: Place) -> None:
    made = place.do(ALICE, "submit")
    mine = place.do(MALLORY, "result", made["path"])
    assert mine["error"] == "RunDirError"
    assert "you are not in that group" in mine["message"]
    for trust, base in ((False, place.base / "alice"), (None, place.path / "mallory" / "base")):
        assert "value" not in place.do(MALLORY, "result", made["path"], trust=trust, base=base)


def test_what_a_stranger_wrote_is_refused_with_it(place: Place) -> None:
    """A stranger gets files into a run by a mistake of its owner; their group is the run's."""
    made = place.do(ALICE, "submit")
    segment = next(Path(made["path"]).glob("results/*.seg"))
    os.chown(segment, MALLORY, LAB)
    segment.chmod(0o644)
    found = place.do(BOB, "result", made["path"])
    assert found["error"] == "UntrustedRun"
    assert "belongs to user mallory (23003)" in found["message"]
    assert "(mode 0644)" in found["message"]


@pytest.mark.parametrize("name", ["", "results", "results/*.seg"])
def test_what_everybody_may_write_is_refused_with_it(place: Place, name: str) -> None:
    made = place.do(ALICE, "submit")
    path = next(Path(made["path"]).glob(name)) if name else Path(made["path"])
    path.chmod(path.stat().st_mode | stat.S_IWOTH)
    found = place.do(BOB, "result", made["path"])
    assert found["error"] == "UntrustedRun"
    assert f"{path} of user alice" in found["message"]
    assert "writable by others" in found["message"]


def test_what_another_group_may_write_is_refused_and_what_the_own_may_is_not(place: Place) -> None:
    made = place.do(ALICE, "submit")
    segment = next(Path(made["path"]).glob("results/*.seg"))
    segment.chmod(0o664)
    assert place.do(BOB, "result", made["path"])["value"] == 42
    os.chown(segment, -1, HERS)
    assert "writable by others" in place.do(BOB, "result", made["path"])["message"]


def test_an_access_list_lets_nobody_in_behind_the_mode(place: Place) -> None:
    """With a list for another user the mode shows no more than what the group may do at most."""
    made = place.do(ALICE, "submit")
    segment = next(Path(made["path"]).glob("results/*.seg"))
    segment.chmod(0o660)
    # Version 2; the owner rw, the user mallory rw, the group rw, the mask rw, others nothing.
    entries = [(1, 6, -1), (2, 6, MALLORY), (4, 6, -1), (16, 6, -1), (32, 0, -1)]
    words = struct.pack("<I", 2) + b"".join(struct.pack("<HHi", *entry) for entry in entries)
    try:
        os.setxattr(segment, "system.posix_acl_access", words)
    except OSError as error:
        pytest.skip(f"this file system has no access lists: {error.strerror}")
    assert "writable by others" in place.do(BOB, "result", made["path"])["message"]


@pytest.mark.packages
def test_what_another_user_mounted_is_not_one_s_own_whatever_it_says(place: Place) -> None:
    """Mallory's file system shows a copy of a run as Bob's, and private: its program says so."""
    need("bindfs")
    if not os.path.exists("/dev/fuse"):
        pytest.skip("this machine offers no FUSE: /dev/fuse is not there")
    made = place.do(ALICE, "submit")
    home = place.path / "mallory"
    unsettled = shutil.ignore_patterns("*.claim", "*.tmp")
    shutil.copytree(made["path"], home / "src" / made["run"], ignore=unsettled)
    (home / "mnt").mkdir()
    for path in [home, *home.rglob("*")]:
        os.lchown(path, MALLORY, ALL)
    home.chmod(0o755)
    (place.path / "fuse.conf").write_text("user_allow_other\n")
    os.mknod(place.path / "fuse", 0o666 | stat.S_IFCHR, os.stat("/dev/fuse").st_rdev)
    (place.path / "fuse").chmod(0o666)
    as_mallory = f"setpriv --reuid {MALLORY} --regid {ALL} --init-groups"
    show = "--no-allow-other -o allow_other --force-user=bob --force-group=all --perms=u=rwX,go="
    before = [
        f"mount --bind {place.path}/fuse.conf /etc/fuse.conf",
        f"mount --bind {place.path}/fuse /dev/fuse",
        f"{{ {as_mallory} bindfs -f {show} {home}/src {home}/mnt "
        f"> /dev/null 2>&1 < /dev/null & echo $! > {home}/pid; }}",
        f"until mountpoint -q {home}/mnt; do sleep 0.1; done",
    ]
    words = {"base": str(home / "mnt"), "trust": False, "run": f"{home}/mnt/{made['run']}"}
    driver = (sys.executable, str(place.path / "driver.py"), "result", json.dumps(words))
    try:
        seen = place.run(BOB, *driver, before=before)
    finally:
        os.kill(int((home / "pid").read_text()), signal.SIGTERM)
    assert "a file system that user mallory (23003) mounted" in seen.stdout, seen.stdout
    assert '"value"' not in seen.stdout


# ---- the base directory of the group ------------------------------------------------------------


def refused(place: Place, uid: int = BOB) -> str:
    found = place.do(uid, "result", "nothing")
    assert found["error"] == "RunDirError", found
    return f"{found['message']}; {found['hint']}"


def test_a_shared_base_that_everybody_may_write_is_refused_although_it_is_sticky(
    place: Place,
) -> None:
    place.base.chmod(0o3777)
    text = refused(place)
    assert "lab (23100) (mode 3777) is writable by everybody" in text
    assert f"chmod o-w {place.base}" in text


def test_a_shared_base_of_a_group_that_one_is_not_in_is_refused(place: Place) -> None:
    os.chown(place.base, 0, HERS)
    assert "hers (23300)" in refused(place)
    assert "choose a directory of a group of yours (" in refused(place)


def test_a_shared_base_of_a_stranger_is_refused(place: Place) -> None:
    os.chown(place.base, MALLORY, LAB)
    place.base.chmod(0o3770)
    assert "belongs to a user who is not in that group" in refused(place)


def test_a_shared_base_has_to_be_made_by_somebody_who_knows_the_group(place: Place) -> None:
    place.base.rmdir()
    assert f"mkdir {place.base} && chgrp GROUP {place.base} && chmod 3770" in refused(place)


def test_a_folder_that_a_colleague_made_in_one_s_name_is_not_used(place: Place) -> None:
    (place.base / "alice").mkdir(mode=0o700)
    os.chown(place.base / "alice", BOB, LAB)
    found = place.do(ALICE, "submit")
    assert found["error"] == "RunDirError"
    assert "belongs to user bob (23002)" in found["message"]


def test_a_link_in_the_place_of_one_s_own_folder_is_not_followed(place: Place) -> None:
    """A colleague could let it lead elsewhere later, to any folder of one's own."""
    (place.path / "alice" / "own").mkdir()
    os.chown(place.path / "alice" / "own", ALICE, LAB)
    (place.base / "alice").symlink_to(place.path / "alice" / "own")
    os.lchown(place.base / "alice", BOB, LAB)
    found = place.do(ALICE, "submit")
    assert found["error"] == "RunDirError"
    assert f"{place.base}/alice is a link" in found["message"]


def test_without_it_a_base_of_the_group_is_refused_and_the_option_named(place: Place) -> None:
    place.base.chmod(0o2770)
    os.chown(place.base, ALICE, LAB)
    found = place.do(ALICE, "submit", trust=None)
    assert found["error"] == "RunDirError"
    assert "trust_group = true" in found["hint"]


def test_root_trusts_no_group(place: Place) -> None:
    with pytest.raises(RunDirError, match="is not for root"):
        Cluster("embedded", job_base_dir=place.base, trust_group=True).queue()


def test_a_colleague_s_run_is_looked_at_and_not_changed(place: Place) -> None:
    made = place.do(ALICE, "submit")
    found = place.do(BOB, "cancel", made["path"])
    assert found["error"] == "RunNotFound"


def test_inside_of_a_job_the_base_is_the_same_and_the_group_is_trusted(place: Place) -> None:
    own = str(place.base / "alice")
    assert place.do(ALICE, "inside") == {"base": own, "trust": True, "other": False}


def test_the_profile_says_it_and_the_doctor_shows_it(place: Place) -> None:
    made = place.do(ALICE, "submit")
    text = f'[default]\nbackend_type = "embedded"\njob_base_dir = "{place.base}"\n'
    profile = place.path / "bob" / "Slurmfile.toml"
    profile.write_text(text + "trust_group = true\n")
    os.chown(profile, BOB, ALL)
    for name in (made["path"], f"alice/{made['run']}"):
        shown = place.run(BOB, *SLURM, "result", name)
        assert "42" in shown.stdout, shown.stdout + shown.stderr
    seen = place.run(BOB, *SLURM, "doctor", "--no-job")
    line = next(line for line in seen.stdout.splitlines() if " trust " in line)
    assert "trust_group = true: runs of members of the group lab (23100)" in line
    profile.write_text(text.replace(str(place.base), str(place.path / "bob" / "base")))
    seen = place.run(BOB, *SLURM, "doctor", "--no-job")
    assert "files of yours alone are run and unpickled" in seen.stdout


@pytest.mark.parametrize("verb", ["why", "debug", "show"])
def test_who_may_not_read_how_a_run_failed_learns_that(place: Place, verb: str) -> None:
    """Bob trusts no group: nothing says that it has not failed, or that it left nothing."""
    made = place.do(ALICE, "fail")
    seen = place.run(BOB, *SLURM, verb, made["path"], "--job-base-dir", str(place.base / "alice"))
    said = " ".join((seen.stdout + seen.stderr).split())
    assert "belongs to user alice (23001), not to you (bob (23002))" in said
    assert "FAILED" in said
    assert "has not failed" not in said and "left no result" not in said and "(died)" not in said
