"""What goes wrong on the line: cut, dropped and stalled answers, clients that go away, and a box that closes."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final

import anthropic
import openai
import pytest

from moonshim.simulator import Simulator
from moonshim.simulator.fault import CUT, Fault, Stall, Status
from moonshim.simulator.faults import FAULTS
from moonshim.simulator.request import SimRequest
from moonshim.simulator.response import IntendedResponse
from tests.simulator.asking import CHAT_TOOLS, MESSAGES_TOOLS, Rounds
from tests.simulator.conversations import anthropic_client, openai_client, request

PATIENCE: Final = 120.0
FOR_EVER: Final = 3600.0
ASKED: Final[Any] = {"model": "kimi-k3", "messages": [{"role": "user", "content": "Hi"}], "tools": CHAT_TOOLS}


def faulty(monkeypatch: pytest.MonkeyPatch, **given: Any) -> str:
    """A fault of a test's own, under a name that can be asked for."""
    made = Fault(**({"name": "test-fault", "group": "frames", "about": ""} | given))
    monkeypatch.setitem(FAULTS, made.name, made)
    return made.name


@contextmanager
def opened(server: Simulator, body: Any) -> Iterator[http.client.HTTPConnection]:
    """A connection on which this has been asked."""
    connection = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=PATIENCE)
    try:
        connection.request("POST", "/v1/chat/completions", json.dumps(body).encode())
        yield connection
    finally:
        connection.close()


class Watched:
    """A model that tells when it is asked."""

    def __init__(self) -> None:
        self.asked = threading.Event()

    def reply(self, sim_request: SimRequest) -> IntendedResponse:
        self.asked.set()
        return IntendedResponse(text="Hello. " * 10)


# -- cut and dropped ---------------------------------------------------------------------------------------------


def test_an_answer_that_is_cut_has_what_came_before_and_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    name = faulty(monkeypatch, frames=lambda frames, answer: [*frames[:3], CUT, *frames[3:]])
    with Simulator(model=Rounds(), faults=(name,)).running() as server:
        with opened(server, ASKED | {"stream": True}) as connection:
            answer = connection.getresponse()
            with pytest.raises(http.client.IncompleteRead) as broken:
                answer.read()
        assert broken.value.partial.count(b"\n\n") == 3
        assert (server.requests[-1].status, server.requests[-1].faults) == (200, (name,))


def test_clients_take_a_cut_answer_for_a_broken_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    name = faulty(monkeypatch, frames=lambda frames, answer: [*frames[:3], CUT])
    with Simulator(model=Rounds(), faults=(name,)).running() as server:
        with openai_client(server.url) as client:
            chunks = client.chat.completions.create(**ASKED, stream=True)
            with chunks, pytest.raises(openai.APIConnectionError):
                list(chunks)
        with anthropic_client(server.url) as other:
            asked: Any = ASKED | {"max_tokens": 99, "tools": MESSAGES_TOOLS}
            events = other.messages.create(**asked, stream=True)
            with events, pytest.raises(Exception, match="incomplete chunked read"):
                list(events)


def test_half_of_a_whole_answer_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    name = faulty(monkeypatch, frames=lambda frames, answer: [frames[0][:40], CUT])
    with (
        Simulator(model=Rounds(), faults=(name,)).running() as server,
        openai_client(server.url) as client,
        pytest.raises(openai.APIConnectionError),
    ):
        client.chat.completions.create(**ASKED)


def test_a_connection_can_be_dropped_before_any_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    name = faulty(monkeypatch, status=Status(body=None))
    with Simulator(model=Rounds(), faults=(f"{name}*1",)).running() as server:
        with opened(server, ASKED) as connection, pytest.raises(http.client.RemoteDisconnected):
            connection.getresponse()
        assert server.requests[-1].status == 0
        with opened(server, ASKED) as connection:
            assert connection.getresponse().status == 200


def test_the_connection_of_a_whole_answer_can_be_used_again() -> None:
    with Simulator(model=Rounds()).running() as server, opened(server, ASKED) as connection:
        first = connection.sock
        for _ in range(3):
            assert connection.getresponse().read()
            connection.request("POST", "/v1/chat/completions", json.dumps(ASKED).encode())
        assert connection.sock is first


# -- stalls, and clients that go away ----------------------------------------------------------------------------


