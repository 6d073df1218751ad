"""`--set option=value` -> `KimiOptions`; and a description of the options."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any, Final, Literal, get_args, get_origin, get_type_hints

import msgspec

from moonshim.config.problems import nearest
from moonshim.engine.values.options import KimiOptions
from moonshim.errors import InvalidOption

__all__ = ["EXPLAINED", "explain_options", "parse_settings", "setting_names"]

EXPLAINED: Final = {
    "tool_choice_default": "only for requests; no effect on a recording",
    "accept_role_tool": "only for requests; no effect on a recording",
    "enforce_finish_reason_loop": "set finish_reason to `tool_calls` whenever there are complete calls",
    "manual_tool_parsing": "parse calls that leaked into the text as markers",
    "emit_tool_calls_in_json": "reserved; no effect",
    "assemble_tool_deltas": "repeat the complete calls as `message.tool_calls` in the last chunk",
    "id_normalization": "rewrite all call ids, including correct ones",
    "repair_on_mismatch": "rewrite incorrect call ids",
    "id_prefix": "start of every id, before `.name:0`",
    "counter_scope": "continue the numbering of the history, or start at 0 in this response",
    "tool_call_streaming": "deliver a call while it arrives, or when it is complete",
    "buffer_limit": "maximum characters to hold back; beyond it they are sent unchanged",
    "tool_tokens": 'other markers, as JSON: {"callBegin": "<|call|>"}',
    "repair_arguments": "fix only unambiguous errors, or also use the tool's schema",
    "id_policy": "ids as `functions.name:n`, or with a suffix for repeated ones, or unchanged",
    "repair_deltas": "repair native tool-call deltas, usage, and repeated reasoning",
}
"""A description of every option. A test compares this with the options that exist."""
_HIDDEN: Final = frozenset({"emit_tool_calls_in_json"})
"""Accepted, but not listed: it has no effect."""


def parse_settings(settings: Sequence[str]) -> KimiOptions:
    """All repairs on, with these settings applied in order.

    >>> parse_settings(["idPolicy=keep", "buffer_limit=2048"]).id_policy
    'keep'
    """
    options = KimiOptions.mending()
    known = [name for field in msgspec.structs.fields(KimiOptions) for name in (field.encode_name, field.name)]
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals:
            raise InvalidOption(f"--set {setting}: expected OPTION=VALUE (`--set list` lists the options)", field=name)
        if name.strip() not in known:
            hint = nearest(name.strip(), known) or " (`--set list` lists the options)"
            raise InvalidOption(f"--set {setting}: unknown option {name.strip()!r}{hint}", field=name.strip())
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
    """One or two lines for each option: name, default and meaning."""
    hints = get_type_hints(KimiOptions)
    preset = KimiOptions.mending()
    shown = {
        field.name: f"{field.encode_name}={_format_value(getattr(preset, field.name))}"
        for field in msgspec.structs.fields(KimiOptions)
        if field.name not in _HIDDEN
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


def setting_names() -> list[str]:
    """The settings to suggest for `--set`: `option=value` where the values are known, else `option=`.

    >>> [name for name in setting_names() if name.startswith(("idPolicy", "bufferLimit"))]
    ['bufferLimit=', 'idPolicy=k2', 'idPolicy=unique', 'idPolicy=keep']
    """
    hints = get_type_hints(KimiOptions)
    values = {
        field.encode_name: ("true", "false") if hints[field.name] is bool else _literals(hints[field.name])
        for field in msgspec.structs.fields(KimiOptions)
        if field.name not in _HIDDEN
    }
    return ["list", *(f"{name}={value}" for name, known in values.items() for value in known or ("",))]


def _format_value(value: Any) -> str:
    if isinstance(value, msgspec.Struct):
        return "{…}"
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _choices(hint: Any) -> str:
    return f" ({', '.join(_literals(hint))})" if _literals(hint) else ""


def _literals(hint: Any) -> tuple[str, ...]:
    return get_args(hint) if get_origin(hint) is Literal else ()
