"""The vectors of other projects that Moonshim does not meet, by name or number, each under a reason."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from msgspec import Struct

__all__ = ["KIMI", "REASONS", "SOURCE_DOCUMENTS", "Kind", "Reason"]

Kind: TypeAlias = Literal["decision", "source"]


class Reason(Struct, frozen=True):
    """Why a row differs. Only `fields` may differ; any other difference is a fault that the reason does not cover."""

    kind: Kind
    sentence: str
    fields: tuple[str, ...] = ("result",)
    broken_off: bool = False
    """Valid only if the reply reports that it was cut off, with an error or the finish reason `length`."""


def _decision(sentence: str, *fields: str, broken_off: bool = False) -> Reason:
    return Reason("decision", sentence, fields or ("result",), broken_off)


def _source(sentence: str, *fields: str) -> Reason:
    return Reason("source", sentence, fields or ("result",))


REASONS: Final[dict[str, Reason]] = {
    # text
    "text_after_section": _decision("Text after a section is preserved: no character is lost.", "content"),
    "text_in_section": _decision("Text inside a section is preserved, in its channel.", "content"),
    "unreadable_call": _decision(
        "Content between call markers that is not a valid call is preserved as text.", "content", "clean_text"
    ),
    "unfinished_marker": _decision("An incomplete marker is text.", "content", "reasoning"),
    "unknown_token": _decision("A token that the model does not have is text.", "clean_text", "clean"),
    "thought_is_reasoning": _decision(
        "Content between think tags is reasoning, closed or not, and is not replaced by a space.", "clean"
    ),
    "stray_end": _decision("An end marker without a call is removed and reported.", "content"),
    "space_between_calls": _decision("White space between two calls belongs to neither and is dropped.", "content"),
    "trimmed_at_times": _source(
        "The source trims white space in some cases and not in similar ones; Moonshim always preserves it.",
        "content",
    ),
    "known_leak": _source("The source marks this as its own leak: a stray think tag is not content.", "content"),
    "record_ends_early": _source(
        "The recording stops before the end of the input, where the source also releases what it held back.", "content"
    ),
    # calls
    "end_marker_missing": _decision(
        "A call with complete arguments is recovered, whichever of its end markers is missing.",
        "calls",
        "tool_calls",
        "clean_text",
    ),
    "cut_off_call": _decision(
        "A call that is cut off is delivered as far as it arrived, and the response ends with an error or `length`.",
        "calls",
        broken_off=True,
    ),
    "no_arguments": _decision("A declared tool name without an arguments marker is a call with `{}`.", "calls"),
    "end_missing_text": _decision(
        "A call with complete arguments is recovered, even where the source leaves all of it as text.",
        "calls",
        "content",
    ),
    "cut_off_text": _decision(
        "A call that is cut off is delivered as far as it arrived, and the response ends with an error, even where the "
        "source leaves all of it as text.",
        "calls",
        "content",
        broken_off=True,
    ),
    "cut_by_marker": _decision(
        "Arguments that a marker cuts short are delivered as they arrived and reported: nothing is invented.",
        "calls",
        "content",
    ),
    "no_arguments_text": _decision(
        "A declared tool name without arguments is a call with `{}`, even where the source leaves it as text.",
        "calls",
        "content",
    ),
    "one_reading": _decision(
        "A value that the declared schema rejects is repaired if exactly one interpretation of it is valid.", "calls"
    ),
    "made_json": _decision(
        "Arguments that are not JSON but have only one interpretation become JSON, so that clients can parse them.",
        "calls",
    ),
    "brackets_closed": _decision(
        "If an end marker shows that the arguments are complete, missing brackets are added where only one completion "
        "exists.",
        "calls",
    ),
    "fence_missing": _decision(
        "A name followed by an object is a call, with or without a fence around the object.", "calls"
    ),
    "space_in_brackets": _decision("White space between brackets makes no difference.", "calls", "content"),
    "bare_object": _decision(
        "An object at the start of the answer that names a declared tool is a call, even without the tag.",
        "calls",
        "content",
    ),
    "bare_undeclared": _decision(
        "Without markers, a list is a list of calls only if it starts with a declared tool.", "calls", "content"
    ),
    "second_call_missed": _source(
        "The source misses the second call here but finds it in a similar case.", "calls", "content"
    ),
    "empty_is_object": _decision("Empty arguments become `{}`, so that clients can parse them.", "steps"),
    "no_tools_wrappers": _decision(
        "If no tools are declared, K3's wrapper tags are still removed; the source leaves them for its second parser.",
        "content",
    ),
    "no_tools_channel": _decision(
        "If no tools are declared, call markers stay as text in their channel, and nothing moves to the other channel.",
        "content",
        "reasoning",
    ),
    "no_tools_markers": _decision(
        "With `tool_choice` `none`, call markers stay as text instead of being removed.", "content"
    ),
    # names and identifiers
    "group_is_name": _decision(
        "Only the prefix `functions.` is removed from a name; others stay, unless a declared tool shows otherwise.",
        "tool_calls",
        "names",
        "id_prefixes",
    ),
    "id_is_no_name": _decision(
        "An id such as `call_…` or `toolu_…` never becomes a name, so there is no call.",
        "calls",
        "names",
        "id_prefixes",
    ),
    "k2_identifiers": _decision("A call found in markers gets an id in the K2 format.", "id_prefixes"),
    "letters_stay": _decision("The case of a name is preserved, because tool names are case-sensitive."),
    "every_call_counts": _decision(
        "A call without an id is also counted: it needs an index that does not change.", "numbered"
    ),
    "stable_orphan": _decision(
        "The new id of an orphan is derived from its old one, so that repeated or reordered requests agree.",
        "response",
    ),
    "short_model_names": _decision("A generation followed by a version (`k2p5`) is a Kimi model."),
    # formats and history
    "override_refused": _decision(
        "An override with an unknown format is refused, and the error lists the valid formats."
    ),
    "definitions_stay": _decision(
        "Tool definitions are left unchanged: nothing is added or cleaned up.", "result", "parameters"
    ),
    "all_formats": _decision("All ten formats have tool definitions."),
    "empty_arguments": _decision("Arguments in the history remain unchanged strings, and empty ones are not an error."),
    # requests
    "half_a_call": _decision("A call in the history without a function name is repaired and reported."),
    "empty_output": _decision("A tool may return empty content: only missing content is an error.", "error", "ok"),
    "limits_are_the_clients": _decision(
        "The client decides how long a response may be and whether it streams.", "max_tokens", "force_stream"
    ),
    "thoughts_stay": _decision(
        "Reasoning that the model reads is sent back to it; clients that want less can remove it first.", "kept", "all"
    ),
    # streams
    "finish_is_told": _decision("A complete response without a finish reason gets `stop`.", "finish_reason"),
    "summary_in_finish": _decision(
        "The summary of assembled calls is in the host's finish chunk: another delta would double the arguments.",
        "synth_position",
    ),
    "no_end_is_an_error": _decision(
        "A stream that ends without a finish is an error, and has no summary of calls to run.",
        "synth_ids",
        "synth_position",
        "ideal_synth_ids",
    ),
    "every_field": _decision("Reasoning is read from every field that hosts use; no field can be disabled.", "thought"),
    # the command /toolformat
    "mistral_too": _decision(
        "`mistral` is a format everywhere, so the command lists and accepts it.", "listed", "messageType"
    ),
    "always_a_format": _decision("A model with an unknown name has the format `openai`.", "shown"),
    "any_case": _decision("The command accepts format names in upper and lower case.", "messageType"),
    "nothing_to_read": _decision("Showing the format reads nothing, so it cannot fail.", "messageType", "cause"),
    # the agent
    "canonical_ids": _decision(
        "The agent's calls have canonical ids, which each request converts to the host's format.", "yields"
    ),
    "no_empty_content": _decision(
        "A turn with only tool calls has no `content` field instead of an empty one.", "assistant"
    ),
    "unknown_fields": _decision(
        "Unknown fields of a message belong to the client and are sent unchanged.", "api_messages"
    ),
    "usage_ends": _decision(
        "Usage has the same field names for every host, and arrives with the finish reason in the last piece.", "yields"
    ),
    "own_words": _decision(
        "The result of a failed tool is Moonshim's own error message: the cause, and the available tools.",
        "tool_message_content",
        "tool_output",
    ),
}

_K2: Final = "kimi_k2/TOOLCALLING"
_K3_CALLS: Final = "test_kimi_k3_tool_parser/test_delegating_parser"
_K3_THINK: Final = "test_kimik3_reasoning_parser/test"
_BEFORE_CLOSE: Final = f"{_K3_THINK}_streaming_tools_channel_before_think_close"

KIMI: Final[dict[str, tuple[str, ...]]] = {
    "text_after_section": (
        f"{_K2}.batch.2.c",
        f"{_K2}.batch.8.b",
        f"{_K2}.batch.8.c",
        f"{_K2}.batch.8.d",
        "vllm-rust/parse_complete_extracts_raw_json_arguments",
    ),
    "text_in_section": (
        f"{_K2}.batch.4.a",
        "test_kimik3_structural_tag/test_auto_hook_does_not_swallow_parser_visible_closes",
    ),
    "unreadable_call": (f"{_K2}.batch.4.c",),
    "end_marker_missing": (f"{_K2}.batch.4.d", f"{_K2}.batch.5.d", f"{_K2}.stream.4.a"),
    "cut_off_call": (
        f"{_K2}.batch.5.c",
        f"{_K2}.batch.5.e",
        f"{_K2}.stream.4.b",
        "test_kimik3_detector/test_stream_end_reports_truncated_tools_section",
    ),
    "no_arguments": (f"{_K2}.batch.6.c",),
    "one_reading": (f"{_K2}.batch.7.c",),
    "made_json": ("vllm-rust/does_not_validate_or_normalize_arguments",),
    "brackets_closed": (f"{_K2}.batch.4.b",),
    "trimmed_at_times": (
        f"{_K2}.batch.5.g",
        "reasoning:kimi/REASONING.batch.6.a",
        "reasoning:kimi_k25/REASONING.batch.6.a",
    ),
    "known_leak": ("reasoning:kimi/REASONING.batch.4",),
    "record_ends_early": ("test_kimik3_detector/test_stream_end_releases_held_back_text",),
    "unfinished_marker": (
        "test_kimik3_detector/test_stream_end_drops_truncated_marker",
        f"{_K3_THINK}_non_stream_strips_partial_marker_suffixes[d2d57a]",
        f"{_K3_THINK}_non_stream_strips_partial_marker_suffixes[2f45b3]",
    ),
    "no_tools_wrappers": (
        f"{_K3_CALLS}_preserves_tool_calls_after_reasoning",
        f"{_K3_CALLS}_required_tool_choice_uses_xtml_parser",
        f"{_K3_CALLS}_auto_no_call_strips_consumed_response_prefix",
        f"{_K3_CALLS}_required_call_strips_consumed_response_prefix",
        f"{_K3_CALLS}_truncated_tools_do_not_leak_xtml",
    ),
    "no_tools_channel": (
        "reasoning:kimi_k25/REASONING.batch.3.b",
        f"{_K3_THINK}_non_stream_tools_channel_before_think_close_is_not_reasoning",
        *(f"{_BEFORE_CLOSE}[{size}]" for size in (1, 3, 7, 1000)),
    ),
    "no_tools_markers": (f"{_K3_CALLS}_tool_choice_none_strips_xtml_and_suppresses_calls",),
}


def _rows(*ids: int | range) -> tuple[str, ...]:
    return tuple(str(one) for given in ids for one in ([given] if isinstance(given, int) else given))


SOURCE_DOCUMENTS: Final[dict[str, tuple[str, ...]]] = {
    "short_model_names": _rows(15),
    "stable_orphan": _rows(23),
    "every_call_counts": _rows(26),
    "letters_stay": _rows(56),
    "override_refused": _rows(98, 99, 100),
    "definitions_stay": _rows(range(113, 118), 127),
    "all_formats": _rows(121, 122),
    "empty_arguments": _rows(126),
    "unreadable_call": _rows(138, 139, 147),
    "group_is_name": _rows(142, 173, 182, 184, 185),
    "end_marker_missing": _rows(148),
    "unknown_token": _rows(149, 235),
    "finish_is_told": _rows(154),
    "empty_is_object": _rows(165),
    "text_in_section": _rows(170, 186),
    "k2_identifiers": _rows(179, 183),
    "id_is_no_name": _rows(180, 181),
    "summary_in_finish": _rows(197),
    "no_end_is_an_error": _rows(200, 205),
    "every_field": _rows(228),
    "thought_is_reasoning": _rows(232, 233),
    "half_a_call": _rows(125),
    "limits_are_the_clients": _rows(221),
    "thoughts_stay": _rows(237, 238),
    "empty_output": _rows(265),
    "mistral_too": _rows(101, 107, 108),
    "always_a_format": _rows(103),
    "any_case": _rows(109),
    "nothing_to_read": _rows(111),
    "canonical_ids": _rows(239),
    "no_empty_content": _rows(240),
    "unknown_fields": _rows(241),
    "usage_ends": _rows(242),
    "own_words": _rows(243, 244),
}
