"""Llama 3 and its kin: an answer that is `{"name": …, "parameters": {…}}` -> calls, and speech.

    out    = [ text ] "<|python_tag|>" run [ text ] | run [ text ]
    run    = object { [ ";" | "," ] object }
    object = '{"name": ' string ', "parameters": ' object "}"

Without the tag nothing but its place and its name tells a call from an answer in JSON:
an object is a call only where the answer begins, or behind another call, and only if
it names a declared tool before its arguments.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from moonshim.conversation import Tool
from moonshim.grammar.declared import known, names_of
from moonshim.grammar.events import CallGrew, Channel, Found, Noticed, Said
from moonshim.grammar.markers import marker_set
from moonshim.grammar.named_object import FAILED, READING, NamedObject
from moonshim.grammar.speech import GAP_LIMIT, Speech

__all__ = ["LlamaJsonGrammar"]

_TAG: Final = "<|python_tag|>"
_MARKERS: Final = marker_set(_TAG)
_NOT_SPACE: Final = re.compile(r"\S")
_NO_SEPARATOR: Final = re.compile(r"[^\s;,]")

# Where in the grammar the next character stands.
_OUTSIDE, _TAGGED, _OBJECT, _BETWEEN = range(4)


class LlamaJsonGrammar:
    """Reads one text field. What is kept back as text is at most a marker less one character, or a bare object
    up to its arguments; `;` and `,` behind a call wait for what follows.

    >>> grammar = LlamaJsonGrammar("text", tools=[Tool("ls")])
    >>> grammar.feed('{"name": "ls", "parameters": {"dir": "/tm')
    [CallBegan(channel='text', header='', name='ls', opened=True), CallGrew(text='{"dir": "/tm')]
    """

    __slots__ = ("_held", "_is_tagged", "_known", "_names", "_object", "_space", "_speech", "_state", "_tag")

    def __init__(self, channel: Channel, *, tools: Sequence[Tool] | None = None, calls: bool = True) -> None:
        self._names = names_of(tools)
        self._known = known(self._names) if calls and self._names else None
        self._speech = Speech(channel, *((_TAG,) if calls else ()), opener="{" if self._known else None)
        self._state = _OUTSIDE
        self._is_tagged = False
        """The tag stood before this run of calls: names need not be declared."""
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
        """Text that may still turn out to be (part of) a marker, or a bare object."""
        if self._state == _OBJECT:
            return "" if self._is_tagged else self._object.raw
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
                    pos = self._tagged(text, pos, out)
                case 2:
                    pos = self._in_object(text, pos, out)
                case _:
                    pos = self._between(text, pos, out)
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
        self._state = _OUTSIDE
        return out

    def _outside(self, text: str, pos: int, out: list[Found]) -> int:
        marker = self._speech.read(text, pos, out)
        if marker is None:
            return len(text)
        self._tag = self._space = ""
        if marker.group() == _TAG:
            self._state, self._tag, self._is_tagged = _TAGGED, _TAG, True
            self._speech.pause()
            return marker.end()
        self._is_tagged = False
        self._begin()
        return marker.start()

    def _tagged(self, text: str, pos: int, out: list[Found]) -> int:
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
        bare = None if self._is_tagged else self._known
        self._object = NamedObject(self._speech.channel, markers=_MARKERS, names=self._names, bare=bare)

    def _in_object(self, text: str, pos: int, out: list[Found]) -> int:
        stop = self._object.read(text, pos, out)
        if self._object.phase == READING:
            self._held = text[stop:]
            return len(text)
        if self._object.phase == FAILED:
            self._give_up(self._object.raw, out)
        else:
            self._state = _BETWEEN
            self._speech.pause()
        return stop

    def _between(self, text: str, pos: int, out: list[Found]) -> int:
        """Behind a call: another one, or the rest of the answer."""
        found = _NO_SEPARATOR.search(text, pos)
        stop = found.start() if found else len(text)
        if stop > pos:
            stop = self._speech.skip(text, pos, stop, out)
            if not self._speech.quiet:
                self._state = _OUTSIDE
        elif text[pos] == "{" and (self._is_tagged or self._known is not None):
            self._tag = self._space = ""
            self._begin()
        else:
            self._state = _OUTSIDE
        return stop

    def _give_up(self, text: str, out: list[Found]) -> None:
        """This is no call: it is what the model wrote, so it is kept."""
        self._state = _OUTSIDE
        if self._is_tagged:
            out.append(Noticed("unreadable_call", self._tag + self._space + text))
        self._speech.say(self._space + text, out)
