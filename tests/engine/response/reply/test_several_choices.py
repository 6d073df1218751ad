"""A response with several choices keeps all of them, whatever form it comes in and leaves in."""

from __future__ import annotations

import json
from typing import Any, Final, TypeAlias

import pytest
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat import ChatCompletionChunk

from moonshim import KimiOptions, Mender, mend_chunks, mend_response, prepare_request
from moonshim.engine.plan import Plan
from moonshim.engine.response.reply import Form
from moonshim.types import BlockDelta, Event, Failed, Repaired
from tests.engine.response.reply.asking import payloads, read
from tests.support.choices import CUSTOM, NAME, TOOL, check, choice_chunks, host_sends, interleaved, piece, whole
from tests.support.streams import sse

Json: TypeAlias = dict[str, Any]


class Shout:
    """A transformer whose stages change the text, and note which events each of them gets."""

    name = "shout"

    def __init__(self) -> None:
        self.seen: list[list[Event]] = []

    def prepare(self, request: Any) -> Any:
        return request

    def stages(self, plan: Plan) -> list[Any]:
        outer, seen = self, list[Event]()

        class Stage:
            def feed(self, event: Event) -> list[Event]:
                if not seen:
                    outer.seen.append(seen)
                seen.append(event)
                if isinstance(event, BlockDelta):
                    return [BlockDelta(event.index, event.text.replace("Look", "LOOK").replace("lo.", "LO."))]
                return [event]

            def flush(self) -> list[Event]:
                return []

        return [Stage()]


def plan_of(*, stream: bool, tools: tuple[Json, ...] = (TOOL,), transformers: Any = ()) -> Plan:
    body = {
        "model": NAME,
        "messages": [{"role": "user", "content": "hi"}],
        "n": 3,
        "logprobs": True,
        "tools": [*tools],
        "stream": stream,
        "stream_options": {"include_usage": True} if stream else None,
    }
    return prepare_request(body, host="sglang", model="kimi-k2.5", transformers=transformers).plan


def put_together(out: bytes, output_format: Form) -> Json:
    """The response as OpenAI's own package reads it."""
    if output_format == "json":
        return json.loads(out)  # type: ignore[no-any-return]
    state: Any = ChatCompletionStreamState()
    for payload in payloads(out):
        state.handle_chunk(ChatCompletionChunk.model_validate(payload))
    assert out.endswith(b"data: [DONE]\n\n")
    assert sum(payload.get("usage") is not None for payload in payloads(out)) == 1
    return state.current_completion_snapshot.model_dump()  # type: ignore[no-any-return]


FORMS: Final = [(comes, goes) for comes in ("sse", "ndjson", "json") for goes in ("sse", "json")]
KINDS: Final[dict[str, Json]] = {"plain": {}, "encoded": {"tools": (TOOL, CUSTOM)}}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("input_format", "output_format"), FORMS)
def test_every_choice_arrives_in_every_form(input_format: Form, output_format: Form, kind: str) -> None:
    plan = plan_of(stream=output_format != "json", **KINDS[kind])
    for size in (1, 100, 100_000):
        out, reading = read(plan, host_sends(input_format), input_format, output_format, size=size)
        check(put_together(out, output_format))
        assert reading.problem is None
        assert "not_said" not in reading.repair_counts
        assert {repair.choice for repair in reading.repairs if repair.rule == "marker_call"} == {1}


@pytest.mark.parametrize(("input_format", "output_format"), FORMS)
def test_a_transformer_has_stages_for_each_choice(input_format: Form, output_format: Form) -> None:
    shout = Shout()
    plan = plan_of(stream=output_format != "json", transformers=(shout,))
    out, _ = read(plan, host_sends(input_format), input_format, output_format)
    check(put_together(out, output_format), text="HelLO.", look="LOOK.")
    assert len(shout.seen) == 3
    assert all(type(seen[-1]).__name__ == "Finished" for seen in shout.seen)


def test_a_body_that_is_mended_keeps_every_choice() -> None:
    for tools in ((TOOL,), (TOOL, CUSTOM)):
        check(mend_response(whole(), plan=plan_of(stream=False, tools=tools)).body)


