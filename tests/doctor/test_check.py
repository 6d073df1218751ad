"""What a check finds at hosts, healthy and not, each on a real socket."""

from __future__ import annotations

import json
import socket
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import pytest
import trustme

from moonshim.config import Config, KeySource, Secret, TransformerUse, endpoint_of
from moonshim.doctor.check import check_providers
from moonshim.doctor.findings import ProviderReport
from moonshim.doctor.report import advice, figures, verdict
from moonshim.simulator import Simulator
from tests.doctor.checking import (
    ARGUMENTS,
    EMPTY,
    KEY,
    MARKERS,
    MODEL,
    NOT_FOUND,
    PAGE,
    SENTENCE,
    advised,
    chat_host,
    chat_stream,
    check,
    checked,
    error,
    events,
    finding,
    messages_host,
    messages_stream,
    native_call,
    provider_at,
    says,
    wrong,
)
from tests.support.gateway.hosts import Host, HostRequest, Peer, Script, run, whole

# --- all is right -----------------------------------------------------------------------------------------------


def test_a_good_host_is_right_and_nothing_had_to_be_mended() -> None:
    report = checked(chat_host())
    assert wrong(report) == []
    assert verdict(report) == "key, address, model and dialect are correct; no repairs needed"
    assert (report.call, report.call_id, report.repairs) == ("native", "functions.get_weather:0", {})
    assert [one.topic for one in report.findings if one.state == "right"] == [
        "address", "key", "model", "dialect", "call", "answer",
    ]  # fmt: skip
    assert "SOME_API_KEY" in finding(report, "key").said


def test_the_format_of_moonshot_is_not_shown_as_repairs() -> None:
    with Simulator().running() as host:
        (report,) = run(check(provider_at(host.url, host="moonshot", models=("kimi-k3",))))
    assert report.repairs == {"usage_moved": 2, "usage_repeated": 2}
    assert verdict(report) == "key, address, model and dialect are correct; no repairs needed"
    assert dict(figures(report))["repairs"] == "none"


def test_tokens_of_both_requests_are_counted_and_the_first_is_timed() -> None:
    report = checked(chat_host())
    assert (report.input_tokens, report.output_tokens) == (200, 20)
    assert report.first_token_seconds is not None
    assert 0 <= report.first_token_seconds <= report.seconds


def test_markers_and_identifiers_that_were_mended_are_told_in_words() -> None:
    report = checked(chat_host(events(chat_stream({"content": MARKERS}))))
    assert wrong(report) == []
    assert report.call == "markers"
    assert "marker_call" in report.repairs
    assert "repairs: markers×1" in verdict(report)
    rewritten = checked(chat_host(events(native_call("call_17"))))
    assert rewritten.call_id == "functions.get_weather:0"
    assert "ids×1" in verdict(rewritten)
    assert "id rewritten to functions.get_weather:0" in finding(rewritten, "call").said


def test_a_host_that_never_streams_is_right_too() -> None:
    call = {
        "id": "functions.get_weather:0",
        "type": "function",
        "function": {"name": "get_weather", "arguments": ARGUMENTS},
    }
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    body = {"id": "c", "object": "chat.completion", "model": MODEL, "created": 1}
    body["choices"] = [{"index": 0, "message": message, "finish_reason": "tool_calls"}]
    assert wrong(checked(chat_host(whole(json.dumps(body).encode())))) == []


def test_a_messages_host_is_asked_in_messages() -> None:
    report = checked(messages_host, base="/anthropic", dialect="anthropic")
    assert wrong(report) == []
    assert report.call_id is not None
    assert (report.input_tokens, report.output_tokens) == (180, 18)
    assert "sent back" in finding(report, "reasoning").said


def test_reasoning_is_given_back_to_a_host_that_insists_on_it() -> None:
    async def script(peer: Peer, asked: HostRequest) -> None:
        messages = json.loads(asked.body)["messages"]
        if messages[-1]["role"] != "tool":
            await peer.send(events(native_call(reasoning_content='I need "the" tool.')))
        elif messages[-2].get("reasoning_content") != 'I need "the" tool.':
            message = "thinking is enabled but reasoning_content is missing in assistant tool call message at index 1"
            await peer.send(error("400 Bad Request", message))
        elif messages[-2]["tool_calls"][0]["id"] != messages[-1]["tool_call_id"]:
            await peer.send(error("400 Bad Request", "tool_call_id is not found"))
        else:
            await peer.send(events(chat_stream({"content": SENTENCE})))

    report = checked(script, host="moonshot")
    assert wrong(report) == []
    assert finding(report, "reasoning").said == "18 characters received, and sent back"


