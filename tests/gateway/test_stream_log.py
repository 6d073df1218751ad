"""The logs of streams: raw, replayable, private, bounded, and without a say in what becomes of a request."""

from __future__ import annotations

import json
import os
import re
import stat
import threading
from pathlib import Path
from typing import Any

import msgspec

from moonshim.engine.dialects.protocol import ResponseContext
from moonshim.engine.values.conversation import Change
from moonshim.engine.values.options import KimiOptions
from moonshim.gateway.observe.record import RequestRecord
from moonshim.gateway.observe.stream_header import REQUEST_LIMIT, StreamHeader, read_header, render_header
from moonshim.gateway.observe.stream_log import StreamLogs
from tests.support.command import mend, mend_with_engine
from tests.support.gateway.serving import wait_until

TOOLS = [{"type": "function", "function": {"name": "ls", "parameters": {"type": "object"}}}]
BODY: dict[str, Any] = {
    "model": "kimi-k2.5",
    "messages": [{"role": "user", "content": "list"}],
    "tools": TOOLS,
    "stream": True,
}
MARKERS = (
    "<|tool_calls_section_begin|>", "<|tool_call_begin|>", "functions.ls:0", "<|tool_call_argument_begin|>", "{}",
    "<|tool_call_end|>", "<|tool_calls_section_end|>",
)  # fmt: skip


class Needs(msgspec.Struct, frozen=True):
    host: str = "moonshot"
    dialect: str = "openai_chat"
    grammar: str | None = None


class Plan(msgspec.Struct, frozen=True):
    options: KimiOptions = KimiOptions.mending()
    reply: ResponseContext = ResponseContext(model="kimi-k2.5")
    hides_reasoning: bool = False
    visible_limit: int | None = None


class Sent:
    def __init__(self, body: dict[str, Any] = BODY, profile: Needs = Needs()) -> None:  # noqa: B008 - a value
        self._body, self.profile = body, profile
        self.plan = Plan()
        self.changes: list[Change] = []

    @property
    def body(self) -> dict[str, Any]:
        return self._body


class StalledDisk(Sent):
    """Whoever writes its header waits: as for a disk that has stopped."""

    def __init__(self, held: threading.Event) -> None:
        super().__init__()
        self._held = held

    @property
    def body(self) -> dict[str, Any]:
        assert self._held.wait(20)
        return BODY


def stream(*texts: str) -> bytes:
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}, *({"content": text} for text in texts)]
    chunks: list[dict[str, Any]] = [
        {"choices": [{"index": 0, "delta": delta}], "model": "kimi-k2.5"} for delta in deltas
    ]
    chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "model": "kimi-k2.5"})
    return b"".join(b"data: %b\n\n" % json.dumps(chunk).encode() for chunk in chunks) + b"data: [DONE]\n\n"


def record(request_id: str = "req_1") -> RequestRecord:
    return RequestRecord(
        request_id=request_id,
        path="/v1/chat/completions",
        dialect="openai_chat",
        client="codex",
        provider="p",
        model="kimi-k2.5",
    )


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob("sse_*.log"))


def written(folder: Path, *answers: bytes, sent: Sent = Sent(), **limits: Any) -> list[Path]:  # noqa: B008
    logs = StreamLogs(folder, **limits)
    for answer in answers:
        log = logs.open(record(), sent)
        for at in range(0, len(answer), 100):
            log.write(answer[at : at + 100])
        log.close("ok")
    logs.close()
    return files(folder)


def header_of(file: Path) -> StreamHeader:
    header = read_header(file.read_bytes().partition(b"\n")[0])
    assert header is not None
    return header


