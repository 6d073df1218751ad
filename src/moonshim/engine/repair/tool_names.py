"""Reads the name of a call from what stood in the identifier's place, and never invents one.

Kimi imitates the identifiers of its history, so many shapes arrive:
`functions.read_file:3`, `search:0`, `Bash_0`, `functions_get_weather_1`,
`functionsexec5`, `functions exec:0`, and some that carry no name at all.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, Final

import msgspec

from moonshim.engine.values.conversation import Tool

__all__ = ["DeclaredTools", "NamedArguments", "unwrap"]

_SPACES: Final = re.compile(r"\s*[\r\n]+\s*")
_PREFIX: Final = re.compile(r"(?:call_)?functions?(?:[.:_ ]|\s)*")
_INDEX: Final = re.compile(r"(?::[A-Za-z0-9_\-]*|[_.]?[0-9]+)\Z")
_GLUED_INDEX: Final = re.compile(r"[0-9]{1,9}\Z")
_CANONICAL: Final = re.compile(r"functions?[. ]\s*(?P<name>[^\s:]+?)(?::[A-Za-z0-9_\-]*)?")
_COLON: Final = re.compile(r"(?P<name>[A-Za-z_$][\w.\-]*):[A-Za-z0-9_\-]*")
_NESTED: Final = re.compile(r"(?:functions?[. ]\s*)?(?P<name>[A-Za-z_$][\w.\-]*(?::[\w.\-]+)+):[0-9]+")
"""A name that has colons itself (`mcp:server:tool:7`): the index is what follows the last one."""
_GLUED: Final = re.compile(r"(?:call_)?functions_?(?P<name>[A-Za-z][\w.\-]*?)_?[0-9]+")
_COUNTED: Final = re.compile(r"(?P<name>[A-Za-z][\w.\-]*)_[0-9]+")
_BARE: Final = re.compile(r"(?P<name>[A-Za-z_$][\w.\-]*)")
_NAME_FIRST: Final = re.compile(r'\s*\{\s*"name"\s*:\s*"[^"\\]*"\s*,\s*')
_COLONS: Final = re.compile(r"[ \t]*[:\uff1a][ \t]*")
_PUNCTUATION: Final = re.compile(r"[\W_]+")
_ID_AT_END: Final = re.compile(
    r"(?<![A-Za-z0-9_$.\-])(?:(?:functions\.)?(?P<name>[A-Za-z_$][\w.\-]*):[0-9]+|(?P<id>(?:call|toolu|fc|chatcmpl-tool)[_\-][A-Za-z0-9_\-]+|[A-Za-z0-9_\-]*[0-9]|:[0-9]+))\s*\Z"
)
"""An id at the end of a line: one of proper form, or one that carries no name."""
_NO_NAME: Final = re.compile(
    r"[0-9]+|call[_\-]?[0-9]+|call_.*|toolu_.*|tool_[0-9A-Za-z]{12,}|chatcmpl-tool-.*|fc_.*|hist_tool_.*"
    r"|(?=.*[0-9])[0-9a-f]{16,}|[0-9a-f]{8}-[0-9a-f\-]{20,}"
)


class DeclaredTools:
    """The tools that the request declared; `names` is None when they are not known."""

    def __init__(self, tools: Sequence[Tool] | None) -> None:
        self.by_name: dict[str, Tool] = {tool.name: tool for tool in tools or ()}
        self.names: frozenset[str] | None = None if tools is None else frozenset(self.by_name)
        self._sorted = sorted(self.by_name)

    @property
    def tools(self) -> list[Tool] | None:
        """The tools, or None when they are not known."""
        return None if self.names is None else list(self.by_name.values())

    def knows(self, name: str) -> bool:
        return name in self.by_name

    def may_grow(self, name: str) -> bool:
        """Whether a name that arrives in pieces could still become another declared one."""
        # In order, names that begin with this one come right after it.
        after = bisect_right(self._sorted, name)
        return after < len(self._sorted) and self._sorted[after].startswith(name)

    def name_in(self, header: str) -> str | None:
        """The name that this text carries: a declared one if it can be, else one that is clear, else None."""
        header = _COLONS.sub(":", header)
        joined = _SPACES.sub("", header.strip())
        if joined != header.strip() and not any(form.fullmatch(joined) for form in (_CANONICAL, _COLON, _NESTED)):
            return joined if joined in self.by_name else None
        header = joined
        if not header:
            return None
        if self.by_name:
            for candidate in _candidates(header):
                if candidate in self.by_name:
                    return candidate
            if (alike := self._alike(header)) is not None:
                return alike
        return _clear_name(header)

    def _alike(self, text: str) -> str | None:
        """The only declared name that is the same without case and punctuation, with a prefix or index or without."""
        for candidate in _candidates(text):
            names = self._folded.get(_fold(candidate), ())
            if len(names) == 1:
                return names[0]
        return None

    @cached_property
    def _folded(self) -> dict[str, list[str]]:
        folded: dict[str, list[str]] = {}
        for name in self.by_name:
            folded.setdefault(_fold(name), []).append(name)
        return folded

    @cached_property
    def _at_end(self) -> re.Pattern[str] | None:
        """A declared name at the end of a line, exact or alike, the longest first; with a prefix and an index."""
        names = sorted((name for name in self.by_name if _fold(name)), key=len, reverse=True)
        if not names:
            return None
        exact = "|".join(map(re.escape, names))
        alike = "|".join(r"[\W_]{0,2}".join(re.findall(r"[^\W_]+", name)) for name in names)
        index = r"[ \t]*[:\uff1a._]?[ \t]*[0-9]{0,9}\s*\Z"
        return re.compile(rf"(?<![A-Za-z0-9_$])(?:functions?[.:_ \t]*)?(?P<name>{exact}|(?i:{alike})){index}")

    def name_before(self, line: str) -> tuple[str | None, str] | None:
        """The name and the id at the end of a line, before arguments whose markers are missing; None if there is none.

        Without a name, the id is one that carries none, or the line is empty: the arguments may show whose they are.

        >>> declared = DeclaredTools([Tool("list_dir"), Tool("list_dir2")])
        >>> declared.name_before("I look. functionslist_dir21"), declared.name_before("3")
        (('list_dir2', 'functionslist_dir21'), (None, '3'))
        """
        found = self._at_end.search(line) if self._at_end is not None else None
        if found is not None:
            name = found["name"]
            known = [name] if name in self.by_name else self._folded.get(_fold(name), [])
            if len(known) == 1:
                return known[0], found.group().strip()
        if not line.strip():
            return None, ""
        found = _ID_AT_END.search(line)
        if found is None:
            return None
        name = found["name"]
        return (None if name is None or _NO_NAME.fullmatch(name) else name), found.group().strip()

    def needs_arguments(self, name: str) -> bool:
        """Whether a tool cannot be called without arguments; of one that is not declared, nobody knows."""
        tool = self.by_name.get(name)
        if tool is None:
            return True
        required = (tool.parameters or {}).get("required")
        return isinstance(required, list) and bool(required)

    def fix(self, name: str) -> str:
        """A native name that was not declared, but is a declared one in disguise (`functions.read_file`)."""
        if not self.by_name or name in self.by_name:
            return name
        found = next((candidate for candidate in _candidates(name.strip()) if candidate in self.by_name), None)
        return found or self._alike(name.strip()) or name

    def fitting(self, arguments: Any) -> str | None:
        """The only declared tool that can be called with these arguments, else the only one that they may belong to.

        The first has every required key, the second at least one; neither has an unknown one. Agents offer several
        tools for files: `{"file_path": …}` alone reads one, since writing and editing need more.
        """
        if not isinstance(arguments, dict):
            return None
        fits = [tool for tool in self.by_name.values() if _fits(tool, arguments)]
        fits = [tool for tool in fits if _is_enough(tool, arguments)] or fits
        return fits[0].name if len(fits) == 1 else None

    def beside(self, text: str) -> NamedArguments | None:
        """`{"name": "get_weather", "city": "Paris"}` -> the two, if that tool is declared and takes no `name` itself.

        >>> declared = DeclaredTools([Tool("get_weather", None, {"properties": {"city": {}}})])
        >>> declared.beside('{"name": "get_weather", "city": 1}')
        NamedArguments(name='get_weather', arguments='{"city": 1}')
        """
        try:
            given = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
            name = self.fix(msgspec.json.decode(given.pop("name"), type=str))
        except (msgspec.MsgspecError, ValueError, RecursionError, KeyError):
            return None
        properties = (self.by_name[name].parameters or {}).get("properties") if name in self.by_name else None
        if not isinstance(properties, dict) or "name" in properties:
            return None
        first = _NAME_FIRST.match(text)
        if first is not None and given:
            return NamedArguments(name, "{" + text[first.end() :])
        members = (f"{msgspec.json.encode(key).decode()}: {bytes(raw).decode()}" for key, raw in given.items())
        return NamedArguments(name, "{" + ", ".join(members) + "}")


def _candidates(header: str) -> Iterator[str]:
    """Names that the text may stand for, the most literal first."""
    seen = set()
    for body in _strip_indexes(header):
        stripped = _PREFIX.sub("", body, count=1) if _PREFIX.match(body) else body
        for start in (body, stripped):
            for suffix in _dotted_suffixes(start):
                if suffix and suffix not in seen:
                    seen.add(suffix)
                    yield suffix


def _strip_indexes(header: str) -> Iterator[str]:
    yield header
    head, colon, _ = header.rpartition(":")
    if colon:
        yield head
        yield _INDEX.sub("", head)
    elif digits := _GLUED_INDEX.search(header):
        # Where a name ends in digits itself, the start of the index is not known: the longest name comes first.
        yield from (header[:end] for end in range(len(header) - 1, digits.start(), -1))
    yield _INDEX.sub("", header)


def _dotted_suffixes(name: str) -> Iterator[str]:
    """`api.tools.search`, then `tools.search`, then `search`: a host may put a group before the name."""
    yield name
    while "." in name:
        name = name.partition(".")[2]
        yield name


def _clear_name(header: str) -> str | None:
    if nested := _NESTED.fullmatch(header):
        return None if _NO_NAME.fullmatch(nested["name"]) else nested["name"]
    found = _CANONICAL.fullmatch(header)
    if found is None:
        if _GLUED.fullmatch(header) is None and _NO_NAME.fullmatch(header):
            return None
        found = (
            _COLON.fullmatch(header)
            or _GLUED.fullmatch(header)
            or _COUNTED.fullmatch(header)
            or _BARE.fullmatch(header)
        )
    name = found.group("name") if found else None
    if not name or name.endswith(".") or _NO_NAME.fullmatch(name) or not _BARE.fullmatch(name):
        return None
    return name


def _fits(tool: Tool, arguments: dict[str, Any]) -> bool:
    schema = tool.parameters or {}
    properties, required = schema.get("properties"), schema.get("required", [])
    if not isinstance(properties, dict) or not isinstance(required, list) or not arguments:
        return False
    known = not required or any(key in arguments for key in required if isinstance(key, str))
    return known and arguments.keys() <= properties.keys()


def _is_enough(tool: Tool, arguments: dict[str, Any]) -> bool:
    """Whether every required key is there."""
    required = (tool.parameters or {}).get("required", [])
    return bool(required) and all(key in arguments for key in required if isinstance(key, str))


def _fold(name: str) -> str:
    return _PUNCTUATION.sub("", name).lower()


class NamedArguments(msgspec.Struct, frozen=True):
    """A call that wrote its own name into its arguments."""

    name: str
    arguments: str


class _Wrapper(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    arguments: msgspec.Raw
    id: msgspec.Raw = msgspec.Raw(b"")
    type: msgspec.Raw = msgspec.Raw(b"")


def unwrap(text: str) -> NamedArguments | None:
    """`{"name": …, "arguments": …}` -> the two, the arguments as they were written."""
    try:
        wrapper = msgspec.json.decode(text, type=_Wrapper)
        inner = bytes(wrapper.arguments).strip()
        arguments = msgspec.json.decode(inner, type=str) if inner.startswith(b'"') else inner.decode()
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    return NamedArguments(wrapper.name, arguments) if wrapper.name else None
