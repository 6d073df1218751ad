"""Responses of K2 models -> what hosts send whose parser lets the markers of calls and reasoning through."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any, Final

from msgspec.structs import replace

from moonshim.simulator.fault import Fault, Speech
from moonshim.simulator.faults.leaking import (
    Write,
    add_leak,
    empty_list,
    empty_lists,
    leak,
    leak_half,
    raw_calls,
)
from moonshim.simulator.host.markers import (
    ARGUMENT_BEGIN,
    CALL_BEGIN,
    CALL_END,
    SECTION_BEGIN,
    SECTION_END,
    k2_call,
    k2_section,
)
from moonshim.simulator.host.slots import SLOTS, canonical
from moonshim.simulator.request import SimCall
from moonshim.simulator.response import HostResponse

__all__ = ["FAULTS"]

_WORD: Final = re.compile(r"\s*\S+\s*\Z|\s*\S+|\s+")
_SINGULAR: Final = ("<|tool_call_section_begin|>", "<|tool_call_section_end|>")
_MISSPELLED: Final = "<|tool_call_arguments_begin|>"


# --- section formats -------------------------------------------------------------------------------------------------


def _write_bare(calls: Sequence[SimCall]) -> str:
    return "".join(k2_call(call) for call in calls)


def _omit_section_end(calls: Sequence[SimCall]) -> str:
    return SECTION_BEGIN + _write_bare(calls)


def _omit_last_ends(calls: Sequence[SimCall]) -> str:
    """Neither the last call nor the section ends."""
    return _omit_section_end(calls).removesuffix(CALL_END)


def _omit_call_ends(calls: Sequence[SimCall]) -> str:
    return "".join(k2_call(call).removesuffix(CALL_END) for call in calls)


def _write_singular(calls: Sequence[SimCall]) -> str:
    return _SINGULAR[0] + _write_bare(calls) + _SINGULAR[1]


def _write_spaced(calls: Sequence[SimCall]) -> str:
    written = "\n".join(f"{CALL_BEGIN} {call.id} {ARGUMENT_BEGIN}\n{call.arguments}\n{CALL_END}" for call in calls)
    return f"\n{SECTION_BEGIN}\n{written}\n{SECTION_END}\n"


def _misspell_argument_begin(calls: Sequence[SimCall]) -> str:
    written = (f"{CALL_BEGIN}{call.id}{_MISSPELLED}{call.arguments}{CALL_END}" for call in calls)
    return SECTION_BEGIN + "".join(written) + SECTION_END


def _swallow_start(calls: Sequence[SimCall]) -> str:
    """vLLM's Rust parser takes the first markers before it reads the header; when it gives up, the rest is text."""
    return k2_section(calls).removeprefix(SECTION_BEGIN + CALL_BEGIN)


def _swallow_start_of_line(calls: Sequence[SimCall]) -> str:
    return "\n" + _swallow_start(calls)


def _with_arguments(change: Callable[[str], str], write: Write) -> Write:
    """The model writes the arguments of each call in another way."""
    return lambda calls: write([replace(call, arguments=change(call.arguments)) for call in calls])


def _write_sections(calls: Sequence[SimCall]) -> str:
    return "".join(k2_section([call]) for call in calls)


def _wrap_arguments(calls: Sequence[SimCall]) -> str:
    """The name is in the arguments, which are one level deeper."""
    return k2_section(
        replace(call, arguments=f'{{"name": {json.dumps(call.name)}, "arguments": {call.arguments or "{}"}}}')
        for call in calls
    )


def _write_name_in_arguments(calls: Sequence[SimCall]) -> str:
    """The name is in the arguments, beside the others; where one of them has that key already, the call is wrapped."""
    return SECTION_BEGIN + "".join(_with_name(call) for call in calls) + SECTION_END


