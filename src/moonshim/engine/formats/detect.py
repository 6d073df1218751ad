"""A model name -> its tool format."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias, get_args

from moonshim.errors import UnknownFormat

__all__ = [
    "STRUCTURED_FORMATS",
    "TEXT_FORMATS",
    "TOOL_FORMATS",
    "ToolFormat",
    "check_format",
    "detect_tool_format",
    "is_kimi_model",
    "kimi_generation",
    "list_formats",
    "without_window",
]

ToolFormat: TypeAlias = Literal[
    "openai", "anthropic", "deepseek", "qwen", "kimi", "gemma", "mistral", "hermes", "xml", "llama"
]

TOOL_FORMATS: Final[tuple[ToolFormat, ...]] = get_args(ToolFormat)
TEXT_FORMATS: Final[tuple[ToolFormat, ...]] = ("hermes", "xml", "llama")
"""Formats whose tool definitions are part of the prompt and whose calls are plain text."""
STRUCTURED_FORMATS: Final[tuple[ToolFormat, ...]] = tuple(f for f in TOOL_FORMATS if f not in TEXT_FORMATS)

# A generation is a separate word (`mk2` and `k20` are other models), with or without a version: k2, k2.5, k2p5, k3.1.
# `kimik2` is recognized too.
_GENERATION: Final = re.compile(r"(?:(?<![^\W_])|(?<=kimi))(k[23])(?:[.p]\d+)*(?![^\W_])")

_WINDOW: Final = "[1m]"

# Lower-case substring of the name -> format; the first match decides. glm-5 and deepseek-chat are missing on purpose:
# their hosts speak plain OpenAI.
_RULES: Final[tuple[tuple[str, ToolFormat], ...]] = (
    ("mistral", "mistral"),
    ("devstral", "mistral"),
    ("codestral", "mistral"),
    ("ministral", "mistral"),
    ("magistral", "mistral"),
    ("mixtral", "mistral"),
    ("pixtral", "mistral"),
    ("voxtral", "mistral"),
    ("glm-4", "qwen"),
    ("qwen", "qwen"),
    ("deepseek-reasoner", "deepseek"),
)


def without_window(name: str) -> str:
    """The model's name without Claude Code's note about its context window, which is for the client alone.

    >>> without_window("kimi-k3[1m]"), without_window("kimi-k3")
    ('kimi-k3', 'kimi-k3')
    """
    return name[: -len(_WINDOW)] if name[-len(_WINDOW) :].lower() == _WINDOW else name


def is_kimi_model(model: str) -> bool:
    """Whether the name is that of a Kimi model: it contains `kimi`, or K2 or K3 as a word.

    >>> [is_kimi_model(m) for m in ("moonshotai/Kimi-K2-Thinking", "k2p5", "k3.1-pro", "kimi-for-coding")]
    [True, True, True, True]
    >>> [is_kimi_model(m) for m in ("gpt-4o", "mk2-model", "blackbox-k20", "moonshot-v1-8k")]
    [False, False, False, False]
    """
    name = model.lower()
    return "kimi" in name or _GENERATION.search(name) is not None


def kimi_generation(model: str) -> Literal["k2", "k3"] | None:
    """The Kimi generation, or None if the name does not contain it.

    >>> kimi_generation("kimi-k2.7-code"), kimi_generation("k3-256k"), kimi_generation("kimi-latest")
    ('k2', 'k3', None)
    """
    found = _GENERATION.search(model.lower())
    if found is None:
        return None
    return "k2" if found[1] == "k2" else "k3"


def detect_tool_format(
    model: str, *, override: str | None = None, overrides: Mapping[str, str] | None = None
) -> ToolFormat:
    """The tool format for a model: the override if set, otherwise detected from the name.

    `override` applies to any model, `overrides` by model name (case-insensitive); the first one that is set decides.
    `auto` means detection. Raises `UnknownFormat` for a format that does not exist.

    >>> detect_tool_format("qwen3-coder-plus"), detect_tool_format("Kimi-K2.5"), detect_tool_format("gpt-4o")
    ('qwen', 'kimi', 'openai')
    >>> detect_tool_format("my-finetune", overrides={"my-finetune": "kimi"})
    'kimi'
    >>> detect_tool_format("kimi-k2", override="auto")
    'kimi'
    """
    chosen = override if override is not None else _override_for(model, overrides)
    if chosen is not None and chosen != "auto":
        return check_format(chosen)
    if is_kimi_model(model):
        return "kimi"
    name = model.lower()
    return next((found for part, found in _RULES if part in name), "openai")


def _override_for(model: str, overrides: Mapping[str, str] | None) -> str | None:
    if not overrides:
        return None
    if model in overrides:
        return overrides[model]
    name = model.lower()
    return next((chosen for key, chosen in overrides.items() if key.lower() == name), None)


def check_format(name: Any) -> ToolFormat:
    """Return the name if it is a tool format, otherwise raise `UnknownFormat`, which lists them.

    >>> check_format("kimi")
    'kimi'
    """
    for known in TOOL_FORMATS:
        if name == known:
            return known
    shown = repr(name) if isinstance(name, str) else type(name).__name__
    raise UnknownFormat(f"Invalid tool format {shown}.\n{list_formats()}", field="format")


def list_formats() -> str:
    """The existing formats, for an error message.

    >>> print(list_formats())
    Supported formats:
      Structured: openai, anthropic, deepseek, qwen, kimi, gemma, mistral
      Text-based: hermes, xml, llama
    """
    return f"Supported formats:\n  Structured: {', '.join(STRUCTURED_FORMATS)}\n  Text-based: {', '.join(TEXT_FORMATS)}"
