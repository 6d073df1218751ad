"""The rows of `other_formats.jsonl` that Moonshim does not meet: the cases of each family, under a reason."""

from __future__ import annotations

from typing import Final

__all__ = ["OTHER_FORMATS"]


def _cases(**families: str) -> tuple[str, ...]:
    """The names of rows, from the numbers of their cases."""
    return tuple(f"{family}/{case}" for family, cases in families.items() for case in cases.split())


OTHER_FORMATS: Final[dict[str, tuple[str, ...]]] = {
    "text_after_section": _cases(
        hermes="batch.2.c batch.8.b batch.8.c batch.8.d",
        qwen25="batch.2.c batch.8.b batch.8.c batch.8.d",
        deepseek_v3="batch.2.c batch.8.b batch.8.c batch.8.d",
        deepseek_v3_1="batch.2.c batch.8.b batch.8.c batch.8.d",
        llama3_json="batch.2.c batch.8.b batch.8.c batch.8.d",
        pythonic="batch.2.c batch.8.b batch.8.c",
        gemma4="batch.2.c batch.8.b batch.8.c batch.8.d",
        qwen3_coder="batch.2.c batch.8.b batch.8.c batch.8.d",
    ),
    "trimmed_at_times": _cases(
        hermes="batch.8.a",
        qwen25="batch.8.a",
        llama3_json="batch.8.a",
        pythonic="batch.8.a",
        gemma4="batch.5.g batch.8.a",
    ),
    "text_in_section": _cases(
        deepseek_v3="batch.4.a",
        deepseek_v3_1="batch.4.a",
    ),
    "unreadable_call": _cases(
        hermes="batch.4.a batch.4.c",
        qwen25="batch.4.a batch.4.c",
        deepseek_v3="batch.4.c",
        deepseek_v3_1="batch.4.c",
        llama3_json="batch.4.a batch.4.c",
        gemma4="batch.4.a batch.4.c",
        qwen3_coder="batch.4.a batch.4.f",
    ),
    "stray_end": _cases(
        hermes="batch.5.b stream.4.c",
        qwen25="batch.5.b stream.4.c",
    ),
    "space_between_calls": _cases(
        qwen3_coder="stream.2",
    ),
    "end_marker_missing": _cases(
        hermes="batch.5.d",
        qwen25="batch.4.d batch.5.d stream.4.a",
        deepseek_v3="batch.5.a batch.5.d stream.4.a",
        deepseek_v3_1="batch.4.d batch.5.d",
        llama3_json="batch.5.a batch.5.d stream.4.a",
        gemma4="batch.4.d",
    ),
    "end_missing_text": _cases(
        pythonic="batch.4.d batch.5.a batch.5.d stream.4.a",
    ),
    "cut_off_call": _cases(
        hermes="batch.5.e",
        qwen25="batch.5.c batch.5.e stream.4.b",
        deepseek_v3="batch.5.c batch.5.e stream.4.b",
        deepseek_v3_1="batch.4.b batch.5.c batch.5.e stream.4.b",
        llama3_json="batch.4.b batch.5.c batch.5.e stream.4.b",
        gemma4="batch.5.c batch.5.e stream.4.b",
        qwen3_coder="batch.5.c batch.5.e stream.4.b",
    ),
    "cut_off_text": _cases(
        hermes="batch.5.c stream.4.b",
        llama3_json="batch.4.e",
        pythonic="batch.4.b batch.5.c batch.5.e stream.4.b",
    ),
    "cut_by_marker": _cases(
        qwen25="batch.4.b",
        deepseek_v3="batch.4.b",
        gemma4="batch.4.b",
    ),
    "one_reading": _cases(
        hermes="batch.7.c",
        qwen25="batch.7.c",
        deepseek_v3="batch.7.c",
        deepseek_v3_1="batch.7.c",
        llama3_json="batch.7.c",
        pythonic="batch.7.c",
        gemma4="batch.7.c",
    ),
    "no_arguments": _cases(
        deepseek_v3="batch.6.c",
        deepseek_v3_1="batch.6.c",
        llama3_json="batch.6.c",
        gemma4="batch.6.c",
    ),
    "no_arguments_text": _cases(
        hermes="batch.6.c",
        qwen25="batch.6.c",
    ),
    "fence_missing": _cases(
        deepseek_v3="batch.4.d",
    ),
    "space_in_brackets": _cases(
        pythonic="batch.6.b",
    ),
    "bare_object": _cases(
        llama3_json="stream.4.c",
    ),
    "bare_undeclared": _cases(
        pythonic="batch.13.a",
    ),
    "second_call_missed": _cases(
        llama3_json="stream.2",
        pythonic="batch.8.d",
    ),
}
