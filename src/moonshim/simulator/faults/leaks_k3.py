"""Responses of K3 models -> what hosts send whose parser lets XTML through, or misreads it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final

from msgspec.structs import replace

from moonshim.simulator.fault import Fault, Speech
from moonshim.simulator.faults.leaking import add_leak, empty_list, empty_lists, ending, leak, leak_half, raw_calls
from moonshim.simulator.host.markers import k3_close, k3_open, k3_tools
from moonshim.simulator.request import SimCall
from moonshim.simulator.response import HostResponse

__all__ = ["FAULTS"]

_MESSAGE_END: Final = k3_close("message") + "<|end_of_msg|>"
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


def _cut_in_argument(answer: HostResponse) -> HostResponse:
    """The last call stops in the middle of its last argument, or right after its opening tag if it has none."""
    if not answer.calls:
        return answer
    whole = k3_tools(raw_calls(answer)).removesuffix(k3_close("call") + k3_close("tools"))
    whole = whole.removesuffix(k3_close("argument"))
    value = whole.rindex("<|sep|>") + len("<|sep|>")
    return add_leak(answer, whole[: (value + len(whole)) // 2], finish="length")


def _cut_in_tag(answer: HostResponse) -> HostResponse:
    if not answer.calls:
        return answer
    *others, last = raw_calls(answer)
    tag = k3_open("call", tool=last.name, index=str(len(answer.calls))).removesuffix("<|sep|>")
    return add_leak(answer, k3_tools(others).removesuffix(k3_close("tools")) + tag, finish="length")


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
    _row("in-content", "the calls stand in the text, as XTML", leak(k3_tools)),
    _row(
        "in-content-called",
        "the calls stand in the text; the answer says that it calls, and its list of calls is empty",
        leak(k3_tools, finish="tool_calls"),
        chunks=empty_lists,
        whole=empty_list,
    ),
    _row("to-the-end", "calls and the end of the message stand in the text", leak(_to_the_end), "vllm#51412"),
    _row("without-end", "the calls stand in the text, and their list never ends", leak(_omit_tools_end)),
    _row(
        "in-reasoning",
        "the calls stand in the thought, which is closed behind them",
        leak(_in_think, into="reasoning"),
        "smg#1983",
    ),
    _row(
        "think-never-closed",
        "the thought goes over into the text; the end of the response is an orphan, and the calls follow",
        _never_close_reasoning,
        "vllm#53246",
    ),
    _row(
        "sep-elided",
        "`<|close|>think<|open|>response<|sep|>`: without the separator everything stays in the thought",
        _write_all_to_reasoning(_omit_separator),
        "sglang#32567",
        needs="reasoning",
    ),
    _row(
        "spaced",
        "`<|close|> think<|sep|>`: with a space in its tags everything stays in the thought",
        _write_all_to_reasoning(_write_spaced),
        "vllm#50367",
        needs="reasoning",
    ),
    _row("orphan-response-end", "the text ends with the end of the response", _leak_orphan_end, needs=""),
    _row(
        "orphan-response-end-in-content",
        "the end of the response and the calls stand in the text",
        leak(_after_response),
        "vllm#53246",
    ),
    _row(
        "message-end-in-content", "the text ends with the end of the message", _leak_message_end, "vllm#51412", needs=""
    ),
    _row("response-in-content", "the text stands in its wrapper, and the calls behind it", _leak_wrapper, needs=""),
    _row("response-begun-in-content", "the text begins with that of the wrapper", _leak_wrapper_start, needs=""),
    _row("json", "the calls stand in the text, their arguments as one `json`", leak(_as_json)),
    _row(
        "and-native",
        "each call comes twice: as XTML in the text, and as a call",
        leak(k3_tools, finish="tool_calls", native=True),
    ),
    _row(
        "half-native",
        "of several calls the first half leaks into the text, and the others are found",
        leak_half(k3_tools),
        needs="parallel",
    ),
    _row("in-lumps", "several tags and what is between them come in one chunk", leak(k3_tools, cut="lumps")),
    _row("by-character", "the tags come one character at a time", leak(k3_tools, cut="characters")),
    _row(
        "undeclared",
        "calls stand in the text, also where the request declares no tool and only its history has some",
        _call_undeclared,
        "sglang#39583",
        needs="",
    ),
    _row(
        "cut-off",
        "the answer is over its limit in a call that leaks",
        _cut_in_argument,
        fatal=True,
    ),
    _row(
        "cut-off-in-tag",
        "the answer is over its limit in the tag that begins a call, which leaks",
        _cut_in_tag,
        "a test of vllm's",
        fatal=True,
    ),
    _row(
        "cut-off-dropped",
        "the answer is over its limit in its last call, of which nothing is told",
        _drop_last_call,
        lost=True,
    ),
    _row(
        "reasoning-in-content",
        "the thought is the beginning of the text, and nothing tells them apart",
        _inline_reasoning,
        "opencrabs#616",
        needs="reasoning",
    ),
)
