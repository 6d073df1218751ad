"""Why a vector of another project is not met: each by its name or number, under a reason in our own words."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from msgspec import Struct

__all__ = ["KIMI", "REASONS", "SOURCE_DOCUMENTS", "Kind", "Reason"]

Kind: TypeAlias = Literal["decision", "source"]


class Reason(Struct, frozen=True):
    """`fields` is all that may differ under this reason: more than that is a fault that hides behind it."""

    kind: Kind
    sentence: str
    fields: tuple[str, ...] = ("result",)
    broken_off: bool = False
    """Holds only where the reply says that it broke off, by an error or by `length`."""


def _decision(sentence: str, *fields: str, broken_off: bool = False) -> Reason:
    return Reason("decision", sentence, fields or ("result",), broken_off)


def _source(sentence: str, *fields: str) -> Reason:
    return Reason("source", sentence, fields or ("result",))


REASONS: Final[dict[str, Reason]] = {
    # text
    "text_after_section": _decision("Text after a section is kept: no character is lost.", "content"),
    "text_in_section": _decision("Text inside a section is kept, in its channel.", "content"),
    "unreadable_call": _decision(
        "What stands between call markers and cannot be read as a call is kept as text.", "content", "clean_text"
    ),
    "unfinished_marker": _decision("The start of a marker that never ends is text.", "content", "reasoning"),
    "unknown_token": _decision("A token that the model does not have is text.", "clean_text", "clean"),
    "thought_is_reasoning": _decision(
        "What stands between think tags is reasoning, closed or not, and no space is put in its place.", "clean"
    ),
    "stray_end": _decision("The end of a call that never began is taken away, and that is told.", "content"),
    "space_between_calls": _decision("White space between two calls belongs to neither, and vanishes.", "content"),
    "trimmed_at_times": _source(
        "The source trims white space in some cases and keeps it in their neighbours; ours is always kept.",
        "content",
    ),
    "known_leak": _source("The source marks this as its own leak: an orphan think tag belongs to nobody.", "content"),
    "record_ends_early": _source(
        "The record stops before the end of the input, where the source, too, lets go of what it held back.", "content"
    ),
    # calls
    "end_marker_missing": _decision(
        "A call whose arguments are whole is recovered, whichever of its end markers is missing.",
        "calls",
        "tool_calls",
        "clean_text",
    ),
    "cut_off_call": _decision(
        "A call that breaks off is delivered as far as it came, and the answer then ends in an error or in `length`.",
        "calls",
        broken_off=True,
    ),
    "no_arguments": _decision("A declared name without an arguments marker is a call with `{}`.", "calls"),
    "end_missing_text": _decision(
        "A call whose arguments are whole is recovered, also where the source keeps all of it as text.",
        "calls",
        "content",
    ),
    "cut_off_text": _decision(
        "A call that breaks off is delivered as far as it came, and the answer then ends in an error, also where the "
        "source keeps all of it as text.",
        "calls",
        "content",
        broken_off=True,
    ),
    "cut_by_marker": _decision(
        "Arguments that a marker cuts short are delivered as they came, and that is told: nothing is made up.",
        "calls",
        "content",
    ),
    "no_arguments_text": _decision(
        "A declared name without arguments is a call with `{}`, also where the source keeps it as text.",
        "calls",
        "content",
    ),
    "one_reading": _decision(
        "A value that the declared schema rejects, and that has one reading which it accepts, is repaired.", "calls"
    ),
    "made_json": _decision(
        "Arguments that are not JSON, and have one reading, are rewritten as JSON: clients parse them.", "calls"
    ),
    "brackets_closed": _decision(
        "Arguments that the end marker of their call says are whole get the brackets that they lack, where only one "
        "completion exists.",
        "calls",
    ),
    "fence_missing": _decision("A name and an object are a call, with a fence around the object or without.", "calls"),
    "space_in_brackets": _decision("White space between brackets changes nothing.", "calls", "content"),
    "bare_object": _decision(
        "An object that begins the answer, and names a declared tool, is a call without the tag too.",
        "calls",
        "content",
    ),
    "bare_undeclared": _decision(
        "Without markers only a list that begins with a declared tool is a list of calls.", "calls", "content"
    ),
    "second_call_missed": _source(
        "The source misses the second call, and reads it in a neighbour.", "calls", "content"
    ),
    "empty_is_object": _decision("Empty arguments become `{}`: a client has to parse them.", "steps"),
    "no_tools_wrappers": _decision(
        "Where no tools are declared K3's wrappers are taken off all the same; the source keeps them for a second "
        "parser of its own.",
        "content",
    ),
    "no_tools_channel": _decision(
        "Where no tools are declared call markers are left as text in the channel where they stand, and nothing moves "
        "to the other.",
        "content",
        "reasoning",
    ),
    "no_tools_markers": _decision("With `tool_choice` none call markers are left as text, not taken out.", "content"),
    # names and identifiers
    "group_is_name": _decision(
        "Only `functions.` is no part of a name; another group is, unless a declared tool says otherwise.",
        "tool_calls",
        "names",
        "id_prefixes",
    ),
    "id_is_no_name": _decision(
        "An identifier such as `call_…` or `toolu_…` never becomes a name, so there is no call.",
        "calls",
        "names",
        "id_prefixes",
    ),
    "k2_identifiers": _decision("The identifier of a call found in markers gets the K2 form.", "id_prefixes"),
    "letters_stay": _decision("A name keeps its letters: tools are told apart by case."),
    "every_call_counts": _decision(
        "A call without an identifier counts too: it needs an index, and one that stays.", "numbered"
    ),
    "stable_orphan": _decision(
        "The identifier of an orphan follows from its own, so that asking twice, or in another order, changes nothing.",
        "response",
    ),
    "short_model_names": _decision("A generation with a version behind it (`k2p5`) is a Kimi model."),
    # formats and history
    "override_refused": _decision("An override that is no format is refused with the list of those that are."),
    "definitions_stay": _decision("Nothing is added to a definition and nothing is tidied.", "result", "parameters"),
    "all_formats": _decision("All ten formats have definitions."),
    "empty_arguments": _decision("Arguments in a history stay the text that they are, and empty ones are no error."),
    # requests
    "half_a_call": _decision("A call in the history that names no function is mended, and that is told."),
    "empty_output": _decision("A tool may have nothing to say: only missing content is an error.", "error", "ok"),
    "limits_are_the_clients": _decision(
        "How long an answer may get, and whether it streams, is the client's to say.", "max_tokens", "force_stream"
    ),
    "thoughts_stay": _decision(
        "Reasoning that the model reads goes back to it; whoever wants less of it strips it before.", "kept", "all"
    ),
    # streams
    "finish_is_told": _decision(
        "A whole answer that does not say why it ended is told to have stopped.", "finish_reason"
    ),
    "summary_in_finish": _decision(
        "The summary of assembled calls is in the host's own finish chunk: one more delta would double the arguments.",
        "synth_position",
    ),
    "no_end_is_an_error": _decision(
        "A stream that just ends is an error, and has no summary of calls to run.",
        "synth_ids",
        "synth_position",
        "ideal_synth_ids",
    ),
    "every_field": _decision("Reasoning is read from every field that hosts use; none can be switched off.", "thought"),
    # the command /toolformat
    "mistral_too": _decision(
        "`mistral` is a format everywhere, so the command lists and takes it.", "listed", "messageType"
    ),
    "always_a_format": _decision("A model of an unknown name has a format: `openai`.", "shown"),
    "any_case": _decision("The command takes names of formats in any case.", "messageType"),
    "nothing_to_read": _decision("Showing the format reads nothing that could fail.", "messageType", "cause"),
    # the agent
    "canonical_ids": _decision(
        "The agent's calls have canonical identifiers; each request has the host's own form of them.", "yields"
    ),
    "no_empty_content": _decision("A turn that only calls has no `content`, not an empty one.", "assistant"),
    "unknown_fields": _decision(
        "Fields that mean nothing on a message are the client's own, and are sent as they came.", "api_messages"
    ),
    "usage_ends": _decision(
        "Usage has the same names for every host, and comes with the finish reason in the last piece.", "yields"
    ),
    "own_words": _decision(
        "The result of a tool that failed is an error in our own words: the cause, and which tools there are.",
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
