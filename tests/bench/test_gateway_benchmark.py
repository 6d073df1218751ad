"""The gateway benchmark: its two C programs are exact about what arrived, and its report has the figures."""

from __future__ import annotations

import threading
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from contextlib import contextmanager
from socket import create_server
from typing import Final

import msgspec
import pytest

from bench.gateway.cases import Workload
from bench.gateway.chart import draw
from bench.gateway.programs import CannotCompile, host, load_program
from bench.gateway.report import Report, tables
from bench.gateway.run import benchmark
from bench.gateway.traffic import Request, send

STAMPS: Final = [f"#{number:06}@000000000000001" for number in range(3)]
FINISH: Final = '{"finish_reason": "stop"}'
SHORT: Final = Request(chunks=5)
"""Its stream has three chunks with a stamp."""
OK: Final = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"


@pytest.fixture(autouse=True, scope="module")
def _programs() -> None:
    try:
        load_program()
    except CannotCompile as error:
        pytest.skip(f"the benchmark cannot run here: {error}")


def _events(*payloads: str) -> str:
    return "".join(f"data: {payload}\n\n" for payload in payloads)


def _chunked(text: str, *, is_complete: bool = True) -> str:
    return f"{OK}transfer-encoding: chunked\r\n\r\n{len(text):x}\r\n{text}\r\n" + "0\r\n\r\n" * is_complete


@contextmanager
def _scripted(answer: str) -> Iterator[int]:
    """A host that sends the same bytes to everybody and closes."""
    with create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    if connection.recv(65536):
                        connection.sendall(answer.encode())

        threading.Thread(target=serve, daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(2)


GOOD: Final = _events(*STAMPS, FINISH, "[DONE]")
FAULTY: Final = {
    "status other than 200": f"HTTP/1.1 500 Oops\r\ncontent-length: {len(GOOD)}\r\n\r\n{GOOD}",
    "connection closed early": _chunked(GOOD, is_complete=False),
    "chunks missing, doubled or out of order": _chunked(_events(STAMPS[0], STAMPS[2], STAMPS[1], FINISH, "[DONE]")),
    "no last event": _chunked(_events(*STAMPS, FINISH)),
    "data after the last event": _chunked(GOOD + _events("{}")),
    "no finish reason": _chunked(_events(*STAMPS, '{"finish_reason": null}', "[DONE]")),
    "invalid HTTP": f"{OK}transfer-encoding: chunked\r\n\r\nnonsense\r\n",
}


@pytest.mark.parametrize(
    "answer",
    [_chunked(GOOD), f"{OK}content-length: {len(GOOD)}\r\n\r\n{GOOD}", f"{OK}connection: close\r\n\r\n{GOOD}"],
    ids=["chunked", "length", "until the end"],
)
def test_a_complete_stream_counts(answer: str) -> None:
    with _scripted(answer) as port:
        result = send(port, SHORT, 1, 1)
    assert (result.complete, result.failures, result.stamps) == (1, {}, 3)


@pytest.mark.parametrize(("failure", "answer"), FAULTY.items(), ids=FAULTY.keys())
def test_a_stream_that_is_not_as_it_should_be_is_a_failure(failure: str, answer: str) -> None:
    with _scripted(answer) as port:
        result = send(port, SHORT, 2, 1)
    assert (result.complete, result.failures) == (0, {failure: 2})
    assert result.sample.startswith(failure)


def test_doubled_and_missing_chunks_are_failures() -> None:
    for stamps in (STAMPS[:2], [*STAMPS, STAMPS[2]]):
        with _scripted(_chunked(_events(*stamps, FINISH, "[DONE]"))) as port:
            assert send(port, SHORT, 1, 1).failures == {"chunks missing, doubled or out of order": 1}


@pytest.mark.parametrize(
    "request_",
    [
        Request(chunks=20, gap_us=1000, slots=4),
        Request(chunks=20, gap_us=1000, slots=4, kind="markers", tools=True),
        Request(chunks=1000, gap_us=0),
        Request(stream=False),
        Request(stream=False, padding=1_000_000),
    ],
    ids=["paced", "markers", "firehose", "whole", "1 MB"],
)
def test_the_host_sends_what_was_asked_for(request_: Request) -> None:
    with host() as upstream:
        result = send(upstream.port, request_, 8, 4)
        stats = upstream.stats()
        assert upstream.stats().chunks == 0, "the statistics start again after each question"
    assert (result.complete, result.failures) == (8, {})
    assert result.stamps == 8 * request_.stamps
    assert (result.leaked > 0) == (request_.kind == "markers")
    assert stats.chunks == (8 * request_.chunks if request_.stream else 0)
    assert (stats.streams, stats.requests) == ((8, 0) if request_.stream else (0, 8))


def test_a_run_through_a_real_gateway_has_all_figures() -> None:
    text = Request(chunks=20, gap_us=5000, slots=4)
    markers = msgspec.structs.replace(text, dialect="messages", kind="markers", tools=True)
    workloads = [
        Workload(name="text", title="text", request=text, total=4, concurrent=4, memory=True),
        Workload(name="messages", title="markers", request=markers, total=4, concurrent=4),
        Workload(name="request", title="whole", request=Request(stream=False), total=4, concurrent=4, per="request"),
    ]
    report = benchmark(workloads, 1, lambda name: name == "moonshim", lambda _: None)

    assert report.missing == {}
    assert report.versions.keys() == report.idle_memory_mb.keys() == {"moonshim"}
    assert report.idle_memory_mb["moonshim"] > 10
    assert all(value >= 0 for value in report.instruments.values())
    assert "pacing error, ms, median of a run" in report.instruments
    assert report.workloads.keys() == {"text", "messages", "request"}
    for workload in report.workloads.values():
        assert workload.rows.keys() == {"direct", "moonshim"}
        for row in workload.rows.values():
            assert row.problem is None
            assert row.per_second > 0
            assert row.took_ms is not None
        cost = workload.rows["moonshim"].cost
        assert cost is not None
        assert 0 < cost.min <= cost.median <= cost.max
    measured = report.workloads["text"].rows["moonshim"]
    assert measured.first_ms is not None
    assert measured.delay_ms is not None
    assert measured.memory_per_stream_kb is not None
    assert report.workloads["messages"].rows["direct"].leaked > 0
    assert report.workloads["messages"].rows["moonshim"].leaked == 0

    written = msgspec.json.encode(report)
    assert msgspec.json.encode(msgspec.json.decode(written, type=Report)) == written
    assert "moonshim" in tables(report)
    chart = ET.fromstring(draw(report))
    labels = [one.text for one in chart.iter("{http://www.w3.org/2000/svg}text")]
    assert f"moonshim {report.versions['moonshim']}" in labels
