"""The public types: requests, messages and their parts, the events of a response, transformers and their stages.

Import types from this module. The modules that define them may change; this list changes only with a major version.
"""

from typing import TYPE_CHECKING, Any

from moonshim.engine.stages import Stage, Transformer
from moonshim.engine.values.conversation import (
    Change,
    Media,
    Message,
    Part,
    Reasoning,
    Request,
    ResponseFormat,
    Role,
    Sampling,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolChoice,
    ToolResult,
    Usage,
)
from moonshim.engine.values.events import (
    BlockClosed,
    BlockDelta,
    BlockKind,
    BlockOpened,
    BlockSigned,
    Event,
    Failed,
    Finished,
    Opaque,
    Repaired,
    Started,
)
from moonshim.engine.values.options import KimiOptions, ToolTokens
from moonshim.errors import Problem, ProblemKind

if TYPE_CHECKING:
    from moonshim.engine.hosts.profile import HostProfile
    from moonshim.engine.plan import Plan
    from moonshim.engine.prepare import ParsedRequest, Prepared
    from moonshim.engine.reasoning_cache import CacheEntry, LostTurn
    from moonshim.engine.response.body import Mended

__all__ = [
    "BlockClosed",
    "BlockDelta",
    "BlockKind",
    "BlockOpened",
    "BlockSigned",
    "CacheEntry",
    "Change",
    "Event",
    "Failed",
    "Finished",
    "HostProfile",
    "KimiOptions",
    "LostTurn",
    "Media",
    "Mended",
    "Message",
    "Opaque",
    "ParsedRequest",
    "Part",
    "Plan",
    "Prepared",
    "Problem",
    "ProblemKind",
    "Reasoning",
    "Repaired",
    "Request",
    "ResponseFormat",
    "Role",
    "Sampling",
    "Stage",
    "Started",
    "Text",
    "Thinking",
    "Tool",
    "ToolCall",
    "ToolChoice",
    "ToolResult",
    "ToolTokens",
    "Transformer",
    "Usage",
]

_HOMES = {
    "CacheEntry": "engine.reasoning_cache",
    "HostProfile": "engine.hosts.profile",
    "LostTurn": "engine.reasoning_cache",
    "Mended": "engine.response.body",
    "ParsedRequest": "engine.prepare",
    "Plan": "engine.plan",
    "Prepared": "engine.prepare",
}
"""Types that belong to a part of the engine. They are imported on first use; the rest are plain values."""

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        from importlib import import_module

        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(f"moonshim.{_HOMES[name]}"), name)
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
