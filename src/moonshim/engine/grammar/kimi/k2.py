"""Kimi K2 to K2.7: text with `<|tool_call_begin|>` markers -> text and calls.

    section = "<|tool_calls_section_begin|>" { call } "<|tool_calls_section_end|>"
    call    = "<|tool_call_begin|>" id "<|tool_call_argument_begin|>" object "<|tool_call_end|>"
    id      = "functions." name ":" digits

Hosts have omitted every one of these markers, so the section only indicates that white space is ignored; a call ends
where its JSON does.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from moonshim.engine.grammar.protocol import CallDelta, CallEnded, CallStarted, Channel, GrammarEvent, Notice, TextFound
from moonshim.engine.grammar.shared.bare_names import WORD, BareNames, bare_names, ends_in_word
from moonshim.engine.grammar.shared.markers import marker_set
from moonshim.engine.values.options import ToolTokens
from moonshim.engine.wire.json_scanner import ValueScanner

__all__ = ["KimiK2Grammar"]

HEADER_LIMIT: Final = 288
"""Longest text in the place of the id: a name of 256 characters, its prefix and its index."""
GAP_LIMIT: Final = 1024
"""Maximum white space between two markers."""
PROSE_LIMIT: Final = 1024
"""Maximum text after complete arguments that is held until it is known whether it belongs to them."""

_SINGULAR: Final = {"section_begin": "<|tool_call_section_begin|>", "section_end": "<|tool_call_section_end|>"}
_THINK: Final = {"<think>": "think", "</think>": "/think", "◁think▷": "think", "◁/think▷": "/think"}
_CLEAR_HEADER: Final = re.compile(r"\s*(?:functions\.)?[A-Za-z_][\w.\-:]*:[0-9]+\s*")
_NOT_SPACE: Final = re.compile(r"\S")
_VALUE_STARTS: Final = re.compile(r'["{\[<]')

# Parser states.
_OUTSIDE, _HEADER, _BEFORE, _VALUE, _AFTER, _PROSE = range(6)
# The states of the fast path: plain text, and the inside of a string.
_NO_NAMES, _IN_SPEECH, _IN_STRING = 1, 2, 3


class KimiK2Grammar:
    """Parses one text field. At most a marker less one character, or a bare header, is held back as text.

    >>> grammar = KimiK2Grammar("text")
    >>> grammar.feed("Hi <|tool_call_begin|>functions.ls:0<|tool_call_argument_begin|>{}")
    [TextFound(channel='text', text='Hi '),
     CallStarted(channel='text', header='functions.ls:0', name=None, opened=True), CallDelta(text='{}')]
    """

    __slots__ = (
        "_after_section",
        "_bare",
        "_base",
        "_beginnings",
        "_channel",
        "_gap",
        "_gap_size",
        "_header",
        "_held",
        "_in_word",
        "_kinds",
        "_markers",
        "_plain_text",
        "_prose",
        "_quick",
        "_quiet",
        "_scanner",
        "_start0",
        "_start1",
        "_state",
        "_words",
        "tags_are_text",
        "words_open",
    )

    def __init__(
        self,
        channel: Channel,
        *,
        names: frozenset[str] | None = None,
        tokens: ToolTokens | None = None,
        calls: bool = True,
    ) -> None:
        self._base: Channel = channel
        self._channel: Channel = channel
        self._kinds = _kinds(tokens or ToolTokens()) if calls else _THINK
        self._markers = marker_set(*self._kinds)
        starts = self._markers.starts
        # Two `in` tests are faster than one search; custom markers may start with more characters.
        self._start0, self._start1 = (starts[0], starts[-1]) if len(starts) <= 2 else ("", "")
        # An empty string occurs in every text, so then the fast path is never taken.
        self._bare: BareNames | None = bare_names(names) if calls and names else None
        self._beginnings: frozenset[str] = self._bare.beginnings if self._bare is not None else frozenset()
        self._state = _OUTSIDE
        self._plain_text = _IN_SPEECH if self._beginnings else _NO_NAMES
        self._quick = self._plain_text
        self._scanner = ValueScanner()
        self._held = ""
        self._gap: list[str] = []
        self._gap_size = 0
        self._quiet = False
        self._after_section = False
        """White space is pending after a section, not inside it."""
        self._header = ""
        self._words = False
        """Words before the object: white space between them belongs to them."""
        self._prose = ""
        self._in_word = False
        self.tags_are_text = False
        """Set when the host sends reasoning in its own field: `<think>` in the text is then ordinary text."""
        self.words_open = 0
        """Number of `<think>` emitted as text and not closed yet."""

    @property
    def markers(self) -> tuple[str, ...]:
        """Every string with a meaning in this grammar."""
        return tuple(self._kinds)

    @property
    def held(self) -> str:
        """Text that may still become (part of) a marker."""
        return self._held if self._state == _OUTSIDE else ""

    def feed(self, text: str) -> list[GrammarEvent]:
        quick = self._quick
        if quick == _IN_SPEECH:
            if self._start0 not in text and self._start1 not in text and ":" not in text:
                # At most the last word is held, if it could start a bare header.
                if self._held:
                    text, self._held = self._held + text, ""
                stem = text.rstrip(WORD)
                word = text[len(stem) :]
                if word in self._beginnings and (stem or not self._in_word):
                    self._held = word
                    self._in_word = False
                    return [TextFound(self._channel, stem)] if stem else []
                self._in_word = word != ""
                return [TextFound(self._channel, text)] if text else []
        elif quick == _IN_STRING:
            if '"' not in text and "\\" not in text:
                return [CallDelta(text)]
            return self._read_string(text)
        elif quick == _NO_NAMES and self._start0 not in text and self._start1 not in text:
            return [TextFound(self._channel, text)] if text else []
        return self._read(text, 0, [])

    def _read_string(self, text: str) -> list[GrammarEvent]:
        """Continue inside a string: usually the text ends within the same string."""
        stop = self._scanner.scan(text, 0)
        if stop == len(text) and self._scanner.inside:
            self._set_quick()
            return [CallDelta(text)]
        out: list[GrammarEvent] = [CallDelta(text[:stop])]
        if self._scanner.inside:
            stop = self._marker_in_call(text, stop, out)
        else:
            self._state = _AFTER
        return self._read(text, stop, out)

    def _read(self, text: str, pos: int, out: list[GrammarEvent]) -> list[GrammarEvent]:
        if not pos:
            text, self._held = self._held + text, ""
        end = len(text)
        while pos < end:
            match self._state:
                case 0:
                    pos = self._outside(text, pos, out)
                case 1:
                    pos = self._in_header(text, pos, out)
                case 2:
                    pos = self._before_value(text, pos, out)
                case 3:
                    pos = self._in_value(text, pos, out)
                case 4:
                    pos = self._after_value(text, pos, out)
                case _:
                    pos = self._in_prose(text, pos, out)
        self._set_quick()
        return out

    def _set_quick(self) -> None:
        """Decide which fast path the next text may take."""
        self._quick = 0
        held = self._held
        if self._state == _VALUE:
            if self._scanner.in_string and not self._scanner.escaped and not held:
                self._quick = _IN_STRING
        elif self._state == _OUTSIDE and not self._quiet and (not held or held in self._beginnings):
            self._quick = self._plain_text

    def flush(self) -> list[GrammarEvent]:
        """End of input: the start of a marker was only text; an open call is cut off."""
        out: list[GrammarEvent] = []
        if self._quiet and self._after_section:
            # After a section it may be the end of the text.
            self._break_gap(out)
        held, self._held = self._held, ""
        match self._state:
            case 1:
                # A header that never ended names nothing: it is kept as text.
                out.append(Notice("unreadable_call", self._header))
                self._emit_text(self._header, out)
            case 2 | 3:
                out.append(CallEnded(closed=False))
            case 4 | 5:
                out.append(CallEnded(closed=True))
                self._emit_text(self._prose, out)
        self._emit_text(held, out)
        self._state, self._header, self._prose = _OUTSIDE, "", ""
        self._drop_gap()
        self._quiet = False
        self._in_word = False
        self._quick = self._plain_text
        return out

    # -- outside of calls ------------------------------------------------------------

    def _outside(self, text: str, pos: int, out: list[GrammarEvent]) -> int:
        if self._quiet:
            found = _NOT_SPACE.search(text, pos)
            stop = found.start() if found else len(text)
            self._keep_gap(text[pos:stop])
            if self._gap_size > GAP_LIMIT:
                self._break_gap(out)
            if found is None:
                return stop
            pos = stop
        marker = self._markers.find(text, pos)
        if marker is not None:
            return self._outside_marker(text, pos, marker, out)
        tail = len(text) - self._markers.partial_length(text, pos)
        cut = tail
        if self._bare is not None:
            cut = self._bare_start(text, pos, tail)
            if tail < len(text) and not self._bare.is_complete(text[cut:tail]):
                # Only a complete header can precede the arguments marker.
                cut = tail
        if cut > pos:
            self._break_gap(out)
            self._emit_text(text[pos:cut], out)
        self._held = text[cut:]
        return len(text)

    def _bare_start(self, text: str, pos: int, end: int) -> int:
        assert self._bare is not None
        # The previous character decides whether a word starts here.
        return self._bare.start(text, pos, end, in_word=self._in_word)

    def _outside_marker(self, text: str, pos: int, marker: re.Match[str], out: list[GrammarEvent]) -> int:
        kind, start = self._kinds[marker.group()], marker.start()
        head = start
        if kind == "arg_begin" and self._bare is not None:
            head = self._bare_start(text, pos, start)
            if not self._bare.is_complete(text[head:start]):
                head = start
        if head > pos:
            self._break_gap(out)
            self._emit_text(text[pos:head], out)
        if head < start:
            self._drop_gap()
            self._begin(text[head:start], out)
        else:
            self._handle_marker(kind, marker.group(), out)
        return marker.end()

    def _keep_gap(self, space: str) -> None:
        if space:
            self._gap.append(space)
            self._gap_size += len(space)

    def _drop_gap(self) -> str:
        gap, self._gap, self._gap_size = "".join(self._gap), [], 0
        return gap

    def _break_gap(self, out: list[GrammarEvent]) -> None:
        """White space before text, or more than can separate markers, is text after all."""
        self._emit_text(self._drop_gap(), out)
        self._quiet = False

    def _emit_text(self, text: str, out: list[GrammarEvent]) -> None:
        if text:
            out.append(TextFound(self._channel, text))
            self._in_word = ends_in_word(text)

    def _handle_marker(self, kind: str, marker: str, out: list[GrammarEvent]) -> None:
        """A marker outside of any call decides what comes next."""
        match kind:
            case "call_begin":
                self._state, self._header = _HEADER, ""
            case "section_begin":
                self._quiet, self._after_section = True, False
            case "section_end":
                self._quiet = self._after_section = True
            case "think" | "/think":
                self._break_gap(out)
                self._tag(kind, marker, out)
            case _:
                out.append(Notice("stray_marker", marker))
        self._drop_gap()
        self._in_word = False

    def _tag(self, kind: str, tag: str, out: list[GrammarEvent]) -> None:
        """`<think>` moves what follows to the reasoning; if that has its own field, the tags are ordinary text."""
        if kind == "think" and self.tags_are_text:
            self.words_open += 1
            self._emit_text(tag, out)
        elif kind == "think":
            self._channel = "reasoning"
        elif self.words_open:
            self.words_open -= 1
            self._emit_text(tag, out)
        elif self._channel != self._base:
            self._channel = self._base
        else:
            out.append(Notice("stray_marker", tag))

    # -- a call ----------------------------------------------------------------------

    def _begin(self, header: str, out: list[GrammarEvent], *, opened: bool = True) -> None:
        out.append(CallStarted(self._channel, header.strip(), None, opened))
        self._state = _BEFORE
        self._words = False
        self._scanner = ValueScanner()
        self._header = ""

    def _end(self, kind: str, out: list[GrammarEvent], *, closed: bool = True) -> None:
        """The call is ended by a marker of this kind."""
        out.append(CallEnded(closed))
        self._state = _OUTSIDE
        self._quiet = True
        self._after_section = kind == "section_end"
        self._in_word = False
        self._drop_gap()
        if kind == "call_begin":
            self._state = _HEADER

    def _in_header(self, text: str, pos: int, out: list[GrammarEvent]) -> int:
        marker = self._markers.find(text, pos)
        stop = marker.start() if marker else len(text) - self._markers.partial_length(text, pos)
        # Never past the limit in one step, so that chunking does not decide what is a header.
        stop = min(stop, pos + HEADER_LIMIT + 1 - len(self._header))
        brace = text.find("{", pos, stop)
        if brace >= 0 and _CLEAR_HEADER.fullmatch(self._header + text[pos:brace]):
            # The arguments marker is missing, but these are the arguments.
            self._begin(self._header + text[pos:brace], out)
            return brace
        self._header += text[pos:stop]
        if len(self._header) > HEADER_LIMIT:
            out.append(Notice("unreadable_call", self._header))
            self._state, self._quiet = _OUTSIDE, False
            self._emit_text(self._header, out)
            self._header = ""
            return stop
        if marker is None:
            self._held = text[stop:]
            return len(text)
        kind = self._kinds[marker.group()]
        if kind == "arg_begin":
            self._begin(self._header, out)
        elif kind in ("think", "/think"):
            self._header += marker.group()
        else:
            self._begin(self._header, out, opened=False)
            self._end(kind, out)
        return marker.end()

    def _before_value(self, text: str, pos: int, out: list[GrammarEvent]) -> int:
        if not self._words:
            found = _NOT_SPACE.search(text, pos)
            if found is None:
                return len(text)
            pos = found.start()
        if (marker := self._markers.match(text, pos)) is not None:
            return self._close(marker, out)
        if self._unfinished_at(text, pos):
            return len(text)
        start = _VALUE_STARTS.search(text, pos)
        stop = start.start() if start else len(text)
        if stop > pos:
            # Words before the object are left to the argument repair.
            self._words = True
            out.append(CallDelta(text[pos:stop]))
        if start is None:
            return stop
        if start.group() == "<":
            return self._marker_in_call(text, stop, out)
        self._state = _VALUE
        return stop

    def _in_value(self, text: str, pos: int, out: list[GrammarEvent]) -> int:
        stop = self._scanner.scan(text, pos)
        if stop > pos:
            out.append(CallDelta(text[pos:stop]))
        if not self._scanner.inside:
            self._state = _AFTER
        elif stop < len(text):
            return self._marker_in_call(text, stop, out)
        return stop

    def _after_value(self, text: str, pos: int, out: list[GrammarEvent]) -> int:
        found = _NOT_SPACE.search(text, pos)
        stop = min(found.start() if found else len(text), pos + GAP_LIMIT + 1 - self._gap_size)
        self._keep_gap(text[pos:stop])
        if self._gap_size > GAP_LIMIT:
            self._end_in_text(self._drop_gap(), out)
            return stop
        if found is None:
            return stop
        pos = stop
        marker = self._markers.match(text, pos)
        if marker is not None:
            self._drop_gap()
            return self._close(marker, out)
        if self._unfinished_at(text, pos):
            return len(text)
        if text[pos] == '"' and pos + 1 == len(text):
            self._held = '"'
            return len(text)
        if text[pos] in "{[" or text.startswith(('"{', '"['), pos):
            # Some hosts send the arguments twice: that is left to the argument repair, too.
            self._drop_gap()
            self._state = _VALUE
            return pos
        self._state = _PROSE
        self._prose = self._drop_gap()
        return pos

    def _in_prose(self, text: str, pos: int, out: list[GrammarEvent]) -> int:
        """Text after the arguments belongs to them if the end of the call follows, otherwise it is visible text."""
        marker = self._markers.find(text, pos)
        stop = marker.start() if marker else len(text) - self._markers.partial_length(text, pos)
        # Never past the limit in one step, so that chunking does not decide what the text belongs to.
        stop = min(stop, pos + PROSE_LIMIT + 1 - len(self._prose))
        self._prose += text[pos:stop]
        over = len(self._prose) > PROSE_LIMIT
        if marker is None and not over:
            self._held = text[stop:]
            return len(text)
        prose, self._prose = self._prose, ""
        if marker is None or over or (kind := self._kinds[marker.group()]) != "call_end":
            self._end_in_text(prose, out)
            return stop
        out.append(CallDelta(prose))
        self._end(kind, out)
        return marker.end()

    def _end_in_text(self, text: str, out: list[GrammarEvent]) -> None:
        """The call is over, and this text after its arguments is not part of it."""
        out.append(CallEnded(closed=True))
        self._state, self._quiet = _OUTSIDE, False
        self._emit_text(text, out)

    def _marker_in_call(self, text: str, pos: int, out: list[GrammarEvent]) -> int:
        """At a `<` outside of strings: a marker ends the call, anything else is part of the arguments."""
        marker = self._markers.match(text, pos)
        if marker is not None:
            return self._close(marker, out)
        if self._unfinished_at(text, pos):
            return len(text)
        out.append(CallDelta(text[pos]))
        self._words = True
        return pos + 1

    def _unfinished_at(self, text: str, pos: int) -> bool:
        """Hold back the rest of the text if it may still become a marker."""
        if self._markers.partial_length(text, pos) != len(text) - pos:
            return False
        self._held = text[pos:]
        return True

    def _close(self, marker: re.Match[str], out: list[GrammarEvent]) -> int:
        kind = self._kinds[marker.group()]
        if kind in ("arg_begin", "think", "/think"):
            out.append(Notice("stray_marker", marker.group()))
        else:
            self._end(kind, out)
        return marker.end()


@lru_cache(16)
def _kinds(tokens: ToolTokens) -> dict[str, str]:
    kinds = {text: name for name, text in _SINGULAR.items()}
    kinds |= {getattr(tokens, name): name for name in tokens.__struct_fields__}
    return kinds | _THINK
