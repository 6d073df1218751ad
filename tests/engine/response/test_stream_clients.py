"""What a client of Chat is spared, where its request was prepared: events that its package would stumble over."""

from __future__ import annotations

import moonshim
from moonshim import Mender


class TestClientsThatWouldStumble:
    """Where the request was prepared there is a client: it gets nothing that its package cannot read."""

    @staticmethod
    def mended(*events: bytes) -> tuple[bytes, dict[str, int]]:
        body = {"model": "kimi-k2.5", "messages": [{"role": "user", "content": "Hi"}], "stream": True}
        options = {"stream_options": {"include_usage": True}}
        prepared = moonshim.prepare_request(body | options, dialect="openai_chat", host="vllm")
        mender = Mender(plan=prepared.plan)
        out = b"".join(mender.feed(b"data: " + event + b"\n\n") for event in events) + mender.flush()
        return out, mender.repair_counts

    SAID = b'{"object":"chat.completion.chunk","choices":[{"index":0,"delta":{"role":"assistant","content":"Hi"}}]}'
    OVER = b'{"object":"chat.completion.chunk","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}'

    def test_words_that_are_no_json_and_empty_events_do_not_reach_it(self) -> None:
        out, told = self.mended(self.SAID, b"Internal Server Error", b"", self.OVER, b"[DONE]")
        assert b"Internal" not in out
        assert b"data: \n" not in out
        assert out.endswith(b"data: [DONE]\n\n")
        assert told["not_json"] == 2

    def test_a_named_event_without_data_does_not_reach_it_and_a_comment_does(self) -> None:
        body = {"model": "kimi-k2.5", "messages": [{"role": "user", "content": "Hi"}], "stream": True}
        mender = Mender(plan=moonshim.prepare_request(body, dialect="openai_chat", host="vllm").plan)
        assert mender.feed(b"event: ping\n\n: still here\n\n") == b": still here\n\n"

    def test_an_answer_that_ends_behind_such_words_is_an_error(self) -> None:
        out, _ = self.mended(self.SAID, b"Internal Server Error")
        assert b'"error"' in out
        assert b"tool_calls" not in out

    def test_a_chunk_of_usage_has_choices(self) -> None:
        usage = b'{"object":"chat.completion.chunk","usage":{"prompt_tokens":3,"completion_tokens":1,"total_tokens":4}}'
        out, told = self.mended(self.SAID, self.OVER, usage, b"[DONE]")
        assert b'"choices":[]' in out
        assert told == {"choices_missing": 1}

    def test_a_role_that_every_chunk_tells_is_told_once(self) -> None:
        more = [self.SAID.replace(b"Hi", word) for word in (b" there", b", ", b"you")]
        out, told = self.mended(self.SAID, *more, self.OVER, b"[DONE]")
        assert out.count(b'"role":"assistant"') == 1
        assert all(word in out for word in (b"Hi", b" there", b"you"))
        assert told == {"role_repeated": 1}