def test_a_server_of_ones_own_needs_no_key() -> None:
    report = checked(chat_host(), keys=(), key_sources=())
    assert wrong(report) == []
    assert finding(report, "key").said == "none configured, and none needed"


# --- the address ------------------------------------------------------------------------------------------------


def test_a_refused_connection_is_an_address_that_is_wrong() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        [report] = run(check(provider_at(f"http://127.0.0.1:{free.getsockname()[1]}")))
    assert wrong(report) == ["address"]
    assert "connection refused" in verdict(report)
    assert advised(report, "address") == "start the server, or correct the port in api_base_url"


def test_a_host_that_no_name_server_knows_is_an_address_that_is_wrong() -> None:
    [report] = run(check(provider_at("https://moonshim.invalid")))
    assert wrong(report) == ["address"]
    assert "HTTPS_PROXY" in advised(report, "address")


def test_tls_to_a_plain_port_leads_to_http() -> None:
    async def ask() -> None:
        async with Host(chat_host()) as host:
            [report] = await check(provider_at(host.url.replace("http:", "https:")), seconds=0.5)
            assert wrong(report) == ["address"]
            assert advised(report, "address").endswith(f': api_base_url = "{host.url}/v1"')
            assert all("authorization" not in asked.headers for asked in host.requests), "no key in the open"

    run(ask())


def test_plain_http_to_a_tls_port_leads_to_https(tmp_path: Any) -> None:
    import ssl

    authority, bundle = trustme.CA(), tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(bundle))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)

    async def ask() -> None:
        async with Host(chat_host(), tls=context) as host:
            plain = provider_at(host.url.replace("https:", "http:"), ca_bundle=str(bundle))
            [report] = await check(plain)
            assert wrong(report) == ["address"]
            assert f'api_base_url = "{host.url}/v1"' in advised(report, "address")

    run(ask())
    said = checked(
        says(whole(b"Client sent an HTTP request to an HTTPS server.\n", status="400 Bad Request", headers=()))
    )
    assert wrong(said) == ["address"]
    assert 'api_base_url = "https://127.0.0.1' in advised(said, "address")


def test_a_host_that_never_answers_is_reachable_but_silent() -> None:
    async def script(peer: Peer, asked: HostRequest) -> None:
        await peer.gone()

    report = checked(script, seconds=0.3)
    assert wrong(report) == ["answer"]
    assert finding(report, "address").state == "right"
    assert "--timeout" in advised(report, "answer")