def _with_name(call: SimCall) -> str:
    try:
        given = json.loads(call.arguments or "{}")
    except (ValueError, RecursionError):
        given = None
    if not isinstance(given, dict) or "name" in given:
        return _wrap_arguments([call]).removeprefix(SECTION_BEGIN).removesuffix(SECTION_END)
    rest = call.arguments.strip().removeprefix("{").lstrip() or "}"
    comma = "" if rest == "}" else ", "
    return k2_call(replace(call, arguments=f'{{"name": {json.dumps(call.name)}{comma}{rest}'))


# --- responses with text in or after the section ---------------------------------------------------------------------


def _text_after_section(answer: HostResponse) -> HostResponse:
    if not answer.calls:
        return answer
    return replace(add_leak(answer, ""), text=k2_section(raw_calls(answer)) + answer.text)


def _text_in_section(answer: HostResponse) -> HostResponse:
    """The text comes in pieces: before the section, in it before each call, and after it."""
    calls = raw_calls(answer)
    if not calls:
        return answer
    first, *inner, last = _pieces(answer.text, len(calls) + 2)
    section = "".join(piece + k2_call(call) for piece, call in zip(inner, calls, strict=True))
    return replace(add_leak(answer, ""), text=f"{first}{SECTION_BEGIN}{section}{SECTION_END}{last}")


def _pieces(text: str, count: int) -> list[str]:
    """Some words each: white space alone means nothing between markers.

    >>> _pieces("I look at it.", 3)
    ['I', ' look', ' at it.']
    """
    words = _WORD.findall(text)
    size = len(words) // count
    ends = [at * size for at in range(1, count)]
    return ["".join(words[first:last]) for first, last in zip([0, *ends], [*ends, None], strict=True)]


def _leak_all_to_reasoning(answer: HostResponse) -> HostResponse:
    """`</think>` never came: everything is reasoning."""
    if not answer.calls:
        return answer
    raw = answer.text + k2_section(raw_calls(answer))
    return replace(add_leak(answer, raw, into="reasoning"), text="")


