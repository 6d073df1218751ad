"""Law 5: streaming and non-streaming give the same `Message`; incremental and assembled agree as well."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from moonshim import KimiOptions, mend_chunks, mend_response
from tests.laws.scripts import LEGIBLE_SHAPES, Call, Cut, Run, Script, Setting, mend
from tests.laws.strategies import (
    NAMES,
    cuts,
    json_objects,
    numbered,
    odd_arguments,
    scripts,
    settings,
    texts,
    told_apart,
)
from tests.support.streams import in_field, read_body, read_chunks

_FIELDS = ("reasoning_content", "reasoning", "reasoning_details")


def _script(
    thought: str, field: str, said: str, called: list[tuple[str, str, str, str | None]], finish: str, setting: Setting
) -> Script:
    parts: list[Run | Call] = [Run(thought, (field,)), Run(said)]
    for place, (name, text, shape, id_) in enumerate(called):
        # Where deltas are left alone, a name in pieces stays in pieces.
        shape = shape if setting.mends_deltas else "clean"
        parts.append(told_apart(Call(name, text, id_ and id_.format(name), place, shape)))
    return Script(tuple(parts), finish, setting=setting)


responses = st.builds(
    _script,
    texts,
    st.sampled_from(_FIELDS),
    texts,
    st.lists(
        st.tuples(
            st.sampled_from(NAMES),
            odd_arguments,
            st.sampled_from(LEGIBLE_SHAPES),
            st.sampled_from((None, "call_1", "functions.{}:3")),
        ),
        max_size=2,
    ),
    st.sampled_from(("stop", "tool_calls", "length", "engine_overloaded")),
    settings,
).map(numbered)
"""What both kinds of response can say: reasoning, then text, then calls."""


def body_of(script: Script) -> dict[str, Any]:
    thought, said, *called = script.parts
    assert isinstance(thought, Run)
    assert isinstance(said, Run)
    message: dict[str, Any] = {"role": "assistant", "content": said.text}
    if thought.text:
        message |= in_field(thought.fields[0], thought.text)
    if called:
        message["tool_calls"] = [part.whole for part in called if isinstance(part, Call)]
    choice = {"index": 0, "message": message, "finish_reason": script.finish}
    return {"id": "chatcmpl-7", "object": "chat.completion", "model": script.setting.model, "choices": [choice]}


@given(responses, cuts)
def test_a_stream_and_a_whole_response_give_the_same_message(script: Script, cut: Cut) -> None:
    streamed = mend(script.setting, script.frames(cut))
    whole = mend_response(body_of(script), **script.setting.told)
    assert streamed.messages[0] == whole.message
    assert streamed.ending == whole.ending


@given(responses, cuts)
def test_a_stream_and_a_whole_response_look_the_same_to_a_client(script: Script, cut: Cut) -> None:
    setting = replace(script.setting, options=None)
    heard = mend(setting, script.frames(cut)).heard()[0]
    body = read_body(mend_response(body_of(script), **setting.told).body, strict=setting.mends_deltas)[0]
    assert heard.content == body.content
    assert "".join(heard.fields.values()) == "".join(body.fields.values())
    assert heard.finish == body.finish
    assert (heard.error is None) == (body.error is None)
    if setting.mends_deltas:
        assert heard.calls == body.calls


@given(scripts, cuts)
def test_parsed_chunks_are_mended_like_bytes(script: Script, cut: Cut) -> None:
    script = replace(script, done=False)
    chunks = script.chunks(cut)
    as_bytes = mend(script.setting, script.frames(cut), script.choices)
    as_values = list(mend_chunks(chunks, **script.setting.told))
    assert as_values == [value for value in as_bytes.values if isinstance(value, dict)]


@given(scripts, cuts)
def test_incremental_and_assembled_agree(script: Script, cut: Cut) -> None:
    one, other = (
        mend(
            replace(script.setting, options=KimiOptions.mending(tool_call_streaming=how)),
            script.frames(cut),
            script.choices,
        )
        for how in ("incremental", "assembled")
    )
    heard, again = one.heard(), other.heard()
    for choice in script.choices:
        assert heard[choice].content == again[choice].content
        assert heard[choice].fields == again[choice].fields
        assert heard[choice].finish == again[choice].finish
        calls, held = ([(call.name, call.arguments) for call in said[choice].calls] for said in (heard, again))
        assert sorted(calls) == sorted(held)


@given(st.sampled_from(NAMES), json_objects, cuts)
def test_a_whole_call_is_the_same_in_one_delta_and_in_many(name: str, value: dict[str, Any], cut: Cut) -> None:
    text = str(value).replace("\x00", "w")
    one, many = (
        Script((Call(name, f'{{"a": {text!r}}}'.replace("'", '"'), "call_1", 0, shape),))
        for shape in ("whole", "clean")
    )
    assert mend(one.setting, one.frames(cut)).messages == mend(many.setting, many.frames(cut)).messages
    assert read_chunks(mend(one.setting, one.frames(cut)).values)[0].calls
