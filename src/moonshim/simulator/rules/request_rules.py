"""A whole request to a host of Kimi -> every reason for which the host refuses it, in the order of its checks.

Written from what is known of the hosts alone, and independent of the code that it judges.
Where the exact text of a host is known it is that text; the others are in words of our own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from moonshim.simulator.question import Wire
from moonshim.simulator.rules.block_rules import check_block_messages
from moonshim.simulator.rules.contracts import Contract, Json, contract
from moonshim.simulator.rules.message_rules import check_chat_messages, check_partial
from moonshim.simulator.rules.objection import Objection
from moonshim.simulator.rules.sampling_rules import (
    chat_thinking,
    check_sampling,
    check_stop,
    check_thinking,
    check_tokens,
    messages_thinking,
)
from moonshim.simulator.rules.schema_rules import check_schema
from moonshim.simulator.rules.tool_rules import check_choice, check_dynamic_tools, check_messages_tools, check_tools

__all__ = ["check", "check_chat", "check_messages"]

_FORMATS: Final = ("text", "json_object", "json_schema")
_SEALED: Final = ("signature", "encrypted", "encrypted_content", "data")


def check(
    body: Any, *, wire: Wire, generation: str, host: str, assume: frozenset[str] = frozenset()
) -> Objection | None:
    """The first reason for which the host refuses a request; nothing when it takes it."""
    found = (
        check_messages(body, generation=generation, host=host)
        if wire == "anthropic"
        else check_chat(body, generation=generation, host=host)
    )
    return Objection(found[0]) if found else None


def check_chat(body: Json, *, generation: str, host: str = "moonshot") -> list[str]:
    """What is wrong with a chat-completions request; nothing when the host takes it.

    >>> ask = {"model": "kimi-k3", "messages": [{"role": "user", "content": "Hi"}]}
    >>> check_chat(ask, generation="k3")
    []
    >>> check_chat({**ask, "temperature": 0.3}, generation="k3")
    ['invalid temperature: only 1 is allowed for this model']
    """
    return list(_chat(body, contract(generation, host)))


def _chat(body: Json, of: Contract) -> Iterator[str]:
    thinking, names = chat_thinking(body, of), set[str]()
    yield from _model(body)
    yield from check_sampling(body, of, thinking)
    yield from check_tokens(body, of, "max_tokens", "max_completion_tokens")
    yield from check_stop(body.get("stop"), of)
    yield from check_thinking(body, of, body.get("reasoning_effort"))
    yield from check_tools(body.get("tools"), of, names)
    yield from check_dynamic_tools(body.get("messages"), of, names)
    yield from check_choice(body.get("tool_choice"), of, thinking, names)
    yield from check_chat_messages(body.get("messages"), of, thinking)
    yield from _response_format(body.get("response_format"), of)
    yield from check_partial(body.get("messages"))
    yield from _ours(body)


def check_messages(body: Json, *, generation: str, host: str = "moonshot-anthropic") -> list[str]:
    """What is wrong with a request in Anthropic's format; nothing when the host takes it."""
    return list(_messages(body, contract(generation, host)))


def _messages(body: Json, of: Contract) -> Iterator[str]:
    thinking, names = messages_thinking(body, of), set[str]()
    yield from _model(body)
    yield from check_sampling(body, of, thinking)
    if body.get("max_tokens") is None:
        yield "max_tokens: Field required"
    yield from check_tokens(body, of, "max_tokens")
    yield from check_stop(body.get("stop_sequences"), of)
    output = body.get("output_config")
    yield from check_thinking(body, of, output.get("effort") if isinstance(output, dict) else None)
    yield from check_messages_tools(body.get("tools"), of, names)
    yield from check_choice(body.get("tool_choice"), of, thinking, names)
    yield from _system(body.get("system"))
    yield from check_block_messages(body, of, thinking)
    yield from _ours(body)


def _model(body: Json) -> Iterator[str]:
    if not isinstance(body.get("model"), str) or not body["model"]:
        yield "model is missing"


def _system(system: Any) -> Iterator[str]:
    blocks = system if isinstance(system, list) else []
    if system is not None and not isinstance(system, str | list):
        yield "system must be a string or an array of text blocks"
    for block in blocks:
        if not isinstance(block, dict) or block.get("type") != "text":
            yield "system must be a string or an array of text blocks"
        elif not block.get("text"):
            yield "text content is empty"


def _response_format(given: Any, of: Contract) -> Iterator[str]:
    if given is None:
        return
    if not isinstance(given, dict) or given.get("type") not in _FORMATS:
        yield f"invalid response_format: type must be one of {', '.join(_FORMATS)}"
    elif given["type"] == "json_schema":
        form = given.get("json_schema")
        if not isinstance(form, dict) or not isinstance(form.get("schema"), dict):
            yield "invalid response_format: json_schema.schema is missing"
        elif of.host.moonshots and (fault := check_schema(form["schema"])):
            yield f"invalid response_format: {fault}"


def _ours(body: Json) -> Iterator[str]:
    """What was sealed for a client is of no use to a host, and may say more than the host should know."""
    waiting: list[Any] = [body]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            for key in _SEALED:
                if isinstance(value.get(key), str) and value[key].startswith("moonshim"):
                    yield f"{key} is one of Moonshim's own and must not leave"
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
