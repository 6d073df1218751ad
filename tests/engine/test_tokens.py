"""The token estimate beside Kimi's own tokenizer: never below it, and not far above."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from typing import Any, Final

import pytest
import splintr
from hypothesis import given
from hypothesis import strategies as st

from bench.token_texts import MOST, text_of
from moonshim.engine.tokens import MEDIA_TOKENS, estimate_text, estimate_tokens
from moonshim.engine.values.conversation import (
    Media,
    Message,
    Reasoning,
    Request,
    ResponseFormat,
    Text,
    Tool,
    ToolCall,
    ToolChoice,
    ToolResult,
)

TEXTS: Final = {kind: text_of(kind) for kind in MOST}


@cache
def tokenizer(name: str) -> Any:
    """Kimi's own."""
    return splintr.Tokenizer.from_pretrained(name)


def true_count(text: str) -> int:
    return len(tokenizer("kimi_k2").encode_ordinary(text))


class TestKindsOfText:
    @pytest.mark.parametrize("kind", MOST)
    def test_the_estimate_is_not_below_the_true_count_and_within_its_bound(self, kind: str) -> None:
        true = true_count(TEXTS[kind])
        assert true <= estimate_text(TEXTS[kind]) <= true * MOST[kind]

    @pytest.mark.parametrize("kind", MOST)
    def test_a_long_text_is_not_below_the_true_count_either(self, kind: str) -> None:
        # What is added for bad luck fades with the length: this checks the costs themselves.
        long = TEXTS[kind] * 100
        true = true_count(long)
        assert true <= estimate_text(long) <= true * MOST[kind]

    @given(st.lists(st.sampled_from(sorted(MOST)), min_size=1, max_size=6), st.sampled_from(["", "\n", " ", "\n\n"]))
    def test_mixtures_keep_the_widest_bound(self, kinds: list[str], glue: str) -> None:
        text = glue.join(TEXTS[kind] for kind in kinds)
        true = true_count(text)
        assert true <= estimate_text(text) <= true * max(MOST[kind] for kind in kinds) + 4

    @given(st.sampled_from(sorted(set(MOST) - {"long_words"})), st.data())
    def test_a_piece_of_a_text_is_hardly_ever_below(self, kind: str, data: st.DataObject) -> None:
        text = TEXTS[kind]
        start = data.draw(st.integers(0, len(text) - 80))
        piece = text[start : start + data.draw(st.integers(80, 400))]
        assert estimate_text(piece) >= true_count(piece) * 0.95
        assert estimate_text(piece) <= true_count(piece) * 2 + 8

    @pytest.mark.parametrize(
        "text",
        ["a", "Hello", "你好", "Hi!", "42", "?", "\n", " ", "\t\t", "{}", "é", "🎉", "[]", "----", "\u200b", "ﷺ"],
    )
    def test_the_shortest_texts(self, text: str) -> None:
        assert true_count(text) <= estimate_text(text) <= true_count(text) + 6


class TestAnyText:
    def test_no_text_costs_nothing(self) -> None:
        assert estimate_text("") == 0

    @given(st.text(st.characters(exclude_categories=()), min_size=1))
    def test_every_text_has_an_estimate_halves_of_characters_too(self, text: str) -> None:
        assert estimate_text(text) >= 1

    @pytest.mark.parametrize("text", ["\ud83d", "a\udc00b", "\ud83d\ud83d\ude00", "\ude00\ud83d" * 50])
    def test_halves_of_characters(self, text: str) -> None:
        assert 1 <= estimate_text(text) <= 6 * len(text)

    @given(st.text(max_size=200), st.text(max_size=200))
    def test_a_longer_text_does_not_cost_less(self, left: str, right: str) -> None:
        whole = estimate_text(left + right)
        assert whole >= max(estimate_text(left), estimate_text(right)) - 3

    @given(st.sampled_from(sorted(MOST)), st.sampled_from(sorted(MOST)))
    def test_two_texts_cost_together_what_they_cost_alone(self, left: str, right: str) -> None:
        apart = estimate_text(TEXTS[left]) + estimate_text(TEXTS[right])
        assert 0.93 * apart <= estimate_text(TEXTS[left] + TEXTS[right]) <= apart + 3

    @pytest.mark.parametrize("mark", [*"-=*#._/~+ \n\t\r!{}aA0", "ab", "Aa", "-\n", ". ", "月", "─", "é"])
    def test_repeating_anything_never_gives_less_than_a_token(self, mark: str) -> None:
        counts = [estimate_text(mark * times) for times in range(1, 300)]
        assert min(counts) >= 1
        assert all(later >= earlier - 3 for earlier, later in pairwise(counts))


