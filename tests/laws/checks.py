"""What every mended stream must keep, whatever came in: its words, the order of its events, an honest end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from moonshim import Reasoning, Text, ToolCall
from moonshim.engine.values.events import BlockClosed, BlockDelta, BlockOpened, Event, Failed, Finished, Repaired
from tests.laws.scripts import Call, Outcome, Run, Script
from tests.laws.strategies import words_of
from tests.support.streams import ReceivedChoice

__all__ = ["assert_balanced", "assert_message_is_what_was_sent", "assert_nothing_lost", "assert_one_end", "is_in_order"]


def is_in_order(found: Sequence[str], came: Sequence[str]) -> bool:
    """Whether `found` is what came with some left out."""
    rest = iter(came)
    return all(word in rest for word in found)


def _channel(part: Run | Call) -> str:
    if isinstance(part, Call):
        return "call"
    return "text" if part.fields == ("content",) else "reasoning"


def assert_nothing_lost(script: Script, outcome: Outcome) -> None:
    """Every word is in the output, or a repair tells of it; none is there twice; channels keep their order."""
    heard = outcome.heard()
    for choice in script.choices:
        parts = [part for part in script.parts if part.choice == choice]
        # What is dropped piece by piece is told piece by piece.
        told = "".join(repair.detail for repair in outcome.repairs if repair.choice == choice)
        one = heard[choice]
        called = [text for call in one.calls for text in (call.name, call.arguments)]
        if not script.setting.mends_deltas:
            called += _raw_arguments(outcome, choice)
        _assert_words(parts, one, called, told)


def _raw_arguments(outcome: Outcome, choice: int) -> list[str]:
    """The arguments of deltas that were left as they were, however odd: by the index they claim."""
    texts: dict[str, str] = {}
    for value in outcome.values:
        for one in value.get("choices", ()) if isinstance(value, dict) else ():
            for entry in one["delta"].get("tool_calls") or () if one["index"] == choice else ():
                key = str(entry.get("index"))
                function = entry.get("function") or {}
                texts[key] = texts.get(key, "") + (function.get("arguments") or "")
    return list(texts.values())


def _assert_words(parts: Sequence[Run | Call], heard: ReceivedChoice, called: Sequence[str], told: str) -> None:
    reasoning = "".join(text for kind, text in heard.order if kind == "reasoning")
    texts = [heard.content, reasoning, *called]
    delivered = Counter(word for text in texts for word in words_of(text))
    sent = Counter(word for part in parts for word in words_of(part.sent))
    doubled = [word for word, count in delivered.items() if count > sent[word]]
    assert not doubled, f"said twice: {doubled}"
    known = delivered.keys() | set(words_of(told)) | {word for call in heard.calls for word in words_of(call.id)}
    for channel in ("text", "reasoning", "call"):
        came = [word for part in parts if _channel(part) == channel for word in words_of(part.sent)]
        lost = [word for word in came if word not in known]
        assert not lost, f"lost from {channel}: {lost}"
        for text in texts:
            found = [word for word in words_of(text) if word in set(came)]
            assert is_in_order(found, came), f"out of order: {found}"


def assert_balanced(events: Iterable[Event]) -> None:
    """Blocks open once, grow while they are open, close once; one end, and it is last."""
    opened: set[int] = set()
    live: set[int] = set()
    ended = 0
    for event in events:
        if isinstance(event, Repaired):
            continue
        assert not ended, f"after the end: {event}"
        match event:
            case BlockOpened(index=index):
                assert index not in opened, f"opened twice: {event}"
                opened.add(index)
                live.add(index)
            case BlockDelta(index=index, text=text):
                assert index in live, f"not open: {event}"
                assert text, "an empty delta"
            case BlockClosed(index=index):
                assert index in live, f"not open: {event}"
                live.remove(index)
            case Finished() | Failed():
                ended += 1
                assert not live, f"still open at the end: {live}"
    assert ended == 1


def assert_one_end(script: Script, outcome: Outcome) -> None:
    """Every choice of the wire ends once, with a finish or with an error."""
    heard = outcome.heard()
    for choice in script.choices:
        one = heard[choice]
        assert (one.finish is None) != (one.error is None), f"choice {choice}: {one.finish!r}, {one.error!r}"
        if one.finish == "tool_calls" and script.setting.mends_deltas:
            assert one.calls


def assert_message_is_what_was_sent(script: Script, outcome: Outcome) -> None:
    """The assembled message has the parts that a client has heard, in their order."""
    if not script.setting.mends_deltas:
        return
    heard = outcome.heard()
    for choice in script.choices:
        parts: list[tuple[str, str]] = []
        calls = iter(heard[choice].calls)
        for part in outcome.messages[choice].parts:
            match part:
                case Text(text=text):
                    parts.append(("text", text))
                case Reasoning(text=text):
                    parts.append(("reasoning", text))
                case ToolCall(name=name):
                    parts.append(("call", name))
                    one = next(calls)
                    assert (one.id, one.name, one.arguments) == (part.wire_id, part.name, part.arguments)
        assert parts == heard[choice].order
