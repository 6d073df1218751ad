"""Whole requests: unchanged in all that Responses can say, and right in what every other dialect is told."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from msgspec.structs import replace

from moonshim.engine.dialects.openai_responses import drop_unsupported, resolve_references
from moonshim.engine.dialects.openai_responses.request import parse_request, render_request
from moonshim.engine.signing import InvalidSignature, SignedPayload, Signer
from moonshim.engine.values.conversation import (
    Media,
    Message,
    Reasoning,
    Request,
    ResponseFormat,
    Sampling,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolChoice,
    ToolResult,
)
from moonshim.errors import InvalidInput

Json = dict[str, Any]

LS: Json = {"type": "function", "name": "ls", "description": "List.", "parameters": {"type": "object"}, "strict": False}
SEARCH: Json = {"type": "function", "name": "search", "parameters": {"type": "object"}, "strict": True, "x": 1}
PATCH: Json = {
    "type": "custom",
    "name": "apply_patch",
    "description": "Edit files.",
    "format": {"type": "grammar", "syntax": "lark", "definition": "start: begin"},
}
GITHUB: Json = {"type": "namespace", "name": "github", "description": "Hub.", "tools": [SEARCH, PATCH], "y": None}
FIND: Json = {"type": "tool_search", "execution": "client", "description": "Find.", "parameters": {"type": "object"}}
CODEX: Json = {
    "model": "kimi-k3",
    "input": [
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "You are Codex."}]},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "list"}]},
        {"type": "function_call", "call_id": "c1", "name": "search", "namespace": "github", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "a"}]},
    ],
    "tools": [LS, GITHUB, {"type": "web_search", "external_web_access": True}],
    "tool_choice": "auto",
    "parallel_tool_calls": True,
    "reasoning": {"effort": "high", "summary": "auto"},
    "store": False,
    "stream": True,
    "include": ["reasoning.encrypted_content"],
    "prompt_cache_key": "key",
    "text": {"verbosity": "low"},
    "client_metadata": {"a": "b"},
}


def body(**fields: Any) -> Json:
    return {"model": "m", "input": "hi", **fields}


BODIES: dict[str, Json] = {
    "the least": body(),
    "Codex": CODEX,
    "instructions": body(instructions="Be brief."),
    "empty instructions": body(instructions=""),
    "null everywhere": body(
        instructions=None,
        tools=None,
        tool_choice=None,
        temperature=None,
        reasoning=None,
        text=None,
        metadata=None,
        user=None,
        stream=None,
        max_output_tokens=None,
        prompt_cache_key=None,
        parallel_tool_calls=None,
    ),
    "sampling": body(temperature=0.5, top_p=1, max_output_tokens=100, top_logprobs=3, truncation="auto"),
    "a schema": body(
        text={"format": {"type": "json_schema", "name": "a", "schema": {"type": "object"}, "strict": True, "x": 1}}
    ),
    "a JSON object and a verbosity": body(text={"format": {"type": "json_object"}, "verbosity": "low"}),
    "an empty format": body(text={"format": {}}),
    "both names for the user": body(user="ann", safety_identifier="bob"),
    "what somebody else has to resolve": body(
        previous_response_id="resp_1", conversation={"id": "conv_1"}, prompt={"id": "p"}, background=True
    ),
    "no input, as it continues": {"model": "m", "previous_response_id": "resp_1"},
    "null input, as it continues": {"model": "m", "input": None, "conversation": "c"},
    "an empty list": body(input=[], instructions="Say hello."),
    "one user in a list": body(input=[{"role": "user", "content": "hi"}]),
    "a system prompt that is an item": body(
        input=[{"role": "system", "content": "x"}, {"role": "user", "content": "y"}]
    ),
    "instructions and a system prompt": body(instructions="a", input=[{"role": "system", "content": "x"}]),
    "fields that nobody knows": body(service_tier="flex", metadata={"a": "b"}, x={"y": [None]}, stream_options={}),
    "no tools": body(tools=[]),
    "tools of every kind": body(
        tools=[LS, GITHUB, PATCH, FIND, {"type": "mcp", "server_label": "s"}, {"type": "web_search_preview"}, LS]
    ),
    "an empty namespace, and one that is said twice": body(tools=[{**GITHUB, "tools": []}, GITHUB, GITHUB]),
    "tools that may wait": body(tools=[{**LS, "defer_loading": True}, {"type": "tool_search"}]),
    "tools that were loaded later": body(
        tools=[FIND],
        input=[
            {"type": "tool_search_call", "call_id": "c1", "execution": "client", "arguments": {"query": "x"}},
            {"type": "tool_search_output", "call_id": "c1", "execution": "client", "tools": [GITHUB, FIND]},
            {"type": "additional_tools", "role": "developer", "tools": [LS]},
        ],
    ),
    "a function has to be called": body(tools=[LS], tool_choice={"type": "function", "name": "ls", "x": 1}),
    "a custom tool has to be called": body(tools=[PATCH], tool_choice={"type": "custom", "name": "apply_patch"}),
    "some tools may be called": body(
        tools=[LS, {"type": "web_search_preview"}],
        tool_choice={
            "type": "allowed_tools",
            "mode": "required",
            "tools": [{"type": "function", "name": "ls"}, {"type": "web_search_preview"}],
        },
    ),
    "a hosted tool has to be called": body(tools=[{"type": "web_search"}], tool_choice={"type": "web_search"}),
    "no thinking": body(reasoning={"effort": "none", "generate_summary": "auto"}),
    "a half of a character": body(input="\ud83d", instructions="\ud83d"),
}


@pytest.mark.parametrize("given", BODIES.values(), ids=BODIES.keys())
def test_a_request_comes_back_as_it_was(given: Json) -> None:
    before = copy.deepcopy(given)
    request, changes = parse_request(given, Signer())
    rendered, unsaid = render_request(request)
    assert rendered == before
    assert given == before
    assert (changes, unsaid) == ([], [])
    assert len(request.locations) == len(request.messages)


def parsed(**fields: Any) -> Request:
    return parse_request(body(**fields), Signer())[0]


# --- what it means ----------------------------------------------------------------------------------------------


def test_codex_is_understood() -> None:
    request, _ = parse_request(CODEX, Signer())
    assert [message.role for message in request.messages] == ["system", "user", "assistant", "tool"]
    assert request.locations == ("input[0]", "input[1]", "input[2]", "input[3]")
    assert [(tool.name, tool.kind, tool.namespace, tool.strict) for tool in request.tools or ()] == [
        ("ls", "function", None, False),
        ("github__search", "function", "github", True),
        ("github__apply_patch", "custom", "github", None),
        ("web_search", "server", None, None),
    ]
    assert request.messages[2].parts == (ToolCall("hist_tool_c1", "github__search", "{}", "c1"),)
    assert request.messages[3].parts == (ToolResult("hist_tool_c1", "github__search", (Text("a"),), wire_id="c1"),)
    assert (request.thinking, request.cache_key, request.stream) == (Thinking(effort="high"), "key", True)


READ: dict[str, tuple[Json, str, Any]] = {
    "tokens": ({"max_output_tokens": 7.0}, "sampling", Sampling(max_tokens=7)),
    "temperature": ({"temperature": 0.5, "top_p": 1}, "sampling", Sampling(0.5, 1)),
    "no thinking": ({"reasoning": {"effort": "none"}}, "thinking", Thinking(enabled=False)),
    "a format": ({"text": {"format": {"type": "json_object"}}}, "response_format", ResponseFormat("json_object")),
    "a schema": (
        {"text": {"format": {"type": "json_schema", "name": "a", "schema": {}, "strict": True}}},
        "response_format",
        ResponseFormat("json_schema", "a", {}, True),
    ),
    "the user": ({"user": "ann"}, "user", "ann"),
    "the newer name of the user": ({"user": "ann", "safety_identifier": "bob"}, "user", "bob"),
    "required": ({"tool_choice": "required"}, "tool_choice", ToolChoice("required")),
    "a function": ({"tool_choice": {"type": "function", "name": "ls"}}, "tool_choice", ToolChoice("tool", "ls")),
    "a function of a namespace, by its plain name": (
        {"tools": [GITHUB], "tool_choice": {"type": "function", "name": "search"}},
        "tool_choice",
        ToolChoice("tool", "github__search"),
    ),
    "a hosted tool": (
        {"tools": [{"type": "web_search_preview"}], "tool_choice": {"type": "web_search_preview"}},
        "tool_choice",
        ToolChoice("tool", "web_search"),
    ),
    "some tools": (
        {"tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "ls"}]}},
        "tool_choice",
        ToolChoice("auto", allowed=("ls",)),
    ),
    "no parallel calls": ({"parallel_tool_calls": False}, "parallel_calls", False),
    "metadata": ({"metadata": {"a": "b"}}, "metadata", {"a": "b"}),
    "no tools": ({"tools": []}, "tools", ()),
    "tools unsaid": ({}, "tools", None),
}


@pytest.mark.parametrize(("fields", "name", "value"), READ.values(), ids=READ.keys())
def test_a_field_is_read(fields: Json, name: str, value: Any) -> None:
    assert getattr(parsed(**fields), name) == value


def test_free_text_is_told_to_a_model_as_a_function_of_one_string() -> None:
    (tool,) = parsed(tools=[PATCH]).tools or ()
    assert tool.kind == "custom"
    assert tool.parameters is not None
    assert tool.parameters["required"] == ["input"]
    assert tool.description is not None
    assert tool.description.startswith("Edit files.")
    assert "lark grammar:\nstart: begin" in tool.description


def test_tools_that_were_loaded_later_are_declared_once() -> None:
    request, _ = parse_request(BODIES["tools that were loaded later"], Signer())
    assert [tool.name for tool in request.tools or ()] == ["tool_search", "github__search", "github__apply_patch", "ls"]


def loads(*tools: Json) -> Json:
    return {"type": "additional_tools", "role": "developer", "tools": list(tools)}


def test_a_loaded_tool_whose_joined_name_is_taken_gets_one_of_its_own() -> None:
    space = {"type": "namespace", "name": "a", "tools": [{"type": "function", "name": "b", "description": "in a"}]}
    called = [
        {"type": "function_call", "call_id": "1", "name": "a__b", "arguments": ""},
        {"type": "function_call", "call_id": "2", "namespace": "a", "name": "b", "arguments": ""},
    ]
    request = parsed(tools=[{"type": "function", "name": "a__b"}], input=[loads(space), loads(space), *called])
    assert [(tool.name, tool.description) for tool in request.tools or ()] == [("a__b", None), ("a__b_2", "in a")]
    names = [part.name for part in request.messages[0].parts if isinstance(part, ToolCall)]
    assert names == ["a__b", "a__b_2"]
    assert render_request(request)[0]["input"] == [loads(space), loads(space), *called]
    answered = replace(request.messages[0], extras={})
    again = render_request(replace(request, messages=(answered,)))[0]["input"]
    assert [(item.get("namespace"), item["name"]) for item in again] == [(None, "a__b"), ("a", "b")]


def test_a_tool_that_is_loaded_with_another_definition_stands_there_twice() -> None:
    other = {**LS, "description": "Another."}
    assert [tool.name for tool in parsed(tools=[LS], input=[loads(other)]).tools or ()] == ["ls", "ls"]
    assert [tool.name for tool in parsed(tools=[LS], input=[loads({**LS, "defer_loading": True})]).tools or ()] == [
        "ls"
    ]
    spaces = [{**GITHUB, "tools": [{**SEARCH, "description": about}]} for about in ("one", "two")]
    names = [tool.name for tool in parsed(tools=[], input=[loads(one) for one in spaces]).tools or ()]
    assert names == ["github__search"] * 2


def test_joined_names_stay_apart_and_calls_find_their_own() -> None:
    tools = [
        {"type": "namespace", "name": "a", "tools": [{"type": "function", "name": "b__c"}]},
        {"type": "namespace", "name": "a__b", "tools": [{"type": "function", "name": "c"}]},
        {"type": "function", "name": "x__y"},
        {"type": "namespace", "name": "x__", "tools": [{"type": "function", "name": "y"}]},
    ]
    calls = [
        {"type": "function_call", "call_id": str(n), "namespace": space, "name": name, "arguments": ""}
        for n, (space, name) in enumerate([("a", "b__c"), ("a__b", "c"), ("x__", "y")])
    ]
    request = parsed(tools=tools, input=calls)
    assert [tool.name for tool in request.tools or ()] == ["a__b__c", "a__b__c_2", "x__y", "x__y_2"]
    names = [part.name for part in request.messages[0].parts if isinstance(part, ToolCall)]
    assert names == ["a__b__c", "a__b__c_2", "x__y_2"]
    assert render_request(request)[0]["input"] == calls


# --- what we sealed ---------------------------------------------------------------------------------------------


def sealed_input(token: str, *texts: str) -> Json:
    summary = [{"type": "summary_text", "text": text} for text in texts]
    return body(input=[{"type": "reasoning", "id": "rs_1", "summary": summary, "encrypted_content": token}])


def test_what_we_sealed_is_opened_and_reaches_no_host() -> None:
    signer = Signer(b"k")
    token = signer.sign(SignedPayload("All of it.", "host's own", ({"type": "summary"},), "reasoning"))
    request, changes = parse_request(sealed_input(token), signer)
    assert changes == []
    assert request.messages[0].parts == (Reasoning("All of it.", "host's own", ({"type": "summary"},), "reasoning"),)
    (item,) = render_request(request)[0]["input"]
    assert item["encrypted_content"] == "host's own"
    assert item["id"] == "rs_1"


def test_a_seal_without_a_text_leaves_the_summary() -> None:
    signer = Signer(b"k")
    request, _ = parse_request(sealed_input(signer.sign(SignedPayload()), "Short."), signer)
    assert request.messages[0].parts == (Reasoning("Short."),)
    assert "encrypted_content" not in render_request(request)[0]["input"][0]


def test_a_seal_under_another_key_is_left_out_and_reported() -> None:
    request, changes = parse_request(sealed_input(Signer(b"a").sign(SignedPayload("x")), "Short."), Signer(b"b"))
    assert request.messages[0].parts == (Reasoning("Short."),)
    assert [(change.rule, change.place) for change in changes] == [("seal_unknown", "input[0].encrypted_content")]


@pytest.mark.parametrize("damage", ["x", "\ud800"], ids=["a letter", "half a character"])
def test_a_seal_that_was_altered_is_refused(damage: str) -> None:
    signer = Signer(b"k")
    with pytest.raises(InvalidSignature) as refused:
        parse_request(sealed_input(signer.sign(SignedPayload("x")) + damage), signer)
    assert refused.value.field == "input[0].encrypted_content"


# --- what was changed, and what came from elsewhere -------------------------------------------------------------


def test_changed_fields_are_written_with_what_stood_beside_them() -> None:
    given = body(
        reasoning={"effort": "high", "summary": "auto"},
        text={"verbosity": "low", "format": {"type": "text"}},
        safety_identifier="ann",
        tools=[LS, GITHUB],
        temperature=0.5,
    )
    request, _ = parse_request(given, Signer())
    ls, search, patch = request.tools or ()
    request = replace(
        request,
        thinking=Thinking(enabled=False),
        response_format=ResponseFormat("json_object"),
        user="bob",
        sampling=Sampling(),
        tools=(replace(ls, description="New."), replace(search, parameters={"x": 1}), patch),
        tool_choice=ToolChoice("tool", "github__search"),
    )
    rendered, changes = render_request(request)
    assert rendered == {
        "model": "m",
        "input": "hi",
        "reasoning": {"effort": "none", "summary": "auto"},
        "text": {"verbosity": "low", "format": {"type": "json_object"}},
        "safety_identifier": "bob",
        "tools": [{**LS, "description": "New."}, {**GITHUB, "tools": [{**SEARCH, "parameters": {"x": 1}}, PATCH]}],
        "tool_choice": {"type": "function", "name": "search", "namespace": "github"},
    }
    assert changes == []


def test_a_renamed_tool_is_renamed_in_its_calls() -> None:
    call = {"type": "function_call", "call_id": "c", "name": "a.b", "arguments": "{}", "id": "fc"}
    request = parsed(tools=[{"type": "function", "name": "a.b"}], input=[call])
    (tool,), (message,) = request.tools or (), request.messages
    renamed = replace(message, parts=(replace(message.parts[0], name="a_b"),))
    rendered, _ = render_request(replace(request, tools=(replace(tool, name="a_b"),), messages=(renamed,)))
    assert rendered["tools"] == [{"type": "function", "name": "a_b"}]
    assert rendered["input"] == [{**call, "name": "a_b"}]


def test_a_request_from_elsewhere_is_written() -> None:
    request = Request(
        model="m",
        messages=(
            Message("system", (Text("Be brief."),)),
            Message("user", (Text("hi"),)),
            Message("assistant", (Reasoning("Hm."), ToolCall("hist_tool_a", "edit", '{"input": "x"}', "a"))),
            Message("tool", (ToolResult("hist_tool_a", "edit", (Text("ok"),), is_error=True, wire_id="a"),)),
        ),
        tools=(
            Tool("edit", "Edit.", kind="custom"),
            Tool("web_search", kind="server"),
            Tool("bash_20250124", kind="server"),
        ),
        sampling=Sampling(temperature=1, top_k=5, stop=("END",), max_tokens=9),
        thinking=Thinking(True, "high", 1000, "all"),
        response_format=ResponseFormat("json_schema", None, {"type": "object"}),
        body_overrides={"x": 1, "temperature": None},
    )
    rendered, changes = render_request(request)
    assert rendered == {
        "model": "m",
        "instructions": "Be brief.",
        "input": [
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]},
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}]},
            {"type": "custom_tool_call", "call_id": "a", "name": "edit", "input": "x"},
            {"type": "custom_tool_call_output", "call_id": "a", "output": "ok"},
        ],
        "tools": [{"type": "custom", "name": "edit", "description": "Edit."}, {"type": "web_search"}],
        "max_output_tokens": 9,
        "reasoning": {"effort": "high"},
        "text": {"format": {"type": "json_schema", "name": "answer", "schema": {"type": "object"}}},
        "x": 1,
    }
    assert {change.rule for change in changes} == {"cannot_say"}
    assert [change.place for change in changes] == [
        "tools[2]",
        None,
        "top_k",
        "stop",
        "thinking.budget",
        "thinking.keep",
    ]


def test_media_that_responses_cannot_show_are_left_out_and_reported() -> None:
    video = Media("video", "https://x.org/a.mp4")
    messages = (
        Message("user", (Text("look"), video)),
        Message("assistant", (Text("a"), Media("image", "https://x.org/a"))),
    )
    rendered, changes = render_request(Request(model="m", messages=messages, locations=("messages[0]", "messages[1]")))
    assert [len(item["content"]) for item in rendered["input"]] == [1, 1]
    assert [change.place for change in changes] == ["messages[0]", "messages[1]"]


# --- what cannot be understood ----------------------------------------------------------------------------------

WRONG: dict[str, tuple[Any, str | None]] = {
    "no object": ([], None),
    "no model": ({"input": "hi"}, "model"),
    "no input": ({"model": "m"}, "input"),
    "input that is a number": (body(input=7), "input"),
    "instructions that are a list": (body(instructions=[]), "instructions"),
    "an item": (
        body(input=[{"role": "user", "content": [{"type": "input_text", "text": 7}]}]),
        "input[0].content[0].text",
    ),
    "tools": (body(tools={}), "tools"),
    "a tool": (body(tools=[7]), "tools[0]"),
    "a tool without a name": (body(tools=[LS, {"type": "function"}]), "tools[1].name"),
    "parameters": (body(tools=[{**LS, "parameters": []}]), "tools[0].parameters"),
    "a namespace without tools": (body(tools=[{"type": "namespace", "name": "a"}]), "tools[0].tools"),
    "a namespace without a name": (body(tools=[{"type": "namespace", "tools": []}]), "tools[0].name"),
    "a tool of a namespace": (body(tools=[{**GITHUB, "tools": [{"type": "custom"}]}]), "tools[0].tools[0].name"),
    "a loaded tool": (body(input=[{"type": "tool_search_output", "tools": [7]}]), "input[0].tools[0]"),
    "a choice": (body(tool_choice="any"), "tool_choice"),
    "a chosen function without a name": (body(tool_choice={"type": "function"}), "tool_choice.name"),
    "temperature": (body(temperature="hot"), "temperature"),
    "a switch that is a number": (body(stream=1), "stream"),
    "tokens": (body(max_output_tokens=1.5), "max_output_tokens"),
    "effort": (body(reasoning={"effort": 3}), "reasoning.effort"),
    "a format": (body(text={"format": {"type": "xml"}}), "text.format.type"),
    "a schema": (body(text={"format": {"type": "json_schema", "schema": []}}), "text.format.schema"),
    "metadata": (body(metadata=[]), "metadata"),
    "nothing at all": (body(input=[]), "input"),
    "a reference to nothing": (body(input=[{"type": "item_reference"}]), "input[0].id"),
    "a reference to a number": (
        body(input=[{"role": "user", "content": "hi"}, {"type": "item_reference", "id": 7}]),
        "input[1].id",
    ),
}


@pytest.mark.parametrize(("given", "field"), WRONG.values(), ids=WRONG.keys())
def test_what_cannot_be_understood_is_refused_by_its_field(given: Any, field: str | None) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_request(given, Signer())
    assert refused.value.field == field


# --- references -------------------------------------------------------------------------------------------------


def test_references_are_resolved_where_they_stand() -> None:
    known = {"rs_1": {"type": "reasoning", "id": "rs_1", "summary": []}}
    given = body(input=[{"role": "user", "content": "hi"}, {"id": "rs_1"}, {"type": "item_reference", "id": "fc_1"}])
    before = copy.deepcopy(given)
    resolved = resolve_references(given, known.get)
    assert resolved["input"] == [given["input"][0], known["rs_1"], given["input"][2]]
    assert given == before
    assert resolve_references(body(), known.get) == body()
    assert resolve_references(7, known.get) == 7


def test_what_no_other_dialect_is_told_is_listed() -> None:
    request = parsed(
        input=[
            {"role": "user", "content": [{"type": "mystery", "x": 1}, {"type": "input_text", "text": "x"}]},
            {"type": "web_search_call", "id": "ws"},
            {"type": "item_reference", "id": "rs_1"},
        ],
        store=True,
        truncation="auto",
    )
    assert [(change.rule, change.place) for change in drop_unsupported(request)[1]] == [
        ("cannot_say", "input[0]"),
        ("cannot_say", "input[1]"),
        ("unresolved_reference", "input[2]"),
        ("cannot_say", "truncation"),
    ]
    plain = parsed(temperature=1)
    assert drop_unsupported(plain) == (plain, [])


MISSING: dict[str, tuple[dict[str, Any], str]] = {
    "an earlier response": ({"previous_response_id": "resp_1"}, "previous_response_id"),
    "a message that is only referred to": (
        {"input": [{"role": "user", "content": "hi"}, {"type": "item_reference", "id": "msg_1"}]},
        "input[1]",
    ),
}


@pytest.mark.parametrize(("fields", "field"), MISSING.values(), ids=MISSING.keys())
def test_what_would_be_missing_in_another_dialect_is_refused(fields: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        drop_unsupported(parsed(**fields))
    assert caught.value.field == field


def test_what_a_host_encrypted_is_for_that_host_alone() -> None:
    item = {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [{"type": "summary_text", "text": "Hm."}],
        "encrypted_content": "gAAA",
    }
    request = parsed(input=[{"role": "user", "content": "hi"}, item, {"role": "assistant", "content": "Yes."}])
    assert render_request(request)[0]["input"][1] == item
    crossed, _ = drop_unsupported(request)
    (thought,) = [part for message in crossed.messages for part in message.parts if isinstance(part, Reasoning)]
    assert (thought.text, thought.signature) == ("Hm.", None)
