"""What the page gets for an exchange: frames, repairs, attempts, logs; whatever hosts and clients send."""

from __future__ import annotations

import json
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import pytest

from moonshim.simulator import Simulator
from tests.inspector.hosts import delta, steered_host
from tests.inspector.test_access import KEY, with_keys
from tests.inspector.test_page import WEATHER, chat
from tests.inspector.test_recording import SECRET, configured
from tests.support.servers import DEADLINE, Running, running

Json = dict[str, Any]

TEXT: Final = "What is the weather in Paris?"
DIALECTS: Final = ("openai_chat", "anthropic", "openai_responses")


def body_in(dialect: str, model: str, *, stream: bool = True) -> tuple[str, Json]:
    if dialect == "openai_chat":
        return "/v1/chat/completions", chat(model, stream=stream)
    if dialect == "anthropic":
        tool = {"name": "get_weather", "input_schema": WEATHER["parameters"]}
        messages = [{"role": "user", "content": TEXT}]
        return "/v1/messages", {"model": model, "max_tokens": 4000, "stream": stream, "messages": messages} | {
            "tools": [tool]
        }
    return "/v1/responses", {
        "model": model,
        "stream": stream,
        "input": TEXT,
        "tools": [{"type": "function", **WEATHER}],
    }


@contextmanager
def listening(gateway: Running, **headers: str) -> Iterator[Any]:
    with urlopen(Request(f"{gateway.url}/inspector/api/events", headers=headers), timeout=DEADLINE) as response:
        yield response


def summaries(gateway: Running, count: int) -> list[Json]:
    """The newest state of this many exchanges, once all of them are over; oldest first."""
    seen: dict[str, Json] = {}
    with listening(gateway) as response:
        while len(seen) < count or any(one["running"] for one in seen.values()):
            line = response.readline()
            if line.startswith(b"data: "):
                seen |= {one["id"]: one for one in json.loads(line[6:])}
    return sorted(seen.values(), key=lambda one: str(one["time"]))


def detail(gateway: Running, one: Json, query: str = "") -> Json:
    status, text = gateway.get(f"/inspector/api/exchanges/{one['id']}{query}")
    assert status == 200, text
    found: Json = json.loads(text)
    return found


FAULTS: Final = (
    "markers-in-content", "think-never-closed", "arguments-twice", "cut-off", "cut-inside", "ends-early", "no-done",
    "unended", "comments", "keep-alives", "crlf", "byte-order-mark", "split-characters", "json-lines", "not-streamed",
    "stream-called-json", "error-in-stream", "usage-in-each-chunk",
)  # fmt: skip


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_repair_is_at_its_frame(dialect: str, gateway: Running) -> None:
    """In streams of every kind, also such that break off; and the log gives the same repairs once more."""
    for fault in FAULTS:
        gateway.post(*body_in(dialect, f"kimi-k2.6+{fault}"))
    for one in summaries(gateway, len(FAULTS)):
        fault, found = one["requested_model"], detail(gateway, one)
        marked = [repair["rule"] for row in found["stream"]["rows"] for repair in row["repairs"]]
        assert {rule: marked.count(rule) for rule in marked} == one["repairs"], fault
        assert found["conversation"][-1]["answer"], fault
        if one["outcome"] == "ok":
            log = gateway.get(f"/inspector/api/exchanges/{one['id']}/log")[1]
            mended = json.loads(gateway.post("/inspector/api/mend", {"text": log})[1])
            assert mended["summary"]["repairs"] == one["repairs"], fault


def test_a_log_has_the_bytes_of_the_host(tmp_path: Path) -> None:
    sent = b": hello\r\n\r\n" + delta(content="caf\u00e9").replace(b"\n", b"\r\n") + b"data: [DONE]\r\n\r\n"
    with (
        steered_host(lambda _: sent) as host,
        running("serve", "--config", configured(tmp_path, host.url), cwd=tmp_path) as gateway,
    ):
        gateway.post("/v1/chat/completions", chat("kimi-k2.6", tools=None))
        (one,) = summaries(gateway, 1)
        with urlopen(f"{gateway.url}/inspector/api/exchanges/{one['id']}/log", timeout=DEADLINE) as response:
            assert response.read().endswith(b"\n\n" + sent)


