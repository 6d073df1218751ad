"""A whole request to a host of Kimi -> every reason for which the host refuses it, in the order of its checks.

Written from what is known of the hosts alone, and independent of the code that it judges. Messages are the host's own
where these are known; the others are our wording.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from moonshim.simulator.request import Wire
from moonshim.simulator.rules.block_rules import check_block_messages, check_system
from moonshim.simulator.rules.contracts import Contract, Json, contract
from moonshim.simulator.rules.message_rules import check_chat_messages, check_partial
from moonshim.simulator.rules.objection import Objection
from moonshim.simulator.rules.sampling_rules import check_messages_sampling, check_sampling, check_stop, check_tokens
from moonshim.simulator.rules.schema_rules import check_schema_value
from moonshim.simulator.rules.shapes import describe
from moonshim.simulator.rules.thinking_rules import check_chat_thinking, check_messages_thinking, will_think
from moonshim.simulator.rules.tool_rules import (
    check_chat_choice,
    check_dynamic_tools,
    check_messages_choice,
    check_messages_tools,
    check_tools,
)

__all__ = ["check", "check_chat", "check_messages"]

FORMATS: Final = ("text", "json_object", "json_schema")
SEALED: Final = ("signature", "encrypted", "encrypted_content", "data")
TESTED: Final = frozenset({"names-of-64", "cache-writes"})
"""Rules that are only assumed of the hosts, and that the engine follows all the same."""


def check(
    body: Any, *, wire: Wire, generation: str, host: str, assume: frozenset[str] = frozenset()
) -> Objection | None:
    """The first reason for which the host refuses a request; None if it accepts it. Any JSON value is allowed.

    >>> ask = {"model": "kimi-k3", "messages": [{"role": "user", "content": "Hi"}]}
    >>> check(ask, wire="openai_chat", generation="k3", host="moonshot")
    >>> check({**ask, "n": 2}, wire="openai_chat", generation="k3", host="moonshot").message
    'invalid n: only 1 is allowed for this model'
    """
    of = contract(generation, host)
    found = _messages(body, of) if wire == "anthropic" else _chat(body, of)
    return next((each for each in found if not each.ours and (not each.assumed or each.assumed in assume)), None)


def check_chat(body: Any, *, generation: str, host: str = "moonshot") -> list[str]:
    """All objections to a Chat Completions request that the engine has made; empty if it is correct.

    >>> ask = {"model": "kimi-k3", "messages": [{"role": "user", "content": "Hi"}]}
    >>> check_chat(ask, generation="k3")
    []
    >>> check_chat({**ask, "temperature": 0.3}, generation="k3")
    ['invalid temperature: only 1 is allowed for this model']
    """
    return _messages_of(_chat(body, contract(generation, host)))


def check_messages(body: Any, *, generation: str, host: str = "moonshot-anthropic") -> list[str]:
    """All objections to a request in Anthropic's format; empty if it is correct."""
    return _messages_of(_messages(body, contract(generation, host)))


def _messages_of(found: Iterator[Objection]) -> list[str]:
    return [each.message for each in found if not each.assumed or each.assumed in TESTED]


def _chat(body: Any, of: Contract) -> Iterator[Objection]:
    if not isinstance(body, dict):
        yield Objection(f"Invalid request: the body must be an object, not {describe(body)}")
        return
    thinking, names = will_think(body, of), set[str]()
    yield from _frame(body)
    yield from check_sampling(body, of, thinking)
    yield from check_tokens(body, of, "max_tokens", "max_completion_tokens")
    yield from check_stop(body.get("stop"), of)
    yield from check_chat_thinking(body, of)
    yield from check_tools(body.get("tools"), of, thinking, names)
    yield from check_dynamic_tools(body.get("messages"), of, thinking, names)
    yield from check_chat_choice(body.get("tool_choice"), of, thinking, names)
    yield from check_chat_messages(body.get("messages"), of, thinking)
    yield from _response_format(body.get("response_format"), of)
    yield from _cache_options(body.get("prompt_cache_options"), of)
    yield from check_partial(body.get("messages"), of)
    yield from _check_sealed(body)


def _messages(body: Any, of: Contract) -> Iterator[Objection]:
    if not isinstance(body, dict):
        yield Objection(f"Invalid request: the body must be an object, not {describe(body)}")
        return
    thinking, names = will_think(body, of), set[str]()
    yield from _frame(body)
    yield from check_messages_sampling(body, of, thinking)
    if body.get("max_tokens") is None:
        yield Objection("max_tokens: Field required")
    yield from check_tokens(body, of, "max_tokens")
    yield from check_stop(body.get("stop_sequences"), of)
    yield from check_messages_thinking(body, of)
    yield from check_messages_tools(body.get("tools"), of, names)
    yield from check_messages_choice(body.get("tool_choice"), of, thinking, names)
    yield from check_system(body.get("system"), of)
    yield from check_block_messages(body, of, thinking)
    yield from _check_sealed(body)


def _frame(body: Json) -> Iterator[Objection]:
    if not isinstance(body.get("model"), str) or not body["model"]:
        yield Objection("Invalid request: model is missing")
    if not isinstance(body.get("stream"), bool | None):
        yield Objection("Invalid request: stream must be a boolean")
    if not isinstance(body.get("stream_options"), dict | None):
        yield Objection("Invalid request: stream_options must be an object")


def _response_format(given: Any, of: Contract) -> Iterator[Objection]:
    """A schema has a name, and must be of Moonshot's own flavour unless `strict` is false. Moonshot's verifier has the
    status of what it refuses; the words are not known."""
    if given is None:
        return
    if not isinstance(given, dict) or given.get("type") not in FORMATS:
        yield of.objection(f"invalid response_format: type must be one of {', '.join(FORMATS)}")
    elif given["type"] == "json_schema":
        form = given.get("json_schema")
        if not isinstance(form, dict) or not isinstance(form.get("schema"), dict):
            yield of.objection("invalid response_format: json_schema.schema is missing")
        elif of.moonshots and not (isinstance(form.get("name"), str) and form["name"]):
            yield Objection("invalid response_format: json_schema.name is missing")
        elif of.moonshots and not isinstance(form.get("strict"), bool | None):
            yield Objection("invalid response_format: json_schema.strict must be a boolean")
        elif of.moonshots and form.get("strict") is not False and (fault := check_schema_value(form["schema"])):
            yield Objection(f"invalid response_format: {fault}")


def _cache_options(given: Any, of: Contract) -> Iterator[Objection]:
    """Moonshot's lifetimes of a cached prompt; the words of its refusal are not known."""
    if given is None or of.host_name != "moonshot" or of.generation.family != "k3":
        return
    if not isinstance(given, dict) or given.get("ttl") not in (None, "5m", "1h"):
        yield Objection("invalid prompt_cache_options: ttl must be 5m or 1h", assumed="cache-writes")


def _check_sealed(body: Json) -> Iterator[Objection]:
    """A value that was signed for a client is useless to a host, and may reveal more than it should."""
    waiting: list[Any] = [body]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            for key in SEALED:
                if isinstance(value.get(key), str) and value[key].startswith("moonshim"):
                    yield Objection(f"{key} is a token signed by Moonshim, which must not be sent to a host", ours=True)
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
