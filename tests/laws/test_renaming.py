"""The client's name of the model: a renamed stream is the stream, with that field replaced and nothing else touched."""

from __future__ import annotations

from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moonshim import Mender, mend_chunks, mend_response
from moonshim.engine.dialects.openai_chat.dialect import OPENAI_CHAT
from moonshim.engine.dialects.protocol import ResponseContext
from moonshim.engine.plan import Plan, plan_for
from moonshim.engine.response.fast_path import FastPath
from moonshim.engine.response.frame_templates import Renamer
from moonshim.engine.wire.json_codec import decode_object, encode
from moonshim.engine.wire.sse import Frame, SseFramer, render_sse
from tests.laws.scripts import Call, Cut, Run, Script, Setting, pieces
from tests.laws.strategies import byte_splits, cuts, scripts
from tests.laws.test_fast_path import TYPICAL, counted
from tests.laws.test_whole_and_stream import body_of, responses
from tests.support.streams import chunk, parse_payloads, read_sse, sse

NAMES: Final = ("claude-sonnet", 'a "quoted" name, 北京\n', "k", "a-very-long-name-" * 8)


def plan_of(setting: Setting, name: str) -> Plan:
    plan = plan_for(**setting.told)
    plan.client = plan.upstream = OPENAI_CHAT
    plan.reply = ResponseContext(model=name)
    plan.hides_usage = False
    return plan


def mended(plan: Plan, data: list[bytes]) -> tuple[bytes, Mender]:
    mender = Mender(plan=plan)
    return b"".join([mender.feed(piece) for piece in data]) + mender.flush(), mender


def renamed(data: bytes, before: str, name: str) -> bytes:
    """The field replaced, wherever it is; no text has it, since quotes in a text are escaped."""
    for colon in (b'"model": ', b'"model":'):
        data = data.replace(colon + encode(before), colon + encode(name))
    return data


def same_but_for_the_name(setting: Setting, name: str, data: list[bytes]) -> None:
    told, mender = mended(plan_of(setting, setting.model), data)
    out, other = mended(plan_of(setting, name), data)
    assert out == renamed(told, setting.model, name)
    assert (other.message, other.ending, other.usage) == (mender.message, mender.ending, mender.usage)
    assert other.repairs == mender.repairs


@given(scripts, cuts, st.sampled_from(NAMES))
def test_a_renamed_stream_is_the_stream_with_the_field_replaced(script: Script, cut: Cut, name: str) -> None:
    same_but_for_the_name(script.setting, name, script.frames(cut))


@given(scripts, cuts, st.sampled_from(NAMES), st.data())
def test_it_is_for_any_cut_of_the_bytes(script: Script, cut: Cut, name: str, draw: st.DataObject) -> None:
    data = b"".join(script.frames(cut))
    same_but_for_the_name(script.setting, name, draw.draw(byte_splits(data)))


