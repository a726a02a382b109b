"""What a crash leaves in Slurm's books: told from what is right, and put right."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from slurm.stack import mend
from slurm.stack.engine import Said
from slurm.stack.fleet import Fleet


def ago(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(time.time() - seconds))


class Books(Fleet):
    """A slurmctld's answers, and what was asked of it."""

    def __init__(self) -> None:
        self.rows = [
            f"11  10_1  n1  {ago(100)}  1",
            f"12  10_2  n1  {ago(100)}  1",
            f"13  13    n1  {ago(100)}  0",
            f"14  14    n2  {ago(100)}  1",
        ]
        self.present = {"n1": "slurmstepd: [11\nSLURM_JOB_ID=11\nasked\n"}
        self.waiting = "20_1|Resources\n20_2|launch failed requeued held\n"
        self.drained = {"n1": "Duplicate jobid", "n2": "broken disk"}
        self.once: set[str] = set()
        self.asked: list[str] = []

    def ask(self, *words: str, patience: float = 0) -> Said:
        if words[0] == "squeue":
            waiting = "--states=PENDING" in words
            return Said(0, self.waiting if waiting else "\n".join(self.rows))
        self.asked.append(" ".join(words))
        return Said(int(words[1] == "requeue" and words[2] in self.once), "")

    def inside(self, node: str, *words: str) -> Said:
        return Said(0, self.present[node]) if node in self.present else Said(125, "no such node")

    def reasons(self) -> dict[str, str]:
        return self.drained


def test_only_batch_jobs_without_a_process_on_a_node_that_answers_are_nobodys() -> None:
    left = mend.look(Books())
    assert left == mend.Left(unmanned=("10_2",), nodes=("n1",), held=("20_2",))


def test_a_prolog_that_still_runs_is_somebody() -> None:
    books = Books()
    books.present["n1"] += "SLURM_JOB_ID=12\n"
    assert mend.look(books).unmanned == ()


def test_a_job_that_has_just_begun_is_waited_for() -> None:
    books = Books()
    books.rows[1] = f"12  10_2  n1  {ago(0)}  1"
    left = mend.look(books)
    assert (left.unmanned, left.unsure) == ((), True)


def test_status_names_all_of_it_and_the_command() -> None:
    (note,) = mend.look(Books()).notes(Path("/srv/lab"))
    for words in ("nobody works on 10_2", "took n1 out", "holds 20_2", "up --dir /srv/lab"):
        assert words in note
    assert mend.Left().notes(Path("/srv/lab")) == ()


@pytest.mark.parametrize("may_be_requeued", [True, False])
def test_jobs_go_back_into_the_queue_or_end_and_nodes_serve_again(may_be_requeued: bool) -> None:
    books = Books()
    books.once = set() if may_be_requeued else {"10_2"}
    said = mend.mend(books)
    ended = [line for line in books.asked if line.startswith("scancel")]
    assert ended == ([] if may_be_requeued else ["scancel 10_2"])
    assert ("ended" in said[0]) is not may_be_requeued
    assert "scontrol update nodename=n1 state=RESUME" in books.asked
    assert "scontrol release 20_2" in books.asked
    assert not any("n2" in line for line in books.asked)
