"""What another host gets, and where runs that need shared files may not go; pure parts."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from test_topology_files import ADA, plan

from slurm.api import unshared
from slurm.stack.hosts import host_files, joining_hosts, project
from slurm.stack.plan import Plan, container_plan
from slurm.stack.read import parse_topology
from slurm.stack.render import rendered
from slurm.stack.site import Gpu
from slurm.stack.yaml import plain

APART = """
[network]
address = "10.1.1.1"
[[hosts]]
name = "nas-1"
address = "10.1.1.2"
platform = "qnap"
shared = false
storage = "/share/slurm"
[[nodes]]
names = "n1"
[[nodes]]
names = "q[1-3]"
host = "nas-1"
"""


@pytest.fixture
def apart() -> Plan:
    return container_plan(parse_topology(APART), ADA)


def test_each_other_host_has_a_project_of_its_own_and_the_first_has_none_of_its_nodes() -> None:
    found = plan("reference-site")
    names = {host.name: set(project(found, host)["services"]) for host in joining_hosts(found)}
    assert names == {
        "macbook": {"slurmd-macbook"},
        "nas1": {"slurmd-qnap1"},
        "nas2": {"slurmd-qnap2"},
    }
    assert "macbook" not in rendered(found)["docker-compose.yml"].text.replace(
        "slurmd-macbook:", ""
    )


def test_nodes_of_one_host_share_its_network_and_their_ports_are_published_once(
    apart: Plan,
) -> None:
    (host,) = joining_hosts(apart)
    services = plain(project(apart, host))["services"]  # type: ignore[index]
    assert services["slurmd-q1"]["ports"] == [
        "10.1.1.2:6830-6832:6830-6832",
        "10.1.1.2:60001-60120:60001-60120",
    ]
    assert services["slurmd-q2"]["network_mode"] == "service:slurmd-q1"
    assert "ports" not in services["slurmd-q2"] and services["slurmd-q2"]["extra_hosts"] == []
    assert [s["environment"]["SLURM_NODE_PORT"] for s in services.values()] == [
        "6830",
        "6831",
        "6832",
    ]


def test_ports_for_srun_are_shared_out_among_the_containers_of_the_first_host(apart: Plan) -> None:
    low, high = apart.srun_ports("login")
    assert (low, high) == (60001, 60060)
    assert apart.srun_ports("slurmd-n1") == (60061, 60120)


def test_gpus_that_were_found_on_another_host_are_those_of_its_first_node() -> None:
    h200 = (Gpu("nvidia", "h200", "/dev/nvidia0"), Gpu("nvidia", "h200", "/dev/nvidia1"))
    site = replace(ADA, joined_gpus={"nas-1": h200})
    plan = container_plan(parse_topology(APART), site)
    assert [node.gpus for node in plan.nodes] == [(), h200, (), ()]
    files = rendered(plan)
    assert "GresTypes=gpu" in files["shared/slurm.conf"].text
    assert "NodeName=q1" in files["shared/gres.conf"].text
    (host,) = joining_hosts(plan)
    words = project(plan, host)["services"]["slurmd-q1"]["environment"]["SLURM_NODE_WORDS"]
    assert "Gres=gpu:h200:2" in words


def test_a_nas_keeps_what_it_has_below_its_storage_and_has_no_quota(apart: Plan) -> None:
    (host,) = joining_hosts(apart)
    node = project(apart, host)["services"]["slurmd-q1"]
    assert node["volumes"] == ["/share/slurm/spool-q1:/var/spool/slurmd"]
    assert node["cpus"] == 0
    script = host_files(apart)["hosts/nas-1/join.sh"]
    assert "--cpus" not in script and "/share/slurm/spool-q1" in script


def test_the_script_of_a_host_is_one_that_a_shell_can_read(apart: Plan, tmp_path: Path) -> None:
    for name, text in {**host_files(apart), **host_files(plan("reference-site"))}.items():
        if name.endswith("join.sh"):
            file = tmp_path / "join.sh"
            file.write_text(text)
            subprocess.run(["sh", "-n", str(file)], check=True, timeout=60)
            assert "@" not in text.replace("$@", "")


# ---- where files are not ------------------------------------------------------------------------


def expand(names: str) -> list[str]:
    assert names == "q[1-2]"
    return ["q1", "q2"]


@pytest.mark.parametrize(
    "script",
    [
        "#SBATCH --partition=nas_1\n",
        "#SBATCH --partition=main,nas_1\n",
        "#SBATCH --nodelist=n1,q3\n",
        "#SBATCH --nodelist=q[1-2]\n",
    ],
)
def test_a_run_is_not_sent_to_where_its_files_are_not(apart: Plan, script: str) -> None:
    known = json.loads(rendered(apart)["shared/noshared.json"].text)
    why = unshared.why_not(known, f"#!/bin/sh\n{script}", {}, expand)
    assert why is not None and "is on nas-1, which does not have /home" in why


def test_a_run_goes_everywhere_else(apart: Plan) -> None:
    known = json.loads(rendered(apart)["shared/noshared.json"].text)
    assert unshared.why_not(known, "#SBATCH --partition=main\necho nas_1\n", {}, expand) is None
    assert unshared.why_not(known, "", {"SBATCH_PARTITION": "nas_1"}, expand) is not None
    own = "#SBATCH --partition=main\n"
    assert unshared.why_not(known, own, {"SBATCH_PARTITION": "nas_1"}, expand) is None


def test_a_cluster_whose_hosts_all_share_has_no_such_file(tmp_path: Path) -> None:
    assert "shared/noshared.json" not in rendered(plan("reference-site"))
    assert unshared.known({"SLURM_CONF": str(tmp_path / "slurm.conf")}) is None