def test_a_key_that_the_host_repeats_is_masked(tmp_path: Path) -> None:
    def echo(header: str) -> bytes:
        key = header.removeprefix("Bearer ")
        halves = delta(content=f"your key is {key}") + delta(content=key[:9]) + delta(content=key[9:])
        return halves + delta(finish_reason="stop") + b"data: [DONE]\n\n"

    with (
        steered_host(echo) as host,
        running("serve", "--config", configured(tmp_path, host.url), cwd=tmp_path) as gateway,
    ):
        gateway.post("/v1/chat/completions", chat("kimi-k2.6", tools=None))
        (one,) = summaries(gateway, 1)
        for path in ("", "/log"):
            text = gateway.get(f"/inspector/api/exchanges/{one['id']}{path}")[1]
            assert "your key is" in text
            assert SECRET not in text
            assert SECRET[9:] not in text


def two_providers(folder: Path, first: str, second: str) -> Path:
    file = configured(folder, first)
    file.write_text(
        file.read_text().replace('name = "host"', 'name = "flaky"')
        + f"""
retry_empty_answer = true
[[providers]]
name = "steady"
api_base_url = "{second}/v1"
models = ["kimi-k3"]
[prices."kimi-k3"]
input = 3
output = 15
[retries]
attempts = 1
"""
    )
    return file


def test_all_attempts_are_shown_with_their_tokens(tmp_path: Path) -> None:
    with (
        steered_host(lambda _: delta(content="Half a sen")) as flaky,
        Simulator(behaviour="selfhost").running() as steady,
    ):
        file = two_providers(tmp_path, flaky.url, steady.url)
        with running("serve", "--config", file, cwd=tmp_path) as gateway:
            gateway.post(*body_in("openai_chat", "kimi-k3", stream=False))
            (one,) = summaries(gateway, 1)
            found = detail(gateway, one)
            first, second = found["attempts"]
            assert (first["provider"], second["provider"]) == ("flaky", "steady")
            assert first["error"].startswith("stream_ended")
            assert second["error"] is None
            for attempt in (first, second):
                assert attempt["input_tokens"] > 0
                assert float(attempt["cost"]) > 0
            assert float(one["cost"]) == pytest.approx(float(first["cost"]) + float(second["cost"]))
            assert found["attempt"] == 1
            earlier = detail(gateway, one, "?attempt=0")
            assert earlier["attempt"] == 0
            assert earlier["stream"]["rows"] != found["stream"]["rows"]
            assert sum("flaky" in step["name"] for step in found["timeline"])


def test_a_second_response_in_the_same_stream(tmp_path: Path) -> None:
    """After an empty answer, the request is sent once more; the client gets both responses as one."""
    with (
        Simulator(behaviour="selfhost", faults=("stops-after-thinking",)).running() as host,
        running("serve", "--config", two_providers(tmp_path, host.url, host.url), cwd=tmp_path) as gateway,
    ):
        gateway.post(*body_in("openai_chat", "kimi-k2.6"))
        (one,) = summaries(gateway, 1)
        found = detail(gateway, one)
        assert [attempt["continues"] for attempt in found["attempts"]] == [False, True]
        rows = found["stream"]["rows"]
        assert sum('"role"' in row["raw"] for row in rows) == 2
        assert found["attempts"][1]["output_tokens"] == one["output_tokens"]


def test_a_host_that_refuses_is_quoted(gateway: Running) -> None:
    gateway.post(*body_in("openai_chat", "kimi-k2.6+context-overflow"))
    (one,) = summaries(gateway, 1)
    (attempt,) = detail(gateway, one)["attempts"]
    assert attempt["status"] == 400
    assert attempt["error_body"]


