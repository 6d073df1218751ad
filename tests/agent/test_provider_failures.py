"""What becomes of a question when its host fails: asked again before anything was said, told as it is afterwards."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from moonshim.agent import Provider
from moonshim.config import Timeouts
from moonshim.engine.values.events import BlockClosed, BlockDelta, BlockOpened, Event, Failed, Finished
from moonshim.simulator import FAULTS, Simulator
from moonshim.simulator.fault import Fault
from tests.agent.asking import LIST, Boxes, boxes_for, collected, human, run
from tests.support.gateway.hosts import Host, HostRequest, Peer, chunked_head, chunks, whole

KEY: Final = "sk-the-secret-of-the-test"
waited: list[float] = []
HASTY: Final = Timeouts(connect=5, first_byte=0.3, between_bytes=0.3)
PATHS: Final = {"openai_chat": "/v1", "anthropic": "/anthropic"}
MODELS: Final = {"openai_chat": "kimi-k2.5", "anthropic": "kimi-k2.6"}
"""What comes once comes once for each name of a model."""


async def at_once(seconds: float) -> None:
    """Nobody waits in a test; how long it would have been is noted."""
    waited.append(seconds)


BOXES: Final[list[Boxes]] = []


@pytest.fixture(scope="module", autouse=True)
def _standing() -> Iterator[None]:
    with boxes_for() as boxes:
        BOXES[:] = [boxes]
        yield


async def answer_to(fault: str, wire: str = "openai_chat", **arguments: Any) -> tuple[list[Event], Provider]:
    """What a provider tells when this fault is in its host's way."""
    server = BOXES[0].of("moonshot")
    host = "moonshot" if wire == "openai_chat" else "moonshot-anthropic"
    given: dict[str, Any] = {"random": lambda: 0.0, "sleep": at_once}
    if fault.startswith("stall"):
        given["timeouts"] = HASTY
    given |= arguments
    async with Provider(f"{server.url}{PATHS[wire]}", host=host, model=f"{MODELS[wire]}+{fault}", **given) as provider:
        return await collected(provider.stream_chat_with_tools(human(), [LIST])), provider


def endings(events: list[Event]) -> list[Finished | Failed]:
    return [event for event in events if isinstance(event, (Finished, Failed))]


def _fatal(name: str, fault: Fault, wire: str) -> bool:
    applies = fault.applies(wire=wire, family="k2", stream=True)  # type: ignore[arg-type]
    return (
        applies and (fault.group == "errors" or fault.fatal) and name not in ("pause", "merged-calls")
    )  # the second needs two calls


FATAL: Final = [(name, wire) for name, fault in FAULTS.items() for wire in PATHS if _fatal(name, fault, wire)]


@pytest.mark.parametrize(("fault", "wire"), FATAL)
def test_a_failure_is_told_once_and_nothing_is_raised(fault: str, wire: str) -> None:
    async def test() -> None:
        events, provider = await answer_to(fault, wire, attempts=1)
        (ending,) = endings(events)
        assert events[-1] is ending
        opened = [event.index for event in events if isinstance(event, BlockOpened)]
        closed = [event.index for event in events if isinstance(event, BlockClosed)]
        assert sorted(opened) == sorted(closed)
        if isinstance(ending, Failed):
            assert ending.message
            assert provider.problem is not None
            assert provider.problem.message == ending.message
        else:
            assert ending.reason == "length"

    run(test())


class TestAskedAgain:
    @pytest.mark.parametrize(
        "fault",
        [
            "overloaded-retry-after",
            "rate-limited-retry-after",
            "status-500",
            "status-502",
            "status-503",
            "status-529",
            "html-502",
            "no-headers",
            "error-first",
            "error-in-200",
            "empty-body",
            "no-body",
        ],
    )
    @pytest.mark.parametrize("wire", PATHS)
    def test_one_failure_before_the_first_event_goes_unnoticed(self, fault: str, wire: str) -> None:
        async def test() -> None:
            events, provider = await answer_to(f"{fault}*1", wire)
            assert isinstance(events[-1], Finished)
            assert provider.last.attempts == 2
            assert provider.problem is None

        if FAULTS[fault].applies(wire=wire, family="k2", stream=True):  # type: ignore[arg-type]
            run(test())

    @pytest.mark.parametrize("attempts", [1, 2, 4])
    def test_no_more_often_than_was_said(self, attempts: int) -> None:
        async def test() -> None:
            async with (
                Simulator(behaviour="moonshot", faults=("status-500",), log=lambda seen: None) as server,
                Provider(
                    f"{server.url}/v1", host="moonshot", model="kimi-k2.5", attempts=attempts, sleep=at_once
                ) as provider,
            ):
                events = await collected(provider.stream_chat_with_tools(human()))
                assert isinstance(events[-1], Failed)
                assert len(server.requests) == attempts == provider.last.attempts

        run(test())

    @pytest.mark.parametrize(
        "fault", ["unauthorized", "quota", "context-overflow", "too-large", "coding-gate", "cut-off", "error-in-stream"]
    )
    def test_not_where_that_would_be_of_no_use(self, fault: str) -> None:
        async def test() -> None:
            _, provider = await answer_to(fault)
            assert provider.last.attempts == 1

        run(test())

    def test_as_long_as_the_host_says_and_no_longer_than_was_allowed(self) -> None:
        async def test() -> None:
            async def refuse(peer: Peer, asked: HostRequest) -> None:
                seconds = b"3600" if len(host.requests) > 1 else b"7"
                await peer.send(b"HTTP/1.1 429 No\r\nretry-after: " + seconds + b"\r\ncontent-length: 0\r\n\r\n")

            waited.clear()
            async with (
                Host(refuse) as host,
                Provider(f"{host.url}/v1", model="kimi-k2.5", random=lambda: 0.5, sleep=at_once) as provider,
            ):
                events = await collected(provider.stream_chat_with_tools(human()))
                failed = events[-1]
                assert isinstance(failed, Failed)
                assert failed.retryable
                assert provider.problem is not None
                assert provider.problem.retry_after == 3600.0
                assert len(host.requests) == 2
            assert waited == [pytest.approx(7 * 1.05)]

        run(test())

    def test_each_pause_is_a_part_of_twice_the_one_before(self) -> None:
        async def test() -> None:
            waited.clear()
            _, provider = await answer_to("status-500", attempts=4, random=lambda: 0.5)
            assert provider.last.attempts == 4
            assert waited == [0.125, 0.25, 0.5]

        run(test())

    def test_nobody_there_is_told_as_that(self) -> None:
        async def test() -> None:
            async with Host(lambda peer, asked: peer.gone()) as host:
                url = host.url
            async with Provider(f"{url}/v1", model="kimi-k2.5", sleep=at_once) as provider:
                events = await collected(provider.stream_chat_with_tools(human()))
                assert [type(event) for event in events] == [Failed]
                assert events[0].code == "upstream_unreachable"  # type: ignore[union-attr]
                assert provider.last.attempts == 3

        run(test())

    def test_a_host_that_fell_silent_is_not_asked_again(self) -> None:
        async def test() -> None:
            async with (
                Host(lambda peer, asked: peer.gone()) as host,
                Provider(f"{host.url}/v1", model="kimi-k2.5", timeouts=HASTY) as provider,
            ):
                (failed,) = await collected(provider.stream_chat_with_tools(human()))
                assert isinstance(failed, Failed)
                assert failed.code == "upstream_stalled"
                assert len(host.requests) == 1

        run(test())


