"""The fields in which Chat hosts send reasoning: read, collected for the way back, and written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias

from moonshim.engine.grammar.protocol import Notice
from moonshim.engine.upstream_events import SignatureReported, TextDelta, UpstreamEvent

__all__ = ["REASONING_FIELDS", "TEXT_KEYS", "ReasoningReader", "reasoning_copies", "text_of", "write_reasoning"]

Json: TypeAlias = dict[str, Any]

REASONING_FIELDS: Final = ("reasoning_content", "reasoning", "reasoning_details")
"""Where hosts put reasoning; if the copies differ, the first one wins."""
TEXT_KEYS: Final = {"reasoning.text": "text", "reasoning.summary": "summary", "summary": "summary", "text": "text"}
"""Under which name the entries of `reasoning_details` have their text, by type."""

_USUAL: Final = "reasoning_content"
_START: Final = 256
_SURELY_THE_SAME: Final = 8
"""Text that starts with so many characters of an earlier one repeats it."""
_GROWING: Final = ("text", "summary", "data", "encrypted")


def reasoning_copies(delta: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The fields of this delta, or message, that contain reasoning, each with its text."""
    return [(field, text) for field in REASONING_FIELDS if field in delta and (text := text_of(field, delta[field]))]


def text_of(field: str, value: Any) -> str:
    """The text in this field of a delta; "" when there is none."""
    if field != "reasoning_details":
        return value if isinstance(value, str) else ""
    if not isinstance(value, list):
        return ""
    return "".join(one[key] for one in value if (key := _text_key(one)))


def _text_key(entry: Any) -> str:
    """Where an entry of `reasoning_details` has its text: Kimi's coding endpoint sends only summaries."""
    if not isinstance(entry, dict):
        return ""
    return next((key for key in ("text", "summary") if isinstance(entry.get(key), str)), "")


class ReasoningReader:
    """Follows the reasoning of one choice: its field, and the entries that the host wants back."""

    __slots__ = ("_details", "_named", "_open", "_pieces", "_start", "field", "is_open")

    def __init__(self) -> None:
        self.field: str | None = None
        """The field that the host sent its reasoning in first; None: none yet, or in copies."""
        self._named = False
        self._details: dict[Any, Json] = {}
        self._pieces: dict[tuple[Any, str], list[str]] = {}
        """The growing strings of entries: concatenating piece by piece is not linear."""
        self._open = False
        self.is_open = False
        """Whether something has to be reported when something other than reasoning begins."""
        self._start = ""
        """How the current block of reasoning starts."""

    def read(self, delta: Mapping[str, Any]) -> list[UpstreamEvent]:
        """The reasoning of a delta, or of a whole message; copies that differ, or repeat earlier text, are reported."""
        copies = reasoning_copies(delta)
        details = delta.get("reasoning_details")
        if isinstance(details, list):
            for one in details:
                if isinstance(one, dict):
                    self._add(one)
                    self.is_open = True
        if not copies:
            return []
        field, text = copies[0]
        if self._open and self._repeats(copies):
            return [Notice("reasoning_repeated", text[:_START])]
        if not self._open:
            self._open = self.is_open = True
            self._start = text[:_START]
        if not self._named:
            self._named = True
            self.field = None if field == _USUAL and len(copies) > 1 else field
        out: list[UpstreamEvent] = []
        if len(copies) > 1:
            out += [Notice("reasoning_conflict", f"{name}: {other}") for name, other in copies if other != text]
        out.append(TextDelta("reasoning", text))
        return out

    def _repeats(self, copies: list[tuple[str, str]]) -> bool:
        """Whether the text of this delta's entries came before in a field of its own.

        Hosts use one field, or copies in every chunk. Only a response that was whole once, cut into a stream by a
        gateway, has its text first and the entries with that text after it.
        """
        if self.field not in ("reasoning_content", "reasoning") or len(copies) != 1:
            return False
        field, text = copies[0]
        start = self._start
        return field == "reasoning_details" and len(start) >= _SURELY_THE_SAME and text.startswith(start)

    def close(self) -> list[SignatureReported]:
        """The reasoning is over, as far as one can tell: something else begins."""
        for (key, name), pieces in self._pieces.items():
            self._details[key][name] = "".join(pieces)
        details = _wanted_back(self._details.values())
        # Without text there is no other field that the host would recognise.
        field = self.field if self._open else "reasoning_details" if details else None
        self._details, self._pieces, self._open, self.is_open = {}, {}, False, False
        return [SignatureReported(None, details, field)] if details or field else []

    def _add(self, entry: Json) -> None:
        """Entries grow piece by piece under their streaming index, which must not go back to the host."""
        key = entry.get("index", len(self._details))
        key = key if isinstance(key, (int, str)) else str(key)
        known = self._details.setdefault(key, {})
        for name, value in entry.items():
            if name in _GROWING and isinstance(value, str):
                self._pieces.setdefault((key, name), []).append(value)
                value = ""
            if name != "index":
                known[name] = value


def _wanted_back(entries: Iterable[Json]) -> tuple[Json, ...]:
    """What has to go back to the host beside the text, which goes back (mended) by itself.

    A signed entry stays whole. Of those that only carry text, the form of the first one is
    kept, and nothing at all when that is the usual one.
    """
    out: list[Json] = []
    formed = False
    for entry in entries:
        if entry.get("signature") or not {"text", "summary"} & entry.keys():
            out.append(entry)
        elif not formed:
            formed = True
            form = {name: value for name, value in entry.items() if name not in ("text", "summary")}
            out += [form] if form.get("type") != "reasoning.text" else []
    return tuple(out)


def write_reasoning(delta: Mapping[str, Any], text: str, *, first: bool, like: Mapping[str, Any] | None = None) -> Json:
    """The reasoning fields of this delta, every copy with this text; if it has none, those of a delta `like` it."""
    copies = reasoning_copies(delta)
    if not copies and text:
        copies = reasoning_copies(like or {}) or [(_USUAL, "")]
    written: Json = {}
    for field, _ in copies:
        if field == "reasoning_details":
            details = _write_details(delta.get(field), text, whole=first)
            if details:
                written[field] = details
        elif text:
            written[field] = text
    return written


def _write_details(value: Any, text: str, *, whole: bool) -> list[Any]:
    """The first entry that has text gets all of it, so that it is there once."""
    entries = value if isinstance(value, list) and value else [{"type": "reasoning.text", "text": ""}]
    written: list[Any] = []
    used = False
    for one in entries:
        key = _text_key(one)
        if not key:
            written += [one] if whole else []
        elif whole or (text and not used):
            written.append({**one, key: "" if used else text})
            used = True
    return written
