"""The trace of an exchange -> a log file that `moonshim mend` replays."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec

from moonshim.engine.values.conversation import Change
from moonshim.gateway.inspector.bodies import readable_body
from moonshim.gateway.inspector.stream_rows import host_bytes
from moonshim.gateway.inspector.trace import ExchangeTrace, TracedAttempt
from moonshim.gateway.observe.stream_header import StreamHeader, StreamOutcome, render_header
from moonshim.http_server.log_lines import without_secrets

__all__ = ["log_of"]


def log_of(trace: ExchangeTrace, chain: Sequence[TracedAttempt]) -> bytes:
    """The host's response as it came, with the header of a stream log. Keys are masked."""
    record, attempt, body = trace.record, chain[-1], host_bytes(chain)
    plan, profile = attempt.plan, attempt.profile
    word = "unfinished" if trace.ended is None else "upstream_error" if attempt.error else record.outcome
    header = StreamHeader(
        outcome=StreamOutcome(word, len(body), not trace.truncated),
        request_id=without_secrets(record.request_id),
        time=datetime.fromtimestamp(record.started, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        client=without_secrets(record.client),
        provider=attempt.provider,
        host=None if profile is None else profile.host,
        model=without_secrets(attempt.model),
        dialect="openai_chat" if profile is None else profile.dialect,
        client_dialect=record.dialect,
        asked_model=without_secrets(record.requested_model),
        input_format=attempt.input_format,
        output_format=attempt.output_format,
        options=None if plan is None else msgspec.to_builtins(plan.options),
        grammar=None if profile is None else profile.grammar,
        hides_reasoning=plan is not None and plan.hides_reasoning,
        visible_limit=plan.visible_limit if plan is not None and plan.hides_reasoning else None,
        changes=tuple(msgspec.convert(without_secrets(msgspec.to_builtins(attempt.changes)), list[Change])),
        request=readable_body(attempt.body),
    )
    return render_header(header) + body
