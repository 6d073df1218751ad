"""Messages requests to canonical requests and back; what others say, written for Messages; what is refused."""

from __future__ import annotations

from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from moonshim.engine.dialects.anthropic.request import drop_unsupported, parse_request, render_request
from moonshim.engine.signing import InvalidSignature, SignedPayload, Signer
from moonshim.engine.values.conversation import (
    Message,
    Reasoning,
    Request,
    ResponseFormat,
    Sampling,
    Text,
    Thinking,
    Tool,
    ToolChoice,
)
from moonshim.errors import InvalidInput
from tests.engine.dialects.anthropic import strategies

Json = dict[str, Any]
SEALER: Final = Signer(b"secret")
HI: Final[Json] = {"role": "user", "content": "hi"}
BODY: Final[Json] = {"model": "kimi-k3", "max_tokens": 9, "messages": [HI]}


def parsed(**fields: Any) -> Request:
    return parse_request({**BODY, **fields}, SEALER)[0]


def rendered(**fields: Any) -> Json:
    request = Request(model="kimi-k3", messages=(Message("user", (Text("hi"),)),), **fields)
    return {key: value for key, value in render_request(request)[0].items() if key not in BODY}


@given(strategies.requests)
def test_a_request_that_is_parsed_and_rendered_is_unchanged(body: Json) -> None:
    request, changes = parse_request(body, SEALER)
    assert changes == []
    assert len(request.locations) == len(request.messages)
    assert render_request(request) == (body, [])


@given(strategies.requests, st.data())
def test_any_json_in_any_place_is_read_or_refused_by_name(body: Json, data: st.DataObject) -> None:
    at: Any = body
    while True:
        keys = list(at) if isinstance(at, dict) else list(range(len(at)))
        if not keys:
            break
        key = data.draw(st.sampled_from(keys))
        if not isinstance(at[key], (dict, list)) or data.draw(st.booleans()):
            at[key] = data.draw(strategies.any_json)
            break
        at[key] = at[key].copy()
        at = at[key]
    refused, request = None, Request(model="")
    try:
        request, _ = parse_request(body, SEALER)
    except InvalidInput as error:
        refused = error.field
    again = render_request(request)[0]
    assert refused or again == body or body["max_tokens"] is None


@given(strategies.any_json)
def test_any_json_for_a_body_is_refused(body: Any) -> None:
    with pytest.raises(InvalidInput):
        parse_request(body, SEALER)


REFUSED: Final[dict[str, tuple[Json, str]]] = {
    "no model": ({"model": None}, "model"),
    "no messages": ({"messages": []}, "messages"),
    "a prompt that is no text": ({"system": [{"type": "image"}]}, "system[0].source"),
    "a prompt that is a number": ({"system": 1}, "system"),
    "a temperature in words": ({"temperature": "hot"}, "temperature"),
    "a limit that is no number": ({"max_tokens": True}, "max_tokens"),
    "stop sequences that are none": ({"stop_sequences": ["a", 1]}, "stop_sequences[1]"),
    "a choice without a type": ({"tool_choice": {"name": "ls"}}, "tool_choice.type"),
    "a choice of no tool": ({"tool_choice": {"type": "tool"}}, "tool_choice.name"),
    "a budget in words": ({"thinking": {"type": "enabled", "budget_tokens": "big"}}, "thinking.budget_tokens"),
    "tools that are none": ({"tools": {}}, "tools"),
    "a tool without a name": ({"tools": [{"input_schema": {}}]}, "tools[0].name"),
    "a tool without a schema": ({"tools": [{"name": "ls"}]}, "tools[0].input_schema"),
    "a format without a schema": (
        {"output_config": {"format": {"type": "json_schema"}}},
        "output_config.format.schema",
    ),
    "a user who is a number": ({"metadata": {"user_id": 1}}, "metadata.user_id"),
    "a thread to go on with": ({"thread": {"type": "continue", "previous_message_id": "msg_1"}}, "thread"),
}


