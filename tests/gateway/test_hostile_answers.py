"""A client that picks both the schema and what the model answers cannot make the gateway work on it for long.

The gateway runs in a process of its own: one that never comes back to its other clients would take the tests with it.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Final

import pytest

from moonshim.testing import RecordedHost
from tests.support.command import MOONSHIM, environment
from tests.support.gateway.serving import first_line

Json = dict[str, Any]
PATIENCE: Final = 30.0
_LOOP: Final[Json] = {"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}
# name: the schema, the answer. Each took from nine seconds to forever when answers were checked against schemas.
FORMATS: Final[dict[str, tuple[Any, str]]] = {
    "a pattern": ({"type": "string", "pattern": "(?x)^(a+) +$"}, json.dumps("a" * 60 + "!")),
    "many patterns": (
        {"type": "object", "patternProperties": {f"^(a|b|{n})*$": {} for n in range(1000)}},
        json.dumps({f"{n}ab": n for n in range(4000)}),
    ),
    "many choices": ({"type": "array", "items": {"enum": list(range(30_000))}}, json.dumps([-1] * 30_000)),
    "many types": ({"type": "array", "items": {"type": ["null"] * 100_000}}, json.dumps([1] * 30_000)),
    "a schema that is its own choice": (_LOOP, json.dumps([[]] * 30_000)),
    "open brackets": ({"type": "object"}, "{" * 1_000_000),
    "open brackets in a fence": ({"type": "object"}, "```json\n" + "[" * 800_000 + "\n```"),
}
_ARGUMENTS: Final = {f"p{n}": "1" for n in range(2_000)}
# name: the parameters of a tool, the arguments of its call
CALLS: Final[dict[str, tuple[Any, str]]] = {
    "many choices": (
        {"type": "object", "properties": {"a": {"type": "array", "items": {"enum": list(range(30_000))}}}},
        json.dumps({"a": ["-1"] * 30_000}),
    ),
    "many required": (
        {"type": "object", "properties": {"a": {"type": "array", "items": {"required": ["k"] * 60_000}}}},
        json.dumps({"a": json.dumps([{"k": 1}] * 30_000)}),
    ),
    "many references": (
        {
            "type": "object",
            "$defs": [{"type": "integer"}] * 30_000,
            "properties": {name: {"$ref": f"#/$defs/{n}"} for n, name in enumerate(_ARGUMENTS)},
        },
        json.dumps(_ARGUMENTS),
    ),
}


def _answer(text: str | None, arguments: str | None = None) -> bytes:
    message: Json = {"role": "assistant", "content": text}
    if arguments is not None:
        function = {"name": "pick", "arguments": arguments}
        message["tool_calls"] = [{"id": "functions.pick:0", "type": "function", "function": function}]
    finish = "stop" if arguments is None else "tool_calls"
    choices = [{"index": 0, "message": message, "finish_reason": finish}]
    return json.dumps({"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": choices}).encode()


@contextmanager
def _gateway(url: str, folder: Path) -> Iterator[int]:
    config = folder / "moonshim.toml"
    config.write_text(f'[[providers]]\nname = "host"\napi_base_url = "{url}/v1"\napi_key = "none"\nhost = "groq"\n')
    command = [*MOONSHIM, "serve", "--config", str(config), "--port", "0", "--workers", "1"]
    env = environment(HOME=str(folder))
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        try:
            line = first_line(process)
            assert line, "it did not start"
            yield int(line.split("http://127.0.0.1:")[1].split("/")[0].split()[0])
        finally:
            process.kill()


def _ask(port: int, **fields: Any) -> tuple[int, Json]:
    body = {"model": "host/kimi-k2.5", "messages": [{"role": "user", "content": "Go."}]} | fields
    connection = HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    try:
        connection.request("POST", "/v1/chat/completions", json.dumps(body), {"content-type": "application/json"})
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


@pytest.mark.parametrize("name", FORMATS)
def test_no_answer_is_compared_with_the_schema_of_a_format(name: str, tmp_path: Path) -> None:
    schema, text = FORMATS[name]
    format = {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}
    with RecordedHost(_answer(text), repeat=True).running() as host, _gateway(host.url, tmp_path) as port:
        status, got = _ask(port, response_format=format)
        assert status == 200, got
        assert got["choices"][0]["message"]["content"] == text
        assert len(host.requests) == 1
        assert host.requests[0]["response_format"]["json_schema"]["schema"] == schema


@pytest.mark.parametrize("name", CALLS)
def test_arguments_are_compared_with_the_schema_of_a_tool_in_linear_time(name: str, tmp_path: Path) -> None:
    schema, arguments = CALLS[name]
    tools = [{"type": "function", "function": {"name": "pick", "parameters": schema}}]
    with RecordedHost(_answer(None, arguments)).running() as host, _gateway(host.url, tmp_path) as port:
        status, got = _ask(port, tools=tools)
        assert status == 200, got
        assert got["choices"][0]["finish_reason"] == "tool_calls"
