"""Declared tools -> tools that the host accepts, in the same order, and a map back to the client's tools."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from moonshim.engine.dialects.anthropic.extras import DIALECT as MESSAGES
from moonshim.engine.dialects.anthropic.extras import definition_of, is_typed
from moonshim.engine.dialects.openai_chat.extras import DIALECT as CHAT
from moonshim.engine.dialects.openai_responses.extras import is_loaded
from moonshim.engine.dialects.registry import CLIENT_DIALECTS, dialect_named
from moonshim.engine.formats.free_text import FREE_TEXT_SCHEMA
from moonshim.engine.hosts.profile import HostProfile
from moonshim.engine.request.schema.flavour import moonshot_schema
from moonshim.engine.request.tools.tool_names import ToolNames
from moonshim.engine.values.conversation import Change, SearchSettings, Tool, ToolChoice
from moonshim.engine.web_search import (
    SEARCH_DESCRIPTION,
    SEARCH_SCHEMA,
    SearchAccess,
    SearchRunner,
    SearchTool,
)
from moonshim.errors import CannotExpress, InvalidInput

__all__ = ["ToolAdapter"]

_SEARCHES: Final = ("web_search", "$web_search")


class ToolAdapter:
    """Adapts every tool that a request declares.

    `names` maps a client's tool name to the host's, `by_name` maps a host's name to the client's tool. The result for
    a tool depends only on tools declared with it, which are the same in every turn, and on tools declared before it.
    """

    def __init__(self, profile: HostProfile, changes: list[Change], search_access: SearchAccess | None = None) -> None:
        """`search_access`: who runs a web search that the host does not; None: nobody answers a search."""
        self.names = ToolNames(profile.tool_name_pattern, profile.tool_name_limit)
        self.by_name: dict[str, Tool] = {}
        self._profile = profile
        self._changes = changes
        self.declared: dict[str, Tool] = {}
        self._left_out: set[str] = set()
        self._search_access = search_access
        self.search: SearchTool | None = None
        """The web search that is answered in rounds."""

    def declare(self, tools: tuple[Tool, ...], where: str = "tools") -> tuple[Tool, ...]:
        """Return the tools as the host accepts them; the same tuple when nothing changes."""
        if self._search_access is not None:
            tools = _with_distinct_search(tools)
        for tool in tools:
            # Reserve names that the host accepts first, so that no rewritten name takes one, whatever the order.
            if not _is_server_tool(tool) and self.names.accepts(tool.name):
                self.names.resolve(tool.name)
        adapted = map(self._adapt, tools, _places(tools, where))
        out = tuple(tool for tool in adapted if tool is not None)
        limit = self._profile.tool_limit
        if limit is not None and len(self.by_name) > limit:
            raise InvalidInput(
                f"{len(self.by_name)} tools are declared, but {self._profile.host} accepts at most {limit}", field=where
            )
        return tools if len(out) == len(tools) and all(map(_same, out, tools)) else out

    def choose(self, choice: ToolChoice | None) -> ToolChoice | None:
        """The choice under the host's tool names. Raises `InvalidInput` for a tool that the host cannot run."""
        if choice is None:
            return None
        if choice.mode == "tool" and choice.name in self._left_out:
            raise InvalidInput(f"{self._profile.host} cannot run the tool {choice.name!r}", field="tool_choice")
        if self._left_out and not self.by_name:
            # Nothing is left to choose from, and hosts refuse a choice without tools.
            if choice.mode == "required":
                raise InvalidInput(
                    f"a tool call is required, but {self._profile.host} can run none of the tools", field="tool_choice"
                )
            return None
        name = None if choice.name is None else self.name_of(choice.name)
        allowed = choice.allowed
        if allowed is not None:
            allowed = tuple(self.name_of(tool) for tool in allowed if tool not in self._left_out)
        return (
            choice if (name, allowed) == (choice.name, choice.allowed) else replace(choice, name=name, allowed=allowed)
        )

    def name_of(self, name: str) -> str:
        """The host's name of a declared tool; any other string is returned unchanged."""
        return self.names.resolve(name) if name in self.declared else name

    def _adapt(self, tool: Tool, place: str) -> Tool | None:
        first = self.declared.setdefault(tool.name, tool)
        if first is not tool:
            if not _is_same_definition(first, tool):
                raise InvalidInput(f"tool {tool.name!r} is declared twice with different definitions", field=place)
            self._report("tool_merged", f"duplicate declaration of {tool.name} dropped", place)
            return None
        if _is_server_tool(tool):
            return self._adapt_search(tool, place)
        adapted = tool
        if tool.kind == "custom":
            adapted = replace(adapted, kind="function", parameters=tool.parameters or FREE_TEXT_SCHEMA, extras={})
            self._report("tool_custom", f"custom tool {tool.name} sent as a function with one string parameter", place)
        if self._is_typed(tool):
            adapted = replace(adapted, extras={})
            self._report("tool_typed", f"{tool.name} sent with its schema: only Anthropic knows it by its type", place)
        if tool.deferred:
            adapted = replace(adapted, deferred=False)
            self._report(
                "tool_deferred",
                f"deferred tool {tool.name} sent with the others: the host cannot search for tools",
                place,
            )
        adapted = self._adapt_schema(adapted, place)
        name = self.names.resolve(tool.name)
        if name != tool.name:
            adapted = replace(adapted, name=name)
            self._report("tool_name", f"{tool.name!r} renamed to {name!r}, a name that the host accepts", place)
        self.by_name[name] = tool
        return adapted

    def _is_typed(self, tool: Tool) -> bool:
        """Whether Messages would declare it by a type that the host does not know."""
        return self._profile.dialect == MESSAGES and not self._profile.typed_tools and is_typed(tool)

    def _adapt_search(self, tool: Tool, place: str) -> Tool | None:
        """Adapt a tool that the host runs itself. Only web search is supported."""
        name = self._profile.web_search
        if tool.search is not None and not tool.search.is_live:
            self._left_out.add(tool.name)
            detail = f"hosted tool {tool.name} dropped: every search is live, and the client forbids access to the web"
            self._report("tool_left_out", detail, place)
            return None
        if tool.search is not None and (runner := self._runner(tool, name)) is not None:
            if self.search is not None:
                self._report("tool_merged", f"{tool.name} dropped: a web search is already declared", place)
                return None
            if runner != "host":
                return self._declare_search(tool, runner, tool.search, place)
            self.search = SearchTool(tool.name, name or "", runner, tool.search)
        if name is None or not tool.name.startswith(_SEARCHES):
            self._left_out.add(tool.name)
            self._report(
                "tool_left_out", f"hosted tool {tool.name} dropped: {self._profile.host} does not provide it", place
            )
            return None
        if name in self.by_name:
            self._report("tool_merged", f"{tool.name} dropped: the host's search is already declared", place)
            self.names.assign(tool.name, name)
            return None
        self.names.assign(tool.name, name)
        self.by_name[name] = tool
        if tool.name == name:
            return tool
        self._report("tool_search", f"{tool.name} sent as {name}, the host's own search", place)
        return Tool(name, kind="server")

    def _runner(self, tool: Tool, host_search: str | None) -> SearchRunner | None:
        """Who runs this search in rounds; None: there are none."""
        if self._search_access is None or self._search_access == "provider":
            return self._search_access
        if host_search is not None:
            return "host"
        # Messages has an error for a search that is unavailable. The other dialects have none, so the tool is dropped.
        return "none" if definition_of(tool) else None

    def _declare_search(self, tool: Tool, runner: SearchRunner, settings: SearchSettings, place: str) -> Tool:
        """The search as a function, whose calls never reach the client."""
        name = self.names.resolve(tool.name)
        self.by_name[name] = tool
        self.search = SearchTool(tool.name, name, runner, settings)
        self._report("tool_search", f"{tool.name} sent as the function {name}", place)
        return Tool(name, SEARCH_DESCRIPTION, SEARCH_SCHEMA)

    def _adapt_schema(self, tool: Tool, place: str) -> Tool:
        """The tool with its schema in the host's flavour."""
        if tool.parameters is None or self._profile.schema_flavour is None:
            return tool
        try:
            schema, details = moonshot_schema(tool.parameters, tool=tool.name, limit=self._profile.schema_limit)
        except CannotExpress as error:
            known = place.endswith("]")
            raise CannotExpress(str(error), field=f"{place}.{_schema_field(tool)}" if known else place) from None
        for detail in details:
            self._report("tool_schema", f"{tool.name}: {detail}", place)
        return replace(tool, parameters=schema) if details else tool

    def _report(self, rule: str, detail: str, place: str) -> None:
        self._changes.append(Change(rule, detail, place))