SEARCH: Final = Tool(
    "search_files",
    "Search the contents of files with a regular expression.",
    {
        "type": "object",
        "properties": {"pattern": {"type": "string", "description": "What to look for"}, "path": {"type": "string"}},
        "required": ["pattern"],
    },
)
TALK: Final = (
    Message("system", (Text("You are a careful engineer. Answer in the language of the user."),)),
    Message("user", (Text("Where is the session store, and why does its test fail?"),)),
    Message(
        "assistant",
        (
            Reasoning("I should look for the class first."),
            Text("Let me look."),
            ToolCall("hist_tool_1", "search_files", '{"pattern":"class SessionStore","path":"src"}'),
            ToolCall("hist_tool_2", "search_files", '{"pattern":"test_reading_extends_the_life"}'),
        ),
    ),
    Message("tool", (ToolResult("hist_tool_1", "search_files", (Text(TEXTS["diff"]),)),)),
    Message("tool", (ToolResult("hist_tool_2", "search_files", (Text(TEXTS["shell"]),)),)),
    Message("assistant", (Reasoning("The life is not extended."), Text(TEXTS["english"]))),
    Message("user", (Text(TEXTS["chinese"]),)),
)


def k2_prompt(talk: tuple[Message, ...], declared: str) -> str:
    """The conversation as K2's template writes it."""
    out = [f"<|im_system|>tool_declare<|im_middle|>[{declared}]<|im_end|>"]
    role = {"system": "system", "user": "user", "assistant": "assistant", "tool": "tool"}
    for message in talk:
        name = role[message.role]
        out.append(f"<|im_{'system' if name == 'tool' else name}|>{name}<|im_middle|>")
        calls = 0
        for part in message.parts:
            match part:
                case Text(text=text):
                    out.append(text)
                case Reasoning(text=text):
                    out.append(f"<think>{text}</think>")
                case ToolCall(name=tool, arguments=arguments):
                    out.append("" if calls else "<|tool_calls_section_begin|>")
                    out.append(f"<|tool_call_begin|>functions.{tool}:{calls}<|tool_call_argument_begin|>{arguments}")
                    out.append("<|tool_call_end|>")
                    calls += 1
                case ToolResult(name=answered, parts=parts):
                    out.append(f"## Return of functions.{answered}:0\n")
                    out.extend(each.text for each in parts if isinstance(each, Text))
        out.append("<|tool_calls_section_end|><|im_end|>" if calls else "<|im_end|>")
    return "".join([*out, "<|im_assistant|>assistant<|im_middle|><think>"])


def k3_prompt(talk: tuple[Message, ...], declared: str) -> str:
    """The conversation as K3's encoder writes it, arguments in one piece of JSON."""
    out = [_k3("message", f"# Tools\n\n```json\n[{declared}]\n```", ' role="system" type="tool-declare"')]
    out.append(
        _k3("message", "`thinking_effort` guides how much to think. " * 5, ' role="system" type="thinking-effort"')
    )
    for message in talk:
        said, thought, calls, about = "", "", "", ""
        for part in message.parts:
            match part:
                case Text(text=text):
                    said += text
                case Reasoning(text=text):
                    thought += text
                case ToolCall(name=tool, arguments=arguments):
                    calls += _k3("call", _k3("json", arguments, ' type="object"'), f' tool="{tool}" index="1"')
                case ToolResult(name=answered, parts=parts):
                    about = f' tool="{answered}" index="1"'
                    said += "".join(each.text for each in parts if isinstance(each, Text))
        if message.role == "assistant":
            said = _k3("think", thought) + _k3("response", said) + (_k3("tools", calls) if calls else "")
        role = {"system": "system", "user": "user", "assistant": "assistant", "tool": "tool"}[message.role]
        out.append(_k3("message", said, f' role="{role}"{about}'))
    return "".join([*out, '<|open|>message role="assistant"<|sep|><|open|>think<|sep|>'])


