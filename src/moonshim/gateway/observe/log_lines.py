"""A finished request -> the fields of its log line, and these -> a line for people to read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

from moonshim.engine.values.conversation import Usage
from moonshim.gateway.observe.record import NO_ROUTE, BilledTotal, RequestRecord
from moonshim.http_server import log_lines as plain_lines
from moonshim.http_server.log_lines import format_seconds, painter, safe
from moonshim.usage.cost import decimal_text, money
from moonshim.usage.record import COST_UNITS

__all__ = ["REQUEST", "WORDS", "describe_repairs", "fields_of", "human_line"]

REQUEST: Final = "request"
"""Event name of the line that reports a finished request."""

WORDS: Final = {
    "marker_call": "markers",
    "quoted_call": "quoted",
    "stray_marker": "markers",
    "unreadable_call": "unreadable",
    "call_in_content": "unreadable",
    "call_lost": "lost",
    "bare_call": "markers",
    "id_missing": "ids",
    "id_invalid": "ids",
    "id_repeated": "ids",
    "id_normalized": "ids",
    "tool_name": "names",
    "tool_name_inferred": "names",
    "undeclared_tool": "undeclared",
    "tool_delta": "deltas",
    "tool_index": "deltas",
    "duplicate_call": "duplicates",
    "call_field": "arguments",
    "value_as_string": "arguments",
    "unreadable_argument": "arguments",
    "python_value_missing": "arguments",
    "python_key_without_value": "arguments",
    "k3_untagged_json": "arguments",
    "k3_argument_without_key": "arguments",
    "k3_value_as_string": "arguments",
    "arguments_empty": "arguments",
    "arguments_missing": "invalid arguments",
    "arguments_listed": "arguments",
    "arguments_in_text": "arguments",
    "arguments_leading_empty": "arguments",
    "arguments_leading_null": "arguments",
    "arguments_leading_junk": "arguments",
    "arguments_doubled": "arguments",
    "arguments_trailing": "arguments",
    "arguments_stringified": "arguments",
    "arguments_control_character": "arguments",
    "arguments_invalid_escape": "arguments",
    "arguments_lone_surrogate": "arguments",
    "arguments_trailing_comma": "arguments",
    "arguments_python_literal": "arguments",
    "arguments_single_quotes": "arguments",
    "arguments_cumulative": "arguments",
    "arguments_schema": "arguments",
    "arguments_unclosed": "arguments",
    "arguments_invalid": "invalid arguments",
    "arguments_unfinished": "cut arguments",
    "arguments_truncated": "cut arguments",
    "finish_reason": "finish",
    "role_missing": "deltas",
    "role_repeated": "deltas",
    "choices_missing": "deltas",
    "choice_shape": "deltas",
    "content_shape": "deltas",
    "error_shape": "framing",
    "event_repeated": "framing",
    "input_repeated": "arguments",
    "input_conflict": "arguments",
    "input_joined": "arguments",
    "failed": "failed",
    "empty_answer": "empty",
    "channel_by_tags": "reasoning",
    "reasoning_conflict": "reasoning",
    "reasoning_repeated": "reasoning",
    "signature_dropped": "reasoning",
    "usage_moved": "usage",
    "usage_repeated": "usage",
    "lone_surrogate": "characters",
    "reasoning_hidden": "hidden reasoning",
    "output_limit": "limit",
    "json_fence": "schema",
    "special_token": "tokens",
    "answer_corrected": "asked again",
    "forced_call_missing": "no call",
    "buffer_limit": "limit",
    "framing": "framing",
    "cut_off_frame": "framing",
    "missing_done": "framing",
    "after_done": "framing",
    "not_json": "unparsed",
    "not_a_chunk": "unparsed",
    "not_said": "dropped",
}
"""Short labels for the repairs in `docs/reference/repairs.md`; several rules share one, to keep lines short."""

_USUAL: Final = frozenset({"usage_moved", "usage_repeated"})
"""Repairs that hosts need in every response, because of their own format (Moonshot): no sign that anything is wrong."""
_ALWAYS: Final = frozenset({"request_id", "client", "path", "dialect", "status", "outcome", "seconds"})


def fields_of(record: RequestRecord) -> dict[str, Any]:
    """The log fields of a request, without those whose value is unknown.

    >>> record = RequestRecord(request_id="r1", path="/v1/messages", dialect="anthropic", status=200, seconds=3.21875)
    >>> fields_of(record)["seconds"], "model" in fields_of(record)
    (3.219, False)
    """
    total = record.total
    fields = {
        "request_id": record.request_id,
        "client": record.client,
        "key": record.key,
        "session": record.session,
        "path": record.path,
        "dialect": record.dialect,
        "requested_model": record.requested_model,
        "route": record.route,
        "provider": record.provider,
        "model": record.model,
        "stream": record.streamed,
        "status": record.status,
        "outcome": record.outcome,
        "error": record.error,
        "blame": record.blame,
        "attempts": record.attempts,
        "asked_again": record.asked_again,
        "asked_again_limited": record.is_ask_again_limited or None,
        "asked_again_tokens": _sum_of(record.asked_again_tokens) or None,
        "first_byte_seconds": None if record.first_byte_seconds is None else round(record.first_byte_seconds, 4),
        "seconds": round(record.seconds, 4) if record.seconds < 1 else round(record.seconds, 3),
        "input_tokens": total.input_tokens,
        "output_tokens": total.output_tokens,
        "cached_tokens": total.cached_tokens,
        "searches": total.searches or None,
        "judged": record.judged,
        "estimated": total.estimated or None,
        "prefix_lost": record.prefix_lost,
        **_cost_fields(total),
        "repairs": record.repairs,
        "changes": record.changes,
        "store_failures": record.store_failures,
    }
    # Zero and `False` are information; an empty string, list or object is not.
    return {
        name: value for name, value in fields.items() if value or name in _ALWAYS or isinstance(value, (int, float))
    }


def _sum_of(usage: Usage) -> int:
    return (usage.input_tokens or 0) + (usage.output_tokens or 0)


def _cost_fields(total: BilledTotal) -> dict[str, str]:
    """The cost as a string with every digit, as in the usage report."""
    if total.cost is None or total.currency is None:
        return {}
    return {"cost": decimal_text(total.cost), "currency": total.currency}


def human_line(fields: Mapping[str, Any], *, colour: bool) -> str:
    """One line for people: requests in the form that the README shows, other events in the usual form.

    >>> human_line({"event": "request", "client": "curl", "model": "k3", "status": 200, "seconds": 1.5}, colour=False)
    'curl → k3 200 1.5s'
    """
    if fields.get("event") != REQUEST:
        return plain_lines.human_line(fields, colour=colour)
    return _request_line(fields, painter(colour))


def _request_line(fields: Mapping[str, Any], paint: Any) -> str:
    status, provider = fields.get("status", 0), fields.get("provider")
    model = fields.get("model") or fields.get("requested_model") or fields.get("path", "")
    where = f"{provider}/{model}" if provider else str(model)
    shade = "green" if 200 <= status < 400 else "yellow" if 400 <= status < 500 else "red"
    parts = [
        safe(f"{fields.get('client')} → {where}"),
        paint(shade, str(status)),
        format_seconds(fields.get("seconds", 0)),
    ]
    tokens, output = fields.get("input_tokens"), fields.get("output_tokens")
    if tokens is not None or output is not None:
        parts.append(f"{_short(tokens)}/{_short(output)} tok")
    if tokens and (cached := fields.get("cached_tokens")) is not None:
        parts.append(f"cache {round(100 * cached / tokens)}%")
    if (cost := fields.get("cost")) is not None:
        parts.append(safe(money(int(Decimal(cost) * COST_UNITS), fields.get("currency", "$"))))
    line = " ".join(parts)
    for shade, note in _notes(fields):
        line += f" · {paint(shade, safe(note))}"
    return line


def _notes(fields: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Anything out of the ordinary, each note with its colour."""
    notes: list[tuple[str, str]] = []
    if (route := fields.get("route")) and route != NO_ROUTE:
        notes.append(("dim", f"route {route}"))
    if fields.get("attempts", 0) > 1:
        notes.append(("yellow", f"{fields['attempts']} attempts"))
    if reason := fields.get("asked_again"):
        notes.append(("yellow", f"{'limit: not ' if fields.get('asked_again_limited') else ''}asked again: {reason}"))
    if fields.get("outcome") == "client_gone":
        notes.append(("dim", "client gone"))
    if mended := describe_repairs(fields.get("repairs") or {}):
        notes.append(("yellow", f"mended: {mended}"))
    if searches := fields.get("searches"):
        notes.append(("dim", f"{searches} web search{'es' if searches > 1 else ''}"))
    if judged := fields.get("judged"):
        flagged = judged.get("flagged", 0)
        notes.append(("yellow" if flagged else "dim", f"judged: {flagged} of {sum(judged.values())} flagged"))
    if lost := fields.get("prefix_lost"):
        notes.append(("yellow", f"cache lost: {lost}"))
    if failures := fields.get("store_failures"):
        notes.append(("red", "store down: " + " ".join(failures)))
    if error := fields.get("error"):
        notes.append(("red", str(error)))
    return notes


def describe_repairs(repairs: Mapping[str, int]) -> str:
    """Counts of repairs by their labels, for people; empty if there are only usual ones.

    >>> describe_repairs({"marker_call": 1, "id_missing": 2, "id_invalid": 1, "usage_moved": 2})
    'markers×1 ids×3'
    """
    words: Counter[str] = Counter()
    for rule, count in repairs.items():
        if rule not in _USUAL:
            words[WORDS.get(rule, rule)] += count
    return " ".join(f"{word}×{count}" for word, count in words.items())


def _short(number: int | None) -> str:
    """
    >>> [_short(value) for value in (None, 830, 1234, 12_345, 999_999, 1_234_567)]
    ['?', '830', '1.2k', '12k', '1.0M', '1.2M']
    """
    if number is None:
        return "?"
    for unit, name in ((1_000_000, "M"), (1000, "k")):
        if number >= unit * 0.9995:
            value = number / unit
            return f"{value:.1f}{name}" if value < 9.95 else f"{value:.0f}{name}"
    return str(number)
