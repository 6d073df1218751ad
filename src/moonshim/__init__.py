"""Moonshim: reliable tool calling for Kimi models.

These functions and classes are the engine. It does no I/O: it takes bytes or values and returns bytes or values.

    prepared = moonshim.prepare_request(body, dialect="anthropic", host="moonshot")
    mender = moonshim.Mender(plan=prepared.plan)
    for data in post(prepared.body):
        send(mender.feed(data))
    send(mender.flush())
"""

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from moonshim.engine.dialects.openai_responses import resolve_references
    from moonshim.engine.formats import detect_tool_format, format_tools, is_kimi_model, parse_tools
    from moonshim.engine.hosts.detect import profile_for
    from moonshim.engine.hosts.errors.classify import read_problem
    from moonshim.engine.ids import tool_id_strategy
    from moonshim.engine.plan import Plan
    from moonshim.engine.prepare import (
        Prepared,
        count_tokens,
        prepare_request,
        read_request,
        render_problem,
        translate_messages,
    )
    from moonshim.engine.response.body import Mended, mend_response
    from moonshim.engine.response.chunks import mend_chunks
    from moonshim.engine.response.stream import Mender
    from moonshim.engine.stages import TransformerFailed
    from moonshim.engine.values.conversation import Change, Media, Message, Reasoning, Text, Tool, ToolCall, ToolResult
    from moonshim.engine.values.events import Failed, Finished, Repaired
    from moonshim.engine.values.options import KimiOptions, ToolTokens
    from moonshim.errors import (
        CannotExpress,
        InvalidInput,
        InvalidOption,
        MoonshimError,
        Problem,
        Refused,
        UnknownFormat,
        UpstreamBroke,
        UpstreamError,
        UpstreamStalled,
        UpstreamUnreachable,
    )

__all__ = [
    "CannotExpress",
    "Change",
    "Failed",
    "Finished",
    "InvalidInput",
    "InvalidOption",
    "KimiOptions",
    "Media",
    "Mended",
    "Mender",
    "Message",
    "MoonshimError",
    "Plan",
    "Prepared",
    "Problem",
    "Reasoning",
    "Refused",
    "Repaired",
    "Text",
    "Tool",
    "ToolCall",
    "ToolResult",
    "ToolTokens",
    "TransformerFailed",
    "UnknownFormat",
    "UpstreamBroke",
    "UpstreamError",
    "UpstreamStalled",
    "UpstreamUnreachable",
    "count_tokens",
    "detect_tool_format",
    "format_tools",
    "is_kimi_model",
    "mend_chunks",
    "mend_response",
    "parse_tools",
    "prepare_request",
    "profile_for",
    "read_problem",
    "read_request",
    "render_problem",
    "resolve_references",
    "tool_id_strategy",
    "translate_messages",
]

_HOMES = {
    "CannotExpress": "errors",
    "Change": "engine.values.conversation",
    "Failed": "engine.values.events",
    "Finished": "engine.values.events",
    "InvalidInput": "errors",
    "InvalidOption": "errors",
    "KimiOptions": "engine.values.options",
    "Media": "engine.values.conversation",
    "Mended": "engine.response.body",
    "Mender": "engine.response.stream",
    "Message": "engine.values.conversation",
    "MoonshimError": "errors",
    "Plan": "engine.plan",
    "Prepared": "engine.prepare",
    "Problem": "errors",
    "Reasoning": "engine.values.conversation",
    "Refused": "errors",
    "Repaired": "engine.values.events",
    "Text": "engine.values.conversation",
    "Tool": "engine.values.conversation",
    "ToolCall": "engine.values.conversation",
    "ToolResult": "engine.values.conversation",
    "ToolTokens": "engine.values.options",
    "TransformerFailed": "engine.stages",
    "UnknownFormat": "errors",
    "UpstreamBroke": "errors",
    "UpstreamError": "errors",
    "UpstreamStalled": "errors",
    "UpstreamUnreachable": "errors",
    "count_tokens": "engine.prepare",
    "detect_tool_format": "engine.formats",
    "format_tools": "engine.formats",
    "is_kimi_model": "engine.formats",
    "mend_chunks": "engine.response.chunks",
    "mend_response": "engine.response.body",
    "parse_tools": "engine.formats",
    "prepare_request": "engine.prepare",
    "profile_for": "engine.hosts.detect",
    "read_problem": "engine.hosts.errors.classify",
    "read_request": "engine.prepare",
    "render_problem": "engine.prepare",
    "resolve_references": "engine.dialects.openai_responses",
    "tool_id_strategy": "engine.ids",
    "translate_messages": "engine.prepare",
}

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Import a name on first use, to keep the start-up time short."""
        from importlib import import_module

        if name == "__version__":
            return import_module("importlib.metadata").version(__name__)
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})

    class _OldModules:
        """Finds modules under their names of version 0.1 (`moonshim.compat`)."""

        @staticmethod
        def find_spec(name: str, path: object = None, target: object = None) -> Any:
            if not name.startswith(f"{__name__}.") or name == f"{__name__}.compat":
                return None
            from moonshim.compat import find_old_module

            return find_old_module(name)

    sys.meta_path.append(_OldModules)
