"""Formats that write a call as tags around raw text: text with such tags -> text and calls.

    section = open(section) { call } close(section)
    call    = open(call, name) ( { param } | object ) close(call)
    param   = open(param, key) value close(param)

Each family lists its tags in a table (`TagFormat`). Models have omitted every one of them, so no tag requires another:
a call also ends where the next tag implies it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar, Final

from msgspec import Struct

from moonshim.engine.grammar.protocol import CallDelta, CallEnded, CallStarted, Channel, GrammarEvent, Notice, TextFound
from moonshim.engine.grammar.shared.declared_kinds import JSON_ONLY, STRING_ONLY, DeclaredKinds
from moonshim.engine.grammar.shared.raw_values import CONTAINER, ValueWriter, escape
from moonshim.engine.grammar.shared.tag_patterns import MORE, TagMatch, TagPattern, TagSet, literal
from moonshim.engine.grammar.shared.text_buffer import TextBuffer
from moonshim.engine.values.conversation import Tool

__all__ = ["THINK", "TagFormat", "TaggedGrammar", "tag_sets"]

THINK: Final = (TagPattern("think", literal("<think>")), TagPattern("/think", literal("</think>")))

_QUOTES: Final = ('"', "'")
_SURELY_A_TAG: Final = 4
"""In a call that is cut off, this many characters of a tag (`</pa`) are no longer taken for text."""
_NO_CALLS: Final = TagSet(THINK)


class TagFormat(Struct, frozen=True):
    """The tags of a family at each position. Kinds: section, call, param, each with its end; lost; think."""

    outside: TagSet
    inside: TagSet
    """In a section, and directly after a call."""
    in_call: TagSet
    in_value: TagSet
    """The end of the value, and tags that can only mean that it was lost."""
    trims: bool = False
    """One line break at each end of a value belongs to the format."""
    objects: bool = False
    """A call may have one JSON object instead of params."""
    sections: bool = True
    """Calls are wrapped in a section, so white space after a call is still inside it."""


def tag_sets(
    outside: Iterable[TagPattern],
    inside: Iterable[TagPattern],
    in_call: Iterable[TagPattern],
    in_value: Iterable[TagPattern],
) -> tuple[TagSet, TagSet, TagSet, TagSet]:
    return TagSet([*outside, *THINK]), TagSet([*inside, *THINK]), TagSet(list(in_call)), TagSet(list(in_value))


class TaggedGrammar:
    """Parses one text field. At most an unfinished tag, including its name, is held back as text.

    Text between the params of a call is emitted at once: a `TextFound` may come while a call is open.
    """

    __slots__ = (
        "_calling",
        "_held",
        "_in_section",
        "_in_value",
        "_kinds",
        "_lost",
        "_markers",
        "_name",
        "_text_buffer",
        "_writer",
        "tags_are_text",
    )

    format: ClassVar[TagFormat]

    def __init__(self, channel: Channel, *, tools: Sequence[Tool] | None = None, calls: bool = True) -> None:
        self._text_buffer = TextBuffer(channel)
        self._kinds = DeclaredKinds(tools)
        self._markers = self.format.outside if calls else _NO_CALLS
        self._calling = False
        self._in_value = False
        self._in_section = False
        self._lost = ""
        """The marker of a section without any content yet."""
        self._name = ""
        self._held = ""
        self._writer = self._new_writer()
        self.tags_are_text = False
        """Set when the host sends reasoning in its own field: `<think>` in the text is then ordinary text."""

    def _new_writer(self) -> ValueWriter:
        return ValueWriter(trims=self.format.trims, python_words=True)

    @property
    def held(self) -> str:
        """Text that may still become (part of) a tag."""
        return "" if self._calling else self._held

    def feed(self, text: str) -> list[GrammarEvent]:
        if not text:
            return []
        if not self._held and "<" not in text:
            if self._in_value:
                if self._writer.is_plain(text):
                    self._writer.at_line = False
                    return [CallDelta(escape(text))]
            elif not self._text_buffer.quiet and not self._lost:
                return [TextFound(self._text_buffer.channel, text)]
        text, self._held = self._held + text, ""
        return self._read(text, [], final=False)

    def flush(self) -> list[GrammarEvent]:
        """End of input: the start of a tag was only text; an open call is cut off.

        The channel stays: when another field interrupts this one, later text is still inside its wrapper.
        """
        text, self._held = self._held, ""
        out = self._read(text, [], final=True)
        left, self._held = self._held, ""
        cut = ""
        if self._calling and len(left) >= _SURELY_A_TAG:
            cut, left = left, ""
        if self._in_value:
            self._writer.write(left, out)
            self._writer.cut(out)
        elif left:
            self._emit_text(left, out)
        if cut:
            out.append(Notice("stray_marker", cut))
        if self._calling or self._in_section:
            self._text_buffer.pause()
        if self._calling:
            out.append(CallEnded(closed=False))
        self._calling = self._in_value = False
        self._text_buffer.emit("", out)
        return out

    def _read(self, text: str, out: list[GrammarEvent], *, final: bool) -> list[GrammarEvent]:
        pos, end = 0, len(text)
        while pos < end:
            pos = self._value(text, pos, out, final) if self._in_value else self._between(text, pos, out, final)
        return out

    # -- between tags ------------------------------------------------------------------

    def _between(self, text: str, pos: int, out: list[GrammarEvent], final: bool) -> int:
        if self._text_buffer.quiet:
            pos = self._text_buffer.skip_space(text, pos, out)
            if self._calling and self.format.objects and self._writer.empty and text.startswith("{", pos):
                self._text_buffer.pause()
                self._writer.begin_object()
                self._in_value = True
                return pos
            if pos == len(text):
                return pos
            if self._tags.match_at(text, pos, final=final) is None:
                # Text, so from here on other tags may apply.
                self._emit_text(text[pos], out)
                return pos + 1
        tag = self._tags.find(text, pos, final=final)
        stop = tag.start if tag is not None else len(text)
        if stop > pos:
            self._emit_text(text[pos:stop], out)
        if tag is None:
            return stop
        if tag.kind == MORE:
            self._held = text[stop:]
            return len(text)
        self._handle_tag(tag, text[stop : tag.end], out)
        return tag.end

    @property
    def _tags(self) -> TagSet:
        if self._calling:
            return self.format.in_call
        if self._in_section or (self._text_buffer.quiet and self._markers is not _NO_CALLS):
            return self.format.inside
        return self._markers

    def _emit_text(self, text: str, out: list[GrammarEvent]) -> None:
        if self._lost:
            out.append(Notice("unreadable_call", self._lost))
            self._lost = ""
        self._text_buffer.emit(text, out)

    # -- tags --------------------------------------------------------------------------

    def _handle_tag(self, tag: TagMatch, raw: str, out: list[GrammarEvent]) -> None:
        """A tag outside of any value decides what comes next."""
        if tag.kind in ("think", "/think"):
            self._text_buffer.think(tag.kind, raw, out, as_words=self.tags_are_text)
        elif not (self._calling and self._handle_tag_in_call(tag, raw, out)):
            self._handle_tag_outside(tag, raw, out)

    def _handle_tag_in_call(self, tag: TagMatch, raw: str, out: list[GrammarEvent]) -> bool:
        """Whether the tag belongs in the call. Any other tag shows that the call is over."""
        match tag.kind:
            case "param":
                self._begin_value(tag, out)
            case "/param":
                self._stray(raw, out)
            case _:
                self._writer.end_call(out)
                out.append(CallEnded(closed=True))
                self._calling = False
                self._text_buffer.pause()
                return tag.kind == "/call"
        return True

    def _handle_tag_outside(self, tag: TagMatch, raw: str, out: list[GrammarEvent]) -> None:
        after_call = self._text_buffer.quiet
        match tag.kind:
            case "section":
                self._in_section, self._lost = True, raw
            case "call":
                self._name = _unquote(tag.values[0])
                self._lost = ""
                out.append(CallStarted(self._text_buffer.channel, "", self._name or None))
                self._calling = True
                self._writer = self._new_writer()
            case "/section" if self._in_section or (after_call and self.format.sections):
                self._in_section, self._lost = False, ""
            case "lost":
                self._text_buffer.emit("", out)
                out.append(Notice("unreadable_call", raw))
                return
            case _:
                self._stray(raw, out)
                return
        self._text_buffer.pause()

    def _stray(self, raw: str, out: list[GrammarEvent]) -> None:
        out.append(Notice("stray_marker", raw))
        if self._text_buffer.quiet:
            self._text_buffer.pause()

    # -- values ------------------------------------------------------------------------

    def _begin_value(self, tag: TagMatch, out: list[GrammarEvent]) -> None:
        key = _unquote(tag.values[0])
        # A format that marks strings itself knows better than the schema.
        is_string = _unquote(tag.values[1]) if len(tag.values) > 1 else ""
        kinds = (
            STRING_ONLY
            if is_string == "true"
            else JSON_ONLY
            if is_string == "false"
            else self._kinds.kinds_of(self._name, key)
        )
        self._writer.begin(key, kinds, out)
        self._in_value = True
        self._text_buffer.pause()

    def _value(self, text: str, pos: int, out: list[GrammarEvent], final: bool) -> int:
        writer = self._writer
        if writer.phase == CONTAINER:
            stop = writer.stream(text, pos, out)
            if writer.phase != CONTAINER or stop == len(text):
                return stop
            tag = self.format.in_value.match_at(text, stop, final=final)
            if tag is None:
                writer.write("<", out)
                return stop + 1
        else:
            phase = writer.phase
            tag = self.format.in_value.find(text, pos, final=final)
            stop = tag.start if tag is not None else len(text)
            writer.write(text[pos:stop], out)
            if tag is None or writer.phase != phase:
                return stop
        if tag.kind == MORE:
            self._held = text[stop:]
            return len(text)
        if tag.kind == "param" and writer.trims and not writer.at_line:
            # If values are on lines of their own, so is the next param.
            writer.write("<", out)
            return stop + 1
        writer.end_value(out)
        self._in_value = False
        self._text_buffer.pause()
        if tag.kind != "/param":
            self._handle_tag(tag, text[stop : tag.end], out)
        return tag.end


def _unquote(value: str) -> str:
    return value[1:-1] if len(value) > 1 and value[0] == value[-1] and value[0] in _QUOTES else value.strip()
