"""Options of the `Kimi` transformer, with the defaults of its first specification, and presets."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, Final, Literal, Self, TypeAlias, TypedDict, Unpack, get_args, get_origin

import msgspec
from msgspec import Meta, Struct

from moonshim.engine.values.type_names import describe_type, name_types
from moonshim.errors import InvalidOption

__all__ = ["DEFAULT_BUFFER_LIMIT", "IdRule", "KimiOptions", "ToolTokens"]

DEFAULT_BUFFER_LIMIT: Final = 1024 * 1024
SMALLEST_BUFFER_LIMIT: Final = 1024

Token = Annotated[str, Meta(min_length=1)]
IdRule: TypeAlias = Literal["k2", "k2_repair", "unique", "keep"]


class ToolTokens(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The five markers of K2's tool call format, for models that use others."""

    section_begin: Token = "<|tool_calls_section_begin|>"
    section_end: Token = "<|tool_calls_section_end|>"
    call_begin: Token = "<|tool_call_begin|>"
    call_end: Token = "<|tool_call_end|>"
    arg_begin: Token = "<|tool_call_argument_begin|>"


class OptionChanges(TypedDict, total=False):
    """The fields of `KimiOptions`, for type checkers."""

    tool_choice_default: str
    accept_role_tool: bool
    enforce_finish_reason_loop: bool
    manual_tool_parsing: bool
    emit_tool_calls_in_json: bool
    assemble_tool_deltas: bool
    id_normalization: bool
    repair_on_mismatch: bool
    id_prefix: str
    counter_scope: Literal["conversation", "turn"]
    tool_call_streaming: Literal["incremental", "assembled"]
    buffer_limit: int
    tool_tokens: ToolTokens
    repair_arguments: Literal["off", "safe", "schema"]
    id_policy: Literal["k2", "unique", "keep"]
    repair_deltas: bool


class KimiOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """Which repairs to make. `KimiOptions()` fixes framing, ids and finish reasons; `mending()` repairs everything.

    In JSON the names are camelCase, as in existing configuration files. Raises `InvalidOption` for an invalid value.

    >>> KimiOptions().manual_tool_parsing, KimiOptions.mending().manual_tool_parsing
    (False, True)
    >>> KimiOptions.from_json({"idPrefix": "fn"}).id_prefix
    'fn'
    """

    tool_choice_default: str = "auto"
    """The `tool_choice` of a request that has tools but no `tool_choice`."""
    accept_role_tool: bool = True
    """Require `tool_call_id` and `content` in messages with role `tool`."""
    enforce_finish_reason_loop: bool = True
    """Set `finish_reason` to `tool_calls` whenever there are complete calls."""
    manual_tool_parsing: bool = False
    """Parse calls that the host left as markers in the text."""
    emit_tool_calls_in_json: bool = False
    """Reserved; accepted without effect."""
    assemble_tool_deltas: bool = False
    """Repeat complete calls as `message.tool_calls` in the finish chunk."""
    id_normalization: bool = False
    """Rewrite all tool call ids, including valid ones: see `id_rule`."""
    repair_on_mismatch: bool = True
    """Rewrite tool call ids that are not valid: see `id_rule`."""
    id_prefix: str = "functions"
    """The first part of generated tool call ids."""
    counter_scope: Literal["conversation", "turn"] = "conversation"
    """What the next index continues from: the whole history, or this response only."""

    tool_call_streaming: Literal["incremental", "assembled"] = "incremental"
    """Deliver a call as it arrives, or only once it is complete."""
    buffer_limit: Annotated[int, Meta(ge=SMALLEST_BUFFER_LIMIT)] = DEFAULT_BUFFER_LIMIT
    """Maximum number of characters held back for any one reason; above it they are sent as they are."""
    tool_tokens: ToolTokens = ToolTokens()
    """The markers of the tool call format."""
    repair_arguments: Literal["off", "safe", "schema"] = "off"
    """Leave arguments alone, repair unambiguous errors, or also use the declared schema."""
    id_policy: Literal["k2", "unique", "keep"] = "k2"
    """`functions.name:n`, a suffix for repeated ids, or no change."""
    repair_deltas: bool = False
    """Repair native tool call deltas (index, name, duplicates), usage, and duplicated reasoning."""

    @property
    def fails_lost_calls(self) -> bool:
        """Whether a response that lacks a call of the model ends in an error: with the repairs that look for one."""
        return self.manual_tool_parsing and self.repair_deltas

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            _check(name, getattr(self, name))
        if not isinstance(self.buffer_limit, int) or self.buffer_limit < SMALLEST_BUFFER_LIMIT:
            raise InvalidOption(
                f"buffer_limit must be an integer of at least {SMALLEST_BUFFER_LIMIT}", field="buffer_limit"
            )
        if not isinstance(self.id_prefix, str) or not self.id_prefix:
            raise InvalidOption("id_prefix must be a non-empty string", field="id_prefix")
        if not isinstance(self.tool_choice_default, str):
            raise InvalidOption("tool_choice_default must be a string", field="tool_choice_default")
        msgspec.structs.force_setattr(self, "tool_tokens", _check_tokens(self.tool_tokens))

    @property
    def id_rule(self) -> IdRule:
        """What the options for ids mean together, for the ids of a history and those of a response.

        `k2`: `prefix.name:n` for every call, in order; `k2_repair`: a valid and unique id of that form stays, others
        get the next free number; `unique`: a repeated id gets a suffix; `keep`: every id stays.

        >>> KimiOptions().id_rule, KimiOptions(id_normalization=True).id_rule, KimiOptions(id_policy="unique").id_rule
        ('k2_repair', 'k2', 'unique')
        """
        if self.id_normalization:
            return "k2"
        if not self.repair_on_mismatch:
            return "keep"
        return "k2_repair" if self.id_policy == "k2" else self.id_policy

    @classmethod
    def mending(cls, **changes: Unpack[OptionChanges]) -> Self:
        """Options with all repairs enabled, the default for a Kimi model. Keyword arguments change single options."""
        base: dict[str, Any] = {"manual_tool_parsing": True, "repair_arguments": "schema", "repair_deltas": True}
        return cls(**base | dict(changes))

    @classmethod
    def from_json(cls, values: Mapping[str, Any], *, preset: Self | None = None) -> Self:
        """Options from a JSON object with camelCase or snake_case names. Other options keep their value in `preset`.

        Raises `InvalidOption` for an unknown name or an invalid value.
        """
        if not isinstance(values, Mapping):
            raise InvalidOption(f"options: expected an object, got {describe_type(values)}", field="options")
        names = _wire_names()
        converted: dict[str, Any] = {}
        for key, value in values.items():
            wire = names.get(str(key))
            if wire is None:
                raise InvalidOption(f"unknown option {key!r} ({_nearest(str(key), names)})", field=str(key))
            _check(wire, value)
            converted[wire] = _camel_tokens(value) if wire == "toolTokens" else value
        base = msgspec.to_builtins(preset if preset is not None else cls())
        if isinstance(converted.get("toolTokens"), dict):
            converted["toolTokens"] = base["toolTokens"] | converted["toolTokens"]
        try:
            return msgspec.convert(base | converted, cls)
        except msgspec.ValidationError as error:
            raise InvalidOption(f"invalid option: {name_types(error)}", field=_field_of(str(error))) from None


