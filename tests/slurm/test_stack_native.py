"""`slurm cluster up | down | status` and `slurm.stack`, on real daemons."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from slurm.errors import StackError
from slurm.stack import RunningCluster, attach, cgroups, down, native, ports, status, up

FreshCluster = Callable[..., RunningCluster]


@pytest.fixture
def place() -> Iterator[Path]:
    """A short directory for a cluster; what is still up in it after the test is taken down."""
    top = Path(tempfile.mkdtemp(prefix="slurm-test-", dir="/tmp"))
    directory = top / "c"
    top.chmod(0o755)
    yield directory
    if (directory / "cluster.json").exists():
        down(directory)
    shutil.rmtree(top)


def slurm(*words: str) -> subprocess.CompletedProcess[str]:
    """The command as a user types it."""
    return subprocess.run(
        [sys.executable, "-c", "from slurm.cli import main; main()", *words],
        capture_output=True,
        text=True,
        timeout=150,
    )


def sh(cluster: RunningCluster, line: str, timeout: float = 60) -> str:
    """What a shell line prints, with this cluster's environment."""
    done = subprocess.run(
        ["sh", "-c", line],
        env={**os.environ, **cluster.env},
        cwd="/",
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def sbatch(cluster: RunningCluster, script: str, *options: str) -> str:
    """Submit a script; its job id."""
    done = subprocess.run(
        ["sbatch", "--parsable", "--output=/dev/null", *options],
        input=f"#!/bin/bash\n{script}\n",
        env={**os.environ, **cluster.env},
        cwd="/",
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_machine_whose_name_has_an_address_of_its_own_has_a_cluster(
    place: Path, tmp_path: Path
) -> None:
    """As Debian's installer leaves it: 127.0.1.1 in /etc/hosts, where no other host can reach."""
    hosts = tmp_path / "hosts"
    hosts.write_text("127.0.0.1 localhost\n127.0.1.1 sdk-own-name\n")
    command = [sys.executable, "-c", "from slurm.cli import main; main()", "cluster", "up"]
    command += ["--engine", "native", "--no-accounting", "--dir", str(place)]
    setting = f"hostname sdk-own-name && mount --bind {hosts} /etc/hosts"
    words = ["unshare", "--uts", "--mount", "sh", "-c", f'{setting} && exec "$@"', "sh"]
    made = subprocess.run([*words, *command], capture_output=True, text=True, timeout=150)
    assert made.returncode == 0, made.stderr
    assert "127.0.0.1 sdk-own-name in /etc/hosts" in made.stdout + made.stderr
    assert sh(attach(place), "srun hostname") == "sdk-own-name"


@pytest.mark.attack("reaches the daemons and commands of a cluster of processes from another host")
def test_daemons_and_commands_listen_on_loopback_alone(place: Path, tmp_path: Path) -> None:
    """Where the machine's name is 127.0.0.1; a line of one's own on communication keeps it so."""
    hosts = tmp_path / "hosts"
    hosts.write_text("127.0.0.1 localhost sdk-own-name\n")
    topology = tmp_path / "cluster.toml"
    topology.write_text(
        'engine = "native"\n[conf]\nslurm = ["CommunicationParameters=keepaliveinterval=60"]\n'
        '[[nodes]]\nnames = "n1"\ncpus = 2\n'
    )
    command = [sys.executable, "-c", "from slurm.cli import main; main()", "cluster", "up"]
    command += ["--topology", str(topology), "--dir", str(place)]
    setting = f"hostname sdk-own-name && mount --bind {hosts} /etc/hosts"
    words = ["unshare", "--uts", "--mount", "sh", "-c", f'{setting} && exec "$@"', "sh"]
    made = subprocess.run([*words, *command], capture_output=True, text=True, timeout=150)
    assert made.returncode == 0, made.stderr
    cluster = attach(place)
    inside = ["nsenter", "--target", str(cluster.pid("slurmctld")), "--uts", "--mount"]
    env = {**os.environ, **cluster.env}
    srun = subprocess.Popen([*inside, "srun", "sh", "-c", "echo ready; cat"], env=env, cwd="/",
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)  # fmt: skip
    assert srun.stdin is not None and srun.stdout is not None
    assert srun.stdout.readline() == "ready\n"
    found = listeners(processes_of(place))
    srun.communicate("", timeout=60)
    heard = {program for program, _ in found}
    assert {"slurmctld", "slurmdbd", "slurmd", "srun"} <= heard
    assert [(who, where) for who, where in found if not where.startswith("127.0.0.")] == []


def listeners(processes: list[str]) -> list[tuple[str, str]]:
    """Program and IPv4 address of each TCP socket that these processes listen on; IPv6 as ::."""
    sockets = {}
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A":
                raw = bytes.fromhex(fields[1].partition(":")[0])
                sockets[f"socket:[{fields[9]}]"] = (
                    socket.inet_ntoa(raw[::-1]) if table == "tcp" else "::"
                )
    found = []
    for pid in (line.partition(" ")[0] for line in processes):
        with contextlib.suppress(OSError):
            program = Path(f"/proc/{pid}/comm").read_text().strip()
            links = [os.readlink(file) for file in Path(f"/proc/{pid}/fd").iterdir()]
            found += [(program, sockets[link]) for link in links if link in sockets]
    return found


def accounted_state(cluster: RunningCluster, job_id: str, wanted: str) -> str:
    """The job's state in accounting, as soon as it is the wanted one, or after a minute."""
    state = ""
    for _ in until(60):
        state = sh(cluster, f"sacct -nXP -o State -S now-1hour -j {job_id}")
        if state == wanted:
            break
    return state


def until(seconds: float) -> Iterator[None]:
    """Turns of a waiting loop; it ends after so many seconds."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        yield
        time.sleep(0.1)


def processes_of(directory: Path) -> list[str]:
    """Command lines of all processes that this cluster's daemons are or started."""
    found = []
    mark = str(directory).encode()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            command = (entry / "cmdline").read_bytes()
            given = (entry / "environ").read_bytes()
        except OSError:
            continue
        if mark + b"/" in command or mark + b"/" in given:
            found.append(f"{entry.name} {command.decode(errors='replace')}")
    return found


def cgroups_of(directory: Path) -> list[Path]:
    """The cluster's cgroup directories, found through the links that it made."""
    links = (directory / "cgroup").glob("*")
    return [target for link in links if (target := Path(os.readlink(link))).exists()]


def assert_nothing_left(directory: Path) -> None:
    assert processes_of(directory) == []
    assert cgroups_of(directory) == []


def test_a_user_brings_a_cluster_up_looks_at_it_and_takes_it_down(place: Path) -> None:
    done = slurm("cluster", "up", "--engine", "native", "--nodes", "2", "--dir", str(place))
    assert done.returncode == 0, done.stderr
    assert f"export SLURM_CONF={place}/etc/slurm.conf" in done.stdout
    cluster = attach(place)
    assert sh(cluster, "srun --nodes=2 echo ran") == "ran\nran"

    seen = slurm("cluster", "status", "--dir", str(place))
    assert seen.returncode == 0
    assert "is up" in seen.stdout and "slurmd-n2" in seen.stdout and "idle" in seen.stdout

    ended = slurm("cluster", "down", "--dir", str(place))
    assert ended.returncode == 0, ended.stderr
    assert_nothing_left(place)
    assert slurm("cluster", "status", "--dir", str(place)).returncode == 3
    assert slurm("cluster", "down", "--dir", str(place)).returncode == 0


def test_status_as_json_has_what_its_help_promises(slurm_cluster: RunningCluster) -> None:
    done = slurm("cluster", "status", "--json", "--dir", str(slurm_cluster.dir))
    found = json.loads(done.stdout)
    assert set(found) == {
        "name", "dir", "engine", "state", "enforcement", "daemons", "nodes", "env", "notes",
    }  # fmt: skip
    assert found["state"] == "up"
    assert found["env"] == slurm_cluster.env
    assert list(found["nodes"]) == ["n1", "n2", "n3", "n4"]
    pids = {daemon["name"]: daemon["pid"] for daemon in found["daemons"]}
    assert pids["slurmctld"] == slurm_cluster.pid("slurmctld")
    assert pids["slurmd-n3"] == slurm_cluster.pid("slurmd", "n3")
    assert all(set(daemon) == {"name", "pid", "port", "log"} for daemon in found["daemons"])


def test_extra_lines_and_files_of_the_command_line_reach_slurm(place: Path, tmp_path: Path) -> None:
    prolog = tmp_path / "prolog"
    prolog.write_text(f"#!/bin/sh\necho ran > {place}/prolog.ran\n")
    done = slurm(
        "cluster", "up", "--dir", str(place), "--no-accounting", "--cpus", "3", "--memory", "500",
        "--conf-line", "MaxArraySize=77",
        "--conf-line", "NodeName=DEFAULT Features=fast",
        "--conf-line", f"Prolog={place}/etc/prolog",
        "--file", f"prolog={prolog}",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    cluster = attach(place)
    assert "= 77" in sh(cluster, "scontrol show config | grep MaxArraySize")
    assert sh(cluster, "sinfo -h -o '%c %m %f'") == "3 500 fast"
    assert (place / "prolog.ran").read_text() == "ran\n"
    with pytest.raises(StackError, match="no daemon 'slurmdbd'"):
        cluster.pid("slurmdbd")


def test_up_where_a_cluster_is_up_is_refused_and_harms_nothing(
    slurm_cluster: RunningCluster,
) -> None:
    before = slurm_cluster.pid("slurmctld")
    done = slurm("cluster", "up", "--dir", str(slurm_cluster.dir))
    assert done.returncode == 4
    assert "already up" in done.stderr and "slurm cluster down" in done.stderr
    assert "Traceback" not in done.stderr
    assert slurm_cluster.pid("slurmctld") == before
    assert slurm_cluster.status().state == "up"


def test_a_directory_with_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(StackError, match="is not empty"):
        up(tmp_path)
    assert os.listdir(tmp_path) == ["thesis.tex"]


def test_two_clusters_live_side_by_side_and_one_goes_without_harm_to_the_other(
    fresh_slurm_cluster: FreshCluster,
) -> None:
    first = fresh_slurm_cluster(nodes=1)
    second = fresh_slurm_cluster(nodes=1)
    # The same job id, user and node name in both: a shared cgroup would end the second's job.
    ids = [sbatch(cluster, "sleep 600", "--mem=50") for cluster in (first, second)]
    assert ids[0] == ids[1] and first.nodes == second.nodes
    running = f"squeue -h -t RUNNING -o %i -j {ids[0]}"
    for cluster in (first, second):
        assert any(sh(cluster, running) == ids[0] for _ in until(30))

    first.down()
    assert_nothing_left(first.dir)
    assert sh(second, running) == ids[1]
    assert second.status().state == "up"
    sh(second, f"scancel {ids[1]}")
    assert accounted_state(second, ids[1], "CANCELLED by 0") == "CANCELLED by 0"
    assert sh(second, "srun echo alive") == "alive"


def test_a_job_that_takes_too_much_memory_is_out_of_memory(slurm_cluster: RunningCluster) -> None:
    if not slurm_cluster.enforces_memory:
        pytest.skip(f"memory enforcement {slurm_cluster.status().enforcement}")
    greedy = "/usr/bin/python3 -c 'b = bytearray(400 << 20)'"
    job_id = sbatch(slurm_cluster, greedy)
    assert accounted_state(slurm_cluster, job_id, "OUT_OF_MEMORY") == "OUT_OF_MEMORY"
    modest = sbatch(slurm_cluster, greedy, "--mem=600")
    assert accounted_state(slurm_cluster, modest, "COMPLETED") == "COMPLETED"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")
def test_an_ordinary_user_can_run_a_job_and_read_no_secret(slurm_cluster: RunningCluster) -> None:
    for secret in ("etc/slurmdbd.conf", "munge/munge.key"):
        mode = (slurm_cluster.dir / secret).stat().st_mode
        assert stat.S_IMODE(mode) in (0o400, 0o600), secret
    done = subprocess.run(
        ["srun", "id", "-un"],
        user="nobody",
        extra_groups=[],
        cwd="/",
        env={**os.environ, **slurm_cluster.env},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout == "nobody\n", done.stderr
    for secret in ("etc/slurmdbd.conf", "munge/munge.key", "db/data/ibdata1"):
        read = ["cat", "--", str(slurm_cluster.dir / secret)]
        tried = subprocess.run(read, user="nobody", extra_groups=[], capture_output=True)
        assert b"Permission denied" in tried.stderr, secret


@pytest.mark.skipif(os.geteuid() != 0, reason="daemons have accounts of their own under root only")
def test_munged_and_mariadb_run_under_their_own_accounts(slurm_cluster: RunningCluster) -> None:
    for daemon, account in (("munged", "munge"), ("mariadbd", "mysql")):
        pid = slurm_cluster.pid(daemon)
        assert pwd.getpwuid(Path(f"/proc/{pid}").stat().st_uid).pw_name == account


def test_slurmctld_killed_and_started_again_keeps_its_running_job(
    fresh_slurm_cluster: FreshCluster,
) -> None:
    cluster = fresh_slurm_cluster(nodes=2)
    flag = cluster.dir / "go-on"
    job_id = sbatch(cluster, f"until [ -e {flag} ]; do sleep 0.2; done")
    assert any(sh(cluster, f"squeue -h -t R -o %i -j {job_id}") for _ in until(30))
    # A busy slurmctld writes its state every 5 s; what it did not write a crash makes it forget.
    written = cluster.dir / "state" / "job_state"
    now = time.time()
    sh(cluster, f"scontrol update jobid={job_id} comment=running")
    assert any(written.exists() and written.stat().st_mtime > now for _ in until(60))

    before = cluster.pid("slurmctld")
    cluster.stop_daemon("slurmctld", signal=signal.SIGKILL)
    assert cluster.pid("slurmctld") is None
    assert cluster.status().state == "degraded"
    cluster.start_daemon("slurmctld")
    assert cluster.pid("slurmctld") not in (None, before)
    cluster.wait_ready()
    flag.touch()
    assert accounted_state(cluster, job_id, "COMPLETED") == "COMPLETED"


@pytest.mark.full
def test_every_daemon_can_be_stopped_or_killed_and_started_again(
    fresh_slurm_cluster: FreshCluster,
) -> None:
    cluster = fresh_slurm_cluster(nodes=2)
    shared = ["munged", "mariadbd", "slurmdbd", "slurmctld"]
    parts = [*((daemon, None) for daemon in shared), ("slurmd", "n1")]
    for how in (signal.SIGTERM, signal.SIGKILL):
        for daemon, node in reversed(parts):
            cluster.stop_daemon(daemon, node, signal=how)
            cluster.stop_daemon(daemon, node, signal=how)
            assert cluster.pid(daemon, node) is None
        for daemon, node in parts:
            cluster.start_daemon(daemon, node)
            cluster.start_daemon(daemon, node)
            assert cluster.pid(daemon, node) is not None
        cluster.wait_ready()
        assert cluster.status().state == "up"
    job_id = sbatch(cluster, "true")
    assert accounted_state(cluster, job_id, "COMPLETED") == "COMPLETED"


def test_a_wrong_line_is_an_error_in_slurmctlds_own_words(place: Path) -> None:
    with pytest.raises(StackError) as caught:
        up(place, extra_conf=["SelectTypo=cons_tres"])
    assert "slurmctld ended" in caught.value.message
    assert any("unrecognized key: SelectTypo" in line for line in caught.value.evidence)
    assert_nothing_left(place)
    assert status(place).state == "down"
    with pytest.raises(StackError) as again:
        up(place, extra_conf=["SelectType=select/none_such"])
    assert "none_such" in str(again.value) and "SelectTypo" not in str(again.value)


def test_a_taken_port_is_replaced_by_another(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    with socket.create_server(("", 0)) as other_program:

        def unlucky(count: int) -> list[int]:
            found = ports.free_ports(count)
            if not asked:
                found[0] = other_program.getsockname()[1]
            asked.append(count)
            return found

        monkeypatch.setattr(native, "free_ports", unlucky)
        cluster = up(place, accounting=False)
        assert len(asked) == 2
        assert cluster.status().state == "up"


@pytest.mark.full
def test_down_after_daemons_died_stops_the_others(place: Path) -> None:
    cluster = up(place, nodes=2)
    cluster.stop_daemon("slurmd", "n2", signal=signal.SIGKILL)
    cluster.stop_daemon("mariadbd", signal=signal.SIGKILL)
    cluster.stop_daemon("slurmctld", signal=signal.SIGKILL)
    assert cluster.status().state == "degraded"
    down(place)
    assert_nothing_left(place)
    assert status(place).state == "down"


@pytest.mark.parametrize("enforced", [True, False], ids=["cgroups", "no cgroups"])
def test_down_ends_jobs_that_do_not_want_to_end(
    place: Path, monkeypatch: pytest.MonkeyPatch, enforced: bool
) -> None:
    if not enforced:
        monkeypatch.setattr(cgroups, "why_not_enforced", lambda: "so the test wants it")
    cluster = up(place, accounting=False)
    if not enforced:
        assert cluster.status().enforcement == "none: so the test wants it"
    pids = place / "pids"
    # One child in a session of its own, one that no longer has a parent in the job.
    stubborn = (
        f"trap '' TERM INT; setsid sleep 600 & (setsid sleep 601 & echo $! > {pids}.alone)\n"
        f"echo $$ $! $(cat {pids}.alone) > {pids}; sleep 602; sleep 603"
    )
    sbatch(cluster, stubborn)
    assert any(pids.exists() and pids.read_text().endswith("\n") for _ in until(30))
    running = pids.read_text().split()
    assert len(running) == 3 and all(Path(f"/proc/{pid}").exists() for pid in running)
    down(place)
    assert_nothing_left(place)
    for pid in running:
        assert any(not command_line(pid) for _ in until(10))


def command_line(pid: str) -> bytes:
    """Empty for a process that is gone, or a zombie that init has not collected yet."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


@pytest.mark.full
def test_queue_and_accounting_survive_down_and_up(place: Path) -> None:
    first = up(place)
    done = sbatch(first, "true")
    held = sbatch(first, "true", "--hold")
    assert accounted_state(first, done, "COMPLETED") == "COMPLETED"
    first.down()
    second = up(place)
    assert second.name == first.name
    assert accounted_state(second, done, "COMPLETED") == "COMPLETED"
    sh(second, f"scontrol release {held}")
    assert accounted_state(second, held, "COMPLETED") == "COMPLETED"


def test_ctrl_c_during_up_leaves_nothing_behind(place: Path) -> None:
    client = subprocess.Popen(
        [sys.executable, "-c", "from slurm.cli import main; main()",
         "cluster", "up", "--dir", str(place)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # Tests that run in the background were started with the interrupt ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip
    log = place / "log" / "slurmctld.out"
    assert any(log.exists() for _ in until(60))
    client.send_signal(signal.SIGINT)
    client.communicate(timeout=120)
    assert client.returncode == 130
    assert_nothing_left(place)


@pytest.mark.full
def test_the_fixture_cleans_up_even_when_pytest_is_killed(tmp_path: Path) -> None:
    victim = tmp_path / "test_victim.py"
    victim.write_text(
        "import os, signal\n"
        "def test_it(slurm_cluster):\n"
        f"    open({str(tmp_path / 'dir')!r}, 'w').write(str(slurm_cluster.dir))\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    tests = Path(__file__).parent.parent
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "conftest", "-c", os.devnull, str(victim)],
        env={**os.environ, "PYTHONPATH": str(tests)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == -signal.SIGKILL, done.stdout
    directory = Path((tmp_path / "dir").read_text())
    assert any(not directory.exists() for _ in until(60))
    assert processes_of(directory) == []
