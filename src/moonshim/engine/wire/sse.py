"""Server-Sent Events bytes in any chunking <-> frames.

Lines, fields and events follow WHATWG HTML, section 9.2. Bytes are never decoded here, so a chunk may end inside a
character.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from functools import lru_cache
from typing import Final, Literal, TypeAlias

import msgspec

__all__ = [
    "BYTE_ORDER_MARK",
    "BoundedFramer",
    "Frame",
    "FrameFault",
    "SseFramer",
    "event_line",
    "merge_comments",
    "render_sse",
]

FrameFault: TypeAlias = Literal[
    "data_without_space", "line_endings", "multi_line_data", "unterminated", "byte_order_mark", "oversized"
]

MAX_EVENT_BYTES: Final = 16 * 1024 * 1024
BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_LF: Final = 10
_CR: Final = 13
_any_json: Final = msgspec.json.Decoder(msgspec.Raw)
_NAME: Final = re.compile(r"[A-Za-z0-9_.:-]+", re.ASCII)
_NAMES: Final = 256
_SHORT_LINE: Final = 16
_FEW_BYTES: Final = 512
_LINE: Final = rb"(?::[^\r\n]*)?(?:\r\n|\n|\r(?!\n|\Z))"
_SILENT_LINES: Final = re.compile(rb"(?:(?<=\n)|(?<=\r)(?!\n))(?:%b){8,}" % _LINE)


class Frame(msgspec.Struct, frozen=True, gc=False):
    """One event or line, correctly framed."""

    raw: bytes
    """The bytes to send when nothing needs to change."""
    data: bytes | None
    """The payload, its lines joined by LF. None for a comment, a blank line, an event without data, or a fragment of
    an oversized event."""
    head: bytes = b""
    """The other lines of the event (`event:`, `id:`, comments), each terminated by LF."""
    fault: FrameFault | None = None
    """None if `raw` equals the input byte for byte; otherwise what was corrected, the first in the order of
    `FrameFault`."""


def render_sse(data: bytes, head: bytes = b"") -> bytes:
    """Render one event; each line of the payload becomes a `data:` line, whatever its line ends."""
    if _LF in data or _CR in data:
        data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").replace(b"\n", b"\ndata: ")
    if head and head.startswith(BYTE_ORDER_MARK):
        # At the start of a stream a reader would strip a byte order mark and misread the field name.
        return b"data: %b\n%b\n" % (data, head)
    return b"%bdata: %b\n\n" % (head, data)


def merge_comments(chunk: bytes) -> bytes:
    """Shorten each long run of comments and blank lines in a chunk to its last two lines.

    Every such line costs as much as an event and carries nothing, so a host could keep a reader busy with them.
    Events and their boundaries stay the same.

    >>> merge_comments(b"data: 1\\n\\n" + b": c\\n\\n" * 1000 + b"data: 2\\n\\n")
    b'data: 1\\n\\n: c\\n\\ndata: 2\\n\\n'
    """
    if len(chunk) < _FEW_BYTES or (chunk.count(b"\n") + chunk.count(b"\r")) * _SHORT_LINE < len(chunk):
        return chunk
    return _SILENT_LINES.sub(_merge_run, chunk)


def _merge_run(run: re.Match[bytes]) -> bytes:
    lines = run[0].splitlines(keepends=True)
    end = b""
    if any(line in (b"\n", b"\r\n", b"\r") for line in lines):
        # A blank line ends the event before the run; after a CR, the first LF would only complete that line end.
        end = b"\n\n" if run.string[run.start() - 1] == _CR else b"\n"
    return end + b"".join(lines[-2:])


def event_line(kind: object) -> bytes:
    """The `event:` line; empty for a name that would be misread.

    >>> event_line("ping"), event_line("a\\nb"), event_line(None)
    (b'event: ping\\n', b'', b'')
    """
    return _line_of(kind) if isinstance(kind, str) else b""


@lru_cache(_NAMES)
def _line_of(kind: str) -> bytes:
    return b"event: %b\n" % kind.encode() if _NAME.fullmatch(kind) is not None else b""


class BoundedFramer(ABC):
    """Shared by both framings: byte order marks, and a limit on the buffered part of an unfinished event.

    The limit counts the bytes of an event including its end, so it does not depend on the chunking.
    """

    __slots__ = ("_held", "_marked", "_max", "_opening", "_passing", "idle")

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._max = max_event_bytes
        self._held = bytearray()
        self._passing = False
        """The current event is oversized: its fragments are passed on as they arrive."""
        self._opening: bytes | None = b""
        """The first bytes, while they may still become a byte order mark; None afterwards."""
        self._marked = False
        """A byte order mark was removed and no frame has reported it yet."""
        self.idle = False
        """Nothing is buffered or pending: the next chunk can be read on its own."""

    def flush(self) -> list[Frame]:
        """End of input: an unterminated last event is still an event."""
        opening, self._opening = self._opening, None
        out = self._split(opening) if opening else []
        if self._passing:
            self._passing = False
            out.append(Frame(self._missing_end(), None, b"", "unterminated"))
        elif self._held:
            event = bytes(self._held) + self._missing_end()
            self._held.clear()
            out.append(self._frame(event, cut=True))
        if self._marked and not out:
            out.append(Frame(b"", None))
        return self._report_mark(out)

    def _feed(self, chunk: bytes) -> list[Frame]:
        if self._opening is not None:
            # All marks, not just one: a second one would be at the start of our output and be stripped there.
            chunk, at = self._opening + chunk, 0
            while chunk.startswith(BYTE_ORDER_MARK, at):
                at += len(BYTE_ORDER_MARK)
                self._marked = True
            chunk = chunk[at:]
            if BYTE_ORDER_MARK.startswith(chunk):
                self._opening = chunk
                return []
            self._opening = None
        if not chunk:
            return []
        return self._report_mark(self._split(chunk))

    def _report_mark(self, out: list[Frame]) -> list[Frame]:
        if self._marked and out:
            self._marked = False
            first = out[0]
            out[0] = Frame(first.raw, first.data, first.head, first.fault or "byte_order_mark")
        return out

    def _hold(self, piece: bytes, out: list[Frame]) -> None:
        """Buffer a piece of an unfinished event, or pass it on when the limit is exceeded."""
        if self._passing:
            out.append(Frame(piece, None, b"", "oversized"))
            return
        self._held += piece
        if len(self._held) > self._max:
            out.append(Frame(bytes(self._held), None, b"", "oversized"))
            self._held.clear()
            self._passing = True

    def _complete(self, piece: bytes) -> Frame:
        """The event that ends with this piece."""
        if self._passing:
            self._passing = False
            return Frame(piece, None, b"", "oversized")
        if self._held:
            piece = bytes(self._held) + piece
            self._held.clear()
        if len(piece) > self._max:
            return Frame(piece, None, b"", "oversized")
        return self._frame(piece)

    @abstractmethod
    def _split(self, chunk: bytes) -> list[Frame]:
        """The frames that end in this non-empty chunk; the rest is buffered."""

    @abstractmethod
    def _frame(self, event: bytes, cut: bool = False) -> Frame:
        """The frame of one event including its end; `cut`: the end was added by us."""

    @abstractmethod
    def _missing_end(self) -> bytes:
        """The bytes that would end the buffered event."""


class SseFramer(BoundedFramer):
    """Splits an event stream into frames, whatever the chunking.

    - The frames, and their concatenated `raw`, are the same for every split of the input.
    - Correctly framed input is passed on byte for byte; all output is correctly framed.
    - An event is emitted with the first byte of its blank line; after a CR, only an LF is awaited, and that LF is
      dropped.
    - No byte of a payload, field or comment is lost. An event larger than `max_event_bytes` is passed on in
      fragments,
      unparsed except for line ends (`fault` "oversized"), so memory is bounded; the next event is parsed again.
    - Linear time: buffered bytes are searched once and copied once.
    """

    __slots__ = ("_after_cr", "_cr", "_line_start")

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        super().__init__(max_event_bytes)
        self._after_cr = False
        """The last byte was a CR: an LF now is the second half of the same line end."""
        self._cr = False
        """A line of the current event ended with CR or CRLF."""
        self._line_start = False
        """The last byte of the current event is a line end: an LF now ends the event."""

    def feed(self, chunk: bytes) -> list[Frame]:
        """The frames that end in this chunk."""
        if self.idle:
            # The common case: one well-formed event. A property test proves it equal to the slow path.
            line, _, rest = chunk.partition(b"\n")
            if rest == b"\n" and line[:6] == b"data: " and _CR not in line and len(chunk) <= self._max:
                return [Frame(chunk, line[6:])]
        return self._feed(chunk)

    def _split(self, chunk: bytes) -> list[Frame]:
        if self._after_cr and chunk[0] == _LF:
            chunk = chunk[1:]
        self._after_cr = chunk[-1:] == b"\r"
        out = self._scan_other_ends(chunk) if _CR in chunk else self._scan(chunk, cr=False)
        self.idle = not (self._held or self._passing or self._after_cr)
        return out

    def _scan_other_ends(self, chunk: bytes) -> list[Frame]:
        text = chunk.replace(b"\r\n", b"\n")
        if _CR not in text and len(chunk) - len(text) == text.count(b"\n"):
            cut = text.rfind(b"\n") + 1
            return self._scan(text[:cut], cr=True) + self._scan(text[cut:], cr=False)
        out: list[Frame] = []
        for line in chunk.splitlines(keepends=True):
            cr = _CR in line
            out += self._scan(line.rstrip(b"\r\n") + b"\n" if cr else line, cr)
        return out

    def _scan(self, text: bytes, cr: bool) -> list[Frame]:
        """Frames of a text with LF line ends. `cr`: all of them were CR or CRLF, and the text ends with one."""
        out: list[Frame] = []
        start, stop, limit = 0, len(text), self._max
        if stop and (self._held or self._passing):
            self._cr = self._cr or cr
            start = 1
            if not (self._line_start and text[0] == _LF):
                start += text.find(b"\n\n") + 1
                if start == 1:
                    self._hold_lines(text, out)
                    return out
            out.append(self._complete(text[:start]))
        while start < stop:
            end = text.find(b"\n", start)
            if end == start:
                out.append(Frame(b"\n", None, b"", "line_endings" if cr else None))
                start += 1
                continue
            after = end + 2
            if end > 0 and after <= stop and text[end + 1] == _LF:
                if not cr and text.startswith(b"data: ", start) and after - start <= limit:
                    out.append(Frame(text[start:after], text[start + 6 : end]))
                    start = after
                    continue
            else:
                after = text.find(b"\n\n", end) + 2
            self._cr = cr
            if after == 1:
                self._hold_lines(text[start:], out)
                break
            out.append(self._complete(text[start:after]))
            start = after
        return out

    def _hold_lines(self, piece: bytes, out: list[Frame]) -> None:
        self._line_start = piece[-1] == _LF
        self._hold(piece, out)

    def _missing_end(self) -> bytes:
        return b"\n" if self._line_start else b"\n\n"

    def _frame(self, event: bytes, cut: bool = False) -> Frame:
        data: list[bytes] = []
        others: list[bytes] = []
        spaced = True
        for line in event[:-2].split(b"\n"):
            if line[:6] == b"data: ":
                data.append(line[6:])
            elif line[:5] == b"data:" or line == b"data":
                data.append(line[5:])
                spaced = False
            else:
                others.append(line + b"\n")
        head = b"".join(others)
        payload = b"\n".join(data)
        folded = len(data) > 1 and _is_json_text(payload)
        fault: FrameFault | None = "unterminated" if cut else None
        if not spaced:
            fault = "data_without_space"
        elif self._cr:
            fault = "line_endings"
        elif folded:
            fault = "multi_line_data"
        if not data:
            return Frame(event, None, head, fault)
        if folded or not spaced:
            event = render_sse(payload.replace(b"\n", b"") if folded else payload, head)
        return Frame(event, payload, head, fault)


def _is_json_text(payload: bytes) -> bool:
    """Whether line feeds here are white space between tokens: in anything else, `[1<LF>2]`, they carry meaning."""
    if not payload.lstrip().startswith((b"{", b"[")):
        return False
    try:
        _any_json.decode(payload)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True
