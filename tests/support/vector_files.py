"""Reads `tests/vectors/*.json` into checked values, and creates the streams of each vector.

A file has `about`, `defaults` (for all its vectors), `tools` (definitions that vectors refer to by name) and `vectors`.
"""

from __future__ import annotations

import base64
import json
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from moonshim import KimiOptions
from tests.support.streams import FIELDS, chunk, in_field, ndjson, split_text, sse, whole_of

FOLDER: Final = Path(__file__).resolve().parents[1] / "vectors"


class ExpectedCall(msgspec.Struct, forbid_unknown_fields=True):
    """`arguments` is the exact text, or a value that the text must be the JSON of."""

    name: str
    arguments: str | dict[str, Any]
    id: str | None = None


class Expected(msgspec.Struct, forbid_unknown_fields=True):
    """What a client must have at the end."""

    text: str = ""
    """Content in the channel of the field that the input was sent in."""
    reasoning: str = ""
    content: str = ""
    calls: list[ExpectedCall] = []
    finish: str | None = None
    error: str | None = None
    """The code of the error event that comes instead of a finish."""
    repairs: list[str] = []
    """Rules that must be reported."""
    details: dict[str, str] = {}
    """What the report of a rule must contain."""
    clean: bool = False
    """Every byte passes unchanged; only the rules in `repairs` may be reported."""
    order: list[tuple[str, str]] | None = None
    """("text", …), ("reasoning", …), ("call", name); ("own", …) is the channel of the field."""
    fields: list[str] | None = None
    """The fields that carry the reasoning."""
    usage: dict[str, Any] | None = None
    keeps: list[str] = []
    """Markers that may be in the output: the arguments contain them, or their removal was not requested."""
    balanced: bool = True
    """False where faulty native deltas are left alone."""
    contains: list[str] = []
    lacks: list[str] = []
    summary: list[ExpectedCall] | None = None
    """`message.tool_calls` of the finish chunk."""
    others: list[Expected] = []
    """The choices after the first."""


