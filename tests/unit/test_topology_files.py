"""Topology -> every file of a cluster, compared with recorded ones that a person has read."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from slurm.monitor.alerts import FILE_NAME
from slurm.monitor.dashboards import dashboard_files
from slurm.stack import confcheck
from slurm.stack.compose import compose
from slurm.stack.hosts import joining_hosts, project
from slurm.stack.monitoring import exporter_files
from slurm.stack.plan import Plan, container_plan, subnets
from slurm.stack.read import parse_topology, read_topology
from slurm.stack.render import rendered, write
from slurm.stack.site import Gpu, Site
from slurm.stack.topology import Topology, User
from slurm.stack.versions import SUITES

GOLDEN = Path(__file__).parent / "golden_clusters"
EXAMPLE = Path(__file__).parents[2] / "examples" / "reference-site" / "cluster.toml"
UPDATE = "UPDATE_GOLDEN"
ADA = Site(user=User("ada", 1000))
TWO_H200 = tuple(Gpu("nvidia", "h200", f"/dev/nvidia{n}") for n in range(2))

TOPOLOGIES = {
    "default": "",
    "two-controllers": """
        name = "ha"
        [controller]
        backup = true
        takeover = "30s"
        state = "/srv/state"
        """,
    "rest-and-tokens": """
        name = "api"
        version = "26.05"
        engine = "docker"
        [auth]
        kind = "slurm"
        [rest]
        enabled = true
        [login]
        enabled = true
        [monitoring]
        enabled = true
        [[users]]
        name = "ada"
        uid = 1000
        admin = true
        ssh_key = "ssh-ed25519 AAAA ada"
        [[qos]]
        name = "short"
        max_time = "1h"
        max_jobs = 10
        [[accounts]]
        name = "physics"
        users = ["ada"]
        qos = ["normal", "short"]
        """,
    "external-database": """
        name = "ext"
        version = "22.05"
        [database]
        kind = "external"
        host = "db.example.org"
        """,
    "gpus": """
        name = "gpus"
        [[nodes]]
        names = "g1"
        [[nodes]]
        names = "g[2-3]"
        gpus = "a100:2"
        """,
}


def plan(case: str) -> Plan:
    if case == "reference-site":
        return container_plan(read_topology(EXAMPLE), Site(user=ADA.user, gpus=TWO_H200))
    site = Site(user=ADA.user, gpus=TWO_H200) if case == "gpus" else ADA
    return container_plan(parse_topology(TOPOLOGIES[case]), site)


CASES = ["reference-site", *TOPOLOGIES]
#: Files that are the same for every cluster.
ALWAYS = {
    f"prometheus/rules/{FILE_NAME}",
    *(f"grafana/dashboards/{name}" for name in dashboard_files()),
    *(f"exporter/{name}" for name in exporter_files()),
}


#: What changes with every word of an image's content: its name, and the mark of what has it.
_CONTENT = re.compile(r"(localhost/slurm-sdk/\S+-|slurm-sdk\.spec=)(?:[0-9a-f]{16}|[0-9a-f]{12})")


def shown(case: str) -> dict[str, str]:
    """The files as they are recorded."""
    files = rendered(plan(case))
    return {
        name: _CONTENT.sub(r"\1CONTENT", file.text)
        for name, file in files.items()
        if name not in ALWAYS and Path(name).name not in ("Containerfile", "entrypoint.sh")
    }


@pytest.mark.parametrize("case", CASES)
def test_the_files_of_a_cluster_are_the_recorded_ones(case: str) -> None:
    files = shown(case)
    if os.environ.get(UPDATE):
        for name, text in files.items():
            (GOLDEN / case / name).parent.mkdir(parents=True, exist_ok=True)
            (GOLDEN / case / name).write_text(text)
    recorded = {
        str(path.relative_to(GOLDEN / case)): path.read_text()
        for path in (GOLDEN / case).rglob("*")
        if path.is_file()
    }
    assert files == recorded, f"run the tests with {UPDATE}=1 where the change is meant"


@pytest.mark.parametrize("version", SUITES)
@pytest.mark.parametrize("case", CASES)
def test_no_release_gets_a_key_that_it_does_not_know(case: str, version: str) -> None:
    # rendered() raises for any.
    text = TOPOLOGIES[case] if case in TOPOLOGIES else EXAMPLE.read_text()
    topology = parse_topology(re.sub(r'\bversion = ".*"', "", text).replace('kind = "slurm"', ""))
    again = Topology(**{**vars(topology), "version": version})
    files = rendered(container_plan(again, Site(gpus=TWO_H200)))
    assert f"# Slurm {version}," in files["shared/slurm.conf"].text


def test_a_release_gets_the_keys_that_are_its_own() -> None:
    old = rendered(container_plan(parse_topology('version = "22.05"'), ADA))
    new = rendered(container_plan(parse_topology('version = "26.05"'), ADA))
    assert "AuthType=auth/munge" in old["shared/slurm.conf"].text
    assert "AuthType=auth/slurm" in new["shared/slurm.conf"].text
    assert "CgroupAutomount=no" in old["shared/cgroup.conf"].text
    assert "CgroupAutomount" not in new["shared/cgroup.conf"].text
    assert "EnvExclude" not in old["shared/oci.conf"].text
    assert "EnvExclude" in new["shared/oci.conf"].text


@pytest.mark.parametrize("case", CASES)
def test_no_secret_and_no_password_is_in_any_file(case: str) -> None:
    for name, file in rendered(plan(case)).items():
        known = Path(name).name in ("entrypoint.sh", "make-secrets.sh")
        if not known and "exporter/" not in name:
            assert "StoragePass" not in file.text, name
            assert not re.search(r"(?i)\bpassword\s*[=:]\s*\S", file.text), name


def test_the_exporter_is_whole_and_needs_nothing_but_python(tmp_path: Path) -> None:
    write(tmp_path, rendered(plan("reference-site")))
    (tmp_path / "sbatch").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "sbatch").chmod(0o755)
    environment = {"PATH": str(tmp_path), "PYTHONPATH": str(tmp_path / "exporter")}
    # Without the packages of this environment, and without the SDK that is installed in it.
    words = [sys.executable, "-S", "-B", "-m", "slurm.monitor", "serve", "--port", "0"]
    exporter = subprocess.Popen(words, env=environment, cwd="/", stderr=subprocess.PIPE, text=True)
    assert exporter.stderr is not None
    with exporter:
        said = exporter.stderr.readline()
        exporter.terminate()
    assert said.startswith("serving http://"), said


def test_slurmdbd_conf_is_mounted_in_slurmdbd_alone_and_not_in_the_shared_folder() -> None:
    files = rendered(plan("default"))
    assert "shared/slurmdbd.conf" not in files
    services = compose(plan("default"))["services"]
    users = [name for name, s in services.items() if "./slurmdbd" in str(s.get("volumes"))]
    assert users == ["slurmdbd"]
    with_password = [n for n, s in services.items() if "database_password" in s.get("secrets", [])]
    assert with_password == ["mysql", "slurmdbd"]
    with_jwt = [n for n, s in services.items() if "jwt_hs256.key" in s.get("secrets", [])]
    assert with_jwt == ["slurmdbd", "slurmctld"]


def test_the_configuration_is_mounted_read_only_and_state_lies_on_volumes() -> None:
    services = compose(plan("reference-site"))["services"]
    for name in ("slurmctld", "slurmd-ubuntu", "login"):
        assert "./shared:/etc/slurm:ro" in services[name]["volumes"]
    assert "state:/var/lib/slurm/state" in services["slurmctld"]["volumes"]
    assert "database:/var/lib/mysql" in services["mysql"]["volumes"]


def test_every_service_has_a_fixed_address_of_its_own_within_the_subnet() -> None:
    found = plan("reference-site")
    addresses = [
        service["networks"]["slurm-net"]["ipv4_address"]
        for service in compose(found)["services"].values()
    ]
    assert len(set(addresses)) == len(addresses) == 10
    assert all(address.startswith("10.213.10.") for address in addresses)


def test_an_address_stays_when_a_service_comes_or_goes() -> None:
    small = plan("default").addresses
    large = container_plan(parse_topology("[login]\nenabled = true\n[rest]\nenabled = true"), ADA)
    assert {name: large.addresses[name] for name in small} == small


def test_subnets_begin_where_the_name_says_and_have_room_for_the_nodes() -> None:
    assert next(subnets("lab", 4)) == next(subnets("lab", 4)) != next(subnets("lab2", 4))
    assert len(set(subnets("lab", 4))) == 256
    assert next(subnets("lab", 600)).endswith("/22")


def test_what_is_published_is_published_on_loopback_unless_asked() -> None:
    services = compose(plan("rest-and-tokens"))["services"]
    ports = [port for service in services.values() for port in service.get("ports", [])]
    assert len(ports) == 4
    assert all(port.startswith("127.0.0.1:") for port in ports)
    inside = [name for name, service in services.items() if "slurm-edge" not in service["networks"]]
    assert {"mysql", "slurmdbd", "slurmctld", "slurm-exporter", "slurmd-n1"} <= set(inside)


def test_podman_waits_for_started_services_because_it_runs_no_health_checks() -> None:
    podman = compose(plan("default"))["services"]["slurmctld"]["depends_on"]
    docker = compose(plan("rest-and-tokens"))["services"]["slurmctld"]["depends_on"]
    assert podman == {"slurmdbd": {"condition": "service_started"}}
    assert docker == {"slurmdbd": {"condition": "service_healthy"}}


def test_a_node_offers_less_memory_than_its_container_may_use() -> None:
    found = plan("default")
    limits = compose(found)["services"]["slurmd-n1"]
    assert limits["mem_limit"] == "2048m" and limits["cpus"] == found.nodes[0].cpus == 2
    assert found.nodes[0].memory == 1920


def test_two_nodes_of_one_host_never_have_the_same_gpu() -> None:
    files = [gpu.file for node in plan("gpus").nodes for gpu in node.gpus]
    assert len(set(files)) == len(files) == 6
    auto = parse_topology('[[nodes]]\nnames = "n[1-2]"\n')
    first, second = container_plan(auto, Site(gpus=TWO_H200)).nodes
    assert len(first.gpus) == 2 and second.gpus == ()


def test_gpus_are_detected_by_slurm_itself_where_the_release_can() -> None:
    assert "NodeName=g1 AutoDetect=nvidia" in shown("gpus")["shared/gres.conf"]
    old = container_plan(parse_topology('version = "22.05"'), Site(gpus=TWO_H200))
    text = rendered(old)["shared/gres.conf"].text
    assert "NodeName=n1 Name=gpu Type=h200 File=/dev/nvidia[0-1]" in text


def test_a_host_without_the_shared_directory_has_a_partition_of_its_own() -> None:
    text = EXAMPLE.read_text().replace('platform = "mac"', 'platform = "mac"\nshared = false')
    found = container_plan(parse_topology(text), ADA)
    lines = rendered(found)["shared/slurm.conf"].text.splitlines()
    (debug,) = (line for line in lines if line.startswith("PartitionName=debug"))
    assert "Nodes=ubuntu,joined_qnap1,joined_qnap2 " in debug
    assert "PartitionName=macbook Nodes=noshared_macbook MaxTime=INFINITE State=UP" in lines
    (macbook,) = (host for host in joining_hosts(found) if host.name == "macbook")
    node = project(found, macbook)["services"]["slurmd-macbook"]
    assert "/home" not in str(node["volumes"])
    assert "Feature=macbook,arm64,noshared" in node["environment"]["SLURM_NODE_WORDS"]
    assert any("macbook has no shared directory" in notice for notice in found.notices)


def test_where_a_host_has_no_cgroups_it_is_said_and_none_are_used() -> None:
    found = plan("reference-site")
    assert any("nas1, nas2 cannot" in notice for notice in found.notices)
    assert "ProctrackType=proctrack/linuxproc" in rendered(found)["shared/slurm.conf"].text
    assert "privileged" not in compose(found)["services"]["slurmd-ubuntu"]


def test_the_platform_chooses_the_override() -> None:
    def env(platform: str) -> str:
        return rendered(plan("default"), platform)[".env"].text

    assert "COMPOSE_FILE=docker-compose.yml\n" in env("ubuntu")
    assert "docker-compose.yml:docker-compose.override.mac.yml" in env("mac")
    assert "docker-compose.yml:docker-compose.override.qnap.yml" in env("qnap")


def test_writing_twice_changes_nothing_and_leaves_other_files_alone(tmp_path: Path) -> None:
    files = rendered(plan("default"))
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "slurm.key").write_text("mine")
    assert set(write(tmp_path, files)) == set(files)
    assert write(tmp_path, files) == []
    assert (tmp_path / "secrets" / "slurm.key").read_text() == "mine"
    assert stat.S_IMODE((tmp_path / "secrets").stat().st_mode) == 0o700
    assert os.access(tmp_path / "entrypoint.sh", os.X_OK)


def test_recorded_files_pass_the_validator_of_their_release() -> None:
    for case in CASES:
        files = {Path(name).name: text for name, text in shown(case).items()}
        assert confcheck.check_files(files, plan(case).version) == []
