"""The fast path sends what the slow path sends, and takes what it can; all else is left to the slow path."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pytest

from moonshim import Mender
from moonshim.engine.plan import plan_for
from moonshim.engine.prepare import prepare_request
from moonshim.engine.response.fast_path import FastPath
from moonshim.engine.response.reply import read_reply
from moonshim.engine.values.conversation import Request
from moonshim.engine.values.events import BlockDelta, Event
from moonshim.engine.wire.sse import render_sse
from moonshim.errors import Problem
from tests.laws.scripts import Setting
from tests.laws.test_fast_path import (
    CHAT_ROUTES,
    MESSAGES_ROUTES,
    TRANSLATED_ROUTES,
    Reading,
    Route,
    events,
    same,
    taken,
)
from tests.support.looped import looped
from tests.support.streams import chunk, dump_json, split_bytes, split_text

CHAT_HOST: Final = CHAT_ROUTES + TRANSLATED_ROUTES
TO_MESSAGES: Final = Route("openai_chat", "anthropic")
PLAIN: Final = Setting(tools="unknown")


CALL = '<|tool_call_begin|>functions.ls:0<|tool_call_argument_begin|>{"a": "b c", "d": [1]}<|tool_call_end|>'


def texts(*pieces: str, field: str = "content") -> list[dict[str, Any]]:
    return [chunk({field: piece}) for piece in pieces]


def grown(*texts: str) -> list[dict[str, Any]]:
    return [chunk({"tool_calls": [{"index": 0, "function": {"arguments": text}}]}) for text in texts]


def native(index: int, arguments: str, *, id: str, name: str | None = None) -> dict[str, Any]:
    function = {"arguments": arguments} | ({} if name is None else {"name": name})
    return chunk({"tool_calls": [{"index": index, "id": id, "type": "function", "function": function}]})


HEADER = chunk(
    {
        "tool_calls": [
            {"index": 0, "id": "functions.ls:0", "type": "function", "function": {"name": "ls", "arguments": ""}}
        ]
    }
)
STREAMS: dict[str, list[dict[str, Any]]] = {
    "text": texts("One", " two", " three", " é😀", ' "four"', "\n"),
    "text that ends like a marker": texts("a", "b <", "b", "<|", "tool", "_x", " <|tool_call", " done", "<"),
    "text that ends like a bare header": texts("I", " read", "_file", " and", " ls", ":0", " again", "read"),
    "text with a long tail that is no marker": texts("a", "b", *"<|tool_calls_section_begin|x"),
    "reasoning, then text": [*texts("H", "m", "!", field="reasoning_content"), *texts("Y", "e", "s")],
    "text, then reasoning": [*texts("Y", "e", "s <"), *texts("H", "m", "!", field="reasoning")],
    "a call in markers": texts("I ", "run", " it ", *split_text(CALL, 4), " now", "."),
    "a call in markers, with one marker a chunk": texts("I run", " it ", CALL[:19], *split_text(CALL[19:], 30), " now"),
    "a call in markers within reasoning": texts(
        "I ", "run", " it ", *split_text(CALL, 4), " now", field="reasoning_content"
    ),
    "a call in markers whose arguments are mended": texts("I", " run", *split_text(CALL.replace("b c", "b\nc\\q"), 3)),
    "native arguments": [HEADER, *grown("{", '"a"', ': "', "b c", " d", '"', "}")],
    "native arguments that are mended": [
        HEADER,
        *grown("{", '"a"', ': "', "b\nc", "\\", "q", "\\u00", "e9", '"}', "junk"),
    ],
    "native arguments, then text": [HEADER, *grown("{", '"a":', " 1", "}"), *texts("Done", ".")],
    "empty texts between": texts("a", "", "b", "", "", "c"),
    "halves of a character": texts("a", "b", "c\ud83d", "\ude00", "d", "\ud83d", "e"),
    "an empty object of one of two native calls, then text, then more of it": [
        *texts("a", "b"),
        *(native(at, "", id=f"c{at}", name="ls") for at in (0, 1)),
        native(0, "{}", id="c0"),
        *texts("c", "d"),
        native(0, '{"a": 1}', id="c0"),
        *texts("e"),
    ],
    "chunks of many shapes": [
        chunk({"content": "a"}, number=number) if number % 3 else chunk({"content": "b", "number": number})
        for number in range(80)
    ],
    "a field that changes its place": [
        *texts("a", "b"),
        *({**one, "id": "other"} for one in texts("c", "d")),
        *texts("e"),
    ],
}
STREAMS = {case: [*chunks, chunk({}, "stop")] for case, chunks in STREAMS.items()}
TOOLS = [{"type": "function", "function": {"name": name}} for name in ("ls", "read_file")]


def framed(chunks: Sequence[dict[str, Any]], *, done: bool = True) -> list[bytes]:
    return [render_sse(dump_json(one)) for one in chunks] + ([b"data: [DONE]\n\n"] if done else [])


def details(text: str) -> list[dict[str, Any]]:
    return [{"type": "reasoning.encrypted", "index": 0, "data": text}]


ODD: Final[dict[str, list[Any]]] = {
    "text beside entries that are put together": [
        chunk({"content": piece, "reasoning_details": details("same")}) for piece in "abcd"
    ],
    "reasoning beside a refusal": [chunk({"reasoning": piece, "refusal": "No."}) for piece in "abcd"],
    "text beside a refusal": [chunk({"content": piece, "refusal": "No."}) for piece in "abcd"],
    "reasoning in a field to remember, around text that is none": [
        *texts("H", "m", " so", field="reasoning"),
        *texts("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"),
        *texts(" it", " is", " so", field="reasoning"),
        *texts("Yes", " it", " is"),
    ],
    "reasoning in a field to remember, around text that is none, with usage": [
        *texts("H", "m", " so", field="reasoning"),
        {**texts("<|tool_calls_section_begin|>")[0], "usage": {"total_tokens": 3}},
        {**texts("<|tool_calls_section_end|>")[0], "usage": {"total_tokens": 4}},
        *texts(" it", " is", " so", field="reasoning"),
        *texts("Yes", " it", " is"),
    ],
    "another choice": [
        {"choices": [{"index": 1, "delta": {"content": piece}, "finish_reason": None}]} for piece in "abcd"
    ],
    "text behind the end": [*texts("a", "b"), chunk({}, "stop"), *texts("c", "d", "e")],
    "an error of another shape in every chunk": [{**one, "error": {"message": "no"}} for one in texts("a", "b", "c")],
    "usage that comes late": [*texts("a", "b"), {**texts("c")[0], "usage": {"total_tokens": 3}}, *texts("d", "e")],
    "texts in turn": [
        *(one for pair in zip(texts(*"abcd"), texts(*"efgh", field="reasoning"), strict=True) for one in pair)
    ],
    "a call within a thought, and its like once more": [
        *texts("I", " think", *split_text(CALL, 5), " so", " far", field="reasoning_content"),
        *texts("I", " run", *split_text(CALL, 5), " now"),
    ],
    "two native calls in turn": [
        chunk({"tool_calls": [{"index": at, "id": f"c{at}", "type": "function", "function": {"name": "ls"}}]})
        for at in (0, 1)
    ]
    + [
        chunk({"tool_calls": [{"index": at, "function": {"arguments": piece}}]})
        for piece in ('{"a"', ": ", '"b', "c", 'd"')
        for at in (0, 0, 1, 1)
    ],
}


@pytest.mark.parametrize("case", [*STREAMS, *ODD])
@looped("route", CHAT_HOST)
def test_both_paths_send_the_same_however_the_bytes_come(case: str, route: Route) -> None:
    frames = framed(STREAMS.get(case) or [*ODD[case], chunk({}, "stop")])
    plan = route.plan(Setting())
    slow = Reading(plan, frames, fast_path=False)
    same(plan, frames, exact=route.is_exact)
    for pieces in ([b"".join(frames)], split_bytes(b"".join(frames), 7), split_bytes(b"".join(frames), 600)):
        fast = Reading(plan, pieces)
        assert fast.data == slow.data if route.is_exact else events(fast.data) == events(slow.data)
        assert fast.known == slow.known
    uncollected = Reading(plan, frames, collect=False)
    assert uncollected.data == slow.data if route.is_exact else events(uncollected.data) == events(slow.data)


@pytest.mark.parametrize("case", STREAMS)
def test_both_paths_send_the_same_lines_of_json(case: str) -> None:
    lines = [dump_json(one) + b"\n" for one in STREAMS[case]]
    plan = plan_for(model="kimi-k2.5", tools=TOOLS)
    expected = same(plan, lines, exact=True, framing="ndjson")
    for pieces in ([b"".join(lines)], split_bytes(b"".join(lines), 5)):
        fast = Reading(plan, pieces, framing="ndjson")
        assert (fast.data, fast.known) == (expected.data, expected.known)


@pytest.mark.parametrize(
    "case",
    [
        "text",
        "text that ends like a marker",
        "text that ends like a bare header",
        "native arguments",
        "empty texts between",
    ],
)
def test_a_clean_stream_is_identical_on_both_sides(case: str) -> None:
    chunks = STREAMS[case]
    if case == "native arguments":
        chunks = [*chunks[:-1], chunk({}, "tool_calls")]
    mender = Mender(model="kimi-k2.5", tools=TOOLS, collect=False)
    out = b"".join([*map(mender.feed, framed(chunks)), mender.flush()])
    assert out == b"".join(framed(chunks))
    assert mender.repairs == []


# -- which frames take it ---------------------------------------------------------------------------------------------


def recorded(frames: Sequence[bytes]) -> Reading:
    return Reading(plan_for(model="kimi-k2.5"), frames)


def test_one_frame_is_enough_to_know_the_next() -> None:
    frames = framed(texts("a", "b"), done=False)
    assert taken(lambda: recorded(frames[:1])) == 0
    assert taken(lambda: recorded(frames)) == 1


def test_frames_that_come_together_take_the_fast_path_as_well() -> None:
    frames = framed(texts(*"abcdefgh"), done=False)
    data = b"".join(frames)
    assert taken(lambda: recorded([data[:300], data[300:]])) == len(frames) - 1


def test_without_the_fast_path_no_frame_takes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def must_not(*_: Any) -> None:
        raise AssertionError("the fast path was taken")

    monkeypatch.setattr(FastPath, "take", must_not)
    frames = framed([*texts(*"abcd"), chunk({}, "stop")])
    assert Reading(plan_for(model="kimi-k2.5"), frames, fast_path=False).data == b"".join(frames)


def test_a_frame_after_half_a_line_is_part_of_that_line() -> None:
    frames = framed(texts("a", "b", "c"), done=False)
    pieces = [*frames, b"data: ", frames[0], frames[1]]
    reading = same(plan_for(model="kimi-k2.5"), pieces, exact=True)
    assert "not_json" in [repair.rule for repair in reading.repairs]


def test_a_frame_that_is_too_large_is_refused_whatever_its_shape() -> None:
    plan = prepare_request({"model": "m", "messages": [{"role": "user", "content": "hi"}]}, host="vllm").plan
    mender = Mender(plan=plan, limit=1000)
    mender.feed(render_sse(dump_json(chunk({"content": "a"}, model="m"))))
    out = mender.feed(render_sse(dump_json(chunk({"content": "a" * 1000}, model="m"))))
    assert b"event_too_large" in out
    assert mender.problem is not None


def test_when_no_two_chunks_are_alike_learning_stops() -> None:
    different = framed([chunk({"content": "a"}, number=number) for number in range(100)], done=False)
    alike = framed(texts(*"abcd"), done=False)
    assert taken(lambda: recorded(alike)) == 3
    assert taken(lambda: recorded([*different, *alike])) == 0


@pytest.mark.parametrize("form", [b"data:%b\n\n", b"data: %b\r\n\r\n", b"data: %b\n"])
def test_frames_with_a_fault_do_not(form: bytes) -> None:
    frames = [form % dump_json(one) for one in texts(*"abcd")]
    assert taken(lambda: recorded(frames)) == 0
    same(plan_for(model="kimi-k2.5"), frames, exact=True)


@pytest.mark.parametrize("route", CHAT_HOST, ids=str)
def test_a_comment_does_not_close_the_path(route: Route) -> None:
    frames = framed(texts(*"abcd"), done=False)
    frames[2:2] = [b": still here\n\n"]
    assert taken(lambda: Reading(route.plan(PLAIN), frames)) == 3
    same(route.plan(PLAIN), frames, exact=True)


def test_a_stream_with_stages_takes_the_slow_path() -> None:
    class Loud:
        def feed(self, event: Event) -> list[Event]:
            return [BlockDelta(event.index, event.text.upper())] if isinstance(event, BlockDelta) else [event]

        def flush(self) -> list[Event]:
            return []

    class Shouting:
        def prepare(self, request: Request) -> Request:
            return request

        def stages(self, plan: Any) -> list[Any]:
            return [Loud()]

    plan = TO_MESSAGES.plan(PLAIN)
    plan._transformers = (Shouting(),)
    out: list[bytes] = []
    frames = framed([*texts(*"abcd"), chunk({}, "stop")])
    assert taken(lambda: out.append(Reading(plan, frames).data)) == 0
    assert "".join(payload["delta"]["text"] for _, payload in events(out[0]) if "text" in payload.get("delta", {})) == (
        "ABCD"
    )


# -- what leaves ------------------------------------------------------------------------------------------------------


BETWEEN: Final = (
    b"\\ud83d",
    b"\\ude00",
    b"\\q",
    b"\n",
    b"\x01",
    b"\xff",
    b'x", "content": "y',
    b"",
    b"\\u00e9 \\/ \\u0000",
)


@pytest.mark.parametrize("between", BETWEEN)
@looped("route", CHAT_HOST)
def test_what_stands_in_the_place_of_a_text_may_be_anything(between: bytes, route: Route) -> None:
    frames = framed(texts(*"abcd"), done=False)
    odd = frames[0].replace(b'"a"', b'"%b"' % between)
    same(route.plan(PLAIN), [*frames, odd, *frames, odd, odd, *frames], exact=route.is_exact)


def test_the_text_leaves_in_the_bytes_of_its_host() -> None:
    mender = Mender(plan=TO_MESSAGES.plan(PLAIN))
    frames = framed(texts(*"ab"), done=False)
    for frame in frames:
        mender.feed(frame)
    out = mender.feed(frames[0].replace(b'"a"', b'"\\u00e9 \\/ \xc3\xa9"'))
    assert out == (
        b"event: content_block_delta\n"
        b'data: {"type":"content_block_delta","index":0,'
        b'"delta":{"type":"text_delta","text":"\\u00e9 \\/ \xc3\xa9"}}\n\n'
    )


def test_where_frames_pass_through_one_whose_end_is_undecided_leaves_with_the_one_that_decides() -> None:
    frames = framed(texts("a", "b<", "c"), done=False)
    sent: list[Reading] = []
    assert taken(lambda: sent.append(recorded(frames))) == 2
    assert sent[0].sent[:3] == [frames[0], b"", frames[1] + frames[2]]


def test_where_text_is_translated_only_its_undecided_end_waits() -> None:
    pieces = ("a", "b <", "|", "x", " <", "d")
    frames, plan = framed(texts(*pieces), done=False), TO_MESSAGES.plan(PLAIN)
    assert taken(lambda: Reading(plan, frames)) == len(pieces) - 1
    steps = Reading(plan, frames).steps
    sent = ["".join(payload["delta"].get("text", "") for _, payload in step if "delta" in payload) for step in steps]
    assert sent[:-1] == ["a", "b ", "", "<|x", " ", "<d"]


@pytest.mark.parametrize("route", CHAT_ROUTES[1:] + TRANSLATED_ROUTES, ids=str)
def test_a_second_response_continues_the_first(route: Route) -> None:
    thought = framed([*texts("H", "m", ".", field="reasoning_content"), chunk({}, "stop")])
    answer = framed([*texts("H", "m", "!", field="reasoning_content"), *texts("Y", "e", "s <"), chunk({}, "stop")])

    def read_both(*, fast_path: bool = True) -> tuple[list[Any], Any, Any]:
        mender = Mender(plan=route.plan(PLAIN), may_retry=True, fast_path=fast_path)
        out = b"".join(map(mender.feed, thought))
        mender.start_retry()
        out += b"".join([*map(mender.feed, answer), mender.flush()])
        return events(out), mender.message, mender.ending

    if route in TRANSLATED_ROUTES:
        assert taken(read_both) == 6
    assert read_both() == read_both(fast_path=False)


@pytest.mark.parametrize("route", CHAT_ROUTES[1:] + TRANSLATED_ROUTES, ids=str)
def test_a_response_that_is_collected_is_the_same_by_both_paths(route: Route, monkeypatch: pytest.MonkeyPatch) -> None:
    frames = framed(
        [*texts("H", "m", field="reasoning_content"), *texts("I", " run", *split_text(CALL, 4)), chunk({}, "stop")]
    )

    def whole() -> tuple[bytes, Any]:
        reading = read_reply(route.plan(Setting()), input_format="sse", output_format="json")
        assert b"".join(map(reading.feed, frames)) == b""
        return reading.flush(), reading.message

    assert taken(whole) > 10
    fast = whole()
    monkeypatch.setattr(FastPath, "settle", lambda self, *, is_idle: None)
    assert whole() == fast


def test_a_response_that_breaks_off_ends_after_what_took_the_fast_path() -> None:
    mender = Mender(plan=Route("openai_chat", "openai_responses").plan(PLAIN))
    out = b"".join(map(mender.feed, framed(texts("a", "b", "c <"), done=False)))
    out += mender.fail(Problem(status=502, kind="server", message="gone"))
    numbers = [payload["sequence_number"] for _, payload in events(out)]
    assert numbers == list(range(len(numbers)))
    (done,) = [payload["text"] for _, payload in events(out) if payload["type"] == "response.output_text.done"]
    assert done == "abc <"
    assert mender.feed(framed(texts("d"))[0]) == b""


# -- hosts that speak Messages ----------------------------------------------------------------------------------------


def delta_event(index: int, **delta: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": delta}


def start_event(index: int, **block: Any) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": block}


BETWEEN_BLOCKS: Final[dict[str, list[dict[str, Any]]]] = {
    "a marker that goes on over the end of a block": [
        start_event(0, type="text", text=""),
        *(delta_event(0, type="text_delta", text=text) for text in ("a", "b", "c", " <|tool_calls")),
        {"type": "content_block_stop", "index": 0},
        start_event(1, type="text", text=""),
        *(
            delta_event(1, type="text_delta", text=text)
            for text in ("_section_begin|>", "<|tool_calls_section_end|>", "d")
        ),
        *(delta_event(1, type="text_delta", text=text) for text in "efg"),
        {"type": "content_block_stop", "index": 1},
    ],
    "a block that begins anew as one that nobody knows": [
        start_event(0, type="text", text=""),
        *(delta_event(0, type="text_delta", text=text) for text in "abc"),
        start_event(0, type="server_tool_use", id="s", name="x"),
        *(delta_event(0, type="text_delta", text=text) for text in "def"),
        {"type": "content_block_stop", "index": 0},
    ],
}


@pytest.mark.parametrize("case", BETWEEN_BLOCKS)
@looped("route", MESSAGES_ROUTES)
def test_both_paths_send_the_same_of_blocks_that_belong_together_or_do_not(case: str, route: Route) -> None:
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "k", "content": []}
    ending: list[dict[str, Any]] = [
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}},
        {"type": "message_stop"},
    ]
    payloads: list[dict[str, Any]] = [{"type": "message_start", "message": message}, *BETWEEN_BLOCKS[case], *ending]
    frames = [render_sse(dump_json(one), b"event: %b\n" % one["type"].encode()) for one in payloads]
    same(route.plan(PLAIN), frames, exact=route.is_exact)
