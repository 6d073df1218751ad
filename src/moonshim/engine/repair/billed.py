"""What of a response arrived, and what its host charged for -> whether something is missing.

A server whose parser swallows a call still counts its tokens. What arrived is written as the model writes it (K2's
section or K3's tags, which no client sees) and estimated, rather too high than too low; a host that charges clearly
more has lost something.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from math import ceil
from typing import Final

from moonshim.engine.grammar.shared.text_so_far import TextSample
from moonshim.engine.repair.argument_record import ArgumentsRecord
from moonshim.engine.tokens import estimate_text
from moonshim.engine.values.conversation import Usage
from moonshim.engine.wire.json_codec import decode_object, encode

__all__ = ["UNSEEN", "arrived_tokens", "is_missing", "most_tokens"]

MARGIN: Final = (1.10, 4)
"""A host that charges more than the estimate times the first, plus the second, has lost something.

The estimate itself is about a third too high for what people write, and at most a few tokens too low for short texts
(`python -m bench.billed`); random words came within the ten per cent.
"""
TIGHT_MARGIN: Final = (1.0, 4)
"""The same where something else looks like a loss, too: arguments of `{}`, or ones that had to be completed."""
UNSEEN: Final = 12
"""For a short reasoning that a server that shows all it writes has not shown."""
_NOT_ASCII: Final = re.compile(r"[^\x00-\x7f]+")
_CHINESE: Final = re.compile("[\u2014\u2018-\u201d\u2026\u3001-\u3011\u4e00-\u9fff\uff01-\uff5e]+")
_COMMON_ROWS: Final = bytes([0xA1, 0xA3, *range(0xB0, 0xD8)])
_COMMON: Final = 1.3
"""Tokens of a common Chinese character, at most."""
_K2_FRAME: Final = 4
"""The end of reasoning, a section of calls, the end of the message."""
_K2_CALL: Final = 4
_K3_FRAME: Final = 14
"""Reasoning, answer and message: each has a tag of three tokens at its end, and the answer one at its beginning."""
_K3_TOOLS: Final = 6
_K3_CALL: Final = 15
_K3_ARGUMENT: Final = 13


def is_missing(usage: Usage, arrived: int, reasoning: float, *, tight: bool) -> bool:
    """Whether the host charges for more than arrived; `reasoning`: the estimate of the reasoning that it showed."""
    billed, hidden = usage.output_tokens, usage.reasoning_tokens or 0
    if billed is None or hidden > reasoning * 1.1 + 4:
        return False  # it does not say, or shows a summary of its reasoning, or none
    billed -= usage.rejected_tokens or 0
    factor, room = TIGHT_MARGIN if tight else MARGIN
    return billed > arrived * factor + room


def arrived_tokens(
    texts: Iterable[TextSample], calls: Iterable[tuple[str, ArgumentsRecord]], *, k3: bool, tight: bool = False
) -> int:
    """An estimate of the tokens in which the model wrote these texts and calls; `tight`: for what people write."""
    estimate = estimate_text if tight else most_tokens
    total = 0.0
    pieces: list[str] = []
    for sample in texts:
        text, scale = sample.sampled()
        if scale == 1:
            pieces.append(text)
        elif text:
            total += estimate(text) * scale
    count = 0
    for name, record in calls:
        count += 1
        text, scale = record.sample()
        if k3 and (values := decode_object(text.encode("utf-8", "replace"))) is not None:
            total += _K3_ARGUMENT * len(values)
            for key, value in values.items():
                pieces += [key, value if isinstance(value, str) else encode(value).decode("utf-8", "replace")]
        elif scale == 1:
            pieces.append(text)
        else:
            total += estimate(text) * scale
        pieces.append(name if k3 else f"functions.{name}:0")
    total += estimate("\n".join(pieces)) if pieces else 0
    if k3:
        total += _K3_FRAME + (_K3_TOOLS if count else 0) + _K3_CALL * count
    else:
        total += _K2_FRAME + _K2_CALL * count
    return int(total)


def most_tokens(text: str) -> int:
    """As many tokens as a text can have: an estimate for ASCII, common Chinese by its characters, all else its bytes.

    The estimate of `engine/tokens` is an average over what people write; a run of rare characters has a token a byte.

    >>> most_tokens("Look:"), most_tokens("\u7b2c\u4e00\u6b65"), most_tokens("\u9f98")
    (4, 5, 4)
    """
    if text.isascii():
        return estimate_text(text)
    size = len(text.encode("utf-8", "replace")) - len(text.encode("ascii", "ignore"))
    # The first byte in GB 2312 tells how common a character is. All of these have three bytes in UTF-8.
    rows = "".join(_CHINESE.findall(text)).encode("gb2312", "ignore")[::2]
    common = len(rows) - len(rows.translate(None, _COMMON_ROWS))
    return ceil(estimate_text(_NOT_ASCII.sub(" ", text)) + size - common * (3 - _COMMON))
