"""Mistral: text with `[TOOL_CALLS]` -> text and calls, `[THINK]…[/THINK]` -> reasoning.

    old  = "[TOOL_CALLS]" "[" object { "," object } "]"
    new  = "[TOOL_CALLS]" name [ "[CALL_ID]" id ] [ "[ARGS]" ] object
    object (of old) = '{"name": ' string ', "arguments": ' value [ ', "id": ' string ] "}"

The text after the marker distinguishes the two.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from moonshim.engine.grammar.protocol import Channel, GrammarEvent, Notice
from moonshim.engine.grammar.shared.json_arguments import JsonArguments
from moonshim.engine.grammar.shared.marked import OUTSIDE, THINK_TAGS, MarkedGrammar
from moonshim.engine.grammar.shared.markers import marker_set
from moonshim.engine.grammar.shared.named_object import NamedObject
from moonshim.engine.grammar.shared.text_buffer import GAP_LIMIT
from moonshim.engine.values.conversation import Tool

__all__ = ["HEADER_LIMIT", "MistralGrammar"]

HEADER_LIMIT: Final = 320
"""Maximum length of name and id together."""

_CALLS, _ID, _ARGS = "[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"
_TAGS: Final = {"[THINK]": "think", "[/THINK]": "/think", **THINK_TAGS}
_MARKERS: Final = marker_set(_CALLS, _ID, _ARGS)
_NO_SEPARATOR: Final = re.compile(r"[^\s,]")
_HEADER: Final = re.compile(r"\s*([\w.\-$:/]+)\s*(?:\[CALL_ID\]\s*([\w.\-:]+)\s*)?")


class MistralGrammar(MarkedGrammar):
    """Parses one text field. At most a marker less one character is held back as text.

    >>> grammar = MistralGrammar("text")
    >>> grammar.feed('Hi [TOOL_CALLS]ls[CALL_ID]a1b2c3d4e[ARGS]{"dir": "/tm')
    [TextFound(channel='text', text='Hi '), CallStarted(channel='text', header='a1b2c3d4e', name='ls', opened=True),
     CallDelta(text='{"dir": "/tm')]
    """

    __slots__ = ()

    def __init__(self, channel: Channel, *, tools: Sequence[Tool] | None = None, calls: bool = True) -> None:
        super().__init__(channel, (_CALLS, _ID, _ARGS) if calls else (), tools, tags=_TAGS)

    def _handle_marker(self, marker: re.Match[str], out: list[GrammarEvent]) -> int:
        if marker.group() == _CALLS:
            self._state, self._behind_call, self._tag = MistralGrammar._after_marker, OUTSIDE, _CALLS
        else:
            out.append(Notice("stray_marker", marker.group()))
        self._text_buffer.pause()
        return marker.end()

    def _after_marker(self, text: str, pos: int, out: list[GrammarEvent]) -> int:
        """The first character decides which of the two forms it is."""
        stop, char = self._keep_space(text, pos, GAP_LIMIT, out)
        match char:
            case "":
                return stop
            case "{":
                self._begin_object()
            case "[" if _MARKERS.match(text, stop) is not None:
                self._give_up(out)
            case "[" if _MARKERS.may_grow(text, stop):
                return self._hold(text, stop)
            case "[":
                self._state = self._behind_call = MistralGrammar._in_list
                self._raw += "["
                return stop + 1
            case _:
                self._state = MistralGrammar._in_header
        return stop

    # -- the old form ------------------------------------------------------------------

    def _begin_object(self) -> None:
        self._tag = _CALLS
        self._read_with(NamedObject(self._text_buffer.channel, names=self._names))

    def _in_list(self, text: str, pos: int, out: list[GrammarEvent]) -> int:
        """Between the objects of a list, and before the first one, while it may not be a list of calls."""
        if self._raw:
            found = _NO_SEPARATOR.search(text, pos)
            stop = self._keep(text, pos, found.start() if found else len(text), GAP_LIMIT, out)
        else:
            stop = self._skip(text, pos, _NO_SEPARATOR, out)
        if stop > pos:
            return stop
        if text[pos] == "{":
            self._begin_object()
        elif text[pos] == "]":
            if self._raw:
                out.append(Notice("stray_marker", f"{_CALLS}{self._raw}]"))
            self._behind_call = OUTSIDE
            self._end()
            return pos + 1
        elif self._raw:
            self._give_up(out)
        else:
            self._state = OUTSIDE
        return pos

    # -- the new form ------------------------------------------------------------------

    def _in_header(self, text: str, pos: int, out: list[GrammarEvent]) -> int:
        end, marker = _MARKERS.until_next(text, pos)
        brace = text.find("{", pos, end)
        stop = self._keep(text, pos, brace if brace >= 0 else end, HEADER_LIMIT, out)
        if self._state is OUTSIDE:
            return stop
        if brace >= 0:
            self._name(out)
            return stop
        if marker is None:
            return self._hold(text, stop)
        match marker.group():
            case "[CALL_ID]":
                self._raw += _ID
            case "[ARGS]":
                self._name(out)
            case _:
                # The next call starts, and this one has no arguments.
                self._name(out, empty=True)
                return stop
        return marker.end()

    def _name(self, out: list[GrammarEvent], *, empty: bool = False) -> None:
        """The name is complete, and so is the id."""
        header = _HEADER.fullmatch(self._raw)
        if header is None:
            self._give_up(out)
        elif empty:
            self._begin_without_arguments(header[2] or "", header[1], out)
        else:
            self._begin(header[2] or "", header[1], JsonArguments(_MARKERS), out)
