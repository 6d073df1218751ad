"""The protocol over raw sockets: every attack ends, is answered where it can be, and leaves a server that serves."""

from __future__ import annotations

import json
import select
import socket
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from moonshim.config import Limits
from moonshim.http_server.descriptors import DescriptorBudget
from moonshim.http_server.protocol import MOST_HEADERS, MOST_PIPELINED, BoundedProtocol, protocol_with
from tests.http_server.raw_server import RawServer, read_all, read_answer, send_until_answered, status_of, wait_until

HEADER_BYTES = 16 * 1024
PATIENT = protocol_with(Limits(header_bytes=HEADER_BYTES, header_seconds=60.0))
HURRIED = protocol_with(Limits(header_bytes=HEADER_BYTES, header_seconds=0.3))
HURRIED.linger_seconds = 0.3
LOOPS = ["asyncio", "uvloop"]


@pytest.fixture(scope="module", params=LOOPS)
def patient(request: pytest.FixtureRequest) -> Iterator[RawServer]:
    """A server that is never in a hurry: what it refuses, it refuses for another reason than time."""
    with running(PATIENT, request.param) as server:
        yield server


@pytest.fixture(scope="module")
def hurried() -> Iterator[RawServer]:
    with running(HURRIED, "auto") as server:
        yield server


@contextmanager
def running(protocol: type[BoundedProtocol], loop: str) -> Iterator[RawServer]:
    if loop == "uvloop":
        pytest.importorskip("uvloop")
    with RawServer(protocol, loop) as server:
        yield server


def unharmed(server: RawServer) -> None:
    """What holds after every attack."""
    assert server.serves()
    wait_until(server.idle)


def attack(server: RawServer, data: bytes) -> bytes:
    with server.connect() as connection:
        connection.sendall(data)
        return read_all(connection)


POST = b"POST /v1/messages HTTP/1.1\r\nHost: localhost\r\n"
MALFORMED: dict[str, bytes] = {
    "garbage": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(256)),
    "a NUL in a header's name": b"GET / HTTP/1.1\r\nHost: localhost\r\nX-\0A: 1\r\n\r\n",
    "a NUL in a header's value": b"GET / HTTP/1.1\r\nHost: localhost\r\nX-A: 1\0" + b"2\r\n\r\n",
    "a NUL in the target": b"GET /\0 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a space before the colon": POST + b"Content-Length : 5\r\n\r\nhello",
    "a folded header": b"GET / HTTP/1.1\r\nHost: localhost\r\nX-A: 1\r\n 2\r\n\r\n",
    "a header without a colon": b"GET / HTTP/1.1\r\nHost: localhost\r\nnothing\r\n\r\n",
    "both lengths": POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /x HTTP/1.1\r\n\r\n",
    "both lengths, the other way": POST + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
    "two lengths": POST + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
    "two equal lengths": POST + b"Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
    "two lengths in one": POST + b"Content-Length: 5, 5\r\n\r\nhello",
    "a length with a sign": POST + b"Content-Length: +5\r\n\r\nhello",
    "a length below nothing": POST + b"Content-Length: -5\r\n\r\nhello",
    "a length beyond all numbers": POST + b"Content-Length: 99999999999999999999999\r\n\r\nhello",
    "chunked, and then something else": POST + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    "nearly chunked": POST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "a chunk's size that is no number": POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\nhello\r\n0\r\n\r\n",
    "a chunk's size with a sign": POST + b"Transfer-Encoding: chunked\r\n\r\n-5\r\nhello\r\n0\r\n\r\n",
    "a chunk's size beyond all numbers": POST + b"Transfer-Encoding: chunked\r\n\r\n" + b"f" * 40 + b"\r\nhello",
    "a chunk longer than it says": POST + b"Transfer-Encoding: chunked\r\n\r\n2\r\nhello\r\n0\r\n\r\n",
    "HTTP/0.9": b"GET /\r\n\r\n",
    "HTTP/2 without asking": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "a version that there is not": b"GET / HTTP/9.9\r\nHost: localhost\r\n\r\n",
    "HTTP/2 in the words of HTTP/1": b"GET / HTTP/2.0\r\nHost: localhost\r\n\r\n",
    "no host": b"GET / HTTP/1.1\r\n\r\n",
    "two hosts": b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n",
    "a method that there is not": b"SPEND / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a tunnel": b"CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example:443\r\n\r\n",
    "another server's address": b"GET http://evil.example/ HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "our own address in full": b"GET http://localhost/ HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "no path at all": b"OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a target that is not ASCII": b"GET /\xff\xfe HTTP/1.1\r\nHost: localhost\r\n\r\n",
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_request_that_two_servers_could_read_differently_is_refused(patient: RawServer, name: str) -> None:
    seen = len(patient.app.bodies)
    answer = attack(patient, MALFORMED[name])
    assert status_of(answer) == 400
    assert answer.count(b"HTTP/1.1 ") == 1, answer
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"connection: close" in head
    assert json.loads(body)["error"]["type"] == "invalid_request_error"
    assert len(patient.app.bodies) == seen, "it reached the application"
    unharmed(patient)