class TestTheFile:
    def test_it_has_the_raw_bytes_behind_one_line_that_says_what_they_are(self, tmp_path: Path) -> None:
        answer = stream("Hello")
        (file,) = written(tmp_path, answer)
        assert re.fullmatch(r"sse_\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d_req-1\.log", file.name)
        head, _, rest = file.read_bytes().partition(b"\n\n")
        assert rest == answer
        assert b"\n" not in head
        header = header_of(file)
        assert (header.outcome.word, header.outcome.bytes, header.outcome.whole) == ("ok", len(answer), True)
        assert (header.request_id, header.client, header.provider) == ("req_1", "codex", "p")
        assert (header.host, header.model, header.dialect) == ("moonshot", "kimi-k2.5", "openai_chat")
        assert header.request == BODY

    def test_only_its_owner_can_read_it(self, tmp_path: Path) -> None:
        (file,) = written(tmp_path / "deep" / "logs", stream("Hello"))
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700

    def test_streams_of_the_same_request_in_the_same_second_have_files_of_their_own(self, tmp_path: Path) -> None:
        found = written(tmp_path, *(stream(str(number)) for number in range(20)))
        assert len(found) == 20
        assert sorted(file.read_bytes().partition(b"\n\n")[2] for file in found) == sorted(
            stream(str(number)) for number in range(20)
        )

    def test_a_request_id_cannot_lead_out_of_the_folder(self, tmp_path: Path) -> None:
        logs = StreamLogs(tmp_path / "logs")
        logs.open(record("../../../etc/passwd\x00\n" + "x" * 300), Sent()).close("ok")
        logs.close()
        (file,) = files(tmp_path / "logs")
        assert file.parent == tmp_path / "logs"
        assert len(file.name) < 120

    def test_keys_never_reach_it(self, tmp_path: Path) -> None:
        said = 'my .env: API_KEY="abcdefgh12345678" and\nsk-abcdefgh12345678\\" Bearer abcdefgh12345678'
        body = BODY | {"messages": [{"role": "user", "content": said}]}
        (file,) = written(tmp_path, stream("Hello"), sent=Sent(body))
        assert b"12345678" not in file.read_bytes()
        assert header_of(file).request is not None

    def test_a_key_of_the_gateway_that_was_pasted_anywhere_does_not_reach_it(self, tmp_path: Path) -> None:
        key = "msk_" + "abcdefgh12345678" * 3
        body = BODY | {"model": key, "user": key}
        logs = StreamLogs(tmp_path)
        pasted = record(key)
        pasted.model = pasted.client = key
        logs.open(pasted, Sent(body)).close("ok")
        logs.close()
        (file,) = files(tmp_path)
        assert "12345678" not in file.name + file.read_text()
        assert header_of(file).model == "msk_…"

    def test_half_a_character_in_the_request_is_no_obstacle(self, tmp_path: Path) -> None:
        body = BODY | {"messages": [{"role": "user", "content": "half \ud83d"}]}
        (file,) = written(tmp_path, stream("Hello"), sent=Sent(body))
        assert header_of(file).outcome.whole

    def test_of_a_huge_request_the_tools_are_kept(self) -> None:
        body = BODY | {"messages": [{"role": "user", "content": "x" * REQUEST_LIMIT}]}
        header = read_header(render_header(StreamHeader(request=body)).strip())
        assert header is not None
        assert header.request == {"model": "kimi-k2.5", "tools": TOOLS}
        assert not header.request_whole

    def test_what_is_unfinished_says_so_and_is_on_the_disk_already(self, tmp_path: Path) -> None:
        logs = StreamLogs(tmp_path)
        log = logs.open(record(), Sent())
        log.write(stream("Hello"))
        wait_until(lambda: files(tmp_path) and files(tmp_path)[0].read_bytes().endswith(b"[DONE]\n\n"), "it is written")
        assert header_of(files(tmp_path)[0]).outcome.word == "unfinished"
        log.close("broken")
        logs.close()
        assert header_of(files(tmp_path)[0]).outcome.word == "broken"


