"""Text with Kimi's markers -> the text that is to be read, and the text that only shows or quotes markers.

Theory of operation. The guard stands before the grammar of one field. Text without markers goes straight through;
before a marker outside of any call the guard decides, and where it cannot decide yet it holds the text from that marker
on.

    at the marker                           held until                                       then
    none of what follows                    -                                                read
    texts of the request contain markers    the call differs from all of them                read
                                            the call is over; the response ends, the limit   text
    code is open: a fence, or a span        it closes behind the call                        text
                                            a blank line in a span; the end, the limit       read
    a fence with nothing but one call       text behind the fence                            text
                                            the end: finish reason `tool_calls`              read, else text
    a quote stands directly before          the same quote directly behind                   text
                                            anything else                                    read

A second instance of the grammar, the scout, reads what is held: inside of the arguments of a call, nothing opens or
closes. What is to be read goes to the grammar, and the guard looks away (`_busy`) until that call is over.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, Literal, TypeAlias

from moonshim.engine.grammar.kimi.any_generation import KimiGrammar
from moonshim.engine.grammar.kimi.k2 import KimiK2Grammar
from moonshim.engine.grammar.kimi.k3 import KimiK3Grammar
from moonshim.engine.grammar.kimi.quotations import QuotationMatch, Quotations, normalize
from moonshim.engine.grammar.protocol import (
    CallDelta,
    CallEnded,
    CallLost,
    CallStarted,
    GrammarEvent,
    Notice,
    OrphanStarted,
    Skim,
)
from moonshim.engine.grammar.shared.markers import marker_set
from moonshim.engine.grammar.shared.text_so_far import OpenCode, TextSoFar
from moonshim.engine.values.text_pieces import TextPieces

__all__ = ["MakeGrammar", "MarkerGuard"]

MakeGrammar: TypeAlias = Callable[[TextSoFar], KimiGrammar]
Verdict: TypeAlias = Literal["wait", "read", "text", "quoted"]

_STEPS: Final = re.compile(
    r"<\|[A-Za-z_/]{1,40}\|>|\\.|[^\\<`~\n\"'{}\[\]\u201d\u2019\u00bb\u300d]+|`+|~+|.", re.DOTALL
)
"""The pieces in which held text is looked at: whole markers, escapes, runs of backticks, words, single characters."""
_PART: Final = re.compile(r"<(?:\|(?:[A-Za-z_/]{1,40}\|?)?)?\Z")
"""What may become a marker."""
_QUOTES: Final = {'"': '"', "'": "'", "\u201c": "\u201d", "\u2018": "\u2019", "\u00ab": "\u00bb", "\u300c": "\u300d"}
_THINK: Final = frozenset({"<think>", "</think>", "\u25c1think\u25b7", "\u25c1/think\u25b7"})
_IN_END_TAG: Final = re.compile(r"<\|close\|>\s*[a-z]*\Z")
_STRUCTURE: Final = re.compile(r"<\|close\|>\s*(?:think|response)\s*<\|sep\|>\s*\Z")
"""The end of K3's reasoning or answer: with another tag behind it, it is no example of one."""
_TAGS: Final = ("<|open|>", "<|close|>")
"""What begins a tag of K3, whose attributes may contain anything."""
_SHOWN: Final = 300
"""Characters of a quotation that are reported."""
_QUOTED_TEXT: Final = 4096
"""Text after a marker that is in the request is a quotation from this many characters on."""
_FRAMES_WAIT: Final = 64
"""Characters for which frames wait; of longer text that is held, they leave what came before it."""


