"""Reads the name of a call from what stood in the identifier's place, and never invents one.

Kimi imitates the identifiers of its history, so many shapes arrive:
`functions.read_file:3`, `search:0`, `Bash_0`, `functions_get_weather_1`,
`functionsexec5`, `functions exec:0`, and some that carry no name at all.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
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
_NO_NAME: Final = re.compile(
    r"[0-9]+|call[_\-]?[0-9]+|call_.*|toolu_.*|tool_[0-9A-Za-z]{12,}|chatcmpl-tool-.*|fc_.*|hist_tool_.*"
    r"|(?=.*[0-9])[0-9a-f]{16,}|[0-9a-f]{8}-[0-9a-f\-]{20,}"
)


class DeclaredTools:
    """The tools that the request declared; `names` is None when they are not known."""

    __slots__ = ("_sorted", "by_name", "names")

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
        return _clear_name(header)

    def fix(self, name: str) -> str:
        """A native name that was not declared, but is a declared one in disguise (`functions.read_file`)."""
        if not self.by_name or name in self.by_name:
            return name
        return next((candidate for candidate in _candidates(name.strip()) if candidate in self.by_name), name)

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
    properties, required = schema.get("properties"), schema.get("required")
    if not isinstance(properties, dict) or not isinstance(required, list):
        return False
    return any(key in arguments for key in required if isinstance(key, str)) and arguments.keys() <= properties.keys()


def _is_enough(tool: Tool, arguments: dict[str, Any]) -> bool:
    """Whether every required key is there."""
    return all(key in arguments for key in (tool.parameters or {})["required"] if isinstance(key, str))


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
