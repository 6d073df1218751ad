"""Requests to check, made of few words; `Case`: what one of them meets."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

from msgspec import Struct

from moonshim.simulator.request import Wire
from moonshim.simulator.rules import check

__all__ = [
    "ALL",
    "K2",
    "K3",
    "OFF",
    "THINKING",
    "USER",
    "Case",
    "Json",
    "ask",
    "asked",
    "builtin",
    "call",
    "named",
    "result",
    "tool",
    "verdict",
]

Json: TypeAlias = dict[str, Any]

K2: Final = ("k2", "k2-thinking", "k2.5", "k2.6", "k2.7")
K3: Final = ("k3", "k3.1")
THINKING: Final = ("k2-thinking", "k2.5", "k2.6", "k2.7")
"""Those of K2 that think unless they are told not to."""
ALL: Final = (*K2, *K3)
OFF: Final = {"thinking": {"type": "disabled"}}
USER: Final[Json] = {"role": "user", "content": "Hi"}


class Case(Struct, frozen=True):
    """A request, the generations that it is sent to, and the message that refuses it; None: it is taken."""

    body: Json
    generations: tuple[str, ...]
    says: str | None = None
    host: str = "moonshot"
    assume: frozenset[str] = frozenset()


def verdict(case: Case, generation: str, wire: Wire = "openai_chat") -> str | None:
    """What the host says; its refusals here are all of one status and one type."""
    found = check(case.body, wire=wire, generation=generation, host=case.host, assume=case.assume)
    if found is None:
        return None
    assert (found.status, found.kind) == (400, "invalid_request_error")
    return found.message


def ask(*messages: Json, **more: Any) -> Json:
    return {"model": "kimi", "messages": [*(messages or (USER,))], **more}


def tool(name: Any = "ls", parameters: Any = None) -> Json:
    function = {"name": name} if parameters is None else {"name": name, "parameters": parameters}
    return {"type": "function", "function": function}


def builtin(name: str = "$web_search") -> Json:
    return {"type": "builtin_function", "function": {"name": name}}


def named(name: str = "ls") -> Json:
    """A choice of one tool."""
    return {"type": "function", "function": {"name": name}}


def call(id: str = "functions.ls:0", arguments: Any = "{}", name: str = "ls") -> Json:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def asked(*ids: str, **more: Any) -> Json:
    """An assistant message with calls, and the empty reasoning that is enough."""
    return {"role": "assistant", "reasoning_content": "", "tool_calls": [call(id) for id in ids], **more}


def result(id: str = "functions.ls:0", **more: Any) -> Json:
    return {"role": "tool", "tool_call_id": id, "content": "", **more}