class _Hold:
    """The text from one marker on, while it is not known what it is."""

    __slots__ = (
        "_arguments",
        "_behind",
        "_header",
        "_in_call",
        "_is_escaped",
        "_matches",
        "_quotations",
        "_raw",
        "_scout",
        "_whole",
        "behind_fence",
        "calls",
        "code",
        "follows_text",
        "in_code",
        "is_whole",
        "last",
        "names",
        "only_call",
        "quote",
        "size",
        "state",
        "text",
    )

    def __init__(self, scout: KimiGrammar, said: TextSoFar, quotations: Quotations | None) -> None:
        self._scout, self._quotations = scout, quotations
        self.text = TextPieces()
        self.size = 0
        self.last = ""
        """The piece that came last."""
        self.code: OpenCode = said.code.copy()
        self.code.was_abandoned = False
        self.in_code = self.code.is_open
        """Whether the marker stands in code that may still close."""
        self.only_call = self.in_code and self.code.in_fence and self.code.fresh_fence
        """Whether the fence has had nothing but one call so far."""
        self.behind_fence = False
        """Whether that fence is closed: only the end of the response tells what it is."""
        self.follows_text = bool(said.tail.strip())
        self.quote = _QUOTES.get(said.tail[-1:], "")
        """What would close the quotation marks directly before the marker."""
        self.calls = 0
        self.names: list[str] = []
        self.is_whole = False
        """Whether the last call is whole."""
        self.state: Literal["open", "differs", "quoted"] = "open" if quotations is not None else "differs"
        """Whether the call is one of the request's texts."""
        self._in_call = self._is_escaped = False
        self._header = ""
        self._arguments = TextPieces()
        self._raw = TextPieces()
        """The arguments as the model wrote them, with K3's tags."""
        self._matches = [QuotationMatch(quotations) for _ in range(2)] if quotations is not None else []
        self._whole = QuotationMatch(quotations) if quotations is not None else None
        """All that is held, before the first call."""
        self._behind = 0
        """Characters of text behind a marker that opened nothing."""

    @property
    def in_value(self) -> bool:
        """Whether the next character belongs to arguments, whatever it is. Escaped quotes begin no JSON."""
        return self._scout.in_value and not self._is_escaped

    @property
    def is_outside(self) -> bool:
        """Whether what was held is no call, or whole, and no half of a marker."""
        return self._scout.is_outside and not self._scout.held

    def add(self, piece: str) -> None:
        """One piece more is held, and read by the scout."""
        if self._in_call and self.state == "open" and self._quotations is not None:
            between = not (self._scout.in_value or self._scout.held or piece.startswith("<")) and _says(piece)
            raw = "".join(self._raw) if between or piece.endswith("_end|>") else ""
            raw = raw if not between or raw.rstrip().endswith("<|sep|>") else ""
            if len(raw) > 2 and self._quotations.contains(self._header, self._without_tag(raw)):
                self.state = "quoted"  # a call that has no end of its own in the request either
        self.text.append(piece)
        self.size += len(piece)
        self.last = piece
        if self._whole is not None and not self.calls and self.state == "open":
            self._whole.feed(piece)
        started = False
        for event in self._scout.feed(piece):
            match event:
                case CallStarted() | OrphanStarted():
                    self._start(event)
                    started = True
                case CallDelta(text=text):
                    if not self._arguments or (len(self._arguments) == 1 and len(self._arguments[0]) < 3):
                        self._is_escaped = ("".join(self._arguments) + text).lstrip()[:2] == "{\\"
                    self._arguments.append(text)
                    self._match(0, text)
                case CallEnded(closed=closed):
                    self._end(closed=closed)
                case CallLost() if self.state == "open":
                    self._judge_text()
        if self._in_call and not started:
            self._raw.append(piece)
            self._match(1, piece)
            if self.state == "open" and self._arguments and not any(match.may_match for match in self._matches):
                self.state = "differs"
        elif self.state == "open" and not self.calls and self.is_outside and not piece.startswith("<") and _says(piece):
            # Text behind a marker that opened nothing: signs of a quote between markers make a call unreadable.
            self._behind += len(piece)
            if self._whole is not None and self._whole.may_match:
                self.state = "quoted" if self._behind > _QUOTED_TEXT else "open"
            else:
                self.state = "quoted" if self._began_as_quotation() else "differs"

    def _began_as_quotation(self) -> bool:
        """Whether the request contains the text from the start of the call to its end marker."""
        text = "".join(self.text)
        text = text[: text.rfind("|>") + 2]
        is_call = text.endswith(("_end|>", "<|sep|>")) and ("begin" in text or "<|open|>" in text)
        return is_call and self._quotations is not None and self._quotations.contains_text(text)

    def closes(self, opened: OpenCode) -> bool:
        """Whether the code that was `opened` before the marker is closed at the end of the response.

        A call that never ended does not hide where it closes: examples have arguments that are no JSON.
        """
        if not self.in_code:
            return False
        code = self.code
        if code.is_open and not self.is_whole:
            code = opened.copy()
            code.was_abandoned = False
            code.read("".join(self.text))
            code.end()
        return not code.is_open and not code.was_abandoned

    def finish(self) -> None:
        """The response ends here: a call that is not over, or only begins, may be a quotation all the same."""
        if self.state == "open" and not self.calls:
            text = "".join(self.text)
            if self.follows_text or "begin" in text or "<|open|>" in text:
                self._judge_text()
        elif self.state == "open":
            self.state = "quoted"

    def _start(self, found: CallStarted | OrphanStarted) -> None:
        self.calls += 1
        self._in_call, self.is_whole, self._is_escaped = True, False, False
        self._header = found.line if isinstance(found, OrphanStarted) else found.name or found.header
        self.names.append(self._header)
        self._arguments, self._raw = TextPieces(), TextPieces()

    def _end(self, *, closed: bool) -> None:
        self._in_call, self.is_whole = False, closed
        if self.state != "open" or self._quotations is None:
            return
        raw = self._without_tag("".join(self._raw))
        known = self._quotations.contains(self._header, "".join(self._arguments))
        known = known or (bool(raw.strip()) and self._quotations.contains(self._header, raw))
        known = known or self._quotations.contains_text("".join(self.text))
        self.state = "quoted" if known else "differs"

    @staticmethod
    def _without_tag(raw: str) -> str:
        """Without the tag or marker at its end, which the request may lack."""
        return raw[: raw.rfind("<|")] if "<|" in raw[-24:] else raw

    def _judge_text(self) -> None:
        assert self._quotations is not None
        known = self._quotations.contains_text("".join(self.text)) or self._began_as_quotation()
        self.state = "quoted" if known else "differs"

    def _match(self, which: int, text: str) -> None:
        if self._matches:
            self._matches[which].feed(text)