def _cut_in_arguments(finish: str) -> Speech:
    """The last call stops in the middle of its arguments."""

    def speech(answer: HostResponse) -> HostResponse:
        calls = raw_calls(answer)
        if not calls:
            return answer
        partial = calls[-1].arguments[: len(calls[-1].arguments) // 2]
        raw = SECTION_BEGIN + _write_bare(calls[:-1]) + CALL_BEGIN + calls[-1].id + ARGUMENT_BEGIN + partial
        return add_leak(answer, raw, finish=finish)

    return speech


def _cut_in_id(finish: str) -> Speech:
    """The last call stops before its name is known."""

    def speech(answer: HostResponse) -> HostResponse:
        calls = raw_calls(answer)
        if not calls:
            return answer
        partial = calls[-1].id[: len(calls[-1].id) // 2]
        return add_leak(answer, SECTION_BEGIN + _write_bare(calls[:-1]) + CALL_BEGIN + partial, finish=finish)

    return speech


def _leave_of_last(write: Callable[[SimCall], str]) -> Speech:
    """Nothing is left of the calls but a part of the last one."""
    return lambda answer: add_leak(answer, write(raw_calls(answer)[-1])) if answer.calls else answer


# --- reasoning -------------------------------------------------------------------------------------------------------


def _leak_think_end(answer: HostResponse) -> HostResponse:
    return replace(answer, text="</think>" + answer.text) if answer.reasoning else answer


def _leak_think_tags(answer: HostResponse) -> HostResponse:
    if not answer.reasoning:
        return answer
    return replace(answer, text=f"<think>{answer.reasoning}</think>{answer.text}", reasoning="")


# --- the table ---------------------------------------------------------------------------------------------------


def _row(name: str, about: str, speech: Speech, seen: str = "", **more: Any) -> Fault:
    given = {"needs": "calls", "families": ("k2",), **more}
    return Fault(name=name, group="leaks", about=about, seen=seen, speech=speech, **given)


_SLOTTED: Final = {
    "number": ("a number", "sglang#23950, vllm#46127"),
    "call-number": ("`call00003`", "sglang#25362"),
    "call-hex": ("`call_` plus hex digits", "Kimi-K2-Instruct on Hugging Face, discussion 48"),
    "toolu": ("`toolu_` plus hex digits", ""),
    "no-name": ("a colon and a number", ""),
    "glued": ("`functionsexec5`", "sglang#21377"),
    "no-colon": ("`functions.exec5`", "sglang#21377"),
    "underscores": ("`functions_get_weather_1`", "exo#2281"),
    "dots": ("`functions.exec.5`", ""),
    "no-number": ("`functions.exec`", ""),
    "name-colon": ("`search:0`", "Moonshot's ids, sent to a self-hosted model"),
    "name-underscore": ("`Bash_0`", "K3's ids, sent to a self-hosted model"),
    "spaced-colon": ("`functions.search : 0`", ""),
    "wide-colon": ("`functions.search\uff1a0`, with a full-width colon", ""),
    "newline": ("a name with a line break in it", "vllm#38441"),
    "white-space": ("correct but surrounded by white space", "vllm#38441"),
}

_RUST: Final = "vLLM's Rust parser"
_SWALLOWED: Final[dict[str, tuple[str, Write, str]]] = {
    "no-number": ("the id has no number", _swallow_start, "no-number"),
    "dots": ("the id is `functions.exec.5`", _swallow_start, "dots"),
    "call-number": ("the id is `call00003`", _swallow_start_of_line, "call-number"),
    "spaced": (
        "white space comes before the arguments",
        _with_arguments(lambda given: f" \n{given}", _swallow_start),
        "",
    ),
    "listed": ("the arguments are in a list", _with_arguments(lambda given: f"[{given}]", _swallow_start), ""),
    "unclosed": (
        "the last brace of the arguments is missing",
        _with_arguments(lambda given: given.rstrip().removesuffix("}"), _swallow_start),
        "",
    ),
}
"""Why the parser gives up after it has taken the first markers; how the calls are written, and with which slot."""

FAULTS: Final[tuple[Fault, ...]] = (
    _row("markers-in-content", "Tool calls leak into `content` as raw markers", leak(k2_section)),
    _row(
        "markers-in-content-called",
        "Tool calls leak into `content`; the finish reason is `tool_calls`, but the list of calls is empty",
        leak(k2_section, finish="tool_calls"),
        "Kimi-K2-Instruct on Hugging Face, discussion 48",
        chunks=empty_lists,
        whole=empty_list,
    ),
    _row(
        "markers-in-reasoning",
        "Tool calls leak into the reasoning, which the model did not close before them",
        leak(k2_section, into="reasoning"),
        "Kimi-K2#89, vllm#32216",
    ),
    _row(
        "think-never-closed",
        "The reasoning is never closed, so the text and the tool calls end up in it",
        _leak_all_to_reasoning,
        "Kimi-K2#89",
    ),
    _row(
        "call-without-section",
        "Tool calls leak into `content` without the marker that opens a section",
        leak(_write_bare),
        "Kimi-K2#89, vllm#32216",
    ),
    _row(
        "call-without-section-in-reasoning",
        "Tool calls leak into the reasoning without the marker that opens a section",
        leak(_write_bare, into="reasoning"),
        "Kimi-K2#89, vllm#32216",
    ),
    _row(
        "section-without-end", "The leaked section in `content` has no end marker", leak(_omit_section_end), "llama.cpp"
    ),
    _row(
        "section-half",
        "The leaked section in `content` has no end marker, and neither does its last call",
        leak(_omit_last_ends),
        "llama.cpp",
    ),
    _row(
        "calls-without-ends",
        "Tool calls leak into the reasoning without a section, and none of them has an end marker",
        leak(_omit_call_ends, into="reasoning"),
        "llama.cpp",
    ),
    _row(
        "singular-section",
        "The leaked section starts with `<|tool_call_section_begin|>`: `tool_call` instead of `tool_calls`",
        leak(_write_singular),
        "llama.cpp#17376",
    ),
    _row("spaced-markers", "The leaked markers have spaces and line breaks between them", leak(_write_spaced)),
    _row("text-behind-markers", "The text comes after the leaked section", _text_after_section),
    _row(
        "text-among-markers",
        "Pieces of the text come before, inside and after the leaked section",
        _text_in_section,
        "vllm#28543",
    ),
    _row("two-sections", "Each leaked call is in a separate section", leak(_write_sections), "dynamo"),
    _row(
        "markers-and-native",
        "Each call arrives twice: as markers in `content`, and as a native tool call",
        leak(k2_section, finish="tool_calls", native=True),
    ),
    _row(
        "markers-in-reasoning-and-native",
        "Each call arrives twice: as markers in the reasoning, and as a native tool call",
        leak(k2_section, into="reasoning", finish="tool_calls", native=True),
    ),
    _row(
        "markers-half-native",
        "The first half of several calls leaks into `content`; the others are native tool calls",
        leak_half(k2_section),
        needs="parallel",
    ),
    _row(
        "markers-in-lumps",
        "One chunk contains several leaked markers and everything between them",
        leak(k2_section, cut="lumps"),
        "vllm#38274",
    ),
    _row(
        "markers-by-character",
        "The leaked markers arrive one character at a time",
        leak(k2_section, cut="characters"),
        "llama.cpp",
    ),
    *(
        _row(
            f"slot-{name}",
            f"Tool calls leak into `content`, and their id is {form}",
            leak(k2_section, slot=SLOTS[name]),
            seen,
        )
        for name, (form, seen) in _SLOTTED.items()
    ),
    _row(
        "slot-call-hex-wrapped",
        'Tool calls leak into `content` with the id `call_…` and the arguments `{"name": …, "arguments": …}`',
        leak(_wrap_arguments, slot=SLOTS["call-hex"]),
        "vllm#32146",
    ),
    _row(
        "slot-call-hex-beside",
        "Tool calls leak into `content` with the id `call_…`, and the tool name is one of the arguments",
        leak(_write_name_in_arguments, slot=SLOTS["call-hex"]),
        "vllm#32146",
    ),
    _row(
        "argument-marker-misspelled",
        "Tool calls leak into `content` with `<|tool_call_arguments_begin|>`: `arguments` instead of `argument`",
        leak(_misspell_argument_begin),
    ),
    *(
        _row(
            f"swallowed-{name}",
            f"The parser gives up after it has taken the first markers, because {why}: the rest leaks into `content`",
            leak(write, slot=SLOTS.get(slot, canonical)),
            _RUST,
        )
        for name, (why, write, slot) in _SWALLOWED.items()
    ),
    _row(
        "markers-cut-off",
        "The token limit cuts off a leaked call in its arguments",
        _cut_in_arguments("length"),
        fatal=True,
    ),
    _row(
        "markers-cut-off-in-slot",
        "The token limit cuts off a leaked call in its id",
        _cut_in_id("length"),
        fatal=True,
    ),
    _row(
        "markers-end",
        "The response ends in the arguments of a leaked call, although the token limit was not reached",
        _cut_in_arguments("stop"),
        fatal=True,
    ),
    _row(
        "markers-end-in-slot",
        "The response ends in the id of a leaked call, although the token limit was not reached",
        _cut_in_id("stop"),
        fatal=True,
    ),
    _row(
        "id-alone",
        "All that is left of the calls is the id of the last, alone on the last line of `content`",
        _leave_of_last(lambda call: f"\n{call.id}"),
        fatal=True,
    ),
    _row(
        "arguments-alone",
        "All that is left of the calls in `content` is the arguments of the last, and its end marker",
        _leave_of_last(lambda call: call.arguments + CALL_END),
        fatal=True,
    ),
    _row(
        "think-end-in-content",
        "`content` starts with `</think>`",
        _leak_think_end,
        "vllm#36207",
        needs="reasoning",
    ),
    _row(
        "think-tags-in-content",
        "The reasoning is in `content`, between `<think>` tags",
        _leak_think_tags,
        "hosts without a reasoning parser",
        needs="reasoning",
    ),
)
