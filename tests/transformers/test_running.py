"""Transformers at work: on requests before they are made right, on answers after they are mended, in every dialect."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest
from msgspec.structs import replace

from moonshim import Mender, mend_response
from moonshim.engine.prepare import Prepared, prepare_request, read_request
from moonshim.engine.response.reply import Form, read_reply
from moonshim.engine.stages import Stage, Transformer, TransformerFailed
from moonshim.engine.values.conversation import Message, Reasoning, Request, Text, ToolCall
from moonshim.engine.values.events import BlockDelta, Event, Failed, Finished
from moonshim.errors import InvalidInput, Problem, Refused, problem_of
from tests.support.streams import chunk, sse
from tests.transformers.plugged import Passing, Saying, Staged

Json = dict[str, Any]
DIALECTS: Final = ("openai_chat", "anthropic", "openai_responses")
UPSTREAMS: Final = ("openai_chat", "anthropic")
PAIRS: Final = [(client, upstream) for client in DIALECTS for upstream in UPSTREAMS]


def body(dialect: str, **more: Any) -> Json:
    asked: Json = {"model": "kimi-k2.5", **more}
    if dialect == "openai_responses":
        return asked | {"input": [{"role": "user", "content": "hi"}]}
    asked |= {"max_tokens": 99} if dialect == "anthropic" else {}
    return asked | {"messages": [{"role": "user", "content": "hi"}]}


def prepared(dialect: str, upstream: str, *transformers: Transformer) -> Prepared:
    host = "moonshot" if upstream == "openai_chat" else "moonshot-anthropic"
    return prepare_request(body(dialect), dialect=dialect, upstream=upstream, host=host, transformers=transformers)


CALL: Final = {"id": "functions.ls:0", "type": "function", "function": {"name": "ls", "arguments": '{"a":1}'}}
CHAT: Final = sse(
    [
        chunk({"role": "assistant", "reasoning_content": "Hm."}),
        chunk({"content": "Let me "}),
        chunk({"content": "look."}),
        chunk({"tool_calls": [{"index": 0, **CALL}]}),
        chunk({}, finish="tool_calls"),
    ]
)


def _messages() -> bytes:
    def block(index: int, start: Json, *deltas: Json) -> list[Json]:
        return [
            {"type": "content_block_start", "index": index, "content_block": start},
            *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
            {"type": "content_block_stop", "index": index},
        ]

    usage = {"input_tokens": 3, "output_tokens": 1}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "k", "content": [], "usage": usage}
    payloads = [
        {"type": "message_start", "message": message},
        *block(
            0,
            {"type": "thinking", "thinking": "", "signature": ""},
            {"type": "thinking_delta", "thinking": "Hm."},
            {"type": "signature_delta", "signature": "c2ln"},
        ),
        {"type": "ping"},
        *block(
            1,
            {"type": "text", "text": ""},
            {"type": "text_delta", "text": "Let me "},
            {"type": "text_delta", "text": "look."},
        ),
        *block(
            2,
            {"type": "tool_use", "id": "functions.ls:0", "name": "ls", "input": {}},
            {"type": "input_json_delta", "partial_json": '{"a":1}'},
        ),
        {"type": "message_delta", "delta": {"stop_reason": "tool_use", "stop_sequence": None}, "usage": usage},
        {"type": "message_stop"},
    ]
    return b"".join(b"event: %b\ndata: %b\n\n" % (one["type"].encode(), json.dumps(one).encode()) for one in payloads)


STREAMS: Final = {"openai_chat": CHAT, "anthropic": _messages()}


def heard(plan: Any, data: bytes, size: int = 10_000) -> tuple[bytes, Mender]:
    mender = Mender(plan=plan)
    out = b"".join(mender.feed(data[at : at + size]) for at in range(0, len(data), size))
    return out + mender.flush(), mender


def payloads(out: bytes) -> list[Json]:
    lines = [line.removeprefix("data: ") for line in out.decode().splitlines() if line.startswith("data: {")]
    return [json.loads(line) for line in lines]


def texts(message: Message) -> list[str]:
    return [part.text for part in message.parts if isinstance(part, (Text, Reasoning))]


class TestAnswers:
    @pytest.mark.parametrize(("client", "upstream"), PAIRS)
    def test_stages_that_pass_everything_change_nothing(self, client: str, upstream: str) -> None:
        plain, staged = prepared(client, upstream), prepared(client, upstream, Staged(Passing, Passing))
        assert staged.plan.translates
        expected, mender = heard(plain.plan, STREAMS[upstream])
        out, other = heard(staged.plan, STREAMS[upstream])
        assert other.message == mender.message
        assert other.ending == mender.ending or client == upstream == "openai_chat"
        if client != upstream or client == "anthropic":
            assert out == expected

    @pytest.mark.parametrize(("client", "upstream"), PAIRS)
    @pytest.mark.parametrize("size", [1, 7, 10_000])
    def test_the_client_and_the_collected_message_have_what_the_stages_made(
        self, client: str, upstream: str, size: int
    ) -> None:
        plan = prepared(client, upstream, Staged(_Upper)).plan
        out, mender = heard(plan, STREAMS[upstream], size)
        assert texts(mender.message) == ["HM.", "LET ME LOOK."]
        assert "look." not in out.decode()
        assert "LOOK." in out.decode()

    @pytest.mark.parametrize("client", DIALECTS)
    def test_whole_answers_pass_the_same_stages(self, client: str) -> None:
        plan = prepared(client, "openai_chat", Staged(_Upper)).plan
        said = {"role": "assistant", "content": "Let me look.", "reasoning_content": "Hm.", "tool_calls": [CALL]}
        whole = {"id": "x", "choices": [{"index": 0, "message": said, "finish_reason": "tool_calls"}], "extra": 1}
        mended = mend_response(whole, plan=plan)
        assert texts(mended.message) == ["HM.", "LET ME LOOK."]
        assert "LET ME LOOK." in json.dumps(mended.body)
        assert "Let me look." not in json.dumps(mended.body)
        assert [part.arguments for part in mended.message.parts if isinstance(part, ToolCall)] == ['{"A":1}']

    def test_the_last_transformer_of_the_chain_sees_an_answer_first(self) -> None:
        plan = prepared("openai_chat", "openai_chat", Saying("a"), Saying("b")).plan
        assert texts(heard(plan, CHAT)[1].message)[0] == "abHm."

    def test_those_that_leave_answers_alone_cost_no_translation(self) -> None:
        plan = prepared("openai_chat", "openai_chat", Staged()).plan
        assert not plan.translates
        assert heard(plan, CHAT)[0] == CHAT

    def test_every_answer_has_stages_of_its_own(self) -> None:
        plan = prepared("openai_chat", "openai_chat", Staged(_Once)).plan
        for _ in range(2):
            assert texts(heard(plan, CHAT)[1].message)[0] == "first Hm."

    def test_names_are_those_that_the_client_declared(self) -> None:
        name = "fs.read file"
        tool = {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {}}}}
        asked = body("openai_chat", tools=[tool])
        made = prepare_request(asked, host="moonshot", transformers=[Staged(Passing)])
        sent = made.body["tools"][0]["function"]["name"]
        assert sent != name
        entry = {"index": 0, "id": "functions.x:0", "type": "function", "function": {"name": sent, "arguments": "{}"}}
        out, mender = heard(made.plan, sse([chunk({"tool_calls": [entry]}), chunk({}, finish="tool_calls")]))
        assert [part.name for part in mender.message.parts if isinstance(part, ToolCall)] == [name]
        assert json.dumps(name).encode() in out


class _Upper(Passing):
    def feed(self, event: Event) -> list[Event]:
        return [BlockDelta(event.index, event.text.upper())] if isinstance(event, BlockDelta) else [event]


class _Once(Passing):
    def __init__(self) -> None:
        self._said = False

    def feed(self, event: Event) -> list[Event]:
        if isinstance(event, BlockDelta) and not self._said:
            self._said = True
            return [BlockDelta(event.index, f"first {event.text}")]
        return [event]


def failing_at(place: int) -> Staged:
    """Raises at one of the events of an answer."""

    class Failing(Passing):
        def __init__(self) -> None:
            self.count = 0

        def feed(self, event: Event) -> list[Event]:
            self.count += 1
            if self.count == place:
                raise RuntimeError("words of a conversation")
            return [event]

    return Staged(Failing, name="Fragile")


PROBLEM: Final = Problem(status=502, kind="server", message="gone", code="upstream_broke")


class TestFailures:
    @pytest.mark.parametrize(("client", "upstream"), PAIRS)
    @pytest.mark.parametrize("place", [1, 3, 6, 9, 12])
    def test_a_stage_that_raises_ends_its_answer_with_an_error_in_the_words_of_the_client(
        self, client: str, upstream: str, place: int
    ) -> None:
        for size in (17, 10_000):
            out, mender = heard(prepared(client, upstream, failing_at(place)).plan, STREAMS[upstream], size)
            ending = mender.ending
            assert isinstance(ending, Failed)
            assert (ending.code, "Fragile" in ending.message) == ("transformer_failed", True)
            assert b"words of a conversation" not in out
            assert b"Fragile" in out
            told = payloads(out)
            started = [one for one in told if one.get("type") == "content_block_start"]
            stopped = [one["index"] for one in told if one.get("type") == "content_block_stop"]
            half = started[len(stopped) :]
            assert [one["index"] for one in started][: len(stopped)] == stopped
            assert [one["content_block"]["type"] for one in half] in ([], ["tool_use"])
            assert not any(choice.get("finish_reason") for one in told for choice in one.get("choices", ()))
            # Whoever breaks it off now has nothing to add, and the one behind it is not disturbed.
            assert mender.fail(PROBLEM) == b""
        assert isinstance(heard(prepared(client, upstream).plan, STREAMS[upstream])[1].ending, Finished)

    @pytest.mark.parametrize("upstream", UPSTREAMS)
    @pytest.mark.parametrize(
        ("client", "word"),
        [("openai_chat", "server_error"), ("anthropic", "api_error"), ("openai_responses", "server_error")],
    )
    def test_it_is_told_as_a_fault_of_the_gateway_and_not_of_the_request(
        self, client: str, word: str, upstream: str
    ) -> None:
        out, mender = heard(prepared(client, upstream, failing_at(3)).plan, STREAMS[upstream])
        last = payloads(out)[-1]
        error = last["response"]["error"] if client == "openai_responses" else last["error"]
        assert word == error["code" if client == "openai_responses" else "type"]
        # What its host still says is not too much.
        assert "after_done" not in mender.repair_counts

    @pytest.mark.parametrize("output_format", ["sse", "json"])
    @pytest.mark.parametrize("input_format", ["sse", "json"])
    def test_whoever_reads_the_answer_learns_what_went_wrong(self, input_format: Form, output_format: Form) -> None:
        reading = read_reply(
            prepared("openai_chat", "openai_chat", failing_at(3)).plan,
            input_format=input_format,
            output_format=output_format,
        )
        said = {"role": "assistant", "content": "Let me look."}
        whole = json.dumps({"id": "x", "choices": [{"index": 0, "message": said, "finish_reason": "stop"}]}).encode()
        out = reading.feed(CHAT if input_format == "sse" else whole) + reading.flush()
        assert reading.problem is not None
        assert (reading.problem.status, reading.problem.code) == (500, "transformer_failed")
        assert "Fragile" in reading.problem.message
        assert (out == b"") == (output_format == "json")

    def test_one_that_cannot_make_its_stages_fails_before_a_host_is_asked(self) -> None:
        class Clumsy(Staged):
            def stages(self, plan: Any) -> list[Stage]:
                raise OSError("words of a conversation")

        class Wrong(Staged):
            def stages(self, plan: Any) -> Any:
                return Passing()

        for transformer in (Clumsy(), Wrong()):
            with pytest.raises(TransformerFailed, match="transformer Staged failed") as raised:
                prepared("openai_chat", "openai_chat", transformer)
            assert "words" not in str(raised.value)

    def test_one_that_raises_or_makes_no_request_is_named(self) -> None:
        class Clumsy(Staged):
            def prepare(self, request: Request) -> Request:
                raise InvalidInput("words of a conversation")

        class Wrong(Staged):
            def prepare(self, request: Request) -> Any:
                return None

        for transformer in (Clumsy(name="Clumsy"), Wrong(name="Wrong")):
            with pytest.raises(TransformerFailed, match=f"transformer {transformer.name} failed") as raised:
                prepared("openai_chat", "openai_chat", transformer)
            assert "words" not in str(raised.value)
            assert problem_of(raised.value).status == 500

    def test_one_may_refuse_a_request_in_words_of_its_own(self) -> None:
        problem = Problem(status=403, kind="permission", message="not on Sundays")

        class Strict(Staged):
            def prepare(self, request: Request) -> Request:
                raise Refused(problem)

        with pytest.raises(Refused) as raised:
            prepared("openai_chat", "openai_chat", Strict())
        assert raised.value.problem is problem

    def test_a_refusal_may_be_a_mere_text(self) -> None:
        class Brief(Staged):
            def prepare(self, request: Request) -> Request:
                raise Refused("not on Sundays")

        with pytest.raises(Refused, match="not on Sundays") as raised:
            prepared("openai_chat", "openai_chat", Brief())
        assert (problem_of(raised.value).status, problem_of(raised.value).kind) == (400, "invalid_request")


class TestRequests:
    def test_they_run_in_the_order_of_the_chain_before_anything_is_made_right(self) -> None:
        sent = prepared("openai_chat", "openai_chat", Saying("a"), Saying("")).body["messages"]
        # The second has put an empty message first, which the host would refuse.
        assert [message["content"] for message in sent] == ["a", "hi"]

    def test_they_see_the_name_of_the_model_at_the_host_and_may_change_it(self) -> None:
        seen: list[str] = []

        class Renaming(Staged):
            def prepare(self, request: Request) -> Request:
                seen.append(request.model)
                return replace(request, model="kimi-k3")

        made = prepare_request(
            body("openai_chat"), host="moonshot", model="kimi-k2.6", transformers=[Renaming(), Renaming()]
        )
        assert seen == ["kimi-k2.6", "kimi-k3"]
        assert made.body["model"] == "kimi-k3"
        assert made.profile.generation == "k3"
        assert made.plan.reply.model == "kimi-k2.5"

    def test_errors_still_name_the_place_in_the_body_of_the_client(self) -> None:
        asked = body("openai_chat") | {
            "messages": [{"role": "user", "content": "hi"}, {"role": "tool", "content": "x"}]
        }
        with pytest.raises(InvalidInput) as raised:
            prepare_request(asked, host="moonshot", transformers=[Saying("a")])
        assert raised.value.field == "messages[1].tool_call_id"

    def test_what_is_recalled_is_there_as_if_the_client_had_sent_it(self) -> None:
        seen: list[list[str]] = []

        class Looking(Saying):
            """Sees what goes to the host, and may change it."""

            def prepare(self, request: Request) -> Request:
                seen.append(
                    [part.text for one in request.messages for part in one.parts if isinstance(part, Reasoning)]
                )
                return super().prepare(request)

        call = {"id": "c1", "type": "function", "function": {"name": "ls", "arguments": "{}"}}
        history = [
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": "a"},
        ]
        asked = read_request({"model": "kimi-k2.6", "messages": history})
        made = asked.prepare(host="moonshot", recalled={1: Reasoning("hm")}, transformers=[Saying("a"), Looking("b")])
        assert seen == [["hm"]]
        assert made.body["messages"][3]["reasoning_content"] == "hm"
        assert "reasoning_recalled" in [change.rule for change in made.changes]