def test_a_host_that_never_ends_is_not_waited_for() -> None:
    async def script(peer: Peer, asked: HostRequest) -> None:
        await peer.send(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n: still thinking\n\n")
        await peer.gone()

    report = checked(script, seconds=0.3)
    assert wrong(report) == ["answer"]


def test_a_connection_that_the_host_closes_does_not_need_a_longer_timeout() -> None:
    async def script(peer: Peer, asked: HostRequest) -> None:
        await peer.send(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 900\r\n\r\ndata: {")
        peer.reset()

    report = checked(script)
    assert wrong(report) == ["answer"]
    assert finding(report, "answer").cause == "connection_closed"
    assert "log of the host" in advised(report, "answer")


def test_a_wrong_path_leads_to_the_right_one() -> None:
    report = checked(chat_host(), base="/wrong/v1")
    assert wrong(report) == ["address"]
    advice = advised(report, "address")
    assert advice.endswith('/v1", dialect = "openai_chat"')
    assert "/wrong" not in advice


@pytest.mark.parametrize("answer", [whole(PAGE, headers=("content-type: text/html",)), NOT_FOUND])
def test_a_web_server_is_no_api(answer: bytes) -> None:
    report = checked(says(answer))
    assert wrong(report) == ["address"]
    assert "no Chat Completions API at" in verdict(report)


@pytest.mark.parametrize("status", ["403 Forbidden", "502 Bad Gateway"])
def test_a_page_before_the_host_is_not_blamed_on_the_key(status: str) -> None:
    report = checked(says(whole(PAGE, status=status, headers=("content-type: text/html",))))
    assert wrong(report) == ["answer"]
    assert "firewall" in advised(report, "answer")


def test_a_page_instead_of_one_response_says_nothing_about_the_dialect() -> None:
    chat = chat_host(whole(PAGE, headers=("content-type: text/html",)))

    async def script(peer: Peer, asked: HostRequest) -> None:
        await (peer.send(EMPTY) if asked.path == "/v1/messages" else chat(peer, asked))

    report = checked(script)
    assert wrong(report) == ["answer"]
    assert finding(report, "answer").said == "the host returned a web page (title: Welcome), not an API response"
    assert "check api_base_url, and any proxy" in advised(report, "answer")


def test_a_redirect_is_told_and_not_followed() -> None:
    moved = whole(
        b"", status="301 Moved", headers=("location: https://api.example.com/v1/chat/completions?key=1234567",)
    )
    report = checked(says(moved))
    assert wrong(report) == ["address"]
    assert "https://api.example.com/v1" in verdict(report)
    assert "1234567" not in repr(report)


# --- the dialect ------------------------------------------------------------------------------------------------


def test_chat_at_a_host_of_messages_leads_to_messages() -> None:
    report = checked(messages_host, base="/anthropic/v1")
    assert wrong(report) == ["dialect"]
    assert advised(report, "dialect").endswith('/anthropic/v1", dialect = "anthropic"')


def test_messages_at_a_host_of_chat_leads_to_chat() -> None:
    report = checked(chat_host(), base="/anthropic", dialect="anthropic")
    assert wrong(report) == ["dialect"]
    assert advised(report, "dialect").endswith('/v1", dialect = "openai_chat"')


@pytest.mark.parametrize(
    ("dialect", "answer", "speaks"),
    [
        ("openai_chat", messages_stream(finish="end_turn"), "anthropic"),
        ("anthropic", chat_stream({"content": "Hello"}), "openai_chat"),
    ],
)
def test_an_endpoint_that_answers_in_another_dialect_is_told(dialect: str, answer: bytes, speaks: str) -> None:
    report = checked(says(events(answer)), dialect=dialect)
    assert wrong(report) == ["dialect"]
    assert speaks in advised(report, "dialect")


def test_the_advice_works() -> None:
    async def ask() -> None:
        async with Host(messages_host) as host:
            [report] = await check(provider_at(host.url))
            advice = advised(report, "dialect").split('"')
            fixed = provider_at(host.url, api_base_url=advice[1], dialect=advice[3])
            assert endpoint_of(fixed) == f"{host.url}/anthropic/v1/messages"
            [again] = await check(fixed)
            assert wrong(again) == []

    run(ask())


# --- the key ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "kind", "word"),
    [
        ("401 Unauthorized", "invalid_authentication_error", "unexpired key of this host"),
        ("403 Forbidden", "permission_denied_error", "not permitted to do this"),
        ("429 Too Many", "exceeded_current_quota_error", "no credit left"),
    ],
)
def test_a_key_that_is_refused_is_told_with_its_source_and_never_itself(status: str, kind: str, word: str) -> None:
    report = checked(says(error(status, f"Incorrect API key {KEY}", kind)))
    assert wrong(report) == ["key"]
    said = finding(report, "key")
    assert "SOME_API_KEY" in said.said
    assert status[:3] in said.said
    assert "***" in said.said
    assert word in advised(report, "key")


def test_an_agent_that_the_host_does_not_accept_says_nothing_about_the_key() -> None:
    report = checked(says(error("403 Forbidden", "only for Coding Agents", "access_terminated_error")))
    assert wrong(report) == ["answer"]
    assert finding(report, "key").state == "unknown"
    assert verdict(report) == "answer: the host does not accept this User-Agent: 403, only for Coding Agents"
    assert "--user-agent claude-cli/2.0" in advised(report, "answer")
    (said,) = [one for one in report.findings if one.state == "wrong"]
    assert "--" not in (advice(said, of_doctor=False) or "")


def test_a_key_that_is_not_there_is_told_with_the_place_it_was_looked_for() -> None:
    refusal = says(error("401 Unauthorized", "no key", "invalid_authentication_error"))
    report = checked(refusal, keys=(), key_sources=(KeySource("SOME_API_KEY", found=False),))
    assert wrong(report) == ["key"]
    assert "SOME_API_KEY is not set" in verdict(report)


def test_every_key_is_tried() -> None:
    good = chat_host()

    async def script(peer: Peer, asked: HostRequest) -> None:
        if asked.headers["authorization"] == "Bearer second-key":
            await peer.send(error("401 Unauthorized", "who?", "invalid_authentication_error"))
        else:
            await good(peer, asked)

    report = checked(script, keys=(Secret(KEY), Secret("second-key"), Secret("third-key")))
    assert wrong(report) == ["key"]
    assert "key 2 of 3 was rejected (401)" in verdict(report)
    assert finding(report, "answer").state == "right"


def test_headers_of_the_configuration_are_sent_and_never_shown() -> None:
    async def script(peer: Peer, asked: HostRequest) -> None:
        await peer.send(error("400 Bad Request", f"I saw {asked.headers['x-secret']} of {asked.headers['user-agent']}"))

    async def ask() -> ProviderReport:
        async with Host(script) as host:
            provider = provider_at(host.url, headers={"X-Secret": "hidden-value"})
            return (await check(provider, user_agent="curl/8"))[0]

    report = run(ask())
    assert verdict(report) == "answer: 400, I saw *** of curl/8"


# --- the model --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "answer",
    [
        error("404 Not Found", "Not found the model kimi-k2p5 or Permission denied", "resource_not_found_error"),
        error("404 Not Found", "no such thing"),
        error("400 Bad Request", "kimi-k2p5 is not a valid model ID"),
    ],
)
def test_an_unknown_model_is_told_with_the_nearest_names(answer: bytes) -> None:
    report = checked(chat_host(answer), model="kimi-k2p5")
    assert wrong(report) == ["model"]
    assert advised(report, "model") == "the host has: kimi-k2.5, kimi-k3"


def test_the_note_about_the_window_is_not_part_of_the_name() -> None:
    report = checked(chat_host(), model="kimi-k3[1m]")
    assert (report.model, wrong(report)) == ("kimi-k3", [])


def test_an_unknown_model_is_told_where_the_host_has_no_list() -> None:
    answer = error("404 Not Found", f"The model `{MODEL}` does not exist.")
    report = checked(chat_host(answer, models=NOT_FOUND))
    assert wrong(report) == ["model"]
    assert "--model" in advised(report, "model")


def test_a_404_at_the_right_address_is_about_the_model_even_if_messages_is_spoken_beside_it() -> None:
    chat = chat_host(error("404 Not Found", "No endpoints found that support tool use."))

    async def script(peer: Peer, asked: HostRequest) -> None:
        if asked.path == "/v1/messages":
            await peer.send(EMPTY)
        else:
            await chat(peer, asked)

    report = checked(script)
    assert wrong(report) == ["model"]
    assert "support tool use" in verdict(report)
    assert finding(report, "model").cause == "model_not_served"


def test_without_a_model_the_list_of_the_host_has_one() -> None:
    report = checked(chat_host(models=whole(b'[{"id":"glm-5"},{"id":"moonshotai/kimi-k3"}]')), models=())
    assert wrong(report) == []
    assert report.model == "moonshotai/kimi-k3"


def test_an_alias_says_which_model_is_asked_for() -> None:
    async def ask() -> ProviderReport:
        async with Host(chat_host()) as host:
            config = Config(
                providers=(provider_at(host.url, models=()),), aliases={"claude-*": ("other/x", "host/kimi-k3")}
            )
            [report] = [report async for report in check_providers(config, seconds=5.0)]
            return report

    assert run(ask()).model == "kimi-k3"


# --- the round --------------------------------------------------------------------------------------------------


def test_a_model_that_never_calls_the_tool_is_told() -> None:
    report = checked(chat_host(events(chat_stream({"content": "It is sunny, I guess."}))))
    assert wrong(report) == ["call"]
    assert report.call == "none"
    assert "--enable-auto-tool-choice" in advised(report, "call")
    assert finding(report, "key").state == "right"


def test_a_model_that_thinks_until_it_is_cut_off_is_told() -> None:
    thinking = chat_stream({"reasoning_content": "Hm. " * 20}, finish="length")
    report = checked(chat_host(events(thinking)))
    assert wrong(report) == ["call"]
    assert "2048 tokens" in verdict(report)


def test_markers_that_the_chain_leaves_alone_are_told() -> None:
    chain = (TransformerUse("Kimi", {"manualToolParsing": False}),)
    report = checked(chat_host(events(chat_stream({"content": MARKERS}))), transformers=chain)
    assert wrong(report) == ["call"]
    assert "manualToolParsing" in advised(report, "call")


def test_a_call_without_what_the_schema_asks_for_is_told() -> None:
    report = checked(chat_host(events(native_call(arguments='{"town":"Paris"}'))))
    assert wrong(report) == ["call"]


def test_a_host_that_refuses_the_result_is_told() -> None:
    report = checked(chat_host(second=error("400 Bad Request", "invalid role: tool")))
    assert wrong(report) == ["answer"]
    assert "invalid role: tool" in verdict(report)


def test_an_answer_of_only_reasoning_is_told() -> None:
    report = checked(chat_host(second=events(chat_stream({"reasoning_content": "Rain."}))))
    assert wrong(report) == ["answer"]
    assert "retry_empty_answer" in advised(report, "answer")


@pytest.mark.parametrize(
    ("answer", "advice"),
    [
        (error("429 Too Many", "slow down", "rate_limit_reached_error"), "rate limit reached"),
        (error("503 Busy", "The engine is currently overloaded", "engine_overloaded_error"), "the host is overloaded"),
        (error("500 Oops", "worker died", "server_error"), "the host failed"),
        (whole(b'{"error":{"message":"overloaded","type":"overloaded_error"}}'), "the host is overloaded"),
        (error("400 Bad Request", "Your request exceeded model token limit: 100"), "check the context window"),
    ],
)
def test_trouble_at_the_host_is_not_blamed_on_the_key(answer: bytes, advice: str) -> None:
    report = checked(says(answer))
    assert wrong(report) == ["answer"]
    assert advice in advised(report, "answer")


def test_a_transformer_that_cannot_be_loaded_is_told() -> None:
    report = checked(chat_host(), transformers=(TransformerUse("Kimmi"),))
    assert wrong(report) == ["chain"]
    assert "Kimmi" in verdict(report)


# --- several ----------------------------------------------------------------------------------------------------


def test_providers_are_asked_at_the_same_time_and_told_in_order() -> None:
    import asyncio

    async def ask() -> None:
        both = asyncio.Barrier(2)

        def together(inner: Callable[[Peer, HostRequest], Awaitable[None]]) -> Script:
            async def script(peer: Peer, asked: HostRequest) -> None:
                if not any("tool" in message["role"] for message in json.loads(asked.body)["messages"]):
                    await both.wait()
                await inner(peer, asked)

            return script

        async with Host(together(chat_host())) as one, Host(together(chat_host())) as other:
            providers = [provider_at(host.url, name=name) for name, host in (("b", one), ("a", other))]
            found = await check(*providers)
            assert [(report.provider, report.right) for report in found] == [("b", True), ("a", True)]

    run(ask())


def test_no_more_are_asked_at_once_than_may_be() -> None:
    open_now: list[int] = []

    async def ask() -> Iterable[ProviderReport]:
        async def script(peer: Peer, asked: HostRequest) -> None:
            open_now.append(host.open)
            await chat_host()(peer, asked)
            peer.writer.close()

        async with Host(script) as host:
            return await check(*(provider_at(host.url, name=f"p{n}") for n in range(4)), at_once=1)

    assert all(report.right for report in run(ask()))
    assert set(open_now) == {1}


@pytest.mark.parametrize(("model", "said"), [("my-kimi", "strictest rules"), ("kimi-k4", "treated as k3.1")])
def test_a_guessed_generation_is_part_of_the_line_of_the_model(model: str, said: str) -> None:
    report = checked(chat_host(), models=(model,))
    assert wrong(report) == []
    assert said in finding(report, "model").said
    assert said not in finding(checked(chat_host(), models=(model,), overrides={"generation": "k3"}), "model").said
