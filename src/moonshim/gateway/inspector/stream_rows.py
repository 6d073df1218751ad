"""The recorded bytes of a response -> rows: a frame of the host, what the client got for it, and why.

Frames and repairs are found by mending the bytes once more, frame by frame, with the same plan. If that gives other
bytes than the client was sent (a plug-in that depends on time, say), rows are the pieces as they were sent.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from moonshim.engine.exchange import Form, ResponseStream, detect_form, read_reply
from moonshim.engine.plan import Plan
from moonshim.engine.values.conversation import Message
from moonshim.engine.wire.json_codec import decode_object
from moonshim.errors import MoonshimError, Problem
from moonshim.gateway.inspector.trace import TracedAttempt
from moonshim.gateway.observe.echoed_keys import EchoMasker
from moonshim.http_server.log_lines import without_secrets

__all__ = ["RecordedStream", "host_bytes", "mended_rows", "read_stream"]

Json = dict[str, Any]

_ENDS: Final = {"sse": re.compile(rb"\r\n\r\n|\n\n|\r\r"), "ndjson": re.compile(rb"\n")}
_NOT_COMPARED: Final = re.compile(rb"(?m)^:[^\n]*\n+|(?<=\"completed_at\":)[0-9]+")
"""Comments are merged where several come at once, and the time of the end is another one now."""
_MOST_ROWS: Final = 20_000
_MOST_TEXT: Final = 4096


class _Frame(NamedTuple):
    raw: bytes
    out: bytes
    repairs: Sequence[Any] = ()
    at: float | None = None


class RecordedStream(NamedTuple):
    """One response, or several that the client got as one."""

    rows: list[Json]
    left_out: int
    """Frames after the last row."""
    counts: dict[str, int]
    message: Message | None
    """None if the bytes could not be read again."""


def read_stream(chain: Sequence[TracedAttempt], *, running: bool) -> RecordedStream | None:
    """The response of these attempts, each of which continues the one before; None if nothing is recorded."""
    # A snapshot: an exchange that still runs adds pieces meanwhile.
    recorded = [attempt.pieces for attempt in chain]
    last = chain[-1]
    if any(attempt.plan is None for attempt in chain) or not any(recorded):
        return None
    zero = chain[0].started
    sent = b"".join(out for pieces in recorded for _, _, out in pieces)
    tail = b"".join(out for _, data, out in recorded[-1] if not data)
    secrets = tuple(dict.fromkeys(secret for attempt in chain for secret in attempt.secrets))
    ended = last.ended is not None and not running
    reading = _reader(chain[0], may_retry=len(chain) > 1)
    try:
        frames = _mend(reading, chain, recorded, zero)
        if ended:
            form = _form_of(recorded[0], chain[0])
            frames = _with_end(frames, reading, form, tail, last.broke)
    except MoonshimError:  # another response followed for another reason, such as a web search: the last one counts
        reading = _reader(last)
        _with_end(_mend(reading, chain[-1:], recorded[-1:], zero), reading, _form_of(recorded[-1], last))
        frames = []
    if (ended or not frames) and _comparable(b"".join(one.out for one in frames)) != _comparable(sent):
        frames = [_Frame(data, out, (), when - zero) for pieces in recorded for when, data, out in pieces]
    rows = list(_rows(frames[:_MOST_ROWS], secrets))
    return RecordedStream(rows, len(frames) - len(rows), reading.repair_counts, reading.message)


def mended_rows(plan: Plan, data: bytes, input_format: Form, output_format: Form) -> RecordedStream:
    """The same for bytes that come from somewhere else: a pasted response, or a log."""
    reading = read_reply(plan, input_format=input_format, output_format=output_format)
    form = detect_form(data, input_format, is_stream_wanted=output_format != "json")
    frames = list(_feed(reading, data, form, None))
    frames = _with_end(frames, reading, form)
    rows = list(_rows(frames[:_MOST_ROWS], ()))
    return RecordedStream(rows, len(frames) - len(rows), reading.repair_counts, reading.message)


def host_bytes(chain: Sequence[TracedAttempt]) -> bytes:
    """What the host sent, byte for byte, but for keys that it repeats."""
    return b"".join(_mask(bytes(attempt.came), attempt.secrets) for attempt in chain)


def _reader(attempt: TracedAttempt, *, may_retry: bool = False) -> ResponseStream:
    assert attempt.plan is not None
    return read_reply(
        attempt.plan,
        input_format=attempt.input_format,
        output_format=attempt.output_format,
        may_retry=may_retry,
    )


def _mend(
    reading: ResponseStream,
    chain: Sequence[TracedAttempt],
    recorded: Sequence[list[tuple[float, bytes, bytes]]],
    zero: float,
) -> list[_Frame]:
    frames: list[_Frame] = []
    for number, (attempt, pieces) in enumerate(zip(chain, recorded, strict=True)):
        if number:
            reading.start_retry(attempt.input_format)
        data = b"".join(piece for _, piece, _ in pieces)
        frames += _feed(reading, data, _form_of(pieces, attempt), _times(pieces, zero))
    return frames


def _form_of(pieces: Sequence[tuple[float, bytes, bytes]], attempt: TracedAttempt) -> Form:
    """What a response is, whatever its host calls it."""
    data = b"".join(piece for _, piece, _ in pieces)
    return detect_form(data, attempt.input_format, is_stream_wanted=attempt.output_format != "json")


def _feed(reading: ResponseStream, data: bytes, form: Form, times: Any) -> Iterator[_Frame]:
    for frame in _frames(data, form):
        seen = len(reading.repairs)
        out = reading.feed(frame)
        yield _Frame(frame, out, reading.repairs[seen:], None if times is None else times.send(len(frame)))


def _with_end(
    frames: list[_Frame],
    reading: ResponseStream,
    form: Form,
    sent: bytes | None = None,
    broke: Problem | None = None,
) -> list[_Frame]:
    """Add what the end of the response causes; `sent` is what the client got then."""
    seen = len(reading.repairs)
    out = reading.flush() if broke is None else reading.fail(broke)
    repairs = reading.repairs[seen:]
    if sent is not None:
        if _comparable(sent) != _comparable(out):  # the client left before the end
            repairs = []
        out = sent
    if not out and not repairs:
        return frames
    if form == "json" and frames:
        return [*frames[:-1], frames[-1]._replace(out=frames[-1].out + out, repairs=repairs)]
    return [*frames, _Frame(b"", out, repairs)]


def _comparable(data: bytes) -> bytes:
    return _NOT_COMPARED.sub(b"", data)


def _rows(frames: Sequence[_Frame], secrets: tuple[str, ...]) -> Iterator[Json]:
    """Keys are masked in all frames together: a host may split one. A mask is as long as what it covers."""
    came = _mask(b"".join(one.raw for one in frames), secrets)
    went = _mask(b"".join(one.out for one in frames), secrets)
    place = reached = 0
    for one in frames:
        raw, out = came[place : place + len(one.raw)], went[reached : reached + len(one.out)]
        place, reached = place + len(raw), reached + len(out)
        yield {
            "at": None if one.at is None else round(one.at * 1000, 1),
            "raw": _text(raw),
            "out": [] if out == raw else [_text(part) for part in _split(out)],
            "same": out == raw and bool(raw),
            "text": _delta_text(raw),
            "repairs": [{"rule": each.rule, "detail": without_secrets(each.detail)} for each in one.repairs],
        }


def _frames(data: bytes, form: Form) -> Iterator[bytes]:
    if form == "json":
        yield data
        return
    start = 0
    for found in _ENDS[form].finditer(data):
        yield data[start : found.end()]
        start = found.end()
    if start < len(data):
        yield data[start:]


def _split(out: bytes) -> list[bytes]:
    if not out:
        return []
    if not out.startswith((b"data:", b"event:", b":")):
        return [out]
    return [frame for frame in _frames(out, "sse") if frame.strip()]


def _times(pieces: Sequence[tuple[float, bytes, bytes]], zero: float) -> Any:
    """Send the length of a frame, get the time at which its last byte came."""

    def run() -> Any:
        place = reached = 0
        received = len(pieces[0][1]) if pieces else 0
        size = yield
        while True:
            reached += size
            while received < reached and place + 1 < len(pieces):
                place += 1
                received += len(pieces[place][1])
            size = yield pieces[place][0] - zero if pieces else 0.0

    times = run()
    next(times)
    return times


def _mask(data: bytes, secrets: tuple[str, ...]) -> bytes:
    return EchoMasker(secrets).feed(data, last=True)


def _text(data: bytes) -> str:
    return without_secrets(data.decode("utf-8", "replace").rstrip("\r\n"))  # type: ignore[no-any-return]


_DELTAS: Final = ("content", "reasoning_content", "reasoning", "text", "thinking", "partial_json")


def _delta_text(frame: bytes) -> str | None:
    """The text that a frame adds, to recognise it by and to show how much has come."""
    if len(frame) > _MOST_TEXT or not (start := frame.find(b"{")) >= 0:
        return None
    value = decode_object(frame[start:].strip())
    if value is None:
        return None
    choices = value.get("choices")
    delta = (
        choices[0].get("delta")
        if isinstance(choices, list) and choices and isinstance(choices[0], dict)
        else value.get("delta")
    )
    if isinstance(delta, str):
        return delta
    if not isinstance(delta, dict):
        return None
    text = next((text for name in _DELTAS if isinstance(text := delta.get(name), str) and text), None)
    return text if text is not None else _argument_text(delta.get("tool_calls"))


def _argument_text(calls: Any) -> str | None:
    functions = [one.get("function") for one in calls if isinstance(one, dict)] if isinstance(calls, list) else []
    texts = [one.get("arguments") for one in functions if isinstance(one, dict)]
    return "".join(text for text in texts if isinstance(text, str)) or None
