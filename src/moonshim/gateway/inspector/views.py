"""A trace -> what the page shows of it: a line in the list, or everything about one exchange."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from moonshim.engine.hosts.errors.body import mask_secrets
from moonshim.engine.prepare import read_request
from moonshim.engine.values.conversation import Media, Message, Reasoning, Text, ToolCall, ToolResult
from moonshim.engine.values.tool_calls import FoundCall, walk_calls
from moonshim.engine.values.verdicts import CallToJudge, Verdict
from moonshim.engine.wire.json_codec import encode
from moonshim.errors import MoonshimError
from moonshim.gateway.inspector.bodies import readable_body
from moonshim.gateway.inspector.stream_rows import RecordedStream, read_stream
from moonshim.gateway.inspector.times import milliseconds, progress_of, timeline_of
from moonshim.gateway.inspector.trace import ExchangeTrace, TracedAttempt
from moonshim.http_server.log_lines import without_secrets
from moonshim.usage.cost import decimal_text

__all__ = ["chain_of", "detail_of", "summary_of", "version_of"]

Json = dict[str, Any]

_LONGEST: Final = 500
_UNREAD: Final = 20_000
"""Characters that are shown of a body that is not a JSON object."""


def summary_of(trace: ExchangeTrace, worker: int = 0) -> Json:
    """One line of the list. No text of the conversation."""
    record = trace.record
    running, total = trace.ended is None, record.total
    summary = {
        "id": trace.id,
        "worker": worker or None,
        "time": int(record.started * 1000),
        "running": running,
        "request_id": record.request_id,
        "client": record.client,
        "key": record.key,
        "session": record.session,
        "path": record.path,
        "dialect": record.dialect,
        "requested_model": record.requested_model,
        "model": record.model,
        "provider": record.provider,
        "route": record.route,
        "status": record.status,
        "outcome": record.outcome,
        "error": _private_error(record.error) if trace.private else record.error,
        "attempts": record.attempts,
        "first_token_ms": None if record.first_byte_seconds is None else round(record.first_byte_seconds * 1000, 1),
        "duration_ms": None if running else round(record.seconds * 1000, 1),
        "input_tokens": total.input_tokens,
        "output_tokens": total.output_tokens,
        "cache_read_tokens": total.cached_tokens,
        "cache_write_tokens": total.cache_write_tokens,
        "cache_write_1h_tokens": total.cache_write_1h_tokens,
        "estimated": total.estimated,
        "cost": None if total.cost is None else decimal_text(total.cost),
        "currency": total.currency,
        "prefix_lost": record.prefix_lost,
        "repairs": record.repairs,
        "changes": record.changes,
        "judged": record.judged,
    }
    return {name: _short(value) if type(value) is str else value for name, value in summary.items()}


def _short(text: str) -> str:
    """Without keys, and not longer than a person reads: clients choose some of these names."""
    return mask_secrets(text[: 2 * _LONGEST])[:_LONGEST]


def detail_of(trace: ExchangeTrace, worker: int = 0, *, number: int | None = None) -> Json:
    """Everything about one exchange, and about its attempt of this number; by default the last one."""
    chain = chain_of(trace, number)
    attempt = chain[-1] if chain else None
    private, running = trace.private, trace.ended is None and attempt is not None and attempt.ended is None
    summary = summary_of(trace, worker)
    body, sent = readable_body(trace.body), None if attempt is None else readable_body(attempt.body)
    stream = read_stream(chain, running=running) if chain else None
    if stream is not None and trace.ended is None:
        summary["repairs"] = stream.counts
    return {
        "version": version_of(trace),
        "summary": summary,
        "privacy": private,
        "conversation": _shapes(trace) if private else _conversation(body, trace.record.dialect, stream),
        "stream": None if stream is None else _stream(stream, truncated=trace.truncated),
        "request": {
            "client": body,
            "host": sent,
            "text": _unread_text(trace, body),
            "missing": _why_missing(trace),
            "changes": [] if attempt is None else without_secrets(msgspec.to_builtins(attempt.changes)),
        },
        "host_dialect": None if attempt is None or attempt.profile is None else attempt.profile.dialect,
        "ids": _ids(body, sent),
        "verdicts": without_secrets([_verdict(call, verdict) for call, verdict in trace.verdicts]),
        "attempts": [_attempt(trace, one) for one in list(trace.attempts)],
        "attempt": trace.attempts.index(attempt) if attempt is not None else None,
        "timeline": list(timeline_of(trace)),
        "progress": progress_of(trace, chain, None if stream is None else stream.rows),
        "curl": None if body is None else _curl(trace, body),
        "has_log": any(one.has_pieces for one in chain),
    }


def version_of(trace: ExchangeTrace) -> str:
    """Another one whenever there is something new to show."""
    return f"{trace.id}.{trace.version}"


def chain_of(trace: ExchangeTrace, number: int | None) -> list[TracedAttempt]:
    """The attempt of this number with those whose responses it continues: the client got them as one."""
    attempts = list(trace.attempts)
    if not attempts:
        return []
    last = len(attempts) - 1 if number is None else max(0, min(number, len(attempts) - 1))
    while last + 1 < len(attempts) and attempts[last + 1].continues:
        last += 1
    first = last
    while first and attempts[first].continues:
        first -= 1
    return attempts[first : last + 1]


def _stream(stream: RecordedStream, *, truncated: bool) -> Json:
    return {"rows": stream.rows, "left_out": stream.left_out, "truncated": truncated}


def _verdict(call: CallToJudge, verdict: Verdict) -> Json:
    return {
        "name": call.name,
        "arguments": call.arguments[:_UNREAD],
        "outcome": verdict.outcome,
        "reason": verdict.reason,
        "explanation": verdict.explanation,
    }


def _attempt(trace: ExchangeTrace, one: TracedAttempt) -> Json:
    booked, ended = one.booked, one.ended
    error = _private_error(one.error) if trace.private else without_secrets(one.error)
    return {
        "provider": one.provider,
        "model": without_secrets(one.model),
        "continues": one.continues,
        "start_ms": milliseconds(one.started - trace.started),
        "duration_ms": None if ended is None else milliseconds(ended - one.started),
        "status": one.status,
        "error": error,
        "error_body": None if one.error_body is None else _error_text(one),
        "input_tokens": None if booked is None else booked.input_tokens,
        "output_tokens": None if booked is None else booked.output_tokens,
        "cache_read_tokens": None if booked is None else booked.cache_read_tokens,
        "estimated": booked is not None and booked.estimated,
        "cost": None if booked is None or booked.cost is None else decimal_text(booked.cost),
        "currency": None if booked is None else booked.currency,
    }


def _error_text(one: TracedAttempt) -> str:
    """What the host sent with an error status, without keys."""
    text = (one.error_body or b"")[:_UNREAD].decode("utf-8", "replace")
    return mask_secrets(text, one.secrets)


def _why_missing(trace: ExchangeTrace) -> str | None:
    """Why the request cannot be shown."""
    if trace.private:
        return "private"
    if trace.body is not None:
        return None
    if trace.dropped:
        return "dropped"
    return "too_large" if trace.request_bytes else "not_read"


def _unread_text(trace: ExchangeTrace, body: Json | None) -> str | None:
    """A body that is not a JSON object."""
    if trace.body is None or body is not None:
        return None
    return str(without_secrets(trace.body[:_UNREAD].decode("utf-8", "replace")))


def _private_error(error: str | None) -> str | None:
    """Its code only: a host may quote the conversation."""
    return None if error is None else error.partition(":")[0]


# -- the conversation --------------------------------------------------------------------------------


def _shapes(trace: ExchangeTrace) -> list[Json]:
    return [msgspec.to_builtins(shape) for shape in list(trace.shapes)]


def _conversation(body: Json | None, dialect: str, stream: RecordedStream | None) -> list[Json]:
    messages: list[Json] = []
    answer = None if stream is None else stream.message
    if body is not None:
        try:
            request = read_request(body, dialect=dialect, default_model="-").request
        except MoonshimError:
            return []  # a refused request, which the page shows as JSON
        names: dict[str, str] = {}
        for index, message in enumerate(request.messages):
            place = request.locations[index] if index < len(request.locations) else None
            messages.append({"role": message.role, "place": place, "parts": list(_parts(message, names))})
    if answer is not None and answer.parts:
        parts = without_secrets(list(_parts(answer, {})))
        messages.append({"role": "assistant", "place": "", "answer": True, "parts": parts})
    return messages


def _parts(message: Message, names: dict[str, str]) -> Iterator[Json]:
    for part in message.parts:
        match part:
            case Text(text=text):
                yield {"kind": "text", "text": text}
            case Reasoning(text=text):
                yield {"kind": "reasoning", "text": text}
            case ToolCall():
                names[part.id] = part.name
                yield {"kind": "call", "id": part.wire_id or part.id, "name": part.name, "arguments": part.arguments}
            case ToolResult():
                texts = "\n".join(
                    one.text if isinstance(one, Text) else f"[{type(one).__name__.lower()}]" for one in part.parts
                )
                yield {
                    "kind": "result",
                    "call_id": part.call_id,
                    "name": part.name or names.get(part.call_id),
                    "text": texts,
                    "is_error": bool(part.is_error),
                }
            case Media(kind=kind):
                yield {"kind": kind, "text": "not recorded"}


def _ids(client: Json | None, host: Json | None) -> list[Json]:
    """The calls of the history in both requests, in order: they are the same calls."""
    if client is None or host is None:
        return []
    pairs = zip(_calls(client), _calls(host), strict=False)
    return [{"name": ours.name or theirs.name, "client": ours.id, "host": theirs.id} for ours, theirs in pairs]


def _calls(body: Json) -> Iterator[FoundCall]:
    items = body.get("input") if isinstance(body.get("input"), list) else body.get("messages")
    for message in items if isinstance(items, list) else ():
        if not isinstance(message, dict):
            continue
        if message.get("type") in ("function_call", "custom_tool_call"):
            yield FoundCall(str(message.get("call_id", "")), str(message.get("name", "")))
        elif isinstance(message.get("content"), list):
            for block in message["content"]:
                if isinstance(block, dict) and block.get("type") == "tool_use":
                    yield FoundCall(str(block.get("id", "")), str(block.get("name", "")))
        yield from (one for one in walk_calls([message]) if isinstance(one, FoundCall) and "tool_calls" in message)


# -- curl ----------------------------------------------------------------------------------------------


def _curl(trace: ExchangeTrace, body: Json) -> str:
    """The page puts its own address in front. The key is in double quotes, for the shell to insert it."""
    headers = ["-H 'content-type: application/json'", '-H "authorization: Bearer $MOONSHIM_KEY"']
    if trace.record.dialect == "anthropic":
        headers.append("-H 'anthropic-version: 2023-06-01'")
    # An argument can have 128 KiB at most.
    lines = [shlex.quote(trace.record.path), *headers, "--data-binary @- <<'END'"]
    return " \\\n  ".join(lines) + f"\n{encode(body).decode()}\nEND\n"
