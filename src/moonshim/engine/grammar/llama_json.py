"""Llama 3 and related models: a response that is `{"name": …, "parameters": {…}}` -> calls and text.

    out    = [ text ] "<|python_tag|>" run [ text ] | run [ text ]
    run    = object { [ ";" | "," ] object }
    object = '{"name": ' string ', "parameters": ' object "}"

Without the tag, only position and name distinguish a call from a JSON response: an object is a call only at the start
of the response, or after another call, and only if it names a declared tool before its arguments.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from moonshim.engine.grammar.protocol import Channel, GrammarEvent
from moonshim.engine.grammar.shared.declared import declared_names
from moonshim.engine.grammar.shared.marked import OUTSIDE, MarkedGrammar
from moonshim.engine.grammar.shared.markers import marker_set
from moonshim.engine.grammar.shared.named_object import NamedObject
from moonshim.engine.grammar.shared.text_buffer import GAP_LIMIT
from moonshim.engine.values.conversation import Tool

__all__ = ["LlamaJsonGrammar"]

_TAG: Final = "<|python_tag|>"
_MARKERS: Final = marker_set(_TAG)
_NO_SEPARATOR: Final = re.compile(r"[^\s;,]")


class LlamaJsonGrammar(MarkedGrammar):
    """Parses one text field. At most a marker less one character, or a bare object up to its arguments, is held back
    as text; `;` and `,` after a call wait for what follows.

    >>> grammar = LlamaJsonGrammar("text", tools=[Tool("ls")])
    >>> grammar.feed('{"name": "ls", "parameters": {"dir": "/tm')
    [CallStarted(channel='text', header='', name='ls', opened=True), CallDelta(text='{"dir": "/tm')]
    """

    __slots__ = ("_known",)

    def __init__(self, channel: Channel, *, tools: Sequence[Tool] | None = None, calls: bool = True) -> None:
        self._known = declared_names(tools) if calls else None
        markers, opener = (_TAG,) if calls else (), "{" if self._known else None
        super().__init__(channel, markers, tools, opener=opener, behind_call=LlamaJsonGrammar._between)

    def _handle_marker(self, marker: re.Match[str], out: list[GrammarEvent]) -> int:
        self._is_bare = marker.group() != _TAG
        if self._is_bare:
            self._begin_object()
            return marker.start()
        self._state, self._tag = LlamaJsonGrammar._after_tag, _TAG
        self._text_buffer.pause()
        return marker.end()

    def _after_tag(self, text: str, pos: int, out: list[GrammarEvent]) -> int:
        """Between the tag and its object."""
        stop, char = self._keep_space(text, pos, GAP_LIMIT, out)
        if char == "{":
            self._begin_object()
        elif char:
            self._give_up(out)
        return stop

    def _begin_object(self) -> None:
        # After the tag, names need not be declared.
        bare = self._known if self._is_bare else None
        self._read_with(NamedObject(self._text_buffer.channel, markers=_MARKERS, names=self._names, bare=bare))

    def _between(self, text: str, pos: int, out: list[GrammarEvent]) -> int:
        """After a call: another one, or the rest of the response."""
        stop = self._skip(text, pos, _NO_SEPARATOR, out)
        if stop > pos:
            return stop
        if text[pos] == "{":
            self._begin_object()
        else:
            self._state = OUTSIDE
        return pos
