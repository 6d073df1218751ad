"""Rows about an agent, its text protocol, and the API it talks to -> what ours do, over a real socket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any, Final
from urllib.error import HTTPError
from urllib.request import Request as HttpRequest
from urllib.request import urlopen

from conformance.checked import Checked
from conformance.local_host import local_host
from conformance.replies import Json, sent
from moonshim.agent import Agent, Provider, ToolEnded, as_marked_text, parse_marked_text, tool
from moonshim.engine.assemble import Assembler
from moonshim.engine.dialects.openai_chat.messages import render_messages
from moonshim.simulator import Simulator

__all__ = ["check"]

_DONE: Final = sent([{"content": "Done."}])
_BASH: Final = {"type": "function", "function": {"name": "bash", "parameters": {"type": "object", "properties": {}}}}


def check(row: Json) -> Checked:
    """Chosen by what the row gives."""
    given, expect = row["input"], row["expect"]
    if "status" in expect:
        return _check_refusal(expect)
    if "yields" in expect:
        return _check_pieces(given, expect)
    if "assistant" in expect:
        return _check_round(given, expect)
    if "api_messages" in expect:
        return _check_sent(given, expect)
    if "llm_calls" in expect:
        return _check_bound(given, expect)
    return _check_failing_tool(given, expect)


def _call(name: str, arguments: str = "{}", reasoning: str = "I call.") -> list[bytes]:
    call = {"index": 0, "id": "tool_XYZ", "type": "function", "function": {"name": name, "arguments": arguments}}
    return sent([{"reasoning_content": reasoning}, {"tool_calls": [call]}], "tool_calls")


def _provider(url: str) -> Provider:
    return Provider(url, model="kimi-k2.5", host="moonshot", attempts=1)


def _check_pieces(given: Json, expect: Json) -> Checked:
    """The pieces of one answer; its usage comes in the piece that ends it."""
    usage = given.get("chunk", {})
    events = sent(given.get("deltas", [{"content": "."}]), "tool_calls" if "deltas" in given else "stop")
    if usage:
        events.insert(-1, f"data: {json.dumps(usage)}\n\n".encode())
    with local_host([events]) as host:
        pieces = asyncio.run(_pieces(host.url))
    if not usage:
        return Checked({"yields": [piece for piece in pieces if not piece.startswith("[USAGE]")]}, expect)
    (told,) = [piece for piece in pieces if piece.startswith("[USAGE]")]
    return Checked({"yields": [told]}, expect)


async def _pieces(url: str, messages: Sequence[Json] = ({"role": "user", "content": "Go."},)) -> list[str]:
    async with _provider(url) as provider:
        return [piece async for piece in as_marked_text(provider.stream_chat_with_tools(messages, [_BASH]))]


def _check_round(given: Json, expect: Json) -> Checked:
    """What the pieces say as a message; and a round with the same answer, as the host sees it."""
    assembler = Assembler()
    for event in parse_marked_text(given["chunks"]):
        assembler.feed(event)
    (said,) = render_messages([assembler.message])
    function = said["tool_calls"][0]["function"]
    answer = _call(function["name"], function["arguments"], said["reasoning_content"])
    bodies, _ = _run([answer, _DONE], [_tool("bash")])
    messages = bodies[-1]["messages"]
    assistant, result = messages[-2:]
    # In a request the identifier is the one that the host gets for this call.
    id, assistant["tool_calls"][0]["id"] = assistant["tool_calls"][0]["id"], said["tool_calls"][0]["id"]
    got = {
        "assistant": assistant,
        "next_request_roles": [message["role"] for message in messages],
        "tool_message": {"role": result["role"], "tool_call_id": result["tool_call_id"]},
    }
    return Checked(got, expect | {"tool_message": {"role": "tool", "tool_call_id": id}})


def _check_sent(given: Json, expect: Json) -> Checked:
    with local_host([_DONE]) as host:
        asyncio.run(_pieces(host.url, given["messages"]))
    return Checked({"api_messages": host.bodies[0]["messages"]}, expect)


def _check_bound(given: Json, expect: Json) -> Checked:
    bodies, told = _run([_call("bash")], [_tool("bash")], rounds=given["max_iterations"])
    return Checked(
        {"llm_calls": len(bodies), "text_chunks": len([one for one in told if isinstance(one, str)])}, expect
    )


def _check_failing_tool(given: Json, expect: Json) -> Checked:
    """The words are ours: what counts is that the result names the cause, is an error, and is followed by a round."""
    name = given.get("tool", "error_tool")
    bodies, told = _run([_call(name), _DONE], [_tool("other"), _tool("error_tool", fails="Something went wrong")])
    (ended,) = [one for one in told if isinstance(one, ToolEnded)]
    got = {"is_error": ended.result.is_error, "loop_continues": len(bodies) == 2}
    text = bodies[-1]["messages"][-1]["content"]
    if "tool_message_content" in expect:
        return Checked(got | {"tool_message_content": text}, expect)
    return Checked({"is_error": ended.result.is_error, "tool_output": text}, expect)


def _tool(name: str, fails: str = "") -> Any:
    def run() -> str:
        """Do it."""
        if fails:
            raise ValueError(fails)
        return "done"

    run.__name__ = name
    return tool(run)


def _run(answers: Sequence[Sequence[bytes]], tools: list[Any], **given: Any) -> tuple[list[Json], list[Any]]:
    """The bodies that the host got, and the steps of the run."""

    async def run(url: str) -> list[Any]:
        async with _provider(url) as provider:
            agent = Agent(provider, tools, system="Be brief.", **given)
            return [step async for step in agent.run_stream("Go.")]

    with local_host(answers) as host:
        return host.bodies, asyncio.run(run(host.url))


def _check_refusal(expect: Json) -> Checked:
    """What the simulator answers to a history whose tool turn has no reasoning."""
    call = {"id": "functions.bash:0", "type": "function", "function": {"name": "bash", "arguments": "{}"}}
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Go."},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call["id"], "content": "done"},
    ]
    body = {"model": "kimi-k2.5", "messages": messages, "tools": [_BASH], "thinking": {"type": "enabled"}}
    with Simulator().running() as server:
        headers = {"content-type": "application/json", "authorization": "Bearer none"}
        request = HttpRequest(f"{server.url}/v1/chat/completions", json.dumps(body).encode(), headers)
        try:
            with urlopen(request) as response:
                status, answer = response.status, json.load(response)
        except HTTPError as refused:
            status, answer = refused.code, json.load(refused)
    error = answer.get("error", {})
    expected = {key: value for key, value in expect.items() if key != "note"}
    begin = expect["message_startswith"]
    got = {"status": status, "type": error.get("type"), "message_startswith": error.get("message", "")[: len(begin)]}
    return Checked(got, expected)
