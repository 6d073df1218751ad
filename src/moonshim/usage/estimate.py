"""What a host has reported of its response's tokens -> all of them, by estimate where it did not."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from moonshim.engine.tokens import estimate_text, estimate_tokens
from moonshim.engine.values.conversation import Message, Reasoning, Request, Text, ToolCall, Usage

__all__ = ["complete_usage", "is_complete"]

_SAMPLE: Final = 256 * 1024
_FRAME_BYTES: Final = 400
"""A frame with one token, at most."""
_BYTES_PER_TOKEN: Final = 4


def is_complete(usage: Usage | None, *, whole: bool) -> bool:
    """Whether the host's counts are all there is. `whole`: the response came to its end."""
    return whole and usage is not None and usage.input_tokens is not None and usage.output_tokens is not None


def complete_usage(
    usage: Usage | None,
    request: Request,
    answer: Message,
    *,
    whole: bool,
    choices: int = 1,
    stream: tuple[int, int] = (0, 0),
) -> Usage:
    """The host's counts, with our estimate for missing ones. Of an incomplete response, its counts are not all.

    `answer` is the first of several `choices`. `stream`: the frames and bytes of the response, for one whose message
    was not put together.

    >>> request, message = Request(model="kimi-k2.5"), Message("assistant", (Text("The quick brown fox jumps."),))
    >>> complete_usage(Usage(10, 5), request, message, whole=True).output_tokens
    5
    >>> complete_usage(Usage(10, 1), request, message, whole=False).output_tokens
    10
    """
    known = usage or Usage()
    read, written = known.input_tokens, known.output_tokens
    if read is None:
        read = estimate_tokens(request)
    if written is None or not whole:
        guess = choices * _estimate_message(answer) if answer.parts else _estimate_frames(*stream)
        written = max(written or 0, guess)
    return replace(known, input_tokens=read, output_tokens=written)


def _estimate_message(message: Message) -> int:
    """The tokens of its text; of a long one, by its beginning."""
    pieces, size, room = list[str](), 0, _SAMPLE
    for part in message.parts:
        text = _describe_part(part)
        size += len(text) + 1
        if room > 0:
            pieces.append(text[:room])
            room -= len(text)
    sample = "\n".join(pieces)
    return estimate_text(sample) * size // (len(sample) + 1)


def _estimate_frames(frames: int, size: int) -> int:
    """A frame of a usual size is a token; what is longer has more text.

    >>> _estimate_frames(100, 23_000), _estimate_frames(1, 4_400)
    (100, 1001)
    """
    return frames + max(0, size - frames * _FRAME_BYTES) // _BYTES_PER_TOKEN


def _describe_part(part: object) -> str:
    match part:
        case Text(text=text) | Reasoning(text=text):
            return text
        case ToolCall(name=name, arguments=arguments):
            return f"{name} {arguments}"
    return ""
