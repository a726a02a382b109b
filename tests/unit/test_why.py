"""Why a job waits or failed: every reason and every failure has an answer and a fix."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest

from slurm import errors
from slurm.api.reasons import parse_limits, parse_one, waiting_in
from slurm.why import Ended, explain_failure, explain_pending
from slurm.why.limits import limit_kind
from slurm.why.pending import row_of

REASONS = (Path(__file__).parent / "recorded" / "reasons.txt").read_text().split()
NAMES = {"job": "25", "array": "25", "run": "train-20260101-120000-aaaaaa"}
NOW = 1_000_000.0


def job(**fields: str) -> dict[str, str]:
    plain = {
        "JobId": "25", "Account": "lab", "QOS": "tight", "UserId": "ada(1000)", "NumNodes": "1",
        "TRES": "cpu=2,mem=50M,node=1,billing=2", "TimeLimit": "00:20:00", "StartTime": "Unknown",
    }  # fmt: skip
    return {**plain, **fields}


def why(reason: str, **facts: Any) -> Any:
    facts.setdefault("job", job())
    return explain_pending(reason, facts, NAMES, NOW)


@pytest.mark.parametrize("reason", REASONS)
def test_every_reason_of_slurm_is_said_in_english(reason: str) -> None:
    answer = why(reason)
    assert answer.text and answer.text.endswith(".")
    assert row_of(reason) is not None or limit_kind(reason) is not None
    assert all("{" not in fix.command for fix in answer.fixes)
    assert answer.fixes or answer.waits, "what never starts by itself has a fix"


def test_a_reason_that_nobody_knows_is_shown_as_it_is() -> None:
    assert "'PhaseOfTheMoon'" in why("PhaseOfTheMoon").text


QOS = (
    "QOS=tight(2) UsageRaw=0.0 GrpJobs=N(1) GrpSubmitJobs=N(2) GrpWall=N(0.00) "
    "GrpTRES=cpu=3(2),mem=N(50),gres/gpu=2(2) GrpTRESMins=cpu=1000(990) "
    "GrpTRESRunMins=cpu=N(10) MaxWallPJ=5 MaxTRESPJ=cpu=1 MaxTRESPN= MinTRESPJ=cpu=4 "
    "Account Limits= lab={MaxJobsPA=N(1) MaxTRESPA=cpu=2(1)} "
    "User Limits= ada(1000)={MaxJobsPU=1(1) MaxTRESPU=mem=60(50)}"
)
ASSOC = (
    "ClusterName=c Account=lab UserName= ParentAccount=root(1) GrpJobs=4(4) GrpTRES=cpu=N(0)\n"
    "ClusterName=c Account=lab UserName=ada(1000) ParentAccount= MaxJobs=2(2) MaxWallPJ=10"
)
LIMITS = [
    *parse_limits(QOS, "QOS", "lab", "ada"),
    *parse_limits(ASSOC, "ClusterName", "lab", "ada"),
]


@pytest.mark.parametrize(
    ("reason", "value", "used", "asked", "distance"),
    [
        ("QOSGrpCpuLimit", "3 CPUs", "2 CPUs", "2 CPUs", "1 CPU has to become free"),
        ("QOSMaxWallDurationPerJobLimit", "00:05:00", "", "00:20:00", "00:15:00 too much"),
        ("QOSMaxCpuPerJobLimit", "1 CPU", "", "2 CPUs", "1 CPU too much"),
        ("QOSMaxMemoryPerUser", "60M", "50M", "50M", "40M have to become free"),
        ("QOSMaxJobsPerUserLimit", "1 job", "1 job", "1 job", "1 job has to become free"),
        ("MaxCpuPerAccount", "2 CPUs", "1 CPU", "2 CPUs", "1 CPU has to become free"),
        ("QOSMinCpuNotSatisfied", "4 CPUs", "", "2 CPUs", "2 CPUs too few"),
        ("QOSGrpCPUMinutesLimit", "1000 cpu-minutes", "990 cpu-minutes", "40 cpu-minutes",
         "30 cpu-minutes have to become free"),
        ("AssocGrpJobsLimit", "4 jobs", "4 jobs", "1 job", "1 job has to become free"),
        ("AssocMaxJobsLimit", "2 jobs", "2 jobs", "1 job", "1 job has to become free"),
        ("AssocMaxWallDurationPerJobLimit", "00:10:00", "", "00:20:00", "00:10:00 too much"),
    ],
)  # fmt: skip
def test_a_limit_is_told_with_its_value_its_use_and_the_distance(
    reason: str, value: str, used: str, asked: str, distance: str
) -> None:
    [limit] = why(reason, limits=LIMITS).limits
    assert (limit.value, limit.used, limit.asked, limit.distance) == (value, used, asked, distance)


@pytest.mark.parametrize("written", ["ada(1000)", "1000", "ada"], ids=["24.11", "22.05", "name"])
def test_a_users_part_of_a_qos_is_found_however_slurm_writes_the_user(written: str) -> None:
    others = "eve(10000)={MaxJobsPU=7(7)} 100={MaxJobsPU=8(8)} ada2(10)={MaxJobsPU=9(9)}"
    head = "QOS=single(3) GrpJobs=N(1) Account Limits= lab={MaxJobsPA=N(1)} User Limits="
    text = f"{head} {others} {written}={{MaxJobsPU=1(1)}}"
    [record] = parse_limits(text, "QOS", "lab", "ada(1000)")
    assert record["limits"]["MaxJobsPU"] == ["1", "1"]


def test_gpus_are_counted_by_their_own_limit() -> None:
    facts = {"job": job(TRES="cpu=1,mem=1G,gres/gpu=1"), "limits": LIMITS}
    [limit] = explain_pending("QOSGrpGRES", facts, NAMES, NOW).limits
    assert (limit.value, limit.used, limit.asked) == ("2 GPUs", "2 GPUs", "1 GPU")


def test_a_job_that_can_never_fit_does_not_wait() -> None:
    assert not why("QOSMaxCpuPerJobLimit", limits=LIMITS).waits
    assert why("QOSGrpCpuLimit", limits=LIMITS).waits


def test_a_time_above_the_partitions_has_the_command_that_mends_it() -> None:
    partition = parse_one("PartitionName=short MaxTime=00:10:00 State=UP")
    answer = why("PartitionTimeLimit", partition=partition)
    assert answer.fixes[0].command == "scontrol update JobId=25 TimeLimit=00:10:00"
    assert answer.limits[0].distance == "00:10:00 too much"


def test_licences_are_counted() -> None:
    told = [parse_one("LicenseName=matlab Total=2 Used=2 Free=0 Reserved=0 Remote=no")]
    answer = why("Licenses", job=job(Licenses="matlab:1"), licenses=told)
    assert "2 of 2 in use" in answer.text and "1 has to become free" in answer.text


def test_nodes_that_are_away_are_named_with_their_reason() -> None:
    node = {"name": "n2", "state": "IDLE+DRAIN", "reason": "bad disk", "cpus": 4,
            "allocated_cpus": 0, "memory": 2000, "allocated_memory": 0}  # fmt: skip
    reason = "ReqNodeNotAvail,_UnavailableNodes:n2"
    answer = why(reason, job=job(Reason=reason, ReqNodeList="n2"), nodes=[node])
    assert answer.evidence == ["node n2 is IDLE+DRAIN: bad disk"]


def test_the_place_in_line_counts_only_what_waits_for_its_turn() -> None:
    rows = [
        ("20", "90", "ada", "Resources", "1", "1"),
        ("21", "90", "ada", "JobHeldUser", "1", "1"),
        ("22", "80", "bob", "Dependency", "1", "1"),
        ("24_[1-3]", "50", "bob", "Priority", "1", "1"),
        ("25", "50", "ada", "Priority", "1", "1"),
    ]
    answer = "".join("".join(value + "|" for value in row) + "\n" for row in rows)
    queue = waiting_in("main", "|").read(answer)
    answer = why("Priority", queue=queue)
    assert (answer.position, answer.ahead) == (3, 1)


def test_a_begin_time_tells_how_long_that_is() -> None:
    answer = why("BeginTime", job=job(StartTime=str(int(NOW) + 90)))
    assert "in 00:01:30" in answer.text and answer.starts == NOW + 90


# ---- failures -----------------------------------------------------------------------------------

KINDS = (
    "raised", "exited", "died", "oom", "timeout", "preempted", "node_fail", "cancelled",
    "unwritten", "refused",
)  # fmt: skip


def ended(**fields: Any) -> Ended:
    plain = {"run": "r", "job_id": "7", "kind": "died", "error": "", "message": "it failed"}
    return Ended(**{**plain, **fields})


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_failure_has_a_command_that_helps(kind: str) -> None:
    answer = explain_failure(ended(kind=kind), "/base")
    assert answer.fixes[0].command and "{" not in answer.fixes[0].command


CLASSES = [
    name
    for name, cls in inspect.getmembers(errors, inspect.isclass)
    if issubclass(cls, (errors.JobError, errors.ResultError))
]


@pytest.mark.parametrize("name", CLASSES)
def test_every_error_of_a_job_is_answered(name: str) -> None:
    answer = explain_failure(ended(kind="", error=name, hint="do that"))
    assert answer.fixes and answer.reason == name


def test_memory_that_ran_out_is_told_against_the_request_and_doubled() -> None:
    answer = explain_failure(
        ended(kind="oom", error="JobOutOfMemory", options={"mem": 300}, peak=300 << 20)
    )
    assert answer.limits[0].used == "300M" and answer.limits[0].value == "300M"
    assert answer.fixes[0].command == "slurm rerun r --failed --mem 600M"


def test_a_time_that_ran_out_is_doubled() -> None:
    answer = explain_failure(ended(kind="timeout", options={"time": 3600}, elapsed=3601.0))
    assert answer.fixes[0].command == "slurm rerun r --failed --time 02:00:00"


def test_exit_code_signal_and_last_lines_are_told() -> None:
    answer = explain_failure(ended(exit_code=139, signal=11, last_lines=("Segmentation fault",)))
    assert "exit code 139, signal 11" in answer.text
    assert answer.evidence == ["Segmentation fault"]
