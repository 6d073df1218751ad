"""Moonshim: tool calling with Kimi models, made right.

The engine is pure: bytes or values in, bytes or values out, no input or output of its own.

    mender = moonshim.Mender(model="kimi-k2.5", tools=tools, history=messages)
    for data in response:
        send(mender.feed(data))
    send(mender.flush())
"""

from moonshim.chunks import mend_chunks
from moonshim.conversation import Media, Message, Reasoning, Text, Tool, ToolCall, ToolResult
from moonshim.errors import CannotExpress, InvalidInput, InvalidOption, MoonshimError, UnknownFormat
from moonshim.events import Failed, Finished, Repaired
from moonshim.formats import detect_tool_format, format_tools, is_kimi_model, parse_tools
from moonshim.ids import tool_id_strategy
from moonshim.options import KimiOptions, ToolTokens
from moonshim.pipeline import Mender
from moonshim.response import Mended, mend_response

__all__ = [
    "CannotExpress",
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
    "Reasoning",
    "Repaired",
    "Text",
    "Tool",
    "ToolCall",
    "ToolResult",
    "ToolTokens",
    "UnknownFormat",
    "detect_tool_format",
    "format_tools",
    "is_kimi_model",
    "mend_chunks",
    "mend_response",
    "parse_tools",
    "tool_id_strategy",
]
