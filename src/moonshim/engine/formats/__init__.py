"""Tool formats: detection by model, and the definitions of tools in each."""

from moonshim.engine.formats.detect import (
    STRUCTURED_FORMATS,
    TEXT_FORMATS,
    TOOL_FORMATS,
    ToolFormat,
    check_format,
    detect_tool_format,
    is_kimi_model,
    kimi_generation,
    list_formats,
    without_window,
)
from moonshim.engine.formats.tools import format_tools, parse_tools

__all__ = [
    "STRUCTURED_FORMATS",
    "TEXT_FORMATS",
    "TOOL_FORMATS",
    "ToolFormat",
    "check_format",
    "detect_tool_format",
    "format_tools",
    "is_kimi_model",
    "kimi_generation",
    "list_formats",
    "parse_tools",
    "without_window",
]
