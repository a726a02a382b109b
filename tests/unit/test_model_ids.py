"""Job ids, array specifications and run names are taken strictly and given back exactly."""

import ast
import contextlib
import datetime
import pickle
import re
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import slurm.model.ids
import slurm.model.states
from slurm.model.ids import (
    JobId,
    collapse_array_spec,
    expand_array_spec,
    make_run_name,
    parse_job_id,
    plain_name,
)

WHEN = datetime.datetime(2026, 3, 7, 9, 5, 1)


@pytest.mark.parametrize(
    ("text", "job_id"),
    [
        ("123", JobId(123)),
        (123, JobId(123)),
        ("123_4", JobId(123, 4)),
        ("123_0", JobId(123, 0)),
        ("123;hpc", JobId(123, None, "hpc")),
        ("123_4;hpc-2", JobId(123, 4, "hpc-2")),
    ],
)
def test_a_job_id_is_read_in_each_of_its_forms(text: str, job_id: JobId) -> None:
    assert parse_job_id(text) == job_id


@pytest.mark.parametrize(
    "text",
    [
        "", " 123", "123\n", "1; touch x", "1;touch x", "1;-x", "0", "-1", "+1", "1_", "_1", "1_-1",
        "1.batch", "1_4.batch", "1+0", "1_[1-2]", "$(id)", "99999999999", "4294967296",
        "1_4000001", "\uff11\uff12", True, None, 1.0, b"12",
    ],
)  # fmt: skip
def test_anything_else_is_refused_as_a_job_id_with_its_text(text: str) -> None:
    with pytest.raises(ValueError) as refused:
        parse_job_id(text)
    assert repr(text) in str(refused.value)


@given(st.integers(1, 2**32 - 1), st.none() | st.integers(0, 4000000))
def test_a_job_id_survives_text_and_pickle(job: int, index: int | None) -> None:
    job_id = JobId(job, index)
    assert parse_job_id(str(job_id)) == job_id
    assert pickle.loads(pickle.dumps(job_id)) == job_id


@given(st.text())
def test_no_text_makes_the_id_parsers_raise_anything_but_value_error(text: str) -> None:
    for parse in (parse_job_id, expand_array_spec):
        with contextlib.suppress(ValueError):
            parse(text)


@pytest.mark.parametrize(
    ("spec", "indexes"),
    [
        ("0-5,9,12-20:4%2", [0, 1, 2, 3, 4, 5, 9, 12, 16, 20]),
        ("7", [7]),
        ("3,1,1-2", [1, 2, 3]),
        ("0-3:7", [0]),
    ],
)
def test_an_array_specification_is_expanded_as_slurm_does(spec: str, indexes: list[int]) -> None:
    assert expand_array_spec(spec) == indexes


@pytest.mark.parametrize("spec", ["", "5-1", "1-9:0", "a", "1,,2", "1-", "-1", "1%", "0-4000001"])
def test_a_wrong_array_specification_is_refused(spec: str) -> None:
    with pytest.raises(ValueError):
        expand_array_spec(spec)


@given(st.sets(st.integers(0, 500), min_size=1))
def test_collapsed_indexes_expand_to_themselves(indexes: set[int]) -> None:
    assert expand_array_spec(collapse_array_spec(indexes)) == sorted(indexes)


def test_a_run_name_holds_task_time_and_token() -> None:
    assert make_run_name("train", WHEN, "0a1b2c") == "train-20260307-090501-0a1b2c"
    stamp = time.struct_time((2026, 3, 7, 9, 5, 1, 0, 0, 0))
    assert make_run_name("train", stamp, "0a1b2c") == "train-20260307-090501-0a1b2c"


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("<lambda>", "_lambda_"),
        ("a/b c$(d)", "a_b_c__d_"),
        ("..", "task"),
        ("", "task"),
        ("-rf", "rf"),
        (".hidden", "hidden"),
        ("été", "_t_"),
        ("x" * 99, "x" * 60),
    ],
)
def test_a_task_name_is_reduced_to_plain_characters(name: str, plain: str) -> None:
    assert plain_name(name) == plain


@given(st.text(), st.datetimes(), st.integers(0, 0xFFFFFF))
def test_a_run_name_is_plain_and_short(name: str, when: datetime.datetime, token: int) -> None:
    run = make_run_name(name, when, f"{token:06x}")
    assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*-[0-9]{8}-[0-9]{6}-[0-9a-f]{6}", run)
    assert len(run) <= 60 + 24


@pytest.mark.parametrize("token", ["", "12345", "1234567", "ABCDEF", "12345\n", "../../"])
def test_a_run_name_needs_a_token_of_six_hex_digits(token: str) -> None:
    with pytest.raises(ValueError, match="six hex"):
        make_run_name("train", WHEN, token)


@pytest.mark.parametrize("module", [slurm.model.ids, slurm.model.states])
def test_what_the_agent_uses_parses_as_python_3_6(module: object) -> None:
    source = Path(module.__file__).read_text(encoding="utf-8")  # type: ignore[attr-defined]
    tree = ast.parse(source, feature_version=(3, 6))
    imported = [n for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)]
    assert not [n for n in imported if n.module in ("__future__", "dataclasses")]
