"""What a nasty request is, and small words to write one with."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

from msgspec import Struct

from moonshim.engine.hosts.table import HOSTS

__all__ = [
    "CHECKED",
    "PIXEL",
    "Json",
    "Nasty",
    "Refused",
    "ai",
    "call",
    "chat",
    "function",
    "messages",
    "responses",
    "result",
]

Json: TypeAlias = dict[str, Any]

PIXEL: Final = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


CHECKED: Final = ("moonshot", "moonshot-anthropic", "kimi-coding", "openrouter")
"""Where Moonshot's own checks run."""


class Nasty(Struct, frozen=True):
    """A request that has to be accepted once it was prepared."""

    name: str
    dialect: str
    body: Json
    sees: str = ""
    """Where a picture is in it: a model without eyes refuses it, and names this field."""
    hosts: tuple[str, ...] = HOSTS
    """Where it is sent, when it is about a rule that only some hosts have."""


class Refused(Struct, frozen=True):
    """A request that cannot be made right, at these hosts."""

    name: str
    dialect: str
    body: Json
    field: str
    hosts: tuple[str, ...] = HOSTS


def chat(name: str, *said: Json, sees: str = "", hosts: tuple[str, ...] = HOSTS, **fields: Any) -> Nasty:
    return Nasty(name, "openai_chat", {"model": "gpt-5", "messages": list(said), **fields}, sees, hosts)


def messages(name: str, *said: Json, sees: str = "", hosts: tuple[str, ...] = HOSTS, **fields: Any) -> Nasty:
    body = {"model": "claude-sonnet-5", "max_tokens": 32000, "messages": list(said), **fields}
    return Nasty(name, "anthropic", body, sees, hosts)


def responses(name: str, *items: Json, sees: str = "", hosts: tuple[str, ...] = HOSTS, **fields: Any) -> Nasty:
    return Nasty(name, "openai_responses", {"model": "gpt-5-codex", "input": list(items), **fields}, sees, hosts)


def ai(*calls: Json, **fields: Any) -> Json:
    """An assistant message of Chat; `content` is only there when it is given."""
    return {"role": "assistant", **fields, **({"tool_calls": list(calls)} if calls else {})}


def call(id: Any, name: str, arguments: Any = "{}") -> Json:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def result(id: Any, content: Any = "done", **more: Any) -> Json:
    return {"role": "tool", "tool_call_id": id, "content": content, **more}


def function(name: str, parameters: Json | None = None, **more: Any) -> Json:
    said = {"name": name, "description": f"Use {name}.", **({"parameters": parameters} if parameters else {})}
    return {"type": "function", "function": said | more}
