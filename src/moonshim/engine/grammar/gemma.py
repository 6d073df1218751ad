"""Gemma 4 and FunctionGemma: text with `<|tool_call>call:name{…}` -> text and calls.

    call      = "<|tool_call>" "call:" name object "<tool_call|>"                    (Gemma 4)
              | "<start_function_call>" "call:" name object "<end_function_call>"    (FunctionGemma)
    reasoning = "<|channel>" [ "thought" NL ] text "<channel|>"

The object is not JSON (see `gemma_arguments`); the call ends with it. Hosts that strip special tokens lose the marker
before `call:`, so `call:` with a declared name and a `{`, at the start of a word outside of the reasoning, is a call as
well.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from moonshim.engine.grammar.gemma_arguments import GemmaArguments
from moonshim.engine.grammar.protocol import CallDelta, CallEnded, CallStarted, Channel, GrammarEvent, Notice, TextFound
from moonshim.engine.grammar.shared.raw_values import escape
from moonshim.engine.grammar.shared.tag_patterns import (
    MORE,
    TagMatch,
    TagPart,
    TagPattern,
    TagSet,
    chars,
    either,
    literal,
    row,
    space,
)
from moonshim.engine.grammar.shared.text_buffer import TextBuffer
from moonshim.engine.values.conversation import Tool

__all__ = ["GemmaGrammar"]

_BEGINS: Final = ("<|tool_call>", "<start_function_call>")
_ENDS: Final = ("<tool_call|>", "<end_function_call>")

_BEGIN: Final = either(*map(literal, _BEGINS))
_END: Final = either(*map(literal, _ENDS))
_NAMED: Final = row(_BEGIN, space(), literal("call:"), space(8), chars(r"^\s{}<>"))
_THOUGHT: Final = (
    TagPattern("thought", literal("<|channel>thought\n")),
    TagPattern("thought", literal("<|channel>thought"), literal("<channel|>")),
    TagPattern("thought", literal("<|channel>"), weak=True),
    TagPattern("/thought", literal("<channel|>")),
)
_CALLS: Final = (
    TagPattern("call", _NAMED, literal("{"), at_end=False),
    TagPattern("empty", _NAMED, _END, at_end=False),
    TagPattern("lost", _BEGIN, weak=True),
    TagPattern("/call", _END),
)
_BARE_BEGINNINGS: Final = ("c", "ca", "cal", "call")
_SURELY_A_MARKER: Final = 3


class GemmaGrammar:
    """Parses one text field. At most a marker and the name after it are held back as text.

    >>> grammar = GemmaGrammar("text")
    >>> grammar.feed('Hi<|tool_call>call:ls{dir:<|"|>/tm')
    [TextFound(channel='text', text='Hi'), CallStarted(channel='text', header='', name='ls', opened=True),
     CallDelta(text='{'), CallDelta(text='"dir": '), CallDelta(text='"'), CallDelta(text='/tm')]
    """

    __slots__ = (
        "_after",
        "_arguments",
        "_bare",
        "_calling",
        "_held",
        "_names",
        "_outside",
        "_owes_end",
        "_text_buffer",
        "tags_are_text",
    )

    def __init__(self, channel: Channel, *, tools: Sequence[Tool] | None = None, calls: bool = True) -> None:
        self._names = tuple(tool.name for tool in tools or ())
        self._bare = calls and bool(self._names)
        self._outside, self._after = _tag_sets(self._names) if calls else _without_calls()
        self._text_buffer = TextBuffer(channel)
        self._arguments = GemmaArguments(*_BEGINS, *_ENDS)
        self._calling = False
        self._owes_end = False
        """Whether the end marker of the last call may still come."""
        self._held = ""
        self.tags_are_text = False
        """Has no effect: people do not write these tags as text, wherever the host sends reasoning."""

    @property
    def held(self) -> str:
        """Text that may still become (part of) a marker, or of a call without one."""
        return "" if self._calling else self._held

    def feed(self, text: str) -> list[GrammarEvent]:
        if not text:
            return []
        if not self._held and "<" not in text:
            if self._calling:
                if self._arguments.in_string:
                    return [CallDelta(escape(text))]
            elif not self._text_buffer.quiet and self._is_plain(text):
                self._text_buffer.last = text[-1]
                return [TextFound(self._text_buffer.channel, text)]
        text, self._held = self._held + text, ""
        return self._read(text, [], final=False)

    def _is_plain(self, text: str) -> bool:
        """Whether the text cannot contain a call without its marker."""
        return not self._bare or ("call:" not in text and not text.endswith(_BARE_BEGINNINGS))

    def flush(self) -> list[GrammarEvent]:
        """End of input: the start of a marker was only text; an open call is cut off.

        The channel stays: when another field interrupts this one, later text is still inside its wrapper.
        """
        text, self._held = self._held, ""
        out = self._read(text, [], final=True)
        left, self._held = self._held, ""
        if self._calling:
            # Inside a call half a marker can only be one that was cut off. A single `<` may be anything.
            stray, left = (left, "") if len(left) >= _SURELY_A_MARKER else ("", left)
            self._arguments.cut(left, out)
            if stray:
                out.append(Notice("stray_marker", stray))
            out.append(CallEnded(closed=False))
            self._calling = False
            self._text_buffer.pause()
            left = ""
        self._text_buffer.emit(left, out)
        self._owes_end = False
        return out

    def _read(self, text: str, out: list[GrammarEvent], *, final: bool) -> list[GrammarEvent]:
        pos, end = 0, len(text)
        while pos < end:
            pos = self._in_call(text, pos, out) if self._calling else self._between(text, pos, out, final)
        return out

    # -- between calls -----------------------------------------------------------------

    def _between(self, text: str, pos: int, out: list[GrammarEvent], final: bool) -> int:
        tags = self._outside
        if self._text_buffer.quiet:
            pos = self._text_buffer.skip_space(text, pos, out)
            if pos == len(text):
                return pos
            if self._text_buffer.quiet:
                tags = self._after
                if tags.match_at(text, pos, final=final) is None:
                    self._text_buffer.emit(text[pos], out)
                    return pos + 1
        tag = tags.find(text, pos, final=final)
        stop = tag.start if tag is not None else len(text)
        if tag is not None and text[stop] == "c" and not self._begins_word(text, pos, stop):
            self._text_buffer.emit(text[pos : stop + 1], out)
            return stop + 1
        if stop > pos:
            self._text_buffer.emit(text[pos:stop], out)
        if tag is None:
            return stop
        if tag.kind == MORE:
            self._held = text[stop:]
            return len(text)
        self._handle_tag(tag, text[stop : tag.end], out)
        return tag.end

    def _begins_word(self, text: str, pos: int, at: int) -> bool:
        """Whether a call without its marker may start here."""
        before = text[at - 1] if at > pos else self._text_buffer.last
        return (not before or before.isspace()) and self._text_buffer.channel == "text"

    def _handle_tag(self, tag: TagMatch, raw: str, out: list[GrammarEvent]) -> None:
        speech = self._text_buffer
        match tag.kind:
            case "thought":
                speech.enter_reasoning(out)
                return
            case "/thought":
                speech.leave_reasoning(raw, out)
                return
            case "call" | "bare":
                if tag.kind == "bare":
                    out.append(Notice("bare_call", raw))
                out.append(CallStarted(speech.channel, "", tag.values[0]))
                self._calling = True
                self._arguments = GemmaArguments(*_BEGINS, *_ENDS)
            case "empty" if tag.values[0] in self._names:
                # Not an object, but certainly a tool name.
                out.append(Notice("arguments_empty", tag.values[0]))
                out += [CallStarted(speech.channel, "", tag.values[0]), CallDelta("{}"), CallEnded(closed=True)]
                self._owes_end = True
            case "empty" | "lost":
                out.append(Notice("unreadable_call", raw))
                speech.emit(raw[raw.index(">") + 1 :], out)
                return
            case _:
                if tag.kind == "stray" or not self._owes_end:
                    out.append(Notice("stray_marker", raw))
                self._owes_end = False
                if not speech.quiet:
                    return
        speech.pause()

    # -- a call --------------------------------------------------------------------------

    def _in_call(self, text: str, pos: int, out: list[GrammarEvent]) -> int:
        arguments = self._arguments
        stop = arguments.read(text, pos, out)
        if arguments.done or arguments.marker is not None:
            if not arguments.done:
                arguments.end(out)
            out.append(CallEnded(closed=True))
            self._calling = False
            self._owes_end = True
            self._text_buffer.pause()
        elif stop < len(text):
            self._held = text[stop:]
            return len(text)
        return stop


@lru_cache(maxsize=64)
def _tag_sets(names: tuple[str, ...]) -> tuple[TagSet, TagSet]:
    """The tags outside of calls, and those directly after one; cached per set of tools."""
    tags = [*_CALLS, *_THOUGHT]
    if names:
        declared = either(*map(literal, sorted(names, key=len, reverse=True)))
        named = TagPart(f"({declared.complete})", declared.prefix)
        tags.append(TagPattern("bare", row(literal("call:"), named), literal("{"), at_end=False))
    starts = "<c" if names else "<"
    # Here the end tag of another format can only be meant for the call.
    return TagSet(tags, starts=starts), TagSet([*tags, TagPattern("stray", literal("</tool_call>"))], starts=starts)


@lru_cache(maxsize=1)
def _without_calls() -> tuple[TagSet, TagSet]:
    tags = TagSet(_THOUGHT)
    return tags, tags
