"""Hermes, Qwen 2.5 and Qwen 3: text with `<tool_call>{…}</tool_call>` -> speech and calls.

    out    = text { call | text }
    call   = "<tool_call>" object { object } "</tool_call>"
    object = '{"name": ' string ', "arguments": ' value "}"

A call is over where its object is. Text inside the tags that is no such object is kept
as text; the tags themselves are taken away.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from moonshim.conversation import Tool
from moonshim.grammar.declared import names_of
from moonshim.grammar.events import CallGrew, Channel, Found, Noticed, Said
from moonshim.grammar.markers import marker_set
from moonshim.grammar.named_object import FAILED, READING, NamedObject
from moonshim.grammar.speech import GAP_LIMIT, Speech

__all__ = ["HermesGrammar"]

_BEGIN: Final = "<tool_call>"
_END: Final = "</tool_call>"
_MARKERS: Final = marker_set(_BEGIN, _END)
_NOT_SPACE: Final = re.compile(r"\S")

# Where in the grammar the next character stands.
_OUTSIDE, _OPENED, _OBJECT, _AFTER = range(4)


class HermesGrammar:
    """Reads one text field. What is kept back as text is at most a marker less one character.

    Inside the tags an object waits until its name is known and its arguments begin
    (`HOLD_LIMIT`): only then it is sure to be a call.

    >>> grammar = HermesGrammar("text")
    >>> grammar.feed('Hi <tool_call>{"name": "ls", "arguments": {"dir": "/tm')
    [Said(channel='text', text='Hi '), CallBegan(channel='text', header='', name='ls', opened=True),
     CallGrew(text='{"dir": "/tm')]
    """

    __slots__ = ("_held", "_in_block", "_names", "_object", "_space", "_speech", "_state", "_tag")

    def __init__(self, channel: Channel, *, tools: Sequence[Tool] | None = None, calls: bool = True) -> None:
        self._speech = Speech(channel, *((_BEGIN, _END) if calls else ()))
        self._names = names_of(tools)
        self._state = _OUTSIDE
        self._in_block = False
        """`</tool_call>` is expected, so that it is no stray."""
        self._object = NamedObject(channel)
        self._tag = self._space = ""
        """What stood before the object."""
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
        if self._state == _OBJECT and self._object.in_string and '"' not in text and "\\" not in text:
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
                    pos = self._in_object(text, pos, out)
                case _:
                    pos = self._after(text, pos, out)
        return out

    def flush(self) -> list[Found]:
        """End of input: what looked like the start of a marker was only text; an open call is cut off."""
        out: list[Found] = []
        held, self._held = self._held, ""
        match self._state:
            case 1:
                self._give_up("", out)
            case 2:
                self._object.flush(out)
                if self._object.raw:
                    self._give_up(self._object.raw, out)
                else:
                    self._speech.drop_gap()
        self._speech.say(held, out)
        self._speech.flush(out)
        self._state, self._space, self._in_block = _OUTSIDE, "", False
        return out

    def _outside(self, text: str, pos: int, out: list[Found]) -> int:
        marker = self._speech.read(text, pos, out)
        if marker is None:
            return len(text)
        if marker.group() == _BEGIN:
            self._state, self._tag, self._space, self._in_block = _OPENED, _BEGIN, "", True
        elif self._in_block:
            self._in_block = False
        else:
            out.append(Noticed("stray_marker", _END))
        self._speech.pause()
        return marker.end()

    def _opened(self, text: str, pos: int, out: list[Found]) -> int:
        """Between the tag and its object."""
        found = _NOT_SPACE.search(text, pos)
        stop = min(found.start() if found else len(text), pos + GAP_LIMIT + 1 - len(self._space))
        self._space += text[pos:stop]
        if len(self._space) > GAP_LIMIT or (found is not None and text[stop] != "{"):
            self._give_up("", out)
        elif found is not None:
            self._begin()
        return stop

    def _begin(self) -> None:
        self._state = _OBJECT
        self._object = NamedObject(self._speech.channel, markers=_MARKERS, names=self._names)

    def _in_object(self, text: str, pos: int, out: list[Found]) -> int:
        stop = self._object.read(text, pos, out)
        if self._object.phase == READING:
            self._held = text[stop:]
            return len(text)
        if self._object.phase == FAILED:
            self._give_up(self._object.raw, out)
        else:
            self._state = _AFTER
            self._speech.pause()
        return stop

    def _after(self, text: str, pos: int, out: list[Found]) -> int:
        """Behind an object: often one brace too many, or another object in the same tags."""
        found = _NOT_SPACE.search(text, pos)
        stop = found.start() if found else len(text)
        if stop > pos:
            stop = self._speech.skip(text, pos, stop, out)
            if not self._speech.quiet:
                self._state = _OUTSIDE
        elif text[pos] in "}]":
            out.append(Noticed("arguments_trailing", text[pos]))
            self._speech.drop_gap()
            return pos + 1
        elif text[pos] == "{":
            self._tag = self._space = ""
            self._begin()
        else:
            self._state = _OUTSIDE
        return stop

    def _give_up(self, text: str, out: list[Found]) -> None:
        """What stands between the tags is no call: it is what the model wrote, so it is kept."""
        out.append(Noticed("unreadable_call", self._tag + self._space + text))
        self._state = _OUTSIDE
        self._speech.say(self._space + text, out)
