"""The mender as its users see it: bytes in and out, repairs, the message, the ending, usage, and clear errors."""

from __future__ import annotations

from typing import Any

import pytest

from moonshim.engine.repair.repair_log import KEPT_REPAIRS
from moonshim.engine.response.stream import Mender
from moonshim.engine.values.conversation import Message, Reasoning, Text, Tool, ToolCall
from moonshim.engine.values.events import Failed, Finished, Repaired
from moonshim.engine.values.options import KimiOptions
from moonshim.errors import InvalidInput, MoonshimError
from tests.support.looped import looped
from tests.support.streams import DONE, Listener, chunk, dump_json, ndjson, parse_payloads, read_chunks, read_sse, sse

CALL = '<|tool_call_begin|>functions.ls:0<|tool_call_argument_begin|>{"a": 1}<|tool_call_end|>'
CLEAN = sse([chunk({"role": "assistant", "content": ""}), chunk({"content": "Hi"}), chunk({}, "stop")])
BROKEN = sse([chunk({"reasoning_content": "Hm"}), chunk({"content": "Hi " + CALL}), chunk({}, "stop")])


def mend(data: bytes, **more: Any) -> tuple[bytes, Mender]:
    mender = Mender(**{"model": "kimi-k2.5", **more})
    return mender.feed(data) + mender.flush(), mender


def heard(data: bytes) -> Listener:
    return read_chunks(parse_payloads(read_sse(data)))


class TestWhatUsersAskFor:
    def test_a_clean_stream_leaves_as_it_came_and_needs_no_repair(self) -> None:
        out, mender = mend(CLEAN)
        assert out == CLEAN
        assert (mender.repairs, mender.repair_counts) == ([], {})
        assert mender.message == Message("assistant", (Text("Hi"),))
        assert mender.ending == Finished("stop", "stop")

    def test_a_broken_stream_is_mended_and_told(self) -> None:
        out, mender = mend(BROKEN)
        (call,) = heard(out)[0].calls
        assert (call.id, call.name, call.arguments) == ("functions.ls:0", "ls", '{"a": 1}')
        assert mender.ending == Finished("tool_calls", "stop")
        assert [repair.rule for repair in mender.repairs] == ["marker_call", "finish_reason"]
        assert mender.repair_counts == {"marker_call": 1, "finish_reason": 1}

    def test_the_message_is_the_answer_in_order(self) -> None:
        reasoning, text, call = mend(BROKEN)[1].message.parts
        assert (reasoning, text) == (Reasoning("Hm"), Text("Hi "))
        assert isinstance(call, ToolCall)
        assert (call.name, call.arguments, call.wire_id) == ("ls", '{"a": 1}', "functions.ls:0")
        assert call.id.startswith("hist_tool_")

    def test_the_message_is_the_answer_so_far(self) -> None:
        mender = Mender(model="kimi-k2.5")
        assert mender.message == Message("assistant")
        mender.feed(sse([chunk({"content": "Hi"})], done=False))
        assert mender.message == Message("assistant", (Text("Hi"),))
        assert mender.ending is None

    def test_the_message_of_a_long_stream_is_whole(self) -> None:
        words = [f"{number} " for number in range(3000)]
        mender = Mender(model="kimi-k2.5")
        for word in words:
            mender.feed(sse([chunk({"content": word})], done=False))
        assert mender.message == Message("assistant", (Text("".join(words)),))

    def test_without_collecting_the_bytes_are_the_same_and_the_message_is_empty(self) -> None:
        out, mender = mend(BROKEN, collect=False)
        assert out == mend(BROKEN)[0]
        assert mender.message == Message("assistant")
        assert mender.ending == Finished("tool_calls", "stop")
        assert mender.repairs

    def test_each_choice_has_its_own_message(self) -> None:
        both = [{"index": index, "delta": {"content": f"answer {index}"}, "finish_reason": "stop"} for index in (0, 1)]
        _, mender = mend(sse([{**chunk({}), "choices": both}]))
        assert mender.message == mender.message_of(0) == Message("assistant", (Text("answer 0"),))
        assert mender.message_of(1) == Message("assistant", (Text("answer 1"),))
        assert mender.message_of(2) == Message("assistant")

    def test_a_repair_names_its_choice(self) -> None:
        second = {"index": 1, "delta": {"content": CALL}, "finish_reason": None}
        _, mender = mend(sse([{**chunk({}), "choices": [second]}]))
        assert {repair.choice for repair in mender.repairs} == {1}

    def test_usage_is_what_the_host_told(self) -> None:
        usage = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
        out, mender = mend(sse([chunk({"content": "Hi"}, "stop"), {**chunk({}), "choices": [], "usage": usage}]))
        assert mender.usage == usage
        assert heard(out).usages == [usage]
        assert mend(CLEAN)[1].usage is None

    def test_repairs_are_bounded_and_all_of_them_counted(self) -> None:
        count = KEPT_REPAIRS + 50
        _, mender = mend(b"data: no json\n\n" * count + CLEAN)
        assert len(mender.repairs) == KEPT_REPAIRS
        assert mender.repair_counts == {"not_json": count}

    def test_what_is_handed_out_is_not_the_mender_s_own(self) -> None:
        _, mender = mend(BROKEN)
        mender.repairs.clear()
        mender.repair_counts.clear()
        assert mender.repairs
        assert mender.repair_counts