@cache
def _choices() -> dict[str, tuple[str, ...] | type[bool]]:
    """The allowed strings of each option, or `bool`, under both of its names."""
    fields = msgspec.structs.fields(KimiOptions)
    limited = [field for field in fields if field.type is bool or get_origin(field.type) is Literal]
    return {
        name: bool if field.type is bool else get_args(field.type)
        for field in limited
        for name in (field.name, field.encode_name)
    }


def _check(name: str, value: object) -> None:
    """Raise if the value is not one that the option allows."""
    choices = _choices().get(name)
    if choices is bool and not isinstance(value, bool):
        raise InvalidOption(f"{name} must be a boolean, not {value!r}", field=name)
    if isinstance(choices, tuple) and value not in choices:
        raise InvalidOption(f"{name} must be one of {', '.join(choices)}, not {value!r}", field=name)


def _check_tokens(value: object) -> ToolTokens:
    """Checked markers; keys missing in a mapping keep their default."""
    if isinstance(value, ToolTokens) and value == _DEFAULT_TOKENS:
        return value
    values = msgspec.to_builtins(value) if isinstance(value, ToolTokens) else value
    try:
        tokens = msgspec.convert(_camel_tokens(values), ToolTokens)
    except msgspec.ValidationError as error:
        raise InvalidOption(f"invalid tool_tokens: {name_types(error)}", field="tool_tokens") from None
    names: dict[str, str] = {}
    for name in tokens.__struct_fields__:
        other = names.setdefault(getattr(tokens, name), name)
        if other != name:
            raise InvalidOption(f"tool_tokens {other} and {name} must differ", field="tool_tokens")
    return tokens


_DEFAULT_TOKENS: Final = ToolTokens()


@cache
def _wire_names() -> dict[str, str]:
    fields = msgspec.structs.fields(KimiOptions)
    return {field.name: field.encode_name for field in fields} | {f.encode_name: f.encode_name for f in fields}


def _camel_tokens(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    names = {field.name: field.encode_name for field in msgspec.structs.fields(ToolTokens)}
    return {names.get(key, key): text for key, text in value.items()}


def _nearest(key: str, names: Mapping[str, str]) -> str:
    import difflib

    alike = [name for name in names if ("_" in name) == ("_" in key)]
    close = difflib.get_close_matches(key, alike, n=1)
    return f"did you mean {close[0]!r}?" if close else "the options are " + ", ".join(sorted(set(names.values())))


def _field_of(message: str) -> str | None:
    _, _, path = message.partition("`$.")
    return path.partition("`")[0] or None