class Vector(msgspec.Struct, forbid_unknown_fields=True):
    """One input and its expected output."""

    name: str
    row: str
    expect: Expected
    case: str = ""
    """Which of the row's examples this is."""
    model: str = "kimi-k2.5"
    tools: list[str | dict[str, Any]] | None = None
    tool_choice: Any = None
    history: list[dict[str, Any]] | None = None
    options: dict[str, Any] | None = None
    """`preset` ("mending", or "plain" for `KimiOptions()`) and what differs from it."""
    framing: Literal["sse", "ndjson"] = "sse"

    text: str | list[str] | None = None
    """Sent in each of `fields`; a list is one more chunking of it."""
    fields: list[str] = msgspec.field(default_factory=lambda: list(FIELDS))
    deltas: list[dict[str, Any]] | None = None
    chunks: list[dict[str, Any]] | None = None
    raw: str | list[str] | None = None
    raw_base64: str | None = None

    finish: str | None = "stop"
    end: Literal["done", "no_done"] = "done"
    usage: dict[str, Any] | None = None
    """In the finish chunk of a text or of deltas."""
    message: dict[str, Any] | None = None
    """The same response, non-streaming, where it cannot be derived from the text."""
    whole: bool = True
    """Whether the response can be non-streaming at all."""
    same_message: bool = True
    """Whether the non-streaming response gives the same parts in the same order."""
    prompt: bool = True
    """Everything decided is out at once, except for the longest marker less one character."""
    holds: str = ""
    """The name of the hold, where more than that is held back on purpose."""
    moments: list[Moment] = []

    @property
    def is_text(self) -> bool:
        return self.text is not None

    @property
    def whole_text(self) -> str:
        return "".join(self.text or "")

    def expected_in(self, field: str) -> Expected:
        """What a client must have if the text is sent in this field.

        Text that is moved to the reasoning leaves a response of reasoning only: with tools declared, that is an error.
        """
        expect = self.expect
        answered = expect.content or expect.calls or expect.others or field in ("content", "")
        if answered or expect.finish != "stop" or not self.tools or self.tool_choice == "none" or self.is_plain:
            return expect
        return msgspec.structs.replace(expect, finish=None, error="empty_answer")

    @property
    def is_plain(self) -> bool:
        """Whether nothing about its calls is repaired: such a response ends as its host ended it."""
        return "kimi" not in self.model or (self.options is not None and self.options.get("preset") == "plain")

    def options_value(self, **changes: Any) -> KimiOptions | None:
        if self.options is None and not changes:
            return None
        given = dict(self.options or {})
        make = KimiOptions if given.pop("preset", "mending") == "plain" else KimiOptions.mending
        return make(**(given | changes))

    def arguments(self, **changes: Any) -> dict[str, Any]:
        """What the mender knows of the request."""
        return {
            "model": self.model,
            "tools": self.tools,
            "tool_choice": self.tool_choice,
            "history": self.history,
            "options": self.options_value(**changes),
        }

    def pieces(self, size: int | None) -> list[str]:
        """The text in pieces; 0 means as the vector itself splits it."""
        if size == 0 and isinstance(self.text, list):
            return self.text
        return split_text(self.whole_text, size or None)

    def as_chunks(self, field: str = "", size: int | None = None) -> list[dict[str, Any]]:
        if self.chunks is not None:
            return self.chunks
        deltas: list[dict[str, Any]] = self.deltas or []
        if self.is_text:
            deltas = [{"role": "assistant", "content": ""}, *(in_field(field, one) for one in self.pieces(size))]
        chunks = [chunk(delta, model=self.model) for delta in deltas]
        usage = {} if self.usage is None else {"usage": self.usage}
        if self.finish is not None:
            chunks.append(chunk({}, self.finish, model=self.model, **usage))
        return chunks

    def stream(self, field: str = "", size: int | None = None) -> bytes:
        """The bytes that the host sends."""
        if self.raw_base64 is not None:
            return base64.b64decode(self.raw_base64)
        if self.raw is not None:
            return "".join(self.raw).encode()
        chunks = self.as_chunks(field, size)
        return ndjson(chunks) if self.framing == "ndjson" else sse(chunks, done=self.end == "done")

    def body(self, field: str = "") -> dict[str, Any] | None:
        """The same response, non-streaming; None if there is no such thing."""
        if not self.whole:
            return None
        body = {"id": "chatcmpl-7", "object": "chat.completion", "created": 1700000000, "model": self.model}
        if self.chunks is not None:
            return whole_of(body, self.chunks) if self.end == "done" else None
        message = self.message
        if message is None and self.is_text:
            message = {"role": "assistant", "content": None, **in_field(field, self.whole_text)}
        if message is None:
            return None
        choice = {"index": 0, "message": message, "finish_reason": self.finish}
        return {**body, "choices": [choice]} | ({} if self.usage is None else {"usage": self.usage})


class Moment(msgspec.Struct, forbid_unknown_fields=True):
    """After this much of the text, this must be out."""

    after: str
    text: str = ""
    calls: list[ExpectedCall] = []


def _definition(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {}}}}


@cache
def files() -> dict[str, list[Vector]]:
    """Every file's vectors, by the file's name."""
    found: dict[str, list[Vector]] = {}
    for path in sorted(FOLDER.glob("*.json")):
        # msgspec refuses lone surrogates, and some vectors are about just that.
        data = json.loads(path.read_text())
        assert data.keys() <= {"about", "defaults", "tools", "vectors"}, path
        declared = data.get("tools", {})
        found[path.stem] = []
        for one in data["vectors"]:
            vector = msgspec.convert({**data.get("defaults", {}), **one}, Vector)
            if vector.tools is not None:
                vector.tools = [
                    declared.get(tool, _definition(tool)) if isinstance(tool, str) else tool for tool in vector.tools
                ]
            found[path.stem].append(vector)
    return found


def vectors() -> list[Vector]:
    return [vector for group in files().values() for vector in group]


def fields_of(vector: Vector) -> list[str]:
    """The fields that its text is sent in; one without a name if it has no text of its own."""
    return vector.fields if vector.is_text else [""]


def name_of(value: Any) -> str:
    """The name of a test case."""
    return value.name if isinstance(value, Vector) else str(value)