class TestInput:
    @pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
    def test_bytes_of_every_kind_are_taken(self, kind: Any) -> None:
        assert mend(kind(BROKEN))[0] == mend(BROKEN)[0]

    @pytest.mark.parametrize("bad", ["data: {}", None, 7, [1], {"choices": []}])
    def test_anything_else_is_an_error_that_says_so_and_loses_nothing(self, bad: Any) -> None:
        mender = Mender(model="kimi-k2.5")
        before = mender.feed(CLEAN[:50])
        with pytest.raises(InvalidInput, match=type(bad).__name__) as caught:
            mender.feed(bad)
        assert isinstance(caught.value, MoonshimError)
        assert before + mender.feed(CLEAN[50:]) + mender.flush() == CLEAN

    @looped("size", [1, 2, 7, 64])
    def test_any_split_of_the_bytes_gives_the_same(self, size: int) -> None:
        mender = Mender(model="kimi-k2.5")
        out = b"".join(mender.feed(BROKEN[at : at + size]) for at in range(0, len(BROKEN), size)) + mender.flush()
        assert heard(out)[0].order == heard(mend(BROKEN)[0])[0].order

    def test_nothing_in_nothing_out(self) -> None:
        mender = Mender(model="kimi-k2.5")
        assert mender.feed(b"") == b""

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("framing", "xml"),
            ("framing", None),
            ("model", None),
            ("model", 7),
            ("tools", "ls"),
            ("tools", {"name": "ls"}),
            ("tools", 7),
            ("history", "hi"),
            ("history", {"role": "user"}),
        ],
    )
    def test_a_bad_argument_is_an_error_that_names_it(self, name: str, value: Any) -> None:
        with pytest.raises(InvalidInput) as caught:
            Mender(**{"model": "kimi-k2.5", name: value})
        assert caught.value.field == name
        assert name in str(caught.value)


class TestTheEnd:
    def test_a_stream_that_just_ends_gets_an_error_and_no_done(self) -> None:
        out, mender = mend(sse([chunk({"content": "Hi"})], done=False))
        assert heard(out)[0].error is not None
        assert not heard(out).done
        assert isinstance(mender.ending, Failed)
        assert mender.ending.retryable

    def test_an_empty_stream_is_an_error(self) -> None:
        out, mender = mend(b"")
        assert heard(out)[0].error is not None
        assert isinstance(mender.ending, Failed)

    def test_a_finish_without_done_gets_one(self) -> None:
        out, mender = mend(sse([chunk({"content": "Hi"}), chunk({}, "stop")], done=False))
        assert heard(out).done
        assert [repair.rule for repair in mender.repairs] == ["missing_done"]

    def test_done_without_a_finish_gets_one(self) -> None:
        out, mender = mend(sse([chunk({"content": "Hi"})]))
        assert heard(out)[0].finish == "stop"
        assert mender.ending == Finished("stop", None)

    def test_flushing_twice_adds_nothing(self) -> None:
        _, mender = mend(sse([chunk({"content": "Hi"})], done=False))
        assert mender.flush() == b""

    def test_what_comes_after_done_passes_as_it_came(self) -> None:
        more = b": bye\n\n"
        assert mend(CLEAN + more)[0] == CLEAN + more

    def test_what_is_fed_after_the_flush_passes_and_is_no_part_of_the_answer(self) -> None:
        frames = [sse([chunk({"content": text})], done=False) for text in "abc"]
        mender = Mender(model="kimi-k2.5")
        mender.feed(frames[0])
        mender.flush()
        assert [mender.feed(frame) for frame in frames[1:]] == frames[1:]
        assert mender.message == Message("assistant", (Text("a"),))

    def test_an_error_of_the_host_passes_and_nothing_is_added(self) -> None:
        data = sse([chunk({"content": "Hi"})], done=False) + sse([{"error": {"message": "No.", "code": "busy"}}])
        out, mender = mend(data)
        assert out == data
        assert mender.ending == Failed("busy", "No.")

    def test_an_error_of_the_host_that_names_a_choice_nobody_saw_passes_alone(self) -> None:
        data = sse([{"error": {"message": "No.", "code": "busy", "choice": 1}}], done=False)
        out, mender = mend(data)
        assert out == data
        assert mender.ending == Failed("busy", "No.")

    def test_a_stream_that_is_not_ours_passes_without_an_error_of_ours(self) -> None:
        data = b'data: {"type": "ping"}\n\ndata: hello\n\n'
        out, mender = mend(data)
        assert out == data
        assert [repair.rule for repair in mender.repairs] == ["not_a_chunk", "not_json"]


