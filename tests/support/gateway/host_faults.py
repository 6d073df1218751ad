"""What hosts of Kimi get wrong in Chat -> answers that do it, and what a client should see instead.

`section` names the place in the collected facts about hosts (7: failure classes, 8: quirks of streams).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final, Literal, TypeAlias

from msgspec import Struct

from tests.support.playing import Answer
from tests.support.streams import chunk, cut, sse

__all__ = ["ARGUMENTS", "CHAT_FAULTS", "PARIS", "TOOLS", "Fault", "Json", "marked", "one"]

Json: TypeAlias = dict[str, Any]
Ending: TypeAlias = Literal["calls", "stop", "length"]

TOOLS: Final[dict[str, Json]] = {
    "get_weather": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
        "required": ["city"],
        "additionalProperties": False,
    },
    "Bash": {
        "type": "object",
        "properties": {"command": {"type": "string"}},
        "required": ["command"],
        "additionalProperties": False,
    },
    "plan": {
        "type": "object",
        "properties": {
            "todos": {"type": "array", "items": {"type": "object", "properties": {"title": {"type": "string"}}}}
        },
        "required": ["todos"],
        "additionalProperties": False,
    },
}


class Fault(Struct, frozen=True, kw_only=True):
    """One answer of a host, and what is right. `said` None: whatever it is, there are no markers in it."""

    name: str
    section: str
    """Where the facts are told."""
    stream: bytes
    whole: Json | None = None
    """The same fault in an answer that comes at once, where there is one."""
    text: str | None = ""
    reasoning: str | None = None
    calls: list[tuple[str, Json]] = []
    ending: Ending = "calls"
    row: str = "vllm"
    by: str = ""
    """The name to ask for, where it is not that of the row."""
    broken: bool = False
    """Its arguments are no JSON: they go out as they came, since nothing is invented."""
    error: bool = False
    """An error is what is right."""

    @property
    def answer(self) -> Answer:
        return Answer(self.whole or {}, self.stream)


PARIS: Final = [("get_weather", {"city": "Paris"})]
BOTH: Final = [*PARIS, ("Bash", {"command": "ls"})]


# --- Chat: markers in text --------------------------------------------------------------------------------------


def marked(*calls: str, begin: str = "<|tool_calls_section_begin|>", end: str = "<|tool_calls_section_end|>") -> str:
    return begin + "".join(calls) + end


def one(header: str, arguments: str = '{"city": "Paris"}') -> str:
    return f"<|tool_call_begin|>{header}<|tool_call_argument_begin|>{arguments}<|tool_call_end|>"


def text_fault(
    name: str,
    section: str,
    sent: str,
    /,
    *,
    channel: str = "content",
    finish: str | None = "stop",
    size: int | None = 7,
    before: Sequence[Json] = (),
    **expected: Any,
) -> Fault:
    """The text comes in one field, a few characters in each chunk."""
    chunks = [chunk({"role": "assistant"}), *(chunk(delta) for delta in before)]
    chunks += [chunk({channel: piece}) for piece in cut(sent, size)]
    message: Json = {"role": "assistant", "content": None}
    for delta in before:
        message |= delta
    message[channel] = sent
    whole = {"id": "chatcmpl-7", "object": "chat.completion", "created": 7, "model": "m"}
    whole |= {"choices": [{"index": 0, "message": message, "finish_reason": finish}]}
    return Fault(name=name, section=section, stream=sse([*chunks, chunk({}, finish)]), whole=whole, **expected)


_HEADERS: Final = {
    "a number alone": "3",
    "call and a number": "call00003",
    "call and hexadecimals": "call_59adf5614cfe4f4b8a71be54",
    "no dot, no colon": "functionsget_weather5",
    "underscores": "functions_get_weather_1",
    "a name and a number": "get_weather:0",
    "a dot for a colon": "functions.get_weather.0",
    "white space around it": "\nfunctions.get_weather:0\n",
    "no number": "functions.get_weather",
}

_K2: Final = (
    text_fault(
        "markers in the text, under a foreign identifier",
        "7.1",
        "Look." + marked(one("call_59adf5614cfe4f4b8a71be54")),
        finish="tool_calls",
        text="Look.",
        calls=PARIS,
    ),
    text_fault(
        "markers in the reasoning, which was never closed",
        "7.2",
        "I look." + marked(one("functions.get_weather:0")),
        channel="reasoning",
        reasoning="I look.",
        calls=PARIS,
    ),
    text_fault(
        "a call outside any section",
        "7.2",
        "Look." + one("functions.get_weather:0"),
        text="Look.",
        calls=PARIS,
    ),
    *(
        text_fault(f"an identifier of {name}", "7.3", marked(one(header)), calls=PARIS)
        for name, header in _HEADERS.items()
    ),
    text_fault(
        "a name inside the arguments",
        "7.3",
        marked(one("call_abc", '{"name": "get_weather", "arguments": {"city": "Paris"}}')),
        calls=PARIS,
    ),
    text_fault(
        "singular section markers",
        "7.4",
        marked(one("functions.get_weather:0"), begin="<|tool_call_section_begin|>", end="<|tool_call_section_end|>"),
        calls=PARIS,
    ),
    text_fault(
        "the outer brace is missing",
        "7.5",
        marked(one("functions.get_weather:0", '{"city": "Paris"')),
        calls=PARIS,
        broken=True,
    ),
    text_fault(
        "the end of one call and the begin of the next in one delta",
        "7.6",
        marked(one("functions.get_weather:0"), one("functions.Bash:1", '{"command": "ls"}')),
        size=60,
        calls=BOTH,
    ),
    text_fault(
        "a section of more than eight kilobytes",
        "7.6",
        marked(one("functions.Bash:0", json.dumps({"command": "echo " + "ä" * 5000}))),
        size=500,
        calls=[("Bash", {"command": "echo " + "ä" * 5000})],
    ),
    text_fault(
        "the end of a thought in the text",
        "7.11",
        "</think>Hello.",
        text="Hello.",
        ending="stop",
    ),
    text_fault(
        "the whole thought in the text",
        "7.11",
        "<think>I look.</think>Hello.",
        text="Hello.",
        reasoning="I look.",
        ending="stop",
    ),
    text_fault(
        "words about a call, and none",
        "7.12",
        "I'll call get_weather now.",
        text="I'll call get_weather now.",
        ending="stop",
    ),
    text_fault(
        "numbers that are none",
        "7.11",
        "!" * 60,
        text="!" * 60,
        ending="stop",
    ),
)


# --- Chat: native calls -----------------------------------------------------------------------------------------


def entry(index: Any = 0, id: str | None = None, name: str | None = None, arguments: str | None = None) -> Json:
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    made: Json = {"index": index, "type": "function", "function": function} | ({} if id is None else {"id": id})
    return {key: value for key, value in made.items() if key != "index" or value is not None}


def native_fault(
    name: str,
    section: str,
    *entries: list[Json],
    finish: str | None = "tool_calls",
    message: list[Json] | None = None,
    said: str = "",
    **expected: Any,
) -> Fault:
    """Each list of entries is one chunk."""
    chunks = [chunk({"role": "assistant", "content": said or None})]
    chunks += [chunk({"tool_calls": given}) for given in entries]
    whole = None
    if message is not None:
        whole = {"id": "chatcmpl-7", "object": "chat.completion", "created": 7, "model": "m"}
        body = {"role": "assistant", "content": said or None, "tool_calls": message}
        whole |= {"choices": [{"index": 0, "message": body, "finish_reason": finish}]}
    stream = sse([*chunks, chunk({}, finish)])
    return Fault(name=name, section=section, stream=stream, whole=whole, **{"text": said, **expected})


def alike(name: str, section: str, given: Json, **expected: Any) -> Fault:
    """A call that comes in one piece, streamed or not."""
    whole = {key: value for key, value in given.items() if key != "index"}
    return native_fault(name, section, [given], message=[whole], **expected)


ARGUMENTS: Final = '{"city": "Paris"}'
_NATIVE: Final = (
    alike(
        "it stops where it calls",
        "7.7",
        entry(0, "functions.get_weather:0", "get_weather", ARGUMENTS),
        finish="stop",
        calls=PARIS,
    ),
    native_fault("it calls where it stops", "7.7", message=[], said="Hi.", ending="stop"),
    alike(
        "arguments encoded twice",
        "7.8",
        entry(0, "functions.get_weather:0", "get_weather", json.dumps(ARGUMENTS)),
        calls=PARIS,
    ),
    alike(
        "a list written as a text",
        "7.8",
        entry(0, "functions.plan:0", "plan", json.dumps({"todos": '[{"title": "a"}]'})),
        calls=[("plan", {"todos": [{"title": "a"}]})],
        by="schema",
    ),
    alike(
        "a bare line break in a string",
        "7.8",
        entry(0, "functions.Bash:0", "Bash", '{"command": "a\nb\tc"}'),
        calls=[("Bash", {"command": "a\nb\tc"})],
    ),
    alike(
        "an escape that JSON has not",
        "7.8",
        entry(0, "functions.Bash:0", "Bash", '{"command": "a\\xb"}'),
        calls=[("Bash", {"command": "a\\xb"})],
    ),
    alike(
        "junk behind the arguments",
        "7.8",
        entry(0, "functions.get_weather:0", "get_weather", ARGUMENTS + "}} <|im_end|>"),
        calls=PARIS,
    ),
    alike("no arguments at all", "7.8", entry(0, "functions.Bash:0", "Bash", ""), calls=[("Bash", {})]),
    alike(
        "a name with the prefix of identifiers",
        "7.3",
        entry(0, "functions.Bash:0", "functions_Bash", '{"command": "ls"}'),
        calls=BOTH[1:],
    ),
    alike(
        "an empty name, known from the identifier",
        "7.9",
        entry(0, "functions.get_weather:0", "", ARGUMENTS),
        calls=PARIS,
    ),
    native_fault(
        "one identifier for two calls",
        "7.9",
        [entry(0, "call_1", "get_weather", ARGUMENTS)],
        [entry(1, "call_1", "Bash", '{"command": "ls"}')],
        message=[entry(None, "call_1", "get_weather", ARGUMENTS), entry(None, "call_1", "Bash", '{"command": "ls"}')],
        calls=BOTH,
    ),
    alike("an empty identifier", "7.9", entry(0, "", "get_weather", ARGUMENTS), calls=PARIS),
    native_fault(
        "a name in two pieces",
        "7.9",
        [entry(0, "functions.get_weather:0", "get_wea")],
        [entry(0, None, "ther")],
        [entry(0, None, None, ARGUMENTS)],
        calls=PARIS,
    ),
    native_fault(
        "arguments before the name",
        "8",
        [entry(0, None, None, '{"city": ')],
        [entry(0, "functions.get_weather:0", "get_weather", '"Paris"}')],
        calls=PARIS,
    ),
    native_fault(
        "no index",
        "8",
        [entry(None, "functions.get_weather:0", "get_weather", ARGUMENTS)],
        [entry(None, "functions.Bash:1", "Bash", '{"command": "ls"}')],
        calls=BOTH,
    ),
    native_fault(
        "an index that is a text",
        "8",
        [entry("0", "functions.get_weather:0", "get_weather", "")],
        [entry("0", None, None, ARGUMENTS)],
        [entry("1", "functions.Bash:1", "Bash", '{"command": "ls"}')],
        calls=BOTH,
    ),
    native_fault(
        "one index for two calls",
        "8",
        [entry(0, "functions.get_weather:0", "get_weather", ARGUMENTS)],
        [entry(0, "functions.Bash:1", "Bash", '{"command": "ls"}')],
        calls=BOTH,
    ),
    native_fault(
        "the identifier on every delta",
        "8",
        *(
            [entry(0, "functions.get_weather:0", "get_weather" if n == 0 else None, piece)]
            for n, piece in enumerate(cut(ARGUMENTS, 5))
        ),
        calls=PARIS,
    ),
)


# --- Chat: frames -----------------------------------------------------------------------------------------------

_PLAIN: Final = [
    chunk({"role": "assistant", "reasoning": "Hm."}),
    chunk({"content": "北京 ist schön."}),
    chunk({"tool_calls": [entry(0, "functions.get_weather:0", "get_weather", ARGUMENTS)]}),
    chunk({}, "tool_calls"),
]
_USAGE: Final = {"prompt_tokens": 11, "completion_tokens": 5, "total_tokens": 16}


def framed(name: str, stream: bytes, section: str = "8", **expected: Any) -> Fault:
    right: Json = {"text": "北京 ist schön.", "reasoning": "Hm.", "calls": PARIS}
    return Fault(name=name, section=section, stream=stream, **{**right, **expected})


_FRAMES: Final = (
    framed("no [DONE]", sse(_PLAIN, done=False), "7.13"),
    framed("data without a space", sse(_PLAIN).replace(b"data: ", b"data:"), "7.13"),
    framed("CRLF", sse(_PLAIN).replace(b"\n", b"\r\n")),
    framed("comments between frames", sse(_PLAIN).replace(b"data: ", b": keep-alive\n\ndata: ")),
    framed(
        "usage in the choice",
        sse([*_PLAIN[:3], _PLAIN[3] | {"choices": [_PLAIN[3]["choices"][0] | {"usage": _USAGE}]}]),
    ),
    framed("a byte order mark", b"\xef\xbb\xbf" + sse(_PLAIN)),
    framed("a finish reason of nothing", sse([*_PLAIN[:3], chunk({}, "")])),
    framed("a stream that drops, with no finish", sse(_PLAIN[:2], done=False), "7.13", error=True),
    framed("[DONE] and no finish", sse(_PLAIN[:3]), "7.13"),
    framed(
        "overloaded in the middle, told as a finish reason",
        sse([*_PLAIN[:2], chunk({}, "engine_overloaded")]),
        "7.13",
        error=True,
    ),
    framed(
        "an error in the middle",
        sse(
            [
                *_PLAIN[:2],
                {"error": {"message": "The engine is currently overloaded", "type": "engine_overloaded_error"}},
            ]
        ),
        error=True,
    ),
)

_CUT: Final = (
    text_fault(
        "cut off inside the arguments of a marked call",
        "7.5",
        "Look.<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>"
        '{"city": "Bei',
        finish="length",
        broken=True,
        text="Look.",
        calls=[("get_weather", {"city": "Bei"})],
        ending="length",
    ),
    native_fault(
        "cut off inside the arguments of a call",
        "7.5",
        [entry(0, "functions.get_weather:0", "get_weather", "")],
        [entry(0, None, None, '{"city": "Bei')],
        message=[entry(None, "functions.get_weather:0", "get_weather", '{"city": "Bei')],
        finish="length",
        broken=True,
        calls=[("get_weather", {"city": "Bei"})],
        ending="length",
    ),
)


# --- K3 ---------------------------------------------------------------------------------------------------------


def k3(name: str, sent: str, /, **more: Any) -> Fault:
    return text_fault(name, "7.10", sent, **{"row": "kimi-coding", "channel": "content", **more})


_K3_CALL: Final = (
    '<|open|>call tool="get_weather" index="1"<|sep|><|open|>argument key="city" type="string"<|sep|>Paris'
    "<|close|>argument<|sep|><|close|>call<|sep|>"
)
_K3_TOOLS: Final = f"<|open|>tools<|sep|>{_K3_CALL}<|close|>tools<|sep|>"
_K3: Final = (
    k3(
        "a call in the text",
        f"<|open|>response<|sep|>Look.<|close|>response<|sep|>{_K3_TOOLS}",
        text="Look.",
        calls=PARIS,
    ),
    k3(
        "a separator left out",
        f"I look.<|close|>think<|open|>response<|sep|>Look.<|close|>response<|sep|>{_K3_TOOLS}<|close|>message<|sep|>",
        channel="reasoning_content",
        text="Look.",
        reasoning="I look.",
        calls=PARIS,
    ),
    k3(
        "the end of the message in the text",
        "Hello.<|close|>message<|sep|><|end_of_msg|>",
        text="Hello.",
        ending="stop",
    ),
    k3("an orphan end of the response", f"Look.<|close|>response<|sep|>{_K3_TOOLS}", text="Look.", calls=PARIS),
    k3(
        "tools inside the thought", f"I look.{_K3_TOOLS}", channel="reasoning_content", reasoning="I look.", calls=PARIS
    ),
    k3(
        "markers with a space",
        "I look.<|close|> think<|sep|><|open|> response<|sep|>Look.<|close|> response<|sep|>",
        channel="reasoning_content",
        text="Look.",
        reasoning="I look.",
        ending="stop",
    ),
    k3(
        "a call that was cut off",
        _K3_TOOLS[: _K3_TOOLS.index("ris<|close|>")],
        finish="length",
        broken=True,
        calls=[("get_weather", {"city": "Pa"})],
        ending="length",
    ),
)

CHAT_FAULTS: Final = {fault.name: fault for fault in (*_K2, *_NATIVE, *_FRAMES, *_CUT, *_K3)}
