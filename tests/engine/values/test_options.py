"""Options: every one of them, its default, its names, and what an error says."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from moonshim.engine.values.options import KimiOptions, ToolTokens
from moonshim.errors import InvalidInput, InvalidOption, MoonshimError

# The table of the transformer's first description, word for word.
DOCUMENTED: dict[str, Any] = {
    "toolChoiceDefault": "auto",
    "acceptRoleTool": True,
    "enforceFinishReasonLoop": True,
    "manualToolParsing": False,
    "emitToolCallsInJson": False,
    "assembleToolDeltas": False,
    "idNormalization": False,
    "repairOnMismatch": True,
    "idPrefix": "functions",
    "counterScope": "conversation",
}
TOKENS: dict[str, str] = {
    "sectionBegin": "<|tool_calls_section_begin|>",
    "sectionEnd": "<|tool_calls_section_end|>",
    "callBegin": "<|tool_call_begin|>",
    "callEnd": "<|tool_call_end|>",
    "argBegin": "<|tool_call_argument_begin|>",
}
BEYOND: dict[str, Any] = {
    "toolCallStreaming": "incremental",
    "bufferLimit": 1024 * 1024,
    "toolTokens": TOKENS,
    "repairArguments": "off",
    "idPolicy": "k2",
    "repairDeltas": False,
}
# for each option, another value that it can take
OTHER: dict[str, Any] = {
    "toolChoiceDefault": "required",
    "acceptRoleTool": False,
    "enforceFinishReasonLoop": False,
    "manualToolParsing": True,
    "emitToolCallsInJson": True,
    "assembleToolDeltas": True,
    "idNormalization": True,
    "repairOnMismatch": False,
    "idPrefix": "fn",
    "counterScope": "turn",
    "toolCallStreaming": "assembled",
    "bufferLimit": 4096,
    "repairArguments": "schema",
    "idPolicy": "unique",
    "repairDeltas": True,
}


def as_json(options: KimiOptions) -> dict[str, Any]:
    values = msgspec.to_builtins(options)
    assert isinstance(values, dict)
    return values


def snake(name: str) -> str:
    return "".join("_" + letter.lower() if letter.isupper() else letter for letter in name)


def test_every_option_has_exactly_its_documented_default() -> None:
    assert as_json(KimiOptions()) == DOCUMENTED | BEYOND


def test_mending_switches_on_all_that_puts_replies_right_and_nothing_else() -> None:
    changed = {"manualToolParsing": True, "repairArguments": "schema", "repairDeltas": True}
    assert as_json(KimiOptions.mending()) == DOCUMENTED | BEYOND | changed


def test_mending_takes_changes() -> None:
    options = KimiOptions.mending(id_policy="keep", repair_arguments="safe")
    assert (options.id_policy, options.repair_arguments, options.manual_tool_parsing) == ("keep", "safe", True)


@pytest.mark.parametrize("name", OTHER)
def test_an_option_is_known_by_its_camel_case_and_its_snake_case_name(name: str) -> None:
    camel = KimiOptions.from_json({name: OTHER[name]})
    assert as_json(camel) == DOCUMENTED | BEYOND | {name: OTHER[name]}
    assert KimiOptions.from_json({snake(name): OTHER[name]}) == camel
    assert getattr(camel, snake(name)) == OTHER[name]


def test_options_from_json_lie_on_top_of_a_preset() -> None:
    options = KimiOptions.from_json({"idPrefix": "fn"}, preset=KimiOptions.mending())
    assert options == KimiOptions.mending(id_prefix="fn")
    assert KimiOptions.from_json({}, preset=KimiOptions.mending()) == KimiOptions.mending()
    assert KimiOptions.from_json({}) == KimiOptions()


def test_options_are_values() -> None:
    options = KimiOptions()
    with pytest.raises(AttributeError):
        options.id_prefix = "fn"  # type: ignore[misc]
    assert options == KimiOptions()


@pytest.mark.parametrize("key", ["callEnd", "call_end"])
def test_markers_that_are_not_named_keep_their_text(key: str) -> None:
    options = KimiOptions.from_json({"toolTokens": {key: "~~"}})
    assert options.tool_tokens == ToolTokens(call_end="~~")
    assert as_json(options)["toolTokens"] == TOKENS | {"callEnd": "~~"}


def test_markers_merge_with_those_of_the_preset() -> None:
    preset = KimiOptions(tool_tokens=ToolTokens(call_begin="[["))
    options = KimiOptions.from_json({"tool_tokens": {"callEnd": "]]"}}, preset=preset)
    assert options.tool_tokens == ToolTokens(call_begin="[[", call_end="]]")


# what was given, the field that the error names, words that its message has
BAD: dict[str, tuple[dict[str, Any], str, tuple[str, ...]]] = {
    "a name misspelled in camel case": ({"idPrefx": "a"}, "idPrefx", ("'idPrefx'", "'idPrefix'")),
    "a name misspelled in snake case": ({"manual_tool_parsin": True}, "manual_tool_parsin", ("'manual_tool_parsing'",)),
    "a name like none": ({"zzz": 1}, "zzz", ("'zzz'", "idPrefix", "counterScope", "toolTokens")),
    "a value of another type": ({"manualToolParsing": "yes"}, "manualToolParsing", ("manualToolParsing", "bool")),
    "a value of another type under its snake name": ({"id_prefix": 7}, "idPrefix", ("idPrefix", "str")),
    "a word that is no choice": ({"counterScope": "world"}, "counterScope", ("counterScope", "'world'")),
    "a policy that does not exist": ({"idPolicy": "k9"}, "idPolicy", ("idPolicy", "'k9'")),
    "a limit too small to work with": ({"bufferLimit": 10}, "bufferLimit", ("bufferLimit", "1024")),
    "a limit that is no number": (
        {"bufferLimit": "1M"},
        "bufferLimit",
        ("bufferLimit: expected an integer, got a string",),
    ),
    "markers that are no object": ({"toolTokens": "<|x|>"}, "toolTokens", ("toolTokens",)),
    "an empty marker": (
        {"toolTokens": {"callEnd": ""}},
        "toolTokens.callEnd",
        ("callEnd: expected a string that is not empty",),
    ),
    "a marker that is no text": (
        {"toolTokens": {"callEnd": 1}},
        "toolTokens.callEnd",
        ("callEnd: expected a string, got an integer",),
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_an_error_names_the_field_and_says_what_would_be_right(case: str) -> None:
    values, field, words = BAD[case]
    with pytest.raises(InvalidOption) as caught:
        KimiOptions.from_json(values)
    assert caught.value.field == field
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("counter_scope", "world"),
        ("tool_call_streaming", "slow"),
        ("repair_arguments", "always"),
        ("id_policy", None),
        ("manual_tool_parsing", "yes"),
        ("repair_deltas", 1),
        ("buffer_limit", 10),
        ("buffer_limit", "1M"),
        ("id_prefix", ""),
        ("id_prefix", 7),
        ("tool_tokens", {"call_end": ""}),
        ("tool_tokens", {"call_start": "x"}),
        ("tool_tokens", {"call_begin": "~~", "call_end": "~~"}),
        ("tool_tokens", {"section_begin": "<|tool_call_begin|>"}),
    ],
)
@pytest.mark.parametrize("make", [KimiOptions, KimiOptions.mending])
def test_options_are_checked_when_they_are_made(make: Any, name: str, value: Any) -> None:
    with pytest.raises(InvalidOption) as caught:
        make(**{name: value})
    assert caught.value.field == name
    assert name in str(caught.value)


@pytest.mark.parametrize("tokens", [{"call_end": "~~"}, {"callEnd": "~~"}])
def test_markers_may_be_a_plain_dict(tokens: Any) -> None:
    assert KimiOptions(tool_tokens=tokens) == KimiOptions(tool_tokens=ToolTokens(call_end="~~"))


def test_an_unknown_marker_is_an_error_that_names_it() -> None:
    with pytest.raises(InvalidOption, match="callStart") as caught:
        KimiOptions.from_json({"toolTokens": {"callStart": "x"}})
    assert (caught.value.field or "").startswith("toolTokens")


def test_a_bad_option_is_bad_input_and_not_worth_a_second_try() -> None:
    error = InvalidOption("bad option", field="idPrefix")
    assert isinstance(error, (InvalidInput, MoonshimError, ValueError))
    assert (error.code, error.status, error.retryable) == ("invalid_option", 400, False)


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({}, "k2_repair"),
        ({"repairOnMismatch": False}, "keep"),
        ({"idPolicy": "unique"}, "unique"),
        ({"idPolicy": "unique", "repairOnMismatch": False}, "keep"),
        ({"idNormalization": True}, "k2"),
        ({"idNormalization": True, "idPolicy": "keep", "repairOnMismatch": False}, "k2"),
    ],
    ids=str,
)
def test_the_options_for_ids_are_one_rule(options: dict[str, Any], rule: str) -> None:
    assert KimiOptions.from_json(options).id_rule == rule