def test_a_stall_ends_and_the_answer_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    name = faulty(monkeypatch, frames=lambda frames, answer: [*frames[:2], Stall(0.05), *frames[2:]])
    with Simulator(model=Rounds(), faults=(name,)).running() as server, openai_client(server.url) as client:
        chunks = list(client.chat.completions.create(**ASKED, stream=True))
        assert chunks[-1].choices[0].finish_reason == "tool_calls"


def test_closing_waits_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    name = faulty(monkeypatch, frames=lambda frames, answer: [frames[0], Stall(FOR_EVER), *frames[1:]])
    with ExitStack() as clients:
        with Simulator(model=Rounds(), faults=(name,)).running() as server:
            stalled = clients.enter_context(opened(server, ASKED | {"stream": True})).getresponse()
            assert stalled.read(5) == b"data:"
            idle = clients.enter_context(opened(server, ASKED))
            assert idle.getresponse().read(5)
            half = clients.enter_context(socket.create_connection((idle.host, idle.port), PATIENCE))
            half.sendall(b"POST /v1/messages HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{")
        with pytest.raises(http.client.IncompleteRead):
            stalled.read()
        assert half.recv(100) == b""


def test_closing_waits_for_nobody_who_does_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    name = faulty(monkeypatch, frames=lambda frames, answer: [b": " + b"x" * 2**20 + b"\n\n"] * 32)
    with ExitStack() as clients, Simulator(model=Rounds(), faults=(name,)).running() as server:
        deaf = clients.enter_context(opened(server, ASKED | {"stream": True}))
        assert deaf.getresponse().status == 200


def test_closing_waits_for_no_answer_that_comes_at_once_and_not_yet() -> None:
    watched = Watched()
    with ExitStack() as clients:
        with Simulator(model=watched, first_token_ms=FOR_EVER * 1000).running() as server:
            connection = clients.enter_context(opened(server, ASKED))
            assert watched.asked.wait(PATIENCE)
        with pytest.raises(http.client.RemoteDisconnected):
            connection.getresponse()


def test_who_goes_away_is_not_answered_any_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    name = faulty(monkeypatch, frames=lambda frames, answer: [frames[0], Stall(FOR_EVER), *frames[1:]])

    async def ask_and_disconnect() -> None:
        async with Simulator(model=Rounds(), faults=(name,)) as server:
            reader, writer = await asyncio.open_connection("127.0.0.1", int(server.url.rpartition(":")[2]))
            data = json.dumps(ASKED | {"stream": True}).encode()
            writer.write(
                b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(data) + data
            )
            await reader.readuntil(b"data: ")
            before = len(asyncio.all_tasks())
            writer.close()
            async with asyncio.timeout(PATIENCE):
                while len(asyncio.all_tasks()) >= before:
                    await asyncio.sleep(0.01)

    asyncio.run(ask_and_disconnect())


# -- pace --------------------------------------------------------------------------------------------------------


def test_a_pace_delays_an_answer_and_changes_nothing_in_it() -> None:
    with Simulator(model=Rounds()).running() as server:
        fast = request(server.url, "POST", "/v1/chat/completions", ASKED | {"stream": True})
    with Simulator(model=Rounds(), tokens_per_second=2000, first_token_ms=5).running() as server:
        slow = request(server.url, "POST", "/v1/chat/completions", ASKED | {"stream": True})
    created = [json.loads(one.data.split(b"\n\n")[0].removeprefix(b"data: "))["created"] for one in (fast, slow)]
    assert fast.data.replace(b"%d" % created[0], b"") == slow.data.replace(b"%d" % created[1], b"")


def test_headers_come_before_the_first_token() -> None:
    with (
        Simulator(model=Rounds(), first_token_ms=FOR_EVER * 1000).running() as server,
        opened(server, ASKED | {"stream": True}) as connection,
    ):
        assert connection.getresponse().status == 200


def test_errors_of_both_clients_are_those_of_a_status() -> None:
    with Simulator(model=Rounds(), faults=("overloaded",)).running() as server:
        with openai_client(server.url) as client, pytest.raises(openai.RateLimitError):
            client.chat.completions.create(**ASKED)
        with anthropic_client(server.url) as other, pytest.raises(anthropic.APIStatusError) as raised:
            other.messages.create(**(ASKED | {"max_tokens": 99, "tools": MESSAGES_TOOLS}))
        assert raised.value.request_id
