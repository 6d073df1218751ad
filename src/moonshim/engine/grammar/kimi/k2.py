"""Kimi K2 to K2.7: text with `<|tool_call_begin|>` markers -> text and calls.

    section = "<|tool_calls_section_begin|>" { call } "<|tool_calls_section_end|>"
    call    = "<|tool_call_begin|>" id "<|tool_call_argument_begin|>" object "<|tool_call_end|>"
    id      = "functions." name ":" digits

Hosts have omitted every one of these markers, so the section only indicates that white space is ignored; a call ends
where its JSON does. Servers whose parser gives up have swallowed the first markers and send the rest as text:

    name "<|tool_call_argument_begin|>" object "<|tool_call_end|>"     the name is at the end of the text before
    [ "<|tool_call_argument_begin|>" ] object "<|tool_call_end|>"      behind a native call without arguments (`resume`)

What a marker opens and nobody can read is a `CallLost`. What only talks about a marker stays text, with the marker.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, Literal

from moonshim.engine.grammar.protocol import (
    CallDelta,
    CallEnded,
    CallLost,
    CallResumed,
    CallStarted,
    Channel,
    GrammarEvent,
    Notice,
    OrphanStarted,
    TextFound,
)
from moonshim.engine.grammar.shared.bare_names import WORD, BareNames, bare_names, ends_in_word
from moonshim.engine.grammar.shared.markers import marker_set
from moonshim.engine.grammar.shared.text_so_far import LARGE, MAX_PIECES, TextSoFar
from moonshim.engine.values.options import ToolTokens
from moonshim.engine.wire.json_scanner import ValueScanner

__all__ = ["KimiK2Grammar"]

HEADER_LIMIT: Final = 288
"""Longest text in the place of the id: a name of 256 characters, its prefix and its index."""
GAP_LIMIT: Final = 1024
"""Maximum white space between two markers."""
PROSE_LIMIT: Final = 1024
"""Maximum text after complete arguments that is held until it is known whether it belongs to them."""

_MISSPELLED: Final = {
    "<|tool_call_section_begin|>": "section_begin",
    "<|tool_call_section_end|>": "section_end",
    "<|tool_calls_begin|>": "section_begin",
    "<|tool_calls_end|>": "section_end",
    "<|tool_call_arguments_begin|>": "arg_begin",
    "<|tool_calls_argument_begin|>": "arg_begin",
}
"""Markers as models have misspelled them."""
_THINK: Final = {"<think>": "think", "</think>": "/think", "◁think▷": "think", "◁/think▷": "/think"}
_CLEAR_HEADER: Final = re.compile(r"\s*(?:(?:functions\.)?[A-Za-z_][\w.\-:]*\s*[:\uff1a]\s*[0-9]+|[\w.$:\-]+)\s*")
"""What is an id beyond doubt, so that an object behind it is its arguments."""
_NO_ID: Final = re.compile(
    r"\A[ \t]*(?:[^\s\w.:$\-{\"'\[<\\\uff1a]|<[^|])|\{[{%]|\$\{|"  # signs, tags and templates
    r"`|[.,;!?][ \t]|\S[ \t]*\n\s*\n|[\u3000-\u9fff\uac00-\ud7a3\uff01-\uff19\uff1b-\uffef]"
)
_WORDS: Final = re.compile(r"(?:\S+\s+){4}\S")
"""Text in the place of an id that only talks about the marker before it."""
_NEXT_LINE: Final = re.compile(r"[ \t]*\n(?![^\n]*\w[ \t]*[:\uff1a]\s*[0-9])(?![>\s]*(?:[\w.\-$]*[\w$])?\s*\Z)")
"""A new line without an id, before the next marker: the markers are the items of a list."""
_LISTED: Final = re.compile(r"(?:\A|\n)[ \t>]*(?:[0-9]{1,3}[.)]|[-*+\u2022|]|[\w\-]+:|[^\n]*(?:=|->|\u2192))[ \t]*\Z")
"""What stands before a marker that is an item of a list."""
_TEMPLATE: Final = re.compile(r"\{[{%][^{}]*[%}]\}\s*\Z")
"""A template has such an expression where a call has its id or its arguments."""
_ALONE: Final = re.compile(r"(?:\A|\n)[ \t]*functions\.[A-Za-z_][\w.\-]*:[0-9]+\s*\Z")
"""An id that stands alone on the last line."""
_JSON_BEFORE: Final = re.compile(r"[{\[][^<]*[}\]]\s*\Z")
_AFTER_CALLS: Final = frozenset({"call_end", "section_end"})
_SECTION: Final = frozenset({"section_begin", "section_end"})
_SURE: Final = 6
"""So many characters of a marker at the end of a response are one that was cut off."""
_NOT_SPACE: Final = re.compile(r"\S")
_VALUE_STARTS: Final = re.compile(r'["{\[<]')
_VALUES: Final = '{["'

# Parser states.
_OUTSIDE, _HEADER, _BEFORE, _VALUE, _AFTER, _PROSE, _ORPHAN = range(7)
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
        "_begins_line",
        "_called",
        "_calls",
        "_channel",
        "_gap",
        "_gap_size",
        "_has_section",
        "_header",
        "_held",
        "_in_section",
        "_in_word",
        "_is_listed",
        "_kinds",
        "_marker",
        "_markers",
        "_mention",
        "_pairs",
        "_plain_text",
        "_prose",
        "_quick",
        "_quiet",
        "_resumes",
        "_scanner",
        "_start0",
        "_start1",
        "_state",
        "_words",
        "ended",
        "said",
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
        said: TextSoFar | None = None,
    ) -> None:
        self._base: Channel = channel
        self._channel: Channel = channel
        self.said = said if said is not None else TextSoFar()
        self._calls = calls
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
        self._called = False
        """Whether there was a call, so that an end marker may follow."""
        self._has_section = False
        """Whether a section has begun, and has not ended."""
        self._in_section = ""
        """The marker of a section that has had no call so far."""
        self._mention = ""
        """A marker in a line of text, until what follows tells whether the line talks about it."""
        self._begins_line = self._is_listed = False
        """Whether it is the first thing in that line, or an item of a list."""
        self._marker = ""
        """The marker before a header, or that of arguments outside of a call, should it turn out to be text."""
        self._resumes: Literal["", "start", "later"] = ""
        """What comes may be arguments of the host's own call: at its start, or if an end marker follows."""
        self._pairs = False
        """The arguments begin with a string: they may be an object without its brackets."""
        self._words = False
        """Words before the object: white space between them belongs to them."""
        self._prose = ""
        self._in_word = False
        self.tags_are_text = False
        """Set when the host sends reasoning in its own field: `<think>` in the text is then ordinary text."""
        self.words_open = 0
        """Number of `<think>` emitted as text and not closed yet."""
        self.ended = False
        """Set before the last `flush`: what is open then was cut off."""

    @property
    def channel(self) -> Channel:
        """Where text goes now."""
        return self._channel

    @property
    def is_outside(self) -> bool:
        """Whether no call is being read."""
        return self._state == _OUTSIDE

    @property
    def in_value(self) -> bool:
        """Whether the next character belongs to the arguments of a call, whatever it is."""
        return self._state == _VALUE or (self._state == _BEFORE and self._words)

    @property
    def in_string(self) -> bool:
        """Whether the next character is inside a string of the arguments."""
        return self._state == _VALUE and self._scanner.in_string

    @property
    def markers(self) -> tuple[str, ...]:
        """Every string with a meaning in this grammar."""
        return tuple(self._kinds)

    @property
    def held(self) -> str:
        """Text that may still become (part of) a marker."""
        return self._held if self._state == _OUTSIDE else ""

    def skim(self, text: str) -> bool:
        """Read text if all of it is certainly text in this field, which is the common case; False: nothing was done."""
        quick = self._quick
        if quick == _IN_SPEECH:
            if self._held or self._start0 in text or self._start1 in text or ":" in text:
                return False
            stem = text.rstrip(WORD)
            if len(stem) < len(text):
                if text[len(stem) :] in self._beginnings and (stem or not self._in_word):
                    return False
                self._in_word = True
            else:
                self._in_word = False
        elif quick != _NO_NAMES or self._start0 in text or self._start1 in text:
            return False
        if self._channel != self._base:
            return False
        pieces = self.said.pieces
        pieces.append(text)
        if len(pieces) >= MAX_PIECES or len(text) >= LARGE:
            self.said.settle()
        return True

    def skim_value(self, text: str) -> bool:
        """Whether all of this text is arguments as they are: then nothing has to be done with it."""
        return self._quick == _IN_STRING and '"' not in text and "\\" not in text

    def called(self) -> None:
        """There was a call, here or elsewhere: a section that leaked is not empty, and its end may follow."""
        self._in_section = ""
        self._called = True

    def resume(self) -> None:
        """The host's own call has no arguments, or not all of them: what comes now may be the rest."""
        if self._state == _OUTSIDE and not self._held:
            self._resumes, self._quiet, self._after_section = "start", True, True
            self._quick = 0
            self.said.end_line()

    def quote(self, text: str) -> list[GrammarEvent]:
        """Text that is not to be read, though there are markers in it. Only outside of a call."""
        out: list[GrammarEvent] = []
        held, self._held = self._held, ""
        self._break_gap(out)
        self._emit_text(held + text, out)
        self._set_quick()
        return out

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
                    self._held, text = word, stem
                    self._in_word = False
                else:
                    self._in_word = word != ""
                return self._found(text) if text else []
        elif quick == _IN_STRING:
            if '"' not in text and "\\" not in text:
                return [CallDelta(text)]
            return self._read_string(text)
        elif quick == _NO_NAMES and self._start0 not in text and self._start1 not in text:
            return self._found(text) if text else []
        return self._read(text, 0, [])

    def _found(self, text: str) -> list[GrammarEvent]:
        self.said.add(text)
        return [TextFound(self._channel, text)]

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
                case 5:
                    pos = self._in_prose(text, pos, out)
                case _:
                    pos = self._after_orphan(text, pos, out)
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
        self._end_mention(None, out)
        if self._quiet and self._after_section:
            # After a section it may be the end of the text.
            self._break_gap(out)
        held, self._held = self._held, ""
        match self._state:
            case 1 if _talks(self._header):
                self._say_header(self._header, out)
            case 1:
                self._lose(self._marker + self._header + held, out)
                held = ""
            case 6:
                self._lose(self._marker + self._drop_gap() + held, out)
                held = ""
            case 2 | 3:
                out.append(CallEnded(closed=False))
            case 4 | 5:
                out.append(CallEnded(closed=True))
                self._emit_text(self._prose, out)
        if self.ended and self._calls:
            held = self._end_text(held, out)
        self._emit_text(held, out)
        self._state, self._header, self._prose = _OUTSIDE, "", ""
        self._drop_gap()
        self._quiet, self._resumes = False, ""
        self._in_word = False
        self._quick = self._plain_text
        return out

    def _end_text(self, held: str, out: list[GrammarEvent]) -> str:
        """The response ends outside of a call: half a marker, or an id alone on the last line, is a call cut off."""
        if len(held) >= _SURE and held.startswith("<|") and self._markers.may_grow(held, 0):
            kinds = {kind for one, kind in self._kinds.items() if one.startswith(held)}
            if self._called and (kinds & _AFTER_CALLS or kinds <= _SECTION):
                out.append(Notice("stray_marker", held))
            else:
                self._lose(held, out)
            return ""
        if self._in_section:
            self._lose(self._in_section + held, out, rest=held)
            return ""
        self.said.settle()
        if _ALONE.search(self.said.tail + held) and (last := held or self.said.tail.rpartition("\n")[2]):
            self._lose(last, out, rest=held)
            return ""
        return held

    def _lose(self, raw: str, out: list[GrammarEvent], *, rest: str | None = None) -> None:
        """A call that cannot be read; `rest` is what of it is not out yet, if not all."""
        out.append(CallLost(self._channel, raw, raw if rest is None else rest))
        self._state, self._quiet, self._header = _OUTSIDE, True, ""
        self._after_section = False
        self._in_section = ""
        self.said.end_line()

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
            if self._mention and not self._unfinished_at(text, pos) and self._markers.match(text, pos) is None:
                self._end_mention(text[pos], out)
            if self._held:
                return len(text)
        if self._resumes == "start":
            if self._unfinished_at(text, pos):
                return len(text)
            self._resumes = "later"
            if text[pos] in _VALUES:
                self._resume(out)
                return pos
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

    def _resume(self, out: list[GrammarEvent]) -> None:
        """What follows are arguments of the host's own call."""
        out.append(CallResumed())
        self._drop_gap()
        self._resumes, self._state, self._words, self._pairs = "", _BEFORE, False, False
        self._scanner = ValueScanner()

    def _outside_marker(self, text: str, pos: int, marker: re.Match[str], out: list[GrammarEvent]) -> int:
        kind, start = self._kinds[marker.group()], marker.start()
        if kind == "arg_begin" and self._resumes == "later" and start == pos and self._quiet:
            self._resume(out)
            return marker.end()
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
        self._resumes = ""
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
            self.said.add(text)
            self._in_word = ends_in_word(text)

    def _handle_marker(self, kind: str, marker: str, out: list[GrammarEvent]) -> None:
        """A marker outside of any call decides what comes next."""
        said = self.said
        said.settle()
        match kind:
            case "call_begin":
                self._begin_header(marker)
            case "arg_begin":
                self._state, self._marker = _ORPHAN, marker
            case "call_end" | "section_end" if (
                (self._resumes and said.tail.strip()) or _JSON_BEFORE.search(said.tail)
            ) and not _TEMPLATE.search(said.tail):
                # The end of a call whose beginning a server has kept.
                self._lose(said.tail + marker, out, rest="")
                self._after_section = kind == "section_end"
            case "section_begin":
                self._quiet, self._after_section = True, False
                self._in_section = "" if self._called else marker
            case "section_end":
                self._quiet = self._after_section = True
                self._in_section = ""
            case "think" | "/think":
                self._break_gap(out)
                self._tag(kind, marker, out)
            case _:
                self._quiet = self._after_section = True
        mentions = kind.endswith(("_end", "section_begin")) and self._state == _OUTSIDE
        if kind.startswith("section"):
            # The end of a section that has begun is no word of the text.
            mentions = mentions and not self._has_section
            self._has_section = kind == "section_begin"
        line = said.tail.rpartition("\n")[2]
        self._end_mention("", out)
        self._drop_gap()
        self._in_word = False
        begins_line = not line.strip()
        if mentions and self._calls and not (self._called if begins_line else line[-1:].isalnum()):
            self._mention, self._begins_line = marker, begins_line
            self._is_listed = not self._called and bool(_LISTED.search(said.tail) or _TEMPLATE.search(said.tail))
        elif kind == "call_end":
            out.append(Notice("stray_marker", marker))
        if self._state != _ORPHAN and kind not in ("think", "/think"):
            said.tail = ""

    def _end_mention(self, following: str | None, out: list[GrammarEvent]) -> None:
        """What follows a marker in the middle of a line tells whether that line talks about it: then it is text.

        An empty string is another marker, and None the end of the text.
        """
        marker, self._mention = self._mention, ""
        if not marker:
            return
        gap = "".join(self._gap)
        goes_on = following and "\n" not in gap and (gap or not following.isalnum() or not following.isascii())
        if self._begins_line and following and following.isalnum():
            goes_on = False  # what a server has left of a call, and then the answer
        if goes_on or (self._is_listed and following != ""):
            self._gap.insert(0, marker)
            self._in_section, self._has_section = "", False
        elif self._kinds[marker] == "call_end" or (following and not self._begins_line):
            out.append(Notice("stray_marker", marker))

    def _begin_header(self, marker: str) -> None:
        self._state, self._header, self._marker = _HEADER, "", marker

    def _after_orphan(self, text: str, pos: int, out: list[GrammarEvent]) -> int:
        """Behind an arguments marker outside of a call: the first character of a value makes it a call."""
        found = _NOT_SPACE.search(text, pos)
        stop = found.start() if found else len(text)
        self._keep_gap(text[pos:stop])
        if found is None and self._gap_size <= GAP_LIMIT:
            return stop
        if found is not None and text[stop] in _VALUES and not _TEMPLATE.search(self.said.tail):
            line = self.said.tail.rpartition("\n")[2]
            self.said.end_line()
            self._drop_gap()
            out.append(OrphanStarted(self._channel, line))
            self._state, self._words, self._pairs = _BEFORE, False, False
            self._scanner = ValueScanner()
            return stop
        if found is not None and self._unfinished_at(text, stop):
            return len(text)
        marker = self._markers.match(text, stop) if found is not None else None
        if marker is not None and self._kinds[marker.group()] in ("call_end", "section_end"):
            self._lose(self._marker + self._drop_gap() + marker.group(), out)
            self._after_section = self._kinds[marker.group()] == "section_end"
            self.said.end_line()
            return marker.end()
        self._state, self._quiet = _OUTSIDE, False
        gap = self._drop_gap()
        self._emit_text(self._marker + gap, out)
        self.said.end_line()
        if "\n" not in gap and text[stop : stop + 1].isalnum():
            self._resumes = "later"  # with an end marker behind it, it is a call without an object
        return stop

    def _tag(self, kind: str, tag: str, out: list[GrammarEvent]) -> None:
        """`<think>` moves what follows to the reasoning; if that has its own field, the tags are ordinary text."""
        if kind == "think" and self.tags_are_text:
            self.words_open += 1
            self._emit_text(tag, out)
        elif kind == "think":
            self._channel = "reasoning"
            self.said.begin_block()
        elif self.words_open:
            self.words_open -= 1
            self._emit_text(tag, out)
        else:
            self.said.begin_block()
            if self._channel != self._base:
                self._channel = self._base
            else:
                out.append(Notice("stray_marker", tag))

    # -- a call ----------------------------------------------------------------------

    def _begin(self, header: str, out: list[GrammarEvent], *, opened: bool = True) -> None:
        out.append(CallStarted(self._channel, header.strip(), None, opened))
        self.called()
        self._state = _BEFORE
        self._words = self._pairs = False
        self._scanner = ValueScanner()
        self._header = ""

    def _end(self, kind: str, marker: str, out: list[GrammarEvent]) -> None:
        """The call is ended by a marker of this kind."""
        out.append(CallEnded(closed=True))
        self._state = _OUTSIDE
        self._quiet = True
        self._after_section = kind == "section_end"
        self._in_word = False
        self._drop_gap()
        self.said.end_line()
        if kind == "call_begin":
            self._begin_header(marker)

    def _in_header(self, text: str, pos: int, out: list[GrammarEvent]) -> int:
        marker = self._markers.find(text, pos)
        stop = marker.start() if marker else len(text) - self._markers.partial_length(text, pos)
        # Never past the limit in one step, so that chunking does not decide what is a header.
        stop = min(stop, pos + HEADER_LIMIT + 1 - len(self._header))
        header = self._header + text[pos:stop]
        brace = header.find("{", len(self._header))
        if brace >= 0 and _CLEAR_HEADER.fullmatch(header[:brace]):
            # The arguments marker is missing, but these are the arguments.
            begun = len(self._header)
            self._begin(header[:brace], out)
            return pos + brace - begun
        if (talk := _end_of_talk(header)) is not None:
            talk = max(talk, len(self._header))
            stop = pos + talk - len(self._header)
            self._say_header(header[:talk], out)
            return stop
        self._header = header
        if len(header) > HEADER_LIMIT:
            self._lose(self._marker + header, out)
            self._quiet = False
            return stop
        if marker is None:
            self._held = text[stop:]
            return len(text)
        kind = self._kinds[marker.group()]
        if _NEXT_LINE.match(header) is not None:
            self._say_header(header, out)
            return marker.start()
        if kind == "arg_begin":
            self._begin(header, out)
        elif kind in ("think", "/think"):
            self._header += marker.group()
        elif kind in ("call_begin", "section_begin") and not header.strip():
            out.append(Notice("stray_marker", self._marker))
            self._begin_header(marker.group())
            if kind == "section_begin":
                self._state, self._quiet, self._after_section = _OUTSIDE, True, False
                self._in_section = marker.group()
        else:
            value = _VALUE_STARTS.search(header)
            if value is None:
                self._begin(header, out, opened=False)
            else:
                self._begin(header[: value.start()], out)
                out.append(CallDelta(header[value.start() :]))
            self._end(kind, marker.group(), out)
        return marker.end()

    def _say_header(self, header: str, out: list[GrammarEvent]) -> None:
        """The text behind a call marker is no id: it talks about the marker."""
        self._state, self._quiet, self._header, self._in_section = _OUTSIDE, False, "", ""
        self._emit_text(self._marker + header, out)

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
        self._pairs = self._pairs or (start.group() == '"' and not self._words)
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
        if self._pairs and text[pos] in ":,":
            # An object without its brackets goes on.
            out.append(CallDelta(self._drop_gap() + text[pos]))
            self._state, self._words = _BEFORE, True
            return pos + 1
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
        self._end(kind, marker.group(), out)
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
            self._end(kind, marker.group(), out)
        return marker.end()


def _end_of_talk(header: str) -> int | None:
    """Where text in the place of an id turns out to talk about the marker before it; None while it may be an id.

    >>> _end_of_talk(" opens a call, and then"), _end_of_talk("functions.read file:0")
    (15, None)
    """
    ends = [found.end() for form in (_NO_ID, _WORDS) if (found := form.search(header)) is not None]
    return min(ends, default=None)


def _talks(header: str) -> bool:
    """Whether a text that ends in the place of an id is no beginning of one."""
    words = header.split()
    ends = len(words) == 2 and words[1][-1] in ".!?"
    return ends or len(words) > 2 or (bool(words) and not any(map(str.isalnum, header)) and ":" not in header)


@lru_cache(16)
def _kinds(tokens: ToolTokens) -> dict[str, str]:
    kinds = dict(_MISSPELLED)
    kinds |= {getattr(tokens, name): name for name in tokens.__struct_fields__}
    return kinds | _THINK
