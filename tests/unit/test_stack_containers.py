"""Containers as values: what makes one new, files that change as one, upgrades that are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurm.cli.cluster_life import Asked
from slurm.errors import ConfigError, StackError
from slurm.stack import switch
from slurm.stack.change import check_upgrade
from slurm.stack.containers import containers
from slurm.stack.life import check_same
from slurm.stack.plan import container_plan
from slurm.stack.read import parse_topology
from slurm.stack.record import Record, find, load
from slurm.stack.site import Gpu, Site

HERE = Path("/srv/lab")


def specs(text: str) -> dict[str, str]:
    plan = container_plan(parse_topology(text), Site())
    return {c.service: c.spec for c in containers(plan, HERE)}


def changed(text: str) -> set[str]:
    before, after = specs(""), specs(text)
    return {name for name in before if before[name] != after.get(name)}


def test_services_come_up_in_the_order_in_which_slurm_needs_them() -> None:
    names = list(specs("[rest]\nenabled = true\n"))
    assert names[:3] == ["mysql", "slurmdbd", "slurmctld"]
    assert names[3:5] == ["slurmd-n1", "slurmd-n2"]
    assert set(names[5:]) == {"login", "slurmrestd"}


def test_one_more_node_leaves_every_other_container_as_it_is() -> None:
    assert changed('[[nodes]]\nnames = "n[1-3]"\n') == set()


def test_nodes_of_another_size_and_one_more_service_leave_all_others_as_they_are() -> None:
    text = '[[nodes]]\nnames = "n[1-2]"\nmemory = "3GiB"\n[rest]\nenabled = true\n'
    assert changed(text) == {"slurmd-n1", "slurmd-n2"}


def test_a_key_that_daemons_read_only_at_their_start_makes_them_new_but_not_the_database() -> None:
    touched = changed('[conf]\nslurm = ["SelectTypeParameters=CR_CPU_Memory"]\n')
    assert {"slurmctld", "slurmd-n1", "slurmd-n2"} <= touched
    assert not touched & {"mysql", "login"}


def test_a_key_that_daemons_read_again_makes_nobody_new() -> None:
    assert changed('[conf]\nslurm = ["MessageTimeout=33"]\n') == set()


def created(text: str, service: str, site: Site) -> tuple[str, ...]:
    plan = container_plan(parse_topology(text), site)
    return next(c.create for c in containers(plan, HERE) if c.service == service)


def test_each_engine_is_given_a_nodes_own_gpus_in_its_own_words() -> None:
    site = Site(gpus=tuple(Gpu("nvidia", "h200", f"/dev/nvidia{n}") for n in range(2)))
    words = created("", "slurmd-n1", site)
    assert [words[n + 1] for n, word in enumerate(words) if word == "--device"] == [
        "nvidia.com/gpu=0",
        "nvidia.com/gpu=1",
    ]
    words = created('engine = "docker"\n', "slurmd-n1", site)
    assert words[words.index("--gpus") + 1] == '"device=0,1"'
    assert "--gpus" not in created('engine = "docker"\n', "slurmd-n2", site)


def test_a_cluster_does_without_grafana_where_its_image_cannot_be_had() -> None:
    topology = parse_topology("[monitoring]\nenabled = true\n")
    plan = container_plan(topology, Site(without=("grafana",)))
    assert "grafana" not in [c.service for c in containers(plan, HERE)]
    assert any("no grafana" in notice for notice in plan.notices)


def test_what_a_monitoring_service_reads_at_its_start_makes_it_new(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = "[monitoring]\nenabled = true\n"
    before = specs(text)
    monkeypatch.setattr("slurm.stack.monitoring.alert_rules", lambda: "groups: []\n")
    after = specs(text)
    assert {name for name in before if before[name] != after[name]} == {"prometheus"}


def test_a_new_release_leaves_the_database_as_it_is() -> None:
    assert changed('version = "26.05"\n') == set(specs("")) - {"mysql"}


def test_files_change_as_one_and_back(tmp_path: Path) -> None:
    switch.switch(tmp_path, {"slurm.conf": "a=1\n", "gres.conf": "old\n"})
    inode = tmp_path.stat().st_ino
    before = switch.switch(tmp_path, {"slurm.conf": "a=2\n"})
    assert (tmp_path / "slurm.conf").read_text() == "a=2\n"
    assert not (tmp_path / "gres.conf").exists()
    switch.use(tmp_path, before)
    assert switch.texts(tmp_path) == {"slurm.conf": "a=1\n", "gres.conf": "old\n"}
    assert (tmp_path / "gres.conf").read_text() == "old\n"
    # It is mounted: another directory in its place would not be seen.
    assert tmp_path.stat().st_ino == inode


@pytest.mark.parametrize(
    ("old", "new"), [("24.11", "26.05"), ("20.11", "22.05"), ("24.11", "24.11")]
)
def test_an_upgrade_within_the_window_is_accepted(old: str, new: str) -> None:
    check_upgrade(old, new)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("22.05", "24.11", "23.11"),
        ("22.05", "26.05", "23.11"),
        ("26.05", "24.11", "no way back"),
    ],
)
def test_an_upgrade_beyond_the_window_is_refused_with_the_step_between(
    old: str, new: str, words: str
) -> None:
    with pytest.raises(StackError) as caught:
        check_upgrade(old, new)
    assert words in str(caught.value)


def test_a_release_that_does_not_exist_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"26\.5"):
        check_upgrade("24.11", "26.5")


def test_a_record_comes_back_as_it_was_and_a_port_that_was_replaced_stays(tmp_path: Path) -> None:
    (tmp_path / "cluster.toml").write_text('name = "lab"\n[login]\nport = 2200\n')
    record = Record(tmp_path, "lab", "podman", "24.11", Site(subnet="10.213.9.0/24"))
    record.ports["login"] = (2200, 31000)
    record.step("up: slurmctld")
    assert load(tmp_path) == record
    assert record.plan().subnet == "10.213.9.0/24"
    assert record.topology().login.port == 31000
    assert record.topology('name = "lab"\n[login]\nport = 2300\n').login.port == 2300


@pytest.mark.parametrize(("now", "asked"), [("auto", "munge"), ("munge", "slurm")])
def test_how_daemons_know_each_other_cannot_be_changed(
    tmp_path: Path, now: str, asked: str
) -> None:
    record = Record(tmp_path, "lab", "podman", "24.11", Site())
    text = 'name = "lab"\n[auth]\nkind = "{}"\n'
    record.ask_for(text.format(now))
    record.done()
    with pytest.raises(StackError, match=rf"auth\.kind = '{asked}', but") as caught:
        check_same(record, parse_topology(text.format(asked)))
    assert "write auth.kind = " in str(caught.value.hint)
    # What `auto` stands for is no change.
    check_same(record, parse_topology(text.format("slurm" if now == "auto" else now)))


@pytest.mark.parametrize(("version", "half"), [("22.05", "v0.0.38"), ("26.05", "slurmctld")])
def test_slurmrestd_without_slurmdbd_serves_the_half_that_can_be_had(
    version: str, half: str
) -> None:
    text = f'version = "{version}"\n[rest]\nenabled = true\n'
    words = created(f'{text}[database]\nkind = "none"\n', "slurmrestd", Site())
    assert f"SLURMRESTD_OPENAPI_PLUGINS={half}" in words
    assert "OPENAPI" not in " ".join(created(text, "slurmrestd", Site()))


def test_an_unknown_cluster_is_refused_with_the_nearest_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    record = Record(tmp_path, "physics", "podman", "24.11", Site())
    record.register({})
    assert find(None) == tmp_path
    with pytest.raises(StackError, match="physcs") as caught:
        find("physcs")
    assert "physics" in str(caught.value.hint)


def test_the_options_of_up_are_a_topology() -> None:
    asked = Asked("lab", 3, 4, 2000, ("MessageTimeout=33",), False)
    topology = parse_topology(asked.topology("podman"))
    assert (topology.name, topology.engine) == ("lab", "podman")
    assert topology.nodes[0].names == ("n1", "n2", "n3")
    assert (topology.nodes[0].cpus, topology.nodes[0].memory) == (4, 2000)
    assert topology.conf.slurm == ("MessageTimeout=33",)
    assert not topology.accounting