def _is_server_tool(tool: Tool) -> bool:
    """Whether the host would have to run it."""
    return tool.kind == "server" or tool.name.startswith("$")


def _with_distinct_search(tools: tuple[Tool, ...]) -> tuple[Tool, ...]:
    """A search under a name that no function has: the client never sees it."""
    names = {tool.name for tool in tools if tool.search is None}
    out = []
    for tool in tools:
        name, number = tool.name, 2
        while tool.search is not None and name in names:
            name, number = f"{tool.name}_{number}", number + 1
        out.append(tool if name == tool.name else replace(tool, name=name))
    return tools if all(map(_same, out, tools)) else tuple(out)


def _places(tools: tuple[Tool, ...], where: str) -> list[str]:
    """Path of each tool in the client's body; only the path of the list once positions are no longer known."""
    plain = next((number for number, tool in enumerate(tools) if not _is_entry(tool)), len(tools))
    return [f"{where}[{number}]" if number < plain else where for number in range(len(tools))]


def _is_entry(tool: Tool) -> bool:
    """Whether it is an entry of the client's list. In Responses a namespace holds several tools, and items load
    others."""
    return tool.namespace is None and not is_loaded(tool)


def _schema_field(tool: Tool) -> str:
    """Name of the schema field in the client's dialect. Tools declared in messages, and those without a dialect, use
    Chat's."""
    return dialect_named(next((name for name in CLIENT_DIALECTS if name in tool.extras), CHAT)).tool_schema_field


def _same(one: Tool, other: Tool) -> bool:
    return one is other


def _is_same_definition(one: Tool, other: Tool) -> bool:
    return (one.kind, one.description, one.parameters) == (other.kind, other.description, other.parameters)
