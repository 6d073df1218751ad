"""Chat bodies -> what a host is sent of them: parsed, conditioned, and rendered again."""

from __future__ import annotations

from typing import Any, TypeAlias

from moonshim.engine.dialects.openai_chat.request import parse_request, render_request
from moonshim.engine.hosts.detect import profile_for
from moonshim.engine.request.adapt import AdaptedRequest, adapt_request
from moonshim.engine.signing import Signer
from moonshim.engine.values.conversation import Change, Request
from moonshim.engine.values.options import KimiOptions

__all__ = ["Json", "ai", "body", "call", "made", "parsed", "rules", "sent", "sent_messages", "tool", "user"]

Json: TypeAlias = dict[str, Any]


def user(content: Any = "hi", **more: Any) -> Json:
    return {"role": "user", "content": content, **more}


def ai(*calls: Json, **fields: Any) -> Json:
    return {"role": "assistant", **fields, **({"tool_calls": list(calls)} if calls else {})}


def call(id: Any = "c1", name: str = "ls", arguments: Any = "{}") -> Json:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def tool(id: Any = "c1", content: Any = "done", **more: Any) -> Json:
    return {"role": "tool", "tool_call_id": id, "content": content, **more}


def body(*messages: Json, **fields: Any) -> Json:
    return {"model": "kimi-k2.6", "messages": list(messages), **fields}


def parsed(given: Json) -> Request:
    return parse_request(given, Signer())[0]


def made(given: Json | Request, host: str = "moonshot", model: str = "kimi-k2.6", **more: Any) -> AdaptedRequest:
    request = given if isinstance(given, Request) else parsed(given)
    overrides, options = more.pop("overrides", None), more.pop("options", KimiOptions())
    upstream = more.pop("upstream", "openai_chat")
    if (host, upstream) == ("moonshot", "openai_chat"):
        # The short ids of these tables stay; `test_id_options` has those that the platform gets.
        overrides = {"history_ids": "unique"} | (overrides or {})
    profile = profile_for(host=host, model=model, upstream=upstream, overrides=overrides)
    return adapt_request(request, profile, options, **more)


def sent(given: Json | Request, host: str = "moonshot", model: str = "kimi-k2.6", **more: Any) -> Json:
    return render_request(made(given, host, model, **more).request)[0]


def sent_messages(*messages: Json, host: str = "moonshot", model: str = "kimi-k2.6", **more: Any) -> list[Json]:
    found: list[Json] = sent(body(*messages), host, model, **more)["messages"]
    return found


def rules(changes: list[Change]) -> list[str]:
    """The rules of the changes to messages and tools: those to parameters are tested elsewhere."""
    others = ("tool_choice_default", "cache_key", "include_usage", "tool_choice")
    return [change.rule for change in changes if change.rule not in others]
