"""The exporter where it is reached otherwise: Slurm over SSH, Prometheus over TLS."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from conftest import exporting, scrape_job, scraping, until

sys.path.insert(0, str(Path(__file__).parents[1] / "ssh"))

from proxy import Proxy
from server import Sshd

if TYPE_CHECKING:
    from slurm.stack import RunningCluster

pytestmark = [pytest.mark.full, pytest.mark.timeout(900), pytest.mark.xdist_group("monitor")]


@pytest.fixture
def login_node(watched_cluster: RunningCluster) -> Iterator[Sshd]:
    server = Sshd(env=watched_cluster.env)
    yield server
    server.remove()


def test_a_cluster_behind_ssh_is_watched_and_a_lost_connection_comes_back(
    login_node: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = Proxy(login_node.port)
    known = tmp_path / "known_hosts"
    known.write_text(
        login_node.known_hosts.read_text().replace(str(login_node.port), str(network.port))
    )
    trust = {"UserKnownHostsFile": str(known)}
    reach = login_node.arguments(port=network.port, ssh_options=trust)
    options = reach.pop("ssh_options")
    lines = ["[hpc]", *(f"{key} = {json.dumps(value)}" for key, value in reach.items())]
    lines += ["[hpc.ssh_options]", *(f"{k} = {json.dumps(v)}" for k, v in options.items())]
    (tmp_path / "Slurmfile.toml").write_text("\n".join(lines) + "\n")
    monkeypatch.delenv("SLURM_CONF")
    monkeypatch.setenv("SLURM_SDK_SSH_DIR", str(login_node.folder / "ctl"))
    with exporting("--cluster", "hpc", "--stale-after", "5", cwd=tmp_path) as one:
        until("snapshot", lambda: one.value("slurm_sdk_up") == 1)
        assert one.value("slurm_sdk_nodes_usable") == 3
        assert one.value('slurm_sdk_jobs_pending{reason="BeginTime",partition="main"}') == 1000
        login_node.stop()
        network.cut(reset=True)
        try:
            until("too old", lambda: one.value("slurm_sdk_nodes_usable") is None, 120)
            until("noticed", lambda: one.value("slurm_sdk_up") == 0, 300)
        finally:
            login_node.start()
        until("back", lambda: one.value("slurm_sdk_nodes_usable") == 3, 180)
    network.close()


def test_prometheus_and_curl_scrape_with_tls_and_a_password(tmp_path: Path) -> None:
    import bcrypt

    words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    where = ["-keyout", str(tmp_path / "k.pem"), "-out", str(tmp_path / "c.pem")]
    subprocess.run([*words, *names, *where], check=True, capture_output=True, timeout=60)
    hashed = bcrypt.hashpw(b"s3cret", bcrypt.gensalt(4)).decode()
    (tmp_path / "web.yml").write_text(
        "tls_server_config: {cert_file: c.pem, key_file: k.pem}\n"
        f"basic_auth_users: {{prometheus: {hashed}}}\n"
    )
    with exporting("--web-config", str(tmp_path / "web.yml")) as one:
        tls = {"scheme": "https", "tls_config": {"ca_file": str(tmp_path / "c.pem")}}
        right = {"basic_auth": {"username": "prometheus", "password": "s3cret"}}
        wrong = {"basic_auth": {"username": "prometheus", "password": "guess"}}
        jobs = (
            scrape_job("right", one.url, **tls, **right),
            scrape_job("wrong", one.url, **tls, **wrong),
            scrape_job("plain", one.url, **right),
        )
        with scraping(*jobs) as prometheus:
            until("scraped", lambda: prometheus.query('slurm_sdk_up{job="right"} == 1'))
            for job in ("wrong", "plain"):
                until("tried", functools.partial(prometheus.query, f'up{{job="{job}"}} == 0'))
                assert not prometheus.query(f'slurm_sdk_up{{job="{job}"}}')
        curl = ["curl", "-sS", "--noproxy", "*", "--cacert", str(tmp_path / "c.pem")]
        open_to = ["-o", os.devnull, "-w", "%{http_code}", one.url]
        for more, status in ((["-u", "prometheus:s3cret"], "200"), ([], "401")):
            done = subprocess.run([*curl, *more, *open_to], capture_output=True, text=True)
            assert done.stdout == status, done.stderr
