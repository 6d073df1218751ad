"""The last bytes of an answer -> the response that is kept, wherever it stands in them."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import pytest

from moonshim.engine.dialects.openai_responses import find_completed

Json: TypeAlias = dict[str, Any]

ENDS: Final[dict[str, tuple[bytes, Json | None]]] = {
    "a whole one": (b'{"object":"response","status":"completed","id":"r"}', {"id": "r"}),
    "a cut one": (b'{"object":"response","status":"incomplete","id":"r"}', {"id": "r"}),
    "a failed one": (b'{"object":"response","status":"failed","id":"r"}', None),
    "an error": (b'{"error":{}}', None),
    "no JSON": (b"{", None),
    "nothing": (b"", None),
    "a stream that ends": (
        b'event: response.output_item.done\ndata: {}\n\nevent: response.completed\ndata: {"response":{"id":"r"}}\n\n',
        {"id": "r"},
    ),
    "a stream that was cut": (b'event: response.incomplete\ndata: {"response":{"id":"r"}}\n\n', {"id": "r"}),
    "a stream that failed": (b'event: response.failed\ndata: {"response":{"id":"r"}}\n\n', None),
    "half a character": (b'{"object":"response","status":"completed","id":"r","instructions":"\\ud83d"}', {"id": "r"}),
    "half a character in a stream": (
        b'event: response.completed\ndata: {"response":{"id":"r","instructions":"\\ud83d"}}\n\n',
        {"id": "r"},
    ),
    "the middle of a stream": (
        b'event: response.output_text.delta\ndata: {"delta":"event: response.completed\\ndata: {}"}\n\n',
        None,
    ),
}


@pytest.mark.parametrize(("out", "expected"), ENDS.values(), ids=ENDS.keys())
def test_the_response_is_found_at_the_end_of_an_answer(out: bytes, expected: Json | None) -> None:
    found = find_completed(out)
    assert (found and {"id": found["id"]}) == expected
