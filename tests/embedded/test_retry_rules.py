"""The rules of a retry: what can be written, and what they say about each kind of failure."""

from __future__ import annotations

from typing import Any

import pytest

from slurm import Cluster, OptionError, Retry, rundir, task
from slurm.api.retry_rules import Part, failure_of, grown, letter_for, script_of


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"times": 0}, "times=0"),
        ({"times": 1000}, "between 1 and 100"),
        ({"times": "two"}, "times='two'"),
        ({"oom": "memory*2"}, 'oom="mem*2"'),
        ({"oom": "mem*x"}, "not a number"),
        ({"oom": "mem*0.5"}, "more than 1"),
        ({"oom": "mem*inf"}, "at most 100"),
        ({"oom": "mem+0"}, "adds nothing"),
        ({"oom": 2}, 'oom="mem*2"'),
        ({"timeout": "mem*2"}, 'timeout="time*2"'),
        ({"timeout": "time+UNLIMITED"}, "adds nothing"),
        ({"on": ("ValueEror",)}, "did you mean 'ValueError'"),
        ({"on": 3}, "class of exceptions"),
        ({"on": (int,)}, "class of exceptions"),
        ({"preempted": 1}, "True or False"),
        ({"backoff": -1}, "backoff"),
        ({"backoff": "soon"}, "backoff"),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused_with_what_works(
    given: dict[str, Any], words: str
) -> None:
    with pytest.raises(OptionError) as caught:
        Retry(**given)
    assert words in str(caught.value)


def test_a_wrong_word_of_a_mapping_is_told_the_nearest_right_one() -> None:
    with pytest.raises(OptionError, match="did you mean times"):
        task(retry={"time": 2})(len)
    with pytest.raises(OptionError, match="must be a Retry"):
        task(retry="twice")(len)  # type: ignore[call-overload]


def test_a_number_and_a_mapping_are_short_for_a_retry() -> None:
    assert task(retry=3)(len).options["retry"] == Retry(times=3)
    mapping = {"times": 2, "oom": "mem*2", "on": ["OSError"]}
    assert task(retry=mapping)(len).options["retry"] == Retry(times=2, oom="mem*2", on=OSError)
    assert task(retry=None)(len).options == {"retry": None}


def test_growth_needs_something_that_can_grow(tmp_path: Any) -> None:
    with Cluster("embedded", job_base_dir=tmp_path) as cluster:
        with pytest.raises(OptionError, match="needs mem="):
            cluster.submit(task(retry=Retry(oom="mem*2"))(len))("x")
        with pytest.raises(OptionError, match="needs time="):
            cluster.submit(task(retry=Retry(timeout="time*2"), time="UNLIMITED")(len))("x")


def record(kind: str = rundir.ERROR, **header: Any) -> rundir.Record:
    return rundir.Record("7", 0, 0, 0, kind, header, b"")


RAISED = record(type="ValueError", types=["ValueError", "Exception", "BaseException"])

ENDED = rundir.Event("exit", {})


@pytest.mark.parametrize(
    ("found", "state", "code", "ended", "kind"),
    [
        (RAISED, "", 1, ENDED, "raised"),
        (RAISED, "CANCELLED", 1, ENDED, "raised"),
        (record(type="E", stopped=True), "CANCELLED", 1, ENDED, "cancelled"),
        (record(type="E", stopped=True), "TIMEOUT", 1, ENDED, "timeout"),
        (record(type="E", oom=1), "FAILED", 1, ENDED, "oom"),
        (record(rundir.VALUE, oom=1), "COMPLETED", 0, ENDED, "oom"),
        (record(rundir.EXIT), "FAILED", 3, ENDED, "exited"),
        (record(error="UpstreamFailed", message="m"), "FAILED", 1, ENDED, "refused"),
        (None, "OUT_OF_MEMORY", None, None, "oom"),
        (None, "TIMEOUT", 143, ENDED, "timeout"),
        (None, "NODE_FAIL", None, None, "node_fail"),
        (None, "PREEMPTED", None, None, "preempted"),
        (None, "", None, None, "node_fail"),
        (None, "FAILED", 137, ENDED, "died"),
        (None, "FAILED", 1, rundir.Event("exit", {"oom": "1"}), "oom"),
        (None, "FAILED", 74, ENDED, "unwritten"),
    ],
)
def test_each_end_is_one_kind_of_failure(
    found: Any, state: str, code: Any, ended: Any, kind: str
) -> None:
    assert failure_of(found, state, code, ended).kind == kind


def test_the_rules_choose_by_kind_and_stop_when_they_are_used_up() -> None:
    rules = Retry(times=2, on=(OSError,), oom="mem*2", timeout=True, node_fail=False).rules()

    def choice(found: Any, state: str, retries: int = 0) -> str | None:
        return letter_for(rules, failure_of(found, state, 1, ENDED), retries)

    assert choice(None, "OUT_OF_MEMORY") == "o"
    assert choice(None, "OUT_OF_MEMORY", 1) == "o"
    assert choice(None, "OUT_OF_MEMORY", 2) is None
    assert choice(None, "TIMEOUT") == "r"
    assert choice(None, "PREEMPTED") == "r"
    assert choice(None, "NODE_FAIL") is None
    assert choice(None, "CANCELLED") is None
    assert choice(None, "FAILED") is None
    assert choice(RAISED, "FAILED") is None
    assert choice(record(type="E", types=["FileNotFoundError", "OSError"]), "FAILED") == "r"


def test_resources_grow_once_for_each_failure_of_their_kind() -> None:
    rules = Retry(times=9, oom="mem*1.5", timeout="time+1h").rules()
    first = {"mem": 1000, "mem_flag": "mem", "time": 60}
    assert grown(rules, "0", first) == {}
    assert grown(rules, "0r", first) == {}
    assert grown(rules, "0ot", first) == {"mem": 1500, "time": 3660}
    assert grown(rules, "0oro", first) == {"mem": 2250}


def test_the_script_of_a_retry_is_the_first_one_with_few_lines_changed() -> None:
    text = "\n".join(
        [
            "#!/bin/bash",
            "#SBATCH --job-name=x",
            "#SBATCH --mem=100M",
            "#SBATCH --array=0-9%3",
            "#SBATCH --dependency=afterok:7",
            "export SLURM_SDK_PART=1",
            "export SLURM_SDK_OFFSET=10",
            "",
        ]
    )
    part = Part("1o", "7", "1", 10, True, [12, 17])
    flags = {"mem": "200M", "dependency": None, "begin": "now+5"}
    assert script_of(text, part, flags).splitlines() == [
        "#!/bin/bash",
        "#SBATCH --begin=now+5",
        "#SBATCH --mem=200M",
        "#SBATCH --job-name=x",
        "#SBATCH --array=2,7%3",
        "export SLURM_SDK_PART=1o",
        "export SLURM_SDK_OFFSET=10",
    ]


def test_a_value_with_odd_line_ends_is_the_same_in_the_script_of_a_retry() -> None:
    lines = "export A='x\x0cy\u2028z\rw'\nexport SLURM_SDK_PART="
    part = Part("0r", "7", "0", 0, False, [0])
    assert script_of(f"#!/bin/bash\n{lines}0\n", part, {}) == f"#!/bin/bash\n{lines}0r\n"
