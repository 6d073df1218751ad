"""A response as sent -> the response object that a client may continue, and its items."""

from __future__ import annotations

from typing import Any, Final

from moonshim.engine.dialects.openai_responses.content import Json
from moonshim.engine.wire.json_codec import decode_object

__all__ = ["completed_in", "said_items"]

_ENDED: Final = ("completed", "incomplete")


def completed_in(out: bytes) -> Json | None:
    """The response object in the last bytes of a response, streamed or not, if it completed; otherwise None.

    >>> completed_in(b'event: response.completed\\ndata: {"response":{"id":"resp_1"}}\\n\\n')
    {'id': 'resp_1'}
    """
    if out.startswith(b"{"):
        whole = decode_object(out) or {}
        return whole if whole.get("object") == "response" and whole.get("status") in _ENDED else None
    for status in _ENDED:
        # A payload is one line, and line feeds in text are escaped: only the event itself has this line.
        at = out.rfind(b"event: response." + status.encode() + b"\n")
        if at >= 0 and (at == 0 or out[at - 1 : at] == b"\n"):
            line = out.find(b"data: ", at)
            whole = (decode_object(out[line + 6 : out.find(b"\n", line)]) if line >= 0 else None) or {}
            response = whole.get("response")
            return response if isinstance(response, dict) else None
    return None


def said_items(output: list[Any]) -> list[Json]:
    """The items of a response that precede the input of the next request. An incomplete call was never made."""
    return [item for item in output if item.get("status") != "incomplete" or item.get("type") == "message"]
