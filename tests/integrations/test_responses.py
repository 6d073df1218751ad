"""Responses of the openai package, at hosts that speak Chat: translated, and kept by the client itself."""

from __future__ import annotations

from typing import Any, Final

import openai
import pytest

from tests.integrations.judging import FAULTS, problems_at
from tests.integrations.programs import TOOLS, asking

FUNCTIONS: Final[Any] = [{"type": "function", **tool["function"], "strict": False} for tool in TOOLS]


def _ask(client: openai.OpenAI, given: Any, stream: bool, **more: Any) -> Any:
    if not stream:
        return client.responses.create(model="kimi-k2.5", input=given, tools=FUNCTIONS, **more)
    with client.responses.stream(model="kimi-k2.5", input=given, tools=FUNCTIONS, **more) as events:
        for _ in events:
            pass
        return events.get_final_response()


def _calls(response: Any) -> list[Any]:
    return [item for item in response.output if item.type == "function_call"]


def _outputs(response: Any) -> list[Any]:
    return [{"type": "function_call_output", "call_id": call.call_id, "output": "often"} for call in _calls(response)]


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("behaviour", ["openrouter", "selfhost"])
def test_a_conversation_goes_on_from_the_name_of_the_last_response(behaviour: str, stream: bool) -> None:
    with asking(behaviour, FAULTS) as (server, client):
        response = _ask(client, "What is it like there?", stream)
        while _calls(response):
            response = _ask(client, _outputs(response), stream, previous_response_id=response.id)
    assert problems_at(server, response.output_text) == []
    assert all(seen.wire == "openai_chat" for seen in server.requests)


def _read_like_agno(client: openai.OpenAI, given: Any, **more: Any) -> tuple[str, str, list[Any]]:
    """agno 3.1 adds every piece of arguments to the newest item, which is whole when any item is done."""
    name, text, calls, call = "", "", [], None
    for event in client.responses.create(model="kimi-k2.5", input=given, tools=FUNCTIONS, stream=True, **more):
        match event.type:
            case "response.created":
                name = event.response.id
            case "response.output_text.delta":
                text += event.delta
            case "response.output_item.added" if event.item.type == "function_call":
                call = event.item
            case "response.function_call_arguments.delta":
                assert call is not None
                call.arguments += event.delta
            case "response.output_item.done" if call is not None:
                calls.append(call)
                call = None
    return name, text, calls


@pytest.mark.parametrize("fault", ["arguments-twice", "shared-index", "missing-index", "interleaved-calls"])
def test_a_client_that_knows_only_the_newest_item_of_a_stream_gets_every_call(fault: str) -> None:
    with asking("selfhost", (f"{fault}@2", f"{fault}@4")) as (server, client):
        name, text, calls = _read_like_agno(client, "What is it like there?")
        while calls:
            intended = server.requests[-1].intended
            assert intended is not None
            assert [(call.name, call.arguments) for call in calls] == [
                (one.name, one.arguments) for one in intended.calls
            ]
            outputs = [{"type": "function_call_output", "call_id": call.call_id, "output": "often"} for call in calls]
            name, text, calls = _read_like_agno(client, outputs, previous_response_id=name)
    assert problems_at(server, text) == []


def test_a_conversation_that_sends_everything_itself_needs_nothing_kept() -> None:
    with asking("selfhost", FAULTS) as (server, client):
        said: list[Any] = [{"role": "user", "content": "What is it like there?"}]
        response = _ask(client, said, stream=False, store=False)
        while _calls(response):
            said += [item.model_dump(exclude_none=True) for item in response.output] + _outputs(response)
            response = _ask(client, said, stream=False, store=False)
    assert problems_at(server, response.output_text) == []


def test_two_can_go_on_from_one_response() -> None:
    with asking("selfhost") as (server, client):
        first = _ask(client, "What is it like there?", stream=False)
        for words in ("one", "two"):
            outputs = [*_outputs(first), {"role": "user", "content": words}]
            _ask(client, outputs, stream=False, previous_response_id=first.id)
    asked = [seen.request.turns[-1].text for seen in server.requests if seen.request is not None]
    assert asked == ["What is it like there?", "one", "two"]
    assert server.refusals == []


def test_what_was_not_to_be_kept_cannot_be_gone_on_from() -> None:
    with asking("selfhost") as (_, client):
        first = _ask(client, "What is it like there?", stream=False, store=False)
        with pytest.raises(openai.BadRequestError) as raised:
            _ask(client, _outputs(first), stream=False, previous_response_id=first.id)
    assert raised.value.code == "previous_response_not_found"
    assert raised.value.param == "previous_response_id"


def test_another_key_does_not_find_it() -> None:
    with asking("selfhost") as (_, client):
        first = _ask(client, "What is it like there?", stream=False)
        other = client.with_options(api_key="sk-another-key-of-this-test")
        with pytest.raises(openai.BadRequestError, match="not found"):
            _ask(other, _outputs(first), stream=False, previous_response_id=first.id)


def test_errors_of_the_host_are_told() -> None:
    with asking("moonshot", ("overloaded",)) as (_, client), pytest.raises(openai.RateLimitError):
        _ask(client, "What is it like there?", stream=False)
    with asking("moonshot", ("cut-off",)) as (_, client):
        events = client.responses.create(model="kimi-k2.5", input="hello", stream=True)
        types = [event.type for event in events]
    assert types[-1] == "response.failed"