class TestFraming:
    def test_other_lines_of_an_event_stay_with_the_first_chunk(self) -> None:
        data = b"event: message\nid: 7\ndata: %b\n\n" % dump_json(chunk({"content": "Hi " + CALL}))
        out, _ = mend(data + sse([chunk({}, "stop")]))
        assert out.startswith(b"event: message\nid: 7\ndata: ")
        assert out.count(b"event: message") == 1

    def test_comments_keep_their_place(self) -> None:
        data = b": hello\n\n" + CLEAN[: len(CLEAN) // 2]
        assert mend(data)[0].startswith(b": hello\n\n")

    @pytest.mark.parametrize(
        ("data", "fault"),
        [
            (CLEAN.replace(b"data: ", b"data:"), "data_without_space"),
            (CLEAN.replace(b"\n", b"\r\n"), "line_endings"),
            (CLEAN.replace(b"\n", b"\r"), "line_endings"),
            (b"\xef\xbb\xbf" + CLEAN, "byte_order_mark"),
            (CLEAN[:-2], "unterminated"),
        ],
    )
    def test_a_fault_of_the_framing_is_put_right_and_told_once(self, data: bytes, fault: str) -> None:
        out, mender = mend(data)
        assert parse_payloads(read_sse(out)) == parse_payloads(read_sse(CLEAN))
        assert mender.repairs == [Repaired("framing", fault)]

    def test_done_with_white_space_is_done(self) -> None:
        out, _ = mend(CLEAN.replace(b"[DONE]", b" [DONE] "))
        assert read_sse(out)[-1] == DONE


class TestNdjson:
    CLEAN = ndjson([chunk({"content": "Hi"}), chunk({}, "stop")])

    def test_a_clean_stream_leaves_as_it_came(self) -> None:
        out, mender = mend(self.CLEAN, framing="ndjson")
        assert out == self.CLEAN
        assert mender.repairs == []

    def test_a_broken_stream_stays_ndjson(self) -> None:
        out, mender = mend(ndjson([chunk({"content": CALL}), chunk({}, "stop")]), framing="ndjson")
        found = read_chunks(parse_payloads(out.decode().splitlines()))
        assert [call.name for call in found[0].calls] == ["ls"]
        assert (found[0].finish, found.done) == ("tool_calls", False)
        assert mender.ending == Finished("tool_calls", "stop")

    def test_a_stream_that_just_ends_gets_an_error_line(self) -> None:
        out, _ = mend(ndjson([chunk({"content": "Hi"})]), framing="ndjson")
        *_, last = parse_payloads(out.decode().splitlines())
        assert last["error"]["retryable"] is True

    def test_a_last_line_without_its_end_gets_it(self) -> None:
        assert mend(self.CLEAN[:-1], framing="ndjson")[0] == self.CLEAN


class TestWhatTheRequestSaid:
    def test_tools_may_be_dicts_or_values(self) -> None:
        plain = {"type": "function", "function": {"name": "ls", "parameters": {"type": "object"}}}
        assert mend(BROKEN, tools=[plain])[0] == mend(BROKEN, tools=(one for one in [Tool("ls")]))[0]

    def test_history_may_be_dicts_or_values(self) -> None:
        plain = {
            "role": "assistant",
            "tool_calls": [{"id": "functions.ls:4", "type": "function", "function": {"name": "ls"}}],
        }
        value = Message("assistant", (ToolCall("hist_tool_1", "ls", "{}", "functions.ls:4"),))
        assert mend(BROKEN, history=[plain])[0] == mend(BROKEN, history=[value])[0]

    @pytest.mark.parametrize("no", [{"tools": []}, {"tool_choice": "none"}, {"tool_choice": {"type": "none"}}])
    def test_without_tools_markers_are_text(self, no: dict[str, Any]) -> None:
        assert heard(mend(BROKEN, **no)[0])[0].content == "Hi " + CALL

    def test_without_options_a_model_that_is_no_kimi_is_passed_through(self) -> None:
        assert mend(BROKEN, model="gpt-4o")[0] == BROKEN

    def test_with_options_any_model_is_mended(self) -> None:
        out, _ = mend(BROKEN, model="my-finetune", options=KimiOptions.mending())
        assert heard(out)[0].calls

    def test_plain_options_leave_markers_alone(self) -> None:
        assert mend(BROKEN, options=KimiOptions())[0] == BROKEN


def test_the_old_names_of_its_attributes_still_work_and_warn() -> None:
    mender = Mender(model="kimi-k2.5", may_retry=True)
    mender.feed(b'data: {"choices": [{"index": 0, "delta": {"reasoning_content": "Hm"}, "finish_reason": "stop"}]}\n\n')
    with pytest.warns(DeprecationWarning, match="normalized_usage"):
        assert mender.counted == mender.normalized_usage
    with pytest.warns(DeprecationWarning, match="start_retry"):
        mender.again()
    with pytest.warns(DeprecationWarning, match="feed_body"), pytest.raises(InvalidInput):
        mender.whole({})
