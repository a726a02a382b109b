"""What the monitor makes of answers: of slurmrestd's, and of those that are damaged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm.api.rest_client import RestClient
from slurm.errors import RestRefused
from slurm.monitor import queue, sharing
from slurm.monitor.controller import parse_controller
from slurm.monitor.measure import Caps, measure
from slurm.monitor.nodes import parse_nodes, parse_state
from slurm.monitor.queue import parse_queue
from slurm.monitor.rest import RestSource, controller_of, job_line, node_lines, partitions_of
from slurm.monitor.snapshot import Snapshot
from slurm.monitor.source import _partitions

RECORDED = Path(__file__).parent / "recorded"
END = "\x1f\x1e\n"
#: A row of an array's rest that waits, and a node that is free.
JOB = "\x1f".join(
    (
        *("7_[0-9%2]", "PENDING", "Priority", "ann", "lab", "main,long", "normal", "2", "1-1"),
        *("cpu=2,mem=1G,gres/gpu:a100=1", "100", "110", "N/A", "N/A", "1:00:00", "9", "0", ""),
        "train",
    )
)
NODE = "\x1f".join(
    (
        *("n1", "idle", "0/8/0/8", "0.5", "4000", "0", "N/A", "gpu:a100:4(S:0-1)", "gpu:a100:0"),
        *("26.05", "main*", "Unknown", "none"),
    )
)
#: What terminals, encodings and printf make of text; surrogates are bytes that were no UTF-8.
ODD = st.text(st.sampled_from("\x1f\x1e\n\t\0 ,:/+_[]()%-.=|0129aZ²٣é\udcff\udc80"), max_size=60)


# ---- damaged rows -------------------------------------------------------------------------------


@given(st.lists(ODD), ODD)
def test_no_row_of_squeue_breaks_the_others(odd: list[str], name: str) -> None:
    mark = queue.new_mark()
    end = f"\x1f\x1e{mark}\n"
    good = JOB.removesuffix("train") + name
    rows, bad = parse_queue("".join(line + end for line in [*odd, good]), {}, mark)
    assert rows[good].tasks == 10
    assert rows[good].name == name
    assert len(rows) + bad <= len(odd) + 1


@given(st.integers(0, 17), ODD)
def test_a_field_of_a_job_may_hold_anything(place: int, odd: str) -> None:
    fields = JOB.split("\x1f")
    fields[place] = odd
    rows, bad = parse_queue("\x1f".join(fields) + END, {})
    assert len(rows) + bad >= 1
    # What was read can be served.
    measure(Snapshot(0.0, rows=rows), Caps(jobs=5))


@given(st.integers(0, 12), ODD)
def test_a_field_of_a_node_may_hold_anything(place: int, odd: str) -> None:
    fields = NODE.split("\x1f")
    fields[place] = odd
    found, bad = parse_nodes(NODE + END + "\x1f".join(fields) + END)
    assert found[0].name == "n1"
    # What looks like the end of a row makes two of one, also together with what follows it.
    assert bad <= 1 + odd.count(END[0])


@given(st.integers(1, 18))
def test_a_row_that_is_cut_short_is_counted(length: int) -> None:
    cut = "\x1f".join(JOB.split("\x1f")[:length])
    assert parse_queue(JOB + END + cut + END, {})[1] == 1
    cut = "\x1f".join(NODE.split("\x1f")[: min(length, 12)])
    assert parse_nodes(NODE + END + cut + END)[1] == 1


@given(ODD)
def test_other_answers_may_hold_anything(odd: str) -> None:
    good = "main*\x1fup\x1f1:00:00\x1fNONE\x1f0/4/0/4\x1f0/32/0/32"
    found, _ = _partitions(f"{odd}\n{good}\n")
    assert found[-1].name == "main"
    parse_controller(f"Server thread count: 3\n{odd}\n")
    parse_state(odd)
    assert sharing.parse_shares(f"{odd}\nlab|ann|0.5|10|0.1|0.9\n")[-1].user == "ann"
    sharing.parse_licences(f"{odd}\nLicenseName=a Total={odd} Used=9{'9' * 400}\n")
    sharing.parse_reservations(f"ReservationName=a StartTime={odd} EndTime=9 NodeCnt={odd}\n")
    sharing.accounting_lag(odd, {"1": 5}, 9)


def test_a_list_of_tasks_that_was_cut_counts_what_is_left_of_it() -> None:
    cut = JOB.replace("7_[0-9%2]", "7_[1,3,5,1...]")
    rows, bad = parse_queue(cut + END, {})
    assert bad == 0
    assert rows[cut].tasks == 3


# ---- slurmrestd ---------------------------------------------------------------------------------


class _Told(RestClient):
    """slurmrestd's recorded answers; the real one is asked in tests/stack."""

    def __init__(self, answers: dict[str, Any]) -> None:
        super().__init__("http://127.0.0.1:1")
        self.answers = answers

    def call(self, method: str, path: str, **more: Any) -> dict[str, Any]:
        if more.get("plugin") == "slurmdb":
            steps = [value for name, value in more["query"] if name == "step"]
            over = {"current": ["FAILED"]}
            return {"jobs": [{"job_id": int(steps[0]), "state": over, "time": {}}]}
        if path.strip("/") not in self.answers:
            raise RestRefused("no", number=1, status=500)
        return dict(self.answers[path.strip("/")])


