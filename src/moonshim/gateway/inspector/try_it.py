"""A pasted response, or a log of the gateway -> its frames, mended. What `moonshim mend` does, for the page."""

from __future__ import annotations

from itertools import chain
from typing import Any, Final

from moonshim.engine.formats import is_kimi_model
from moonshim.engine.plan import Plan, plan_for
from moonshim.engine.prepare import read_request
from moonshim.engine.values.options import KimiOptions
from moonshim.errors import InvalidInput
from moonshim.gateway.inspector.stream_rows import mended_rows
from moonshim.gateway.observe.recording import NotARecording, Recording, Sniffer, split_header
from moonshim.gateway.observe.stream_header import plan_of

__all__ = ["MOST_BYTES", "mend_text"]

MOST_BYTES: Final = 16 * 1024 * 1024


def mend_text(text: Any) -> dict[str, Any]:
    """The same form as the detail of an exchange, as far as there is something to show."""
    if not isinstance(text, str):
        raise InvalidInput("`text` must be a string", field="text")
    header, pieces = split_header(iter([text.encode("utf-8", "surrogatepass")]))
    data = b"".join(chain(pieces))
    recording = _recognise(data)
    plan = plan_of(header) if header is not None and header.request is not None else _plan(recording, data)
    form = (header.input_format if header is not None else None) or recording.kind
    stream = mended_rows(plan, data, form, (header.output_format if header is not None else None) or form)
    return {
        "summary": {"repairs": stream.counts, "provider": "the host", "client": "the client"},
        "stream": {"rows": stream.rows, "left_out": stream.left_out, "truncated": False},
    }


def _recognise(data: bytes) -> Recording:
    sniffer = Sniffer()
    try:
        return sniffer.feed(data) or sniffer.flush()
    except NotARecording as error:
        raise InvalidInput(f"This is not a response that can be mended: {error}.", field="text") from None


def _plan(recording: Recording, data: bytes) -> Plan:
    model = recording.model if recording.model is not None and is_kimi_model(recording.model) else "kimi"
    if b'"content_block_delta"' in data or b'"message_start"' in data or _is_message(recording):
        request = read_request({"model": model, "messages": [], "max_tokens": 1}, dialect="anthropic")
        return request.prepare(upstream="anthropic", model=model, options=KimiOptions.mending()).plan
    return plan_for(model=model, options=KimiOptions.mending())


def _is_message(recording: Recording) -> bool:
    return recording.body is not None and recording.body.get("type") == "message"
