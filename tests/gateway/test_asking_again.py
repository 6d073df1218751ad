"""An answer that failed because of what the model wrote is asked for once more: the client sees one right response."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest

from moonshim.config import GatewayKey, Retries
from moonshim.gateway.inbound.auth import new_key
from moonshim.gateway.outbound.attempts import AskAgainLimit
from tests.support.gateway.hosts import HostRequest, Peer, Script, chunked_head, chunks, run, whole
from tests.support.gateway.leaks import Scene, scene
from tests.support.gateway.official_clients import WAYS, Packages
from tests.support.gateway.raw_client import CLIENTS, Json, body_of, content_of, error_of
from tests.support.playing import Answer, Call, Thought, chat_answer
from tests.support.streams import chunk, parse_payloads, read_chunks, read_sse, sse

TOOL: Final[Json] = {"type": "object", "properties": {"n": {"type": "integer"}}}
FORMS: Final = ("json", "events", "events as text")
CLOSES: Final = "connection: close"


def answer(text: str, *arguments: str, thought: str = "Hm.", tokens: int = 10, reason: str | None = None) -> Answer:
    """Reasoning, text and a call for each of these arguments, and the usage: 100 tokens in, and so many out."""
    calls = [Call(f"functions.ls:{n}", "ls", given) for n, given in enumerate(arguments)]
    plain = chat_answer(Thought(fields={"reasoning_content": thought} if thought else {}), text, calls, reason=reason)
    usage = {"prompt_tokens": 100, "completion_tokens": tokens, "total_tokens": 100 + tokens}
    last = sse([{"id": "chatcmpl-7", "object": "chat.completion.chunk", "model": "m", "choices": [], "usage": usage}])
    return Answer(plain.whole | {"usage": usage}, plain.stream.replace(b"data: [DONE]\n\n", last))


UNFINISHED_HEADER: Final = "<|tool_calls_section_begin|><|tool_call_begin|>functions.ls:0"
RIGHT: Final = answer("Hi.", '{"n":1}', tokens=20)
FAILING: Final = {
    "empty_answer": answer(""),
    "arguments_invalid": answer("I look.", '{"n": @@}'),
    "arguments_cut_off": answer("I look.", '{"n": "abc'),
    "call_unreadable": answer(UNFINISHED_HEADER),
    "call_missing": answer("", reason="tool_calls"),
    "call_lost": answer("I look.", tokens=90),
}
"""Answers by the code of their failure."""
AFTER_TEXT: Final = {
    "call_unreadable": answer(f"I look.{UNFINISHED_HEADER}"),
    "call_missing": answer("I look.", reason="tool_calls"),
    **{code: FAILING[code] for code in ("arguments_invalid", "arguments_cut_off", "call_lost")},
}
"""The same with text before the failure."""
ONLY_REASONING: Final = frozenset({"empty_answer", "call_unreadable", "call_missing"})
"""Failures of answers of which nothing but reasoning leaves before they show."""


def in_form(sent: Answer, form: str) -> bytes:
    if form == "json":
        return whole(json.dumps(sent.whole).encode(), headers=("content-type: application/json", CLOSES))
    content_type = "text/event-stream" if form == "events" else "text/plain; charset=utf-8"
    return chunked_head(headers=(f"content-type: {content_type}", CLOSES)) + chunks(sent.stream)


def one_after_the_other(answers: Iterable[bytes]) -> Script:
    """The last one goes on for ever."""
    left = list(answers)

    async def script(peer: Peer, asked: HostRequest) -> None:
        await peer.send(left.pop(0) if len(left) > 1 else left[0])
        peer.writer.close()

    return script


@asynccontextmanager
async def asking(*answers: bytes, **given: Any) -> AsyncIterator[Scene]:
    """A gateway in front of a host that sends these answers. Its limit is out of the way."""
    async with scene(one_after_the_other(answers), **given) as one:
        one.gateway.state.ask_again_limit = AskAgainLimit(least=1_000_000)
        yield one


def metric(one: Scene, name: str) -> dict[str, float]:
    """The values of a metric, by its labels as they are written."""
    lines = one.gateway.state.metrics.render().decode().splitlines()
    found = (line.removeprefix(name).rpartition(" ") for line in lines if line.startswith(f"{name}{{"))
    return {labels: float(value) for labels, _, value in found}


def played(reason: str, form: str, stream: bool) -> bool:
    """Of text and of a call that streams, something has left for the client when the answer turns out to be wrong."""
    return not stream or form == "json" or reason in ONLY_REASONING


@pytest.mark.parametrize("reason", FAILING)
@pytest.mark.parametrize("form", FORMS)
class TestTheSecondAnswer:
    def test_is_all_that_the_client_sees(self, form: str, reason: str) -> None:
        first, second = in_form(FAILING[reason], form), in_form(RIGHT, form)

        async def test() -> None:
            async with asking(first) as one:
                for client in CLIENTS:
                    for stream in (True, False):
                        if not played(reason, form, stream):
                            continue
                        one.play(one_after_the_other([first, second]))
                        one.host.requests.clear()
                        reply = await one.ask(client, body_of(client, stream=stream))
                        said = content_of(client, reply)
                        calls = [(name, json.loads(arguments)) for name, arguments in said.calls]
                        assert (reply.status, said.text, said.error) == (200, "Hi.", None), (client, stream)
                        assert calls == [("ls", {"n": 1})], (client, stream)
                        assert b"I look" not in reply.body
                        assert len({asked.body for asked in one.host.requests}) == 1, "the same was asked"
                        assert len(one.host.requests) == 2
                await one.settles()

        run(test())

    def test_is_counted_with_the_first(self, form: str, reason: str) -> None:
        first, second = in_form(FAILING[reason], form), in_form(RIGHT, form)
        cost = FAILING[reason].whole["usage"]["completion_tokens"]

        async def test() -> None:
            async with asking(first, second) as one:
                reply = await one.ask("openai_chat", body_of("openai_chat", stream=False))
                assert reply.json["usage"]["completion_tokens"] == cost + 20
                await one.settles()
                record = one.records[-1]
                assert (record.outcome, record.blame, record.attempts) == ("ok", None, 2)
                assert (record.asked_again, record.is_ask_again_limited) == (reason, False)
                assert (record.asked_again_tokens.input_tokens, record.asked_again_tokens.output_tokens) == (100, cost)
                assert (record.total.input_tokens, record.total.output_tokens) == (200, cost + 20)
                labels = f'{{outcome="answered",provider="host",reason="{reason}"}}'
                assert metric(one, "moonshim_asked_again_total") == {labels: 1.0}
                assert metric(one, "moonshim_asked_again_tokens_total") == {
                    '{direction="input",provider="host"}': 100.0,
                    '{direction="output",provider="host"}': float(cost),
                }
                assert record.booked is not None
                assert (record.booked.input_tokens, record.booked.output_tokens) == (200, cost + 20)

        run(test())

    def test_is_not_asked_for_where_the_option_is_off(self, form: str, reason: str) -> None:
        data = in_form(FAILING[reason], form)

        async def test() -> None:
            async with asking(data, retry_empty_answer=False) as one:
                for client in CLIENTS:
                    for stream in (True, False):
                        one.host.requests.clear()
                        said = content_of(client, await one.ask(client, body_of(client, stream=stream)))
                        assert len(one.host.requests) == 1
                        assert (said.error is None) == (reason == "empty_answer"), (client, stream)
                        assert one.records[-1].asked_again is None

        run(test())


@pytest.mark.parametrize("reason", FAILING)
@pytest.mark.parametrize("form", FORMS)
def test_a_second_failure_ends_in_an_error_that_clients_retry(form: str, reason: str) -> None:
    data = in_form(FAILING[reason], form)

    async def test() -> None:
        async with asking(data, retries=Retries(attempts=3)) as one:
            for client in CLIENTS:
                one.host.requests.clear()
                reply = await one.ask(client, body_of(client, stream=False))
                assert (reply.status, len(one.host.requests)) == (502, 2)
                assert "x-should-retry" not in reply.headers
                error_of(client, reply.json)
                await one.settles()
                record = one.records[-1]
                assert (record.outcome, record.blame, record.asked_again) == ("upstream_error", "answer", reason)
                assert record.error is not None
                assert record.error.startswith(reason)

    run(test())


@pytest.mark.parametrize("reason", AFTER_TEXT)
def test_an_answer_of_which_text_has_left_ends_in_an_error(reason: str) -> None:
    stream = AFTER_TEXT[reason].stream
    middle = stream.index(b"\n\n", stream.index(b'"content": "I l')) + 2

    async def script(peer: Peer, asked: HostRequest) -> None:
        await peer.send(chunked_head() + chunks(stream[:middle], end=False))
        await peer.host.resumed.wait()
        await peer.send(chunks(stream[middle:]))
        peer.writer.close()

    async def test() -> None:
        async with scene(script, retries=Retries(attempts=3)) as one:
            for client in CLIENTS:
                one.host.requests.clear()
                one.host.resumed.clear()
                async with one.connected() as connection:
                    connection.send(client, body_of(client))
                    await connection.head()
                    await connection.until(lambda data: b"I l" in data)
                    one.host.resumed.set()
                    reply = await connection.rest()
                if client == "openai_chat":  # the usage, and [DONE], may follow the error
                    said = read_chunks(parse_payloads(read_sse(reply.body)))[0]
                    text, error = said.content, said.error
                else:
                    ended = content_of(client, reply)
                    text, error = ended.text, ended.error
                assert (text, error is not None, len(one.host.requests)) == ("I look.", True, 1), client
                await one.settles()
                record = one.records[-1]
                assert (record.outcome, record.blame, record.asked_again) == ("broken", "answer", None)
                assert record.error is not None
                assert record.error.startswith(reason)

    run(test())


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("form", FORMS)
def test_the_official_packages_see_one_right_response(form: str, way: str) -> None:
    async def test() -> None:
        async with asking(in_form(RIGHT, form)) as one:
            packages = Packages(one.gateway.url)
            for reason, failing in FAILING.items():
                if not played(reason, form, way != "whole"):
                    continue
                for client in CLIENTS:
                    one.play(one_after_the_other([in_form(failing, form), in_form(RIGHT, form)]))
                    conversation = packages.conversation(client, "kimi-k2.5", way=way, tools={"ls": TOOL})
                    conversation.ask("hi")
                    answered = await conversation.turn()
                    calls = [(call.name, json.loads(call.arguments)) for call in answered.calls]
                    assert (answered.text, calls) == ("Hi.", [("ls", {"n": 1})]), (reason, client)
                    cost = failing.whole["usage"]["completion_tokens"]
                    assert answered.usage == (100, cost + 20), (reason, client)
            await packages.close()
            await one.settles()

    run(test())


class TestTheLimit:
    def test_over_it_the_first_failure_is_the_clients(self) -> None:
        (key, digest), (other, other_digest) = new_key(), new_key()
        keys = (GatewayKey(name="one", digest=digest), GatewayKey(name="other", digest=other_digest))
        bad, good = in_form(FAILING["arguments_invalid"], "json"), in_form(RIGHT, "json")

        async def test() -> None:
            async with scene(one_after_the_other([bad, good]), keys=keys) as one:

                async def requests(client: str, key: str) -> tuple[int, int]:
                    one.play(one_after_the_other([bad, good]))
                    one.host.requests.clear()
                    body = body_of(client, stream=False)
                    reply = await one.ask(client, body, headers=f"x-api-key: {key}\r\n")
                    if reply.status != 200:
                        error_of(client, reply.json)
                        assert "x-should-retry" not in reply.headers
                    return reply.status, len(one.host.requests)

                assert [await requests("openai_chat", key) for _ in range(3)] == [(200, 2)] * 3
                assert [await requests(client, key) for client in CLIENTS] == [(502, 1)] * 3
                assert one.records[-1].is_ask_again_limited
                assert await requests("openai_chat", other) == (200, 2)
                labels = '{outcome="limited",provider="host",reason="arguments_invalid"}'
                assert metric(one, "moonshim_asked_again_total")[labels] == 3.0
                # One in fifty of many requests.
                state = one.gateway.state
                for _ in range(144):
                    state.ask_again_limit.count_request("key:one", state.clock())
                assert await requests("openai_chat", key) == (502, 1)
                for _ in range(49):
                    state.ask_again_limit.count_request("key:one", state.clock())
                assert await requests("openai_chat", key) == (200, 2)
                assert await requests("openai_chat", key) == (502, 1)

        run(test())

    def test_it_forgets_what_was_an_hour_ago(self) -> None:
        limit = AskAgainLimit()
        assert [limit.take("t", now) for now in (0.0, 1800.0, 3000.0, 3500.0)] == [True, True, True, False]
        assert [limit.take("t", now) for now in (3599.0, 3660.0, 3661.0)] == [False, True, False]

    def test_it_counts_requests_of_the_last_hour_only(self) -> None:
        limit = AskAgainLimit()
        for second in range(500):
            limit.count_request("t", float(second))
        assert [limit.take("t", 600.0) for _ in range(11)] == [True] * 10 + [False]
        assert [limit.take("t", 600.0 + 3600.0) for _ in range(4)] == [True] * 3 + [False]


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    "failing",
    [
        FAILING["arguments_invalid"],
        FAILING["arguments_cut_off"],
        AFTER_TEXT["call_unreadable"],
        FAILING["empty_answer"],
    ],
    ids=["invalid arguments", "an unfinished call", "an unfinished marker", "nothing but reasoning"],
)
def test_answers_that_cannot_be_read_never_open_a_breaker(stream: bool, failing: Answer) -> None:
    """Otherwise the prompts of one key could stop a host for all others."""
    (bad, bad_digest), (good, good_digest) = new_key(), new_key()
    keys = (GatewayKey(name="bad", digest=bad_digest), GatewayKey(name="good", digest=good_digest))

    async def script(peer: Peer, asked: HostRequest) -> None:
        sent, form = (
            failing if b"poison" in asked.body else RIGHT,
            "events" if b'"stream":true' in asked.body else "json",
        )
        await peer.send(in_form(sent, form))
        peer.writer.close()

    async def test() -> None:
        async with scene(script, retries=Retries(attempts=3, breaker_failures=2), keys=keys) as one:

            async def error(key: str, client: str, text: str) -> Any:
                body = body_of(client, text, stream=stream)
                return content_of(client, await one.ask(client, body, headers=f"x-api-key: {key}\r\n")).error

            for client in CLIENTS:
                for _ in range(2):
                    assert await error(bad, client, "poison") is not None
                    assert await error(good, client, "hi") is None
                    assert await error(bad, client, "hi") is None
            assert not any(metric(one, "moonshim_breaker_open").values())
            assert metric(one, "moonshim_errors_total") == {'{blame="answer",provider="host"}': 6.0}

    run(test())


def test_a_model_whose_host_fails_stops_no_other_model_of_the_same_key() -> None:
    async def script(peer: Peer, asked: HostRequest) -> None:
        if json.loads(asked.body)["model"] == "kimi-k3":
            await peer.send(whole(b'{"error":{"message":"down","type":"server_error"}}', status="500 No"))
        else:
            await peer.send(in_form(RIGHT, "json"))
        peer.writer.close()

    async def test() -> None:
        retries = Retries(attempts=1, breaker_failures=2)
        async with scene(script, retries=retries, models=("kimi-k2.5", "kimi-k3")) as one:

            async def status(model: str) -> int:
                return (await one.ask("openai_chat", body_of("openai_chat", stream=False) | {"model": model})).status

            assert [await status("kimi-k3") for _ in range(3)] == [500, 500, 503]
            assert [await status("kimi-k2.5") for _ in range(2)] == [200, 200]
            assert [await status("kimi-k3") for _ in range(2)] == [503, 503]

    run(test())


# --- usage that comes late, or never ------------------------------------------------------------------------------

FINISH: Final = sse([chunk({"content": "Hi."}), chunk({}, "stop")]).replace(b"data: [DONE]\n\n", b"")
USAGE: Final = RIGHT.stream[
    RIGHT.stream.index(b'data: {"id": "chatcmpl-7", "object": "chat.completion.chunk", "model"') :
]


@pytest.mark.parametrize("ending", ["never", "late", "at once", "closes"])
def test_the_ending_of_a_stream_waits_for_its_usage_and_not_for_long(ending: str) -> None:
    """The client has its ending before a host that says nothing more lets go of the connection."""

    async def script(peer: Peer, asked: HostRequest) -> None:
        match ending:
            case "at once":
                await peer.send(chunked_head() + chunks(FINISH, USAGE))
                peer.writer.close()
            case "closes":
                await peer.send(chunked_head() + chunks(FINISH))
                peer.writer.close()
            case _:
                await peer.send(chunked_head() + chunks(FINISH, b": waiting\n\n", end=False))
                await peer.host.resumed.wait()
                if ending == "late":
                    await peer.send(chunks(USAGE))
                peer.writer.close()

    async def test() -> None:
        async with scene(script) as one:
            async with one.connected() as connection:
                connection.send("openai_chat", body_of("openai_chat", stream_options={"include_usage": True}))
                await connection.head()
                await connection.until(lambda data: b'"finish_reason":"stop"' in data.replace(b": ", b":"))
                one.host.resumed.set()
                reply = await connection.rest()
            said = content_of("openai_chat", reply)
            assert (said.text, said.reason, said.error) == ("Hi.", "stop", None)
            assert (b'"completion_tokens"' in reply.body) == (ending in ("late", "at once"))
            await one.settles()

    run(test())
