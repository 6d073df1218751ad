"""What a program demands of an answer, JSON or a call, reaches the model; a call that is missing is asked for again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import pytest

from moonshim.agent import Provider
from moonshim.errors import InvalidInput
from moonshim.simulator import Simulator
from moonshim.testing import RecordedHost, RecordedResponse
from moonshim.types import BlockOpened, Event, Failed, Finished, Message, Repaired, ResponseFormat, Text, Tool, ToolCall
from tests.agent.asking import Boxes, boxes_for, collected, human, run

CITY: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
PICK: Final = Tool("pick", "Pick a city.", CITY)
FORMATS: Final[dict[str, Any]] = {
    "value": ResponseFormat("json_schema", "city", CITY),
    "dict": {"type": "json_schema", "json_schema": {"name": "city", "schema": CITY}},
}
# name: the behaviour of the simulator, the host profile, the dialect, the path
HOSTS: Final[dict[str, tuple[str, str, str, str]]] = {
    "together": ("together", "together", "openai_chat", "/v1"),
    "siliconflow": ("siliconflow", "siliconflow", "openai_chat", "/v1"),
    "moonshot-anthropic": ("moonshot", "moonshot-anthropic", "anthropic", "/anthropic"),
}
PROSE: Final = "Rather in words."


@pytest.fixture(scope="module")
def boxes() -> Iterator[Boxes]:
    with boxes_for() as standing:
        yield standing


def provider_at(boxes: Boxes, host: str, model: str) -> tuple[Simulator, Provider]:
    behaviour, profile, dialect, path = HOSTS.get(host) or (host, host, "openai_chat", "/v1")
    box = boxes.of(behaviour)
    given: Any = dialect
    return box, Provider(f"{box.url}{path}", model=model, api_key="sk-host", dialect=given, host=profile, attempts=1)


async def events_of(provider: Provider, **given: Any) -> tuple[list[Event], Message]:
    async with provider:
        stream = provider.stream_chat_with_tools(human("Pick a city."), **given)
        return await collected(stream), stream.result.message


def text_of(message: Message) -> str:
    return "".join(part.text for part in message.parts if isinstance(part, Text))


def rules_in(events: list[Event]) -> list[str]:
    return [event.rule for event in events if isinstance(event, Repaired)]


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("host", HOSTS)
def test_an_answer_is_the_json_that_was_asked_for_without_its_fence(boxes: Boxes, host: str, format: str) -> None:
    for fault in ("", "+json-in-fence"):
        box, provider = provider_at(boxes, host, f"kimi-k3{fault}")
        events, message = run(events_of(provider, response_format=FORMATS[format]))
        assert set(json.loads(text_of(message))) == {"city", "days"}
        assert rules_in(events).count("json_fence") == bool(fault)
        assert len(box.requests) == 1
        assert isinstance(events[-1], Finished)
        assert sum(isinstance(event, Finished) for event in events) == 1


@pytest.mark.parametrize("host", HOSTS)
def test_prose_is_delivered_as_it_is(boxes: Boxes, host: str) -> None:
    box, provider = provider_at(boxes, host, "kimi-k3+json-prose")
    _, message = run(events_of(provider, response_format=FORMATS["value"]))
    assert text_of(message).count("Certainly!") == 1
    assert len(box.requests) == 1


@pytest.mark.parametrize("model", ["kimi-k2.5", "kimi-k3"])
@pytest.mark.parametrize("choice", ["pick", "required"])
@pytest.mark.parametrize("host", ["together", "moonshot-anthropic"])
def test_a_forced_call_that_is_missing_is_asked_for_once_more(boxes: Boxes, host: str, choice: str, model: str) -> None:
    if (host, choice, model) == ("moonshot-anthropic", "required", "kimi-k3"):
        model = "kimi-k2.6"  # K3 obeys this choice at Moonshot, so nothing is checked there
    box, provider = provider_at(boxes, host, f"{model}+choice-ignored-first")
    events, message = run(events_of(provider, tools=[PICK], tool_choice=choice))
    (call,) = [part for part in message.parts if isinstance(part, ToolCall)]
    assert call.name == "pick"
    assert set(json.loads(call.arguments)) == {"city", "days"}
    assert text_of(message) == ""
    assert rules_in(events).count("answer_corrected") == 1
    first, second = box.requests
    assert (first.status, second.status) == (200, 200), second.problem
    result = provider.last
    assert (result.attempts, result.problem) == (2, None)
    # The tokens of both are reported.
    _, plain = provider_at(boxes, host, model)
    run(events_of(plain, tools=[PICK], tool_choice=choice))
    assert plain.last.attempts == 1
    assert result.usage is not None
    assert plain.last.usage is not None
    assert (result.usage.output_tokens or 0) > (plain.last.usage.output_tokens or 0)
    assert isinstance(events[-1], Finished)
    assert events[-1].usage == result.usage


def test_a_call_that_never_comes_leaves_the_answer(boxes: Boxes) -> None:
    box, provider = provider_at(boxes, "together", "kimi-k3+choice-ignored")
    events, message = run(events_of(provider, tools=[PICK], tool_choice="pick"))
    assert text_of(message) == "I would rather answer in words than call a tool."
    assert rules_in(events).count("forced_call_missing") == 1
    assert len(box.requests) == 2


def test_every_repair_is_reported_once_and_in_its_order(boxes: Boxes) -> None:
    _, provider = provider_at(boxes, "together", "kimi-k3+choice-ignored+finish-twice")
    events, _ = run(events_of(provider, tools=[PICK], tool_choice="pick"))
    reported = rules_in(events)
    assert reported[-1] == "forced_call_missing"
    assert {rule: reported.count(rule) for rule in reported} == provider.last.repair_counts


def _stream(*deltas: dict[str, Any], end: bool = True) -> bytes:
    head = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "kimi-k3"}
    chunks: list[Any] = [{**head, "choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    chunks += [{**head, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}] if end else []
    return "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks).encode() + b"data: [DONE]\n\n" * end


FAILURES: Final[dict[str, RecordedResponse]] = {
    "refused": RecordedResponse(body=b'{"error":{"message":"The engine is overloaded"}}', status=429),
    "broken off": RecordedResponse(body=_stream({"reasoning_content": "Hm."}, {"content": '{"ci'}, end=False)),
    "error in the stream": RecordedResponse(body=b'data: {"error":{"message":"The engine is overloaded"}}\n\n'),
    "a web page": RecordedResponse(body=b"<html>Bad gateway</html>", status=502),
}


@pytest.mark.parametrize("failure", FAILURES)
def test_a_second_request_that_fails_leaves_the_first_answer(failure: str) -> None:
    first = _stream({"role": "assistant", "content": PROSE})
    with RecordedHost(first, FAILURES[failure]).running() as host:
        provider = Provider(f"{host.url}/v1", model="kimi-k3", api_key="sk", host="together", attempts=3)
        events, message = run(events_of(provider, tools=[PICK], tool_choice="required"))
        assert len(host.requests) == 2
    assert text_of(message) == PROSE
    assert isinstance(events[-1], Finished)
    assert provider.problem is None
    assert rules_in(events)[-1] == "forced_call_missing"


def test_a_second_response_that_breaks_off_inside_the_call_ends_in_an_error() -> None:
    """A part of the call has streamed, so the first answer cannot follow."""
    function = {"name": "pick", "arguments": '{"city": "Bei'}
    call = {"tool_calls": [{"index": 0, "id": "pick:0", "type": "function", "function": function}]}
    first, second = _stream({"role": "assistant", "content": PROSE}), _stream(call, end=False)
    with RecordedHost(first, second).running() as host:
        provider = Provider(f"{host.url}/v1", model="kimi-k2.5", api_key="sk", host="moonshot", attempts=1)
        events, message = run(events_of(provider, tools=[PICK], tool_choice="pick"))
        assert host.requests[1]["thinking"] == {"type": "disabled"}
    assert isinstance(events[-1], Failed)
    assert text_of(message) == ""
    assert [event.name for event in events if isinstance(event, BlockOpened) and event.kind == "call"] == ["pick"]


def test_a_format_that_is_none_is_refused_before_anything_is_sent() -> None:
    provider = Provider("http://127.0.0.1:1/v1", model="kimi-k3")
    for wrong in ({"type": "xml"}, "json", {"type": "json_schema"}):
        given: Any = wrong
        with pytest.raises(InvalidInput, match="response_format"):
            provider.stream_chat_with_tools(human(), response_format=given)
