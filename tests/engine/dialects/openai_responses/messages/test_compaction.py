"""Summaries that stand for what was said: ours are read as text, those of others are told, none is a crash."""

from __future__ import annotations

from typing import Any

import pytest

from moonshim.engine.dialects.openai_responses.messages.compaction import render_compaction
from moonshim.engine.prepare import prepare_request
from moonshim.engine.signing import InvalidSignature, SignedPayload, Signer

SECRET = b"secret"
SUMMARY = "They want the bug in `parse` fixed. – It is in line 7."


def messages_of(item: dict[str, Any], secret: bytes = SECRET) -> tuple[list[dict[str, Any]], list[tuple[str, Any]]]:
    """What a Chat host is sent of a conversation that goes on from a summary, and what it is not."""
    body = {
        "model": "kimi-k2.5",
        "input": [{"role": "user", "content": "Fix it."}, item, {"role": "user", "content": "Go on."}],
    }
    prepared = prepare_request(body, dialect="openai_responses", host="moonshot", secret=secret)
    changes = [(change.rule, change.place) for change in prepared.changes]
    return prepared.body["messages"], changes


@pytest.mark.parametrize("type", ["compaction", "compaction_summary"])
def test_a_summary_of_ours_is_read_where_it_stands(type: str) -> None:
    item = {**render_compaction(SUMMARY, Signer(SECRET), "cmp_1"), "type": type}
    messages, changes = messages_of(item)
    text = "\n".join(message["content"] for message in messages)
    assert [message["role"] for message in messages] == ["user"] * len(messages)
    assert text.index("Fix it.") < text.index(SUMMARY) < text.index("Go on.")
    assert not {"cannot_say", "seal_unknown"} & {rule for rule, _ in changes}


FOREIGN: dict[str, dict[str, Any]] = {
    "of another host": {"type": "compaction", "id": "cmp_1", "encrypted_content": "gAAAAABo"},
    "without content": {"type": "compaction", "id": "cmp_1"},
    "with content of another type": {"type": "compaction", "encrypted_content": {"a": 1}},
    "with nothing in it": {"type": "compaction", "encrypted_content": None},
}


@pytest.mark.parametrize("item", FOREIGN.values(), ids=FOREIGN.keys())
def test_a_summary_that_we_cannot_read_is_left_out_and_told(item: dict[str, Any]) -> None:
    messages, changes = messages_of(item)
    assert "gAAAAABo" not in str(messages)
    assert ("cannot_say", "input[1]") in changes


def test_a_summary_under_another_key_is_left_out_and_told_with_the_key() -> None:
    messages, changes = messages_of(render_compaction(SUMMARY, Signer(b"another"), "cmp_1"))
    assert SUMMARY not in str(messages)
    assert ("seal_unknown", "input[1].encrypted_content") in changes


def test_a_summary_of_ours_that_was_altered_is_refused() -> None:
    item = render_compaction(SUMMARY, Signer(SECRET), "cmp_1")
    item["encrypted_content"] = item["encrypted_content"][:-6] + "AAAAAA"
    with pytest.raises(InvalidSignature, match="altered: send it back as received, or remove it"):
        messages_of(item)


@pytest.mark.parametrize("sealed", [SignedPayload(signature="abc"), SignedPayload(text="I was told to obey.")])
def test_a_thought_is_no_summary(sealed: SignedPayload) -> None:
    token = Signer(SECRET).sign(sealed)
    with pytest.raises(InvalidSignature, match="cannot be used as summary") as told:
        messages_of({"type": "compaction", "encrypted_content": token})
    assert told.value.field == "input[1].encrypted_content"


def test_a_summary_is_no_thought() -> None:
    token = render_compaction(SUMMARY, Signer(SECRET), "cmp_1")["encrypted_content"]
    with pytest.raises(InvalidSignature, match="cannot be used as reasoning") as told:
        messages_of({"type": "reasoning", "summary": [], "encrypted_content": token})
    assert told.value.field == "input[1].encrypted_content"
    block = {"type": "thinking", "thinking": "", "signature": token}
    said = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": [block]}]
    body = {"model": "kimi-k2.5", "max_tokens": 9, "messages": [*said, {"role": "user", "content": "Go on."}]}
    with pytest.raises(InvalidSignature, match="cannot be used as reasoning"):
        prepare_request(body, dialect="anthropic", host="moonshot", secret=SECRET)


def test_a_summary_with_half_a_character_is_read() -> None:
    messages, _ = messages_of(render_compaction("A face: \ud83d", Signer(SECRET), "cmp_1"))
    assert any("A face: " in message["content"] for message in messages)
