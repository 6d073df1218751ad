"""Llama 4 and other models that call in Python: text with `[f(a=1), g()]` -> text and calls.

    out   = text { list | text }
    list  = [ "<|python_start|>" ] "[" call { "," call } "]" [ "<|python_end|>" ]
    call  = name "(" [ key "=" literal { "," key "=" literal } ] ")"

Without the marker a bracket starts a list of calls only in the response text and not after a word, if its first name is
a declared tool and its arguments are named.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from moonshim.engine.grammar.protocol import CallDelta, CallEnded, CallStarted, Channel, GrammarEvent, Notice
from moonshim.engine.grammar.shared.declared import declared_names
from moonshim.engine.grammar.shared.marked import OUTSIDE, MarkedGrammar
from moonshim.engine.grammar.shared.python_arguments import PythonArguments
from moonshim.engine.values.conversation import Tool

__all__ = ["HEADER_LIMIT", "PythonicGrammar"]

HEADER_LIMIT: Final = 320
"""Longest text up to the first `=` of a call."""

_START, _END = "<|python_start|>", "<|python_end|>"
_NO_SEPARATOR: Final = re.compile(r"[^\s,;]")
_NOT_NAME: Final = re.compile(r"[^\w.\-]")
_NAME: Final = re.compile(r"[^\W\d][\w.\-]*")
_NO_LIST_BEHIND: Final = ("_", ")", "]", '"', "'")
_KEY: Final = re.compile(r"[^\W\d]\w*")
_NOT_KEY: Final = re.compile(r"\W")


class PythonicGrammar(MarkedGrammar):
    """Parses one text field. At most a marker less one character, or a list up to the first `=` of its first call
    (`HEADER_LIMIT`), is held back as text.

    >>> grammar = PythonicGrammar("text", tools=[Tool("ls")])
    >>> grammar.feed("Hi [ls(dir='/tm")
    [TextFound(channel='text', text='Hi '), CallStarted(channel='text', header='', name='ls', opened=True),
     CallDelta(text='{"dir": "/tm')]
    """

    __slots__ = ("_comma", "_in_list", "_is_marked", "_known", "_name", "_word")

    def __init__(self, channel: Channel, *, tools: Sequence[Tool] | None = None, calls: bool = True) -> None:
        self._known = declared_names(tools) if calls else None
        markers = (_START, _END, "[") if self._known else (_START, _END) if calls else ()
        super().__init__(channel, markers, tools, behind_call=PythonicGrammar._after)
        self._is_marked = False
        """`<|python_end|>` is expected, so it is not stray."""
        self._in_list = False
        self._comma = False
        self._word = ""
        """Text read so far of a call's name, or of its first key."""
        self._name = ""

    def flush(self) -> list[GrammarEvent]:
        self._is_marked = False
        return super().flush()

    def _handle_marker(self, marker: re.Match[str], out: list[GrammarEvent]) -> int:
        match marker.group():
            case "[":
                last = self._text_buffer.last
                # A call that appears in reasoning was not made.
                if self._text_buffer.channel != "text" or last.isalnum() or last in _NO_LIST_BEHIND:
                    self._text_buffer.emit("[", out)
                else:
                    self._begin_list("", "[")
                return marker.end()
            case "<|python_start|>":
                self._is_marked = True
                self._begin_list(_START, "")
            case _:
                if not self._is_marked:
                    out.append(Notice("stray_marker", _END))
                self._is_marked = False
        self._text_buffer.pause()
        return marker.end()

    # -- up to the arguments -----------------------------------------------------------

    def _begin_list(self, tag: str, raw: str) -> None:
        self._state, self._tag, self._raw, self._word = PythonicGrammar._before, tag, raw, ""
        self._is_bare = not tag
        self._in_list = raw == "["

    def _before(self, text: str, pos: int, out: list[GrammarEvent]) -> int:
        """Before a name, and with the marker also before the bracket."""
        stop, char = self._keep_space(text, pos, HEADER_LIMIT, out)
        if char == "[" and not self._in_list:
            self._in_list = True
            self._raw += "["
            return stop + 1
        if char:
            self._state = PythonicGrammar._in_name
        return stop

    def _in_name(self, text: str, pos: int, out: list[GrammarEvent]) -> int:
        found = _NOT_NAME.search(text, pos)
        stop = found.start() if found else len(text)
        word = self._word + text[pos:stop]
        known = self._known if self._is_bare else None
        if known is not None and (fits := known.prefix_length(word)) < len(word):
            stop = pos + fits - len(self._word)
            self._give_up(out, text[pos:stop])
            return stop
        stop = self._keep(text, pos, stop, HEADER_LIMIT, out)
        if self._state is OUTSIDE or (found is None and word):
            self._word = word
            return stop
        if not _NAME.fullmatch(word) or text[stop] != "(" or (known is not None and word not in known.names):
            self._give_up(out)
            return stop
        self._state, self._name, self._word = PythonicGrammar._after_bracket, word, ""
        self._raw += "("
        return stop + 1

    def _after_bracket(self, text: str, pos: int, out: list[GrammarEvent]) -> int:
        """After the bracket: a key, or the end. Anything else is not how these calls are written."""
        if not self._word or text[pos].isspace():
            pos, char = self._keep_space(text, pos, HEADER_LIMIT, out)
            if not char:
                return pos
        if text[pos] == ")" and not self._word:
            out += [CallStarted(self._text_buffer.channel, "", self._name), CallDelta("{}"), CallEnded(closed=True)]
            self._end()
            return pos + 1
        if text[pos] == "=" and _KEY.fullmatch(self._word):
            arguments = PythonArguments()
            self._begin("", self._name, arguments, out)
            arguments.read(self._word, 0, out)
            return pos
        found = _NOT_KEY.search(text, pos)
        stop = found.start() if found else len(text)
        if stop == pos or (self._raw[-1].isspace() and self._word):
            self._give_up(out)
            return pos
        self._word += text[pos:stop]
        return self._keep(text, pos, stop, HEADER_LIMIT, out)

    # -- after a call ------------------------------------------------------------------

    def _end(self) -> None:
        super()._end()
        self._comma = self._is_bare = False

    def _after(self, text: str, pos: int, out: list[GrammarEvent]) -> int:
        """After a call: the next one, the end of the list, or the rest of the response."""
        stop = self._skip(text, pos, _NO_SEPARATOR, out)
        if stop > pos:
            self._comma = self._comma or any(comma in text[pos:stop] for comma in ",;")
            return stop
        if text[pos] == "]" and self._in_list:
            self._state = OUTSIDE
            self._text_buffer.pause()
            return pos + 1
        if self._comma and _KEY.match(text, pos):
            self._state, self._word = PythonicGrammar._in_name, ""
        else:
            self._state = OUTSIDE
        return pos
