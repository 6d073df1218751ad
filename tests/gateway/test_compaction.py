"""Shortening a conversation: what the model is asked, what the client is answered, and how it goes on."""

from __future__ import annotations

from typing import Any

import pytest
from openai.types.responses import CompactedResponse

from moonshim.engine.prepare import prepare_request
from moonshim.engine.signing import Signer
from moonshim.errors import Refused
from moonshim.gateway.memory.compaction import compaction_response, summary_request
from tests.support.gateway.responses_client import SECRET, TOOL

BODY: dict[str, Any] = {
    "model": "kimi-k2.5",
    "instructions": "You mend code.",
    "tools": [TOOL],
    "input": [
        {"type": "message", "role": "developer", "content": "Be careful."},
        {"role": "user", "content": "Fix the bug."},
        {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Where?"}]},
        {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "read", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "a long file"},
        {"role": "user", "id": "msg_own", "content": [{"type": "input_text", "text": "Quickly."}]},
    ],
    "stream": True,
    "text": {"format": {"type": "json_object"}},
    "tool_choice": "required",
    "max_output_tokens": 5,
    "include": ["reasoning.encrypted_content"],
}
USAGE = {
    "input_tokens": 10,
    "input_tokens_details": {"cached_tokens": 8, "cache_write_tokens": 0},
    "output_tokens": 5,
    "output_tokens_details": {"reasoning_tokens": 1},
    "total_tokens": 15,
}


def response(*texts: str, status: str = "completed") -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": []} for text in texts]
    return {
        "id": "resp_7f",
        "created_at": 12,
        "status": status,
        "output": [
            {"type": "reasoning", "id": "rs_7f_0", "summary": [{"type": "summary_text", "text": "Sum up."}]},
            {"type": "message", "id": "msg_7f_1", "role": "assistant", "content": content},
        ],
        "usage": USAGE,
    }


def test_the_summary_is_asked_for_behind_the_very_conversation_so_that_the_prompt_cache_fits() -> None:
    sent = [
        prepare_request(body, dialect="openai_responses", host="moonshot").body
        for body in (BODY, summary_request(BODY))
    ]
    messages = [body["messages"] for body in sent]
    # The question may be joined to the user's last words, where roles have to alternate.
    kept = len(messages[0]) - 1
    assert messages[1][:kept] == messages[0][:kept]
    assert sent[1]["tools"] == sent[0]["tools"]
    assert sent[1]["tool_choice"] == "none"
    assert "response_format" not in sent[1]
    assert not sent[1].get("stream")
    assert "summary" in str(messages[1][-1]["content"])


def test_the_answer_has_the_users_words_and_one_item_for_the_rest_as_the_openai_package_reads_it() -> None:
    answer = compaction_response(BODY, response("The bug is in line 7."), Signer(SECRET))
    read = CompactedResponse.construct(**answer)
    assert read.object == "response.compaction"
    assert [item.type for item in read.output] == ["message", "message", "compaction"]
    texts = [item["content"][0]["text"] for item in answer["output"][:-1]]
    assert texts == ["Fix the bug.", "Quickly."]
    assert [item["role"] for item in answer["output"][:-1]] == ["user", "user"]
    assert answer["output"][1]["id"] == "msg_own"
    assert read.usage.total_tokens == 15
    assert (read.id, read.created_at) == ("resp_7f", 12)


def test_the_conversation_goes_on_from_the_answer_and_can_be_shortened_again() -> None:
    first = compaction_response(BODY, response("The bug is in line 7."), Signer(SECRET))
    body = {**BODY, "input": [*first["output"], {"role": "user", "content": "And the next?"}]}
    prepared = prepare_request(body, dialect="openai_responses", host="moonshot", secret=SECRET)
    told = str(prepared.body["messages"])
    assert all(said in told for said in ("Fix the bug.", "Quickly.", "The bug is in line 7.", "And the next?"))
    assert "a long file" not in told
    asked = prepare_request(summary_request(body), dialect="openai_responses", host="moonshot", secret=SECRET)
    assert "The bug is in line 7." in str(asked.body["messages"])
    second = compaction_response(body, response("Both are fixed."), Signer(SECRET))
    assert [item["type"] for item in second["output"]] == ["message", "message", "message", "compaction"]


@pytest.mark.parametrize(
    "answer",
    [response(), response(""), response("half a su", status="incomplete")],
    ids=["no text", "empty text", "cut off"],
)
def test_without_a_whole_summary_nothing_is_shortened(answer: dict[str, Any]) -> None:
    with pytest.raises(Refused) as told:
        compaction_response(BODY, answer, Signer(SECRET))
    assert told.value.problem.status == 502


def test_a_bare_question_is_kept_as_a_message() -> None:
    answer = compaction_response({"model": "k3", "input": "hi"}, response("Nothing yet."), Signer(SECRET))
    assert answer["output"][0]["content"] == [{"type": "input_text", "text": "hi"}]
    assert CompactedResponse.construct(**answer).output[0].type == "message"
