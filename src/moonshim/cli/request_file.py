"""A file with tool definitions, or with a whole request -> known facts about the request."""

from __future__ import annotations

import re
from io import BufferedReader
from typing import Any, Final

import msgspec

from moonshim.cli.input_file import open_input
from moonshim.engine.formats import parse_tools
from moonshim.engine.wire.sse import BYTE_ORDER_MARK
from moonshim.errors import InvalidInput

__all__ = ["LIMIT", "BadRequestFile", "RequestFacts", "decode_json", "facts_from_header", "read_request", "read_tools"]

LIMIT: Final = 64 * 1024 * 1024
_PLACE: Final = re.compile(r" \(byte (\d+)\)$")


class BadRequestFile(Exception):
    """The file cannot be used; the message names it, with the option that named it, and says why."""


class RequestFacts(msgspec.Struct, frozen=True):
    """Known facts about the request; by default, none."""

    tools: list[Any] | None = None
    """None: unknown. An empty list: the request had no tools."""
    tool_choice: Any = None
    history: list[Any] | None = None
    model: str | None = None


def read_tools(path: str) -> RequestFacts:
    """From a list of OpenAI tool definitions, or from a request body with `tools`."""
    where = f"--tools {path}"
    value = _read(path, where)
    if isinstance(value, list):
        return RequestFacts(tools=_check_tools(value, where))
    if isinstance(value, dict) and "tools" in value:
        return _from_request(value, where)
    raise BadRequestFile(f"{where}: expected a list of tool definitions, or a request with `tools`")


def read_request(path: str) -> RequestFacts:
    """From a request body. One without `tools` declares that there are none."""
    where = f"--request {path}"
    value = _read(path, where)
    if not isinstance(value, dict) or not {"messages", "tools", "model"} & value.keys():
        raise BadRequestFile(f"{where}: expected a request body with `messages`, `tools` or `model`")
    return _from_request(value, where)


def facts_from_header(body: dict[str, Any], model: str | None) -> RequestFacts:
    """From the request in the header of a log. What cannot be used is ignored."""
    try:
        facts = _from_request(body, "")
    except BadRequestFile:
        facts = RequestFacts()
    tools = facts.tools if "messages" in body or "tools" in body else None
    return msgspec.structs.replace(facts, tools=tools, model=model or facts.model)


def _from_request(body: dict[str, Any], where: str) -> RequestFacts:
    history, model = body.get("messages"), body.get("model")
    if history is not None and not isinstance(history, list):
        raise BadRequestFile(f"{where}: messages: expected a list")
    return RequestFacts(
        _check_tools(body.get("tools") or [], where),
        body.get("tool_choice"),
        history,
        model if isinstance(model, str) and model else None,
    )


def _check_tools(tools: Any, where: str) -> list[Any]:
    if not isinstance(tools, list):
        raise BadRequestFile(f"{where}: tools: expected a list")
    try:
        parse_tools(tools, "openai")
    except InvalidInput as error:
        hint = (
            " (this looks like a Messages or Responses request; mend reads Chat Completions)"
            if _is_foreign(tools)
            else ""
        )
        raise BadRequestFile(f"{where}: {error.field or 'tools'}: {error}{hint}") from None
    return tools


def _is_foreign(tools: list[Any]) -> bool:
    return any(isinstance(tool, dict) and "name" in tool and "function" not in tool for tool in tools)


def _read(path: str, where: str) -> Any:
    try:
        with BufferedReader(open_input(path)) as file:
            return decode_json(file.read(LIMIT + 1))
    except (OSError, ValueError) as error:
        raise BadRequestFile(f"{where}: {getattr(error, 'strerror', None) or error}") from None


def decode_json(data: bytes) -> Any:
    """The value in a JSON file; `ValueError` says why it cannot be decoded."""
    if len(data) > LIMIT:
        raise ValueError(f"larger than {LIMIT >> 20} MiB")
    if not data.strip():
        raise ValueError("the input is empty")
    data = data.removeprefix(BYTE_ORDER_MARK)
    try:
        return msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"invalid JSON: {_reason(data, error)}") from None


def _reason(data: bytes, error: Exception) -> str:
    """What is wrong with the JSON, and where.

    >>> _reason(b'{"a":\\n x}', ValueError("JSON is malformed: invalid character (byte 7)"))
    'invalid character at line 2, column 2'
    """
    if isinstance(error, UnicodeDecodeError):
        return "not UTF-8"
    reason = str(error).removeprefix("JSON is malformed: ")
    if "truncated" in reason:
        reason = f"unexpected end of data (byte {len(data)})"
    if (place := _PLACE.search(reason)) is None:
        return reason
    before = data[: int(place[1])]
    line, column = before.count(b"\n") + 1, len(before) - before.rfind(b"\n")
    return f"{reason[: place.start()]} at line {line}, column {column}"
