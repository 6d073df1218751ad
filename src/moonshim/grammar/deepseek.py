"""DeepSeek V3, R1 and V3.1: text with `<｜tool▁call▁begin｜>` markers -> speech and calls.

    section = "<｜tool▁calls▁begin｜>" { call } "<｜tool▁calls▁end｜>"
    call    = "<｜tool▁call▁begin｜>" ( v3 | v3.1 ) "<｜tool▁call▁end｜>"
    v3      = "function<｜tool▁sep｜>" name NL "```json" NL value NL "```"
    v3.1    = name "<｜tool▁sep｜>" value

What follows the separator tells the two apart. A call is over where its value is, so
that every end may be missing; the markers are also read with `_` or a space for `▁`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from moonshim.conversation import Tool
from moonshim.grammar.declared import call_without_arguments, names_of
from moonshim.grammar.events import CallBegan, CallEnded, CallGrew, Channel, Found, Noticed, Said
from moonshim.grammar.markers import marker_set
from moonshim.grammar.speech import Speech
from moonshim.json_scan import ValueScanner

__all__ = ["HEADER_LIMIT", "DeepSeekGrammar"]

HEADER_LIMIT: Final = 288
"""Longest text that may stand where the name does."""

_KINDS: Final = {
    f"<｜{words.replace(' ', space)}｜>": kind
    for words, kind in {
        "tool calls begin": "section_begin",
        "tool calls end": "section_end",
        "tool call begin": "call_begin",
        "tool call end": "call_end",
        "tool sep": "sep",
    }.items()
    for space in ("▁", "_", " ")
}
_MARKERS: Final = marker_set(*_KINDS)
_FENCE: Final = "```"
_NOT_SPACE: Final = re.compile(r"\S")
_NAME: Final = re.compile(r"[\w.\-$:/]+")
_NAME_END: Final = re.compile(r"[\n{`]")
_CLEAR_HEADER: Final = re.compile(r"\s*([\w.\-$:/]+)\s*(?:```(?:json)?\s*)?")
_FENCE_OPENS: Final = re.compile(r"```(?:json)?(?=[\s{\[\"])")
_FENCE_MAY_OPEN: Final = re.compile(r"(?:`{1,2}|```(?:j(?:s(?:on?)?)?)?)\Z")
_VALUE_STARTS: Final = re.compile(r'["{\[<]')

# Where in the grammar the next character stands.
_OUTSIDE, _HEADER, _NAMING, _BEFORE, _VALUE, _AFTER = range(6)


class DeepSeekGrammar:
    """Reads one text field. What is kept back as text is at most a marker less one character.

    >>> grammar = DeepSeekGrammar("text")
    >>> grammar.feed('Hi <｜tool▁call▁begin｜>ls<｜tool▁sep｜>{"dir": "/tm')
    [Said(channel='text', text='Hi '), CallBegan(channel='text', header='', name='ls', opened=True),
     CallGrew(text='{"dir": "/tm')]
    """

    __slots__ = (
        "_header",
        "_held",
        "_in_call",
        "_in_section",
        "_names",
        "_raw",
        "_scanner",
        "_speech",
        "_state",
        "_words",
    )

    def __init__(self, channel: Channel, *, tools: Sequence[Tool] | None = None, calls: bool = True) -> None:
        self._speech = Speech(channel, *(_KINDS if calls else ()))
        self._names = names_of(tools)
        self._state = _OUTSIDE
        self._in_section = False
        self._in_call = False
        """The marker of a call's end is expected, so that it is no stray."""
        self._header = ""
        """What stood before the separator, while it is not known to be the name."""
        self._raw = ""
        """What is read of the call while it may still be none."""
        self._words = False
        """Words, and no value yet: the white space between them is theirs."""
        self._scanner = ValueScanner()
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
        if self._state == _VALUE and not self._held:
            scanner = self._scanner
            if scanner.in_string and not scanner.escaped and '"' not in text and "\\" not in text:
                return [CallGrew(text)] if text else []
        text = speech.held + self._held + text
        speech.held = self._held = ""
        pos, out = 0, list[Found]()
        while pos < len(text):
            match self._state:
                case 0:
                    pos = self._outside(text, pos, out)
                case 1:
                    pos = self._in_header(text, pos, out)
                case 2:
                    pos = self._in_name(text, pos, out)
                case 3:
                    pos = self._before_value(text, pos, out)
                case 4:
                    pos = self._in_value(text, pos, out)
                case _:
                    pos = self._after_value(text, pos, out)
        return out

    def flush(self) -> list[Found]:
        """End of input: what looked like the start of a marker was only text; an open call is cut off."""
        out: list[Found] = []
        if self._in_section:
            # Between the markers of a section white space is nobody's, behind it it may be the end of what was said.
            self._speech.drop_gap()
        held, self._held = self._held, ""
        match self._state:
            case 1 | 2:
                self._give_up(out)
            case 3 | 4:
                out.append(CallEnded(closed=False))
        self._speech.say(held, out)
        self._speech.flush(out)
        self._state, self._in_section, self._in_call = _OUTSIDE, False, False
        return out

    # -- outside of calls --------------------------------------------------------------

    def _outside(self, text: str, pos: int, out: list[Found]) -> int:
        marker = self._speech.read(text, pos, out)
        if marker is None:
            return len(text)
        match _KINDS[marker.group()]:
            case "section_begin":
                self._in_section = True
            case "section_end":
                self._in_section = self._in_call = False
            case "call_begin":
                self._state, self._header, self._raw = _HEADER, "", ""
                self._in_call = True
            case "call_end" if self._in_call:
                self._in_call = False
            case _:
                out.append(Noticed("stray_marker", marker.group()))
        self._speech.pause()
        return marker.end()

    # -- the name ----------------------------------------------------------------------

    def _in_header(self, text: str, pos: int, out: list[Found]) -> int:
        marker = _MARKERS.find(text, pos)
        stop = marker.start() if marker else len(text) - _MARKERS.unfinished(text, pos)
        brace = text.find("{", pos, stop)
        if brace >= 0:
            stop = brace
        stop = min(stop, pos + HEADER_LIMIT + 1 - len(self._raw))
        self._raw += text[pos:stop]
        if len(self._raw) > HEADER_LIMIT:
            return self._give_up(out, stop)
        if stop == brace:
            name = _CLEAR_HEADER.fullmatch(self._raw)
            if name is None:
                return self._give_up(out, stop)
            # The separator is missing, but these are the arguments.
            self._begin(name[1], out)
            return stop
        if marker is None:
            self._held = text[stop:]
            return len(text)
        if _KINDS[marker.group()] != "sep":
            return self._end_name(self._raw, stop, out)
        if self._raw.strip() == "function":
            self._state, self._header, self._raw = _NAMING, self._raw, ""
        else:
            self._begin(self._raw, out)
        return marker.end()

    def _in_name(self, text: str, pos: int, out: list[Found]) -> int:
        """Behind `function` and the separator: the name in V3, or already the value of a tool of that name."""
        marker = _MARKERS.find(text, pos)
        stop = marker.start() if marker else len(text) - _MARKERS.unfinished(text, pos)
        found = _NAME_END.search(text, pos, stop)
        if found is not None:
            stop = found.start()
        stop = min(stop, pos + HEADER_LIMIT + 1 - len(self._raw))
        self._raw += text[pos:stop]
        if len(self._raw) > HEADER_LIMIT:
            return self._give_up(out, stop)
        name = self._raw.strip()
        if found is not None:
            if found.group() == "\n" and not name:
                self._raw += "\n"
                return stop + 1
            if not name and self._names is not None and "function" in self._names:
                name = "function"
            self._begin(name, out)
            return stop
        if marker is None:
            self._held = text[stop:]
            return len(text)
        return self._end_name(self._raw, stop, out)

    def _begin(self, name: str, out: list[Found]) -> None:
        name = name.strip()
        # What is no name at a glance is left to whoever knows more of names.
        sure = _NAME.fullmatch(name) is not None
        out.append(CallBegan(self._speech.channel, "" if sure else name, name if sure else None))
        self._state, self._words, self._scanner = _BEFORE, False, ValueScanner()

    def _end_name(self, name: str, pos: int, out: list[Found]) -> int:
        """A marker follows the name, so that there are no arguments."""
        found = call_without_arguments(name.strip(), "", self._names, self._speech.channel)
        if not found:
            return self._give_up(out, pos)
        out += found
        self._state = _OUTSIDE
        return pos

    def _give_up(self, out: list[Found], pos: int = 0) -> int:
        """This is no call: it is what the model wrote, so it is kept."""
        text = self._header + self._raw
        if text:
            out.append(Noticed("unreadable_call", text))
        self._state = _OUTSIDE
        self._speech.say(text, out)
        return pos

    # -- the arguments -----------------------------------------------------------------

    def _before_value(self, text: str, pos: int, out: list[Found]) -> int:
        if not self._words:
            found = _NOT_SPACE.search(text, pos)
            if found is None:
                return len(text)
            pos = found.start()
            if text[pos] == "`":
                if (fence := _FENCE_OPENS.match(text, pos)) is not None:
                    return fence.end()
                if _FENCE_MAY_OPEN.match(text, pos):
                    self._held = text[pos:]
                    return len(text)
        start = _VALUE_STARTS.search(text, pos)
        stop = start.start() if start else len(text)
        if stop > pos:
            # Words before the object: whoever mends the arguments decides about them.
            self._words = True
            out.append(CallGrew(text[pos:stop]))
        if start is None:
            return stop
        if start.group() == "<":
            return self._marker_in_call(text, stop, out)
        self._state = _VALUE
        return stop

    def _in_value(self, text: str, pos: int, out: list[Found]) -> int:
        stop = self._scanner.scan(text, pos)
        if stop > pos:
            out.append(CallGrew(text[pos:stop]))
        if not self._scanner.inside:
            self._end(_AFTER, out)
        elif stop < len(text):
            return self._marker_in_call(text, stop, out)
        return stop

    def _marker_in_call(self, text: str, pos: int, out: list[Found]) -> int:
        """At a `<` that stands in no string: a marker ends the call, anything else is part of the arguments."""
        marker = _MARKERS.match(text, pos)
        if marker is not None:
            if _KINDS[marker.group()] == "sep":
                out.append(Noticed("stray_marker", marker.group()))
                return marker.end()
            self._end(_OUTSIDE, out)
            return pos
        if _MARKERS.unfinished(text, pos) == len(text) - pos:
            self._held = text[pos:]
            return len(text)
        out.append(CallGrew("<"))
        self._words = True
        return pos + 1

    def _end(self, state: int, out: list[Found]) -> None:
        out.append(CallEnded(closed=True))
        self._state = state
        self._speech.pause()

    def _after_value(self, text: str, pos: int, out: list[Found]) -> int:
        """Between the arguments and the end of the call a fence may close."""
        found = _NOT_SPACE.search(text, pos)
        stop = found.start() if found else len(text)
        if stop > pos:
            stop = self._speech.skip(text, pos, stop, out)
            if not self._speech.quiet:
                self._state = _OUTSIDE
        elif text.startswith(_FENCE, pos):
            self._state = _OUTSIDE
            return pos + len(_FENCE)
        elif _FENCE.startswith(text[pos : pos + len(_FENCE)]):
            self._held = text[pos:]
            return len(text)
        else:
            self._state = _OUTSIDE
        return stop
