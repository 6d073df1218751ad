"""An error body in any host's shape -> its details."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from moonshim.engine.hosts.errors.secret_spellings import spellings
from moonshim.engine.wire.json_codec import decode_object

__all__ = [
    "FREE_VALUE",
    "ErrorDetails",
    "clean_details",
    "could_be_protocol",
    "mask_bytes",
    "mask_secrets",
    "read_body",
]

Json: TypeAlias = dict[str, Any]

LONGEST_MESSAGE: Final = 2000
_HUGE: Final = 10**15
_READ: Final = 4 * LONGEST_MESSAGE
_MAX_WRAPPERS: Final = 4
"""Maximum number of wrappers to unwrap: OpenRouter may forward an error of OpenRouter."""
_TITLE: Final = re.compile(r"<(?:title|h1)[^<>]{0,200}>([^<]{1,300})</", re.IGNORECASE)
_PAGE: Final = re.compile(r"\s*(?:<!doctype\s+html|<html|<head|<body|<center|<h1)", re.IGNORECASE)
_UNPRINTABLE: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\ufffd\ud800-\udfff]+")
_SECRETS: Final = (
    (re.compile(r"\b(Bearer|Basic|Token)\s+[A-Za-z0-9._~+/*=-]{8,}", re.IGNORECASE), r"\1 …"),
    (re.compile(r"\bsk-[A-Za-z0-9_.*-]{4,}"), "sk-…"),
    (re.compile(r"\bmsk_[A-Za-z0-9_.*-]{20,}"), "msk_…"),
    (re.compile(r"\b(gsk_|fw_|hf_|xai-|nvapi-|tgp_v1_)[A-Za-z0-9_.*-]{12,}"), r"\1…"),
    (re.compile(r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_.-]+"), "eyJ…"),
    (re.compile(r"""((?:api[_-]?key|x-api-key)["']?\s*[:=]\s*["']?)[^\s"',;&]{8,}""", re.IGNORECASE), r"\1…"),
)
_SIGNS: Final = ("bearer", "basic", "token", "sk-", "sk_", "fw_", "hf_", "xai-", "nvapi-", "tgp_v1_", "eyj", "key")
"""If none of these occurs, none of the patterns above can match, which is much faster to check."""
_PROTOCOL_WORD: Final = re.compile(r"[A-Za-z_./ -]+")
_MIN_UNAMBIGUOUS: Final = 20
"""Minimum length at which a secret cannot be part of a protocol keyword."""
_FIXED: Final = rb"type|object|role|status|(?:native_)?finish_reason|stop_reason"
"""Fields whose values are protocol keywords."""
FREE_VALUE: Final = re.compile(rb'("(?!(?:' + _FIXED + rb')")([^"\\]*)"\s*:\s*")((?:[^"\\]|\\.)++)')
"""A free-form JSON string: what precedes it, the name of its field, and the string itself."""
_MASK: Final = "…".encode()
# What hosts say when they only forward another host's error.
_WRAPPERS: Final = frozenset({"provider returned error", "upstream error", ""})


class ErrorDetails(Struct, frozen=True):
    """The details of an error."""

    message: str = ""
    type: str | None = None
    code: str | None = None
    param: str | None = None
    request_id: str | None = None
    status: int | None = None
    """A status that the body itself contains."""


def read_body(body: bytes, status: int, secrets: Collection[str] = ()) -> ErrorDetails:
    """Read an error body. Never raises, and the message is never empty. `secrets` are masked in the message.

    >>> read_body(b'{"code":20015,"message":"bad","data":null}', 400)
    ErrorDetails(message='bad', type=None, code='20015', param=None, request_id=None, status=None)
    >>> read_body(b"<html><head><title>502 Bad Gateway</title></head></html>", 502).message
    'the host returned status 502 with an HTML page: 502 Bad Gateway'
    """
    data = body.strip()
    if data.startswith(b"data:"):  # an error in a stream frame
        data = data[5:].split(b"\n", 1)[0].strip()
    value = _first_object(data)
    return clean_details(
        _parse_error(value, 0) if value is not None else ErrorDetails(_text(body, status)), status, secrets
    )


def clean_details(details: ErrorDetails, status: int, secrets: Collection[str] = ()) -> ErrorDetails:
    """The same with a message for people: without secrets, not too long, and never empty."""
    # Before cutting, since half a key is not recognized; and after it, since it may have been spelled in pieces.
    text = _UNPRINTABLE.sub("", _mask_spellings(details.message, secrets)[:_READ])
    message = _shorten(mask_secrets(text, secrets).strip())
    if not message:
        message = f"the host returned status {status} without a message"
    return replace(details, message=message)


def mask_secrets(text: str, secrets: Collection[str] = ()) -> str:
    """The text without secrets: anything that looks like a key, and `secrets`, whatever they look like.

    >>> mask_secrets("Incorrect API key provided: sk-abcdefgh12345. Bearer 0123456789abcdef")
    'Incorrect API key provided: sk-… Bearer …'
    >>> mask_secrets("nobody is called hunter2", ["hunter2"])
    'nobody is called …'
    """
    if secrets:
        text = _mask_spellings(text, secrets)
    if text.isascii():  # some non-ASCII letters match `s` or `k` when case is ignored
        small = text.lower()
        for sign in _SIGNS:
            if sign in small:
                break
        else:
            return text
    for pattern, instead in _SECRETS:
        text = pattern.sub(instead, text)
    return text


def mask_bytes(data: bytes, secrets: Collection[str]) -> bytes:
    """JSON error frames without these secrets; they stay valid JSON.

    A secret that could be a protocol keyword (`failed`) is replaced only in free-form strings.

    >>> data = b'{"type":"response.failed","error":"who is failed, or hunter2?"}'
    >>> print(mask_bytes(data, ["hunter2", "failed"]).decode())
    {"type":"response.failed","error":"who is …, or …?"}
    """
    for spelling in spellings(secrets):
        found = spelling.encode("utf-8", "replace")
        if not could_be_protocol(spelling):
            data = data.replace(found, _MASK)
        elif found in data:
            data = FREE_VALUE.sub(lambda match: match[1] + match[3].replace(found, _MASK), data)  # noqa: B023
    return data


def could_be_protocol(spelling: str) -> bool:
    """Whether replacing this everywhere could break the frame."""
    return len(spelling) < _MIN_UNAMBIGUOUS and _PROTOCOL_WORD.fullmatch(spelling) is not None


def _mask_spellings(text: str, secrets: Collection[str]) -> str:
    for spelling in spellings(secrets):
        text = text.replace(spelling, "…")
    return text


def _first_object(data: bytes) -> Json | None:
    if data.startswith(b"["):  # a list with one error
        data = data[1:].rstrip().removesuffix(b"]")
    return decode_object(data) if data.lstrip().startswith(b"{") else None


def _text(body: bytes, status: int) -> str:
    text = body.decode("utf-8", "replace")  # in full: it is cut only when no key can be cut in two
    if _PAGE.match(text):
        title = _TITLE.search(text, 0, _READ)
        return f"the host returned status {status} with an HTML page" + (
            f": {' '.join(title[1].split())}" if title else ""
        )
    return text


def _parse_error(value: Json, depth: int) -> ErrorDetails:
    """Unwrap one layer after the other; the innermost error has the best information."""
    error = value.get("error")
    if isinstance(error, str):
        inner: Json = value | {"message": error} if not value.get("message") else value
    else:
        inner = error if isinstance(error, dict) else value
    message, param = _message(inner)
    code, numeric = inner.get("code"), None
    if isinstance(code, int) and not isinstance(code, bool):
        numeric, code = (code, None) if 400 <= code <= 599 else (None, str(code) if abs(code) < _HUGE else None)
    details = ErrorDetails(
        message,
        _short_string(inner.get("type")),
        _short_string(code),
        _short_string(inner.get("param")) or param,
        _short_string(value.get("request_id")),
        numeric,
    )
    if depth < _MAX_WRAPPERS and (inner_error := _inner_error(inner, message)) is not None:
        deeper = _parse_error(inner_error, depth + 1)
        if deeper.message:
            return ErrorDetails(
                deeper.message,
                deeper.type or details.type,
                deeper.code or details.code,
                deeper.param or details.param,
                details.request_id or deeper.request_id,
                details.status or deeper.status,
            )
    return details


def _inner_error(inner: Json, message: str) -> Json | None:
    """The wrapped error: OpenRouter's `metadata.raw`, or a message that is itself JSON."""
    metadata = inner.get("metadata")
    raw = metadata.get("raw") if isinstance(metadata, Mapping) else None
    if isinstance(raw, dict):
        return raw
    for text in (raw, message):
        if isinstance(text, str) and text.lstrip().startswith("{"):
            found = decode_object(text.encode("utf-8", "surrogatepass"))
            if found is not None:
                return found
    if isinstance(raw, str) and message.lower().strip(" .") in _WRAPPERS:
        return {"message": raw}
    return None


def _message(inner: Json) -> tuple[str, str | None]:
    for key in ("message", "detail", "msg", "title", "error_msg"):
        match inner.get(key):
            case str(text) if text.strip():
                return text, None
            case [{"msg": str(text)} as first, *_]:  # FastAPI: location and message
                where = first.get("loc")
                steps = where if isinstance(where, list) else []
                return text, ".".join(str(step) for step in steps if _is_step(step)) or None
            case {"error": str(text)} | {"message": str(text)} | {"error": {"message": str(text)}}:
                return text, None
    return "", None


def _is_step(step: Any) -> bool:
    return (isinstance(step, str) and step != "body") or (isinstance(step, int) and abs(step) < _HUGE)


def _short_string(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _shorten(text: str) -> str:
    return text if len(text) <= LONGEST_MESSAGE else text[: LONGEST_MESSAGE - 1] + "…"
