"""`--set option=value` -> `KimiOptions`; and a description of the options."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any, Final, Literal, get_args, get_origin, get_type_hints

import msgspec

from moonshim.engine.values.options import KimiOptions
from moonshim.errors import InvalidOption

__all__ = ["EXPLAINED", "explain_options", "parse_settings"]

EXPLAINED: Final = {
    "tool_choice_default": "for requests; without effect on a recording",
    "accept_role_tool": "for requests; without effect on a recording",
    "enforce_finish_reason_loop": "make finish_reason `tool_calls` whenever there are complete calls",
    "manual_tool_parsing": "read the calls that were left as markers in the text",
    "emit_tool_calls_in_json": "reserved; without effect",
    "assemble_tool_deltas": "repeat the whole calls as `message.tool_calls` in the finish chunk",
    "id_normalization": "rewrite all identifiers of calls, right ones too",
    "repair_on_mismatch": "rewrite the identifiers that are not right",
    "id_prefix": "what identifiers begin with, before `.name:0`",
    "counter_scope": "where the next index follows from: the history, or this answer alone",
    "tool_call_streaming": "deliver a call as it arrives, or when it is whole",
    "buffer_limit": "characters that may be held back; over it they go out as they are",
    "tool_tokens": 'other markers, as JSON: {"callBegin": "<|call|>"}',
    "repair_arguments": "mend what has one possible meaning, or also use the schema of the tools",
    "id_policy": "`functions.name:n`, or a suffix for what repeats, or hands off",
    "repair_deltas": "mend native tool deltas, usage, and copies of reasoning",
}
"""A description of every option. A test compares this with the options that exist."""


def parse_settings(settings: Sequence[str]) -> KimiOptions:
    """Everything on, except for what was set. A later setting of the same option wins.

    >>> parse_settings(["idPolicy=keep", "buffer_limit=2048"]).id_policy
    'keep'
    """
    options = KimiOptions.mending()
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals:
            raise InvalidOption(f"--set {setting}: expected option=value (--set list shows the options)", field=name)
        try:
            options = KimiOptions.from_json({name.strip(): _value(text)}, preset=options)
        except InvalidOption as error:
            raise InvalidOption(f"--set {setting}: {error}", field=error.field) from None
    return options


def _value(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return text


def explain_options(width: int) -> str:
    """A line or two for each option: its name, its default, and what it means."""
    hints = get_type_hints(KimiOptions)
    preset = KimiOptions.mending()
    shown = {
        field.name: f"{field.encode_name}={_format_value(getattr(preset, field.name))}"
        for field in msgspec.structs.fields(KimiOptions)
    }
    column = max(map(len, shown.values())) + 4
    lines: list[str] = []
    for name, setting in shown.items():
        text = EXPLAINED[name] + _choices(hints[name])
        lines += textwrap.wrap(
            text,
            width,
            initial_indent=f"  {setting}".ljust(column),
            subsequent_indent=" " * column,
            break_on_hyphens=False,
        )
    return "\n".join(lines)


def _format_value(value: Any) -> str:
    if isinstance(value, msgspec.Struct):
        return "{…}"
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _choices(hint: Any) -> str:
    return f" ({', '.join(get_args(hint))})" if get_origin(hint) is Literal else ""
