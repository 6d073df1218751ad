"""Requests and the prompts that models see for them: each pair of files in `prompts` is one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest

from conformance import k3_prompts, run
from moonshim.simulator.host.models import generation_of
from moonshim.simulator.host.parse_request import parse_request
from moonshim.simulator.render import render_prompt
from moonshim.simulator.request import SimRequest, Wire

FOLDER: Final = Path(__file__).parent / "prompts"
NAMES: Final = sorted(path.stem for path in FOLDER.glob("*.json"))


def asked(body: dict[str, Any], wire: Wire = "openai_chat") -> SimRequest:
    generation = generation_of(body["model"])
    assert generation is not None
    return parse_request(body, wire=wire, model=body["model"], generation=generation)


@pytest.mark.parametrize("name", NAMES)
def test_the_prompt_is_what_the_file_says(name: str) -> None:
    body = json.loads((FOLDER / f"{name}.json").read_text("utf-8"))
    sim_request = asked(body, "anthropic" if name.startswith("messages_") else "openai_chat")
    assert render_prompt(sim_request, renamed="renamed" in name) == (FOLDER / f"{name}.txt").read_bytes().decode()


def test_there_are_prompts_of_every_generation() -> None:
    models = {json.loads((FOLDER / f"{name}.json").read_text("utf-8"))["model"] for name in NAMES}
    assert {generation_of(model) for model in models} == {"k2", "k2-thinking", "k2.5", "k2.6", "k2.7", "k3", "k3.1"}


CHAT: Final[dict[str, Any]] = {
    "tools": [{"type": "function", "function": {"name": "ls", "parameters": {"type": "object", "properties": {}}}}],
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "List."},
        {
            "role": "assistant",
            "content": "I look.",
            "reasoning_content": "Hm.",
            "tool_calls": [{"id": "a", "type": "function", "function": {"name": "ls", "arguments": '{"p":"/"}'}}],
        },
        {"role": "tool", "tool_call_id": "a", "content": "etc"},
        {"role": "user", "content": "Go on."},
    ],
}
MESSAGES: Final[dict[str, Any]] = {
    "system": "Be brief.",
    "tools": [{"name": "ls", "input_schema": {"type": "object", "properties": {}}}],
    "messages": [
        {"role": "user", "content": "List."},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Hm.", "signature": "s"},
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "a", "name": "ls", "input": {"p": "/"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "a", "content": "etc"},
                {"type": "text", "text": "Go on."},
            ],
        },
    ],
}


@pytest.mark.parametrize(
    "model", ["kimi-k2-0905-preview", "kimi-k2-thinking", "kimi-k2.5", "kimi-k2.6", "kimi-k2.7-code", "kimi-k3"]
)
@pytest.mark.parametrize("renamed", [False, True])
def test_both_wires_come_to_the_same_prompt(model: str, renamed: bool) -> None:
    chat, messages = asked(CHAT | {"model": model}), asked(MESSAGES | {"model": model}, "anthropic")
    assert render_prompt(chat, renamed=renamed) == render_prompt(messages, renamed=renamed)


def test_a_tool_that_is_named_is_not_told_even_when_its_name_is_a_word_of_the_choice() -> None:
    tools = [{"type": "function", "function": {"name": "none"}}]
    choice = {"type": "function", "function": {"name": "none"}}
    sim_request = asked(CHAT | {"model": "kimi-k3", "tools": tools, "tool_choice": choice})
    assert "tool-choice" not in render_prompt(sim_request)


@pytest.mark.parametrize(
    ("body", "effort"),
    [
        ({}, "max"),
        ({"reasoning_effort": "low"}, "low"),
        ({"reasoning_effort": "medium"}, "high"),
        ({"reasoning_effort": "xhigh"}, "max"),
        ({"reasoning_effort": "whatever"}, "max"),
        ({"reasoning_effort": "low", "thinking": {"type": "enabled", "effort": "high"}}, "high"),
        ({"chat_template_kwargs": {"thinking_effort": "low"}}, "low"),
        ({"output_config": {"effort": "high"}}, "high"),
        ({"reasoning_effort": 7}, "max"),
    ],
)
def test_the_effort_is_told_in_words_of_k3(body: dict[str, Any], effort: str) -> None:
    assert f"`thinking_effort={effort}`" in render_prompt(asked(CHAT | {"model": "kimi-k3"} | body))


def test_a_model_that_is_no_kimi_is_rendered_for_the_sake_of_counting() -> None:
    assert "Go on." in render_prompt(asked(CHAT | {"model": "plain-1"}))


@pytest.mark.parametrize(("ending", "code"), [("<|open|>think<|sep|>", 0), ("", 1)])
def test_prompts_of_others_are_compared_byte_for_byte(
    ending: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "k3_prompts"
    folder.mkdir()
    body = {"messages": [{"role": "user", "content": "Hi"}], "template_kwargs": {"thinking_effort": "low"}}
    (folder / "one_input.json").write_text(json.dumps(body))
    prompt = render_prompt(asked(body | {"model": "kimi-k3", "reasoning_effort": "low"}))
    (folder / "one_output.txt").write_text(prompt.removesuffix("<|open|>think<|sep|>") + ending)
    monkeypatch.setenv("MOONSHIM_VECTORS", str(tmp_path))
    monkeypatch.setattr(run, "SUITES", tuple(suite for suite in run.SUITES if suite.check is k3_prompts.check))
    assert run.main([]) == code
    assert ("unexplained: one" in capsys.readouterr().out) == bool(code)
