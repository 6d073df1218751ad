"""`moonshim mend` on files: what comes out, where it goes, and the exit code."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

import moonshim
from tests.support.command import CLEAN, EXAMPLE, MOONSHIM, RESPONSE, TOOLS, environment, mend, mend_with_engine

LEAKED = EXAMPLE.read_bytes()
NDJSON = b"".join(line[6:] + b"\n" for line in LEAKED.splitlines() if line.startswith(b"data: {"))


def written(folder: Path, name: str, data: bytes | Any) -> Path:
    path = folder / name
    path.write_bytes(data if isinstance(data, bytes) else msgspec.json.encode(data))
    return path


def calls_in(stream: bytes) -> list[dict[str, Any]]:
    """The calls that a client puts together from the deltas."""
    calls: dict[int, dict[str, Any]] = {}
    for line in stream.splitlines():
        if not line.startswith(b"data: {"):
            continue
        for choice in json.loads(line[6:])["choices"]:
            for piece in choice["delta"].get("tool_calls", []):
                call = calls.setdefault(piece["index"], {"id": piece.get("id"), "arguments": ""})
                call["arguments"] += piece["function"]["arguments"]
    return list(calls.values())


class TestTheThreeKinds:
    def test_sse(self) -> None:
        done = mend(EXAMPLE)
        assert done.code == 0
        assert done.out == mend_with_engine(LEAKED, model="moonshotai/Kimi-K2-Thinking")
        assert calls_in(done.out) == [
            {"id": "functions.get_weather:0", "arguments": '{"city": "Beijing"}'},
            {"id": "functions.get_time:1", "arguments": '{"zone": "Asia/Shanghai"}'},
        ]

    def test_ndjson_whatever_its_name(self, tmp_path: Path) -> None:
        done = mend(written(tmp_path, "x.sse", NDJSON))
        assert done.code == 0
        assert done.out == mend_with_engine(NDJSON, model="kimi-k2", framing="ndjson")

    def test_a_response(self, tmp_path: Path) -> None:
        done = mend(written(tmp_path, "r.json", RESPONSE))
        assert done.code == 0
        assert done.out == msgspec.json.encode(moonshim.mend_response(RESPONSE, model="kimi-k2").body) + b"\n"

    def test_a_response_over_many_lines_stays_so(self, tmp_path: Path) -> None:
        path = written(tmp_path, "r.json", json.dumps(RESPONSE, indent=4).encode())
        body = json.loads(mend(path).out)
        assert body == moonshim.mend_response(RESPONSE, model="kimi-k2").body
        assert mend(path).out.count(b"\n") > 10

    @pytest.mark.parametrize(
        "data",
        [
            CLEAN,
            mend_with_engine(LEAKED, model="kimi-k2"),
            mend_with_engine(NDJSON, model="kimi-k2", framing="ndjson"),
            json.dumps(moonshim.mend_response(RESPONSE, model="kimi-k2").body, indent=3).encode(),
            b'{"error": {"message": "The engine is currently overloaded"}}',
        ],
        ids=["sse", "mended sse", "mended ndjson", "response", "error"],
    )
    def test_what_is_clean_leaves_byte_for_byte(self, data: bytes, tmp_path: Path) -> None:
        done = mend(written(tmp_path, "clean", data))
        assert (done.code, done.out) == (3 if b'"error"' in data else 0, data)
        assert done.lines[0] == f"{tmp_path / 'clean'}: clean"

    def test_a_byte_order_mark_is_taken_off_and_told(self, tmp_path: Path) -> None:
        clean = moonshim.mend_response(RESPONSE, model="kimi-k2").body
        done = mend(written(tmp_path, "r.json", b"\xef\xbb\xbf" + msgspec.json.encode(clean)))
        assert done.out == msgspec.json.encode(clean)
        assert "byte_order_mark" in done.stderr

    def test_all_repairs_of_a_response_are_counted_not_only_those_that_are_kept(self, tmp_path: Path) -> None:
        choices = [{"index": 0, "message": {"role": "assistant", "content": "a" + "</think>" * 300}}]
        body = msgspec.json.encode({"model": "kimi-k2", "choices": choices})
        done = mend(written(tmp_path, "r.json", b"\xef\xbb\xbf" + body), "--report", "json")
        (told,) = json.loads(done.stderr)["files"]
        assert told["rules"] == {"framing": 1, "stray_marker": 300, "finish_reason": 1}

    def test_a_stream_larger_than_a_piece(self, tmp_path: Path) -> None:
        line = b'data: {"model":"kimi-k2","choices":[{"index":0,"delta":{"content":"<|tool_"}}]}\n\n'
        data = line * 5000 + CLEAN
        done = mend(written(tmp_path, "long.sse", data))
        assert (done.code, done.out) == (0, mend_with_engine(data, model="kimi-k2"))


class TestTheModel:
    @pytest.mark.parametrize("name", ["gpt-4o", "my-alias", ""])
    def test_a_name_that_is_no_kimi_is_mended_all_the_same(self, name: str, tmp_path: Path) -> None:
        data = LEAKED.replace(b"moonshotai/Kimi-K2-Thinking", name.encode())
        done = mend(written(tmp_path, "x", data))
        assert done.out == mend_with_engine(data, model="kimi")
        assert len(calls_in(done.out)) == 2

    def test_a_name_on_the_command_line_is_taken_at_its_word(self, tmp_path: Path) -> None:
        done = mend(EXAMPLE, "--model", "gpt-4o")
        assert done.out == LEAKED
        assert "gpt-4o is not a Kimi model" in done.stderr

    def test_the_request_comes_before_the_recording(self, tmp_path: Path) -> None:
        request = written(
            tmp_path, "q.json", {"model": "kimi-k3", "messages": [], "tools": json.loads(TOOLS.read_bytes())}
        )
        done = mend(EXAMPLE, "--request", request, "--report", "json")
        assert json.loads(done.stderr)["files"][0]["model"] == "kimi-k3"


class TestWhatWasAsked:
    def test_tools(self) -> None:
        done = mend(EXAMPLE, "--tools", TOOLS)
        tools = json.loads(TOOLS.read_bytes())
        assert done.out == mend_with_engine(LEAKED, model="kimi-k2", tools=tools)

    def test_no_tools_leave_the_markers_alone(self, tmp_path: Path) -> None:
        assert mend(EXAMPLE, "--tools", written(tmp_path, "t.json", [])).out == LEAKED
        assert mend(EXAMPLE, "--request", written(tmp_path, "q.json", {"messages": []})).out == LEAKED

    @pytest.mark.parametrize("option", ["--tools", "--request"])
    def test_a_whole_request_brings_its_history(self, option: str, tmp_path: Path) -> None:
        call = {
            "id": "functions.get_weather:0",
            "type": "function",
            "function": {"name": "get_weather", "arguments": "{}"},
        }
        history = [
            {"role": "assistant", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "functions.get_weather:0", "content": "sunny"},
        ]
        tools = json.loads(TOOLS.read_bytes())
        done = mend(EXAMPLE, option, written(tmp_path, "q.json", {"messages": history, "tools": tools}))
        assert done.out == mend_with_engine(LEAKED, model="kimi-k2", tools=tools, history=history)
        assert [call["id"] for call in calls_in(done.out)] != ["functions.get_weather:0", "functions.get_time:1"]

    def test_tool_choice_none_leaves_the_markers_alone(self, tmp_path: Path) -> None:
        request = {"tools": json.loads(TOOLS.read_bytes()), "tool_choice": "none"}
        assert mend(EXAMPLE, "--tools", written(tmp_path, "q.json", request)).out == LEAKED

    @pytest.mark.parametrize(
        ("data", "reason"),
        [
            (b"", "the input is empty"),
            (b"[{", "invalid JSON"),
            (b"\xff\xfe", "invalid JSON: invalid character at line 1, column 1"),
            (b'["\xff"]', "invalid JSON: not UTF-8"),
            (b"[" * 100_000, "invalid JSON"),
            (b"7", "expected a list of tool definitions"),
            (b"{}", "expected a list of tool definitions"),
            (b'{"tools": 7}', "tools: expected a list"),
            (b'{"tools": [], "messages": {}}', "messages: expected a list"),
            (b"[7]", "tools[0]"),
            (b'[{"type": "function", "function": {"name": "a"}}, {"type": "function"}]', "tools[1].function"),
        ],
    )
    def test_a_bad_tools_file_is_one_line_that_names_it(self, data: bytes, reason: str, tmp_path: Path) -> None:
        path = written(tmp_path, "bad.json", data)
        done = mend(EXAMPLE, "--tools", path)
        assert (done.code, done.out, len(done.lines)) == (2, b"", 1)
        assert str(path) in done.stderr
        assert reason in done.stderr

    @pytest.mark.parametrize("option", ["--tools", "--request"])
    def test_a_missing_file_or_a_folder_is_one_line_that_names_it(self, option: str, tmp_path: Path) -> None:
        for path in (tmp_path / "missing.json", tmp_path):
            done = mend(EXAMPLE, option, path)
            assert (done.code, done.out, len(done.lines)) == (2, b"", 1)
            assert f"{option} {path}: " in done.stderr

    def test_only_one_of_tools_and_request(self) -> None:
        assert mend(EXAMPLE, "--tools", TOOLS, "--request", TOOLS).code == 2


class TestOptions:
    def test_both_spellings_and_later_ones_win(self) -> None:
        done = mend(EXAMPLE, "--set", "idPrefix=x", "--set", "id_prefix=fn", "--set", "toolCallStreaming=assembled")
        options = moonshim.KimiOptions.mending(id_prefix="fn", tool_call_streaming="assembled")
        assert done.out == mend_with_engine(LEAKED, model="kimi-k2", options=options)
        assert [call["id"] for call in calls_in(done.out)] == ["fn.get_weather:0", "fn.get_time:1"]

    def test_values_are_json_when_they_parse(self) -> None:
        assert mend(EXAMPLE, "--set", "manualToolParsing=false").out.count(b"<|tool_call_begin|>") == 2
        tokens = 'toolTokens={"callBegin": "<|call|>"}'
        assert mend(EXAMPLE, "--set", tokens).out != mend(EXAMPLE).out

    @pytest.mark.parametrize(
        ("setting", "answer"),
        [
            ("idPrefx=fn", "did you mean 'idPrefix'?"),
            ("repair_argument=safe", "did you mean 'repair_arguments'?"),
            ("zzz=1", "unknown option 'zzz' (`--set list` lists the options)"),
            ("idPolicy=k9", "must be one of k2, unique, keep"),
            ("repairDeltas=yes", "must be a boolean"),
            ("bufferLimit=1", "bufferLimit"),
            ("idPrefix", "expected OPTION=VALUE"),
            ("=1", "unknown option"),
            ("id\x1bPrefix=1", "id\\x1bPrefix"),
        ],
    )
    def test_a_wrong_setting_is_one_line_that_helps(self, setting: str, answer: str) -> None:
        done = mend(EXAMPLE, "--set", setting)
        assert (done.code, done.out, len(done.lines)) == (2, b"", 1)
        assert answer in done.stderr

    def test_they_can_be_listed(self) -> None:
        done = mend("--set", "list")
        assert done.code == 0
        for field in msgspec.structs.fields(moonshim.KimiOptions):
            listed = field.name != "emit_tool_calls_in_json"  # it has no effect
            assert (f"  {field.encode_name}=".encode() in done.out) == listed
            assert (f"  {field.encode_name}=".encode() in mend_help()) == listed
        assert mend(EXAMPLE, "--set", "emitToolCallsInJson=true").code == 0


def mend_help() -> bytes:
    if not _HELP:
        _HELP.append(mend("--help").out)
    return _HELP[0]


_HELP: list[bytes] = []


class TestSeveralFiles:
    def test_the_bad_ones_do_not_stop_the_good_ones(self, tmp_path: Path) -> None:
        good = written(tmp_path, "good.sse", CLEAN)
        bad = {
            "text.txt": "not a recording: expected SSE, NDJSON or one JSON response",
            "zeros.bin": "not a recording: expected SSE, NDJSON or one JSON response",
            "empty.sse": "the input is empty",
            "cut.json": "looks like JSON, but input data was truncated",
            "latin.json": "looks like JSON, but is not UTF-8",
            "missing.sse": "No such file or directory",
            "folder": "Is a directory",
        }
        written(tmp_path, "text.txt", b"Hello\n")
        written(tmp_path, "zeros.bin", bytes(10_000_000))
        written(tmp_path, "empty.sse", b"")
        written(tmp_path, "cut.json", msgspec.json.encode(RESPONSE)[:-9])
        written(tmp_path, "latin.json", b'{"choices": [{"message": {"content": "caf\xe9"}}]}')
        (tmp_path / "folder").mkdir()
        paths = [tmp_path / name for name in bad]
        done = mend(good, *paths, good)
        assert (done.code, done.out) == (1, CLEAN + CLEAN)
        told = [line for line in done.lines if line.startswith("moonshim mend: ")]
        assert told == [f"moonshim mend: {tmp_path / name}: {reason}" for name, reason in bad.items()]

    def test_a_file_that_cannot_be_read(self) -> None:
        done = mend("/proc/self/mem")
        assert (done.code, done.out, len(done.lines)) == (1, b"", 1)

    def test_invalid_utf_8_in_a_stream_passes_and_is_told(self, tmp_path: Path) -> None:
        data = b"data: \xff\xfe\n\n" + CLEAN
        done = mend(written(tmp_path, "x.sse", data))
        assert (done.code, done.out) == (0, data)
        assert "not_json" in done.stderr

    def test_options_may_stand_between_them(self, tmp_path: Path) -> None:
        done = mend(written(tmp_path, "a", CLEAN), "--model", "kimi-k2", written(tmp_path, "b", CLEAN))
        assert (done.code, done.out) == (0, CLEAN + CLEAN)

    def test_two_responses_do_not_run_into_one_another(self, tmp_path: Path) -> None:
        path = written(tmp_path, "e.json", b'{"error": {}}')
        assert mend(path, path).out == b'{"error": {}}\n{"error": {}}'

    def test_a_file_without_a_name_is_bad_usage(self) -> None:
        assert mend("").code == 2


class TestOutput:
    def test_goes_beside_under_the_same_name(self, tmp_path: Path) -> None:
        folder = tmp_path / "new" / "out"
        done = mend(EXAMPLE, "--output", folder)
        assert (done.code, done.out) == (0, b"")
        assert (folder / EXAMPLE.name).read_bytes() == mend_with_engine(LEAKED, model="kimi-k2")
        assert done.lines[0].endswith(f"written to {folder / EXAMPLE.name}")

    def test_equal_names_do_not_meet(self, tmp_path: Path) -> None:
        paths = []
        for name, data in (("a", CLEAN), ("b", LEAKED), ("c", NDJSON)):
            (tmp_path / name).mkdir()
            paths.append(written(tmp_path / name, "x.sse", data))
        done = mend(*paths, "-", "--output", tmp_path / "out", stdin=CLEAN)
        assert done.code == 0
        assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == {
            "x.sse": CLEAN,
            "x-2.sse": mend_with_engine(LEAKED, model="kimi-k2"),
            "x-3.sse": mend_with_engine(NDJSON, model="kimi-k2", framing="ndjson"),
            "stdin": CLEAN,
        }

    @pytest.mark.parametrize("link", [None, "symlink_to", "hardlink_to"])
    def test_an_input_is_never_overwritten(self, link: str | None, tmp_path: Path) -> None:
        path = written(tmp_path, "x.sse", LEAKED)
        other = written(tmp_path, "other.sse", LEAKED)
        folder = tmp_path
        if link is not None:
            folder = tmp_path / "out"
            folder.mkdir()
            getattr(folder / "x.sse", link)(path)
        done = mend(other, path, "--output", folder)
        assert (done.code, done.out, len(done.lines)) == (2, b"", 1)
        assert "would overwrite the input" in done.stderr
        assert (path.read_bytes(), other.read_bytes()) == (LEAKED, LEAKED)

    def test_neither_is_the_tools_file(self, tmp_path: Path) -> None:
        (tmp_path / "out").mkdir()
        tools = written(tmp_path / "out", "tools.json", TOOLS.read_bytes())
        done = mend(written(tmp_path, "tools.json", LEAKED), "--tools", tools, "--output", tmp_path / "out")
        assert (done.code, tools.read_bytes()) == (2, TOOLS.read_bytes())

    def test_nothing_is_written_for_what_cannot_be_read(self, tmp_path: Path) -> None:
        done = mend(written(tmp_path, "junk", b"junk"), "--output", tmp_path / "out")
        assert (done.code, list((tmp_path / "out").iterdir())) == (1, [])

    def test_a_file_is_no_folder(self, tmp_path: Path) -> None:
        done = mend(EXAMPLE, "--output", written(tmp_path, "x", b""))
        assert (done.code, len(done.lines)) == (2, 1)

    def test_a_name_that_cannot_be_written_does_not_stop_the_others(self, tmp_path: Path) -> None:
        (tmp_path / "out" / EXAMPLE.name).mkdir(parents=True)
        done = mend(EXAMPLE, written(tmp_path, "x", CLEAN), "--output", tmp_path / "out")
        assert (done.code, (tmp_path / "out" / "x").read_bytes()) == (1, CLEAN)
        assert "cannot write to" in done.stderr

    def test_a_file_is_not_appended_to_itself(self, tmp_path: Path) -> None:
        path = written(tmp_path, "x.sse", CLEAN)
        with path.open("ab") as out:
            run = subprocess.run(
                [*MOONSHIM, "mend", str(path)],
                stdout=out,
                stderr=subprocess.PIPE,
                env=environment(),
                timeout=30,
                check=False,
            )
        assert (run.returncode, path.read_bytes()) == (1, CLEAN)
        assert b"this file is also the output" in run.stderr


def test_a_recording_of_messages_is_refused_and_not_called_mended(tmp_path: Path) -> None:
    start = b'event: message_start\ndata: {"type": "message_start", "message": {"id": "msg_1", "content": []}}\n\n'
    for data in (start, start.partition(b"\n")[2]):
        done = mend(written(tmp_path, "messages.sse", data))
        assert done.code == 1
        assert "Anthropic Messages response; mend reads only Chat" in done.stderr


def test_a_request_of_another_dialect_is_told_to_be_one() -> None:
    done = mend(EXAMPLE, "--tools", EXAMPLE.parent / "claude_code_request.json")
    assert done.code == 2
    assert "mend reads Chat" in done.stderr
