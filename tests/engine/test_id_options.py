"""Options that name a policy for identifiers hold in both directions: in what a host is sent, and in its replies."""

from __future__ import annotations

from typing import Any, Final

import pytest

import moonshim

IDS: Final = ["call_a", "functions.ls:7", "call_a"]


def call(id: str) -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": "ls", "arguments": "{}"}}


def body() -> dict[str, Any]:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "go"}]
    for id in IDS:
        messages.append({"role": "assistant", "content": None, "reasoning_content": "hm", "tool_calls": [call(id)]})
        messages.append({"role": "tool", "tool_call_id": id, "content": "a.py"})
    tool = {"type": "function", "function": {"name": "ls", "parameters": {"type": "object"}}}
    return {"model": "kimi-k2.6", "messages": messages, "tools": [tool]}


def sent(prepared: moonshim.Prepared) -> list[str]:
    """The identifiers of the calls that a host is sent; each has its result."""
    messages = prepared.body["messages"]
    if prepared.profile.dialect == "anthropic":
        blocks = [block for message in messages[1:] for block in message["content"]]
        ids = [block["id"] for block in blocks if block["type"] == "tool_use"]
        assert [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"] == ids
        return ids
    ids = [entry["id"] for message in messages for entry in message.get("tool_calls", ())]
    assert [message["tool_call_id"] for message in messages if message["role"] == "tool"] == ids
    return ids


def replied(prepared: moonshim.Prepared, id: str) -> str:
    message = {"role": "assistant", "content": None, "tool_calls": [call(id)]}
    answer = {"choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]}
    told: str = moonshim.mend_response(answer, plan=prepared.plan).body["choices"][0]["message"]["tool_calls"][0]["id"]
    return told


@pytest.mark.parametrize("host", ["vllm", "generic", "moonshot"])
@pytest.mark.parametrize(
    ("options", "expected", "reply"),
    [
        ({}, ["functions.ls:0", "functions.ls:7", "functions.ls:8"], "functions.ls:9"),
        ({"idNormalization": True}, ["functions.ls:0", "functions.ls:1", "functions.ls:2"], "functions.ls:3"),
        ({"idPrefix": "fn"}, ["fn.ls:0", "fn.ls:1", "fn.ls:2"], "fn.ls:3"),
        ({"idPolicy": "keep"}, IDS, "call_b"),
        ({"repairOnMismatch": False}, IDS, "call_b"),
        ({"repairOnMismatch": False, "idPrefix": "fn"}, IDS, "call_b"),
        ({"idPolicy": "unique"}, ["call_a", "functions.ls:7", "call_a_2"], "call_b"),
        ({"idNormalization": True, "idPrefix": "fn", "idPolicy": "keep"}, ["fn.ls:0", "fn.ls:1", "fn.ls:2"], "fn.ls:3"),
    ],
    ids=str,
)
def test_a_policy_holds_in_the_request_and_in_the_reply(
    host: str, options: dict[str, Any], expected: list[str], reply: str
) -> None:
    prepared = moonshim.prepare_request(body(), host=host, options=moonshim.KimiOptions.from_json(options))
    assert sent(prepared) == expected
    assert replied(prepared, "call_b") == reply


def test_without_options_the_host_decides() -> None:
    assert sent(moonshim.prepare_request(body(), host="vllm"))[2] == "functions.ls:2"
    assert sent(moonshim.prepare_request(body(), host="kimi-coding")) == ["call_a", "functions.ls:7", "call_a_2"]


@pytest.mark.parametrize(
    ("options", "expected", "reply"),
    [
        ({}, ["functions.read_file:4"], "functions.ls:5"),
        ({"idNormalization": True}, ["functions.read_file:0"], "functions.ls:1"),
        ({"repairOnMismatch": False}, ["functions.read_file:4"], "call_b"),
    ],
    ids=str,
)
def test_a_valid_identifier_stays_unless_all_are_renumbered(
    options: dict[str, Any], expected: list[str], reply: str
) -> None:
    entry = {"id": "functions.read_file:4", "type": "function", "function": {"name": "read_file", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": "go"},
        {"role": "assistant", "reasoning_content": "hm", "tool_calls": [entry]},
        {"role": "tool", "tool_call_id": entry["id"], "content": "a.py"},
    ]
    prepared = moonshim.prepare_request(
        {"model": "kimi-k2.6", "messages": messages},
        host="vllm",
        options=moonshim.KimiOptions.from_json(options),
    )
    assert sent(prepared) == expected
    assert replied(prepared, "call_b") == reply


@pytest.mark.parametrize("model", ["kimi-k2-0711-preview", "kimi-k2-thinking", "kimi-k2.6"])
def test_the_platform_gets_the_identifiers_that_k2_writes(model: str) -> None:
    prepared = moonshim.prepare_request(body() | {"model": model}, host="moonshot")
    assert sent(prepared) == ["functions.ls:0", "functions.ls:1", "functions.ls:2"]


@pytest.mark.parametrize("options", [{}, {"idNormalization": True}], ids=str)
def test_a_request_that_was_adapted_is_left_alone_and_a_longer_one_begins_with_it(options: dict[str, Any]) -> None:
    chosen = moonshim.KimiOptions.from_json(options)
    once = moonshim.prepare_request(body(), host="vllm", options=chosen)
    assert moonshim.prepare_request(once.body, host="vllm", options=chosen).body["messages"] == once.body["messages"]
    shorter = body()
    shorter["messages"] = shorter["messages"][:5]
    before = moonshim.prepare_request(shorter, host="vllm", options=chosen)
    assert once.body["messages"][:5] == before.body["messages"]


def test_a_cell_that_is_overridden_counts_more_than_options() -> None:
    prepared = moonshim.prepare_request(
        body(), host="vllm", options=moonshim.KimiOptions(), overrides={"history_ids": "unique"}
    )
    assert sent(prepared) == ["call_a", "functions.ls:7", "call_a_2"]


@pytest.mark.parametrize("options", [{"idPolicy": "keep"}, {"idPrefix": "fn"}, {"repairOnMismatch": False}], ids=str)
@pytest.mark.parametrize("host", ["generic", "moonshot", "fireworks"])
def test_no_option_makes_an_identifier_that_messages_forbids(host: str, options: dict[str, Any]) -> None:
    prepared = moonshim.prepare_request(
        body(), host=host, upstream="anthropic", options=moonshim.KimiOptions.from_json(options)
    )
    ids = sent(prepared)
    assert all(set(id) <= set("abcdefghijklmnopqrstuvwxyz0123456789_-") for id in ids), ids
    assert len(set(ids)) == 3


def test_k2_over_messages_sees_identifiers_that_name_their_tool() -> None:
    prepared = moonshim.prepare_request(body(), host="generic", upstream="anthropic")
    assert sent(prepared) == ["functions_ls_0", "functions_ls_1", "functions_ls_2"]


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("gpt-5", ["call_a", "call_functionsls7", "call_a_2"]),
        ("an-alias-of-a-kimi", ["functions.ls:0", "functions.ls:7", "functions.ls:8"]),
        ("my-finetune", ["functions.ls:0", "functions.ls:7", "functions.ls:8"]),
    ],
)
def test_options_do_not_make_a_kimi_of_another_family(model: str, expected: list[str]) -> None:
    prepared = moonshim.prepare_request(body(), host="vllm", model=model, options=moonshim.KimiOptions())
    assert sent(prepared) == expected


def test_an_identifier_that_carries_a_thought_signature_stays() -> None:
    """LiteLLM puts the signature of Gemini's thought into it, and Gemini refuses the call without it."""
    id = "call_1__thought__" + "aB+/" * 40
    messages = [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": None, "tool_calls": [call(id)]},
        {"role": "tool", "tool_call_id": id, "content": "a.py"},
    ]
    assert sent(moonshim.prepare_request({"model": "gemini-3-pro", "messages": messages})) == [id]
