"""The walk of a request, without a socket: who may ask, what is refused, which faults are due, what is kept of it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moonshim.simulator.host.behaviours import UnknownBehaviour
from moonshim.simulator.host.token_counts import tokens_of
from moonshim.simulator.http.exchange import HEADER, SEEN_BYTES, SimExchange
from moonshim.simulator.http.recorded import ReceivedRequest, RecordedRequest
from moonshim.simulator.request import Json, SimRequest, Wire
from moonshim.simulator.response import IntendedCall, IntendedResponse, Model
from moonshim.simulator.selection import UnknownName
from moonshim.simulator.settings import ModelRow, SimulatorSettings
from moonshim.simulator.wire.playback import SimResponse
from tests.simulator.asking import CHAT_TOOLS, MESSAGES_TOOLS, Rounds

HELLO: Json = {"model": "kimi-k2.5", "messages": [{"role": "user", "content": "Hi"}], "tools": CHAT_TOOLS}


class Host:
    """An exchange, and what it logged."""

    def __init__(self, model: Model | None = None, *, max_recorded_bytes: int = SEEN_BYTES, **fields: Any) -> None:
        self.lines: list[RecordedRequest] = []
        self.failures: list[BaseException] = []
        self.exchange = SimExchange(
            SimulatorSettings(**fields),
            models=lambda scenario: model or Rounds(),
            clock=lambda: 1_794_000_000.9,
            log=self.lines.append,
            log_failure=lambda error, number: self.failures.append(error),
            max_recorded_bytes=max_recorded_bytes,
        )

    def ask(self, body: Any, *, wire: Wire = "openai_chat", **headers: str) -> SimResponse:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.exchange.answer(
            ReceivedRequest(wire, {key.replace("_", "-"): value for key, value in headers.items()}, data)
        )

    @property
    def seen(self) -> RecordedRequest:
        return self.exchange.requests[-1]


def body_of(response: SimResponse) -> Json:
    (data,) = response.pieces
    assert isinstance(data, bytes)
    found: Json = json.loads(data)
    return found


# -- what is answered --------------------------------------------------------------------------------------------


def test_an_answer_is_made_at_the_time_of_the_clock_for_the_model_that_was_asked() -> None:
    received = body_of(Host().ask(HELLO))
    assert (received["created"], received["model"]) == (1_794_000_000, "kimi-k2.5")


def test_two_simulators_with_one_seed_send_the_same_bytes_and_one_never_repeats_an_id() -> None:
    one, two, other = Host(), Host(), Host(seed=1)
    first = [one.ask(HELLO) for _ in range(3)]
    assert first == [two.ask(HELLO) for _ in range(3)]
    assert len({body_of(response)["id"] for response in (*first, other.ask(HELLO))}) == 4


class Talker:
    def reply(self, request: SimRequest) -> IntendedResponse:
        return IntendedResponse(reasoning="Let me think about it. " * 9, text="one two END " + "three " * 99)


@pytest.mark.parametrize(
    ("more", "reasoning"),
    [
        ({"stop": "END", "thinking": {"type": "disabled"}}, 0),
        ({"stop": "END"}, tokens_of("Let me think about it. " * 9)),
    ],
)
def test_usage_counts_what_is_sent_and_nothing_else(more: Json, reasoning: int) -> None:
    usage = body_of(Host(Talker()).ask(HELLO | more))["usage"]
    assert usage.get("completion_tokens_details", {}).get("reasoning_tokens", 0) == reasoning
    assert usage["completion_tokens"] == reasoning + tokens_of("one two ")


def test_what_was_seen_has_the_question_and_what_was_meant() -> None:
    host = Host()
    host.ask(HELLO)
    assert host.lines == list(host.exchange.requests) == [host.seen]
    assert (host.seen.number, host.seen.status, host.seen.problem, host.seen.round) == (1, 200, None, 1)
    assert host.seen.request is not None
    assert host.seen.request.words == "Hi"
    assert host.seen.intended is not None
    assert [call.name for call in host.seen.intended.calls] == ["weather", "time_of-day"]


def test_what_was_seen_has_the_headers_but_no_key() -> None:
    host = Host()
    host.ask(HELLO, authorization="Bearer sk-1", x_api_key="sk-2", anthropic_version="2023-06-01")
    assert host.seen.headers == {"anthropic-version": "2023-06-01"}


def test_no_more_is_kept_than_fits() -> None:
    host = Host(max_recorded_bytes=10_000)
    large = HELLO | {"messages": [{"role": "user", "content": "x" * 4000}]}
    for body in (HELLO, large, large, large):
        host.ask(body)
    assert [seen.number for seen in host.exchange.requests] == [3, 4]
    assert len(host.lines) == 4


def test_a_conversation_that_goes_on_is_read_from_the_cache() -> None:
    host, long = Host(), {"role": "user", "content": "All work and no play makes Jack a dull boy. " * 40}
    first = body_of(host.ask(HELLO | {"messages": [long]}))["usage"]
    second = body_of(host.ask(HELLO | {"messages": [long, {"role": "assistant", "content": "Hm."}, long]}))["usage"]
    assert first["cached_tokens"] == 0
    assert 0 < second["cached_tokens"] < second["prompt_tokens"]


def test_a_scenario_can_be_named_with_the_model() -> None:
    asked: list[str | None] = []

    def models(scenario: str | None) -> Model:
        asked.append(scenario)
        return Rounds()

    exchange = SimExchange(
        SimulatorSettings(),
        models=models,
        clock=lambda: 0.0,
        log=lambda seen: None,
        log_failure=lambda error, number: None,
    )
    body = json.dumps(HELLO | {"model": "kimi-k2.5+five-rounds"}).encode()
    for _ in range(2):
        assert exchange.answer(ReceivedRequest("openai_chat", {}, body)).status == 200
    assert asked == [None, "five-rounds"]
    assert exchange.requests[-1].request is not None
    assert exchange.requests[-1].request.model == "kimi-k2.5"


# -- what is refused ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"authorization": "Bearer sk-wrong"}, 401),
        ({"authorization": "Bearer sk-right"}, 200),
        ({"x-api-key": "sk-right"}, 200),
    ],
)
def test_only_the_key_of_the_settings_is_accepted(headers: dict[str, str], status: int) -> None:
    asked = ReceivedRequest("openai_chat", headers, json.dumps(HELLO).encode())
    assert Host(api_key="sk-right").exchange.answer(asked).status == status


@pytest.mark.parametrize(("agent", "status"), [("curl/8", 403), ("KimiCLI/1.5", 200), ("claude-cli/2.1", 200)])
def test_kimi_code_answers_only_agents_that_it_knows(agent: str, status: int) -> None:
    host = Host(behaviour="kimi-coding")
    assert host.ask(HELLO, user_agent=agent).status == status
    assert (host.seen.problem is None) == (status == 200)


def test_the_key_comes_before_the_body_and_the_body_before_the_model() -> None:
    host = Host(api_key="sk-right")
    assert host.ask(b"{").status == 401
    assert host.ask(b"{", x_api_key="sk-right").status == 400
    assert host.ask({"model": "gpt-5", "messages": []}, x_api_key="sk-right").status == 404


def test_the_problem_is_kept_in_the_exact_words_of_the_error() -> None:
    host = Host()
    refused = host.ask(HELLO | {"temperature": 0.3})
    assert refused.status == host.seen.status == 400
    assert body_of(refused)["error"]["message"] == host.seen.problem
    assert host.seen.problem == "invalid temperature: only 1 is allowed for this model"


@pytest.mark.parametrize("data", [b"", b"  ", b"{", b"[]", b"7", b"\xff\xfe{}", b'"\xff"', b"[" * 100_000])
@pytest.mark.parametrize("wire", ["openai_chat", "anthropic"])
def test_what_is_no_object_is_refused_in_the_dialect(data: bytes, wire: Wire) -> None:
    host = Host()
    refused = host.ask(data, wire=wire)
    assert refused.status == 400
    assert body_of(refused)["error"]["message"] == host.seen.problem
    assert ("type" in body_of(refused)) == (wire == "anthropic")
    assert not host.failures


@pytest.mark.parametrize("body", [{}, {"model": None}, {"model": 7}, {"model": "kimi-k3"}, {"model": "+"}])
@pytest.mark.parametrize("wire", ["openai_chat", "anthropic"])
def test_half_a_request_is_refused_and_breaks_nothing(body: Json, wire: Wire) -> None:
    host = Host()
    assert host.ask(body, wire=wire).status in (400, 404)
    assert not host.failures


def test_a_refusal_can_be_found_again_at_the_host() -> None:
    assert "x-trace-id" in Host().ask(b"{").headers
    assert "request-id" in Host().ask(b"{", wire="anthropic").headers


def test_an_unknown_fault_is_refused_with_the_nearest() -> None:
    host = Host()
    for name, header in (("kimi-k2.5+markers-in-contents", ""), ("kimi-k2.5", "markers-in-contents")):
        assert (
            host.exchange.answer(
                ReceivedRequest("openai_chat", {HEADER: header}, json.dumps(HELLO | {"model": name}).encode())
            ).status
            == 400
        )
        assert "markers-in-content" in str(host.seen.problem)


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"behaviour": "mars"}, UnknownBehaviour),
        ({"faults": ("split-byte",)}, UnknownName),
        ({"models": {"mine": ModelRow(generation="k3", faults=("split-byte",))}}, UnknownName),
    ],
)
def test_a_mistake_of_the_settings_shows_before_anybody_asks(fields: Json, error: type[Exception]) -> None:
    with pytest.raises(error):
        Host(**fields)


class Broken:
    def reply(self, sim_request: SimRequest) -> IntendedResponse:
        raise ValueError("no idea")


def test_a_model_that_raises_fails_its_request_alone_and_says_so() -> None:
    host = Host(Broken())
    assert host.ask(HELLO, wire="openai_chat").status == 500
    assert "no idea" in str(host.seen.problem)
    assert [str(error) for error in host.failures] == ["no idea"]


# -- which faults are due ----------------------------------------------------------------------------------------


def test_faults_come_from_the_model_the_header_the_row_and_the_settings() -> None:
    host = Host(faults=("crlf",), models={"mine": ModelRow(generation="k2.5", faults=("no-done",))})
    body = json.dumps(HELLO | {"model": "mine+markers-in-content", "stream": True}).encode()
    host.exchange.answer(ReceivedRequest("openai_chat", {HEADER: "split-bytes"}, body))
    assert set(host.seen.faults) == {"markers-in-content", "split-bytes", "no-done", "crlf"}


def test_a_fault_can_be_meant_for_one_round() -> None:
    host = Host(faults=("markers-in-content@2",))
    host.ask(HELLO)
    assert not host.seen.faults
    calls = [{"id": "weather:0", "type": "function", "function": {"name": "weather", "arguments": "{}"}}]
    history = [
        *HELLO["messages"],
        {"role": "assistant", "content": "", "reasoning_content": "", "tool_calls": calls},
        {"role": "tool", "tool_call_id": "weather:0", "content": "rain"},
    ]
    host.ask(HELLO | {"messages": history})
    assert (host.seen.round, host.seen.faults) == (2, ("markers-in-content",))


def test_a_fault_can_be_meant_for_the_first_answers_only_of_each_model_that_asks_for_it() -> None:
    host = Host()
    asked = [HELLO | {"model": "kimi-k2.5+overloaded*2"}] * 3 + [HELLO | {"model": "kimi-k2.6+overloaded*2"}]
    assert [host.ask(body).status for body in asked] == [429, 429, 200, 429]


def test_a_fault_that_is_named_twice_is_counted_once() -> None:
    host = Host()
    asked = HELLO | {"model": "kimi-k2.5+overloaded*2+overloaded*2"}
    assert [host.ask(asked).status for _ in range(3)] == [429, 429, 200]


def test_what_is_counted_does_not_grow_with_the_names_of_models(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moonshim.simulator.http.exchange.COUNTED_AT_MOST", 3)
    host = Host()
    names = [f"kimi-k2-a{number}+overloaded*1" for number in range(5)]
    assert [host.ask(HELLO | {"model": name}).status for name in [*names, names[-1], names[0]]] == [429] * 5 + [
        200,
        429,
    ]


@pytest.mark.parametrize("name", ["+", "+split-bytes", "++five-rounds"])
def test_faults_alone_are_no_model(name: str) -> None:
    response = Host().ask(HELLO | {"model": name})
    assert response.status == 404
    assert body_of(response)["error"]["message"] == "Not found the model  or Permission denied"


@pytest.mark.parametrize(
    ("data", "what"), [(b"[]", "an array"), (b"1", "a number"), (b'"x"', "'x'"), (b"null", "null")]
)
def test_json_that_is_no_object_is_told_as_that(data: bytes, what: str) -> None:
    message = body_of(Host().ask(data))["error"]["message"]
    assert message == f"Invalid request: the body must be an object, not {what}"


def test_a_fault_of_the_settings_is_counted_over_all_models() -> None:
    host = Host(faults=("overloaded*1",))
    assert [host.ask(HELLO | {"model": name}).status for name in ("kimi-k2.5", "kimi-k3")] == [429, 200]


def test_a_fault_that_cannot_show_is_not_used_up_and_is_told_apart() -> None:
    host = Host()
    named = HELLO | {"model": "kimi-k2.5+markers-in-content*1"}
    host.ask({key: value for key, value in named.items() if key != "tools"})
    assert (host.seen.faults, host.seen.missed) == ((), ("markers-in-content",))
    host.ask(named)
    assert (host.seen.faults, host.seen.missed) == (("markers-in-content",), ())


def test_a_status_takes_the_place_of_the_answer_and_the_model_is_not_asked() -> None:
    host = Host(Broken())
    assert host.ask(HELLO | {"model": "kimi-k2.5+overloaded"}).status == 429
    assert (host.seen.intended, host.seen.problem, host.seen.faults) == (None, None, ("overloaded",))


def test_a_model_that_is_no_kimi_has_no_faults_of_kimi_and_ids_of_its_own() -> None:
    host = Host(faults=("markers-in-content",))
    message = body_of(host.ask(HELLO | {"model": "plain-1"}))["choices"][0]["message"]
    assert host.seen.faults == ()
    assert message["tool_calls"][0]["id"].startswith("call_")
    assert "reasoning_content" not in message
    asked = {"model": "plain-1", "max_tokens": 99, "messages": HELLO["messages"], "tools": MESSAGES_TOOLS}
    content = body_of(host.ask(asked, wire="anthropic"))["content"]
    assert [block["type"] for block in content] == ["text", "tool_use", "tool_use"]
    assert content[-1]["id"].startswith("toolu_")


def test_chaos_is_the_same_for_the_same_seed() -> None:
    def displayed(seed: int) -> list[tuple[str, ...]]:
        host = Host(chaos=0.5, seed=seed)
        for _ in range(40):
            host.ask(HELLO | {"stream": True})
        return [(*seen.faults, *seen.missed) for seen in host.exchange.requests]

    assert displayed(7) == displayed(7) != displayed(8)
    assert 5 < sum(bool(names) for names in displayed(7)) < 35


def test_old_models_stop_early_when_that_is_assumed() -> None:
    class Talker:
        def reply(self, sim_request: SimRequest) -> IntendedResponse:
            return IntendedResponse(text="word " * 3000)

    received = [
        body_of(Host(Talker(), assume=assume).ask(HELLO | {"model": "kimi-k2-0905-preview"}))
        for assume in ((), ("short-answers",))
    ]
    assert [one["choices"][0]["finish_reason"] for one in received] == ["stop", "length"]


# -- anything at all ---------------------------------------------------------------------------------------------

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats(allow_nan=False) | st.sampled_from(["", "user", "text"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                (
                    "role",
                    "content",
                    "type",
                    "text",
                    "tool_calls",
                    "function",
                    "name",
                    "id",
                    "tool_use_id",
                    "input",
                    "tools",
                )
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)
_FIELDS = ("messages", "tools", "tool_choice", "thinking", "stop", "max_tokens", "stream", "stream_options", "system")


@pytest.mark.parametrize("wire", ["openai_chat", "anthropic"])
@pytest.mark.parametrize("model", ["kimi-k2.5", "kimi-k3", "plain-1"])
@given(changes=st.dictionaries(st.sampled_from(_FIELDS), _JSON, min_size=1, max_size=3))
def test_anything_that_is_json_is_answered_or_refused(model: str, wire: Wire, changes: Json) -> None:
    host = Host(behaviour="selfhost")
    asked = {"model": model, "max_tokens": 99, "messages": HELLO["messages"]} | changes
    assert host.ask(asked, wire=wire).status in (200, 400)
    assert host.failures == []


class Silent:
    """Calls without a thought, as scenarios and models of users may."""

    def reply(self, sim_request: SimRequest) -> IntendedResponse:
        return IntendedResponse(calls=(IntendedCall("get_weather", "{}"),))


def test_a_model_that_thinks_never_calls_without_a_thought_so_that_its_answer_can_be_sent_back() -> None:
    host = Host(Silent())
    message = body_of(host.ask(HELLO))["choices"][0]["message"]
    assert message["reasoning_content"]
    result = {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "rain"}
    assert host.ask(HELLO | {"messages": [*HELLO["messages"], message, result]}).status == 200
    without = body_of(host.ask(HELLO | {"thinking": {"type": "disabled"}}))["choices"][0]["message"]
    assert not without.get("reasoning_content")
