"""Law 1: chunking is invisible, of bytes and of text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

import moonshim
from tests.laws.scripts import Cut, Outcome, Script, mend
from tests.laws.strategies import byte_splits, cuts, scripts
from tests.support.streams import ReceivedChoice, chunk, split_text, sse


def same(one: Outcome, other: Outcome) -> None:
    assert one.data == other.data
    assert one.repairs == other.repairs
    assert one.messages == other.messages
    assert one.ending == other.ending


@given(scripts, cuts, st.data())
def test_any_split_of_the_bytes_gives_the_same_bytes(script: Script, split_text: Cut, data: st.DataObject) -> None:
    frames = script.frames(split_text)
    whole = b"".join(frames)
    reference = mend(script.setting, frames, script.choices)
    same(reference, mend(script.setting, [whole], script.choices))
    same(reference, mend(script.setting, data.draw(byte_splits(whole)), script.choices))


@given(scripts, cuts)
def test_byte_by_byte_gives_the_same_bytes(script: Script, split_text: Cut) -> None:
    frames = script.frames(split_text)
    whole = b"".join(frames)
    single = [whole[at : at + 1] for at in range(len(whole))]
    same(mend(script.setting, frames, script.choices), mend(script.setting, single, script.choices))


def told(heard: ReceivedChoice) -> dict[str, object]:
    """What a client has after the last delta, whatever the deltas were."""
    return {
        "content": heard.content,
        "reasoning": heard.fields,
        "calls": heard.calls,
        "order": heard.order,
        "finish": heard.finish,
        "error": heard.error,
        "summary": heard.summary,
    }


@given(scripts, cuts, cuts)
def test_any_cut_of_the_text_over_events_says_the_same(script: Script, one_cut: Cut, other_cut: Cut) -> None:
    one = mend(script.setting, script.frames(one_cut), script.choices)
    other = mend(script.setting, script.frames(other_cut), script.choices)
    assert one.messages == other.messages
    assert one.ending == other.ending
    heard, again = one.heard(), other.heard()
    for choice in script.choices:
        assert told(heard[choice]) == told(again[choice])


# -- at limits ---------------------------------------------------------------------------------------------------

_SECTION = "<|tool_calls_section_begin|><|tool_call_begin|>"
_ARGUMENTS = "<|tool_call_argument_begin|>"
_END = "<|tool_call_end|><|tool_calls_section_end|>"
_NEXT = f'<|tool_call_begin|>functions.list:1{_ARGUMENTS}{{"path": "b"}}'
_HEADER = f"{_SECTION}functions.list:0"
_CALL = f'{_HEADER}{_ARGUMENTS}{{"path": "a"}}'
_BUFFER: Final = 1024

_IN_TEXT: Final = {
    "a header": f'{_SECTION}{{}}list:0{_ARGUMENTS}{{"path": "a"}}{_END}',
    "the end of a header": f'{_HEADER}{{}}{_ARGUMENTS}{{"path": "a"}}{_END}',
    "a header without its marker": f'{_HEADER}{{}}{{"path": "a"}}{_END}, then text',
    "a bare header": f'So: list:0{{}}{_ARGUMENTS}{{"path": "a"}}{_END}, then text',
    "before arguments": f'{_HEADER}{_ARGUMENTS}{{}}{{"path": "a"}}{_END}',
    "after arguments": f"{_CALL}{{}}{_END}, then text",
    "after arguments, with a word": f"{_CALL} {{}} x{_END}, then text",
    "after arguments, before a call": f"{_CALL}{{}}{_NEXT}{_END}, then text",
    "after arguments, before a bare header": f'{_CALL}{{}}list:1{_ARGUMENTS}{{"path": "b"}}{_END}',
    "between calls": f"{_CALL}<|tool_call_end|>{{}}{_NEXT}{_END}, then text",
    "after a section": f"{_CALL}{_END}{{}}, then text",
    "a call without a name": f'{_SECTION}7{_ARGUMENTS}{{{{"path": "{{}}"}}}}{_END}',
    "a tag of K3": '<|open|>call tool="list" index="1" {}<|sep|>x<|close|>call<|sep|>',
    "a number of K3": '<|open|>call tool="count" index="1"<|sep|><|open|>argument key="n" type="number"<|sep|>'
    "{}<|close|>argument<|sep|><|close|>call<|sep|>",
}
_IN_ARGUMENTS: Final = {
    "before": '{}{{"path": "a"}}',
    "in an empty object": '{{{}}}{{"path": "a"}}',
    "after an empty object": '{{}}{}{{"path": "a"}}',
    "after nothing but an empty object": "{{}}{}",
    "after a quote": '"{}{{\\"path\\": \\"a\\"}}"',
    "after": '{{"path": "a"}}{}',
    "between two": '{{"path": "a"}}{}{{"path": "a"}}',
    "a value": '{{"path": {}1, "n": "{}"}}',
}
_FILLERS: Final = (" ", "x", "<")
_LENGTHS: Final = (257, 276, 300, 1010, 1025, 1100)
_LIMITED: Final = [
    {
        "type": "function",
        "function": {"name": name, "parameters": {"type": "object", "properties": {field: {"type": kind}}}},
    }
    for name, field, kind in (("list", "path", "string"), ("count", "n", "integer"))
]


def _outcome(deltas: Iterable[dict[str, Any]], model: str) -> tuple[object, ...]:
    options = moonshim.KimiOptions.mending(buffer_limit=_BUFFER)
    mender = moonshim.Mender(model=model, tools=_LIMITED, options=options)
    for delta in deltas:
        mender.feed(sse([chunk(delta)], done=False))
    mender.feed(sse([chunk({}, "tool_calls")]))
    mender.flush()
    return mender.message, mender.repairs, mender.ending


def _filled(pattern: str) -> Iterator[str]:
    for filler in _FILLERS:
        for length in _LENGTHS:
            yield pattern.replace("{}", (filler * length)[:length]).replace("{{", "{").replace("}}", "}")


def _native(text: str, name: str, size: int | None) -> Iterator[dict[str, Any]]:
    yield {"tool_calls": [{"index": 0, "id": f"functions.{name}:0", "function": {"name": name, "arguments": ""}}]}
    for piece in split_text(text, size):
        yield {"tool_calls": [{"index": 0, "function": {"arguments": piece}}]}


@pytest.mark.parametrize("model", ["kimi-k2.5", "kimi-k3", "kimi-for-coding"])
@pytest.mark.parametrize("where", _IN_TEXT)
def test_chunking_does_not_show_at_the_limits_of_markers(where: str, model: str) -> None:
    for text in _filled(_IN_TEXT[where]):
        whole = _outcome([{"content": text}], model)
        assert _outcome(({"content": character} for character in text), model) == whole, text


@pytest.mark.parametrize("name", ["list", "count"])
@pytest.mark.parametrize("where", _IN_ARGUMENTS)
def test_chunking_does_not_show_at_the_limits_of_native_arguments(where: str, name: str) -> None:
    for text in _filled(_IN_ARGUMENTS[where]):
        whole = _outcome(_native(text, name, None), "kimi-k2.5")
        assert _outcome(_native(text, name, 1), "kimi-k2.5") == whole, text
