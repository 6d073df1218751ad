"""Errors of all hosts become problems that say what went wrong, how long to wait, and nothing secret."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moonshim.engine.hosts.detect import profile_for
from moonshim.engine.hosts.errors.body import LONGEST_MESSAGE
from moonshim.engine.hosts.errors.classify import mask_problem, read_problem
from moonshim.engine.hosts.errors.context_overflow import read_overflow
from moonshim.errors import ProblemKind

Json = dict[str, Any]


def openai(message: str, type: str = "invalid_request_error", **more: Any) -> Json:
    return {"error": {"message": message, "type": type, **more}}


MISSING = "thinking is enabled but reasoning_content is missing in assistant tool call message at index 3"
INNER = msgspec.json.encode(openai(MISSING)).decode()
CYCLE = (
    "You've reached your usage limit for this billing cycle. Your quota will be refreshed in the next cycle. To"
    " continue now, purchase extra usage or upgrade your plan: https://www.kimi.com/code/#pricing"
)
WEEK = "You've reached your weekly (7-day) usage limit. Your quota will reset when the current 7-day window ends."

# name: status, body, kind, message, code
ERRORS: dict[str, tuple[int, Json | list[Any] | bytes, str, str, str | None]] = {
    "Moonshot": (400, openai(MISSING), "invalid_request", MISSING, "invalid_request_error"),
    "Moonshot is overloaded": (
        429,
        openai("The engine is currently overloaded, please try again later", "engine_overloaded_error"),
        "overloaded",
        "The engine is currently overloaded, please try again later",
        "engine_overloaded_error",
    ),
    "Moonshot limits the rate": (
        429,
        openai("Your account reached max RPM: 3", "rate_limit_reached_error"),
        "rate_limit",
        "Your account reached max RPM: 3",
        "rate_limit_reached_error",
    ),
    "Moonshot wants money": (
        429,
        openai("You exceeded your current token quota", "exceeded_current_quota_error"),
        "quota",
        "You exceeded your current token quota",
        "exceeded_current_quota_error",
    ),
    "money, told by the message alone": (
        403,
        {"message": "Sorry, your account has insufficient balance"},
        "quota",
        "Sorry, your account has insufficient balance",
        None,
    ),
    "Kimi Code's billing cycle is used up": (
        403,
        {"error": {"type": "permission_error", "message": CYCLE}, "type": "error"},
        "quota",
        CYCLE,
        "permission_error",
    ),
    "Kimi Code's week is used up": (
        403,
        openai(WEEK, "access_terminated_error"),
        "quota",
        WEEK,
        "access_terminated_error",
    ),
    "a host wants to be paid": (402, {"detail": "Payment required"}, "quota", "Payment required", None),
    "Kimi Code does not know the client": (
        403,
        openai("Kimi For Coding is currently only available for Coding Agents", "access_terminated_error"),
        "permission",
        "Kimi For Coding is currently only available for Coding Agents",
        "access_terminated_error",
    ),
    "too large": (
        413,
        openai("Request exceeds the maximum size"),
        "too_large",
        "Request exceeds the maximum size",
        "invalid_request_error",
    ),
    "SiliconFlow": (400, {"code": 20015, "message": MISSING, "data": None}, "invalid_request", MISSING, "20015"),
    "Anthropic's shape": (
        400,
        {"type": "error", "error": {"type": "invalid_request_error", "message": MISSING}},
        "invalid_request",
        MISSING,
        "invalid_request_error",
    ),
    "Anthropic is overloaded": (
        529,
        {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
        "overloaded",
        "Overloaded",
        "overloaded_error",
    ),
    "an overloaded engine behind Moonshot's Messages": (
        429,
        {"type": "error", "error": {"type": "rate_limit_error", "message": "The engine is currently overloaded"}},
        "overloaded",
        "The engine is currently overloaded",
        "rate_limit_error",
    ),
    "an empty account behind Moonshot's Messages": (
        429,
        {"type": "error", "error": {"type": "rate_limit_error", "message": "Please check your account balance"}},
        "quota",
        "Please check your account balance",
        "rate_limit_error",
    ),
    "a rate limit behind Moonshot's Messages": (
        429,
        {"type": "error", "error": {"type": "rate_limit_error", "message": "reached organization max RPM: 20"}},
        "rate_limit",
        "reached organization max RPM: 20",
        "rate_limit_error",
    ),
    "OpenRouter hands on": (
        400,
        {
            "error": {
                "message": "Provider returned error",
                "code": 400,
                "metadata": {"raw": INNER, "provider_name": "Moonshot AI"},
            }
        },
        "invalid_request",
        MISSING,
        "invalid_request_error",
    ),
    "OpenRouter hands on a value": (
        400,
        {"error": {"message": "Provider returned error", "code": 400, "metadata": {"raw": openai(MISSING)}}},
        "invalid_request",
        MISSING,
        "invalid_request_error",
    ),
    "OpenRouter hands on words": (
        502,
        {"error": {"message": "Provider returned error", "code": 502, "metadata": {"raw": "no such host"}}},
        "server",
        "no such host",
        None,
    ),
    "an error whose message is an error": (
        400,
        {"error": {"message": INNER}},
        "invalid_request",
        MISSING,
        "invalid_request_error",
    ),
    "Groq": (
        400,
        openai("'messages.39' : property 'content' is missing", code="bad"),
        "invalid_request",
        "'messages.39' : property 'content' is missing",
        "bad",
    ),
    "vLLM": (
        404,
        {"object": "error", "message": "The model does not exist.", "type": "NotFoundError", "code": 404},
        "not_found",
        "The model does not exist.",
        "NotFoundError",
    ),
    "a word and nothing else": (400, {"error": "no"}, "invalid_request", "no", None),
    "DeepInfra": (500, {"detail": {"error": "inference failed"}}, "server", "inference failed", None),
    "a key that is wrong": (
        401,
        openai("Invalid Authentication", "invalid_authentication_error"),
        "authentication",
        "Invalid Authentication",
        "invalid_authentication_error",
    ),
    "in a list": (400, [openai("no")], "invalid_request", "no", "invalid_request_error"),
    "in the frame of a stream": (500, b'data: {"error":{"message":"broke"}}\n\n', "server", "broke", None),
    "in a response that went well": (
        200,
        {"error": {"message": "slow down", "code": 429}},
        "rate_limit",
        "slow down",
        None,
    ),
    "plain text": (502, b"upstream connect error\n", "server", "upstream connect error", None),
    "a web page": (
        503,
        b"<!DOCTYPE html>\n<html><head><title>\n 503 Service Unavailable</title><style>a{}</style></head></html>",
        "overloaded",
        "the host returned status 503 with an HTML page: 503 Service Unavailable",
        None,
    ),
    "a web page without a title": (
        500,
        b"<html><p>x</p></html>",
        "server",
        "the host returned status 500 with an HTML page",
        None,
    ),
    "nothing": (504, b"", "timeout", "the host returned status 504 without a message", None),
    "an object that says nothing": (
        400,
        {"a": 1},
        "invalid_request",
        "the host returned status 400 without a message",
        None,
    ),
    "bytes that are no text": (
        500,
        b"\x1f\x8b\x00\xff\xfe",
        "server",
        "the host returned status 500 without a message",
        None,
    ),
}


@pytest.mark.parametrize(("status", "body", "kind", "message", "code"), ERRORS.values(), ids=ERRORS.keys())
def test_the_problem_is(status: int, body: Json | list[Any] | bytes, kind: str, message: str, code: str | None) -> None:
    problem = read_problem(status, body if isinstance(body, bytes) else msgspec.json.encode(body), {})
    assert (problem.kind, problem.message, problem.code) == (kind, message, code)


@pytest.mark.parametrize("status", [200, 402, 403, 429])
def test_a_spent_quota_is_a_429_that_no_retry_helps(status: int) -> None:
    problem = read_problem(status, msgspec.json.encode(openai(CYCLE, "exceeded_current_quota_error")), {})
    assert (problem.status, problem.retry_headers) == (429, {"x-should-retry": "false"})


def test_a_limit_for_a_moment_is_no_spent_quota() -> None:
    body = msgspec.json.encode(openai("You've reached your usage limit of 3 requests per minute."))
    assert read_problem(429, body, {}).kind == "rate_limit"
    assert read_problem(403, body, {}).kind == "permission"


def test_numbers_that_nobody_can_write_are_left_out() -> None:
    huge = b"1" * 5000
    problem = read_problem(400, b'{"code":' + huge + b',"detail":[{"msg":"no","loc":["a",' + huge + b"]}]}", {})
    assert problem.code is None


def test_the_wrong_field_is_named() -> None:
    fast = b'{"detail":[{"loc":["body","messages",0,"role"],"msg":"field required","type":"missing"}]}'
    assert read_problem(422, fast, {}).param == "messages.0.role"
    assert read_problem(400, msgspec.json.encode(openai("no", param="top_p")), {}).param == "top_p"


# The words of each host, and the numbers in them.
OVERFLOWS = [
    msgspec.json.decode(line) for line in (Path(__file__).parent / "overflows.jsonl").read_text("utf-8").splitlines()
]


@pytest.mark.parametrize("case", OVERFLOWS, ids=[case["who"] for case in OVERFLOWS])
@pytest.mark.parametrize("status", [400, 413, 422, 500])
def test_an_overflow_is_known(case: Json, status: int) -> None:
    problem = read_problem(status, msgspec.json.encode(openai(case["message"])), {})
    found = (problem.kind, problem.status, problem.tokens, problem.limit)
    assert found == ("context_overflow", 400, case["tokens"], case["limit"])


def test_a_limit_that_the_host_does_not_tell_is_that_of_the_row() -> None:
    body = msgspec.json.encode(openai("too much", code="context_length_exceeded"))
    problem = read_problem(400, body, {}, profile_for(host="groq", model="kimi-k2-0905"))
    assert (problem.kind, problem.tokens, problem.limit) == ("context_overflow", None, 262_144)
    assert read_problem(400, b"no", {}, profile_for(model="k3")).limit is None


OTHERS = [
    "max_tokens is too large: 300000. This model supports at most 16384 completion tokens",
    "Rate limit reached: tokens per minute (TPM): Limit 6000, Requested 8000. Please try again in 2s",
    "function name is too long",
    "thinking is enabled but reasoning_content is missing",
]


@pytest.mark.parametrize("message", OTHERS)
def test_other_complaints_are_no_overflow(message: str) -> None:
    assert read_overflow(message) is None


# status, headers, message -> seconds
WAITS: dict[str, tuple[int, dict[str, str], str, float | None]] = {
    "seconds": (429, {"Retry-After": "12"}, "x", 12.0),
    "half a second": (503, {"retry-after": "0.5"}, "x", 0.5),
    "milliseconds": (429, {"retry-after-ms": "1500", "retry-after": "9"}, "x", 1.5),
    "a date cannot be read without a clock": (429, {"retry-after": "Wed, 21 Oct 2026 07:28:00 GMT"}, "x", 5.0),
    "nothing said": (429, {}, "x", 5.0),
    "overloaded": (529, {}, "x", 5.0),
    "no reason to wait": (400, {}, "x", None),
    "told with another status": (500, {"retry-after": "3"}, "x", 3.0),
    "words of Groq": (429, {}, "Please try again in 7.5s. Visit", 7.5),
    "more words of Groq": (429, {}, "Please try again in 1m2.5s.", 62.5),
    "milliseconds in words": (429, {}, "try again in 500ms", 0.5),
    "words of Moonshot": (429, {}, "please try again after 1 seconds", 1.0),
    "for ever is a day": (429, {"retry-after": "999999999"}, "x", 86_400.0),
    "less than nothing": (429, {"retry-after": "-1"}, "x", 5.0),
    "no number": (429, {"retry-after": "nan"}, "x", 5.0),
}


@pytest.mark.parametrize(("status", "headers", "message", "seconds"), WAITS.values(), ids=WAITS.keys())
def test_how_long_to_wait(status: int, headers: dict[str, str], message: str, seconds: float | None) -> None:
    assert read_problem(status, msgspec.json.encode(openai(message)), headers).retry_after == seconds


def test_the_request_is_known_by_the_first_of_its_names() -> None:
    headers = {"CF-Ray": "c", "X-Trace-Id": "t", "Request-Id": "r"}
    assert read_problem(500, b"", headers).request_id == "t"
    assert read_problem(500, b"", {"CF-Ray": "c"}).request_id == "c"
    assert read_problem(500, b'{"type":"error","error":{"message":"x"},"request_id":"b"}', {}).request_id == "b"
    assert read_problem(500, b"", {}).request_id is None


SECRETS = [
    "Incorrect API key provided: sk-abcdEFGH12345678.",
    "bad header Authorization: Bearer abcdEFGH12345678",
    "x-api-key: abcdEFGH12345678 is wrong",
    "key gsk_abcdEFGH12345678 is not known",
    'config {"api_key": "abcdEFGH12345678"}',
    "token eyJhbGciOiJIUzI1NiJ9.abcdEFGH12345678.zzzz",
]


@pytest.mark.parametrize("message", SECRETS)
@pytest.mark.parametrize("plain", [True, False])
def test_keys_do_not_travel(message: str, plain: bool) -> None:
    body = message.encode() if plain else msgspec.json.encode(openai(message))
    assert "EFGH12345678" not in read_problem(401, body, {}).message


OUR_KEY = "plainkey0123456789plainkey"


@pytest.mark.parametrize("status", [401, 200])
@pytest.mark.parametrize(
    "body",
    [
        openai(f"no such key: {OUR_KEY}", code=f"bad_{OUR_KEY}", param=OUR_KEY) | {"request_id": OUR_KEY},
        openai("x" * (LONGEST_MESSAGE - 10) + OUR_KEY, param=OUR_KEY),
        openai(f"{OUR_KEY} " * 400, param=OUR_KEY),
        openai("\x01".join(OUR_KEY), param=OUR_KEY),
        {"error": {"message": "Provider returned error", "metadata": {"raw": f"bad key {OUR_KEY}"}}},
        f"bad key {OUR_KEY}".encode(),
        (f"{OUR_KEY} " * 2000).encode(),
        f"<html><title>{OUR_KEY}</title></html>".encode(),
    ],
)
def test_what_a_host_was_sent_and_repeats_does_not_travel(body: Any, status: int) -> None:
    sent = body if isinstance(body, bytes) else msgspec.json.encode(body)
    problem = read_problem(status, sent, {"x-request-id": f"id-{OUR_KEY}"}, secrets=[OUR_KEY])
    told = f"{problem.message} {problem.code} {problem.param} {problem.request_id}"
    assert not any(OUR_KEY[:size] in told for size in range(8, len(OUR_KEY) + 1))
    assert problem.request_id is None


def test_a_problem_that_is_already_read_loses_its_secrets_too() -> None:
    problem = read_problem(401, msgspec.json.encode(openai(f"bad {OUR_KEY}", code=OUR_KEY, param=OUR_KEY)), {})
    assert OUR_KEY in problem.message
    clean = mask_problem(msgspec.structs.replace(problem, request_id=OUR_KEY), [OUR_KEY])
    assert (clean.message, clean.code, clean.param, clean.request_id) == ("bad …", "…", "…", None)
    assert mask_problem(problem, ()) is problem


@pytest.mark.parametrize("nasty", ["a\r\nset-cookie: x=1", "a\x00", "a\x9b31m", "a\u202eb", "ü", "\x7f"])
def test_a_request_id_goes_into_a_header_and_is_left_out_when_it_cannot(nasty: str) -> None:
    assert read_problem(500, msgspec.json.encode(openai("x") | {"request_id": nasty}), {}).request_id is None
    told = read_problem(500, b"", {"x-request-id": nasty, "cf-ray": "usable"})
    assert told.request_id == "usable"


def test_the_words_of_an_error_stay_on_their_line() -> None:
    body = msgspec.json.encode(openai("no", code="a\r\nb\x9b31m\u2028c", param="p\x00\u202eq"))
    problem = read_problem(400, body, {})
    assert (problem.code, problem.param) == ("a b 31m c", "p q")


def test_words_that_only_look_like_keys_stay() -> None:
    told = "the task-manager-tool and risk-assessment-tool are unknown, as is basic auth"
    assert read_problem(400, told.encode(), {}).message == told


def test_a_long_message_is_cut() -> None:
    assert len(read_problem(400, b"x" * 100_000, {}).message) == LONGEST_MESSAGE


LONG = [
    "-eyJ",
    "<title> ",
    "Bearer ",
    "sk-",
    "api_key = ",
    "maximum context length is 1 tokens ",
    "try again in 1m",
    " ",
]


@pytest.mark.parametrize("word", LONG)
def test_long_and_nasty_messages_are_read(word: str) -> None:
    for start in ("", "<html>"):
        problem = read_problem(500, (start + word * 200_000).encode(), {})
        assert 0 < len(problem.message) <= LONGEST_MESSAGE


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 600) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["error", "message", "detail", "code", "type", "param", "metadata", "raw", "msg", "loc"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(st.integers(-1, 999), json_values.map(msgspec.json.encode) | st.binary(), st.text(max_size=9))
def test_anything_is_a_problem_and_nothing_raises(status: int, body: bytes, header: str) -> None:
    problem = read_problem(status, body, {"Retry-After": header, "x-request-id": header})
    assert problem.kind in get_args(ProblemKind)
    assert 400 <= problem.status <= 599
    assert problem.message
    assert problem.retry_after is None or problem.retry_after >= 0
