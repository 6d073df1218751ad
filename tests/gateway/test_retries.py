"""Hosts that fail before they answer are asked again, or another is; what has been said is never said twice."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from moonshim.config import GatewayKey, Retries, TransformerUse
from moonshim.gateway.inbound.auth import new_key
from moonshim.gateway.outbound.attempts import AskAgainLimit
from tests.support.gateway.hosts import Host, HostRequest, Peer, Script, chunked_head, chunks, run, whole
from tests.support.gateway.leaks import PATIENT, Scene, scene
from tests.support.gateway.raw_client import (
    CLIENTS,
    Json,
    answer_of,
    body_of,
    content_of,
    error_of,
    read_stream,
    sending,
    short_stream,
    text_answer,
)
from tests.support.gateway.running import config_for

THRICE: Final = Retries(attempts=3, breaker_failures=1_000_000)


def told(kind: str, status: str, *headers: str, message: str = "no") -> bytes:
    return whole(json.dumps({"error": {"message": message, "type": kind}}).encode(), status=status, headers=headers)


FAILURES: Final = {
    "a connection that is closed": b"",
    "500": told("server_error", "500 No"),
    "502": whole(b"<html>bad gateway</html>", status="502 No", headers=("content-type: text/html",)),
    "503": told("server_error", "503 No", "retry-after: 0"),
    "429 with a short pause": told("rate_limit_reached_error", "429 No", "retry-after: 0.01"),
    "an engine that is overloaded": told("engine_overloaded_error", "429 No", "retry-after-ms: 10"),
    "a stream without an event": whole(b"", headers=("content-type: text/event-stream",)),
    "a stream that begins with an error": whole(
        b'data: {"error":{"message":"oops","code":500}}\n\n', headers=("content-type: text/event-stream",)
    ),
}
REFUSALS: Final = {
    "a quota": (told("exceeded_current_quota_error", "429 No"), 429),
    "429 with a long pause": (told("rate_limit_reached_error", "429 No", "retry-after: 3600"), 429),
    "400": (told("invalid_request_error", "400 No"), 400),
    "401": (told("invalid_authentication_error", "401 No"), 401),
    "403": (told("permission_denied_error", "403 No"), 403),
    "404": (told("resource_not_found_error", "404 No"), 404),
    "413": (told("request_too_large", "413 No"), 413),
    "a prompt that is too long": (
        told("invalid_request_error", "400 No", message="exceeded model token limit: 100 (requested: 200)"),
        400,
    ),
}


def failing(data: bytes, times: int, then: Script) -> Script:
    """So often this, and after that something else."""
    left = [times]

    async def script(peer: Peer, asked: HostRequest) -> None:
        left[0] -= 1
        if left[0] < 0:
            await then(peer, asked)
            return
        await peer.send(data)
        peer.writer.close()

    return script


@asynccontextmanager
async def without_pauses(script: Script, **given: Any) -> AsyncIterator[Scene]:
    async with scene(script, **{"retries": THRICE, **given}) as one:
        one.gateway.state.random = lambda: 0.0
        one.gateway.state.ask_again_limit = AskAgainLimit(least=1_000_000)
        yield one


class TestOneHost:
    def test_what_may_pass_is_tried_again_until_it_has(self) -> None:
        async def test() -> None:
            good = sending(answer_of("openai_chat"))
            async with without_pauses(good) as one:
                for name, data in FAILURES.items():
                    for client in CLIENTS:
                        for stream in (True, False):
                            one.host.requests.clear()
                            one.gateway.state.retry_budget._left = 10.0
                            one.play(failing(data, 2, good))
                            reply = await one.ask(client, body_of(client, stream=stream))
                            assert (reply.status, content_of(client, reply).text) == (200, "Hi."), (name, reply.body)
                            assert len(one.host.requests) == one.records[-1].attempts == 3, name
                            bodies = {asked.body for asked in one.host.requests}
                            assert len(bodies) == 1, "the same was asked"
                await one.settles()

        run(test())

    def test_after_all_tries_the_client_hears_what_the_host_said(self) -> None:
        async def test() -> None:
            async with without_pauses(failing(FAILURES["503"], 100, sending(answer_of("openai_chat")))) as one:
                for client in CLIENTS:
                    for stream in (True, False):
                        one.host.requests.clear()
                        one.gateway.state.retry_budget._left = 10.0
                        reply = await one.ask(client, body_of(client, stream=stream))
                        assert (reply.status, len(one.host.requests)) == (503, 3)
                        assert reply.headers["retry-after"] == "1"
                        assert "x-should-retry" not in reply.headers
                await one.settles()

        run(test())

    def test_what_is_about_the_request_or_the_account_is_asked_exactly_once(self) -> None:
        async def test() -> None:
            async with without_pauses(sending(answer_of("openai_chat"))) as one:
                for name, (data, status) in REFUSALS.items():
                    one.play(failing(data, 100, sending(answer_of("openai_chat"))))
                    for client in CLIENTS:
                        for stream in (True, False):
                            one.host.requests.clear()
                            reply = await one.ask(client, body_of(client, stream=stream))
                            assert (reply.status, len(one.host.requests)) == (status, 1), name
                            error_of(client, reply.json)
                            waits = name == "429 with a long pause"
                            assert ("retry-after" in reply.headers) == waits, name
                            assert reply.headers.get("x-should-retry") == (None if waits else "false"), name
                await one.works()

        run(test())

    def test_a_stream_that_had_spoken_is_never_asked_for_twice_and_a_whole_answer_is(self) -> None:
        stream = short_stream("openai_chat")
        spoken = chunked_head() + chunks(stream[: stream.index(b"0}")], end=False)

        async def test() -> None:
            good = sending(answer_of("openai_chat"))
            async with without_pauses(good, overrides={"streaming": "only"}) as one:
                for client in CLIENTS:
                    one.host.requests.clear()
                    one.play(failing(spoken, 1, good))
                    said = read_stream(client, (await one.ask(client, body_of(client))).body)
                    assert (len(one.host.requests), said.text, said.reason) == (1, "Hi.", None)
                    one.host.requests.clear()
                    one.play(failing(spoken, 1, good))
                    whole_ = content_of(client, await one.ask(client, body_of(client, stream=False)))
                    assert (len(one.host.requests), whole_.text, len(whole_.calls)) == (2, "Hi.", 2)
                await one.settles()

        run(test())

    def test_a_budget_bounds_the_retries_of_all_requests_together(self) -> None:
        async def test() -> None:
            async with without_pauses(failing(FAILURES["500"], 1000, sending(answer_of("openai_chat")))) as one:
                one.gateway.state.clock = lambda: 0.0  # type: ignore[method-assign]
                for _ in range(20):
                    assert (await one.ask("openai_chat", body_of("openai_chat"))).status == 500
                # Ten to begin with, and one for every five requests behind the first.
                assert len(one.host.requests) == 20 + 10 + 3
                await one.settles()

        run(test())

    def test_a_breaker_opens_lets_one_through_and_closes(self) -> None:
        retries = Retries(attempts=1, breaker_failures=3, breaker_seconds=30.0)

        async def test() -> None:
            good = sending(answer_of("openai_chat"))
            async with without_pauses(good, retries=retries) as one:
                state, now = one.gateway.state, [1000.0]
                state.clock = lambda: now[0]  # type: ignore[method-assign]

                async def asked(client: str = "openai_chat") -> tuple[int, int, int]:
                    before = len(one.host.requests)
                    reply = await one.ask(client, body_of(client))
                    gauge = b'moonshim_breaker_open{provider="host"} 1.0' in state.metrics.render()
                    return reply.status, len(one.host.requests) - before, int(gauge)

                one.play(failing(FAILURES["500"], 100, good))
                assert [await asked() for _ in range(3)] == [(500, 1, 0), (500, 1, 0), (500, 1, 1)]
                for client in CLIENTS:
                    reply = await one.ask(client, body_of(client))
                    assert (reply.status, reply.headers["retry-after"]) == (503, "30")
                    assert "host failed too often" in error_of(client, reply.json)["message"]
                now[0] += 31
                assert await asked() == (500, 1, 1), "one is let through, to see"
                assert await asked() == (503, 0, 1)
                now[0] += 31
                one.play(good)
                assert await asked() == (200, 1, 0)
                assert await asked() == (200, 1, 0)
                # A host that breaks off in the middle is ill, too.
                stream = short_stream("openai_chat")
                half = chunked_head() + chunks(stream[: stream.index(b"0}")], end=False)
                one.play(failing(half, 100, good))
                assert [await asked() for _ in range(4)] == [(200, 1, 0), (200, 1, 0), (200, 1, 1), (503, 0, 1)]
                await one.settles()

        run(test())

    def test_a_key_whose_requests_make_a_host_fail_stops_no_other_key(self) -> None:
        (bad, bad_digest), (good, good_digest), (other, other_digest) = new_key(), new_key(), new_key()
        digests = {"bad": bad_digest, "good": good_digest, "other": other_digest}
        keys = tuple(GatewayKey(name=name, digest=digest) for name, digest in digests.items())
        down = [False]

        async def script(peer: Peer, asked: HostRequest) -> None:
            if down[0] or b"poison" in asked.body:
                await peer.send(FAILURES["500"])
                peer.writer.close()
            else:
                await sending(answer_of("openai_chat"))(peer, asked)

        async def test() -> None:
            async with without_pauses(script, retries=Retries(breaker_failures=5), keys=keys) as one:

                async def status(key: str, text: str = "hi") -> int:
                    body = {**body_of("openai_chat", stream=False), "messages": [{"role": "user", "content": text}]}
                    return (await one.ask("openai_chat", body, headers=f"x-api-key: {key}\r\n")).status

                assert [await status(bad, "poison") for _ in range(3)] == [500, 500, 503]
                assert [await status(key) for key in (good, other) for _ in range(2)] == [200] * 4
                # When the host fails for several keys, nobody waits for it.
                down[0] = True
                assert await status(good) == 500
                asked = len(one.host.requests)
                assert [await status(key) for key in (bad, good, other)] == [503] * 3
                assert len(one.host.requests) == asked

        run(test())

    def test_a_plug_in_that_raises_fails_its_request_and_blames_no_host(self, tmp_path: Path) -> None:
        plugin = tmp_path / "plugin.py"
        plugin.write_text(
            "class Raises:\n"
            "    def prepare(self, request): return request\n"
            "    def stages(self, plan): return [Stage()]\n"
            "class Stage:\n"
            "    def feed(self, event):\n"
            "        if 'Hi' in getattr(event, 'text', ''): raise ValueError('secret words')\n"
            "        return [event]\n"
            "    def flush(self): return []\n"
        )
        uses = (TransformerUse("Kimi"), TransformerUse(f"{plugin}:Raises"))
        retries = Retries(attempts=3, breaker_failures=2)

        async def test() -> None:
            silent = sending(answer_of("openai_chat", thought=""))
            async with without_pauses(silent, transformers=uses, retries=retries) as one:
                for client in CLIENTS:
                    for stream in (True, False, True):
                        one.host.requests.clear()
                        reply = await one.ask(client, body_of(client, stream=stream))
                        said = content_of(client, reply)
                        assert said.error is not None
                        assert "secret words" not in said.error["message"]
                        assert reply.status in ((200, 500) if stream else (500,))
                        assert len(one.host.requests) == 1
                        await one.settles()
                assert one.gateway.state.breakers.allows("host", "local", 0.0)

        run(test())


# --- another host -------------------------------------------------------------------------------------------------


def conversation(client: str, *, stream: bool) -> Json:
    """The second turn of a conversation: the model thought, called a tool, and got its result."""
    body = body_of(client, stream=stream, model="any-kimi")
    match client:
        case "openai_chat":
            call = {"id": "call_9", "type": "function", "function": {"name": "ls", "arguments": '{"n":1}'}}
            said = {"role": "assistant", "content": None, "reasoning_content": "I look.", "tool_calls": [call]}
            body["messages"] += [said, {"role": "tool", "tool_call_id": "call_9", "content": "a.txt"}]
        case "anthropic":
            use = {"type": "tool_use", "id": "toolu_9", "name": "ls", "input": {"n": 1}}
            said = {
                "role": "assistant",
                "content": [{"type": "thinking", "thinking": "I look.", "signature": "x"}, use],
            }
            result = {"type": "tool_result", "tool_use_id": "toolu_9", "content": "a.txt"}
            body["messages"] += [said, {"role": "user", "content": [result]}]
        case _:
            text = [{"type": "reasoning_text", "text": "I look."}]
            thought = {"type": "reasoning", "id": "rs_1", "summary": [], "content": text}
            call = {"type": "function_call", "call_id": "call_9", "name": "ls", "arguments": '{"n":1}'}
            result = {"type": "function_call_output", "call_id": "call_9", "output": "a.txt"}
            body["input"] = [{"role": "user", "content": "hi"}, thought, call, result]
    return body


def chat_history(body: Json) -> tuple[str, str, str]:
    """What was thought, in the field that this host uses, or vLLM reads, and the identifiers of call and result."""
    said, result = body["messages"][-2:]
    return said.get("reasoning_content", said.get("reasoning")), said["tool_calls"][0]["id"], result["tool_call_id"]


def messages_history(body: Json) -> tuple[str, str, str]:
    said, result = body["messages"][-2:]
    blocks = {block["type"]: block for block in said["content"]}
    results = [block for block in result["content"] if block["type"] == "tool_result"]
    return blocks["thinking"]["thinking"], blocks["tool_use"]["id"], results[0]["tool_use_id"]


HISTORIES: Final = {"openai_chat": chat_history, "anthropic": messages_history}


@asynccontextmanager
async def two_hosts(first: Script, second: Script, **given: Any) -> AsyncIterator[tuple[Scene, Host]]:
    """A name that means a Chat host, and behind it a Messages host; `given` may turn them round."""
    dialects = given.pop("dialects", ("openai_chat", "anthropic"))
    async with Host(second) as other:
        more = config_for(other.url, dialect=dialects[1], name="second", timeouts=PATIENT).providers
        aliases = {"any-kimi": ("host/kimi-k2.5", "second/kimi-k2.5")}
        async with without_pauses(first, dialect=dialects[0], providers=more, aliases=aliases, **given) as one:
            yield one, other


class TestAnotherHost:
    @pytest.mark.parametrize("dialects", [("openai_chat", "anthropic"), ("anthropic", "openai_chat")], ids="-".join)
    def test_it_is_asked_with_the_history_as_it_wants_it(self, dialects: tuple[str, str]) -> None:
        async def test() -> None:
            bad = failing(FAILURES["500"], 100, sending(answer_of("openai_chat")))
            good = sending(answer_of(dialects[1]))
            async with two_hosts(bad, good, dialects=dialects) as (one, other):
                for client in CLIENTS:
                    for stream in (True, False):
                        one.host.requests.clear()
                        other.requests.clear()
                        one.gateway.state.retry_budget._left = 10.0
                        reply = await one.ask(client, conversation(client, stream=stream))
                        assert content_of(client, reply).text == "Hi."
                        assert (len(one.host.requests), len(other.requests)) == (3, 1)
                        assert one.records[-1].provider == "second"
                        for host, dialect in ((one.host, dialects[0]), (other, dialects[1])):
                            thought, called, answered = HISTORIES[dialect](json.loads(host.requests[-1].body))
                            assert thought == "I look."
                            assert called == answered
                            assert dialect != "openai_chat" or called == "functions.ls:0"
                        named = {
                            json.loads(other.requests[-1].body)["model"],
                            json.loads(one.host.requests[-1].body)["model"],
                        }
                        assert named == {"kimi-k2.5"}
                        if not stream:
                            assert reply.json["model"] == "any-kimi"
                await one.until(lambda: other.open == 0, "a connection is left")
                await one.settles()

        run(test())

    def test_it_is_asked_where_the_first_refuses_for_reasons_of_its_own_and_not_where_the_request_is_wrong(
        self,
    ) -> None:
        async def test() -> None:
            async with two_hosts(sending(answer_of("openai_chat")), sending(answer_of("anthropic"))) as (one, other):
                for name, (data, status) in REFUSALS.items():
                    one.play(failing(data, 100, sending(answer_of("openai_chat"))))
                    one.host.requests.clear()
                    other.requests.clear()
                    reply = await one.ask("openai_chat", conversation("openai_chat", stream=True))
                    moves = name != "400"
                    assert (len(one.host.requests), len(other.requests)) == (1, int(moves)), name
                    assert reply.status == (200 if moves else status)

        run(test())

    def test_it_is_never_asked_once_the_first_has_spoken(self) -> None:
        stream = short_stream("openai_chat")
        spoken = chunked_head() + chunks(stream[: stream.index(b"0}")], end=False)

        async def test() -> None:
            good = sending(answer_of("anthropic"))
            async with two_hosts(failing(spoken, 100, good), good) as (one, other):
                for client in CLIENTS:
                    reply = await one.ask(client, conversation(client, stream=True))
                    assert read_stream(client, reply.body).error is not None
                assert (len(one.host.requests), len(other.requests)) == (3, 0)

        run(test())

    def test_it_is_asked_at_once_while_the_first_is_left_alone(self) -> None:
        async def test() -> None:
            bad = failing(FAILURES["500"], 100, sending(answer_of("openai_chat")))
            retries = Retries(attempts=1, breaker_failures=1)
            async with two_hosts(bad, sending(answer_of("anthropic")), retries=retries) as (one, other):
                for _ in range(3):
                    reply = await one.ask("anthropic", conversation("anthropic", stream=True))
                    assert reply.status == 200
                assert (len(one.host.requests), len(other.requests)) == (1, 3)

        run(test())

    def test_the_error_of_the_first_is_told_when_the_second_only_lacks_a_key(self) -> None:
        async def test() -> None:
            bad = failing(FAILURES["503"], 100, sending(answer_of("openai_chat")))
            keyless = failing(REFUSALS["401"][0], 100, sending(answer_of("anthropic")))
            async with two_hosts(bad, keyless) as (one, other):
                reply = await one.ask("anthropic", conversation("anthropic", stream=True))
                assert (reply.status, len(other.requests)) == (503, 1)

        run(test())


# --- answers of nothing but reasoning -----------------------------------------------------------------------------

EMPTY: Final = answer_of("openai_chat", "", calls=0, thought="Q")


class TestEmptyAnswers:
    def test_the_second_answer_follows_in_the_same_stream(self) -> None:
        async def test() -> None:
            good = sending(text_answer("openai_chat", "Hi."))

            async def second_time(peer: Peer, asked: HostRequest) -> None:
                await (good if len(peer.host.requests) > 1 else sending(EMPTY))(peer, asked)

            async with without_pauses(second_time) as one:
                for client in CLIENTS:
                    for stream in (True, False):
                        one.host.requests.clear()
                        reply = await one.ask(client, body_of(client, stream=stream))
                        said = content_of(client, reply)
                        assert (said.text, said.error, len(one.host.requests)) == ("Hi.", None, 2)
                        assert b'"Q"' in reply.body
                        assert one.records[-1].attempts == 2
                await one.settles()

        run(test())

    def test_what_was_thought_in_the_second_answer_comes_back_to_the_host(self) -> None:
        async def test() -> None:
            good = sending(answer_of("openai_chat", "Hi.", calls=0, thought="R"))

            async def second_time(peer: Peer, asked: HostRequest) -> None:
                await (sending(EMPTY) if len(peer.host.requests) == 1 else good)(peer, asked)

            async with without_pauses(second_time, models=("kimi-k2.6",)) as one:
                for stream in (True, False):
                    one.host.requests.clear()
                    body = body_of("openai_chat", f"hi {stream}", stream=stream, model="kimi-k2.6")
                    assert content_of("openai_chat", await one.ask("openai_chat", body)).text == "Hi."
                    dropped = [{"role": "assistant", "content": "Hi."}, {"role": "user", "content": "And?"}]
                    body["messages"] += dropped
                    await one.ask("openai_chat", body)
                    sent = json.loads(one.host.requests[-1].body)["messages"][1]
                    assert "Q\nR" in sent.values(), stream

        run(test())

    def test_it_is_asked_for_once_only(self) -> None:
        async def test() -> None:
            async with without_pauses(sending(EMPTY)) as one:
                for client in CLIENTS:
                    for stream in (True, False):
                        one.host.requests.clear()
                        said = content_of(client, await one.ask(client, body_of(client, stream=stream)))
                        assert (said.text, said.error is not None, len(one.host.requests)) == ("", True, 2)
                await one.settles()

        run(test())

    def test_without_the_option_nobody_is_asked_again_and_it_ends_as_the_host_ended_it(self) -> None:
        async def test() -> None:
            async with without_pauses(sending(EMPTY), retry_empty_answer=False) as one:
                for client in CLIENTS:
                    said = content_of(client, await one.ask(client, body_of(client)))
                    assert (said.text, said.error) == ("", None)
                assert len(one.host.requests) == 3

        run(test())

    @pytest.mark.parametrize("data", [FAILURES["500"], b""], ids=["500", "close"])
    def test_when_the_second_call_fails_the_first_answer_is_an_error_that_clients_retry(self, data: bytes) -> None:
        async def test() -> None:
            async def once(peer: Peer, asked: HostRequest) -> None:
                if len(peer.host.requests) == 1:
                    await sending(EMPTY)(peer, asked)
                else:
                    await peer.send(data)
                    peer.writer.close()

            async with without_pauses(once) as one:
                for client in CLIENTS:
                    for stream in (True, False):
                        one.host.requests.clear()
                        reply = await one.ask(client, body_of(client, stream=stream))
                        said = content_of(client, reply)
                        assert (said.text, said.error is not None, len(one.host.requests)) == ("", True, 2)
                        assert "x-should-retry" not in reply.headers
                        await one.settles()
                        record = one.records[-1]
                        assert (record.blame, record.asked_again) == ("answer", "empty_answer")
                        assert record.error is not None
                        assert record.error.startswith("empty_answer")
                await one.settles()

        run(test())

    def test_a_host_that_breaks_its_connection_behind_an_empty_answer_is_asked_again_too(self) -> None:
        """All of its answer came."""

        async def cut(peer: Peer, asked: HostRequest) -> None:
            if len(peer.host.requests) > 1:
                await sending(text_answer("openai_chat", "Hi."))(peer, asked)
                return
            await peer.send(chunked_head() + chunks(EMPTY.stream.removesuffix(b"data: [DONE]\n\n"), end=False))
            peer.writer.close()

        async def test() -> None:
            async with without_pauses(cut) as one:
                for client in CLIENTS:
                    one.host.requests.clear()
                    said = content_of(client, await one.ask(client, body_of(client)))
                    assert (said.text, said.error, len(one.host.requests)) == ("Hi.", None, 2)
                await one.settles()

        run(test())

    def test_a_client_may_vanish_while_the_second_answer_is_waited_for(self) -> None:
        async def test() -> None:
            gone = asyncio.Event()

            async def waiting(peer: Peer, asked: HostRequest) -> None:
                if len(peer.host.requests) == 1:
                    await sending(EMPTY)(peer, asked)
                    return
                await peer.gone()
                gone.set()

            async with without_pauses(waiting) as one:
                async with one.connected() as connection:
                    connection.send("anthropic", body_of("anthropic"))
                    await connection.head()
                    await one.until(lambda: len(one.host.requests) == 2, "it is not asked again")
                    connection.hang_up()
                    await gone.wait()
                await one.settles()
                assert one.records[-1].outcome == "client_gone"

        run(test())