class TestWhatIsTold:
    def test_the_words_of_the_host(self) -> None:
        async def test() -> None:
            events, provider = await answer_to("unauthorized")
            (failed,) = events
            assert isinstance(failed, Failed)
            assert "API key" in failed.message or "Authentication" in failed.message
            assert provider.problem is not None
            assert provider.problem.kind == "authentication"
            assert not failed.retryable

        run(test())

    def test_a_prompt_that_is_too_long_is_known_by_its_code(self) -> None:
        async def test() -> None:
            events, provider = await answer_to("context-overflow")
            assert isinstance(events[-1], Failed)
            assert events[-1].code == "context_overflow"
            assert provider.problem is not None
            assert provider.problem.limit is not None

        run(test())

    def test_what_was_said_before_it_broke_off_is_kept(self) -> None:
        async def test() -> None:
            events, provider = await answer_to("cut-off")
            said = "".join(event.text for event in events if isinstance(event, BlockDelta))
            assert said
            assert provider.last.message.parts
            assert provider.last.ending == events[-1]

        run(test())

    def test_a_call_that_is_not_whole_is_marked(self) -> None:
        async def test() -> None:
            events, _ = await answer_to("cut-inside")
            calls = {event.index for event in events if isinstance(event, BlockOpened) and event.kind == "call"}
            closed = [event for event in events if isinstance(event, BlockClosed) and event.index in calls]
            assert not any(event.complete for event in closed)

        run(test())


def _refusing(body: bytes) -> Callable[[str], bytes]:
    return lambda key: (
        b"HTTP/1.1 401 No\r\ncontent-length: %d\r\n\r\n%b"
        % (
            len(body % key.encode()),
            body % key.encode(),
        )
    )


def _error_event(key: str) -> bytes:
    return b"data: %b\n\n" % json.dumps({"error": {"message": f"who is {key}?", "type": key, "code": key}}).encode()


def _streamed(*events: Callable[[str], bytes]) -> Callable[[str], bytes]:
    return lambda key: chunked_head() + chunks(*(event(key) for event in events))


def _spoken(key: str) -> bytes:
    return b'data: {"choices": [{"index": 0, "delta": {"content": "Hi"}}]}\n\n'


ECHOES: Final[dict[str, Callable[[str], bytes]]] = {
    "an error": _refusing(b'{"error": {"message": "wrong key %b"}}'),
    "a page": _refusing(b"<html><title>who is %b</title></html>"),
    "a text": _refusing(b"no: %b"),
    "a whole answer that is an error": lambda key: whole(
        json.dumps({"error": {"message": f"Bearer {key}", "code": key}}).encode()
    ),
    "the first event": _streamed(_error_event),
    "a later event": _streamed(_spoken, _error_event),
}


@pytest.mark.parametrize("secret", [KEY, "hunter2-and-more", 'with "quotes" & <tags>'])
@pytest.mark.parametrize("echo", ECHOES)
def test_a_key_that_the_host_repeats_is_told_to_nobody(echo: str, secret: str) -> None:
    async def test() -> None:
        async def script(peer: Peer, asked: HostRequest) -> None:
            assert secret in asked.headers["authorization"]
            await peer.send(ECHOES[echo](secret))

        async with (
            Host(script) as host,
            Provider(f"{host.url}/v1", model="kimi-k2.5", api_key=secret, attempts=1) as provider,
        ):
            events = await collected(provider.stream_chat_with_tools(human()))
            assert isinstance(events[-1], Failed)
            shown = f"{events!r} {provider.last!r} {provider.problem!r} {provider!r}"
            assert secret not in shown
            assert json.dumps(secret)[1:-1] not in shown

    run(test())
