"""Responses with a wrong finish reason, and streams that report the ending or the usage wrongly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from msgspec.structs import replace

from moonshim.simulator.fault import Chunks, Fault, Frames, Piece, Speech
from moonshim.simulator.faults.parts import (
    carrier,
    choice_of,
    contents_of,
    delta_of,
    finish_of,
    usage_of,
    with_choice,
    with_delta,
)
from moonshim.simulator.request import Json
from moonshim.simulator.response import HostResponse

__all__ = ["FAULTS"]

_DONE: Final = b"[DONE]"
_NONSENSE: Final = "!" * 200


# -- the reason --------------------------------------------------------------------------------------------------


def _finish_as(finish: str, *, calls: bool | None = None) -> Speech:
    """Another reason, for every response or for those with or without calls."""

    def speech(answer: HostResponse) -> HostResponse:
        return replace(answer, finish=finish) if calls is None or bool(answer.calls) is calls else answer

    return speech


def _rename_finish(names: dict[str, str]) -> Speech:
    return lambda answer: replace(answer, finish=names.get(answer.finish, answer.finish))


def _drop_reason(chunks: list[Json], answer: HostResponse) -> list[Json]:
    """Omit a chunk that only ended the response, and with it any usage that it carried."""
    out: list[Json] = []
    for chunk in chunks:
        if finish_of(chunk) is None:
            out.append(chunk)
        elif contents_of(chunk) != {"finish"}:
            out.append(with_choice(chunk, finish_reason=None))
    return out


def _drop_stop_reason(chunks: list[Json], answer: HostResponse) -> list[Json]:
    return [_without_reason(event) if event.get("type") == "message_delta" else event for event in chunks]


def _without_reason(event: Json) -> Json:
    return {**event, "delta": {**event["delta"], "stop_reason": None}}


def _on_each_wire(chat: Chunks, messages: Chunks) -> Chunks:
    return lambda chunks, answer: (messages if answer.request.wire == "anthropic" else chat)(chunks, answer)


def _send_reason_twice(chunks: list[Json], answer: HostResponse) -> list[Json]:
    """`tool_calls` and then `stop`: careless readers believe the second."""
    out: list[Json] = []
    for chunk in chunks:
        out.append(chunk)
        if finish_of(chunk) is not None:
            out.append(with_choice(carrier(chunks, {}), finish_reason="stop"))
    return out


def _send_empty_reasons(chunks: list[Json], answer: HostResponse) -> list[Json]:
    return [chunk if finish_of(chunk) is not None else with_choice(chunk, finish_reason="") for chunk in chunks]


def _first_half(chunks: list[Json], ends: Callable[[Json], bool]) -> list[Json]:
    """The first half of everything before the end."""
    end = next((at for at, chunk in enumerate(chunks) if ends(chunk)), len(chunks))
    return chunks[: max(end // 2, 1)]


def _end_overloaded(chunks: list[Json], answer: HostResponse) -> list[Json]:
    if answer.request.wire == "anthropic":
        half = _first_half(chunks, lambda event: event.get("type") == "message_delta")
        usage: Json = next((event.get("usage", {}) for event in chunks if event.get("type") == "message_delta"), {})
        delta = {"stop_reason": "engine_overloaded", "stop_sequence": None}
        return [*half, {"type": "message_delta", "delta": delta, "usage": usage}, {"type": "message_stop"}]
    half = _first_half(chunks, lambda chunk: finish_of(chunk) is not None)
    return [*half, with_choice(carrier(chunks, {}), finish_reason="engine_overloaded")]


# -- tokens ------------------------------------------------------------------------------------------------------


def _report_usage_in(*places: str) -> Speech:
    """Change where usage is reported, but not in which form."""

    def speech(answer: HostResponse) -> HostResponse:
        shapes = tuple(one for one in answer.usage_in if one not in {"choice", "last"})
        return replace(answer, usage_in=(*places, *shapes))

    return speech


def _drop_usage(chunk: Json) -> Json:
    choice = choice_of(chunk)
    remaining = {key: value for key, value in chunk.items() if key != "usage"}
    if choice is None:
        return remaining
    return {**remaining, "choices": [{key: value for key, value in choice.items() if key != "usage"}]}


def _without_usage(chunks: list[Json]) -> list[Json]:
    """No chunk has usage, and the one that has nothing else is not sent."""
    return [_drop_usage(chunk) for chunk in chunks if choice_of(chunk) is not None or usage_of([chunk]) is None]


def _drop_all_usage(chunks: list[Json], answer: HostResponse) -> list[Json]:
    return _without_usage(chunks)


def _send_usage_with_finish(chunks: list[Json], answer: HostResponse) -> list[Json]:
    usage = usage_of(chunks)
    return [{**one, "usage": usage} if finish_of(one) is not None else one for one in _without_usage(chunks)]


def _send_usage_everywhere(chunks: list[Json], answer: HostResponse) -> list[Json]:
    """Each chunk counts up to itself, the last counts all."""
    usage = usage_of(chunks)
    if usage is None:
        return chunks
    prompt = usage["prompt_tokens"]
    total = usage["completion_tokens"]
    counts = [min(at, total) for at in range(len(chunks) - 1)]
    partial = [{"prompt_tokens": prompt, "completion_tokens": n, "total_tokens": prompt + n} for n in counts]
    plain = [_drop_usage(chunk) for chunk in chunks]
    return [{**chunk, "usage": usage_so_far} for chunk, usage_so_far in zip(plain, [*partial, usage], strict=True)]


def _nullify_usage(chunks: list[Json], answer: HostResponse) -> list[Json]:
    return [{"usage": None, **chunk} for chunk in chunks]


def _drop_usage_choices(chunks: list[Json], answer: HostResponse) -> list[Json]:
    """The usage chunk has no `choices`, not even an empty list."""
    return [
        {key: value for key, value in chunk.items() if key != "choices"} if choice_of(chunk) is None else chunk
        for chunk in chunks
    ]


# -- beginning and end of the stream -----------------------------------------------------------------------------


def _send_empty_choices_first(chunks: list[Json], answer: HostResponse) -> list[Json]:
    return [{**carrier(chunks, {}), "choices": []}, *chunks]


def _drop_role(chunks: list[Json], answer: HostResponse) -> list[Json]:
    """The role is never sent; a first chunk with nothing else is not sent."""
    out: list[Json] = []
    for chunk in chunks:
        delta = delta_of(chunk)
        if "role" not in delta:
            out.append(chunk)
        elif contents_of(chunk):
            out.append(with_delta(chunk, {key: value for key, value in delta.items() if key != "role"}))
    return out


def _is_done(frame: Piece) -> bool:
    return isinstance(frame, bytes) and frame.strip().endswith(_DONE)


def _done_frames(change: Callable[[bytes, bytes], list[bytes]]) -> Frames:
    """Replace the last frame, given it and the one before it."""

    def frames(frames: list[bytes], answer: HostResponse) -> list[Piece]:
        out: list[Piece] = []
        for before, frame in zip([b"", *frames], frames, strict=False):
            out += change(frame, before) if _is_done(frame) else [frame]
        return out

    return frames


# -- content -----------------------------------------------------------------------------------------------------


def _say_nothing(answer: HostResponse) -> HostResponse:
    return replace(answer, reasoning="", text="", calls=(), finish="stop")


def _say_nonsense(answer: HostResponse) -> HostResponse:
    return replace(answer, reasoning="", text=_NONSENSE, calls=(), finish="length")


def _drop_calls(finish: str) -> Speech:
    """A parser that cannot read the calls sends nothing of them."""
    return lambda answer: replace(answer, calls=(), finish=finish)


def _announce_call(answer: HostResponse) -> HostResponse:
    if not answer.calls:
        return answer
    return replace(answer, text=f"{answer.text}\nI'll call {answer.calls[0].name} now.", calls=(), finish="stop")


def _row(name: str, about: str, seen: str, **more: Any) -> Fault:
    return Fault(name=name, group="endings", about=about, seen=seen, **more)


_CHAT: Final = ("openai_chat",)
_STREAM: Final = ("stream",)


def _stream_row(name: str, about: str, seen: str, chunks: Chunks, **more: Any) -> Fault:
    return _row(name, about, seen, chunks=chunks, **{"wires": _CHAT, "ways": _STREAM, **more})


FAULTS: Final[tuple[Fault, ...]] = (
    _row(
        "stop-with-calls",
        "The finish reason is `stop` (`end_turn`) although there are tool calls",
        "vllm#43155",
        needs="calls",
        speech=_finish_as("stop", calls=True),
    ),
    _row(
        "tool-calls-without-calls",
        "The finish reason is `tool_calls`, but the response has no tool calls",
        "vllm#43155, MLX-LM",
        fatal=True,
        speech=_drop_calls("tool_calls"),
    ),
    _row(
        "calls-swallowed",
        "The calls are missing without a trace; only the usage counts their tokens",
        "vLLM, SGLang, MLX-LM",
        needs="calls",
        lost=True,
        speech=_drop_calls("stop"),
    ),
    _row(
        "finish-function-call",
        "The finish reason of tool calls is `function_call`",
        "OpenAI's former name for it",
        wires=_CHAT,
        needs="calls",
        speech=_finish_as("function_call", calls=True),
    ),
    _row(
        "finish-eos",
        "The finish reason is `eos`",
        "Together; openai-dotnet#267",
        wires=_CHAT,
        speech=_rename_finish({"stop": "eos", "tool_calls": "eos"}),
    ),
    _row(
        "finish-length",
        "The finish reason is `length` although the response is complete: the last token reaches the limit",
        "any host",
        speech=_finish_as("length"),
    ),
    _stream_row(
        "no-finish",
        "No chunk has a finish reason",
        "ai-sdk-provider#420, vllm-mlx#672",
        _on_each_wire(_drop_reason, _drop_stop_reason),
        wires=("openai_chat", "anthropic"),
    ),
    _stream_row(
        "finish-twice",
        "The finish reason arrives twice, the second time as `stop`",
        "sglang#8417, ChatMock#114",
        _send_reason_twice,
    ),
    _stream_row(
        "empty-finish", "The finish reason is an empty string until the end", "sglang#3912", _send_empty_reasons
    ),
    _stream_row(
        "finish-overloaded",
        "The response ends halfway with the finish reason `engine_overloaded`",
        "openclaw#65924",
        _end_overloaded,
        wires=("openai_chat", "anthropic"),
        fatal=True,
    ),
    _row(
        "usage-in-choice",
        "Usage is reported only in the choice that has the finish reason",
        "Moonshot; pi#2017",
        wires=_CHAT,
        ways=_STREAM,
        speech=_report_usage_in("choice"),
    ),
    _row(
        "usage-last",
        "Usage is reported only in a separate chunk after the finish reason",
        "OpenAI",
        wires=_CHAT,
        ways=_STREAM,
        speech=_report_usage_in("last"),
    ),
    _stream_row(
        "usage-with-finish",
        "Usage is reported in the chunk with the finish reason, but not in its choice",
        "vLLM",
        _send_usage_with_finish,
    ),
    _stream_row(
        "usage-in-each-chunk",
        "Every chunk reports the usage so far",
        "vllm#5708, sglang#12241",
        _send_usage_everywhere,
    ),
    _stream_row("null-usage", "`usage` is null in every chunk that does not report it", "OpenAI", _nullify_usage),
    _stream_row(
        "usage-without-choices", "The usage chunk has no `choices` field", "spoon-core#179", _drop_usage_choices
    ),
    _stream_row(
        "no-usage",
        "Usage is never reported",
        "CLIProxyAPI#1279",
        _drop_all_usage,
        whole=lambda payload, answer: _drop_usage(payload),
        ways=("stream", "whole"),
    ),
    _stream_row(
        "no-choices-first",
        "The first chunk has an empty `choices` list",
        "semantic-kernel#3650",
        _send_empty_choices_first,
    ),
    _stream_row("no-role", "No chunk contains the role", "optional in OpenAI's schema", _drop_role),
    _row(
        "no-done",
        "The stream ends without `[DONE]`",
        "hermes-agent#90848",
        wires=_CHAT,
        ways=_STREAM,
        families=("k2", "k3", "other"),
        frames=_done_frames(lambda frame, before: []),
    ),
    _row(
        "done-twice",
        "`[DONE]` is sent twice",
        "one-api#1628, ray#62228",
        wires=_CHAT,
        ways=_STREAM,
        families=("k2", "k3", "other"),
        frames=_done_frames(lambda frame, before: [frame, frame]),
    ),
    _row(
        "data-after-done",
        "The last chunk is repeated after `[DONE]`",
        "openai-node#2317",
        wires=_CHAT,
        ways=_STREAM,
        families=("k2", "k3", "other"),
        frames=_done_frames(lambda frame, before: [frame, before]),
    ),
    _row(
        "empty-answer",
        "The response is empty: no reasoning, text or tool calls",
        "kimi-code treats it as an error",
        lost=True,
        speech=_say_nothing,
    ),
    _row(
        "nonsense",
        "The text is `!!!!…` up to the token limit",
        "vllm#36207, vllm#42426",
        lost=True,
        speech=_say_nonsense,
    ),
    _row(
        "announced-call",
        "The model announces a tool call in the text, but does not make it",
        "Kimi-K2#81",
        needs="calls",
        lost=True,
        speech=_announce_call,
    ),
)