@pytest.mark.parametrize("place", ["before", "behind"])
@pytest.mark.parametrize("name", TYPICAL)
def test_renamed_streams_go_the_short_way_too(name: str, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, part = TYPICAL[name]
    script = Script((part,), finish="stop", setting=Setting(model))
    chunks = script.chunks(pieces([4]))
    if place == "behind":
        chunks = [{key: one[key] for key in ("id", "choices", "model")} for one in chunks]
    frames = [sse([one], done=False) for one in chunks] + [sse([])]
    taken = [0]
    monkeypatch.setattr(FastPath, "take", counted(FastPath.take, taken))
    mended(plan_of(script.setting, "claude-sonnet"), frames)
    monkeypatch.undo()
    assert taken[0] >= 0.6 * len(frames), f"{taken[0]} of {len(frames)}"
    same_but_for_the_name(script.setting, "claude-sonnet", frames)


@given(responses, st.sampled_from(NAMES))
def test_a_whole_response_is_renamed_too(script: Script, name: str) -> None:
    body = body_of(script)
    told = mend_response(body, plan=plan_of(script.setting, script.setting.model))
    out = mend_response(body, plan=plan_of(script.setting, name))
    expected = told.body if "model" not in told.body else told.body | {"model": name}
    assert out.body == expected
    assert (out.message, out.ending, out.repairs, out.usage) == (told.message, told.ending, told.repairs, told.usage)


@given(scripts, cuts)
def test_parsed_chunks_are_renamed_too(script: Script, cut: Cut) -> None:
    chunks = script.chunks(cut)
    told = list(mend_chunks(chunks, plan=plan_of(script.setting, script.setting.model)))
    out = list(mend_chunks(chunks, plan=plan_of(script.setting, "claude-sonnet")))
    assert out == [one | {"model": "claude-sonnet"} if "model" in one else one for one in told]


# --- single frames ----------------------------------------------------------------------------------------------

ODD: Final = {
    "twice": b'{"model":"a","choices":[],"model":"b"}',
    "nested first": b'{"x":{"model":"b"},"model":"b","choices":[]}',
    "in a text": b'{"x":"\\"model\\":\\"b\\"","model":"b","choices":[]}',
    "an escaped key": b'{"x":{"model":"b"},"mod\\u0065l":"b","choices":[]}',
    "no string": b'{"model":null,"choices":[]}',
    "empty": b'{"model":"","choices":[]}',
    "spread": b'{ "model" \t:\t "b" , "choices" : [ ] }',
}


@pytest.mark.parametrize("data", ODD.values(), ids=ODD.keys())
def test_the_name_is_written_where_it_is_read(data: bytes) -> None:
    chunk = decode_object(data)
    assert chunk is not None
    expected = chunk | {"model": "new"}
    renamer = Renamer("new", render_sse)
    for _ in range(2):
        sent = renamer.rename(Frame(render_sse(data), data), dict(chunk))
        assert sent.data is not None
        assert decode_object(sent.data) == expected
        assert sent.raw == render_sse(sent.data)


@pytest.mark.parametrize("data", [b'{"choices":[]}', b'{"model":"new","choices":[]}', b'{"error":{"message":"no"}}'])
def test_a_frame_that_names_no_other_model_is_the_same_object(data: bytes) -> None:
    frame, chunk = Frame(render_sse(data), data), decode_object(data)
    assert chunk is not None
    assert Renamer("new", render_sse).rename(frame, chunk) is frame


def test_a_payload_over_several_lines_is_renamed_as_one() -> None:
    (frame,) = SseFramer().feed(b'event: x\ndata: {"model":\ndata: "b","choices":[]}\n\n')
    assert frame.data is not None
    chunk = decode_object(frame.data)
    assert chunk is not None
    sent = Renamer("new", render_sse).rename(frame, chunk)
    assert parse_payloads(read_sse(sent.raw)) == [{"model": "new", "choices": []}]
    assert sent.raw.startswith(b"event: x\n")


def test_without_a_prepared_plan_nothing_is_renamed() -> None:
    data = sse([chunk({"content": "Hi"}, "stop", model="another")])
    mender = Mender(model="kimi-k2.5")
    assert mender.feed(data) + mender.flush() == data


def test_a_call_in_markers_is_told_under_the_client_s_name() -> None:
    leaked = '<|tool_call_begin|>functions.read:0<|tool_call_argument_begin|>{"path": "a"}<|tool_call_end|>'
    script = Script((Run("Look. " + leaked), Call("search", '{"query": "x"}', "functions.search:1", 1)))
    out, _ = mended(plan_of(script.setting, "claude-sonnet"), script.frames(pieces([3])))
    values: list[Any] = [one for one in parse_payloads(read_sse(out)) if isinstance(one, dict)]
    assert {one["model"] for one in values} == {"claude-sonnet"}
    assert any(choice["delta"].get("tool_calls") for one in values for choice in one["choices"])
