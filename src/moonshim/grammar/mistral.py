"""Mistral: text with `[TOOL_CALLS]` -> speech and calls, `[THINK]…[/THINK]` -> reasoning.

    old  = "[TOOL_CALLS]" "[" object { "," object } "]"
    new  = "[TOOL_CALLS]" name [ "[CALL_ID]" id ] [ "[ARGS]" ] object
    object (of old) = '{"name": ' string ', "arguments": ' value [ ', "id": ' string ] "}"

What follows the marker tells the two apart.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from moonshim.conversation import Tool
from moonshim.grammar.declared import call_without_arguments, names_of
from moonshim.grammar.events import CallBegan, CallEnded, CallGrew, Channel, Found, Noticed, Said
from moonshim.grammar.markers import marker_set
from moonshim.grammar.named_object import FAILED, READING, NamedObject
from moonshim.grammar.speech import GAP_LIMIT, THINK_TAGS, Speech
from moonshim.json_scan import ValueScanner

__all__ = ["HEADER_LIMIT", "MistralGrammar"]

HEADER_LIMIT: Final = 320
"""Longest name and identifier together."""

_CALLS, _ID, _ARGS = "[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"
_MARKERS: Final = (_CALLS, _ID, _ARGS)
_TAGS: Final = {"[THINK]": "think", "[/THINK]": "/think", **THINK_TAGS}
_IN_HEADER: Final = marker_set(*_MARKERS)
_NOT_SPACE: Final = re.compile(r"\S")
_NO_SEPARATOR: Final = re.compile(r"[^\s,]")
_VALUE_STARTS: Final = re.compile(r'["{\[]')
_NAME: Final = re.compile(r"\s*([\w.\-$:/]+)\s*(?:\[CALL_ID\]\s*([\w.\-:]+)\s*)?")

# Where in the grammar the next character stands.
_OUTSIDE, _OPENED, _LIST, _OBJECT, _HEADER, _BEFORE, _VALUE = range(7)


class MistralGrammar:
    """Reads one text field. What is kept back as text is at most a marker less one character.

    >>> grammar = MistralGrammar("text")
    >>> grammar.feed('Hi [TOOL_CALLS]ls[CALL_ID]a1b2c3d4e[ARGS]{"dir": "/tm')
    [Said(channel='text', text='Hi '), CallBegan(channel='text', header='a1b2c3d4e', name='ls', opened=True),
     CallGrew(text='{"dir": "/tm')]
    """

    __slots__ = ("_held", "_in_list", "_names", "_object", "_raw", "_scanner", "_speech", "_state", "_words")

    def __init__(self, channel: Channel, *, tools: Sequence[Tool] | None = None, calls: bool = True) -> None:
        self._speech = Speech(channel, *(_MARKERS if calls else ()), tags=_TAGS)
        self._names = names_of(tools)
        self._state = _OUTSIDE
        self._in_list = False
        self._object = NamedObject(channel)
        self._scanner = ValueScanner()
        self._raw = ""
        """What stood behind the marker, while it is not sure to be a call."""
        self._words = False
        """Words, and no value yet: the white space between them is theirs."""
        self._held = ""

    @property
    def tags_are_text(self) -> bool:
        return self._speech.tags_are_text

    @tags_are_text.setter
    def tags_are_text(self, value: bool) -> None:
        self._speech.tags_are_text = value

    @property
    def held(self) -> str:
        """Text that may still turn out to be (part of) a marker."""
        return self._speech.held if self._state == _OUTSIDE else ""

    def feed(self, text: str) -> list[Found]:
        speech = self._speech
        if self._state == _OUTSIDE and speech.is_plain(text):
            return [Said(speech.channel, text)] if text else []
        if self._is_in_string and '"' not in text and "\\" not in text:
            return [CallGrew(text)] if text else []
        text = speech.held + self._held + text
        speech.held = self._held = ""
        pos, out = 0, list[Found]()
        while pos < len(text):
            match self._state:
                case 0:
                    pos = self._outside(text, pos, out)
                case 1:
                    pos = self._opened(text, pos, out)
                case 2:
                    pos = self._in_calls(text, pos, out)
                case 3:
                    pos = self._in_object(text, pos, out)
                case 4:
                    pos = self._in_header(text, pos, out)
                case 5:
                    pos = self._before_value(text, pos, out)
                case _:
                    pos = self._in_value(text, pos, out)
        return out

    def flush(self) -> list[Found]:
        """End of input: what looked like the start of a marker was only text; an open call is cut off."""
        out: list[Found] = []
        held, self._held = self._held, ""
        match self._state:
            case 1 | 4:
                self._give_up(self._raw, out)
            case 3:
                self._object.flush(out)
                if self._object.raw:
                    self._give_up(self._raw + self._object.raw, out)
                else:
                    self._speech.drop_gap()
            case 2 if self._raw:
                self._give_up(self._raw, out)
            case 5 | 6:
                out.append(CallEnded(closed=False))
        self._speech.say(held, out)
        self._speech.flush(out)
        self._state, self._raw = _OUTSIDE, ""
        return out

    @property
    def _is_in_string(self) -> bool:
        if self._state == _OBJECT:
            return self._object.in_string
        return self._state == _VALUE and self._scanner.in_string and not self._scanner.escaped

    def _outside(self, text: str, pos: int, out: list[Found]) -> int:
        marker = self._speech.read(text, pos, out)
        if marker is None:
            return len(text)
        if marker.group() == _CALLS:
            self._state, self._raw = _OPENED, ""
        else:
            out.append(Noticed("stray_marker", marker.group()))
        self._speech.pause()
        return marker.end()

    def _opened(self, text: str, pos: int, out: list[Found]) -> int:
        """What comes first tells which of the two it is."""
        found = _NOT_SPACE.search(text, pos)
        stop = min(found.start() if found else len(text), pos + GAP_LIMIT + 1 - len(self._raw))
        self._raw += text[pos:stop]
        if len(self._raw) > GAP_LIMIT:
            self._give_up(self._raw, out)
        elif found is None:
            pass
        elif text[stop] == "{":
            self._in_list = False
            self._begin_object()
        elif text[stop] != "[":
            self._state = _HEADER
        elif (marker := _IN_HEADER.match(text, stop)) is not None:
            self._give_up(self._raw, out)
            return marker.start()
        elif _IN_HEADER.unfinished(text, stop) == len(text) - stop:
            self._held = text[stop:]
            return len(text)
        else:
            self._state, self._in_list = _LIST, True
            self._raw += "["
            return stop + 1
        return stop

    # -- the old form ------------------------------------------------------------------

    def _in_calls(self, text: str, pos: int, out: list[Found]) -> int:
        """Between the objects of a list."""
        found = _NO_SEPARATOR.search(text, pos)
        stop = found.start() if found else len(text)
        if stop > pos and not self._raw:
            stop = self._speech.skip(text, pos, stop, out)
            if not self._speech.quiet:
                self._state = _OUTSIDE
        elif stop > pos:
            stop = min(stop, pos + GAP_LIMIT + 1 - len(self._raw))
            self._raw += text[pos:stop]
            if len(self._raw) > GAP_LIMIT:
                self._give_up(self._raw, out)
        elif text[pos] == "{":
            self._begin_object()
        elif text[pos] == "]":
            self._state = _OUTSIDE
            if self._raw:
                out.append(Noticed("stray_marker", f"{_CALLS}{self._raw}]"))
            self._speech.pause()
            return pos + 1
        elif self._raw:
            self._give_up(self._raw, out)
        else:
            self._state = _OUTSIDE
        return stop

    def _begin_object(self) -> None:
        self._state = _OBJECT
        self._object = NamedObject(self._speech.channel, names=self._names)

    def _in_object(self, text: str, pos: int, out: list[Found]) -> int:
        stop = self._object.read(text, pos, out)
        if self._object.phase == FAILED:
            self._give_up(self._raw + self._object.raw, out)
        elif self._object.phase != READING:
            self._state, self._raw = (_LIST if self._in_list else _OUTSIDE), ""
            self._speech.pause()
        return stop

    # -- the new form ------------------------------------------------------------------

    def _in_header(self, text: str, pos: int, out: list[Found]) -> int:
        marker = _IN_HEADER.find(text, pos)
        stop = marker.start() if marker else len(text) - _IN_HEADER.unfinished(text, pos)
        brace = text.find("{", pos, stop)
        if brace >= 0:
            stop = brace
        stop = max(pos, min(stop, pos + HEADER_LIMIT + 1 - len(self._raw)))
        self._raw += text[pos:stop]
        if len(self._raw) > HEADER_LIMIT:
            self._give_up(self._raw, out)
            return stop
        if stop == brace:
            self._begin(out)
            return stop
        if marker is None:
            self._held = text[stop:]
            return len(text)
        match marker.group():
            case "[CALL_ID]":
                self._raw += _ID
            case "[ARGS]":
                self._begin(out)
            case _:
                # The next call begins, and this one has no arguments.
                self._end_name(out)
                return stop
        return marker.end()

    def _begin(self, out: list[Found]) -> None:
        header = _NAME.fullmatch(self._raw)
        if header is None:
            self._give_up(self._raw, out)
            return
        out.append(CallBegan(self._speech.channel, header[2] or "", header[1]))
        self._state, self._raw, self._scanner = _BEFORE, "", ValueScanner()
        self._words = False

    def _end_name(self, out: list[Found]) -> None:
        header = _NAME.fullmatch(self._raw)
        name, wire_id = (header[1], header[2] or "") if header else ("", "")
        found = call_without_arguments(name, wire_id, self._names, self._speech.channel)
        if not found:
            self._give_up(self._raw, out)
        out += found
        self._state = _OUTSIDE

    def _before_value(self, text: str, pos: int, out: list[Found]) -> int:
        if not self._words:
            found = _NOT_SPACE.search(text, pos)
            if found is None:
                return len(text)
            pos = found.start()
        start = _VALUE_STARTS.search(text, pos)
        stop = start.start() if start else len(text)
        if stop > pos:
            # Words before the object: whoever mends the arguments decides about them.
            self._words = True
            out.append(CallGrew(text[pos:stop]))
        if start is None:
            return stop
        if start.group() == "[":
            if _IN_HEADER.match(text, stop) is not None:
                self._end(out)
                return stop
            if _IN_HEADER.unfinished(text, stop) == len(text) - stop:
                self._held = text[stop:]
                return len(text)
        self._state = _VALUE
        return stop

    def _in_value(self, text: str, pos: int, out: list[Found]) -> int:
        stop = self._scanner.scan(text, pos)
        if stop < len(text) and self._scanner.inside:
            # A `<` means nothing here.
            stop += 1
        out.append(CallGrew(text[pos:stop]))
        if not self._scanner.inside:
            self._end(out)
        return stop

    def _end(self, out: list[Found]) -> None:
        out.append(CallEnded(closed=True))
        self._state = _OUTSIDE
        self._speech.pause()

    def _give_up(self, text: str, out: list[Found]) -> None:
        """This is no call: it is what the model wrote, so it is kept."""
        out.append(Noticed("unreadable_call", _CALLS + text))
        self._state, self._raw = _OUTSIDE, ""
        self._speech.say(text, out)