class TestReplay:
    def test_mend_reads_it_as_it_is_and_knows_the_tools(self, tmp_path: Path) -> None:
        answer = stream(*MARKERS)
        (file,) = written(tmp_path, answer)
        done = mend(file)
        assert done.code == 0
        assert done.out == mend_with_engine(answer, model="kimi-k2.5", tools=TOOLS, history=BODY["messages"])
        assert b"moonshim" not in done.out

    def test_where_the_request_allowed_no_calls_markers_are_left_alone(self, tmp_path: Path) -> None:
        body = BODY | {"tool_choice": "none"}
        answer = stream(*MARKERS)
        (file,) = written(tmp_path, answer, sent=Sent(body))
        assert mend(file).out == answer

    def test_what_the_command_line_says_counts_more(self, tmp_path: Path) -> None:
        body = {name: value for name, value in BODY.items() if name != "tools"}
        (file,) = written(tmp_path, stream(*MARKERS), sent=Sent(body))
        tools = tmp_path / "tools.json"
        tools.write_text(json.dumps(TOOLS))
        assert b"tool_calls" in mend(file, "--tools", tools).out

    def test_an_answer_in_messages_is_read_too(self, tmp_path: Path) -> None:
        events: list[dict[str, Any]] = [
            {"type": "message_start", "message": {"id": "m", "type": "message", "role": "assistant", "content": [],
                                                  "model": "kimi-k2.5", "usage": {"input_tokens": 1}}},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
            *({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}
              for text in MARKERS),
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 9}},
            {"type": "message_stop"},
        ]  # fmt: skip
        answer = b"".join(
            b"event: %b\ndata: %b\n\n" % (event["type"].encode(), json.dumps(event).encode()) for event in events
        )
        body = {
            "model": "kimi-k2.5",
            "max_tokens": 100,
            "messages": [{"role": "user", "content": "list"}],
            "tools": [{"name": "ls", "input_schema": {"type": "object"}}],
        }
        (file,) = written(tmp_path, answer, sent=Sent(body, Needs("moonshot-anthropic", "anthropic")))
        done = mend(file)
        assert done.code == 0, done.stderr
        assert b'"tool_calls"' in done.out, "its client speaks Chat"
        assert b"tool_call_begin" not in done.out

    def test_a_comment_that_only_looks_like_a_header_is_a_comment(self) -> None:
        comment = b': moonshim {"broken\n\n'
        assert mend("-", stdin=comment + stream("Hello")).out == comment + stream("Hello")


class TestBounds:
    def test_the_oldest_go_when_there_are_too_many(self, tmp_path: Path) -> None:
        other = tmp_path / "notes.log"
        other.write_text("not ours")
        logs = StreamLogs(tmp_path, max_files=3)
        for number in range(10):
            log = logs.open(record(f"r{number}"), Sent())
            log.write(b"x")
            log.close("ok")
            wait_until(lambda number=number: list(tmp_path.glob(f"*_r{number}.log")), "it is written")  # type: ignore[misc]
        logs.close()
        assert [file.stem[-2:] for file in files(tmp_path)] == ["r7", "r8", "r9"]
        assert other.exists()

    def test_the_oldest_go_when_they_are_too_large(self, tmp_path: Path) -> None:
        found = written(tmp_path, *[b"x" * 10_000] * 20, max_bytes=50_000)
        assert 1 <= len(found) < 5
        assert sum(file.stat().st_size for file in found) <= 50_000

    def test_a_stream_without_end_is_cut_and_says_so(self, tmp_path: Path) -> None:
        (file,) = written(tmp_path, b"x" * 10_000, max_file_bytes=1_000)
        assert not header_of(file).outcome.whole
        assert header_of(file).outcome.bytes == 1_000

    def test_a_disk_that_does_not_keep_up_costs_the_log_and_no_memory(self, tmp_path: Path) -> None:
        held = threading.Event()
        logs = StreamLogs(tmp_path, max_held=1_000)
        log = logs.open(record(), StalledDisk(held))
        for _ in range(1_000):
            log.write(b"x" * 100)
        assert logs.queued - logs.settled <= 1_100
        held.set()
        log.close("ok")
        logs.close()
        assert not header_of(files(tmp_path)[0]).outcome.whole


class TestADiskThatFails:
    def test_a_full_disk_is_told_once_and_fails_nothing(self) -> None:
        problems: list[str] = []
        logs = StreamLogs(Path("/dev/full/logs"), on_failure=problems.append)
        for _ in range(5):
            log = logs.open(record(), Sent())
            log.write(b"x" * 1_000_000)
            log.close("ok")
        logs.close()
        assert len(problems) == 1
        assert logs.queued == logs.settled, "nothing is held for ever"

    def test_a_write_that_fails_leaves_the_other_streams_alone(self, tmp_path: Path) -> None:
        problems: list[str] = []
        logs = StreamLogs(tmp_path, on_failure=problems.append)
        bad, good = logs.open(record("bad"), Sent()), logs.open(record("good"), Sent())
        wait_until(lambda: len(files(tmp_path)) == 2, "both are open")
        full = os.open("/dev/full", os.O_WRONLY)
        os.dup2(full, bad._file or 0)
        os.close(full)
        for log in (bad, good):
            log.write(stream("Hello"))
            log.close("ok")
        logs.close()
        assert problems
        assert "No space left" in problems[0]
        assert next(tmp_path.glob("*good.log")).read_bytes().endswith(b"[DONE]\n\n")
