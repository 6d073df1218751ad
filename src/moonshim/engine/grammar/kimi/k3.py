"""Kimi K3 and K3.1 (XTML): text with `<|open|>name<|sep|>` tags -> text and calls.

    message  = [ think ] [ response ] [ tools ] "<|close|>message<|sep|>" "<|end_of_msg|>"
    tools    = open(tools) { call } close(tools)
    call     = open(call, tool, index) ( { argument } | json ) close(call)
    argument = open(argument, key, type) value close(argument)

Hosts have omitted every one of these tags, so none requires another: think and response set the channel of text, tools
means that white space is ignored, an argument outside of a call begins a call whose name is not known. `<think>` is not
a tag here but text; an unmatched `</think>` is dropped. What a tag opens and nobody can read is a `CallLost`.
"""

from __future__ import annotations

import re
from typing import Final

from moonshim.engine.grammar.kimi.k3_arguments import CONTAINER, RAW, SPACE_LIMIT, STRING, ArgumentWriter, escape
from moonshim.engine.grammar.kimi.k3_tags import K3Tag, TagReader
from moonshim.engine.grammar.protocol import (
    CallDelta,
    CallEnded,
    CallLost,
    CallStarted,
    Channel,
    GrammarEvent,
    Notice,
    TextFound,
)
from moonshim.engine.grammar.shared.markers import marker_set
from moonshim.engine.grammar.shared.text_so_far import LARGE, MAX_PIECES, TextSoFar

__all__ = ["KimiK3Grammar"]

_NOT_SPACE: Final = re.compile(r"\S")
_THINK, _END_THINK = "<think>", "</think>"
_STARTS: Final = marker_set("<|", _THINK, _END_THINK)
_OPENING: Final = "<|open|>"
_SEP: Final = "<|sep|>"
_SURE: Final = 5
"""So many characters of an opening tag at the end of a response are one that was cut off."""


def _both(*names: str) -> list[str]:
    return [f"{kind} {name}" for name in names for kind in ("open", "close")]


_WRAPPERS: Final = TagReader(_both("think", "response", "message"))
_ALL: Final = TagReader(_both("think", "response", "message", "tools", "call", "argument", "json"))
# Inside a value only its end is a tag. Its own end may lack `<|sep|>`; the other tags indicate that its end was lost,
# and must be unambiguous.
_OTHER_ENDS: Final = ("close call", "close tools", "close message", "open argument", "open call")
_IN_ARGUMENT: Final = TagReader((*_OTHER_ENDS, "close argument"), elided=frozenset({"close argument"}))
_IN_JSON: Final = TagReader((*_OTHER_ENDS, "close json"), elided=frozenset({"close json"}))
_BEYOND_DOUBT: Final = {"open argument": "key", "open call": "tool"}


