"""Two schedulers that share a base directory: whose a run is, and whose a job id."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from slurm import rundir
from slurm.api import elsewhere, origin
from slurm.api.agent import Agent
from slurm.api.agent_error import AgentError
from slurm.api.origin import Origin
from slurm.api.slurm_commands import UNANSWERED, JobStatus

EAST = Origin("slurm", "east", "ctl:6817")
WEST = Origin("slurm", "west", "ctl:6817")
LAPTOP = Origin("embedded", "embedded", "laptop", "0123456789abcdef")


class Scheduler:
    """Stands in a scheduler's place: gives ids from 10 on, and remembers what it is asked."""

    kind = "slurm"

    def __init__(self, who: Origin) -> None:
        self.who = who
        self.rows: list[JobStatus] = []
        self.cancelled: list[str] = []
        self.ids = 10

    def identify(self) -> Origin:
        return self.who

    def submit(self, script: str, env: dict[str, str], cwd: str) -> str:
        job, self.ids = str(self.ids), self.ids + 1
        self.add(job, str(Path(script).parent))
        return job

    def add(self, job: str, work_dir: str, state: str = "PENDING", name: str = "train") -> None:
        none = (None, None, None, None, None)
        self.rows.append(JobStatus(job, state, "", "", *none, 0, work_dir, name))

    def status(self, _: Any) -> list[JobStatus]:
        return self.rows

    def cancel(self, ids: list[str]) -> None:
        self.cancelled += ids


def submit(agent: Agent, run: str) -> str:
    agent.prepare_base()
    files = {rundir.SCRIPT: b"#!/bin/sh\n", rundir.METADATA: json.dumps({"task": "f"}).encode()}
    return agent.submit(run, files, 1, 1, {}, "/", [])[0]


@pytest.fixture
def two(tmp_path: Path) -> tuple[Agent, Agent]:
    """A base directory that east and west share, each with its own job 10."""
    east, west = (Agent(Scheduler(who), str(tmp_path / "jobs")) for who in (EAST, WEST))
    assert (submit(east, "of-east"), submit(west, "of-west")) == ("10", "10")
    return east, west


def test_a_run_says_which_scheduler_it_was_given_to(two: tuple[Agent, Agent]) -> None:
    east, _ = two
    found = json.loads(east.read("of-east", rundir.METADATA))
    assert found["task"] == "f"
    assert Origin(**found["scheduler"]) == EAST


@pytest.mark.parametrize("forgotten", [False, True])
def test_one_id_of_two_clusters_is_answered_by_each_with_its_own_run(
    two: tuple[Agent, Agent], forgotten: bool
) -> None:
    for agent, run in zip(two, ("of-east", "of-west"), strict=True):
        if forgotten:
            agent.scheduler.rows.clear()
        assert agent.find_run("10") == run


def test_an_id_that_only_another_scheduler_gave_is_not_answered(two: tuple[Agent, Agent]) -> None:
    third = Agent(Scheduler(LAPTOP), two[0].base)
    with pytest.raises(AgentError) as refused:
        third.find_run("10")
    assert refused.value.kind == "not-found"
    assert "of-east" in refused.value.message and str(EAST) in refused.value.message
    assert "name the run" in str(refused.value.hint)


def test_the_queue_has_the_first_word_on_an_id(two: tuple[Agent, Agent], tmp_path: Path) -> None:
    east, _ = two
    east.scheduler.rows.clear()
    east.scheduler.add("10", str(tmp_path / "elsewhere"), "RUNNING", "raw.sh")
    with pytest.raises(AgentError, match="job 10 is RUNNING for the scheduler, and no run of"):
        east.find_run("10")


def test_a_job_of_another_scheduler_is_not_lost_but_unanswered(two: tuple[Agent, Agent]) -> None:
    east, west = two
    west.scheduler.rows.clear()
    rows = [JobStatus(*row) for row in west.status([("10", "of-east", 0.0), ("10", "of-west", 0)])]
    assert [(row.state, row.work_dir) for row in rows] == [(UNANSWERED, east.path("of-east"))]
    assert str(EAST) in rows[0].reason


def test_each_scheduler_is_asked_about_its_own_runs(two: tuple[Agent, Agent]) -> None:
    east, west = two
    east.others = lambda made: [west.scheduler]
    asked = [("10", "of-west", 0.0), ("10", "of-east", 0.0)]
    assert {JobStatus(*row).work_dir for row in east.status(asked)} == {
        east.path("of-west"),
        east.path("of-east"),
    }
    assert east.request("cancel", [("10", "of-west")]) == ["10"]
    assert (east.scheduler.cancelled, west.scheduler.cancelled) == ([], ["10"])
    told = east.run_states([("of-west", "10", 0.0), ("of-east", "10", 0.0)])
    assert {run: one["states"] for run, one in told.items()} == {
        "of-west": {"PENDING": 1},
        "of-east": {"PENDING": 1},
    }


def test_a_request_for_a_job_of_a_scheduler_that_is_not_here_says_so(
    two: tuple[Agent, Agent],
) -> None:
    with pytest.raises(AgentError, match="belongs to Slurm cluster west of ctl") as refused:
        two[0].request("cancel", [("10", "of-west")])
    assert refused.value.kind == "unreachable"


def test_a_run_that_another_scheduler_may_still_run_is_not_removed(
    two: tuple[Agent, Agent],
) -> None:
    east, _ = two
    east.scheduler.rows.clear()
    kept = dict(east.remove_runs(["of-east", "of-west"]))
    assert set(kept) == {"of-west"}
    assert not Path(east.path("of-east")).exists()


def test_a_run_without_a_word_about_its_scheduler_is_ours(two: tuple[Agent, Agent]) -> None:
    east, _ = two
    Path(east.path("of-west"), rundir.METADATA).write_text("{}")
    assert elsewhere.agent_of(east, east.path("of-west")) is east


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("ClusterName=East\nSlurmctldHost=ctl(10.0.0.1)\n", EAST),
        ("# ClusterName=no\nclustername=east # yes\nControlMachine=ctl\nSlurmctldPort=7000", None),
        ("Include other.conf\nClusterName=east\n", ...),
    ],
)
def test_a_cluster_is_known_by_its_slurm_conf(text: str, found: Any, tmp_path: Path) -> None:
    conf = tmp_path / "slurm.conf"
    conf.write_text(text)
    wanted = {None: EAST._replace(controller="ctl:7000"), ...: None}.get(found, found)
    assert origin.of_conf(str(conf)) == wanted


def test_what_is_not_known_of_a_scheduler_tells_nothing_apart() -> None:
    assert EAST.is_same(Origin("slurm", "east", "ctl"))
    assert EAST.is_same(Origin("slurm", "", ""))
    assert not EAST.is_same(Origin("slurm", "east", "other"))
    assert not LAPTOP.is_same(LAPTOP._replace(instance="fedcba"))
    assert not LAPTOP.is_same(EAST)
