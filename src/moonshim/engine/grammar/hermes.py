"""Hermes, Qwen 2.5 and Qwen 3: text with `<tool_call>{…}</tool_call>` -> text and calls.

    out    = text { call | text }
    call   = "<tool_call>" object { object } "</tool_call>"
    object = '{"name": ' string ', "arguments": ' value "}"

A call ends with its object. Other text inside the tags is kept as text; the tags themselves are dropped.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from moonshim.engine.grammar.protocol import Channel, GrammarEvent, Notice
from moonshim.engine.grammar.shared.marked import OUTSIDE, MarkedGrammar
from moonshim.engine.grammar.shared.markers import marker_set
from moonshim.engine.grammar.shared.named_object import NamedObject
from moonshim.engine.grammar.shared.text_buffer import GAP_LIMIT
from moonshim.engine.values.conversation import Tool

__all__ = ["HermesGrammar"]

_BEGIN: Final = "<tool_call>"
_END: Final = "</tool_call>"
_MARKERS: Final = marker_set(_BEGIN, _END)
_NOT_SPACE: Final = re.compile(r"\S")


class HermesGrammar(MarkedGrammar):
    """Parses one text field. At most a marker less one character is held back as text.

    Inside the tags an object is held until its name is known and its arguments start (`HOLD_LIMIT`): only then it is
    certain to be a call.

    >>> grammar = HermesGrammar("text")
    >>> grammar.feed('Hi <tool_call>{"name": "ls", "arguments": {"dir": "/tm')
    [TextFound(channel='text', text='Hi '), CallStarted(channel='text', header='', name='ls', opened=True),
     CallDelta(text='{"dir": "/tm')]
    """

    __slots__ = ("_in_block",)

    def __init__(self, channel: Channel, *, tools: Sequence[Tool] | None = None, calls: bool = True) -> None:
        super().__init__(channel, (_BEGIN, _END) if calls else (), tools, behind_call=HermesGrammar._after)
        self._in_block = False
        """`</tool_call>` is expected, so it is not stray."""

    def flush(self) -> list[GrammarEvent]:
        self._in_block = False
        return super().flush()

    def _handle_marker(self, marker: re.Match[str], out: list[GrammarEvent]) -> int:
        if marker.group() == _BEGIN:
            self._state, self._tag, self._in_block = HermesGrammar._after_tag, _BEGIN, True
        elif self._in_block:
            self._in_block = False
        else:
            out.append(Notice("stray_marker", _END))
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
        self._read_with(NamedObject(self._text_buffer.channel, markers=_MARKERS, names=self._names))

    def _after(self, text: str, pos: int, out: list[GrammarEvent]) -> int:
        """After an object: often one extra brace, or another object within the same tags."""
        stop = self._skip(text, pos, _NOT_SPACE, out)
        if stop > pos:
            return stop
        if text[pos] in "}]":
            out.append(Notice("arguments_trailing", text[pos]))
            self._text_buffer.drop_gap()
            return pos + 1
        if text[pos] == "{":
            self._begin_object()
        else:
            self._state = OUTSIDE
        return pos
