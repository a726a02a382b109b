"""The ssh backend through a real sshd, with a proxy that makes the round trip as long as asked."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.figures import Row, Section
from benchmarks.ground import Ground
from benchmarks.libraries import LIBRARIES, OURS, RAW, Library
from benchmarks.peer import PeerFailed, environment
from benchmarks.race import one_line
from slurm import Cluster, task

_TESTS = Path(__file__).resolve().parents[2] / "tests" / "ssh"

#: Milliseconds that a verb may take beyond its round trip and what sbatch needs.
SUBMIT_MS, COLD_MS, BULK_MS, END_MS = 10.0, 500.0, 500.0, 300.0
#: The results that all of them read; ours reads many more besides.
FEW = 20
SUBMIT, RESULTS = "ssh, R = {trip} ms: a submission", "ssh, R = {trip} ms: {few} results"


@task
def ended() -> float:
    """When the function was over; client and node are one host here."""
    import time

    return time.time()


@task
def blob(number: int) -> bytes:
    return bytes(200)


def over_ssh(ground: Ground) -> Section:
    """Submission, results and connection at several round trips."""
    sys.path.insert(0, str(_TESTS))
    from server import Sshd  # type: ignore[import-not-found,unused-ignore]

    env = ground.slurm_env
    server = Sshd(env={"SLURM_CONF": env["SLURM_CONF"]}, settings=("LogLevel ERROR",))
    base = str(ground.folder("ssh-jobs"))
    count = 50 if ground.quick else 500
    rows: list[Row] = []
    held: list[Row] = []
    try:
        raw = _raw_sbatch(ground)
        with _reached(ground, server, 0.0) as reach, Cluster(job_base_dir=base, **reach) as near:
            array, few = blob.map(range(count)), blob.map(range(FEW))
            array.results(timeout=300)
            few.results(timeout=60)
            near.backend.close()  # type: ignore[attr-defined]
        for trip in (50,) if ground.quick else (0, 20, 50, 100):
            with _reached(ground, server, trip / 2000) as reach:
                found, submits = _rows(ground, reach, base, array.run, count, trip, raw)
                ours = [_alone(ground, "bulk", base, few.run, reach) for _ in range(3)]
                rows += _raced(ground, reach, trip, {"submits": submits, "results": ours})
                held += found
    finally:
        server.remove()
    notes = (
        "R is the round trip that a proxy on loopback makes; sshd, ssh and Slurm are real.",
        "A warm submission stands over raw `sbatch`; a cold one over `ssh HOST true`, with the "
        "SDK already on the cluster.",
    )
    return Section("Over ssh, by round trip", (*rows, *held), notes)


def _raced(
    ground: Ground, reach: dict[str, Any], trip: int, ours: dict[str, list[float]]
) -> list[Row]:
    """Ours beside the only other that goes over ssh, and beside `ssh HOST sbatch`."""
    found = {OURS.key: ours, RAW.key: {"submits": _ssh_sbatch(ground, reach), "results": []}}
    for library in ground.able("ssh"):
        if library.needs:
            try:
                found[library.key] = _theirs(ground, library, trip)
            except PeerFailed as error:
                ground.leave_out(library.label, f"ssh at R = {trip} ms", one_line(error))
    rows = []
    for part, words in (("submits", SUBMIT), ("results", RESULTS)):
        for library in LIBRARIES:
            samples = found.get(library.key, {}).get(part)
            if samples:
                rows.append(
                    Row(library.label, tuple(samples), library=library.key, trip=trip,
                        ratio=statistics.median(samples) / statistics.median(ours[part]),
                        question=words.format(trip=trip, few=FEW))
                )  # fmt: skip
    return rows


def _theirs(ground: Ground, library: Library, trip: int) -> dict[str, list[float]]:
    """slurm-sdk 0.4 on one open connection, to a host whose `python` is its own."""
    from server import Sshd

    path = f"{Path(environment(*library.needs)).parent}:/usr/local/bin:/usr/bin:/bin"
    server = Sshd(
        env={"SLURM_CONF": ground.slurm_env["SLURM_CONF"], "PATH": path},
        settings=("LogLevel ERROR", "Subsystem sftp internal-sftp", "MaxSessions 10"),
    )
    try:
        with _reached(ground, server, trip / 2000) as reach:
            return _played(ground, library, reach)
    finally:
        server.remove()


def _played(ground: Ground, library: Library, reach: dict[str, Any]) -> dict[str, list[float]]:
    where = {
        "hostname": reach["hostname"], "username": reach["username"], "port": reach["port"],
        "key_filename": reach["identity_file"], "host_key_policy": "auto", "allow_agent": False,
        "look_for_keys": False,
    }  # fmt: skip
    folder = str(ground.folder("ssh-theirs"))
    peer = ground.peer(
        f"{library.label} over ssh", library.program, folder, json.dumps(where),
        env=ground.slurm_env, needs=library.needs,
    )  # fmt: skip
    try:
        peer.play("submit 1")
        return {
            "submits": [1000 * peer.play("submit 1") for _ in range(ground.times(5, 2))],
            "results": [1000 * peer.play(f"results {FEW}")],
        }
    finally:
        peer.close()


def _ssh_sbatch(ground: Ground, reach: dict[str, Any]) -> list[float]:
    """`ssh HOST sbatch` on an open connection, a script for its input."""
    from slurm.api.openssh import settings

    how = settings(**reach)
    control = ground.folder(f"r{time.monotonic_ns() % 10**9}") / "c"
    words = ["ssh", "-T", "-o", f"ControlPath={control}", "-o", "ControlMaster=auto",
             "-o", "ControlPersist=60", *how.words, how.hostname]  # fmt: skip
    script = b"#!/bin/bash\n#SBATCH --output=/dev/null\n#SBATCH --begin=now+1hour\ntrue\n"

    def submit() -> None:
        command = [*words, "sbatch --parsable"]
        subprocess.run(command, input=script, check=True, timeout=60, stdout=subprocess.DEVNULL)

    try:
        submit()
        return [_milliseconds(submit) for _ in range(ground.times(5, 2))]
    finally:
        subprocess.run([*words, "-O", "exit"], capture_output=True, timeout=30)


def _rows(
    ground: Ground,
    reach: dict[str, Any],
    base: str,
    run: str,
    count: int,
    trip: int,
    raw: tuple[float, ...],
) -> tuple[list[Row], list[float]]:
    times = ground.times(7, 3)
    plain = tuple(_plain_ssh(reach) for _ in range(times))
    cold = tuple(_alone(ground, "cold", base, run, reach) for _ in range(times))
    with Cluster(job_base_dir=base, **reach) as cluster:
        ended().result(timeout=60)
        submits, ends = [], []
        for _ in range(2 * times):
            began = time.perf_counter()
            job = ended()
            submits.append(1000 * (time.perf_counter() - began))
            ends.append(_delay(job))
        cluster.backend.close()  # type: ignore[attr-defined]
    bulk = tuple(_alone(ground, "bulk", base, run, reach) for _ in range(3))
    at = f"R = {trip} ms"
    rows = [
        Row(f"{at}: cold, to the first job id", cold, over=plain, limit=2 * trip + COLD_MS),
        Row(f"{at}: warm submission", tuple(submits), over=raw, limit=trip + SUBMIT_MS),
        Row(f"{at}: from a job's end to its result", tuple(ends), limit=trip / 2 + END_MS),
        Row(f"{at}: {count} results of an array", bulk, limit=2 * trip + BULK_MS),
    ]
    return rows, submits


def _delay(job: Any) -> float:
    value = job.result(timeout=60)
    return 1000 * (time.time() - float(value))


def _raw_sbatch(ground: Ground) -> tuple[float, ...]:
    """What sbatch itself takes for a small script."""
    script = ground.folder("raw-sbatch") / "true.sh"
    script.write_text("#!/bin/bash\n#SBATCH --output=/dev/null\ntrue\n")
    found = []
    for _ in range(ground.times(10, 5)):
        began = time.perf_counter()
        words = ["sbatch", "--parsable", str(script)]
        subprocess.run(words, env=ground.slurm_env, check=True, capture_output=True, timeout=60)
        found.append(1000 * (time.perf_counter() - began))
        time.sleep(0.3)
    return tuple(found)


@contextmanager
def _reached(ground: Ground, server: Any, one_way: float) -> Iterator[dict[str, Any]]:
    """The arguments of `Cluster` that lead through a proxy with this delay."""
    words = [sys.executable, str(_TESTS / "proxy.py"), str(server.port), str(one_way)]
    proxy = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert proxy.stdin is not None
    assert proxy.stdout is not None
    port = int(proxy.stdout.readline())
    public = " ".join(Path(f"{server.host_key}.pub").read_text().split()[:2])
    known = ground.folder(f"known-{port}") / "known_hosts"
    known.write_text(f"[127.0.0.1]:{port} {public}\n")
    with _own_sockets(ground):
        try:
            yield server.arguments(port=port, ssh_options={"UserKnownHostsFile": str(known)})
        finally:
            proxy.stdin.close()
            proxy.wait(30)
            proxy.stdout.close()


@contextmanager
def _own_sockets(ground: Ground) -> Iterator[None]:
    """Control sockets of their own: what is measured as cold must not find an open connection."""
    folder = ground.folder(f"s{time.monotonic_ns() % 10**9}")
    before = os.environ.get("SLURM_SDK_SSH_DIR")
    os.environ["SLURM_SDK_SSH_DIR"] = str(folder)
    try:
        folder.chmod(0o700)
        yield
    finally:
        for socket in folder.iterdir():
            words = ["ssh", "-O", "exit", "-o", f"ControlPath={socket}", "x"]
            subprocess.run(words, capture_output=True, timeout=30)
        if before is None:
            del os.environ["SLURM_SDK_SSH_DIR"]
        else:
            os.environ["SLURM_SDK_SSH_DIR"] = before


def _plain_ssh(reach: dict[str, Any]) -> float:
    from slurm.api.openssh import settings

    how = settings(**reach)
    words = ["ssh", "-T", "-o", "ControlPath=none", *how.words, how.hostname, "true"]
    return _milliseconds(lambda: subprocess.run(words, check=True, timeout=60))


#: A process of its own has no connection that it could share.
_ALONE = """
import json, sys, time
from benchmarks.scenarios import ssh
from slurm import Cluster
what, base, run, reach = json.loads(sys.argv[1])
began = time.perf_counter()
cluster = Cluster(job_base_dir=base, **reach)
if what == "cold":
    cluster.submit(ssh.ended)()
else:
    cluster.backend.hello()
    began = time.perf_counter()
    assert cluster.attach(run).results(timeout=60)
print(1000 * (time.perf_counter() - began))
"""


def _alone(ground: Ground, what: str, base: str, run: str, reach: dict[str, Any]) -> float:
    """How long something takes in a new process with a new connection."""
    with _own_sockets(ground):
        done = subprocess.run(
            [sys.executable, "-c", _ALONE, json.dumps([what, base, run, reach])],
            cwd=_TESTS.parents[1],
            env={**ground.own_env, "SLURM_SDK_SSH_DIR": os.environ["SLURM_SDK_SSH_DIR"]},
            check=True,
            stdout=subprocess.PIPE,
            text=True,
            timeout=120,
        )
    return float(done.stdout)


def _milliseconds(act: Callable[[], object]) -> float:
    began = time.perf_counter()
    act()
    return 1000 * (time.perf_counter() - began)
