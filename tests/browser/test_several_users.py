"""A dashboard for several users: TLS, everybody with a token of Slurm, and Slurm decides."""

from __future__ import annotations

import datetime
import ipaddress
import re
import secrets
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from conftest import sbatch, slurm
from needed import need
from served import Served, dashboard, until

if TYPE_CHECKING:
    from slurm.stack import RunningCluster

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for this machine's loopback, and Slurm's key for tokens."""
    folder = tmp_path_factory.mktemp("keys")
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.timezone.utc)
    names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=2))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(key, hashes.SHA256())
    )
    (folder / "cert.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    plain = serialization.NoEncryption()
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    (folder / "key.pem").write_bytes(key.private_bytes(*form))
    (folder / "jwt.key").write_bytes(secrets.token_bytes(64))
    (folder / "jwt.key").chmod(0o600)
    return folder


@pytest.fixture(scope="module")
def tokens(
    own_slurm_cluster: Callable[..., AbstractContextManager[RunningCluster]], keys: Path
) -> Iterator[RunningCluster]:
    """A Slurm that gives tokens."""
    need("auth_jwt.so", "curl")
    conf = ("AuthAltTypes=auth/jwt", f"AuthAltParameters=jwt_key={keys}/jwt.key")
    with own_slurm_cluster(nodes=1, extra_conf=conf) as cluster:
        yield cluster


def _token(user: str) -> str:
    return slurm("scontrol", "token", f"username={user}", "lifespan=3600").strip().partition("=")[2]


def _curl(served: Served, path: str, jar: Path, *more: str) -> tuple[int, str]:
    """One request over TLS; cookies are kept in a file."""
    cookies = str(jar)
    words = [
        "curl",
        "-sk",
        "-b",
        cookies,
        "-c",
        cookies,
        "-w",
        "\n%{http_code}",
        *more,
        served.base + path,
    ]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=True)
    text, _, code = done.stdout.rpartition("\n")
    return int(code), text


def _login(served: Served, jar: Path, token: str) -> int:
    body = urlencode({"jwt": token})
    return _curl(served, "/login", jar, "-H", f"Origin: {served.base}", "-d", body)[0]


def test_each_user_acts_with_the_rights_that_slurm_gives(
    tokens: RunningCluster, keys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key, value in tokens.env.items():
        monkeypatch.setenv(key, value)
    roots = sbatch("--output=/dev/null", "--job-name=roots")
    theirs = sbatch("--output=/dev/null", "--uid=nobody", "--job-name=theirs")
    tls = ("--certificate", f"{keys}/cert.pem", "--key", f"{keys}/key.pem")
    with dashboard("--per-user", *tls) as served:
        assert served.base.startswith("https://")
        jar = tmp_path / "jar"
        assert _curl(served, "/", jar, "-H", "Accept: text/html")[0] == 303
        assert _login(served, jar, _token("nobody")[:-4] + "AAAA") == 403  # not Slurm's own
        assert _login(served, jar, "nonsense") == 403
        assert _login(served, jar, _token("nobody")) == 200
        until("jobs", lambda: "theirs" in _curl(served, "/", jar)[1])
        assert _act(served, jar, roots, "cancel") == 409  # Slurm says no
        assert "RUNNING" in slurm("scontrol", "show", "job", roots)
        assert _act(served, jar, theirs, "cancel") == 303
        until("cancelled", lambda: "CANCELLED" in slurm("scontrol", "show", "job", theirs))
        # Logs of others are not shown, runs lie in each user's own directory.
        words = ("-H", "Accept: text/event-stream", "--max-time", "5")
        done = subprocess.run(
            ["curl", "-skN", "-b", jar, *words, f"{served.base}/jobs/{roots}/log"],
            capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        assert "this log is root's" in done.stdout
        assert "own directory" in _curl(served, "/runs", jar)[1]


@pytest.mark.attack
def test_no_name_of_a_job_opens_files_of_others(
    tokens: RunningCluster, keys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The dashboard runs as root; a name with line breaks looks like lines of scontrol."""
    for key, value in tokens.env.items():
        monkeypatch.setenv(key, value)
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        secret = Path(folder) / "secret"
        secret.write_text("nobody may read this\n")
        secret.chmod(0o600)
        name = f"x\n   UserId=nobody(0)\n   StdOut={secret}\n   StdErr={secret}"
        options = (f"--job-name={name}", f"--output={secret}", "--uid=nobody", "--hold")
        job = sbatch(*options, f"--comment={name}")
        tls = ("--certificate", f"{keys}/cert.pem", "--key", f"{keys}/key.pem")
        with dashboard("--per-user", *tls) as served:
            jar = tmp_path / "jar"
            assert _login(served, jar, _token("nobody")) == 200
            until("the job", lambda: f"job-{job}" in _curl(served, "/", jar)[1])
            words = ("-H", "Accept: text/event-stream", "--max-time", "8")
            done = subprocess.run(
                ["curl", "-skN", "-b", jar, *words, f"{served.base}/jobs/{job}/log"],
                capture_output=True, text=True, timeout=60,
            )  # fmt: skip
            assert "nobody may read" not in done.stdout
            assert "event: refused" in done.stdout


@pytest.mark.attack
def test_who_asks_about_jobs_without_end_takes_no_questions_of_others(
    tokens: RunningCluster, keys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key, value in tokens.env.items():
        monkeypatch.setenv(key, value)
    job = sbatch("--output=/dev/null", "--uid=nobody", "--hold", "--comment=asked-for")
    tls = ("--certificate", f"{keys}/cert.pem", "--key", f"{keys}/key.pem")
    with dashboard("--per-user", *tls) as served:
        jars = {user: tmp_path / user for user in ("nobody", "games")}
        for user, jar in jars.items():
            assert _login(served, jar, _token(user)) == 200
        asked = [_curl(served, f"/jobs/{900_000 + n}", jars["games"]) for n in range(90)]
        assert any(code == 429 and "you asked too many" in text for code, text in asked)
        # Its own questions are answered, though the other goes on and on.
        code, text = _curl(served, f"/jobs/{job}", jars["nobody"])
        assert code == 200 and "too many" not in text
        until("record", lambda: "asked-for" in _curl(served, f"/jobs/{job}", jars["nobody"])[1])


def _act(served: Served, jar: Path, job: str, act: str) -> int:
    page = ""

    def offered() -> bool:
        nonlocal page
        page = _curl(served, f"/jobs/{job}", jar)[1]
        return f"/jobs/{job}/{act}" in page

    until("the button", offered)
    fields = {
        name: re.findall(rf'name="{name}" value="([^"]+)"', page)[0] for name in ("csrf", "submit")
    }
    form = ("-H", f"Origin: {served.base}", "-d", urlencode(fields))
    return _curl(served, f"/jobs/{job}/{act}", jar, *form)[0]


def test_without_tls_it_stays_on_loopback() -> None:
    import sys

    words = [sys.executable, "-m", "slurm.cli", "dashboard", "--address", "0.0.0.0"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.returncode != 0
    assert "TLS" in done.stderr
