"""The cache over SSH: what a client stored is found by the next, and only by the same code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from server import Sshd

from clients import WORK, Client, answer

MORE = """
@task(time="5min", mem="60M", cache=True, packaging="source")
def moded(x):
    import mode
    return f"{mode.MODE} {x}"
"""
FILES = {
    "work": WORK + MORE + "\nimport mode\n",
    "helper": "STEP = 10\n",
    "table_json": '{"k": 1}',
    "mode": 'import os\nMODE = os.environ.get("MODE", "plain")\n',
}


@pytest.fixture
def client(tmp_path: Path, slurm_sshd: Sshd, monkeypatch: pytest.MonkeyPatch) -> Client:
    monkeypatch.delenv("SLURM_CONF")
    place = {"job_base_dir": str(tmp_path / "jobs"), **slurm_sshd.arguments()}
    one = Client(tmp_path / "code", place)
    one.write(**FILES)
    return one


def test_code_tables_and_files_of_the_client_decide_what_is_found(
    client: Client, tmp_path: Path
) -> None:
    assert client.call("work.plus(1)") == [(11, False)]
    assert client.call("work.plus(x=1, y=0)") == [(11, True)]
    client.write(helper="STEP = 20\n")
    assert client.call("work.plus(1)") == [(21, False)]
    assert client.call("work.tabled(1)") == [(2, False)]
    client.write(table_json='{"k": 5}')
    assert client.call("work.tabled(1)") == [(6, False)]
    assert client.call("work.tabled(1)") == [(6, True)]
    data = tmp_path / "data.txt"
    call = f"work.length(work.File({json.dumps(str(data))}))"
    for text, cached in (("abc", False), ("abc", True), ("abcd", False)):
        data.write_text(text)
        assert client.call(call) == [(len(text), cached)]


def test_two_clients_of_different_code_at_once_never_take_each_others_values(
    client: Client, tmp_path: Path
) -> None:
    other = Client(tmp_path / "other", client.cluster)
    other.write(**{**FILES, "helper": "STEP = 100\n"})
    calls = "work.plus.map(range(3))"
    both = [one.start(calls) for one in (client, other)]
    first, second = map(answer, both)
    assert first == [(10, False), (11, False), (12, False)]
    assert second == [(100, False), (101, False), (102, False)]
    packed = "work.plus.map(range(2, 5), pack=2)"
    assert other.call(packed) == [(102, True), (103, False), (104, False)]
    assert other.call(packed) == [(102, True), (103, True), (104, True)]
    assert client.call("work.plus.map(range(2, 4))") == [(12, True), (13, False)]


def test_a_snapshot_that_reads_another_environment_there_stores_nothing(client: Client) -> None:
    call = "work.moded(1)"
    assert client.call(call, MODE="fast") == [("plain 1", False)]
    assert client.call(call, MODE="fast") == [("plain 1", False)]
    assert client.call(call) == [("plain 1", False)]
    assert client.call(call) == [("plain 1", True)]