class MarkerGuard:
    """Gives the grammar of one field what is to be read. See the theory of operation above."""

    __slots__ = (
        "_busy",
        "_declared",
        "_direct",
        "_grammar",
        "_has_usual_starts",
        "_held",
        "_hold",
        "_limit",
        "_make",
        "_markers",
        "_quotations",
        "_will_call",
        "skim",
        "skim_value",
    )

    def __init__(
        self,
        make: MakeGrammar,
        *,
        declared: frozenset[str] | None = None,
        quotations: Quotations | None = None,
        limit: int,
    ) -> None:
        """`make` creates the grammar. `declared`: the names of the tools; only their calls are taken out of a fence.
        At most `limit` characters are held."""
        self._make = make
        self._grammar = make(TextSoFar())
        self._declared, self._quotations, self._limit = declared, quotations, limit
        self._markers = marker_set(*self._grammar.markers)
        self._hold: _Hold | None = None
        self._held = ""
        """The beginning of what may be a marker, or of a run of backticks."""
        self._busy = False
        self._will_call = False
        self._has_usual_starts = set(self._markers.starts) <= {"<", "\u25c1"}
        self._direct: KimiK2Grammar | KimiK3Grammar | None = None
        """Reads text without the beginning of a marker, where nothing is held back."""
        self.skim: Skim
        self.skim_value: Skim
        self._sync()

    @property
    def said(self) -> TextSoFar:
        """The text of the field so far."""
        return self._grammar.said

    @property
    def has_markers(self) -> bool:
        """Whether markers were read: then the server sends what the model wrote."""
        return self._grammar.is_decided

    @property
    def tags_are_text(self) -> bool:
        return self._grammar.tags_are_text

    @tags_are_text.setter
    def tags_are_text(self, value: bool) -> None:
        self._grammar.tags_are_text = value

    @property
    def held(self) -> str:
        if self._direct is not None:
            return self._direct.held
        hold = self._hold
        if hold is None:
            return self._grammar.held + self._held
        size = hold.size + len(self._held)
        return self._grammar.held + "".join(hold.text) + self._held if size <= _FRAMES_WAIT else ""

    @property
    def is_undecided(self) -> bool:
        """Whether a call is being read, or something is held: what it is shows only in what follows, or at the end."""
        return self._hold is not None or bool(self.held) or not self._grammar.is_outside

    def called(self) -> None:
        """The host sent a call of its own."""
        self._grammar.called()
        self.said.end_line()

    def resume(self) -> None:
        """See `KimiK2Grammar.resume`."""
        if self._hold is None and not self._held:
            self._grammar.resume()
            self._sync()

    def end(self, *, called: bool) -> None:
        """The response ends: the next `flush` is the last. `called`: the host says that it ends in calls."""
        self._grammar.ended, self._will_call = True, called

    def feed(self, text: str) -> list[GrammarEvent]:
        direct = self._direct
        if direct is not None and (("<" not in text and "\u25c1" not in text) or self.skim_value(text)):
            out = direct.feed(text)
            if self._busy and direct.is_outside:
                self._busy = False
                self.skim_value = _skim_nothing
            return out
        out = []
        self._read(text, out)
        self._sync()
        return out

    def flush(self) -> list[GrammarEvent]:
        out: list[GrammarEvent] = []
        while (hold := self._hold) is not None:
            held, self._held = self._held, ""
            hold.code.read(held)
            hold.add(held)
            hold.code.end()
            hold.finish()
            closes = hold.closes(self.said.code)
            if hold.state == "quoted":
                rest = self._decide(hold, "quoted", out)
            elif (closes or hold.behind_fence) and not (hold.only_call and self._is_called(hold)):
                rest = self._decide(hold, "text", out)
            else:
                rest = self._decide(hold, "read", out)
            self._read(rest, out)
        held, self._held = self._held, ""
        out += self._grammar.feed(held) + self._grammar.flush()
        self._busy = False
        self._sync()
        return out

    def _is_called(self, hold: _Hold) -> bool:
        """Whether a call in a fence of its own is one: the host says so, and the tool exists."""
        known = self._declared is None or any(name in header for header in hold.names for name in self._declared)
        return self._will_call and known and hold.calls == 1 and hold.is_whole

    def _sync(self) -> None:
        grammar = self._grammar
        is_free = self._hold is None and not self._held
        self._direct = grammar.direct if is_free and self._has_usual_starts else None
        self.skim = grammar.skim if is_free else _skim_nothing
        self.skim_value = grammar.skim_value if self._busy else _skim_nothing

    # -- what comes --------------------------------------------------------------------

    def _read(self, text: str, out: list[GrammarEvent]) -> None:
        """Read text, or hold it: up to one marker after the other."""
        while text:
            if self._hold is not None:
                text = self._look(self._hold, text, out)
                continue
            text, self._held = self._held + text, ""
            marker = self._markers.find(text)
            stop = marker.start() if marker is not None else len(text) - self._markers.partial_length(text)
            out += self._grammar.feed(text[:stop])
            text = text[stop:]
            self._busy = not self._grammar.is_outside
            if marker is None:
                if self._busy:
                    out += self._grammar.feed(text)
                    self._busy = not self._grammar.is_outside
                else:
                    self._held = text
                    held = self._grammar.held
                    if text and not held.startswith(_TAGS) and self._markers.partial_length(held):
                        out += self._grammar.quote("")  # no marker continues past the start of another
                return
            if self._busy or not self._must_hold(marker.group()):
                size = len(marker.group())
                out += self._grammar.feed(text[:size])
                text = text[size:]
                self._busy = not self._grammar.is_outside
                continue
            scouted = TextSoFar()
            scouted.tail = self.said.tail
            self._hold = _Hold(self._make(scouted), self.said, self._quotations)

    def _must_hold(self, marker: str) -> bool:
        """Whether it depends on what follows what this marker is."""
        said = self.said
        said.settle()
        said.code.end_run()
        if marker in _THINK and self._grammar.channel == "reasoning":
            return False  # the end of reasoning, whatever stray backticks are in it
        return self._quotations is not None or said.code.is_open or said.tail[-1:] in _QUOTES

    # -- what is held ------------------------------------------------------------------

    def _look(self, hold: _Hold, text: str, out: list[GrammarEvent]) -> str:
        """Look at more text behind the marker; what is left comes after the decision."""
        text, self._held = self._held + text, ""
        pos = 0
        for step in _STEPS.finditer(text):
            piece = step.group()
            grows = step.end() == len(text) and (piece[0] in "`~" or piece == "\\")
            if grows or (piece == "<" and _PART.match(text, pos)):
                self._held = text[pos:]  # more of it may come
                return ""
            before = self._before(hold, piece)
            if before is not None:
                return self._decide(hold, before, out) + text[pos:]
            verdict = self._step(hold, piece)
            pos = step.end()
            if verdict == "wait" and hold.size > self._limit:
                out.append(Notice("buffer_limit", "text behind a marker"))
                verdict = "quoted" if hold.state == "open" else "read"
            if verdict != "wait":
                return self._decide(hold, verdict, out) + text[pos:]
        return ""

    @staticmethod
    def _before(hold: _Hold, piece: str) -> Verdict | None:
        """What is decided by the piece that follows, which is no part of it."""
        if not hold.size or hold.in_value:
            return None
        is_marker = piece.startswith("<|") and len(piece) > 2
        if hold.state == "quoted":
            # The end of the section belongs to the quotation.
            goes_on: object = is_marker and "begin" not in piece and piece != "<|open|>"
            goes_on = goes_on or not _says(piece) or _IN_END_TAG.search("".join(hold.text)[-24:])
            return None if goes_on else "quoted"
        if is_marker:
            if hold.size < 64 and _STRUCTURE.match("".join(hold.text)):
                return "read"
            return None
        ends = hold.last.endswith("|>") or (hold.calls and hold.last[-1:] in ("}", "]"))
        if hold.quote and ends and piece.lstrip("\\")[:1] == hold.quote:
            return "text"
        if hold.behind_fence and piece.strip():
            return "text"
        if hold.is_outside and (hold.is_whole or not hold.calls) and _says(piece):
            hold.quote = ""
            if hold.state == "differs" and not hold.in_code:
                return "read"
        return None

    def _step(self, hold: _Hold, piece: str) -> Verdict:
        """One piece more: what is known now."""
        outside = hold.size > 0 and not hold.in_value and not (piece.startswith("<|") and len(piece) > 2)
        if outside:
            hold.code.read(piece)
            if piece[0] in "`~":
                hold.code.end_run()
            elif piece.strip() and hold.is_outside and not hold.behind_fence:
                hold.only_call = False
        hold.add(piece)
        if outside and hold.in_code and not hold.behind_fence and not hold.code.is_open:
            if hold.code.was_abandoned:
                hold.in_code = False
            elif hold.only_call and hold.calls == 1 and hold.is_whole and hold.state != "quoted":
                hold.behind_fence = True
            else:
                return "text"
        if hold.state != "differs" or hold.in_code or hold.quote:
            return "wait"
        return "read"

    def _decide(self, hold: _Hold, verdict: Verdict, out: list[GrammarEvent]) -> str:
        """What is held goes on its way. Returns what has to be looked at again."""
        text = "".join(hold.text)
        self._hold = None
        if verdict != "read":
            if verdict == "quoted" or hold.calls:
                out.append(Notice("quoted_call", text[:_SHOWN]))
            out += self._grammar.quote(text)
            return ""
        if hold.in_code or hold.code.was_abandoned:
            # It does not close, so it is no code: not for the next marker either.
            self.said.code = OpenCode()
        marker = self._markers.match(text)
        size = marker.end() if marker is not None else len(text)
        out += self._grammar.feed(text[:size])
        self._busy = not self._grammar.is_outside
        return text[size:]


def _says(piece: str) -> bool:
    """Whether a piece has more than white space and the signs that may stand before every line of a quotation."""
    return bool(normalize(piece).strip(" \t\r\n>|+-*#/\\0123456789:.\u2192"))


def _skim_nothing(text: str) -> bool:
    """Something is held back: what follows may belong to it."""
    return False
