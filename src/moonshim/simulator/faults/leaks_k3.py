"""Responses of K3 models -> what hosts send whose parser lets XTML through, or misreads it."""

from __future__ import annotations

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
    ending,
    leak,
    leak_half,
    raw_calls,
)
from moonshim.simulator.host.markers import k2_call, k2_section, k3_call, k3_close, k3_open, k3_tools
from moonshim.simulator.request import SimCall
from moonshim.simulator.response import HostResponse

__all__ = ["FAULTS"]

_MESSAGE_END: Final = k3_close("message") + "<|end_of_msg|>"
_TOOL: Final = re.compile(r' tool="[^"]*"')
_KEY: Final = re.compile(r'(<\|open\|>argument) key="[^"]*"')
_ATTRIBUTE: Final = re.compile(r'(?<=<\|open\|>)(call|argument)( \w+="[^"]*")+(?=<\|sep\|>)')
_TAG: Final = re.compile(r"(<\|(?:open|close)\|>)(?=(?:think|response|tools|call|argument|message)\b)")


# --- call formats ----------------------------------------------------------------------------------------------------


def _as_json(calls: Sequence[SimCall]) -> str:
    """The arguments of each call as one piece of JSON."""
    written = (
        k3_open("call", tool=call.name, index=str(at))
        + k3_open("json", type="object")
        + (call.arguments or "{}")
        + k3_close("json")
        + k3_close("call")
        for at, call in enumerate(calls, 1)
    )
    return k3_open("tools") + "".join(written) + k3_close("tools")


def _omit_tools_end(calls: Sequence[SimCall]) -> str:
    return k3_tools(calls).removesuffix(k3_close("tools"))


def _write_each(write: Callable[[str], str]) -> Write:
    """The model writes each call in another way."""
    return lambda calls: (
        k3_open("tools") + "".join(write(k3_call(call, at)) for at, call in enumerate(calls, 1)) + k3_close("tools")
    )


def _glue_attributes(call: str) -> str:
    return _ATTRIBUTE.sub(lambda found: found.group().replace('" ', '"').replace(" ", "", 1), call)


def _write_k2_calls(calls: Sequence[SimCall]) -> str:
    return k3_open("tools") + "".join(map(k2_call, calls)) + k3_close("tools")


def _after_response(calls: Sequence[SimCall]) -> str:
    return k3_close("response") + k3_tools(calls)


def _to_the_end(calls: Sequence[SimCall]) -> str:
    return k3_tools(calls) + _MESSAGE_END


def _in_think(calls: Sequence[SimCall]) -> str:
    """The reasoning is closed after them, when it is too late."""
    return k3_tools(calls) + k3_close("think") + k3_close("message")


# --- responses in one channel, from the reasoning to the last call ---------------------------------------------------


def _tools(answer: HostResponse) -> str:
    return k3_tools(raw_calls(answer)) if answer.calls else ""


def _write_all_to_reasoning(write: Callable[[HostResponse], str]) -> Speech:
    """All that the model wrote appears in the reasoning."""

    def speech(answer: HostResponse) -> HostResponse:
        if not answer.reasoning:
            return answer
        return replace(answer, reasoning=write(answer), text="", calls=(), finish=ending(answer, "stop"))

    return speech


def _omit_separator(answer: HostResponse) -> str:
    response = k3_open("response") + answer.text + k3_close("response")
    return f"{answer.reasoning}<|close|>think{response}{_tools(answer)}"


def _write_spaced(answer: HostResponse) -> str:
    """`<|close|> think<|sep|>`. Only the model's own tags are spaced; its text stays as it is."""
    response = _space(k3_open("response")) + answer.text + _space(k3_close("response"))
    return answer.reasoning + _space(k3_close("think")) + response + _space(_tools(answer))


def _space(marks: str) -> str:
    return _TAG.sub(r"\1 ", marks)


def _never_close_reasoning(answer: HostResponse) -> HostResponse:
    """The reasoning runs over into the text, whose end tag is an orphan."""
    if not answer.calls:
        return answer
    raw = answer.text + _after_response(raw_calls(answer)) + k3_close("message")
    return replace(add_leak(answer, raw, into="reasoning"), text="")