@pytest.fixture
def answers() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((RECORDED / "26.05" / "monitor-rest.json").read_text())
    return found


def test_a_snapshot_of_slurmrestd_is_that_of_the_commands(answers: dict[str, Any]) -> None:
    source = RestSource(_Told(answers), 1.0)
    found = source.often(None)
    assert found.unreadable == {"jobs": 0, "nodes": 0, "partitions": 0}
    jobs = found.jobs
    assert {job: (row.state, row.tasks) for job, row in jobs.items()} == {
        "1": ("COMPLETED", 1),
        "2": ("RUNNING", 1),
        "3_[0-98:2%5]": ("PENDING", 50),
        "4": ("FAILED", 1),
        "5": ("PENDING", 1),
    }
    assert (jobs["2"].limit, jobs["1"].limit) == (None, 60)
    assert (jobs["2"].start, jobs["2"].end, jobs["2"].memory) == (1794856409, None, 20 << 20)
    assert jobs["5"].eligible is None and jobs["5"].reason == "JobHeldUser"
    [one, two] = found.nodes
    assert (one.state, one.idle_cpus, one.allocated_cpus) == ("mixed", 1, 1)
    assert (two.state, two.flags, two.idle_cpus, two.reason) == ("idle", ("drain",), 0, "bad disk")
    assert two.since == 1794856408 and two.load == 8.04
    [main] = found.partitions
    assert (main.available, main.cpus, main.other_cpus) == ("up", 4, 2)
    assert found.controller.numbers["main_max_cycle_seconds"] == 0.001176
    assert found.controller.by_type["REQUEST_SUBMIT_BATCH_JOB"].count == 4
    # An unchanged row is the same object, which makes no event.
    again = source.often(found)
    assert all(again.rows[text] is row for text, row in found.rows.items())
    rare = source.seldom(found)
    assert rare.shares is not None and rare.reservations is not None
    assert [(s.account, s.user, s.factor) for s in rare.shares] == [
        ("root", "", None),
        ("root", "root", 1.0),
    ]
    assert [(r.name, r.state, r.nodes) for r in rare.reservations] == [("maint", "inactive", 1)]
    # One of the two that ended is known to accounting.
    assert rare.accounting_lag == found.controller.now - jobs["1"].end  # type: ignore[operator]


def test_what_slurmrestd_does_not_tell_is_a_gap(answers: dict[str, Any]) -> None:
    del answers["shares"]
    source = RestSource(_Told(answers), 1.0)
    rare = source.seldom(source.often(None))
    assert rare.shares is None
    assert rare.licences == ()


@given(
    st.recursive(
        st.none() | st.integers() | st.floats() | ODD | st.booleans(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ODD, inner, max_size=3),
        max_leaves=5,
    ),
    st.data(),
)
def test_a_value_of_slurmrestd_may_be_anything(value: Any, data: st.DataObject) -> None:
    answers = json.loads((RECORDED / "26.05" / "monitor-rest.json").read_text())
    job, node = answers["jobs"]["jobs"][1], answers["nodes"]["nodes"][0]
    part, said = answers["partitions"]["partitions"][0], answers["diag"]["statistics"]
    for row in (job, node, part, said):
        row[data.draw(st.sampled_from(sorted(row)))] = value
    queue.read_rows([job_line(job)], {})
    list(node_lines(node))
    partitions_of([part], [node])
    controller_of(said)