def test_chunks_that_are_mended_keep_every_choice() -> None:
    for tools in ((TOOL,), (TOOL, CUSTOM)):
        state: Any = ChatCompletionStreamState()
        for chunk in mend_chunks(interleaved(), plan=plan_of(stream=True, tools=tools)):
            state.handle_chunk(ChatCompletionChunk.model_validate(chunk))
        check(state.current_completion_snapshot.model_dump())


def test_the_message_of_each_choice_is_known() -> None:
    for tools in ((TOOL,), (TOOL, CUSTOM)):
        mender = Mender(plan=plan_of(stream=True, tools=tools))
        mender.feed(host_sends("sse"))
        mender.flush()
        kinds = [[type(part).__name__ for part in mender.message_of(index).parts] for index in range(3)]
        assert kinds == [["Text"], ["Reasoning", "Text", "ToolCall"], ["ToolCall"]]


def test_a_clean_choice_leaves_as_it_came_beside_one_with_markers() -> None:
    mender = Mender(model="kimi-k2.5", tools=[TOOL])
    out = mender.feed(sse(interleaved())) + mender.flush()
    for chunk in (*choice_chunks(0), *choice_chunks(2)):
        assert sse([chunk], done=False) in out, chunk
    assert b"<|" not in out


@pytest.mark.parametrize("output_format", ["sse", "json"])
def test_a_choice_that_fails_does_not_take_the_others_along(output_format: Form) -> None:
    chunks = [
        piece(0, {"content": "Hello."}),
        piece(1, {"tool_calls": [{"index": 0, "id": "a", "function": {"name": "ls", "arguments": '{"n": }'}}]}),
        piece(1, {}, "tool_calls"),
        piece(0, {}, "stop"),
    ]
    plan = plan_of(stream=output_format != "json", tools=(TOOL, CUSTOM))
    out, reading = read(plan, sse(chunks), "sse", output_format)
    assert reading.problem is None
    if output_format == "json":
        body = json.loads(out)
        assert [one["finish_reason"] for one in body["choices"]] == ["stop", None]
        assert body["choices"][0]["message"]["content"] == "Hello."
        assert body["error"]["choice"] == 1
    else:
        errors = [payload["error"] for payload in payloads(out) if "error" in payload]
        assert [error["choice"] for error in errors] == [1]


@pytest.mark.parametrize("output_format", ["sse", "json"])
def test_an_error_of_the_host_ends_every_choice(output_format: Form) -> None:
    chunks = [piece(0, {"content": "Hel"}), piece(1, {"content": "a <"}), {"error": {"message": "boom", "code": 500}}]
    plan = plan_of(stream=output_format != "json", tools=(TOOL, CUSTOM))
    out, reading = read(plan, sse(chunks), "sse", output_format)
    assert isinstance(reading.ending, Failed)
    if output_format == "json":
        assert out == b""
        return
    sent = payloads(out)
    said = [one["delta"].get("content") or "" for payload in sent for one in payload.get("choices", ()) if one["index"]]
    assert "".join(said) == "a <"
    assert ["error" in payload for payload in sent].count(True) == 1
    assert "error" in sent[-1]


@pytest.mark.parametrize("output_format", ["sse", "json"])
@pytest.mark.parametrize("input_format", ["sse", "json"])
@pytest.mark.parametrize("client", ["anthropic", "openai_responses"])
def test_a_client_with_room_for_one_choice_gets_the_first(client: str, input_format: Form, output_format: Form) -> None:
    asked: Json = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 9}
    body = {"model": NAME, "stream": True, **(asked if client == "anthropic" else {"input": "hi"})}
    plan = prepare_request(body, dialect=client, host="sglang", model="kimi-k2.5").plan
    out, reading = read(plan, host_sends(input_format), input_format, output_format)
    assert [getattr(part, "text", None) for part in reading.message.parts] == ["Hello."]
    assert b"Look" not in out
    assert b"Hm." not in out
    assert [repair for repair in reading.repairs if repair.rule == "not_said"] == [
        Repaired("not_said", "the client's dialect has only one choice", index) for index in (1, 2)
    ]


def test_a_response_that_was_not_asked_for_keeps_its_choices_too() -> None:
    body = {"model": NAME, "messages": [{"role": "user", "content": "hi"}], "tools": [TOOL]}
    plan = prepare_request(body, host="sglang", model="kimi-k2.5", options=KimiOptions.mending()).plan
    out, _ = read(plan, host_sends("sse"), "sse", "json")
    check(json.loads(out))
