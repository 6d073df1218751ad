"""What keeps web pages from spending the keys of whoever looks at them."""

from __future__ import annotations

import pytest

from moonshim.config import Config, GatewayKey
from moonshim.errors import Problem, Refused
from moonshim.gateway.inbound.origin import check_origin, cors_headers, preflight_headers

KEYS = (GatewayKey(name="a", digest="sha256:" + "0" * 64),)
PAGE = "https://chat.example.com"
OPEN = Config(allowed_hosts=("box.local", "team.local:9000"), allowed_origins=(PAGE + "/", "app://obsidian.md"))
KEYED = Config(keys=KEYS, allowed_origins=(PAGE,))


def allowed(config: Config, *, loopback: bool = True, **headers: str) -> bool:
    try:
        check_origin(config, named(headers), bound_to_loopback=loopback)
    except Refused:
        return False
    return True


def refusal(config: Config, **headers: str) -> Problem:
    with pytest.raises(Refused) as refused:
        check_origin(config, named(headers), bound_to_loopback=True)
    return refused.value.problem


def named(headers: dict[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in headers.items()}


OURS = [
    "localhost",
    "localhost:8484",
    "LocalHost:8484",
    "localhost.",
    "localhost.:8484",
    "localhost:",
    "127.0.0.1",
    "127.0.0.1:1",
    "127.0.0.2:8484",
    "[::1]",
    "[::1]:65535",
    "[0:0:0:0:0:0:0:1]:8484",
    "box.local",
    "BOX.local.:8484",
    "team.local:9000",
]
FOREIGN = [
    "evil.example",
    "evil.example:8484",
    "localhost.evil.example",
    "evil.example.localhost",
    "notlocalhost",
    "127.0.0.1.evil.example",
    "127.0.0.1.nip.io:8484",
    "0.0.0.0:8484",
    "[::]:8484",
    "[::ffff:10.0.0.1]:8484",
    "192.168.1.5:8484",
    "2130706433",
    "0x7f.1",
    "team.local:8484",
    "evil.box.local",
]
NO_HOST = [
    "localhost, evil.example",
    "evil.example, localhost",
    "localhost evil.example",
    "me@localhost",
    "localhost@evil.example",
    "localhost:8484:8484",
    "localhost:port",
    "localhost:-1",
    "localhost:999999",
    "localhost..",
    "http://localhost",
    "localhost/",
    "localhost#",
    "localhost\\",
    "[::1",
    "::1",
    "[::1%eth0]",
    "lоcalhost",  # noqa: RUF001 - the second letter is Cyrillic
    "",
    "localhost\x00",
]


@pytest.mark.parametrize("host", OURS)
def test_our_own_names_are_served_however_they_are_written(host: str) -> None:
    assert allowed(OPEN, host=host)


@pytest.mark.parametrize("host", FOREIGN)
def test_dns_rebinding_is_refused_since_a_page_cannot_change_its_host(host: str) -> None:
    assert refusal(OPEN, host=host).status == 403
    assert "allowed_hosts" in refusal(OPEN, host=host).message


@pytest.mark.parametrize("host", NO_HOST)
def test_a_host_that_could_be_read_in_two_ways_is_refused(host: str) -> None:
    assert not allowed(OPEN, host=host)
    assert not allowed(KEYED, host=host)


def test_a_request_without_a_host_is_refused_where_the_host_counts() -> None:
    assert not allowed(OPEN)
    assert allowed(KEYED)


def test_with_keys_or_on_another_address_any_name_will_do() -> None:
    assert allowed(KEYED, host="gateway.example.com")
    assert allowed(Config(open_without_keys=True), loopback=False, host="moonshim:8484")


STRANGERS = [
    "https://evil.example",
    "http://localhost:3000",  # another program on this machine
    "http://localhost",
    "http://127.0.0.1:8484",  # not what the browser was connected to
    "null",  # a sandboxed frame, a file
    "file://",
    "chrome-extension://abcdef",
    "http://localhost:8484.evil.example",
    "http://localhost:8484@evil.example",
    "http://localhost:8484, https://evil.example",
    "https://chat.example.com.evil.example",
    "https://chat.example.com:444",
    "http://chat.example.com",
    "https://evil.example/https://chat.example.com",
    "",
]


@pytest.mark.parametrize("origin", STRANGERS)
@pytest.mark.parametrize("config", [OPEN, KEYED], ids=["without keys", "with keys"])
def test_a_page_that_is_not_listed_cannot_spend_the_key(config: Config, origin: str) -> None:
    problem = refusal(config, host="localhost:8484", origin=origin)
    assert problem.status == 403
    assert problem.kind == "permission"
    assert "allowed_origins" in problem.message


@pytest.mark.parametrize("origin", [PAGE, "HTTPS://Chat.Example.com", PAGE + ":443", "app://obsidian.md"])
def test_a_page_that_is_listed_may_call(origin: str) -> None:
    assert allowed(OPEN, host="localhost:8484", origin=origin)


@pytest.mark.parametrize("host", ["localhost:8484", "127.0.0.1:8484", "[::1]:8484", "box.local:8484"])
def test_our_own_pages_may_call(host: str) -> None:
    assert allowed(OPEN, host=host, origin=f"http://{host}")
    assert allowed(OPEN, host=host, origin=f"https://{host}")  # with TLS before it


def test_a_rebinding_page_does_not_pass_as_our_own_on_another_address() -> None:
    """There its name is both `Host` and `Origin`. With keys that is no danger, for it has none."""
    open_to_all = Config(open_without_keys=True)
    assert not allowed(open_to_all, loopback=False, host="evil.example:8484", origin="http://evil.example:8484")
    assert allowed(open_to_all, loopback=False, host="192.168.1.5:8484", origin="http://192.168.1.5:8484")
    assert allowed(KEYED, loopback=False, host="gateway.example.com", origin="https://gateway.example.com")


@pytest.mark.parametrize(("site", "served"), [("cross-site", False), ("same-site", False), ("Cross-Site", False)])
@pytest.mark.parametrize("config", [OPEN, KEYED], ids=["without keys", "with keys"])
def test_an_image_or_script_of_another_page_is_refused_though_it_has_no_origin(
    config: Config, site: str, served: bool
) -> None:
    assert allowed(config, host="localhost:8484", sec_fetch_site=site) is served


def test_what_a_person_opens_in_a_browser_is_served() -> None:
    for site in ("none", "same-origin"):
        assert allowed(OPEN, host="localhost:8484", sec_fetch_site=site)
    assert allowed(OPEN, host="localhost:8484", sec_fetch_site="cross-site", origin=PAGE)


FORMS = [
    "text/plain",
    "text/plain;charset=UTF-8",
    "application/x-www-form-urlencoded",
    "Multipart/Form-Data; boundary=x",
]


@pytest.mark.parametrize("kind", FORMS)
def test_a_page_cannot_send_json_as_a_form_and_so_without_asking(kind: str) -> None:
    problem = refusal(OPEN, host="localhost", origin=PAGE, content_type=kind)
    assert problem.status == 415


@pytest.mark.parametrize("kind", [*FORMS, "application/json", ""])
def test_curl_may_call_its_json_what_it_likes(kind: str) -> None:
    assert allowed(OPEN, host="localhost", content_type=kind)


def test_a_star_means_every_page_only_where_there_are_keys() -> None:
    assert allowed(Config(keys=KEYS, allowed_origins=("*",)), host="localhost", origin="https://any.example")
    assert not allowed(Config(allowed_origins=("*",)), host="localhost", origin="https://any.example")


def test_a_refusal_repeats_no_more_than_a_piece_of_what_was_sent() -> None:
    problem = refusal(OPEN, host="x" * 10_000)
    assert len(problem.message) < 300


# -- CORS --------------------------------------------------------------------------------------------------------

ASKING = {
    "host": "localhost:8484",
    "origin": PAGE,
    "access-control-request-method": "POST",
    "access-control-request-headers": "authorization,content-type,x-stainless-os",
}


@pytest.mark.parametrize("config", [OPEN, KEYED], ids=["without keys", "with keys"])
def test_a_listed_page_that_asks_first_is_told_what_it_may_do(config: Config) -> None:
    answer = dict(preflight_headers(config, ASKING) or [])
    assert answer[b"access-control-allow-origin"] == PAGE.encode()
    assert b"POST" in answer[b"access-control-allow-methods"]
    assert answer[b"access-control-allow-headers"] == b"authorization,content-type,x-stainless-os"
    assert answer[b"vary"] == b"origin"
    assert b"access-control-allow-credentials" not in answer
    assert b"access-control-allow-private-network" not in answer
    asking = ASKING | {"access-control-request-private-network": "true"}
    assert (b"access-control-allow-private-network", b"true") in (preflight_headers(config, asking) or [])


def test_a_page_that_is_not_listed_is_told_no_when_it_asks() -> None:
    with pytest.raises(Refused) as refused:
        preflight_headers(OPEN, ASKING | {"origin": "https://evil.example"})
    assert refused.value.problem.status == 403


def test_what_asks_nothing_is_no_preflight() -> None:
    assert preflight_headers(OPEN, {"host": "localhost", "origin": PAGE}) is None
    assert preflight_headers(OPEN, {"host": "localhost", "access-control-request-method": "POST"}) is None


@pytest.mark.parametrize("wanted", ["a\r\nset-cookie: x=y", "a b", "a,,b", "ä", "a: b"])
def test_header_names_that_a_page_makes_up_do_not_get_into_the_answer(wanted: str) -> None:
    answer = preflight_headers(OPEN, ASKING | {"access-control-request-headers": wanted}) or []
    assert b"access-control-allow-headers" not in dict(answer)


def test_answers_to_listed_pages_may_be_read_and_others_not() -> None:
    answer = dict(cors_headers(OPEN, {"origin": PAGE}))
    assert answer[b"access-control-allow-origin"] == PAGE.encode()
    assert b"x-request-id" in answer[b"access-control-expose-headers"]
    assert cors_headers(OPEN, {"origin": "https://evil.example"}) == []
    assert cors_headers(OPEN, {}) == []