class KimiK3Grammar:
    """Parses one text field. At most an unfinished tag (`TAG_LIMIT`) is held back as text.

    Text between the arguments of a call is emitted at once: a `TextFound` may come while a call is open.

    >>> grammar = KimiK3Grammar("text")
    >>> grammar.feed('Hi<|open|>call tool="ls" index="1"<|sep|><|open|>argument key="dir" type="string"<|sep|>/tm')
    [TextFound(channel='text', text='Hi'), CallStarted(channel='text', header='', name='ls', opened=True),
     CallDelta(text='{"dir": "'), CallDelta(text='/tm')]
    """

    __slots__ = (
        "_after_wrapper",
        "_base",
        "_called",
        "_calling",
        "_calls",
        "_channel",
        "_gap",
        "_held",
        "_in_tools",
        "_in_value",
        "_open",
        "_orphan",
        "_quiet",
        "_tags",
        "_writer",
        "ended",
        "said",
        "tags_are_text",
        "words_open",
    )

    def __init__(self, channel: Channel, *, calls: bool = True, said: TextSoFar | None = None) -> None:
        self.said = said if said is not None else TextSoFar()
        self._calls = calls
        self._called = True
        """Whether there was a call since the last `tools`."""
        self.ended = False
        """Set before the last `flush`: what is open then was cut off."""
        self._base: Channel = channel
        self._channel: Channel = channel
        self._tags = _ALL if calls else _WRAPPERS
        self._open = ""
        self._in_tools = False
        self._calling = False
        self._orphan = False
        """The open call began with its arguments, so text ends it."""
        self._in_value = False
        self._quiet = False
        self._after_wrapper = False
        self._gap = ""
        self._held = ""
        self._writer = ArgumentWriter()
        self.tags_are_text = False
        """Has no effect: unlike `<think>`, people do not write XTML as text, wherever the host sends reasoning."""
        self.words_open = 0
        """Number of `<think>` emitted as text and not closed yet: the next `</think>` closes one of them."""

    @property
    def held(self) -> str:
        """Text that may still become (part of) a tag."""
        return "" if self._calling else self._held

    @property
    def channel(self) -> Channel:
        """Where text goes now."""
        return self._channel

    @property
    def is_outside(self) -> bool:
        """Whether no call is being read."""
        return not self._calling

    @property
    def in_value(self) -> bool:
        """Whether the next character belongs to the arguments of a call, whatever it is."""
        return self._in_value

    @property
    def in_tools(self) -> bool:
        """Whether the next thing is a call or the end of the calls."""
        return self._in_tools and not self._calling

    def called(self) -> None:
        """A call was read elsewhere: K2's, inside of `tools`."""
        self._called = True

    def skim(self, text: str) -> bool:
        """Read text if all of it is certainly text in this field, which is the common case; False: nothing was done."""
        if self._held or self._calling or self._quiet or "<" in text or self._channel != self._base:
            return False
        if "\u25c1" in text:
            return False  # for the guard, the beginning of a think tag of K2
        pieces = self.said.pieces
        pieces.append(text)
        if len(pieces) >= MAX_PIECES or len(text) >= LARGE:
            self.said.settle()
        return True

    def skim_value(self, text: str) -> bool:
        """Whether all of this text is arguments as they are: then nothing has to be done with it."""
        if not self._in_value or self._held or self._writer.phase != STRING:
            return False
        return "<" not in text and '"' not in text and "\\" not in text and text.isprintable()

    def quote(self, text: str) -> list[GrammarEvent]:
        """Text that is not to be read, though there are tags in it. Only outside of a call."""
        out: list[GrammarEvent] = []
        held, self._held = self._held, ""
        self._emit_text(held + text, out)
        return out

    def feed(self, text: str) -> list[GrammarEvent]:
        if not text:
            return []
        if self.skim(text):
            return [TextFound(self._channel, text)]
        if not self._held:
            if self._in_value:
                writer = self._writer
                if writer.phase == STRING:
                    if "<" not in text:
                        if '"' not in text and "\\" not in text and text.isprintable():
                            return [CallDelta(text)]
                        return [CallDelta(escape(text))]
                elif writer.phase == CONTAINER:
                    scanner = writer.scanner
                    if scanner.in_string and not scanner.escaped and '"' not in text and "\\" not in text:
                        return [CallDelta(text)]
            elif not self._quiet and "<" not in text:
                self.said.add(text)
                return [TextFound(self._channel, text)]
        text, self._held = self._held + text, ""
        return self._read(text, [], final=False)

    def flush(self) -> list[GrammarEvent]:
        """End of input: the start of a tag was only text; an open call is cut off.

        The channel stays: when another field interrupts this one, later text is still inside its wrapper.
        """
        text, self._held = self._held, ""
        out = self._read(text, [], final=True)
        left, self._held = self._held, ""
        # Among calls half a tag can only be one that was cut off. A single `<` may be anything.
        among = self._calling or self._in_tools
        if self.ended and self._calls and not self._calling:
            # The response ends inside of a call, or before the first one.
            cut_off = len(left) >= _SURE and (left.startswith(_OPENING) or _OPENING.startswith(left))
            if cut_off or not self._called:
                self._called = True
                out.append(CallLost(self._channel, f"<|open|>tools<|sep|>{left}" if not cut_off else left, left))
                left = ""
        stray, left = (left, "") if among and left.startswith("<|") else ("", left)
        if self._in_value:
            self._writer.write(left, out)
            self._writer.cut(out)
        elif left:
            self._emit_text(left, out)
        if stray:
            out.append(Notice("stray_marker", stray))
        if self._calling:
            out.append(CallEnded(closed=False))
        if self._after_wrapper:
            self._emit_text("", out)
        self._calling = self._in_value = self._quiet = False
        self._gap = ""
        return out

    def _read(self, text: str, out: list[GrammarEvent], *, final: bool) -> list[GrammarEvent]:
        pos, end = 0, len(text)
        while pos < end:
            pos = self._value(text, pos, out, final) if self._in_value else self._read_text(text, pos, out, final)
        return out

    # -- between tags ------------------------------------------------------------------

    def _read_text(self, text: str, pos: int, out: list[GrammarEvent], final: bool) -> int:
        if self._quiet:
            found = _NOT_SPACE.search(text, pos)
            stop = found.start() if found else len(text)
            self._gap += text[pos:stop]
            if len(self._gap) > SPACE_LIMIT:
                self._emit_text("", out)
            elif self._calling and self._writer.empty and text.startswith("{", stop):
                # An object in the place of a `json` element: without it the call would have no arguments.
                out.append(Notice("k3_untagged_json", "{"))
                self._begin_json()
            pos = stop
            if pos == len(text) or self._in_value:
                return pos
        start = _STARTS.find(text, pos)
        stop = start.start() if start else len(text) - _STARTS.partial_length(text, pos)
        if stop > pos:
            if self._orphan and self._calling:
                self._end_call(out)
            self._emit_text(text[pos:stop], out)
        if start is None:
            self._held = text[stop:]
            return len(text)
        if start.group() != "<|":
            self._handle_think_tag(start.group(), out)
            return start.end()
        tag = self._tags.read(text, stop, final=final)
        if tag == "more":
            self._held = text[stop:]
            return len(text)
        if tag == "text" and self._calling:
            # The end of a tag whose beginning is missing: what was an argument has gone out as text.
            if text.startswith(_SEP, stop):
                out.append(CallLost(self._channel, _SEP, ""))
                return stop + len(_SEP)
            if not final and _SEP.startswith(text[stop:]):
                self._held = text[stop:]
                return len(text)
        if tag == "text":
            self._emit_text("<|", out)
            return stop + 2
        self._handle_tag(tag, out)
        return tag.end

    def _handle_think_tag(self, word: str, out: list[GrammarEvent]) -> None:
        """A think tag of K2: an unmatched end tag is dropped, anything else is text."""
        if word == _END_THINK and not self.words_open:
            out.append(Notice("stray_marker", word))
            return
        self.words_open += 1 if word == _THINK else -1
        self._emit_text(word, out)

    def _emit_text(self, text: str, out: list[GrammarEvent]) -> None:
        """White space before text is text after all."""
        text, self._gap = self._gap + text, ""
        self._quiet = False
        if text:
            out.append(TextFound(self._channel, text))
            self.said.add(text)

    # -- tags --------------------------------------------------------------------------

    def _handle_tag(self, tag: K3Tag, out: list[GrammarEvent]) -> None:
        """A tag outside of any value decides what comes next."""
        self._gap = ""
        self.said.settle()
        closed = self._calling and self._handle_tag_in_call(tag, out)
        if not self._calling and not closed:
            self._handle_tag_outside(tag, out)
        # White space between tags is dropped; after a wrapper it may be the end of the text.
        self._after_wrapper = tag.key.startswith("close ") and not (self._calling or self._in_tools or closed)
        self._quiet = self._calling or self._in_tools or closed or self._after_wrapper
        self.said.tail = ""

    def _handle_tag_in_call(self, tag: K3Tag, out: list[GrammarEvent]) -> bool:
        """Whether the tag is the call's own end. Any other tag that does not belong in a call ends it as well."""
        match tag.key:
            case "open argument":
                if "key" not in tag.attributes:
                    out += [Notice("k3_argument_without_key", tag.raw), CallLost(self._channel, tag.raw, "")]
                self._writer.begin_value(tag.attributes.get("key", ""), tag.attributes.get("type", "string"), out)
                self._in_value = True
            case "open json":
                self._begin_json()
            case "close argument" | "close json":
                out.append(CallLost(self._channel, tag.raw, ""))
            case _:
                self._end_call(out)
                return tag.key == "close call"
        return False

    def _end_call(self, out: list[GrammarEvent]) -> None:
        self._writer.end_call(out)
        out.append(CallEnded(closed=True))
        self._calling = False

    def _handle_tag_outside(self, tag: K3Tag, out: list[GrammarEvent]) -> None:
        kind, _, name = tag.key.partition(" ")
        match tag.key:
            case "open think" | "open response":
                self._open = name
                self.said.begin_block()
                self._channel = "reasoning" if name == "think" else "text"
                self._in_tools = False
            case "open tools":
                self._in_tools, self._called = True, False
            case "open call":
                tool = (tag.attributes.get("tool") or tag.attributes.get("name", "")).strip()
                self._begin_call(tool or None, out)
            case "open argument" | "open json":
                # The server has kept the beginning of the call.
                self._begin_call(None, out, orphan=True)
                self._handle_tag_in_call(tag, out)
            case "close argument" | "close json" | "close call" if self.said.tail.strip():
                out.append(CallLost(self._channel, self.said.tail + tag.raw, ""))
            case "close think" | "close response" if self._open == name:
                self._leave()
            case "close tools" if self._in_tools:
                self._in_tools = False
            case _:
                out.append(Notice("stray_marker", tag.raw))
                if name in ("think", "response", "message") or kind == "end_of_msg":
                    self._leave()

    def _begin_call(self, tool: str | None, out: list[GrammarEvent], *, orphan: bool = False) -> None:
        out.append(CallStarted(self._channel, "", tool))
        self._calling = self._called = True
        self._orphan = orphan
        self._writer = ArgumentWriter()

    def _leave(self) -> None:
        self.said.begin_block()
        self._open, self._channel, self._in_tools = "", self._base, False

    # -- values ------------------------------------------------------------------------

    def _begin_json(self) -> None:
        self._writer.begin_json()
        self._in_value = True
        self._gap = ""

    def _value(self, text: str, pos: int, out: list[GrammarEvent], final: bool) -> int:
        writer = self._writer
        phase = writer.phase
        stop = writer.take(text, pos, out)
        if writer.phase != phase or not text.startswith("<", stop):
            return stop
        tag = (_IN_JSON if writer.phase == RAW else _IN_ARGUMENT).read(text, stop, final=final)
        if tag == "more":
            self._held = text[stop:]
            return len(text)
        if tag == "text" or _BEYOND_DOUBT.get(tag.key, "") not in ("", *tag.attributes):
            writer.write("<", out)
            return stop + 1
        writer.end_value(out)
        self._in_value = False
        if tag.key == writer.closing:
            self._quiet = True
        else:
            self._handle_tag(tag, out)
        return tag.end
