"""What clients read, strictly: a stream of Messages or of Responses -> what the client has in the end."""

from __future__ import annotations

import json
from typing import Any, Final

from moonshim.engine.signing import is_signed

Json = dict[str, Any]

_KIND_OF_DELTA: Final = {
    "text_delta": ("text", "text"),
    "thinking_delta": ("thinking", "thinking"),
    "signature_delta": ("thinking", "signature"),
    "input_json_delta": ("tool_use", "partial_json"),
}


def frames_of(data: bytes) -> list[tuple[str, Any]]:
    """The events of a stream, each with its name; `[DONE]` stays text."""
    out: list[tuple[str, Any]] = []
    for frame in data.decode().split("\n\n"):
        lines = [line for line in frame.split("\n") if line and not line.startswith(":")]
        if not lines:
            continue
        fields = dict(line.split(":", 1) for line in lines)
        text = fields["data"].strip()
        out.append((fields.get("event", "").strip(), text if text == "[DONE]" else json.loads(text)))
    return out


class MessagesReader:
    """Puts a stream of Messages together as the official client does, and refuses what is no Messages."""

    def __init__(self, data: bytes) -> None:
        self.content: list[Json] = []
        self.stop_reason: str | None = None
        self.error: str | None = None
        self._open = False
        self._began = self._over = False
        for name, payload in frames_of(data):
            assert name == payload.get("type"), f"{name!r} names {payload}"
            assert not self._over, f"behind the end: {payload}"
            self._hear(payload)
        assert self._over, "the stream has no end"
        # Half a call before an error is not told to have ended: clients would run it.
        last = self.content[-1]["type"] if self.content else None
        half = self.failed and last == "tool_use"
        assert not self._open or half, "the last block is open"

    @property
    def failed(self) -> bool:
        return self.error is not None

    def _hear(self, payload: Json) -> None:
        kind = payload["type"]
        if kind in ("ping", "error"):
            if kind == "error":
                self.error, self._over = payload["error"]["type"], True
                assert payload["error"]["message"]
            return
        assert self._began == (kind != "message_start"), f"a message starts once, and first: {payload}"
        match kind:
            case "message_start":
                assert isinstance(payload["message"]["usage"]["input_tokens"], int)
                assert payload["message"]["content"] == []
                assert payload["message"]["stop_reason"] is None
                self._began = True
            case "content_block_start":
                self._block(payload)
            case "content_block_delta":
                self._grow(payload)
            case "content_block_stop":
                assert self._open, f"nothing is open: {payload}"
                assert payload["index"] == len(self.content) - 1, payload
                self._open = False
            case "message_delta":
                assert self.stop_reason is None, f"a second reason: {payload}"
                assert not self._open, f"a block is open: {payload}"
                assert isinstance(payload["usage"]["output_tokens"], int)
                self.stop_reason = payload["delta"]["stop_reason"]
                assert self.stop_reason
            case "message_stop":
                assert self.stop_reason is not None
                self._over = True
            case _:
                raise AssertionError(f"no event of Messages: {payload}")

    def _block(self, payload: Json) -> None:
        assert not self._open, f"one block at a time: {payload}"
        assert payload["index"] == len(self.content), f"blocks are numbered in order: {payload}"
        block = dict(payload["content_block"])
        if block["type"] == "tool_use":
            assert block.pop("input") == {}, f"input comes in deltas: {payload}"
            block["partial_json"] = ""
        elif block["type"] in ("text", "thinking"):
            assert not block[block["type"]], f"speech comes in deltas: {payload}"
            block |= {"signature": ""} if block["type"] == "thinking" else {}
        self.content.append(block)
        self._open = True

    def _grow(self, payload: Json) -> None:
        assert self._open, f"nothing is open: {payload}"
        assert payload["index"] == len(self.content) - 1, f"another block is open: {payload}"
        block, delta = self.content[-1], payload["delta"]
        if delta["type"] not in _KIND_OF_DELTA:
            assert block["type"] not in ("text", "thinking", "tool_use"), f"no delta of Messages: {payload}"
            return
        kind, field = _KIND_OF_DELTA[delta["type"]]
        assert block["type"] == kind, f"a delta for another kind of block: {payload}"
        if field == "signature":
            assert not block[field], f"a second signature: {payload}"
        block[field] += delta[field]

    @property
    def ids(self) -> list[str]:
        return [block["id"] for block in self.content if block["type"] == "tool_use"]

    @property
    def said(self) -> Json:
        """The blocks, and how it ended; a signature of ours is None, arguments that are no JSON are text."""
        ending = {"stop_reason": self.stop_reason} if self.error is None else {"error": self.error}
        return {"content": [_plain(block) for block in self.content], **ending}


def _plain(block: Json) -> Json:
    if block["type"] == "thinking":
        assert block["signature"], f"thinking is always signed: {block}"
        return block | {"signature": None if is_signed(block["signature"]) else block["signature"]}
    if block["type"] != "tool_use":
        return block
    kept = {key: value for key, value in block.items() if key != "partial_json"}
    try:
        return kept | {"input": json.loads(block["partial_json"])}
    except ValueError:
        return kept | {"partial_json": block["partial_json"]}


class ResponsesReader:
    """Puts a stream of Responses together, and holds the deltas against the items and these against the end."""

    def __init__(self, data: bytes) -> None:
        frames = frames_of(data)
        assert all(name == payload["type"] for name, payload in frames)
        payloads: list[Json] = [payload for _, payload in frames]
        assert [payload["sequence_number"] for payload in payloads] == list(range(len(payloads)))
        assert [payload["type"] for payload in payloads[:2]] == ["response.created", "response.in_progress"]
        self.ending: str = payloads[-1]["type"]
        self.response: Json = payloads[-1]["response"]
        added = {one["output_index"]: one["item"] for one in payloads if one["type"] == "response.output_item.added"}
        done = {one["output_index"]: one["item"] for one in payloads if one["type"] == "response.output_item.done"}
        output = self.response["output"]
        assert list(added) == list(range(len(output))), "items are numbered in order"
        assert [item["id"] for item in added.values()] == [item["id"] for item in output]
        assert all(output[place] == item for place, item in done.items()), "an item changed behind its end"
        self.calls: list[list[str]] = []
        for place, item in enumerate(output):
            if item["type"] == "function_call":
                assert added[place]["call_id"] == item["call_id"], "an identifier changed"
                deltas = [
                    one["delta"]
                    for one in payloads
                    if one["type"] == "response.function_call_arguments.delta" and one["output_index"] == place
                ]
                assert "".join(deltas) == item["arguments"]
                self.calls.append([item["call_id"], item["name"], item["arguments"]])
        self.text = "".join(one["delta"] for one in payloads if one["type"] == "response.output_text.delta")
        said = [part["text"] for item in output if item["type"] == "message" for part in item["content"]]
        assert "".join(said) == self.text
