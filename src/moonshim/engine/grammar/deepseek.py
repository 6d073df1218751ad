"""DeepSeek V3, R1 and V3.1: text with `<｜tool▁call▁begin｜>` markers -> text and calls.

    section = "<｜tool▁calls▁begin｜>" { call } "<｜tool▁calls▁end｜>"
    call    = "<｜tool▁call▁begin｜>" ( v3 | v3.1 ) "<｜tool▁call▁end｜>"
    v3      = "function<｜tool▁sep｜>" name NL "```json" NL value NL "```"
    v3.1    = name "<｜tool▁sep｜>" value

The text after the separator distinguishes the two. A call ends with its value, so every end marker may be missing;
markers with `_` or a space instead of `▁` are recognized too.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from moonshim.engine.grammar.protocol import Channel, GrammarEvent, Notice
from moonshim.engine.grammar.shared.json_arguments import JsonArguments
from moonshim.engine.grammar.shared.marked import OUTSIDE, MarkedGrammar
from moonshim.engine.grammar.shared.markers import marker_set
from moonshim.engine.values.conversation import Tool

__all__ = ["HEADER_LIMIT", "DeepSeekGrammar"]

HEADER_LIMIT: Final = 288
"""Longest text in the place of the name."""

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
_SEPARATORS: Final = frozenset(marker for marker, kind in _KINDS.items() if kind == "sep")
_FENCE: Final = "```"
_NOT_SPACE: Final = re.compile(r"\S")
_NAME: Final = re.compile(r"[\w.\-$:/]+")
_NAME_END: Final = re.compile(r"[\n{`]")
_CLEAR_HEADER: Final = re.compile(r"\s*([\w.\-$:/]+)\s*(?:```(?:json)?\s*)?")


class DeepSeekGrammar(MarkedGrammar):
    """Parses one text field. At most a marker less one character is held back as text.

    >>> grammar = DeepSeekGrammar("text")
    >>> grammar.feed('Hi <｜tool▁call▁begin｜>ls<｜tool▁sep｜>{"dir": "/tm')
    [TextFound(channel='text', text='Hi '), CallStarted(channel='text', header='', name='ls', opened=True),
     CallDelta(text='{"dir": "/tm')]
    """

    __slots__ = ("_in_section", "_name_at", "_owes_end")

    def __init__(self, channel: Channel, *, tools: Sequence[Tool] | None = None, calls: bool = True) -> None:
        super().__init__(channel, _KINDS if calls else (), tools, behind_call=DeepSeekGrammar._after_value)
        self._in_section = False
        self._owes_end = False
        """The end marker of a call is expected, so it is not stray."""
        self._name_at = 0
        """Where the name starts in the text read for this call."""

    def flush(self) -> list[GrammarEvent]:
        if self._in_section:
            # White space between the markers of a section is dropped; after a section it may be the end of the text.
            self._text_buffer.drop_gap()
        self._in_section = self._owes_end = False
        return super().flush()

    def _handle_marker(self, marker: re.Match[str], out: list[GrammarEvent]) -> int:
        match _KINDS[marker.group()]:
            case "section_begin":
                self._in_section = True
            case "section_end":
                self._in_section = self._owes_end = False
            case "call_begin":
                self._state, self._name_at, self._owes_end = DeepSeekGrammar._in_header, 0, True
            case "call_end" if self._owes_end:
                self._owes_end = False
            case _:
                out.append(Notice("stray_marker", marker.group()))
        self._text_buffer.pause()
        return marker.end()

    # -- the name ----------------------------------------------------------------------

    def _in_header(self, text: str, pos: int, out: list[GrammarEvent]) -> int:
        end, marker = _MARKERS.until_next(text, pos)
        brace = text.find("{", pos, end)
        stop = self._keep(text, pos, brace if brace >= 0 else end, HEADER_LIMIT, out)
        if self._state is OUTSIDE:
            return stop
        if brace >= 0:
            if (name := _CLEAR_HEADER.fullmatch(self._raw)) is not None:
                # The separator is missing, but these are the arguments.
                self._begin_named(name[1], out)
            else:
                self._give_up(out)
            return stop
        if marker is None:
            return self._hold(text, stop)
        if marker.group() not in _SEPARATORS:
            self._begin_without_arguments("", self._raw.strip(), out)
            return stop
        if self._raw.strip() == "function":
            self._state, self._name_at = DeepSeekGrammar._in_name, len(self._raw)
        else:
            self._begin_named(self._raw.strip(), out)
        return marker.end()

    def _in_name(self, text: str, pos: int, out: list[GrammarEvent]) -> int:
        """After `function` and the separator: the name in V3, or already the arguments of a tool of that name."""
        end, marker = _MARKERS.until_next(text, pos)
        found = _NAME_END.search(text, pos, end)
        stop = self._keep(text, pos, found.start() if found else end, self._name_at + HEADER_LIMIT, out)
        if self._state is OUTSIDE:
            return stop
        name = self._raw[self._name_at :].strip()
        if found is not None:
            if found.group() == "\n" and not name:
                self._raw += "\n"
                return stop + 1
            if not name and self._names is not None and "function" in self._names:
                name = "function"
            self._begin_named(name, out)
            return stop
        if marker is None:
            return self._hold(text, stop)
        self._begin_without_arguments("", name, out)
        return stop

    def _begin_named(self, name: str, out: list[GrammarEvent]) -> None:
        # Anything that is not obviously a name is left to the name repair.
        sure = _NAME.fullmatch(name) is not None
        arguments = JsonArguments(_MARKERS, strays=_SEPARATORS, fenced=True)
        self._begin("" if sure else name, name if sure else None, arguments, out)

    # -- after the arguments -----------------------------------------------------------

    def _after_value(self, text: str, pos: int, out: list[GrammarEvent]) -> int:
        """A code fence may close between the arguments and the end of the call."""
        stop = self._skip(text, pos, _NOT_SPACE, out)
        if stop > pos:
            return stop
        if _FENCE.startswith(text[pos : pos + len(_FENCE)]) and not text.startswith(_FENCE, pos):
            return self._hold(text, pos)
        self._state = OUTSIDE
        return pos + len(_FENCE) if text.startswith(_FENCE, pos) else pos
