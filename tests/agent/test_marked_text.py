"""Events as marked text and back: what people who pass strings around can rely on."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moonshim.agent import Provider
from moonshim.agent.marked_text import MARKS, as_marked_text, parse_marked_text
from moonshim.engine.assemble import assemble
from moonshim.engine.values.conversation import Message, Part, Reasoning, Text, ToolCall, Usage
from moonshim.engine.values.events import (
    BlockClosed,
    BlockDelta,
    BlockKind,
    BlockOpened,
    BlockSigned,
    Event,
    Failed,
    Finished,
)
from moonshim.errors import InvalidInput
from moonshim.simulator import Simulator
from tests.agent.asking import LIST, human, run

words = st.one_of(st.sampled_from([*MARKS, "[", "]", "[REASON", "ING]", "[]", "{}"]), st.text(max_size=8))
"""What a model may say, on purpose close to the marks."""
texts = st.lists(words, max_size=4)
details = st.lists(st.fixed_dictionaries({"type": st.just("reasoning.text"), "text": st.text(max_size=5)}), max_size=2)
counts = st.none() | st.integers(0, 10**6)
usages = st.none() | st.builds(Usage, counts, counts, counts, counts)
endings = st.builds(Finished, st.sampled_from(["stop", "tool_calls", "length"]), usage=usages) | st.builds(
    Failed, st.text(max_size=8), st.text(max_size=8), st.booleans()
)


@st.composite
def answers(draw: st.DrawFn) -> list[Event]:
    """Any answer: blocks in any number, cut into pieces anywhere, and an ending."""
    events: list[Event] = []
    for index in range(draw(st.integers(0, 5))):
        kind: BlockKind = draw(st.sampled_from(["text", "reasoning", "call"]))
        call = kind == "call"
        name = draw(st.text(min_size=1, max_size=5)) if call else None
        events.append(BlockOpened(index, kind, f"hist_tool_{index}" if call else None, name))
        events += [BlockDelta(index, text) for text in draw(texts)]
        if kind == "reasoning" and draw(st.booleans()):
            events.append(BlockSigned(index, draw(st.none() | st.just("sig")), tuple(draw(details)), None))
        events.append(BlockClosed(index))
    return [*events, draw(endings)]


def content(events: Iterable[Event]) -> list[Part]:
    """What was said, however it was cut: blocks of one kind that follow each other are one, unless they are signed."""
    parts: list[Part] = []
    for part in assemble(events).parts:
        before = parts[-1] if parts else None
        if isinstance(part, Text) and isinstance(before, Text):
            parts[-1] = Text(before.text + part.text)
        elif isinstance(part, Reasoning) and isinstance(before, Reasoning) and not (before.signature or before.details):
            parts[-1] = Reasoning(before.text + part.text, part.signature, part.details)
        elif part != Text(""):
            parts.append(part)
    return parts


class TestBackAndForth:
    @given(answers())
    def test_what_was_said_is_what_is_read(self, events: list[Event]) -> None:
        read = list(parse_marked_text(as_marked_text(events)))
        assert content(read) == content(events)

    @given(answers())
    def test_it_ends_as_it_ended(self, events: list[Event]) -> None:
        ending, read = events[-1], list(parse_marked_text(as_marked_text(events)))[-1]
        if isinstance(ending, Finished) and ending.usage == Usage():
            ending = Finished(ending.reason)  # a usage that counts nothing says nothing
        assert read == ending

    @given(answers(), answers())
    def test_answers_may_follow_each_other(self, first: list[Event], second: list[Event]) -> None:
        read = list(parse_marked_text(as_marked_text([*first, *second])))
        ends = [place for place, event in enumerate(read) if isinstance(event, (Finished, Failed))]
        assert len(ends) == 2
        assert content(read[: ends[0]]) == content(first)
        assert content(read[ends[0] + 1 :]) == content(second)

    @given(st.lists(st.text()))
    def test_any_pieces_without_marks_are_text(self, pieces: list[str]) -> None:
        plain = [piece for piece in pieces if not piece.startswith(MARKS)]
        assert "".join(event.text for event in parse_marked_text(plain) if isinstance(event, BlockDelta)) == "".join(
            plain
        )

    @given(st.sampled_from(MARKS), st.text())
    def test_a_mark_of_the_model_is_no_mark(self, mark: str, rest: str) -> None:
        said = [BlockOpened(0, "text"), BlockDelta(0, mark + rest), BlockClosed(0)]
        assert content(parse_marked_text(as_marked_text(said))) == [Text(mark + rest)]


class TestPieces:
    CALLED: Final = (
        BlockOpened(0, "reasoning"),
        BlockDelta(0, "The user wants "),
        BlockDelta(0, "files."),
        BlockClosed(0),
        BlockOpened(1, "call", "hist_tool_1", "bash"),
        BlockOpened(2, "call", "hist_tool_2", "ls"),
        BlockDelta(1, '{"command": '),
        BlockDelta(2, "{}"),
        BlockDelta(1, '"ls"}'),
        BlockClosed(1),
        BlockClosed(2),
        Finished("tool_calls", usage=Usage(12, 7)),
    )

    def test_the_forms_that_people_know(self) -> None:
        *thoughts, calls, usage = as_marked_text(self.CALLED)
        assert thoughts == ["[REASONING]The user wants ", "[REASONING]files."]
        assert json.loads(calls.removeprefix("[TOOL_CALLS]")) == [
            {"id": "hist_tool_1", "type": "function", "function": {"name": "bash", "arguments": '{"command": "ls"}'}},
            {"id": "hist_tool_2", "type": "function", "function": {"name": "ls", "arguments": "{}"}},
        ]
        assert json.loads(usage.removeprefix("[USAGE]")) == {
            "input_tokens": 12,
            "output_tokens": 7,
            "finish_reason": "tool_calls",
        }

    def test_a_call_that_is_not_whole_is_not_told(self) -> None:
        events = [*self.CALLED[:9], BlockClosed(1, complete=False), BlockClosed(2), Failed("cut_off", "gone")]
        (calls,) = [piece for piece in as_marked_text(events) if piece.startswith("[TOOL_CALLS]")]
        assert [call["id"] for call in json.loads(calls.removeprefix("[TOOL_CALLS]"))] == ["hist_tool_2"]

    def test_an_empty_thought_is_not_none(self) -> None:
        said = Message("assistant", (Reasoning(""), Text("Hello")))
        events: list[Event] = [
            BlockOpened(0, "reasoning"),
            BlockClosed(0),
            BlockOpened(1, "text"),
            BlockDelta(1, "Hello"),
        ]
        assert assemble(parse_marked_text(as_marked_text(events))) == said

    @pytest.mark.parametrize(
        "piece",
        [
            "[TOOL_CALLS]",
            "[TOOL_CALLS]{}",
            '[TOOL_CALLS][{"id": 1}]',
            "[USAGE]",
            "[USAGE][]",
            "[FAILED]x",
            "[SIGNATURE]{}",
        ],
    )
    def test_what_is_not_as_its_mark_says_is_refused(self, piece: str) -> None:
        with pytest.raises(InvalidInput):
            list(parse_marked_text([piece]))


def test_a_stream_of_a_provider_as_marked_text() -> None:
    async def test() -> None:
        async with (
            Simulator(behaviour="moonshot", log=lambda seen: None) as server,
            Provider(f"{server.url}/v1", host="moonshot", model="kimi-k2.5") as provider,
        ):
            pieces = [piece async for piece in as_marked_text(provider.stream_chat_with_tools(human(), [LIST]))]
            events = list(parse_marked_text(pieces))
            assert pieces[0].startswith("[REASONING]")
            assert pieces[-2].startswith("[TOOL_CALLS][{")
            assert pieces[-1].startswith("[USAGE]{")
            calls = [part for part in assemble(events).parts if isinstance(part, ToolCall)]
            told = [part for part in provider.last.message.parts if isinstance(part, ToolCall)]
            assert [(call.id, call.name, call.arguments) for call in calls] == [
                (call.id, call.name, call.arguments) for call in told
            ]

    run(test())