@pytest.mark.parametrize(
    ("data", "missing", "text"),
    [
        (b'{"model":', None, '{"model":'),
        (b"[1]", None, "[1]"),
        (b'{"model":"kimi-k2.6\\ud800","messages":[{"role":"user","content":"a\\udc00"}]}', None, None),
        (b'{"model":"sk-abcdefghijklmnop","messages":[]}', None, None),
        (b'\xef\xbb\xbf{"model":"kimi-k2.6","messages":[]}', None, None),
        (b'{"model":"%b","messages":[]}' % (b"m" * 200_000), None, None),
        (b'{"model":"x","messages":[{"role":"user","content":"%b"}]}' % (b"m" * 13_000_000), "too_large", None),
    ],
    ids=["cut", "list", "surrogates", "key", "bom", "long name", "large"],
)
def test_odd_requests_are_listed_and_shown(
    gateway: Running, data: bytes, missing: str | None, text: str | None
) -> None:
    request = Request(f"{gateway.url}/v1/chat/completions", data, {"content-type": "application/json"})
    gateway._ask(request)
    with listening(gateway) as response:
        line = next(line for line in response if line.startswith(b"data: "))
    assert len(line) < 10_000
    assert b"sk-abcdefgh" not in line
    (one,) = json.loads(line[6:])
    found = detail(gateway, one)["request"]
    assert (found["missing"], found["text"]) == (missing, text)


def test_an_exchange_that_has_not_changed_is_not_sent_again(gateway: Running) -> None:
    gateway.post(*body_in("openai_chat", "kimi-k2.6"))
    (one,) = summaries(gateway, 1)
    version = detail(gateway, one)["version"]
    assert gateway.get(f"/inspector/api/exchanges/{one['id']}?have={version}") == (204, "")
    assert gateway.get(f"/inspector/api/exchanges/{one['id']}?have=other")[0] == 200


def test_an_open_page_does_not_keep_the_gateway_from_stopping(gateway: Running) -> None:
    with listening(gateway) as response:
        assert response.readline().startswith(b"retry")
        gateway.process.send_signal(signal.SIGTERM)
        assert gateway.process.wait(DEADLINE) == 0  # it would wait ten minutes for a response
        assert response.read() in (b"\n", b"")


def test_only_so_many_pages_can_listen(gateway: Running) -> None:
    place = urlsplit(gateway.url)
    request = b"GET /inspector/api/events HTTP/1.1\r\nhost: localhost\r\n\r\n"
    sockets = [socket.create_connection((place.hostname or "", place.port or 0), DEADLINE) for _ in range(60)]
    try:
        for one in sockets:
            one.sendall(request)
        statuses = [one.recv(12) for one in sockets]
        assert statuses.count(b"HTTP/1.1 200") == 50
        assert statuses.count(b"HTTP/1.1 503") == 10
        # Nobody reads: requests go on.
        assert gateway.post(*body_in("openai_chat", "kimi-k2.6"))[0] == 200
    finally:
        for one in sockets:
            one.close()


def test_a_page_that_listens_loses_its_session_with_the_right(tmp_path: Path) -> None:
    file = with_keys(tmp_path)
    with running("serve", "--config", file, cwd=tmp_path) as gateway:
        data = json.dumps({"key": KEY}).encode()
        with urlopen(Request(f"{gateway.url}/inspector/login", data), timeout=DEADLINE) as signed_in:
            cookie = signed_in.headers["set-cookie"].partition(";")[0]
        with listening(gateway, cookie=cookie) as response:
            file.write_text(file.read_text().replace('rights = ["inspect"]', ""))
            gateway.process.send_signal(signal.SIGHUP)
            assert response.read().startswith(b"retry")  # up to the end, which comes with the next event


def test_a_sign_in_is_small(tmp_path: Path) -> None:
    with running("serve", "--config", with_keys(tmp_path), cwd=tmp_path) as gateway:
        assert gateway.post("/inspector/login", {"key": "x" * 100_000})[0] == 413
