"""Responses that fail: a status instead of one, an error in the middle, a connection that drops or stalls."""

from __future__ import annotations

from typing import Any, Final

from moonshim.engine.wire.json_codec import encode
from moonshim.simulator.fault import CUT, Chunks, Fault, Frames, Piece, Stall, Status
from moonshim.simulator.faults.frames import FOREVER
from moonshim.simulator.faults.parts import carrier, with_choice
from moonshim.simulator.request import Json
from moonshim.simulator.response import HostResponse

__all__ = ["FAULTS"]

_OVERLOADED: Final = "The engine is currently overloaded, please try again later"
_TOO_MANY: Final = "We're receiving too many requests at the moment. Please wait a moment and try again."
_TOO_MANY_A_MINUTE: Final = (
    "Your account org-0001 <ak-0001> request reached organization max RPM: 20, please try again after 1 seconds"
)
_QUOTA: Final = "You exceeded your current token quota: <org-0001>, please check your account balance"
_SUSPENDED: Final = (
    "Your account org-0001 <ak-0001> is suspended due to insufficient balance, "
    "please recharge your account or check your plan and billing details"
)
_CYCLE: Final = (
    "You've reached your usage limit for this billing cycle. Your quota will be refreshed in the next cycle. "
    "To continue now, purchase extra usage or upgrade your plan: https://www.kimi.com/code/#pricing"
)
_GATE: Final = (
    "Kimi For Coding is currently only available for Coding Agents such as "
    "Kimi CLI, Claude Code, Roo Code, Kilo Code, etc."
)
_INTERNAL: Final = "Internal server error"
_NGINX: Final = (
    b"<html>\r\n<head><title>502 Bad Gateway</title></head>\r\n<body>\r\n"
    b"<center><h1>502 Bad Gateway</h1></center>\r\n<hr><center>nginx</center>\r\n</body>\r\n</html>\r\n"
)
_LOGIN: Final = b"<!DOCTYPE html>\n<html><head><title>Sign in</title></head><body><h1>Sign in</h1></body></html>\n"
_HTML: Final = {"content-type": "text/html"}


def _chat_error(message: str, kind: str) -> Json:
    return {"error": {"message": message, "type": kind}}


def _messages_error(message: str, kind: str) -> Json:
    """Kimi Code's order of the fields."""
    return {"error": {"type": kind, "message": message}, "type": "error"}


def _status(status: int, message: str, kind: str, messages_kind: str, **headers: str) -> Status:
    return Status(
        status=status,
        headers={name.replace("_", "-"): value for name, value in headers.items()},
        body=_chat_error(message, kind),
        messages_body=_messages_error(message, messages_kind),
    )


# -- in the middle -----------------------------------------------------------------------------------------------


def _send_in_middle(payload: Json, messages: Json) -> Chunks:
    """Half of the response, then this."""
    return lambda chunks, answer: [*_half(chunks), messages if answer.request.wire == "anthropic" else payload]


def _send_error_first(chunks: list[Json], answer: HostResponse) -> list[Json]:
    if answer.request.wire == "anthropic":
        return [_messages_error(_OVERLOADED, "overloaded_error")]
    return [_chat_error(_OVERLOADED, "engine_overloaded_error")]


