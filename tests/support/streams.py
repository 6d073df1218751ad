"""Builds the streams that hosts send, and reads the mended ones the way a strict OpenAI client would."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

K2_MARKERS: Final = (
    "<|tool_calls_section_begin|>",
    "<|tool_calls_section_end|>",
    "<|tool_call_section_begin|>",
    "<|tool_call_section_end|>",
    "<|tool_call_begin|>",
    "<|tool_call_argument_begin|>",
    "<|tool_call_end|>",
    "<think>",
    "</think>",
)
K3_MARKERS: Final = ("<|open|>", "<|close|>", "<|sep|>", "<|end_of_msg|>")
MARKERS: Final = K2_MARKERS + K3_MARKERS

REASONING_FIELDS: Final = ("reasoning_content", "reasoning", "reasoning_details")
FIELDS: Final = ("content", *REASONING_FIELDS)

DONE: Final = "[DONE]"

# -- host streams ----------------------------------------------------------------------------------------------------


def chunk(
    delta: Mapping[str, Any], finish: str | None = None, *, model: str = "kimi-k2.5", **more: Any
) -> dict[str, Any]:
    """One chunk of the first choice."""
    choice = {"index": 0, "delta": dict(delta), "finish_reason": finish}
    identity = {"id": "chatcmpl-7", "object": "chat.completion.chunk", "created": 1700000000, "model": model}
    return {**identity, "choices": [choice], **more}


def in_field(name: str, text: str) -> dict[str, Any]:
    """A delta, or a message, with this in this field."""
    return {name: [{"type": "reasoning.text", "text": text}] if name == "reasoning_details" else text}


def dump_json(value: Any) -> bytes:
    """JSON with unescaped characters, so that bytes can be split inside one; lone surrogates stay escaped."""
    try:
        return json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return json.dumps(value).encode()


def sse(chunks: Iterable[Mapping[str, Any]], *, done: bool = True) -> bytes:
    frames = [b"data: %b\n\n" % dump_json(one) for one in chunks]
    return b"".join(frames) + (b"data: [DONE]\n\n" if done else b"")


def ndjson(chunks: Iterable[Mapping[str, Any]]) -> bytes:
    return b"".join(dump_json(one) + b"\n" for one in chunks)


def whole_of(body: Mapping[str, Any], chunks: Iterable[Mapping[str, Any]]) -> dict[str, Any] | None:
    """The whole response with the same plain text as these chunks; None if they contain more than that."""
    whole: dict[int, dict[str, Any]] = {}
    usage: Any = None
    for one in chunks:
        if None not in (usage, one.get("usage")):
            return None
        usage = usage or one.get("usage")
        for choice in one.get("choices", ()):
            delta = choice["delta"]
            if not delta.keys() <= {"role", "content", "reasoning_content", "refusal", "new_delta"}:
                return None
            index = choice["index"]
            kept = whole.setdefault(index, {"index": index, "message": {"role": "assistant", "content": None}})
            for name in ("content", "reasoning_content"):
                if delta.get(name):
                    kept["message"][name] = (kept["message"].get(name) or "") + delta[name]
            kept["finish_reason"] = choice.get("finish_reason") or kept.get("finish_reason")
            if "usage" in choice:
                kept["usage"] = choice["usage"]
    told = {} if usage is None else {"usage": usage}
    return {**body, "choices": [whole[index] for index in sorted(whole)], **told}


def split_text(text: str, size: int | None) -> list[str]:
    """The text in pieces of this size; None leaves it whole."""
    step = size or max(len(text), 1)
    return [text[at : at + step] for at in range(0, len(text), step)]


def split_bytes(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


# -- client reading --------------------------------------------------------------------------------------------------


def read_sse(data: bytes) -> list[str]:
    """The payloads of an event stream, by WHATWG HTML 9.2.6; what follows the last blank line is not an event."""
    events: list[str] = []
    lines: list[str] = []
    for line in re.split(r"\r\n|\n|\r", data.decode("utf-8"))[:-1]:
        if not line:
            if lines:
                events.append("\n".join(lines))
            lines = []
        name, _, value = line.partition(":")
        if name == "data":
            lines.append(value.removeprefix(" "))
    assert not lines, f"the last event is not closed: {lines}"
    return events


def parse_payloads(events: Iterable[str]) -> list[Any]:
    """Payloads as values; what is not JSON stays a string."""
    found: list[Any] = []
    for event in events:
        try:
            found.append(json.loads(event))
        except ValueError:
            found.append(event)
    return found


@dataclass
class ReceivedCall:
    """One call as a client has it after the last delta."""

    id: str
    name: str
    arguments: str


@dataclass
class ReceivedChoice:
    """One choice as a client has it after the last delta."""

    order: list[tuple[str, str]] = field(default_factory=list)
    """The content in order: ("reasoning", text), ("text", text), ("call", name)."""
    fields: dict[str, str] = field(default_factory=dict)
    """Reasoning, by field."""
    content: str = ""
    calls: list[ReceivedCall] = field(default_factory=list)
    finish: str | None = None
    error: dict[str, Any] | None = None
    summary: list[dict[str, Any]] | None = None

    @property
    def reasoning(self) -> str:
        """The reasoning; copies in several fields must agree."""
        texts = set(self.fields.values()) or {""}
        assert len(texts) == 1, f"copies of the reasoning differ: {self.fields}"
        return texts.pop()

    def add(self, kind: str, text: str) -> None:
        if self.order and self.order[-1][0] == kind and kind != "call":
            text = self.order.pop()[1] + text
        self.order.append((kind, text))


class Listener:
    """Concatenates deltas by index as OpenAI clients do, and refuses anything that could confuse one of them."""

    def __init__(self, *, strict: bool = True) -> None:
        self.choices: dict[int, ReceivedChoice] = {}
        self.usages: list[dict[str, Any]] = []
        self.done = False
        self._strict = strict

    def __getitem__(self, index: int) -> ReceivedChoice:
        return self.choices.setdefault(index, ReceivedChoice())

    def hear(self, value: Any) -> None:
        if value == DONE:
            assert not self.done, "[DONE] came twice"
            self.done = True
            return
        if isinstance(value, dict) and "error" in value:
            self._fail(value["error"])
            return
        if not isinstance(value, dict) or not isinstance(value.get("choices"), list):
            return
        assert not self.done, f"a chunk after [DONE]: {value}"
        if value.get("usage") is not None:
            self.usages.append(value["usage"])
        for choice in value["choices"]:
            if isinstance(choice, dict):
                self._choice(choice)

    def _fail(self, error: Any) -> None:
        assert isinstance(error, dict), f"an error is an object, not {error!r}"
        assert error.get("message"), error
        heard = self[error.get("choice", 0)]
        assert heard.error is None, f"a second error: {error}"
        assert heard.finish is None, f"an error behind a finish: {error}"
        heard.error = error

    def _choice(self, choice: Mapping[str, Any]) -> None:
        heard = self[choice["index"]]
        if self._strict:
            assert "usage" not in choice, "usage is at the top of a chunk"
            assert choice["delta"].get("finish_reason") is None, "finish_reason belongs to the choice"
        delta = choice.get("delta") or {}
        ended = heard.finish is not None or heard.error is not None
        assert not (ended and any(delta.get(name) for name in (*FIELDS, "tool_calls"))), f"said after the end: {delta}"
        self._reasoning(heard, delta)
        if content := delta.get("content"):
            heard.content += content
            heard.add("text", content)
        if self._strict:
            for entry in delta.get("tool_calls") or ():
                self._entry(heard, entry)
        if choice.get("finish_reason") is not None:
            assert not ended, "a second finish"
            heard.finish = choice["finish_reason"]
        if "message" in choice:
            assert not any(delta.values()), f"a summary beside a delta that says something: {delta}"
            heard.summary = choice["message"]["tool_calls"]

    def _reasoning(self, heard: ReceivedChoice, delta: Mapping[str, Any]) -> None:
        texts: list[str] = []
        for name in REASONING_FIELDS:
            text = delta.get(name) or ""
            if isinstance(text, list):
                text = "".join(one.get("text") or one.get("summary") or "" for one in text)
            if text:
                heard.fields[name] = heard.fields.get(name, "") + text
                texts.append(text)
        if texts:
            heard.add("reasoning", texts[0])

    def _entry(self, heard: ReceivedChoice, entry: Mapping[str, Any]) -> None:
        index, function = entry["index"], entry["function"]
        assert type(index) is int, f"an index is a number: {entry}"
        if index == len(heard.calls):
            assert entry.get("id"), f"a header without an id: {entry}"
            assert entry.get("type") == "function", f"a header without a type: {entry}"
            assert function.get("name"), f"a header without a name: {entry}"
            heard.calls.append(ReceivedCall(entry["id"], function["name"], ""))
            heard.add("call", function["name"])
        else:
            assert 0 <= index < len(heard.calls), f"indexes are dense: {entry}"
            assert not entry.get("id"), f"a second header: {entry}"
            assert not function.get("name"), f"a second name: {entry}"
        heard.calls[index].arguments += function.get("arguments") or ""


def read_chunks(values: Iterable[Any], *, strict: bool = True) -> Listener:
    listener = Listener(strict=strict)
    for value in values:
        listener.hear(value)
    return listener


def read_body(body: Mapping[str, Any], *, strict: bool = True) -> Listener:
    """A whole response, as the same client reads it."""
    listener = Listener(strict=strict)
    if body.get("usage") is not None:
        listener.usages.append(body["usage"])
    for choice in body["choices"]:
        message = choice["message"]
        entries = [{"index": place, **entry} for place, entry in enumerate(message.get("tool_calls") or ())]
        listener.hear({"choices": [_as_delta(choice, message, entries)]})
    if "error" in body:
        listener.hear({"error": body["error"]})
    return listener


def _as_delta(choice: Mapping[str, Any], message: Mapping[str, Any], entries: Sequence[Any]) -> dict[str, Any]:
    kept = {key: value for key, value in choice.items() if key != "message"}
    return {**kept, "delta": {**message, "tool_calls": entries}}


def strings(value: Any) -> Iterator[str]:
    """Every string in a value, keys too."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from strings(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from strings(inner)


def find_markers(values: Iterable[Any], allowed: Sequence[str] = ()) -> list[str]:
    """The markers in any string of these values."""
    texts = [text for value in values for text in strings(value)]
    return [marker for marker in MARKERS if marker not in allowed and any(marker in text for text in texts)]