ENDLESS: dict[str, tuple[bytes, bytes]] = {
    "a target": (b"GET /", b"x"),
    "a header's name": (b"GET / HTTP/1.1\r\nHost: localhost\r\nX-", b"x"),
    "a header's value": (b"GET / HTTP/1.1\r\nHost: localhost\r\nX-A: ", b"x"),
    "headers": (b"GET / HTTP/1.1\r\nHost: localhost\r\n", b"X-A: 1\r\n"),
    "empty lines": (b"", b"\r\n"),
    "the name of a chunk's extension": (POST + b"Transfer-Encoding: chunked\r\n\r\n5;", b"x"),
    "the value of a chunk's extension": (POST + b"Transfer-Encoding: chunked\r\n\r\n5;x=", b"x"),
    "a trailer": (POST + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX-A: ", b"x"),
    "trailers": (POST + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n", b"X-A: 1\r\n"),
}


@pytest.mark.parametrize("piece", [1000, 100_000])
@pytest.mark.parametrize("name", ENDLESS)
def test_what_never_ends_is_refused_as_soon_as_it_is_too_much(patient: RawServer, name: str, piece: int) -> None:
    beginning, more = ENDLESS[name]
    with patient.connect() as connection:
        answer = send_until_answered(connection, beginning, more * (piece // len(more)))
    assert status_of(answer) == 431
    assert answer.count(b"HTTP/1.1 ") == 1
    unharmed(patient)


@pytest.mark.parametrize("name", ENDLESS)
def test_what_never_ends_is_not_kept(patient: RawServer, name: str) -> None:
    beginning, more = ENDLESS[name]
    more *= 65536 // len(more)
    sent = 0
    tracemalloc.start()
    try:
        with patient.connect() as connection, suppress(BrokenPipeError, ConnectionResetError):
            connection.sendall(beginning)
            while sent < 16 * 1024 * 1024:
                connection.sendall(more)
                sent += len(more)
        unharmed(patient)
        assert tracemalloc.get_traced_memory()[1] < 4 * 1024 * 1024
    finally:
        tracemalloc.stop()


def test_a_million_headers_are_refused_by_their_number(patient: RawServer) -> None:
    head = b"GET / HTTP/1.1\r\nHost: localhost\r\n"
    most = head + b"".join(b"X: \r\n" for _ in range(MOST_HEADERS - 2)) + b"Connection: close\r\n\r\n"
    assert status_of(attack(patient, most)) == 200
    with patient.connect() as connection:
        answer = send_until_answered(connection, head, b"X: \r\n" * 1000)
    assert status_of(answer) == 431
    assert b"more than 200 headers" in answer
    unharmed(patient)


def test_headers_that_come_at_once_are_bounded_too(patient: RawServer) -> None:
    head = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nX-A: "
    assert status_of(attack(patient, head + b"x" * (HEADER_BYTES - 200) + b"\r\n\r\n")) == 200
    assert status_of(attack(patient, head + b"x" * HEADER_BYTES + b"\r\n\r\n")) == 431
    unharmed(patient)


def test_a_body_is_not_counted_as_headers(patient: RawServer) -> None:
    size = 40 * HEADER_BYTES
    answer = attack(patient, POST + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % size + b"x" * size)
    assert status_of(answer) == 200
    assert len(patient.app.bodies[-1]) == size
    chunks = b"".join(b"3e8\r\n" + b"x" * 1000 + b"\r\n" for _ in range(size // 1000))
    answer = attack(patient, POST + b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n")
    assert status_of(answer) == 200
    assert len(patient.app.bodies[-1]) == size // 1000 * 1000


# -- slow clients ------------------------------------------------------------------------------------------------

SLOW: dict[str, tuple[bytes, bytes]] = {
    "a header at a time (slowloris)": (b"GET / HTTP/1.1\r\nHost: localhost\r\n", b"X-A: 1\r\n"),
    "a byte at a time": (b"GET / HTTP/1.1\r\nHost: localhost\r\nX-A: ", b"x"),
    "an empty line at a time": (b"", b"\r\n"),
    "and then nothing": (b"GET / HTTP/1.1\r\nHost:", b""),
}


@pytest.mark.parametrize("name", SLOW)
@pytest.mark.parametrize("second", [False, True], ids=["first request", "next request"])
def test_headers_that_take_too_long_are_answered_and_the_connection_ends(
    hurried: RawServer, name: str, second: bool
) -> None:
    beginning, more = SLOW[name]
    with hurried.connect() as connection:
        if second:
            ask(connection)
        assert status_of(send_until_answered(connection, beginning, more, pause=0.02)) == 408
    unharmed(hurried)


def test_a_connection_that_says_nothing_is_closed_without_a_word(hurried: RawServer) -> None:
    with hurried.connect() as connection:
        assert read_all(connection) == b""
    unharmed(hurried)


def test_the_deadline_of_the_headers_is_not_one_for_the_body_or_the_answer(hurried: RawServer) -> None:
    hurried.app.go_on.clear()
    with hurried.connect() as connection:
        connection.sendall(b"POST /stream HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\n")
        for byte in b"hello":
            assert not select.select([connection], [], [], 0.1)[0]
            connection.sendall(bytes([byte]))
        said = connection.recv(1000)
        while b"first;" not in said:
            said += connection.recv(1000)
        connection.sendall(b"\r\n")  # as clients of long ago do behind a body
        assert not select.select([connection], [], [], 0.4)[0]
        hurried.app.go_on.set()
        while b"last" not in said:
            said += connection.recv(1000)
    unharmed(hurried)


def test_a_body_that_goes_on_after_its_answer_is_cut_off(hurried: RawServer) -> None:
    with hurried.connect() as connection:
        connection.sendall(b"POST /early HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n")
        assert status_of(read_answer(connection)) == 401
        assert send_until_answered(connection, b"", b"x", pause=0.02) == b""
    unharmed(hurried)


def test_a_body_that_ends_after_its_answer_leaves_a_connection_that_serves(hurried: RawServer) -> None:
    with hurried.connect() as connection:
        connection.sendall(b"POST /early HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\nxx")
        assert status_of(read_answer(connection)) == 401
        connection.sendall(b"xx")
        ask(connection)
        assert read_all(connection) == b""  # and, idle, is closed in the end
    unharmed(hurried)


# -- several requests, and clients that go away -------------------------------------------------------------------


def test_trailers_do_not_become_headers(patient: RawServer) -> None:
    smuggled = b"0\r\nAuthorization: Bearer stolen\r\nHost: evil.example\r\n\r\n"
    body = POST + b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n" + smuggled
    assert status_of(attack(patient, body)) == 200
    names = [name for name, _ in patient.app.headers[-1]]
    assert (names.count(b"host"), b"authorization" in names) == (1, False)


STREAM = b"GET /stream HTTP/1.1\r\nHost: localhost\r\n\r\n"
SECOND = b"GET /second HTTP/1.1\r\nHost: localhost\r\n\r\n"
THIRD = b"POST /third HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhello"
FOURTH = b"POST /fourth HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
STREAMED = b"\r\n\r\n6\r\nfirst;\r\n4\r\nlast\r\n0\r\n\r\n"
PIPELINED: dict[str, tuple[bytes, list[str]]] = {
    "requests": (SECOND + THIRD + FOURTH + SECOND, ["/second", "/third", "/fourth", "/second"]),
    "a request that closes": (
        SECOND.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n") + THIRD,
        ["/second"],
    ),
    "garbage": (b"\0garbage", []),
    "a request, then garbage": (THIRD + b"\0garbage" + SECOND, ["/third"]),
    "a request that is refused": (SECOND + b"GET http://evil.example/ HTTP/1.1\r\nHost: x\r\n\r\n", ["/second"]),
    "half a header": (SECOND + THIRD[:30], ["/second"]),
    "half a body": (SECOND + THIRD[:-2], ["/second"]),
    "a body too large to wait": (SECOND + THIRD.replace(b"5", b"%d" % 10**6, 1) + b"x" * 10**6, ["/second"]),
    "more than may wait": (SECOND * (MOST_PIPELINED + 5), ["/second"] * MOST_PIPELINED),
}


def read_until(connection: socket.socket, end: bytes) -> bytes:
    said = b""
    while not said.endswith(end):
        piece = connection.recv(65536)
        assert piece, said
        said += piece
    return said


def answers_in(said: bytes) -> list[str]:
    """The paths that were answered after the stream, and nothing else was."""
    assert said.count(STREAMED) == 1, said
    rest = said.partition(STREAMED)[2]
    bodies = rest.split(b"\r\n\r\n")[1:]
    assert rest.count(b"HTTP/1.1 200 OK\r\n") == rest.count(b"HTTP/1.1 ") == len(bodies), said
    return [json.loads(body.partition(b"HTTP/1.1")[0])["path"] for body in bodies]


@pytest.mark.parametrize("apart", [False, True], ids=["in one piece", "one after the other"])
@pytest.mark.parametrize("more", PIPELINED)
def test_every_request_that_a_client_sent_before_it_half_closed_is_answered_in_order(
    patient: RawServer, more: str, apart: bool
) -> None:
    app, (data, expected) = patient.app, PIPELINED[more]
    app.go_on.clear()
    app.streaming.clear()
    with patient.connect() as connection:
        connection.sendall(STREAM if apart else STREAM + data)
        wait_until(app.streaming.is_set)
        if apart:
            connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        # The first digit of the next chunk: the end was seen.
        said = read_until(connection, b"first;\r\n0")
        app.go_on.set()
        said = said[:-1] + read_all(connection)
    assert answers_in(said) == expected
    unharmed(patient)


def test_what_cannot_be_read_behind_a_request_does_not_spoil_its_answer(patient: RawServer) -> None:
    app = patient.app
    app.go_on.set()
    assert answers_in(attack(patient, STREAM + THIRD + b"\0garbage")) == ["/third"]
    unharmed(patient)


def test_pipelined_requests_are_answered_in_order_and_the_connection_goes_on(patient: RawServer) -> None:
    with patient.connect() as connection:
        connection.sendall(SECOND + THIRD + SECOND[:20])
        said = read_until(connection, b'"/third", "bytes": 5}')
        assert said.index(b'"/second"') < said.index(b'"/third"')
        connection.sendall(SECOND[20:])
        assert b'"/second"' in read_answer(connection)
        ask(connection)
    unharmed(patient)


def test_half_a_header_behind_a_request_has_the_same_deadline_as_any_other(hurried: RawServer) -> None:
    with hurried.connect() as connection:
        connection.sendall(SECOND + SECOND[:20])
        said = read_all(connection)
    assert [said.count(b"HTTP/1.1 %d " % status) for status in (200, 408)] == [1, 1]
    unharmed(hurried)


def test_a_connection_beyond_all_descriptors_is_told_to_come_back() -> None:
    protocol = protocol_with(Limits())
    protocol.room = DescriptorBudget(requests=4, connections=4, refusals=5)
    with running(protocol, "auto") as server:
        with server.connect() as first, server.connect() as second:
            for connection in (first, second):  # a descriptor each, and one for the host of each
                server.app.streaming.clear()
                connection.sendall(STREAM)
                wait_until(server.app.streaming.is_set)
            with server.connect() as third:
                answer = read_all(third)
                assert (status_of(answer), b"\r\nretry-after: 2\r\n" in answer) == (503, True)
            server.app.go_on.set()
        unharmed(server)


def test_a_client_of_http_1_0_gets_a_stream_without_chunks(patient: RawServer) -> None:
    patient.app.go_on.set()
    head, _, body = attack(patient, b"GET /stream HTTP/1.0\r\n\r\n").partition(b"\r\n\r\n")
    assert b"transfer-encoding" not in head.lower()
    assert b"\r\nconnection: close" in head
    assert body == b"first;last"
    head, _, body = attack(patient, b"GET /other HTTP/1.0\r\n\r\n").partition(b"\r\n\r\n")
    assert b"\r\ncontent-length: %d" % len(body) in head
    assert json.loads(body)["path"] == "/other"
    assert attack(patient, b"HEAD /stream HTTP/1.0\r\n\r\n").endswith(b"\r\n\r\n")
    unharmed(patient)


def test_the_disconnect_of_a_client_that_pipelined_is_noticed(patient: RawServer) -> None:
    app = patient.app
    app.go_on.clear()
    app.streaming.clear()
    before = app.disconnects
    request = b"GET /stream HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with patient.connect() as connection:
        connection.sendall(request + request)
        wait_until(app.streaming.is_set)
    wait_until(lambda: app.disconnects == before + 1)
    unharmed(patient)


def test_a_body_that_breaks_is_a_disconnect_to_the_application(patient: RawServer) -> None:
    before = patient.app.disconnects
    with patient.connect() as connection:
        connection.sendall(POST + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")
        connection.sendall(b"zz\r\n")
        assert status_of(read_all(connection)) == 400
    wait_until(lambda: patient.app.disconnects == before + 1)
    unharmed(patient)


def test_a_connection_is_used_again(patient: RawServer) -> None:
    with patient.connect() as connection:
        for _ in range(3):
            ask(connection)
    unharmed(patient)


def test_websockets_are_refused_in_a_way_that_codex_understands(patient: RawServer) -> None:
    upgrade = b"Connection: Upgrade\r\nUpgrade: WebSocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: x\r\n"
    answer = attack(patient, b"GET /v1/responses HTTP/1.1\r\nHost: localhost\r\n" + upgrade + b"\r\n")
    assert status_of(answer) == 426
    assert b"\r\nupgrade: HTTP/1.1\r\n" in answer
    unharmed(patient)


def test_a_client_that_offers_http_2_is_answered_in_http_1(patient: RawServer) -> None:
    """Java's does, with its first request."""
    offer = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAAAAIAAAAB\r\n"
    with patient.connect() as connection:
        connection.sendall(POST + offer + b"Content-Length: 5\r\n\r\nhello")
        assert status_of(read_answer(connection)) == 200
        assert patient.app.bodies[-1] == b"hello"
        ask(connection)
    unharmed(patient)


def test_a_body_that_the_parser_would_lose_is_refused_and_not_taken_for_empty(patient: RawServer) -> None:
    seen = len(patient.app.bodies)
    answer = attack(patient, POST + b"Connection: Upgrade\r\nUpgrade: other\r\nContent-Length: 5\r\n\r\nhello")
    assert (status_of(answer), len(patient.app.bodies)) == (426, seen)
    unharmed(patient)


def test_http_1_0_is_answered_and_closed(patient: RawServer) -> None:
    answer = attack(patient, b"POST / HTTP/1.0\r\nContent-Length: 5\r\n\r\nhello")
    assert status_of(answer) == 200
    assert answer.endswith(b'"bytes": 5}')
    unharmed(patient)


def test_a_client_that_waits_to_be_asked_for_its_body_is_not_asked_when_it_is_refused(patient: RawServer) -> None:
    expect = b"Host: localhost\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n"
    with patient.connect() as connection:
        connection.sendall(b"POST /early HTTP/1.1\r\n" + expect)
        assert status_of(read_answer(connection)) == 401
    with patient.connect() as connection:
        connection.sendall(b"POST / HTTP/1.1\r\n" + expect)
        assert connection.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(b"hello")
        assert status_of(read_answer(connection)) == 200
    unharmed(patient)


def ask(connection: socket.socket) -> None:
    """An ordinary request on a connection that is open."""
    connection.sendall(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhello")
    answer = read_answer(connection)
    assert status_of(answer) == 200
    assert answer.endswith(b'"bytes": 5}')
