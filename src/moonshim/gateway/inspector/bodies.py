"""A recorded request body -> the JSON that is shown of it: without keys, and without the bytes of images and files."""

from __future__ import annotations

import re
from typing import Any, Final

from moonshim.engine.wire.json_codec import decode_object
from moonshim.engine.wire.sse import BYTE_ORDER_MARK
from moonshim.http_server.log_lines import without_secrets

__all__ = ["readable_body"]

_BASE64: Final = re.compile(rb'(;base64,|"(?:file_)?data"\s*:\s*")[A-Za-z0-9+/=_\\-]{256,}')
NOT_RECORDED: Final = b"not recorded"


def readable_body(body: bytes | None) -> dict[str, Any] | None:
    """None if there is none, or if it is not a JSON object.

    >>> readable_body(b'{"data": "%b", "key": "sk-0123456789"}' % (b"A" * 300))
    {'data': 'not recorded', 'key': 'sk-…'}
    """
    if body is None:
        return None
    text = _BASE64.sub(lambda found: found[1] + NOT_RECORDED, body.removeprefix(BYTE_ORDER_MARK))
    value = decode_object(text)
    return None if value is None else without_secrets(value)