def _half(chunks: list[Json]) -> list[Json]:
    return chunks[: max(len(chunks) // 2, 1)]


def _send_error_in_chunk(chunks: list[Json], answer: HostResponse) -> list[Json]:
    error = {"code": 502, "message": "Provider disconnected unexpectedly", "metadata": {"provider_name": "Moonshot AI"}}
    last = with_choice(carrier(chunks, {"role": "assistant", "content": ""}), finish_reason="error")
    return [*_half(chunks), {**last, "error": error}]


def _send_error_without_choices(chunks: list[Json], answer: HostResponse) -> list[Json]:
    error = {"code": 502, "message": "Worker local total request limit reached (33/32)"}
    return [*_half(chunks), {**carrier(chunks, {}), "choices": [], "error": error}]


def _send_raw(data: bytes) -> Frames:
    """Half of the stream, then these bytes, which are not a chunk."""
    return lambda frames, answer: [*frames[: max(len(frames) // 2, 1)], data]


# -- silence -----------------------------------------------------------------------------------------------------


def _cut_before(frames: list[bytes], answer: HostResponse) -> list[Piece]:
    return [CUT]


def _cut_between(frames: list[bytes], answer: HostResponse) -> list[Piece]:
    return [*frames[: max(len(frames) // 2, 1)], CUT]


def _cut_inside(frames: list[bytes], answer: HostResponse) -> list[Piece]:
    """In the middle of a frame, or of the only one."""
    at = len(frames) // 2
    return [*frames[:at], frames[at][: max(len(frames[at]) // 2, 1)], CUT]


def _end_early(frames: list[bytes], answer: HostResponse) -> list[Piece]:
    """The same, but the connection is closed as if the response were complete."""
    return _cut_inside(frames, answer)[:-1]


def _end_between(frames: list[bytes], answer: HostResponse) -> list[Piece]:
    return [*frames[: max(len(frames) // 2, 1)]]


def _fall_silent(seconds: float, *, first: bool = False) -> Frames:
    def frames(frames: list[bytes], answer: HostResponse) -> list[Piece]:
        at = 0 if first else max(len(frames) // 2, 1)
        return [*frames[:at], Stall(seconds), *frames[at:]]

    return frames


def _row(name: str, about: str, seen: str, **more: Any) -> Fault:
    more = {"families": ("k2", "k3", "other"), "fatal": True, **more}
    return Fault(name=name, group="errors", about=about, seen=seen, **more)


def _stream_row(name: str, about: str, seen: str, **more: Any) -> Fault:
    return _row(name, about, seen, **{"ways": ("stream",), **more})


_CHAT: Final = ("openai_chat",)

FAULTS: Final[tuple[Fault, ...]] = (
    # Instead of a response.
    _row(
        "overloaded",
        "HTTP 429: the engine is overloaded",
        "kimi-cli#2571, pi#3494",
        status=_status(429, _OVERLOADED, "engine_overloaded_error", "rate_limit_error"),
    ),
    _row(
        "overloaded-retry-after",
        "HTTP 429: the engine is overloaded, with `retry-after: 1`",
        "Moonshot",
        status=_status(429, _OVERLOADED, "engine_overloaded_error", "rate_limit_error", retry_after="1"),
    ),
    _row(
        "rate-limited",
        "HTTP 429: too many requests, without `retry-after`",
        "kimi-cli#907",
        status=_status(429, _TOO_MANY, "rate_limit_reached_error", "rate_limit_error"),
    ),
    _row(
        "rate-limited-retry-after",
        "HTTP 429: too many requests per minute, with `retry-after: 1`",
        "Moonshot",
        status=_status(
            429,
            _TOO_MANY_A_MINUTE,
            "rate_limit_reached_error",
            "rate_limit_error",
            retry_after="1",
        ),
    ),
    _row(
        "quota",
        "HTTP 429: the token quota is used up",
        "Moonshot",
        status=_status(429, _QUOTA, "exceeded_current_quota_error", "exceeded_current_quota_error"),
    ),
    _row(
        "suspended",
        "HTTP 429: the account is suspended because of insufficient balance",
        "opencode#25458",
        status=_status(429, _SUSPENDED, "exceeded_current_quota_error", "exceeded_current_quota_error"),
    ),
    _row(
        "billing-cycle",
        "HTTP 403: the usage limit of the billing cycle is reached",
        "kimi-code#3014, cc-haha#1208",
        status=_status(403, _CYCLE, "access_terminated_error", "permission_error"),
    ),
    _row(
        "openrouter-quota",
        "HTTP 429: the account is suspended, wrapped in an error of OpenRouter",
        "opencode#25458",
        status=Status(
            status=429,
            body={
                "error": {
                    "message": "Provider returned error",
                    "code": 429,
                    "metadata": {
                        "raw": encode(_chat_error(_SUSPENDED, "exceeded_current_quota_error")).decode(),
                        "provider_name": "Moonshot AI",
                    },
                }
            },
            messages_body=_messages_error(_SUSPENDED, "exceeded_current_quota_error"),
        ),
    ),
    _row(
        "unauthorized",
        "HTTP 401: the API key is wrong",
        "kimi-cli#1667",
        status=_status(401, "Invalid Authentication", "invalid_authentication_error", "authentication_error"),
    ),
    _row(
        "coding-gate",
        "HTTP 403: only known coding agents are allowed",
        "Kimi Code; openclaw#8803",
        status=_status(403, _GATE, "access_terminated_error", "access_terminated_error"),
    ),
    _row(
        "context-overflow",
        "HTTP 400: the prompt is longer than the model's context window",
        "Moonshot",
        status=_status(
            400,
            "Invalid request: Your request exceeded model token limit: 262144 (requested: 300000)",
            "invalid_request_error",
            "invalid_request_error",
        ),
    ),
    _row(
        "too-large",
        "HTTP 413: the request is too large",
        "Moonshot",
        status=_status(413, "Request exceeds the maximum size", "invalid_request_error", "invalid_request_error"),
    ),
    *(
        _row(
            f"status-{status}",
            f"HTTP {status}: {about}",
            "any host",
            status=_status(status, message, "server_error", "api_error"),
        )
        for status, about, message in (
            (500, "internal server error", _INTERNAL),
            (502, "bad gateway", "Bad gateway"),
            (503, "service unavailable", "Service temporarily unavailable"),
            (504, "gateway timeout", "Gateway timeout"),
        )
    ),
    _row(
        "status-529",
        "HTTP 529: overloaded, the way Anthropic reports it",
        "Anthropic",
        status=_status(529, "Overloaded", "overloaded_error", "overloaded_error"),
    ),
    _row(
        "html-502",
        "HTTP 502 with the error page of nginx",
        "any host",
        status=Status(status=502, headers=_HTML, body=_NGINX),
    ),
    _row("html-200", "HTTP 200 with a sign-in page", "proxies", status=Status(status=200, headers=_HTML, body=_LOGIN)),
    _row(
        "empty-body",
        "HTTP 200 with an empty body",
        "any host",
        status=Status(status=200, headers={"content-type": "application/json"}, body=b""),
    ),
    _row(
        "error-in-200",
        "HTTP 200 with an error in the body",
        "OmniRoute#8210",
        status=Status(
            status=200,
            body=_chat_error(_OVERLOADED, "engine_overloaded_error"),
            messages_body=_messages_error(_OVERLOADED, "overloaded_error"),
        ),
    ),
    _row("no-headers", "The connection drops before any response", "any host", status=Status(body=None)),
    # In the middle of one.
    _stream_row(
        "error-in-stream",
        "An error in Moonshot's format arrives mid-stream",
        "goose#8021",
        chunks=_send_in_middle(
            _chat_error(_OVERLOADED, "engine_overloaded_error"), _messages_error(_OVERLOADED, "overloaded_error")
        ),
    ),
    _stream_row(
        "error-first",
        "The first chunk is an error",
        "goose#8031",
        chunks=_send_error_first,
    ),
    _stream_row(
        "error-object",
        "An error in vLLM's format (`object` is `error`) arrives mid-stream",
        "goose#8031",
        wires=_CHAT,
        chunks=_send_in_middle(
            {"object": "error", "message": _INTERNAL, "type": "InternalServerError", "param": None, "code": 500}, {}
        ),
    ),
    _stream_row(
        "error-text",
        "An error whose `error` is a string arrives mid-stream",
        "SGLang",
        wires=_CHAT,
        chunks=_send_in_middle({"error": _INTERNAL}, {}),
    ),
    _stream_row(
        "error-in-chunk",
        "A mid-stream chunk has an `error` next to a choice with the finish reason `error`",
        "OpenRouter",
        wires=_CHAT,
        chunks=_send_error_in_chunk,
    ),
    _stream_row(
        "error-without-choices",
        "A mid-stream chunk has an `error` and no choices",
        "OmniRoute#8210",
        wires=_CHAT,
        chunks=_send_error_without_choices,
    ),
    _stream_row(
        "error-unframed",
        "A bare JSON error, without `data:`, arrives mid-stream",
        "lemonade#2826",
        frames=_send_raw(encode(_chat_error(_INTERNAL, "server_error"))),
    ),
    _stream_row(
        "error-no-json",
        "An error that is not JSON arrives mid-stream",
        "Crane#121",
        frames=_send_raw(b"data: error: engine failed\n\n"),
    ),
    _stream_row("no-body", "The connection drops after the headers", "any host", frames=_cut_before),
    _stream_row("cut-off", "The connection drops between two chunks", "opencode#39968", frames=_cut_between),
    _row("cut-inside", "The connection drops in the middle of a chunk", "any host", frames=_cut_inside),
    _stream_row(
        "ends-early",
        "The stream ends between two chunks, as if it were complete",
        "opencode#39968",
        frames=_end_between,
    ),
    _row(
        "truncated",
        "The response ends in the middle of its JSON, as if it were complete",
        "any host",
        frames=_end_early,
    ),
    _stream_row(
        "stall", "The stream stalls halfway and never continues", "DeepSeek-V3#1608", frames=_fall_silent(FOREVER)
    ),
    _stream_row(
        "stall-at-first",
        "The stream stalls right after the headers",
        "litellm#36024",
        frames=_fall_silent(FOREVER, first=True),
    ),
    _stream_row(
        "pause", "The stream pauses halfway for two seconds", "litellm#37322", frames=_fall_silent(2.0), fatal=False
    ),
)
