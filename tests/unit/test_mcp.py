"""The server for assistants: what it answers, what it offers, and what it keeps to itself."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from typing import Any

import pytest

from slurm.cli import verbs
from slurm.cli.frame import COMMON
from slurm.cli.jsonrpc import VERSIONS, Server, Tool
from slurm.cli.mcp import CHANGES, LOOKS, tool_of

TOOLS = {verb.name: tool_of(verb, COMMON) for verb in verbs() if verb.name in (*LOOKS, *CHANGES)}


def _echo(arguments: Mapping[str, Any]) -> tuple[Any, bool]:
    return {"got": dict(arguments)}, False


SCHEMA = {
    "type": "object",
    "properties": {"run": {"type": "string"}, "lines": {"type": "integer"}},
    "required": ["run"],
}
SERVER = Server("slurm", "1", "about", [Tool("echo", "echoes", SCHEMA, _echo)])


def ask(method: str, params: Any = None, number: Any = 1) -> dict[str, Any]:
    message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
    answer = SERVER.answer(json.dumps(message))
    assert answer is not None
    return answer


def call(**arguments: Any) -> dict[str, Any]:
    result: dict[str, Any] = ask("tools/call", {"name": "echo", "arguments": arguments})["result"]
    return result


def test_a_client_gets_the_version_that_it_asks_for_or_the_newest() -> None:
    for version in VERSIONS:
        found = ask("initialize", {"protocolVersion": version})["result"]
        assert found["protocolVersion"] == version
    newer = ask("initialize", {"protocolVersion": "2999-01-01"})["result"]
    assert newer["protocolVersion"] == VERSIONS[0]
    assert newer["capabilities"] == {"tools": {"listChanged": False}}


def test_a_call_gives_text_and_the_same_as_data() -> None:
    result = call(run="last", lines=3)
    assert result["isError"] is False
    assert result["structuredContent"] == {"got": {"run": "last", "lines": 3}}
    assert json.loads(result["content"][0]["text"]) == result["structuredContent"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, "missing argument 'run'"),
        ({"run": "last", "rm": "x"}, "unknown argument 'rm'"),
        ({"run": "last", "lines": "3; rm -rf /"}, "lines='3; rm -rf /' is no integer"),
        ({"run": ["last"]}, "run=['last'] is no string"),
        ({"run": "last", "lines": True}, "lines=True is no integer"),
    ],
)
def test_wrong_arguments_are_named_and_nothing_is_called(
    arguments: dict[str, Any], said: str
) -> None:
    result = call(**arguments)
    assert result["isError"] is True
    assert said in result["content"][0]["text"]


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("not json", -32700),
        ("[1]", -32600),
        ('{"jsonrpc": "2.0", "id": 1, "method": "server/discover"}', -32601),
        ('{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": [1]}', -32602),
        ('{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "x"}}', -32602),
    ],
)
def test_a_message_that_cannot_be_served_gets_the_protocols_own_error(line: str, code: int) -> None:
    answer = SERVER.answer(line)
    assert answer is not None
    assert answer["error"]["code"] == code


def test_notifications_get_no_answer_and_lines_are_served_in_order() -> None:
    lines = [
        '{"jsonrpc": "2.0", "method": "notifications/initialized"}',
        "",
        '{"jsonrpc": "2.0", "id": "a", "method": "ping"}',
        '{"jsonrpc": "2.0", "id": 0, "method": "ping"}',
    ]
    out = io.StringIO()
    SERVER.serve(lines, out)
    assert [json.loads(line)["id"] for line in out.getvalue().splitlines()] == ["a", 0]


def test_every_verb_that_is_offered_exists() -> None:
    assert set(TOOLS) == {*LOOKS, *CHANGES}


def test_what_only_looks_can_neither_write_a_file_nor_go_on_for_ever() -> None:
    for name in LOOKS:
        tool = TOOLS[name]
        assert tool.read_only
        assert not {"output", "follow", "watch"} & set(tool.schema["properties"]), name
    assert all(not TOOLS[name].read_only for name in CHANGES)


def test_words_after_a_verb_become_a_list() -> None:
    assert TOOLS["cancel"].schema["properties"]["runs"]["type"] == "array"
    assert TOOLS["run"].schema["required"] == ["target"]
    assert "detach" not in TOOLS["run"].schema["properties"]
