"""Moonshim: tool calling with Kimi models, made right.

The engine is pure: bytes or values in, bytes or values out, no input or output of its own.

    prepared = moonshim.prepare_request(body, dialect="anthropic", host="moonshot")
    mender = moonshim.Mender(plan=prepared.plan)
    for data in post(prepared.body):
        send(mender.feed(data))
    send(mender.flush())
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from moonshim.chunks import mend_chunks
    from moonshim.conversation import Change, Media, Message, Reasoning, Text, Tool, ToolCall, ToolResult
    from moonshim.errors import CannotExpress, InvalidInput, InvalidOption, MoonshimError, Problem, UnknownFormat
    from moonshim.events import Failed, Finished, Repaired
    from moonshim.formats import detect_tool_format, format_tools, is_kimi_model, parse_tools
    from moonshim.hosts.problems import read_problem
    from moonshim.ids import tool_id_strategy
    from moonshim.options import KimiOptions, ToolTokens
    from moonshim.pipeline import Mender
    from moonshim.plan import Plan
    from moonshim.prepare import Prepared, count_tokens, prepare_request, render_problem, translate_messages
    from moonshim.response import Mended, mend_response

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
    "Repaired",
    "Text",
    "Tool",
    "ToolCall",
    "ToolResult",
    "ToolTokens",
    "UnknownFormat",
    "count_tokens",
    "detect_tool_format",
    "format_tools",
    "is_kimi_model",
    "mend_chunks",
    "mend_response",
    "parse_tools",
    "prepare_request",
    "read_problem",
    "render_problem",
    "tool_id_strategy",
    "translate_messages",
]

_HOMES = {
    "CannotExpress": "errors",
    "Change": "conversation",
    "Failed": "events",
    "Finished": "events",
    "InvalidInput": "errors",
    "InvalidOption": "errors",
    "KimiOptions": "options",
    "Media": "conversation",
    "Mended": "response",
    "Mender": "pipeline",
    "Message": "conversation",
    "MoonshimError": "errors",
    "Plan": "plan",
    "Prepared": "prepare",
    "Problem": "errors",
    "Reasoning": "conversation",
    "Repaired": "events",
    "Text": "conversation",
    "Tool": "conversation",
    "ToolCall": "conversation",
    "ToolResult": "conversation",
    "ToolTokens": "options",
    "UnknownFormat": "errors",
    "count_tokens": "prepare",
    "detect_tool_format": "formats",
    "format_tools": "formats",
    "is_kimi_model": "formats",
    "mend_chunks": "chunks",
    "mend_response": "response",
    "parse_tools": "formats",
    "prepare_request": "prepare",
    "read_problem": "hosts.problems",
    "render_problem": "prepare",
    "tool_id_strategy": "ids",
    "translate_messages": "prepare",
}

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Load a name when it is first used: start-up time is part of the product."""
        from importlib import import_module

        if name == "__version__":
            return import_module("importlib.metadata").version(__name__)
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