def _k3(tag: str, body: str, attributes: str = "") -> str:
    end = "<|end_of_msg|>" if tag == "message" else ""
    return f"<|open|>{tag}{attributes}<|sep|>{body}<|close|>{tag}<|sep|>{end}"


class TestRequests:
    @pytest.mark.parametrize(("write", "name"), [(k2_prompt, "kimi_k2"), (k3_prompt, "kimi_k3")])
    @pytest.mark.parametrize("turns", range(len(TALK) + 1))
    def test_a_whole_conversation_is_not_below_the_prompt_of_either_generation(
        self, write: Callable[[tuple[Message, ...], str], str], name: str, turns: int
    ) -> None:
        talk = TALK[:turns]
        said = {"description": SEARCH.description, "name": SEARCH.name, "parameters": SEARCH.parameters}
        declared = json.dumps({"function": said, "type": "function"}, separators=(",", ":"))
        true = len(tokenizer(name).encode(write(talk, declared)))
        estimate = estimate_tokens(Request(model="kimi-k2.5", messages=talk, tools=(SEARCH,)))
        # What K3 writes around the content is more than K2 does, and the estimate has to do for both.
        assert true <= estimate <= true * 1.35 + 250

    def test_the_bytes_of_an_image_are_not_counted(self) -> None:
        def cost(*parts: Text | Media) -> int:
            return estimate_tokens(Request(model="k", messages=(Message("user", parts),)))

        small = Media("image", data="iVBORw0KGgo=", media_type="image/png")
        large = Media("image", data="iVBORw0KGgo" * 100_000, media_type="image/png")
        by_address = Media("image", url="data:image/png;base64," + "iVBORw0KGgo" * 100_000)
        assert cost(small) == cost(large) == cost(by_address) == cost() + MEDIA_TOKENS
        assert cost(Text("And this?"), small, large) > cost() + 2 * MEDIA_TOKENS

    def test_an_image_in_a_result_costs_the_same(self) -> None:
        bare, shown = (
            estimate_tokens(Request(model="k", messages=(Message("tool", (ToolResult("hist_tool_1", "see", parts),)),)))
            for parts in ((), (Media("image", data="AAAA" * 1000),))
        )
        assert shown == bare + MEDIA_TOKENS

    @pytest.mark.parametrize(
        "more",
        [
            {"messages": (*TALK, Message("user", (Text("Go on."),)))},
            {"tools": (SEARCH,)},
            {"tool_choice": ToolChoice("required")},
            {"response_format": ResponseFormat("json_schema", schema={"type": "object", "title": "Answer"})},
        ],
        ids=["a message", "a tool", "a tool that must be called", "a form of the answer"],
    )
    def test_whatever_the_model_reads_is_counted(self, more: dict[str, Any]) -> None:
        assert estimate_tokens(Request(**{"model": "k", "messages": TALK, **more})) > estimate_tokens(
            Request(model="k", messages=TALK)
        )

    @pytest.mark.parametrize(
        "part",
        [
            ToolCall("hist_tool_1", "run\ud83d", '{"command": "\ud83d"}'),
            ToolCall("hist_tool_1", "run", '{"command": "ls'),
            ToolCall("hist_tool_1", "run", "[]"),
            ToolCall("hist_tool_1", "", ""),
            Reasoning("\ude00"),
            Reasoning(""),
            ToolResult("hist_tool_1"),
        ],
    )
    def test_parts_that_are_broken_or_empty_have_an_estimate(self, part: ToolCall | Reasoning | ToolResult) -> None:
        assert estimate_tokens(Request(model="k", messages=(Message("assistant", (part,)),))) > 0

    def test_a_tool_with_half_a_character_in_its_description(self) -> None:
        tool = Tool("run", "\ud83d runs", {"type": "object", "description": "\ude00"})
        assert estimate_tokens(Request(model="k", tools=(tool,))) > estimate_tokens(Request(model="k"))
