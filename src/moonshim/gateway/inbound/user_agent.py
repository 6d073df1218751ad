"""A User-Agent -> the name that people know the client by."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from moonshim.engine.hosts.errors.body import mask_secrets

__all__ = ["client_name"]

# The first match counts: agents also name the package that they are built on.
_NAMES: Final = (
    ("claude-cli", "claude-code"),
    ("claude-code", "claude-code"),
    ("codex", "codex"),
    ("opencode", "opencode"),
    ("kimi-code", "kimi-code"),
    ("kimicli", "kimi-code"),
    ("kimi-cli", "kimi-code"),
    ("qwencode", "qwen-code"),
    ("qwen-code", "qwen-code"),
    ("pydantic-ai", "pydantic-ai"),
    ("langchain", "langchain"),
    ("instructor", "instructor"),
    ("ai-sdk", "ai-sdk"),
    ("openai/python", "openai-python"),
    ("openai/js", "openai-js"),
    ("anthropic/python", "anthropic-python"),
    ("anthropic/js", "anthropic-js"),
    ("ai/", "ai-sdk"),
    ("curl", "curl"),
)
_WORD: Final = re.compile(r"[A-Za-z0-9_.-]{1,40}", re.ASCII)


@lru_cache(64)
def client_name(user_agent: str | None) -> str:
    """A short name without a version; for unknown agents, the first word.

    >>> client_name("claude-cli/2.1.325 (external, cli)"), client_name("OpenAI/Python 3.3.0"), client_name(None)
    ('claude-code', 'openai-python', 'unknown')
    >>> client_name("MyTool/1.0")
    'mytool'
    """
    agent = (user_agent or "").lower()
    for part, name in _NAMES:
        if part in agent:
            return name
    found = _WORD.match(mask_secrets(user_agent or "").lower())  # a misconfigured client may send its key
    return found[0] if found is not None else "unknown"
