"""Any JSON in any place: a request is read or refused, and a decoder never raises."""

from __future__ import annotations

import copy
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moonshim.engine.dialects.openai_responses import drop_unsupported, resolve_references
from moonshim.engine.dialects.openai_responses.decode import ResponsesDecoder, decode_response
from moonshim.engine.dialects.openai_responses.messages.items import CALLS, OUTPUTS
from moonshim.engine.dialects.openai_responses.request import parse_request, render_request
from moonshim.engine.signing import PREFIX, Signer
from moonshim.engine.values.events import CallPiece
from moonshim.errors import InvalidInput

KEYS = [
    "type", "role", "content", "text", "id", "call_id", "name", "namespace", "arguments", "input", "output", "tools",
    "action", "operation", "summary", "encrypted_content", "image_url", "file_data", "file_url", "input_audio", "data",
    "format", "refusal", "status", "detail", "filename", "description", "parameters", "strict", "defer_loading",
    "definition", "syntax", "execution", "mode", "schema", "effort", "verbosity", "x",
]  # fmt: skip
EVENT_KEYS = [
    "type", "item", "response", "delta", "text", "arguments", "input", "output_index", "item_id", "content_index",
    "summary_index", "refusal", "error", "code", "message", "output", "usage", "incomplete_details", "reason", "id",
    "created_at", "model", "input_tokens", "input_tokens_details",
]  # fmt: skip
FIELDS = [
    "model", "input", "instructions", "tools", "tool_choice", "text", "reasoning", "metadata", "user", "stream",
    "safety_identifier", "temperature", "max_output_tokens", "previous_response_id", "prompt_cache_key",
]  # fmt: skip
WORDS = [
    *CALLS, *OUTPUTS, "message", "reasoning", "item_reference", "additional_tools", "user", "assistant", "developer",
    "input_text", "output_text", "input_image", "input_file", "input_audio", "refusal", "function", "custom",
    "namespace", "tool_search", "web_search", "allowed_tools", "auto", "json_schema", "client", "completed",
    "data:image/png;base64,AA", "", PREFIX, f"{PREFIX}{Signer().key_id}.a.b", f"{PREFIX}{Signer().key_id}.\ud800.b",
    "response.created", "response.output_item.added", "response.output_item.done", "response.output_text.delta",
    "response.output_text.done", "response.reasoning_summary_text.delta", "response.reasoning_text.done",
    "response.function_call_arguments.delta", "response.function_call_arguments.done", "response.refusal.done",
    "response.custom_tool_call_input.delta", "response.custom_tool_call_input.done", "response.completed",
    "response.incomplete", "response.failed", "error",
]  # fmt: skip
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(WORDS)
    | st.text(max_size=3)
)


def values(keys: list[str]) -> st.SearchStrategy[Any]:
    return st.recursive(
        LEAVES,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(keys), inner, max_size=5),
        max_leaves=12,
    )


def item(keys: list[str]) -> st.SearchStrategy[Any]:
    """Objects with a type that there is, and anything else in them."""
    rest = st.dictionaries(st.sampled_from(keys), values(keys), max_size=5)
    return st.builds(lambda kind, more: {**more, "type": kind}, st.sampled_from(WORDS), rest)


ITEMS = st.lists(item(KEYS) | values(KEYS), max_size=4)
BODIES = st.builds(
    lambda fields, items, tools: {"model": "m", "input": items, "tools": tools, **fields},
    st.dictionaries(st.sampled_from(FIELDS), values(KEYS), max_size=4),
    ITEMS,
    st.lists(item(KEYS), max_size=3),
)


@given(BODIES | values(KEYS))
def test_a_request_is_read_or_refused(body: Any) -> None:
    try:
        request, _ = parse_request(body, Signer())
    except InvalidInput:
        return
    assert len(request.locations) == len(request.messages)
    with suppress(InvalidInput):  # what only its own hosts could read, and nobody may leave out
        drop_unsupported(request)
    rendered, _ = render_request(request)
    if PREFIX not in repr(body):
        # What was read comes back as it was, whatever it was.
        assert rendered == body


@given(BODIES)
def test_reading_changes_nothing(body: Any) -> None:
    before = copy.deepcopy(body)
    try:
        render_request(parse_request(body, Signer())[0])
        resolve_references(body, {"x": {"type": "message"}}.get)
    except InvalidInput:
        pass
    assert body == before


@given(st.lists(item(EVENT_KEYS + KEYS), max_size=6))
def test_a_decoder_never_raises(payloads: list[Any]) -> None:
    decoder = ResponsesDecoder()
    for payload in payloads:
        decoder.feed(payload)
    decoder.flush()


@given(st.dictionaries(st.sampled_from(EVENT_KEYS), values(KEYS + EVENT_KEYS), max_size=6), ITEMS)
def test_a_whole_response_never_raises(body: dict[str, Any], items: list[Any]) -> None:
    decode_response(body)
    decode_response({**body, "output": items})


def test_no_depth_of_nesting_breaks_anything() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    asked = {"type": "shell_call", "call_id": "c", "action": deep}
    with pytest.raises(InvalidInput) as refused:
        parse_request({"model": "m", "input": [asked]}, Signer())
    assert refused.value.field == "input[0].action"
    assert [one for one in decode_response({"output": [asked]}) if isinstance(one, CallPiece)] == [
        CallPiece(0, "c", "shell")
    ]
    elsewhere = {"model": "m", "input": "hi", "metadata": {"x": deep}, "tools": [{"type": "x", "y": deep}], "z": deep}
    rendered, _ = render_request(parse_request(elsewhere, Signer())[0])
    assert rendered["z"] is deep
    assert rendered["metadata"]["x"] is deep