# --- responses with tags around the text -----------------------------------------------------------------------------


def _leak_message_end(answer: HostResponse) -> HostResponse:
    return replace(answer, text=answer.text + _MESSAGE_END)


def _leak_wrapper(answer: HostResponse) -> HostResponse:
    text = k3_open("response") + answer.text + k3_close("response") + _tools(answer)
    return replace(answer, text=text, calls=(), finish=ending(answer, "stop"))


def _leak_wrapper_start(answer: HostResponse) -> HostResponse:
    """The wrapper is opened, and not closed before the calls that were parsed."""
    return replace(answer, text=k3_open("response") + answer.text)


def _leak_orphan_end(answer: HostResponse) -> HostResponse:
    return replace(answer, text=answer.text + k3_close("response"))


def _inline_reasoning(answer: HostResponse) -> HostResponse:
    if not answer.reasoning:
        return answer
    return replace(answer, text="\n\n".join(filter(None, (answer.reasoning, answer.text))), reasoning="")


# --- calls that are cut, lost, or not requested ----------------------------------------------------------------------


def _cut_in_argument(finish: str) -> Speech:
    """The last call stops in the middle of its last argument, or right after its opening tag if it has none."""

    def speech(answer: HostResponse) -> HostResponse:
        if not answer.calls:
            return answer
        whole = k3_tools(raw_calls(answer)).removesuffix(k3_close("call") + k3_close("tools"))
        whole = whole.removesuffix(k3_close("argument"))
        value = whole.rindex("<|sep|>") + len("<|sep|>")
        return add_leak(answer, whole[: (value + len(whole)) // 2], finish=finish)

    return speech


def _cut_in_tag(finish: str) -> Speech:
    def speech(answer: HostResponse) -> HostResponse:
        if not answer.calls:
            return answer
        *others, last = raw_calls(answer)
        tag = k3_open("call", tool=last.name, index=str(len(answer.calls))).removesuffix("<|sep|>")
        return add_leak(answer, k3_tools(others).removesuffix(k3_close("tools")) + tag, finish=finish)

    return speech


def _drop_last_call(answer: HostResponse) -> HostResponse:
    return replace(answer, calls=answer.calls[:-1], finish="length") if answer.calls else answer


def _call_undeclared(answer: HostResponse) -> HostResponse:
    """Where no tool is declared, no parser runs; the model continues as its history did."""
    if answer.calls:
        return leak(k3_tools)(answer)
    history = answer.request.history
    if answer.request.tools or not history:
        return answer
    return replace(answer, text=answer.text + k3_tools(history[-1:]))


# --- the table ---------------------------------------------------------------------------------------------------


def _row(name: str, about: str, speech: Speech, seen: str = "", **more: Any) -> Fault:
    given = {"needs": "calls", "families": ("k3",), **more}
    return Fault(name=f"xtml-{name}", group="leaks", about=about, seen=seen, speech=speech, **given)


FAULTS: Final[tuple[Fault, ...]] = (
    _row("in-content", "Tool calls leak into `content` as XTML", leak(k3_tools)),
    _row(
        "in-content-called",
        "Tool calls leak into `content`; the finish reason is `tool_calls`, but the list of calls is empty",
        leak(k3_tools, finish="tool_calls"),
        chunks=empty_lists,
        whole=empty_list,
    ),
    _row(
        "to-the-end", "Tool calls and the end-of-message markers leak into `content`", leak(_to_the_end), "vllm#51412"
    ),
    _row(
        "without-end", "Tool calls leak into `content`, and the closing `tools` tag is missing", leak(_omit_tools_end)
    ),
    _row(
        "in-reasoning",
        "Tool calls leak into the reasoning, which is closed only after them",
        leak(_in_think, into="reasoning"),
        "smg#1983",
    ),
    _row(
        "think-never-closed",
        "The reasoning is never closed: the text, a stray closing `response` tag and the tool calls end up in it",
        _never_close_reasoning,
        "vllm#53246",
    ),
    _row(
        "sep-elided",
        "Everything stays in the reasoning, as its closing tag has no separator: `<|close|>think<|open|>…`",
        _write_all_to_reasoning(_omit_separator),
        "sglang#32567",
        needs="reasoning",
    ),
    _row(
        "spaced",
        "Everything stays in the reasoning, because the tags contain a space: `<|close|> think<|sep|>`",
        _write_all_to_reasoning(_write_spaced),
        "vllm#50367",
        needs="reasoning",
    ),
    _row("orphan-response-end", "`content` ends with a stray closing `response` tag", _leak_orphan_end, needs=""),
    _row(
        "orphan-response-end-in-content",
        "A stray closing `response` tag and the tool calls leak into `content`",
        leak(_after_response),
        "vllm#53246",
    ),
    _row(
        "message-end-in-content",
        "`content` ends with the end-of-message markers",
        _leak_message_end,
        "vllm#51412",
        needs="",
    ),
    _row(
        "response-in-content",
        "The text leaks into `content` inside its `response` tags, followed by the tool calls",
        _leak_wrapper,
        needs="",
    ),
    _row(
        "response-begun-in-content",
        "`content` starts with an opening `response` tag that is never closed",
        _leak_wrapper_start,
        needs="",
    ),
    _row("json", "Tool calls leak into `content` with all arguments in one `json` element", leak(_as_json)),
    _row(
        "name-attribute",
        "Tool calls leak into `content`, and their attribute is `name` instead of `tool`",
        leak(_write_each(lambda call: call.replace(" tool=", " name=", 1))),
    ),
    _row(
        "no-tool",
        "Tool calls leak into `content`, and no attribute names the tool",
        leak(_write_each(lambda call: _TOOL.sub("", call, count=1))),
    ),
    _row(
        "glued-attributes",
        "Tool calls leak into `content`, and there is no space before their attributes",
        leak(_write_each(_glue_attributes)),
    ),
    _row(
        "wrong-argument-end",
        "Tool calls leak into `content`, and their arguments end with the tag `arg`",
        leak(_write_each(lambda call: call.replace(k3_close("argument"), k3_close("arg")))),
    ),
    _row(
        "no-key",
        "Tool calls leak into `content`, and their arguments have no key",
        leak(_write_each(lambda call: _KEY.sub(r"\1", call))),
        fatal=True,
    ),
    _row(
        "k2-calls",
        "Tool calls leak into `content` in the `tools` tag, but with the markers of K2",
        leak(_write_k2_calls),
    ),
    _row("k2", "Tool calls leak into `content` with the markers of K2", leak(k2_section)),
    _row(
        "and-native",
        "Each call arrives twice: as XTML in `content`, and as a native tool call",
        leak(k3_tools, finish="tool_calls", native=True),
    ),
    _row(
        "half-native",
        "The first half of several calls leaks into `content`; the others are native tool calls",
        leak_half(k3_tools),
        needs="parallel",
    ),
    _row("in-lumps", "One chunk contains several leaked tags and everything between them", leak(k3_tools, cut="lumps")),
    _row("by-character", "The leaked tags arrive one character at a time", leak(k3_tools, cut="characters")),
    _row(
        "undeclared",
        "Tool calls leak into `content`, even if the request declares no tools and only its history has calls",
        _call_undeclared,
        "sglang#39583",
        needs="",
    ),
    _row(
        "cut-off",
        "The token limit cuts off a leaked call",
        _cut_in_argument("length"),
        fatal=True,
    ),
    _row(
        "cut-off-in-tag",
        "The token limit cuts off a leaked call in its opening tag",
        _cut_in_tag("length"),
        "a vLLM test",
        fatal=True,
    ),
    _row(
        "ends",
        "The response ends in an argument of a leaked call, although the token limit was not reached",
        _cut_in_argument("stop"),
        fatal=True,
    ),
    _row(
        "ends-in-tag",
        "The response ends in the opening tag of a leaked call, although the token limit was not reached",
        _cut_in_tag("stop"),
        fatal=True,
    ),
    _row(
        "cut-off-dropped",
        "The token limit cuts off the last call, which is dropped without a trace",
        _drop_last_call,
        lost=True,
    ),
    _row(
        "reasoning-in-content",
        "The reasoning is prepended to `content`, with no marker between them",
        _inline_reasoning,
        "opencrabs#616",
        needs="reasoning",
    ),
)
