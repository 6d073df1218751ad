"""Traces as a collector on a socket receives them: one span per request, one per attempt, and the host sees its own."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from decimal import Decimal
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Final

import pytest

from moonshim.config import OtelExport, Price, Retries
from moonshim.errors import InvalidInput
from moonshim.gateway.observe import otel
from moonshim.gateway.process.settings import ServeSettings, startup_problems
from moonshim.gateway.state import GatewayState
from tests.config.texts import PROVIDER, toml
from tests.support.command import ROOT
from tests.support.gateway.collector import Collector, SpanSeen
from tests.support.gateway.counting_host import LEAKED, streaming
from tests.support.gateway.hosts import Host, HostRequest, Peer, Script, chunked_head, chunks, run, whole
from tests.support.gateway.leaks import Scene, scene
from tests.support.gateway.raw_client import CLIENTS, answer_of, body_of, connected, sending
from tests.support.gateway.running import config_for
from tests.support.gateway.serving import DEADLINE, serving
from tests.support.streams import sse

TRACE: Final = "0af7651916cd43dd8448eb211c80319c"
CALLER: Final = "b7ad6b7169203331"
SECRETS: Final = ("sk-host", "collector-key", "team-secret")


@asynccontextmanager
async def traced(script: Script, collector: Collector, **given: Any) -> AsyncIterator[Scene]:
    """A gateway whose spans have reached the collector when this ends."""
    endpoint = given.pop("endpoint", collector.url)
    settings = OtelExport(endpoint=endpoint, headers={"x-key": "collector-key"}, text=given.pop("text", False))
    given.setdefault("headers", {"x-team": "team-secret"})
    async with scene(script, otel=settings, **given) as found:
        yield found


def exchange(script: Script, client: str = "openai_chat", *, headers: str = "", **given: Any) -> Traced:
    """One request through a gateway, and everything that came of it."""
    body = given.pop("body", None) or body_of(client, "What is in here?", stream=given.pop("stream", True))

    async def trip() -> Traced:
        async with Collector() as collector:
            async with traced(script, collector, **given) as found:
                reply = await found.ask(client, body, headers=headers)
                requests = found.host.requests
            return Traced(collector, reply.status, requests)

    return run(trip())


class Traced:
    def __init__(self, collector: Collector, status: int, requests: list[HostRequest]) -> None:
        self.status, self.requests, self.exported = status, requests, collector.requests
        self.spans = collector.spans
        (self.server,) = collector.of("SERVER")
        self.attempts: list[SpanSeen] = collector.of("CLIENT")
        whole_export = b"".join(one.body for one in collector.requests)
        assert not [secret for secret in SECRETS if secret.encode() in whole_export]


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("client", CLIENTS)
def test_a_request_is_a_span_with_the_call_of_the_host_below_it(client: str, stream: bool) -> None:
    found = exchange(streaming("Three files."), client, stream=stream)
    server, (attempt,) = found.server, found.attempts
    assert found.status == 200
    assert (server.parent_id, attempt.parent_id) == ("", server.span_id)
    assert attempt.trace_id == server.trace_id
    assert 0 <= attempt.seconds <= server.seconds
    path = {"openai_chat": "/v1/chat/completions", "anthropic": "/v1/messages", "openai_responses": "/v1/responses"}
    assert server.name == f"POST {path[client]}"
    assert attempt.name == "chat kimi-k2.5"
    assert not server.is_error
    assert not attempt.is_error
    assert server.attributes["http.response.status_code"] == 200
    assert server.attributes["gen_ai.request.model"] == "kimi-k2.5"
    assert server.attributes["moonshim.dialect"] == client
    assert not [name for name in server.attributes if name.startswith("gen_ai.usage")], "counted once, not twice"
    assert (
        attempt.attributes.items()
        >= {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "vllm",
            "gen_ai.request.model": "kimi-k2.5",
            "gen_ai.response.model": "kimi-k2.5-0905",
            "gen_ai.response.id": "chatcmpl-7",
            "gen_ai.response.finish_reasons": ["stop"],
            "gen_ai.usage.input_tokens": 100,
            "gen_ai.usage.output_tokens": 7,
            "gen_ai.usage.cache_read.input_tokens": 80,
            "gen_ai.conversation.id": server.attributes["gen_ai.conversation.id"],
            "http.response.status_code": 200,
            "server.address": "127.0.0.1",
            "moonshim.provider": "host",
        }.items()
    )
    assert attempt.attributes["server.port"] == int(found.requests[0].headers["host"].rpartition(":")[2])
    assert attempt.attributes.get("gen_ai.request.stream", False) is stream
    assert ("gen_ai.response.time_to_first_chunk" in attempt.attributes) is stream
    assert server.resource["service.name"] == "moonshim"
    assert found.exported[0].headers["x-key"] == "collector-key"


def test_a_messages_host_is_described_like_the_others() -> None:
    found = exchange(sending(answer_of("anthropic")), "anthropic", dialect="anthropic")
    attributes = found.attempts[0].attributes
    assert attributes["gen_ai.provider.name"] == "moonshot_ai", "the well-known name"
    assert attributes["gen_ai.response.finish_reasons"] == ["tool_calls"]
    assert attributes["gen_ai.response.id"]
    assert attributes["gen_ai.request.max_tokens"]
    assert attributes["gen_ai.usage.output_tokens"] >= 0


@pytest.mark.parametrize("client", CLIENTS)
def test_the_trace_of_the_client_goes_on_at_the_host(client: str) -> None:
    given = f"traceparent: 00-{TRACE}-{CALLER}-01\r\ntracestate: vendor=7\r\n"
    found = exchange(streaming("Hi."), client, headers=given)
    assert (found.server.trace_id, found.server.parent_id) == (TRACE, CALLER)
    assert found.attempts[0].is_parent_in(found.requests[0])
    assert found.requests[0].headers["tracestate"] == "vendor=7"


def test_without_a_trace_of_the_client_the_host_sees_the_span_of_the_attempt() -> None:
    found = exchange(streaming("Hi."), headers="traceparent: nonsense\r\ntracestate: stray=1\r\n")
    assert found.attempts[0].is_parent_in(found.requests[0])
    assert "tracestate" not in found.requests[0].headers


def test_a_trace_that_its_client_does_not_sample_is_passed_on_and_not_exported() -> None:
    async def trip() -> None:
        async with Collector() as collector:
            async with traced(streaming("Hi."), collector) as found:
                given = f"traceparent: 00-{TRACE}-{CALLER}-00\r\n"
                assert (await found.ask("openai_chat", body_of("openai_chat"), headers=given)).status == 200
                (asked,) = found.host.requests
            assert asked.headers["traceparent"].startswith(f"00-{TRACE}-")
            assert asked.headers["traceparent"].endswith("-00")
            assert collector.spans == []

    run(trip())


def test_each_attempt_is_a_span_and_the_host_sees_which() -> None:
    failure = whole(
        b'{"error":{"message":"What is in here?","type":"server_error"}}', status="503 No", headers=("retry-after: 0",)
    )
    left = [failure]

    async def script(peer: Peer, asked: HostRequest) -> None:
        if left:
            await peer.send(left.pop())
        else:
            await streaming("Hi.")(peer, asked)

    found = exchange(script, retries=Retries(attempts=2, breaker_failures=100))
    first, second = found.attempts
    assert found.status == 200
    assert [first.is_parent_in(found.requests[0]), second.is_parent_in(found.requests[1])] == [True, True]
    assert first.parent_id == second.parent_id == found.server.span_id
    assert first.is_error
    assert first.attributes["http.response.status_code"] == 503
    assert first.attributes["error.type"]
    assert "gen_ai.usage.input_tokens" not in first.attributes
    assert not second.is_error
    assert second.attributes["gen_ai.usage.input_tokens"] == 100
    assert second.attributes["http.request.resend_count"] == 1
    assert found.server.attributes["moonshim.attempts"] == 2
    assert not found.server.is_error
    assert b"What is in here?" not in found.exported[0].body, "an error may quote the prompt"


def test_an_empty_response_that_is_asked_for_again_is_two_attempts_with_their_own_tokens() -> None:
    left = [answer_of("openai_chat", "", calls=0, thought="Hm.")]

    async def script(peer: Peer, asked: HostRequest) -> None:
        await (sending(left.pop()) if left else streaming("Hi."))(peer, asked)

    found = exchange(script, retry_empty_answer=True)
    first, second = found.attempts
    assert [first.is_parent_in(found.requests[0]), second.is_parent_in(found.requests[1])] == [True, True]
    assert (second.attributes["gen_ai.usage.input_tokens"], second.attributes["gen_ai.usage.output_tokens"]) == (100, 7)
    assert found.server.attributes["moonshim.attempts"] == 2


def test_an_answer_that_is_asked_for_again_is_two_attempts_with_their_own_tokens() -> None:
    """The span of the second request has all of its input, and no output of the first."""
    texts = ["Rather in words.", "No."]

    async def script(peer: Peer, asked: HostRequest) -> None:
        await streaming(texts.pop(0))(peer, asked)

    tool = {"type": "function", "function": {"name": "a", "parameters": {"type": "object"}}}
    body = body_of("openai_chat", "What?") | {"tools": [tool], "tool_choice": "required"}
    found = exchange(script, body=body, overrides={"enforces_choice": False})
    counts = [
        (one.attributes["gen_ai.usage.input_tokens"], one.attributes["gen_ai.usage.output_tokens"])
        for one in found.attempts
    ]
    assert counts == [(100, 7), (100, 7)]


def test_a_request_that_fails_says_how() -> None:
    refusal = whole(b'{"error":{"message":"no","type":"server_error","code":"down"}}', status="500 No")

    async def script(peer: Peer, asked: HostRequest) -> None:
        await peer.send(refusal)

    found = exchange(script)
    assert found.status == 500
    assert found.server.is_error
    assert found.attempts[0].is_error
    assert found.attempts[0].attributes["error.type"] == found.server.attributes["error.type"] == "down"
    assert found.server.attributes["http.response.status_code"] == 500
    assert found.server.attributes["moonshim.outcome"] == "upstream_error"


def test_a_stream_that_breaks_off_is_an_error_of_both_spans() -> None:
    head = {"id": "1", "model": "m", "choices": [{"index": 0, "delta": {"content": "Hi"}, "finish_reason": None}]}

    async def script(peer: Peer, asked: HostRequest) -> None:
        await peer.send(chunked_head() + chunks(sse([head], done=False), end=False))
        peer.reset()

    found = exchange(script)
    assert found.server.is_error
    assert found.attempts[0].is_error
    assert found.attempts[0].attributes["error.type"] == found.server.attributes["error.type"]
    assert found.attempts[0].attributes["http.response.status_code"] == 200
    assert found.server.attributes["moonshim.outcome"] == "broken"


def test_a_host_that_cannot_be_reached_is_an_attempt_without_a_status() -> None:
    async def script(peer: Peer, asked: HostRequest) -> None:
        raise AssertionError("nobody gets here")

    found = exchange(script, api_base_url="http://127.0.0.1:1/v1")
    (attempt,) = found.attempts
    assert attempt.is_error
    assert attempt.attributes["server.port"] == 1
    assert attempt.attributes["error.type"] == "upstream_unreachable"
    assert "http.response.status_code" not in attempt.attributes


def test_a_request_that_is_refused_has_a_span_and_no_attempt() -> None:
    found = exchange(streaming("Hi."), body={"model": "kimi-k2.5"})
    assert (found.status, found.attempts) == (400, [])
    assert not found.server.is_error, "it is the client's mistake"
    assert found.server.attributes["http.response.status_code"] == 400
    assert found.server.attributes["error.type"]


def test_a_client_that_leaves_ends_both_spans() -> None:
    async def trip() -> None:
        async with Collector() as collector:

            async def script(peer: Peer, asked: HostRequest) -> None:
                await peer.send(chunked_head())
                await peer.gone()

            async with traced(script, collector) as found:
                async with connected(found.port) as connection:
                    connection.send("openai_chat", body_of("openai_chat"))
                    await found.until(lambda: found.host.requests != [], "the host is asked")
                await found.until(lambda: found.records != [], "the request is over")
            (server,), (attempt,) = collector.of("SERVER"), collector.of("CLIENT")
            assert server.attributes["moonshim.outcome"] == "client_gone"
            assert not server.is_error
            assert attempt.attributes["error.type"] == "CancelledError"

    run(trip())


@pytest.mark.parametrize("text", [False, True])
def test_text_is_exported_only_if_that_is_asked_for(text: bool) -> None:
    found = exchange(streaming("Three files."), text=text)
    attributes = found.attempts[0].attributes
    if not text:
        assert not {"gen_ai.input.messages", "gen_ai.output.messages", "gen_ai.tool.definitions"} & set(attributes)
        assert b"What is in here?" not in found.exported[0].body
        assert b"Three files." not in found.exported[0].body
        return
    said = [{"role": "user", "parts": [{"type": "text", "content": "What is in here?"}]}]
    assert json.loads(attributes["gen_ai.input.messages"]) == said
    (answer,) = json.loads(attributes["gen_ai.output.messages"])
    assert answer == {
        "role": "assistant",
        "parts": [{"type": "text", "content": "Three files."}],
        "finish_reason": "stop",
    }
    assert json.loads(attributes["gen_ai.tool.definitions"])[0]["name"] == "ls"


def test_calls_results_and_images_of_the_history_have_the_form_of_the_conventions() -> None:
    call = {"id": "functions.ls:0", "type": "function", "function": {"name": "ls", "arguments": '{"n": 0}'}}
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
    linked = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Look."}, image, linked]},
        {"role": "assistant", "content": None, "reasoning_content": "Hm.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "functions.ls:0", "content": "a.txt"},
    ]
    found = exchange(streaming("Hi."), body=body_of("openai_chat") | {"messages": messages}, text=True)
    system, user, assistant, tool = json.loads(found.attempts[0].attributes["gen_ai.input.messages"])
    assert system == {"role": "system", "parts": [{"type": "text", "content": "Be brief."}]}
    assert [part["type"] for part in user["parts"]] == ["text", "blob", "uri"]
    assert user["parts"][1]["content"] == "", "no data"
    assert user["parts"][2]["uri"] == "https://example.com/a.png"
    assert assistant["parts"] == [
        {"type": "reasoning", "content": "Hm."},
        {"type": "tool_call", "id": "functions.ls:0", "name": "ls", "arguments": {"n": 0}},
    ]
    assert tool["parts"] == [{"type": "tool_call_response", "id": "functions.ls:0", "response": "a.txt"}]


def test_the_page_on_traces_has_every_attribute() -> None:
    page = (ROOT / "docs" / "operations" / "telemetry.md").read_text("utf-8")
    named = set(re.findall(r"`([\w.]+\.[\w.]+)`", page))
    parameters = page.partition("| `gen_ai.request.*` |")[2].partition("\n")[0]
    named |= {f"gen_ai.request.{name}" for name in re.findall(r"`([\w.]+)`", parameters)}
    body = body_of("openai_chat", "What is in here?") | {"temperature": 1.5, "response_format": {"type": "json_object"}}
    price = Price(input=Decimal(1), output=Decimal(10))
    given: dict[str, Any] = {"overrides": {"temperature_max": 1.0}, "prices": {"kimi-k2.5": price}}
    good = exchange(streaming(LEAKED), text=True, body=body, **given)
    bad = exchange(streaming(LEAKED), api_base_url="http://127.0.0.1:1/v1")
    spans = [*good.spans, *bad.spans]
    found = {name for span in spans for name in span.attributes}
    found |= {name for span in spans for event, given in span.events for name in (event, *given)}
    assert len(found) > 30
    assert found <= named


@pytest.mark.parametrize("text", [False, True])
def test_repairs_and_changes_are_events_whose_details_are_text(text: bool) -> None:
    body = body_of("openai_chat", "What is in here?") | {"temperature": 1.5}
    found = exchange(streaming(LEAKED), text=text, body=body, overrides={"temperature_max": 1.0})
    (attempt,) = found.attempts
    assert attempt.attributes["gen_ai.request.temperature"] == 1.0, "what the host was sent"
    assert attempt.attributes["gen_ai.response.finish_reasons"] == ["tool_calls"]
    repairs = [given for name, given in attempt.events if name == "moonshim.repair"]
    changes = [given for name, given in attempt.events if name == "moonshim.change"]
    assert "marker_call" in [given["moonshim.rule"] for given in repairs]
    assert len(repairs) == attempt.attributes["moonshim.repairs"] == found.server.attributes["moonshim.repairs"]
    assert changes
    assert len(changes) == attempt.attributes["moonshim.changes"] == found.server.attributes["moonshim.changes"]
    assert any("moonshim.detail" in given for given in (*repairs, *changes)) is text


def test_the_cost_is_on_the_request_where_the_price_is_known() -> None:
    price = Price(input=Decimal(1), output=Decimal(10), cached=Decimal(0), currency="€")
    found = exchange(streaming("Hi."), prices={"kimi-k2.5": price})
    assert found.server.attributes["moonshim.cost"] == pytest.approx((20 * 1 + 7 * 10) / 1e6)
    assert found.server.attributes["moonshim.currency"] == "€"


def test_a_lone_surrogate_costs_no_batch() -> None:
    body = body_of("openai_chat") | {"messages": [{"role": "user", "content": "\ud83d"}], "model": "host/\ud83d"}
    found = exchange(streaming("Hi."), body=body, text=True, models=())
    assert found.server.attributes["gen_ai.request.model"] == "host/?"
    assert json.loads(found.attempts[0].attributes["gen_ai.input.messages"])


def test_a_long_conversation_is_cut_to_its_end() -> None:
    messages = [{"role": "user", "content": f"{place} " + "\x01€" * 20_000} for place in range(20)]
    found = exchange(streaming("Hi."), body=body_of("openai_chat") | {"messages": messages}, text=True)
    exported = found.attempts[0].attributes["gen_ai.input.messages"]
    assert len(exported.encode()) <= 64 * 1024
    assert json.loads(exported)[-1]["parts"][0]["content"].startswith("19 ")


@pytest.mark.parametrize("what", ["nobody listens", "it refuses", "it says nothing"])
def test_a_collector_that_fails_costs_requests_nothing_and_is_logged_once(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "1")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "2" if what == "nobody listens" else "0.5")

    async def silent(peer: Peer, asked: HostRequest) -> None:
        await peer.gone()

    async def trip() -> list[dict[str, Any]]:
        async with Collector(status="403 No") as refusing, Host(silent) as mute:
            where = {"nobody listens": "http://127.0.0.1:1", "it refuses": refusing.url, "it says nothing": mute.url}
            async with traced(streaming("Hi."), refusing, endpoint=where[what]) as found:
                told: list[Any] = found._told
                # Until the second failure, to see that the first is the only one that is logged.
                assert found.gateway.state.telemetry is not None
                exporter = found.gateway.state.telemetry._exporter
                for _ in range(2):
                    lost = exporter._lost
                    assert (await found.ask("openai_chat", body_of("openai_chat"))).status == 200
                    await found.until(lambda lost=lost: exporter._lost > lost, "an export has failed")
            return [one for one in told if isinstance(one, dict) and one["event"].startswith(("otel", "library"))]

    failures = [one for one in run(trip()) if one["event"] != "otel_flush_failed"]
    assert [one["event"] for one in failures] == ["otel_export_failed"]
    assert "collector-key" not in str(failures)
    assert {"nobody listens": "refused", "it refuses": "403", "it says nothing": "time"}[what] in str(
        failures[0]["problem"]
    )


def test_a_gateway_stops_in_time_though_its_collector_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    from moonshim.gateway.observe import otel_spans

    monkeypatch.setattr(otel_spans, "FLUSH_SECONDS", 0.05)

    async def silent(peer: Peer, asked: HostRequest) -> None:
        await peer.gone()

    async def trip() -> list[Any]:
        async with Host(silent) as mute, Collector() as unused:
            async with traced(streaming("Hi."), unused, endpoint=mute.url) as found:
                told: list[Any] = found._told
                assert (await found.ask("openai_chat", body_of("openai_chat"))).status == 200
            return told

    assert [one["event"] for one in run(trip()) if one["event"].startswith("otel")] == ["otel_flush_failed"]


def test_the_variables_of_opentelemetry_are_read_where_the_file_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def trip() -> SpanSeen:
        async with Collector() as collector:
            monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
            monkeypatch.setenv("OTEL_SERVICE_NAME", "kimi-gateway")
            async with traced(streaming("Hi."), collector, endpoint=None) as found:
                assert (await found.ask("openai_chat", body_of("openai_chat"))).status == 200
            return collector.of("SERVER")[0]

    assert run(trip()).resource["service.name"] == "kimi-gateway"


def test_several_workers_export_each_their_own_spans_and_all_of_them_before_they_stop(tmp_path: Path) -> None:
    requests = 24

    def drive(config: Path) -> None:
        with serving(ServeSettings(config=str(config), port=0, workers=2), tmp_path) as server:
            for _ in range(requests):  # on connections of their own, so that both workers get some
                connection = HTTPConnection("127.0.0.1", server.port, timeout=DEADLINE)
                connection.request("POST", "/v1/chat/completions", json.dumps(body_of("openai_chat", stream=False)))
                assert connection.getresponse().status == 200
                connection.close()
            server.signal()
            assert server.wait() == 0

    async def trip() -> list[SpanSeen]:
        async with Collector() as collector, Host(streaming("Hi.")) as host:
            config = tmp_path / "moonshim.toml"
            config.write_text(
                f'[[providers]]\nname = "host"\napi_base_url = "{host.url}/v1"\nmodels = ["kimi-k2.5"]\n'
                '[gateway]\nstore = "sqlite:store.db"\n[usage]\nfile = "memory:"\n'
                f'[otel]\nendpoint = "{collector.url}"\n'
            )
            await asyncio.to_thread(drive, config)
            return collector.of("SERVER")

    spans = run(trip())
    assert len({span.span_id for span in spans}) == len(spans) == requests
    assert len({span.resource["service.instance.id"] for span in spans}) == 2


# --- the configuration ----------------------------------------------------------------------------------------------


def test_the_table_is_read_and_an_empty_one_turns_it_on() -> None:
    assert toml(PROVIDER).otel is None
    assert toml(f"{PROVIDER}\n[otel]").otel == OtelExport()
    text = '[otel]\nendpoint = "http://c:4318"\nservice_name = "s"\ntext = true\nheaders = { Authorization = "x" }'
    found = toml(f"{PROVIDER}\n{text}").otel
    assert found == OtelExport(endpoint="http://c:4318", service_name="s", text=True, headers={"Authorization": "x"})
    assert "x" not in repr(found).replace("Export", "")


def test_a_missing_extra_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otel, "find_spec", lambda name: None)
    config = config_for("http://127.0.0.1:1", otel=OtelExport())
    sentence = "`[otel]` requires the OpenTelemetry packages; install moonshim[otel]"
    assert startup_problems(config, ServeSettings()) == [sentence]
    with pytest.raises(InvalidInput, match=r"install moonshim\[otel\]"):
        run(GatewayState.open(config))


def test_without_the_table_the_library_is_not_imported(tmp_path: Path) -> None:
    program = """
import asyncio, sys
from moonshim.config import Config
from moonshim.gateway.app import build_app
from moonshim.gateway.state import GatewayState

async def main():
    state = await GatewayState.open(Config())
    build_app(state)
    await state.close()

asyncio.run(main())
print([name for name in sys.modules if name.startswith("opentelemetry")])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.strip() == "[]"
