"""A request in either dialect -> the same question."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from moonshim.simulator.host.parse_request import parse_request
from moonshim.simulator.request import OfferedTool, SimCall, SimMedia, SimRequest, SimResult, SimTurn, Wire

Json = dict[str, Any]
USER = {"role": "user", "content": "Hi"}
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}}
LS = {"type": "function", "function": {"name": "ls", "description": "Lists.", "parameters": SCHEMA}, "strict": True}


def chat(*messages: Json, generation: str = "k3", host: str = "generic", **more: Any) -> SimRequest:
    body = {"model": "m", "messages": [*messages], **more}
    return parse_request(body, wire="openai_chat", model="m", generation=generation, host=host)


def blocks(*messages: Json, generation: str = "k3", **more: Any) -> SimRequest:
    body = {"model": "m", "max_tokens": 10, "messages": [*messages], **more}
    return parse_request(body, wire="anthropic", model="m", generation=generation)


CALL = SimCall("a", "ls", '{"path":"/"}')
SAME = (
    SimTurn(role="system", text="Be brief."),
    SimTurn(role="user", text="What is there?"),
    SimTurn(role="assistant", text="Let me see.", reasoning="Hm.", calls=(CALL,)),
    SimTurn(role="tool", results=(SimResult("a", "ls", "bin"),)),
)


def test_a_round_in_chat() -> None:
    function = {"name": "ls", "arguments": '{"path":"/"}'}
    sim_request = chat(
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "What is "}, {"type": "text", "text": "there?"}]},
        {
            "role": "assistant",
            "content": "Let me see.",
            "reasoning_content": "Hm.",
            "tool_calls": [{"id": "a", "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": "a", "content": "bin"},
        tools=[LS],
        stream=True,
        max_tokens=5,
        max_completion_tokens=7,
    )
    assert sim_request.turns == (SAME[0], replace(SAME[1], parts=("What is ", "there?")), *SAME[2:])
    assert sim_request.tools == (OfferedTool("ls", "Lists.", SCHEMA, LS),)
    assert (sim_request.wire, sim_request.stream, sim_request.max_tokens) == ("openai_chat", True, 7)
    assert (sim_request.round, sim_request.words, sim_request.history) == (2, "What is there?", (CALL,))


def test_the_same_round_in_messages() -> None:
    sim_request = blocks(
        {"role": "user", "content": "What is there?"},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Hm.", "signature": "s"},
                {"type": "text", "text": "Let me see."},
                {"type": "tool_use", "id": "a", "name": "ls", "input": {"path": "/"}},
            ],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "bin"}]},
        system=[{"type": "text", "text": "Be brief."}],
        tools=[{"name": "ls", "description": "Lists.", "input_schema": SCHEMA}],
    )
    assert sim_request.turns == SAME
    assert sim_request.tools == (OfferedTool("ls", "Lists.", SCHEMA),)
    assert (sim_request.wire, sim_request.stream, sim_request.max_tokens, sim_request.wants_usage) == (
        "anthropic",
        False,
        10,
        True,
    )


def test_results_of_messages_stand_together_with_the_text_beside_them() -> None:
    use = [{"type": "tool_use", "id": id, "name": name, "input": {}} for id, name in (("a", "ls"), ("b", "cat"))]
    sim_request = blocks(
        USER,
        {"role": "assistant", "content": use},
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "b",
                    "content": [{"type": "text", "text": "no"}],
                    "is_error": True,
                },
                {"type": "tool_result", "tool_use_id": "a"},
                {"type": "text", "text": "And now?"},
            ],
        },
    )
    assert sim_request.turns[-1] == SimTurn(
        role="tool", text="And now?", results=(SimResult("b", "cat", "no", True), SimResult("a", "ls", ""))
    )


def test_pictures_keep_their_place() -> None:
    seen = [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {}}, {"type": "text", "text": "b"}]
    assert chat({"role": "user", "content": seen}).turns[0].parts == ("a", SimMedia(), "b")
    film = [{"type": "video_url", "video_url": {}}]
    assert chat({"role": "user", "content": film}).turns[0] == SimTurn(role="user", parts=(SimMedia("video"),))
    shot = {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "image", "source": {}}]}
    assert blocks({"role": "user", "content": [shot]}).turns[0].results[0].parts == (SimMedia(),)


@pytest.mark.parametrize(
    ("received", "reasoning"),
    [
        ({}, None),
        ({"reasoning_content": None}, None),
        ({"reasoning_content": ""}, ""),
        ({"reasoning": "So."}, "So."),
        ({"reasoning_details": [{"type": "reasoning.text", "text": "So"}, {"type": "summary", "summary": "."}]}, "So."),
        ({"reasoning_content": "first", "reasoning": "second"}, "first"),
        ({"reasoning": 5}, None),
    ],
)
def test_where_thoughts_stand(received: Json, reasoning: str | None) -> None:
    assert chat(USER, {"role": "assistant", "content": "x", **received}).turns[1].reasoning == reasoning


def test_a_result_is_of_the_last_call_with_its_id() -> None:
    def asks(name: str) -> Json:
        return {"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": name, "arguments": "{}"}}]}

    back = {"role": "tool", "tool_call_id": "a", "content": "x"}
    turns = chat(USER, asks("ls"), back, asks("cat"), back, {**back, "tool_call_id": "z"}).turns
    assert [turn.results[0].name for turn in turns if turn.results] == ["ls", "cat", ""]


CHOICES: list[tuple[Wire, Any, str, str]] = [
    ("openai_chat", None, "k2.5", "auto"),
    ("openai_chat", "none", "k2.5", "none"),
    ("openai_chat", "required", "k3", "required"),
    ("openai_chat", {"type": "function", "function": {"name": "ls"}}, "k2.5", "ls"),
    ("openai_chat", {"type": "function", "function": {"name": "ls"}}, "k3", "auto"),
    ("openai_chat", {"type": "function", "function": {"name": "ls"}}, "other", "ls"),
    ("anthropic", {"type": "auto"}, "k2.5", "auto"),
    ("anthropic", {"type": "any"}, "k3", "required"),
    ("anthropic", {"type": "none"}, "k3", "none"),
    ("anthropic", {"type": "tool", "name": "ls"}, "k2.5", "ls"),
    ("anthropic", {"type": "tool", "name": "ls"}, "k3.1", "auto"),
]


@pytest.mark.parametrize(("wire", "choice", "generation", "read"), CHOICES)
def test_choices(wire: Wire, choice: Any, generation: str, read: str) -> None:
    body = {"messages": [USER], "tool_choice": choice}
    assert parse_request(body, wire=wire, model="m", generation=generation).tool_choice == read


def test_late_tools_are_offered_behind_the_others_and_only_to_k3() -> None:
    late = {"role": "system", "tools": [{"type": "function", "function": {"name": "late"}}]}
    assert [tool.name for tool in chat(late, USER, tools=[LS]).tools] == ["ls", "late"]
    assert [tool.name for tool in chat(late, USER).turns[0].tools] == ["late"]
    assert [tool.name for tool in chat(late, USER, tools=[LS], generation="k2.5").tools] == ["ls"]


def test_messages_is_not_told_of_tools_in_openais_format() -> None:
    assert blocks(USER, tools=[LS, {"name": "cat", "input_schema": {}}]).tools == (OfferedTool("cat"),)


def test_an_answer_that_has_been_begun() -> None:
    begun = {"role": "assistant", "content": "{", "partial": True, "name": "Kimi"}
    assert chat(USER, begun).turns[1] == SimTurn(role="assistant", text="{", name="Kimi", partial=True)
    assert not chat(USER, {**begun, "partial": False}).turns[1].partial
    assert blocks(USER, {"role": "assistant", "content": "{"}).turns[1].partial


def test_whether_it_thinks_is_said_as_the_host_reads_it() -> None:
    off = {"thinking": {"type": "disabled"}}
    assert not chat(USER, generation="k2.5", host="moonshot", **off).thinking
    assert not chat(USER, generation="k3", host="moonshot", **off).thinking
    assert chat(USER, generation="k2.5", host="vllm", **off).thinking
    assert not chat(USER, generation="k3", host="vllm", chat_template_kwargs={"thinking": False}).thinking
    assert not chat(USER, generation="other").thinking


def test_usage_in_a_stream_is_asked_for() -> None:
    assert not chat(USER, stream=True).wants_usage
    assert chat(USER, stream=True, stream_options={"include_usage": True}).wants_usage


@pytest.mark.parametrize("body", [None, [], "x", {"messages": [None, 5, {"role": []}], "tools": [1, {}], "stop": {}}])
def test_what_has_no_shape_is_left_out(body: Any) -> None:
    for wire in ("openai_chat", "anthropic"):
        sim_request = parse_request(body, wire=wire, model="m", generation="k2.5")
        assert sim_request.tools == ()
        assert [turn.text for turn in sim_request.turns] in ([], [""])
