"""Llama 4 and other models that call in Python: text with `[f(a=1), g()]` -> speech and calls.

    out   = text { list | text }
    list  = [ "<|python_start|>" ] "[" call { "," call } "]" [ "<|python_end|>" ]
    call  = name "(" [ key "=" literal { "," key "=" literal } ] ")"

Without the marker a bracket is only a bracket, unless it stands in the answer and not
behind a word, its first name is that of a declared tool, and its arguments have names.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from moonshim.conversation import Tool
from moonshim.grammar.declared import known, names_of
from moonshim.grammar.events import CallBegan, CallEnded, CallGrew, Channel, Found, Noticed
from moonshim.grammar.python_arguments import PythonArguments
from moonshim.grammar.speech import Speech

__all__ = ["HEADER_LIMIT", "PythonicGrammar"]

HEADER_LIMIT: Final = 320
"""Longest text up to the first `=` of a call."""

_START, _END = "<|python_start|>", "<|python_end|>"
_NOT_SPACE: Final = re.compile(r"\S")
_NO_SEPARATOR: Final = re.compile(r"[^\s,;]")
_NOT_NAME: Final = re.compile(r"[^\w.\-]")
_NAME: Final = re.compile(r"[^\W\d][\w.\-]*")
_NO_LIST_BEHIND: Final = ("_", ")", "]", '"', "'")
_KEY: Final = re.compile(r"[^\W\d]\w*")
_NOT_KEY: Final = re.compile(r"\W")

# Where in the grammar the next character stands.
_OUTSIDE, _BEFORE, _NAMING, _OPENED, _ARGUMENTS, _AFTER = range(6)


class PythonicGrammar:
    """Reads one text field. What is kept back as text is at most a marker less one character, or a list up to the
    first `=` of its first call (`HEADER_LIMIT`).

    >>> grammar = PythonicGrammar("text", tools=[Tool("ls")])
    >>> grammar.feed("Hi [ls(dir='/tm")
    [Said(channel='text', text='Hi '), CallBegan(channel='text', header='', name='ls', opened=True),
     CallGrew(text='{"dir": "/tm')]
    """

    __slots__ = (
        "_arguments",
        "_comma",
        "_held",
        "_in_list",
        "_is_bare",
        "_is_marked",
        "_known",
        "_name",
        "_raw",
        "_speech",
        "_state",
        "_tag",
        "_word",
    )

    def __init__(self, channel: Channel, *, tools: Sequence[Tool] | None = None, calls: bool = True) -> None:
        names = names_of(tools)
        self._known = known(names) if calls and names else None
        markers = (_START, _END, *(["["] if self._known else [])) if calls else ()
        self._speech = Speech(channel, *markers)
        self._state = _OUTSIDE
        self._is_marked = False
        """`<|python_end|>` is expected, so that it is no stray."""
        self._is_bare = False
        """Nothing but its name makes this a call."""
        self._in_list = False
        self._comma = False
        self._tag = ""
        self._raw = ""
        """What is read of a call that may still be none."""
        self._word = ""
        """What is read of its name, or of its first key."""
        self._name = ""
        self._arguments = PythonArguments()
        self._held = ""

    @property
    def tags_are_text(self) -> bool:
        return self._speech.tags_are_text

    @tags_are_text.setter
    def tags_are_text(self, value: bool) -> None:
        self._speech.tags_are_text = value

    @property
    def held(self) -> str:
        """Text that may still turn out to be (part of) a marker, or a list of calls."""
        if self._state == _OUTSIDE:
            return self._speech.held
        return self._raw if self._is_bare and self._state != _ARGUMENTS else ""

    def feed(self, text: str) -> list[Found]:
        speech, out = self._speech, list[Found]()
        if self._state == _OUTSIDE and speech.is_plain(text):
            speech.say(text, out)
            return out
        text = speech.held + self._held + text
        speech.held = self._held = ""
        pos = 0
        while pos < len(text):
            match self._state:
                case 0:
                    pos = self._outside(text, pos, out)
                case 1:
                    pos = self._before(text, pos, out)
                case 2:
                    pos = self._naming(text, pos, out)
                case 3:
                    pos = self._opened(text, pos, out)
                case 4:
                    pos = self._in_arguments(text, pos, out)
                case _:
                    pos = self._after(text, pos, out)
        return out

    def flush(self) -> list[Found]:
        """End of input: what looked like the start of a marker was only text; an open call is cut off."""
        out: list[Found] = []
        held, self._held = self._held, ""
        match self._state:
            case 1 | 2 | 3:
                self._give_up(out)
            case 4:
                self._arguments.cut(held, out)
                out.append(CallEnded(closed=False))
                self._speech.drop_gap()
        self._speech.flush(out)
        self._state, self._is_marked = _OUTSIDE, False
        return out

    def _outside(self, text: str, pos: int, out: list[Found]) -> int:
        marker = self._speech.read(text, pos, out)
        if marker is None:
            return len(text)
        match marker.group():
            case "[":
                last = self._speech.last
                # What a model only thinks of calling, it has not called.
                if self._speech.channel != "text" or last.isalnum() or last in _NO_LIST_BEHIND:
                    self._speech.say("[", out)
                else:
                    self._begin("", "[", bare=True)
                return marker.end()
            case "<|python_start|>":
                self._is_marked = True
                self._begin(_START, "", bare=False)
            case _:
                if not self._is_marked:
                    out.append(Noticed("stray_marker", _END))
                self._is_marked = False
        self._speech.pause()
        return marker.end()

    # -- up to the arguments -----------------------------------------------------------

    def _begin(self, tag: str, raw: str, *, bare: bool) -> None:
        self._state, self._tag, self._raw, self._word = _BEFORE, tag, raw, ""
        self._is_bare = bare
        self._in_list = raw == "["

    def _before(self, text: str, pos: int, out: list[Found]) -> int:
        """Before a name, and with the marker also before the bracket."""
        found = _NOT_SPACE.search(text, pos)
        stop = self._keep(text, pos, found.start() if found else len(text), out)
        if found is None or self._state == _OUTSIDE:
            return stop
        if text[stop] == "[" and not self._in_list and self._tag:
            self._in_list = True
            self._raw += "["
            return stop + 1
        self._state = _NAMING
        return stop

    def _naming(self, text: str, pos: int, out: list[Found]) -> int:
        found = _NOT_NAME.search(text, pos)
        stop = found.start() if found else len(text)
        word = self._word + text[pos:stop]
        if self._is_bare and self._known is not None and (fits := self._known.fitting(word)) < len(word):
            stop = pos + fits - len(self._word)
            self._raw += text[pos:stop]
            return self._give_up(out, stop)
        stop = self._keep(text, pos, stop, out)
        if self._state != _NAMING or (found is None and word):
            self._word = word
            return stop
        if not _NAME.fullmatch(word) or text[stop] != "(":
            return self._give_up(out, stop)
        if self._is_bare and self._known is not None and word not in self._known.names:
            return self._give_up(out, stop)
        self._state, self._name, self._word = _OPENED, word, ""
        self._raw += "("
        return stop + 1

    def _opened(self, text: str, pos: int, out: list[Found]) -> int:
        """Behind the bracket: a key, or the end. Anything else is not how these calls are written."""
        if not self._word or text[pos].isspace():
            found = _NOT_SPACE.search(text, pos)
            stop = self._keep(text, pos, found.start() if found else len(text), out)
            if found is None or self._state == _OUTSIDE:
                return stop
            pos = stop
        if text[pos] == ")" and not self._word:
            out += [CallBegan(self._speech.channel, "", self._name), CallGrew("{}"), CallEnded(closed=True)]
            self._end()
            return pos + 1
        if text[pos] == "=" and _KEY.fullmatch(self._word):
            out.append(CallBegan(self._speech.channel, "", self._name))
            self._state, self._raw, self._arguments = _ARGUMENTS, "", PythonArguments()
            self._arguments.read(self._word, 0, out)
            return pos
        found = _NOT_KEY.search(text, pos)
        stop = found.start() if found else len(text)
        if stop == pos or (self._raw[-1].isspace() and self._word):
            return self._give_up(out, pos)
        self._word += text[pos:stop]
        return self._keep(text, pos, stop, out)

    def _keep(self, text: str, pos: int, stop: int, out: list[Found]) -> int:
        """Read on what may be no call; never over the limit, so that it does not depend on the chunking."""
        stop = min(stop, pos + HEADER_LIMIT + 1 - len(self._raw))
        self._raw += text[pos:stop]
        if len(self._raw) > HEADER_LIMIT:
            self._give_up(out)
        return stop

    def _give_up(self, out: list[Found], pos: int = 0) -> int:
        """This is no call: it is what the model wrote, so it is kept."""
        self._state = _OUTSIDE
        if not self._is_bare:
            out.append(Noticed("unreadable_call", self._tag + self._raw))
        self._speech.say(self._raw, out)
        self._raw = ""
        return pos

    # -- a call ------------------------------------------------------------------------

    def _in_arguments(self, text: str, pos: int, out: list[Found]) -> int:
        stop = self._arguments.read(text, pos, out)
        if not self._arguments.done:
            self._held = text[stop:]
            return len(text)
        out.append(CallEnded(closed=True))
        self._end()
        return stop

    def _end(self) -> None:
        self._state, self._raw, self._tag, self._comma = _AFTER, "", "", False
        self._is_bare = False
        self._speech.pause()

    def _after(self, text: str, pos: int, out: list[Found]) -> int:
        """Behind a call: the next one, the end of the list, or the rest of the answer."""
        found = _NO_SEPARATOR.search(text, pos)
        stop = found.start() if found else len(text)
        if stop > pos:
            end = self._speech.skip(text, pos, stop, out)
            self._comma = self._comma or any(comma in text[pos:end] for comma in ",;")
            if not self._speech.quiet:
                self._state = _OUTSIDE
            return end
        if text[pos] == "]" and self._in_list:
            self._state = _OUTSIDE
            self._speech.pause()
            return pos + 1
        if self._comma and _KEY.match(text, pos):
            self._state, self._word = _NAMING, ""
        else:
            self._state = _OUTSIDE
        return stop
