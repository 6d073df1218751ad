"""Law 7, for requests: what is done to a conversation grows with it, however its messages are arranged."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

import pytest

import moonshim
from moonshim.engine.dialects.openai_responses.request import parse_request
from moonshim.engine.prepare import prepare_request, read_request
from moonshim.engine.signing import Signer
from tests.laws.test_linear import assert_linear

Json = dict[str, Any]

_SIZE: Final = 150


def operations_made(work: Callable[[], object]) -> int:
    """How many instructions of Python were run: a loop shows that calls nothing, too."""
    count = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += event == "opcode"
        return trace

    gc.disable()
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
        gc.enable()
    return count


def _thoughts(count: int) -> list[Json]:
    return [{"role": "assistant", "content": None, "reasoning_content": f"thought {n}"} for n in range(count)]


def _words(role: str) -> Callable[[int], list[Json]]:
    return lambda count: [{"role": role, "content": f"word {n}"} for n in range(count)]


def _orphans(count: int) -> list[Json]:
    return [{"role": "tool", "tool_call_id": f"call_{n}", "content": "done"} for n in range(count)]


def _results(count: int) -> list[Json]:
    calls = [
        {"id": f"call_{n}", "type": "function", "function": {"name": "ls", "arguments": "{}"}} for n in range(count)
    ]
    return [{"role": "assistant", "content": None, "tool_calls": calls}, *_orphans(count)]


CHATS: Final[dict[str, Callable[[int], list[Json]]]] = {
    "assistants that only think": _thoughts,
    "assistants in a row": _words("assistant"),
    "users in a row": _words("user"),
    "results without a call": _orphans,
    "results in a row": _results,
}


@pytest.mark.parametrize("host", ["moonshot", "moonshot-anthropic"])
@pytest.mark.parametrize("name", CHATS)
def test_preparing_many_messages_of_one_role_is_linear(name: str, host: str) -> None:
    def work(count: int) -> int:
        said = [{"role": "user", "content": "go"}, *CHATS[name](count), {"role": "user", "content": "on"}]
        body = {"model": "m", "messages": said}
        return operations_made(lambda: prepare_request(body, host=host, model="kimi-k2.6"))

    work(2)
    assert_linear(work, _SIZE)


@pytest.mark.parametrize("to", ["anthropic", "openai_responses"])
@pytest.mark.parametrize("name", CHATS)
def test_translating_many_messages_of_one_role_is_linear(name: str, to: str) -> None:
    def work(count: int) -> int:
        said = CHATS[name](count)
        return operations_made(lambda: moonshim.translate_messages(said, from_="openai_chat", to=to))

    work(2)
    assert_linear(work, _SIZE)


@pytest.mark.parametrize("to", ["anthropic", "openai_responses"])
def test_translating_a_message_of_many_parts_is_linear(to: str) -> None:
    def work(count: int) -> int:
        parts = [{"type": "text", "text": f"word {n}"} for n in range(count)]
        said = [{"role": "user", "content": parts}]
        return operations_made(lambda: moonshim.translate_messages(said, from_="openai_chat", to=to))

    work(2)
    assert_linear(work, _SIZE)


@pytest.mark.parametrize("kind", ["additional_tools", "tool_search_output"])
@pytest.mark.parametrize("distinct", [True, False])
def test_loading_tools_by_many_items_is_linear(kind: str, distinct: bool) -> None:
    def work(count: int) -> int:
        spaces = [
            {"type": "namespace", "name": "a", "tools": [{"type": "function", "name": f"f{n if distinct else 0}"}]}
            for n in range(count)
        ]
        items: list[Json] = [{"type": kind, "call_id": f"c{n}", "tools": [one]} for n, one in enumerate(spaces)]
        body = {"model": "m", "input": [*items, {"role": "user", "content": "go"}]}
        return operations_made(lambda: parse_request(body, Signer()))

    work(2)
    assert_linear(work, _SIZE)


def test_a_loop_in_a_loop_would_be_found_out() -> None:
    with pytest.raises(AssertionError):
        assert_linear(lambda size: operations_made(lambda: [{-m for m in range(n)} for n in range(size)]), _SIZE)


_ROUNDS: Final = ({"role": "user", "content": "x"}, {"role": "assistant", "content": "y"})
_MOST_FOR_ONE: Final = {"openai_chat": 1450, "anthropic": 1600, "openai_responses": 2050}
"""Instructions of Python. 27 MB are 800,000 such messages: each thousand instructions are several seconds of a core."""


@pytest.mark.parametrize("dialect", _MOST_FOR_ONE)
def test_a_very_small_message_costs_little(dialect: str) -> None:
    def work(count: int) -> int:
        said = [dict(message) for _ in range(count) for message in _ROUNDS]
        body: Json = {"model": "m", "max_tokens": 9, "messages": said}
        if dialect == "openai_responses":
            body = {"model": "m", "input": said}

        def prepare() -> None:
            asked = read_request(body, dialect=dialect)
            asked.lost_turns()
            asked.prepare(host="moonshot", model="kimi-k2.6")

        prepare()  # what is made once is made
        return operations_made(prepare)

    assert (work(150) - work(50)) / 200 < _MOST_FOR_ONE[dialect]