@pytest.mark.parametrize(("fields", "field"), REFUSED.values(), ids=REFUSED.keys())
def test_what_cannot_be_understood_is_refused_by_its_field(fields: Json, field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parsed(**fields)
    assert caught.value.field == field


def test_what_a_request_says_is_where_everybody_finds_it() -> None:
    request = parsed(
        system=[{"type": "text", "text": "one"}, {"type": "text", "text": "two"}],
        temperature=0.5,
        top_k=4,
        stop_sequences=["END"],
        stream=True,
        metadata={"user_id": "u", "tag": "t"},
        thinking={"type": "enabled", "budget_tokens": 2048},
        output_config={"effort": "high", "format": {"type": "json_schema", "schema": {"type": "object"}}},
        tool_choice={"type": "any", "disable_parallel_tool_use": True},
    )
    assert request.messages[0].parts == (Text("one"), Text("two"))
    assert request.sampling == Sampling(temperature=0.5, top_k=4, max_tokens=9, stop=("END",))
    assert (request.stream, request.user, request.metadata) == (True, "u", {"tag": "t"})
    assert request.thinking == Thinking(True, "high", 2048)
    assert request.response_format == ResponseFormat("json_schema", schema={"type": "object"})
    assert (request.tool_choice, request.parallel_calls) == (ToolChoice("required"), False)


TOOLS: Final[dict[str, tuple[Json, dict[str, Any]]]] = {
    "a function": ({"name": "ls", "input_schema": {"type": "object"}, "strict": True}, {"name": "ls", "strict": True}),
    "one to be searched for": ({"name": "ls", "input_schema": {}, "defer_loading": True}, {"deferred": True}),
    "one that the host runs": ({"type": "web_search_20250305", "name": "web_search"}, {"kind": "server"}),
    "one without a name": ({"type": "mcp_toolset", "mcp_server_name": "x"}, {"kind": "server", "name": "mcp_toolset"}),
    "one that the client runs": ({"type": "bash_20250124", "name": "bash"}, {"kind": "function", "name": "bash"}),
    "one in the form of Chat": ({"type": "function", "function": {"name": "ls"}}, {"kind": "function", "name": "ls"}),
}


@pytest.mark.parametrize(("definition", "expected"), TOOLS.values(), ids=TOOLS.keys())
def test_definitions_become_tools(definition: Json, expected: dict[str, Any]) -> None:
    (tool,) = parsed(tools=[definition]).tools or ()
    assert {key: getattr(tool, key) for key in expected} == expected


def test_anthropics_own_bash_has_a_schema_for_those_who_do_not_know_it() -> None:
    (tool,) = parsed(tools=[{"type": "bash_20250124", "name": "bash"}]).tools or ()
    assert "command" in (tool.parameters or {})["properties"]
    (written,) = rendered(tools=(replace(tool, extras={}),))["tools"]
    assert written["input_schema"] == tool.parameters


WRITTEN: Final[dict[str, tuple[Json, Json]]] = {
    "nothing": ({}, {}),
    "thinking": ({"thinking": Thinking(True, "max", 1024)},
                 {"thinking": {"type": "enabled", "budget_tokens": 1024}, "output_config": {"effort": "max"}}),
    "no thinking": ({"thinking": Thinking(False)}, {"thinking": {"type": "disabled"}}),
    "a form of the answer": (
        {"response_format": ResponseFormat("json_schema", name="x", schema={"type": "object"}, strict=True)},
        {"output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}}},
    ),
    "a tool, and one call at a time": (
        {"tools": (Tool("ls", "Lists.", {"properties": {}}),), "parallel_calls": False},
        {
            "tools": [{"name": "ls", "description": "Lists.", "input_schema": {"type": "object", "properties": {}}}],
            "tool_choice": {"type": "auto", "disable_parallel_tool_use": True},
        },
    ),
    "one call at a time without tools": ({"parallel_calls": False}, {}),
    "a tool of free text": (
        {"tools": (Tool("patch", kind="custom"),)},
        {
            "tools": [
                {
                    "name": "patch",
                    "input_schema": {
                        "type": "object",
                        "properties": {"input": {"type": "string"}},
                        "required": ["input"],
                    },
                }
            ]
        },
    ),
    "a search by the host": (
        {"tools": (Tool("web_search", kind="server"),)},
        {"tools": [{"type": "web_search_20250305", "name": "web_search"}]},
    ),
    "a user": ({"user": "u"}, {"metadata": {"user_id": "u"}}),
    "what the host spells its own way": ({"stream": True, "body_overrides": {"stream": None, "new": 1}}, {"new": 1}),
}  # fmt: skip


@pytest.mark.parametrize(("fields", "expected"), WRITTEN.values(), ids=WRITTEN.keys())
def test_requests_of_others_are_written_as_messages_has_them(fields: Json, expected: Json) -> None:
    assert rendered(**fields) == expected


UNSAID: Final[dict[str, tuple[Json, list[str]]]] = {
    "penalties, a seed, several answers": (
        {"sampling": Sampling(presence_penalty=1, frequency_penalty=0, seed=1, n=2, max_tokens=9)},
        ["presence_penalty", "seed", "n"],
    ),
    "some of the tools": (
        {"tools": (Tool("ls"),), "tool_choice": ToolChoice("auto", allowed=("ls",))},
        ["tool_choice", "max_tokens"],
    ),
    "any JSON": ({"response_format": ResponseFormat("json_object")}, ["response_format", "max_tokens"]),
    "the least effort": ({"thinking": Thinking(effort="minimal")}, ["output_config.effort", "max_tokens"]),
    "kept reasoning": ({"thinking": Thinking(True, keep="all")}, ["thinking", "max_tokens"]),
    "metadata": ({"metadata": {"a": "b"}}, ["metadata", "max_tokens"]),
    "a key for the cache": ({"cache_key": "k"}, ["max_tokens", "prompt_cache_key"]),
    "a tool of another host": ({"tools": (Tool("x", kind="server"),)}, ["max_tokens", "tools[0]"]),
}


@pytest.mark.parametrize(("fields", "places"), UNSAID.values(), ids=UNSAID.keys())
def test_what_messages_cannot_say_is_left_out_and_told(fields: Json, places: list[str]) -> None:
    request = Request(model="kimi-k3", messages=(Message("user", (Text("hi"),)),), **fields)
    assert [change.place for change in render_request(request)[1]] == places


def test_a_limit_is_always_written() -> None:
    body, changes = render_request(Request(model="kimi-k3"))
    assert body["max_tokens"] == 32_000
    assert [change.rule for change in changes] == ["max_tokens_default"]


def test_a_changed_field_keeps_what_else_stood_in_its_object() -> None:
    request = parsed(output_config={"effort": "high", "new": 1}, metadata={"user_id": "u", "tag": 1})
    body, _ = render_request(replace(request, thinking=Thinking(effort="low"), user="v"))
    assert body["output_config"] == {"effort": "low", "new": 1}
    assert body["metadata"] == {"user_id": "v", "tag": 1}


def test_a_prompt_that_lost_a_block_keeps_the_fields_of_the_others() -> None:
    mark = {"cache_control": {"type": "ephemeral"}}
    request = parsed(system=[{"type": "text", "text": "bill"}, {"type": "text", "text": "Be brief.", **mark}])
    system = replace(request.messages[0], parts=request.messages[0].parts[1:])
    body, _ = render_request(replace(request, messages=(system, *request.messages[1:])))
    assert body["system"] == [{"type": "text", "text": "Be brief.", **mark}]


def test_the_prompts_of_others_become_the_system() -> None:
    prompts = (Message("system", (Text("one"),)), Message("system", (Text("two"),)), Message("user", (Text("hi"),)))
    body, changes = render_request(Request(model="k3", messages=prompts, sampling=Sampling(max_tokens=1)))
    assert body["system"] == [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    assert (body["messages"], changes) == ([HI], [])
    body, _ = render_request(Request(model="k3", messages=prompts[1:]))
    assert body["system"] == "two"


# --- our own signatures -----------------------------------------------------------------------------------------


def thinking(signature: str, **more: Any) -> Json:
    block = {"type": "thinking", "thinking": "Hm.", "signature": signature, **more}
    return {"role": "assistant", "content": [block, {"type": "text", "text": "Hi"}]}


def test_a_token_of_ours_is_opened_and_never_sent_on() -> None:
    details = ({"type": "encrypted", "encrypted": "x"},)
    token = SEALER.sign(SignedPayload(signature="EqoB", field="reasoning"))
    other = SEALER.sign(SignedPayload(details=details))
    request = parsed(messages=[HI, thinking(token, x=1), HI, thinking(other)])
    assert request.messages[1].parts[0] == Reasoning("Hm.", "EqoB", (), "reasoning")
    assert request.messages[3].parts[0] == Reasoning("Hm.", None, details)
    body, changes = render_request(request)
    assert body["messages"][1] == thinking("EqoB", x=1)
    assert body["messages"][3]["content"][0] == {"type": "thinking", "thinking": "Hm."}
    assert [change.place for change in changes] == ["messages[3]"]


def test_a_token_that_was_altered_is_refused() -> None:
    token = SEALER.sign(SignedPayload(signature="EqoB"))[:-2] + "xx"
    with pytest.raises(InvalidSignature) as caught:
        parsed(messages=[HI, thinking(token)])
    assert caught.value.field == "messages[1].content[0].signature"


def test_a_token_of_another_key_is_dropped_and_told() -> None:
    token = Signer(b"other").sign(SignedPayload(signature="EqoB"))
    request, changes = parse_request({**BODY, "messages": [HI, thinking(token)]}, SEALER)
    assert request.messages[1].parts[0] == Reasoning("Hm.")
    assert [change.rule for change in changes] == ["seal_unknown"]
    assert "moonshim1." not in str(render_request(request)[0])


def test_a_signature_of_the_host_stays() -> None:
    request = parsed(messages=[HI, thinking("EqoB")])
    assert request.messages[1].parts[0] == Reasoning("Hm.", "EqoB")


@pytest.mark.parametrize(
    ("config", "places"),
    [
        ({"effort": "high", "format": {"type": "json_schema", "schema": {"type": "object"}}}, []),
        ({"format": {"type": "yaml"}}, ["output_config.format"]),
        ({"effort": "high", "format": None, "voice": "loud"}, ["output_config.voice"]),
    ],
)
def test_what_only_messages_hosts_know_of_an_output_is_reported(config: Json, places: list[str]) -> None:
    _, changes = drop_unsupported(parsed(output_config=config))
    assert [(change.rule, change.place) for change in changes] == [("cannot_say", place) for place in places]
