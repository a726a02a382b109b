"""The small part of the Model Context Protocol that a server of tools needs: JSON-RPC by lines."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TextIO

#: Revisions that begin with `initialize`; a client that asks for another one gets the newest.
VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
PARSE_ERROR, INVALID_REQUEST, NO_METHOD, BAD_PARAMS = -32700, -32600, -32601, -32602


class Refused(Exception):
    """A request that cannot be carried out; the code is JSON-RPC's."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class Tool:
    """Something a client can call: what it takes, as a JSON schema, and what it does."""

    name: str
    description: str
    schema: Mapping[str, Any]
    call: Callable[[Mapping[str, Any]], tuple[Any, bool]]
    read_only: bool = True

    def as_dict(self) -> dict[str, Any]:
        """The tool as it is listed."""
        return {
            "name": self.name,
            "description": self.description,
            "inputSchema": dict(self.schema),
            "annotations": {
                "readOnlyHint": self.read_only,
                "destructiveHint": not self.read_only,
                "openWorldHint": False,
            },
        }


class Server:
    """Answers the requests of one client, one after the other."""

    def __init__(self, name: str, version: str, about: str, tools: Sequence[Tool]) -> None:
        self._info = {"name": name, "version": version}
        self._about = about
        self._tools = {tool.name: tool for tool in tools}
        self._methods: dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
            "initialize": self._initialize,
            "ping": lambda _: {},
            "tools/list": lambda _: {"tools": [tool.as_dict() for tool in self._tools.values()]},
            "tools/call": self._call,
        }

    def serve(self, requests: Iterable[str], answers: TextIO) -> None:
        """Answer each line until there are no more."""
        for line in requests:
            if line.strip():
                answer = self.answer(line)
                if answer is not None:
                    # ASCII only: whatever the encoding of the stream is, it comes through.
                    answers.write(json.dumps(answer) + "\n")
                    answers.flush()

    def answer(self, line: str) -> dict[str, Any] | None:
        """The answer to one message; None where none is expected."""
        number: Any = None
        try:
            message = _parsed(line)
            number = message.get("id")
            if "method" not in message or number is None:
                return None  # a notification, or an answer to a question that we never ask
            method = self._methods.get(str(message["method"]))
            if method is None:
                raise Refused(NO_METHOD, f"there is no method {message['method']!r} here")
            params = message.get("params") or {}
            if not isinstance(params, Mapping):
                raise Refused(BAD_PARAMS, "params must be an object")
            return {"jsonrpc": "2.0", "id": number, "result": method(params)}
        except Refused as error:
            trouble = {"code": error.code, "message": str(error)}
            return {"jsonrpc": "2.0", "id": number, "error": trouble}

    def _initialize(self, params: Mapping[str, Any]) -> dict[str, Any]:
        wanted = params.get("protocolVersion")
        return {
            "protocolVersion": wanted if wanted in VERSIONS else VERSIONS[0],
            "capabilities": {"tools": {"listChanged": False}},
            "serverInfo": self._info,
            "instructions": self._about,
        }

    def _call(self, params: Mapping[str, Any]) -> dict[str, Any]:
        tool = self._tools.get(str(params.get("name")))
        if tool is None:
            known = ", ".join(self._tools)
            raise Refused(BAD_PARAMS, f"unknown tool {params.get('name')!r}; there are {known}")
        arguments = params.get("arguments") or {}
        if not isinstance(arguments, Mapping):
            raise Refused(BAD_PARAMS, "arguments must be an object")
        unknown = set(arguments) - set(tool.schema["properties"])
        missing = set(tool.schema["required"]) - set(arguments)
        wrong = [n for n in arguments if n not in unknown and not _fits(arguments[n], tool, n)]
        if unknown or missing or wrong:
            what = [f"unknown argument {name!r}" for name in sorted(unknown)]
            what += [f"missing argument {name!r}" for name in sorted(missing)]
            what += [f"{n}={arguments[n]!r} is no {_wanted(tool, n)['type']}" for n in wrong]
            return _result(f"{tool.name}: {', '.join(what)}", failed=True)
        found, failed = tool.call(arguments)
        return _result(found, failed)


_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
}


def _wanted(tool: Tool, name: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = tool.schema["properties"][name]
    return found


def _fits(value: Any, tool: Tool, name: str) -> bool:
    wanted = _wanted(tool, name)["type"]
    if isinstance(value, bool) and wanted != "boolean":
        return False
    return isinstance(value, _TYPES[wanted])


def _parsed(line: str) -> Mapping[str, Any]:
    try:
        message = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise Refused(PARSE_ERROR, f"not JSON: {error}") from error
    if not isinstance(message, Mapping):
        raise Refused(INVALID_REQUEST, "a message is an object")
    return message


def _result(found: Any, failed: bool) -> dict[str, Any]:
    text = found if isinstance(found, str) else json.dumps(found, indent=1, default=str)
    result: dict[str, Any] = {"content": [{"type": "text", "text": text}], "isError": failed}
    if isinstance(found, Mapping):
        result["structuredContent"] = json.loads(text)
    return result
