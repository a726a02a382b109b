"""The cache on a real Slurm: clients with code of their own, and jobs that see another world."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from clients import WORK, Client, answer

MORE = """
MODE = os.environ.get("MODE", "plain")

@task(time="5min", mem="60M", cache=True)
def moded(x):
    return f"{MODE} {x}"

@task(time="5min", mem="60M", cache=True)
def fails_once(mark):
    if not os.path.exists(mark):
        open(mark, "w").close()
        raise ValueError("the first time")
    return "ok"
"""
FILES = {"work": WORK + MORE, "helper": "STEP = 10\n", "table_json": '{"k": 1}'}


@pytest.fixture
def client(tmp_path: Path) -> Client:
    one = Client(tmp_path / "code", {"job_base_dir": tmp_path / "jobs"})
    one.write(**FILES)
    return one


def test_a_call_of_another_process_is_found_until_the_code_or_a_table_changes(
    client: Client,
) -> None:
    assert client.call("work.plus(1)") == [(11, False)]
    assert client.call("work.plus(x=1, y=0)") == [(11, True)]
    client.write(helper="STEP = 20\n")
    assert client.call("work.plus(1)") == [(21, False)]
    client.write(helper="# again\nSTEP = 10\n")
    assert client.call("work.plus(1)") == [(11, True)]
    assert client.call("work.tabled(1)") == [(2, False)]
    client.write(table_json='{"k": 5}')
    assert client.call("work.tabled(1)") == [(6, False)]
    assert client.call("work.tabled(1)") == [(6, True)]


def test_two_versions_of_the_code_at_once_never_take_each_others_values(
    client: Client, tmp_path: Path
) -> None:
    other = Client(tmp_path / "other", client.cluster)
    other.write(**{**FILES, "helper": "STEP = 100\n"})
    calls = "work.plus.map(range(3))"
    both = [one.start(calls) for one in (client, other)]
    first, second = map(answer, both)
    assert first == [(10, False), (11, False), (12, False)]
    assert second == [(100, False), (101, False), (102, False)]
    assert client.call("work.plus.map(range(2, 5))") == [(12, True), (13, False), (14, False)]
    packed = "work.plus.map(range(2, 6), pack=2)"
    assert other.call(packed) == [(102, True), (103, False), (104, False), (105, False)]
    assert other.call(packed) == [(value, True) for value in (102, 103, 104, 105)]
    assert client.call("work.plus(4)") == [(14, True)]


def test_a_value_of_a_job_that_read_something_else_at_its_import_is_not_kept(
    client: Client,
) -> None:
    client.cluster["env"] = {"MODE": "fast"}
    assert client.call("work.moded(1)", MODE="plain") == [("fast 1", False)]
    assert client.call("work.moded(1)", MODE="plain") == [("fast 1", False)]
    assert client.call("work.moded(1)", MODE="fast") == [("fast 1", False)]
    assert client.call("work.moded(1)", MODE="fast") == [("fast 1", True)]


def test_a_file_counts_by_its_content_and_a_failure_is_never_kept(
    client: Client, tmp_path: Path
) -> None:
    data = tmp_path / "data.txt"
    call = f"work.length(work.File({json.dumps(str(data))}))"
    for text, cached in (("abc", False), ("abc", True), ("abcd", False)):
        data.write_text(text)
        assert client.call(call) == [(len(text), cached)]
    fails = f"work.fails_once({json.dumps(str(tmp_path / 'mark'))})"
    with pytest.raises(AssertionError, match="the first time"):
        client.call(fails)
    assert client.call(fails) == [("ok", False)]
    assert client.call(fails) == [("ok", True)]


def test_a_chain_is_found_from_its_first_arguments_on(client: Client) -> None:
    chain = "work.plus(work.plus(1), work.plus(2))"
    found: list[Any] = client.call(chain)
    assert found == [(33, False)]
    assert client.call(chain) == [(33, True)]
