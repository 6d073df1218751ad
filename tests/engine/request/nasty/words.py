"""What a request of any dialect says, and what a body to a host holds: to see that nothing was lost on the way."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from typing import Any, Final

from tests.engine.request.nasty.case import Json, Nasty

__all__ = ["arguments_said", "names_said", "parts_of_body", "words_said"]

BILLING: Final = "x-anthropic-billing-header:"
THOUGHT: Final = re.compile(r"\A\s*<think>.*?</think>\s*", re.DOTALL)


def words_said(asked: Nasty) -> list[str]:
    """Every text of users, models, prompts and tool results, every picture, every document of text."""
    body = asked.body
    roots = [body.get(key) for key in ("system", "instructions", "messages", "input")]
    # A thought that is told as text is no word: like every other thought it has tests of its own.
    found = [THOUGHT.sub("", word) for root in roots for word in _words(root)]
    return [word for word in found if word and not word.startswith(BILLING)]


def _words(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value
        case list():
            for one in value:
                yield from _words(one)
        case {"type": "text" | "input_text" | "output_text", "text": str(text)}:
            yield text
        case {"type": "image_url", "image_url": {"url": str(url)}} | {"type": "input_image", "image_url": str(url)}:
            if "application/pdf" not in url:
                yield _value_of(url)
        case {"type": "image", "source": {"url": str(url)} | {"data": str(url)}}:
            yield url
        case {"type": "document", "source": {"type": "text", "data": str(text)}}:
            yield text
        case {"type": "file", "file": {"file_data": str(data)}} | {"type": "input_file", "file_data": str(data)}:
            # What is shown of a PDF has tests of its own, and so has the note in place of other documents.
            if "application/pdf" not in data and "application/zip" not in data:
                yield base64.b64decode(_value_of(data)).decode()
        case {"type": "tool_reference", "tool_name": str(name)}:
            yield name
        case {"type": "reasoning" | "thinking" | "redacted_thinking"}:
            return
        case {"type": str(kind), "output": output} if kind.endswith("_output"):
            yield from _words(output)
        case {"content": content}:
            yield from _words(content)


def _value_of(url: str) -> str:
    return url.partition("base64,")[2] if url.startswith("data:") else url


def names_said(asked: Nasty) -> set[str]:
    """The names of all tools that are declared."""
    body = asked.body
    declared = [*(body.get("tools") or ()), *(body.get("functions") or ())]
    for message in body.get("messages", ()):
        declared += message.get("tools") or ()
    names = set[str]()
    for tool in declared:
        for one in tool.get("tools", [tool]):
            names.add(one.get("function", one).get("name") or one["type"])
    return names


def arguments_said(asked: Nasty) -> list[Any]:
    """What was asked of tools, where that was an object, or the text of one."""
    found = _asked(asked.body.get("messages") or asked.body.get("input"))
    return [value for value in map(_as_object, found) if value]


def _asked(value: Any) -> Iterator[Any]:
    match value:
        case list():
            for one in value:
                yield from _asked(one)
        case {"type": "tool_use", "input": given}:
            yield given
        case {"type": "custom_tool_call", "input": given}:
            yield {"input": given}
        case {"type": "function_call" | "function", "arguments": given}:
            yield given
        case {"function": {"arguments": given}}:
            yield given
        case dict():
            for key in ("content", "tool_calls", "function_call"):
                if isinstance(value.get(key), list):
                    yield from _asked(value[key])
                elif key == "function_call" and key in value:
                    yield value[key]["arguments"]


def _as_object(given: Any) -> Any:
    try:
        value = json.loads(given) if isinstance(given, str) else given
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def parts_of_body(body: Json, upstream: str) -> tuple[list[str], set[str], list[Any]]:
    """All strings of a body to a host, the names of its tools, and what is asked of tools in it."""
    texts, waiting = list[str](), [body.get("messages"), body.get("system")]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            texts.append(value)
        elif isinstance(value, dict):
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
    tools = [*(body.get("tools") or ())]
    for message in body["messages"]:
        tools += message.get("tools") or ()
    names = {tool.get("function", tool)["name"] for tool in tools}
    return texts, names, arguments_said(Nasty("", upstream, body))
