"""Every client that there is a driver for."""

from __future__ import annotations

from typing import Final

from tests.clients.ai_sdk import AI_SDK
from tests.clients.ai_sdk_example import AI_SDK_EXAMPLE
from tests.clients.claude_code import CLAUDE_CODE
from tests.clients.client import Client
from tests.clients.codex import CODEX
from tests.clients.kimi_code import KIMI_CODE
from tests.clients.opencode import OPENCODE
from tests.clients.qwen_code import QWEN_CODE

__all__ = ["CLIENTS"]

CLIENTS: Final[tuple[Client, ...]] = (CLAUDE_CODE, CODEX, *KIMI_CODE, OPENCODE, QWEN_CODE, *AI_SDK, AI_SDK_EXAMPLE)
