"""`moonshim explain`: what would be sent, every change with its reason, and clear refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import moonshim
from moonshim.gateway.observe.stream_header import StreamHeader, render_header
from tests.support.command import ROOT, CompletedCommand, run_moonshim

REQUEST = ROOT / "examples" / "claude_code_request.json"


def explain(*arguments: str | Path, stdin: bytes = b"") -> CompletedCommand:
    return run_moonshim("explain", *arguments, stdin=stdin)


def written(folder: Path, body: Any) -> Path:
    path = folder / "request.json"
    path.write_text(body if isinstance(body, str) else json.dumps(body))
    return path


def test_it_shows_what_the_engine_would_send() -> None:
    done = explain(REQUEST, "--host", "moonshot", "--model", "kimi-k2.6", "--format", "json")
    assert (done.code, done.stderr) == (0, "")
    shown = json.loads(done.out)
    prepared = moonshim.prepare_request(
        json.loads(REQUEST.read_text()), dialect="anthropic", host="moonshot", model="kimi-k2.6"
    )
    assert shown["body"] == prepared.body
    assert [change["detail"] for change in shown["changes"]] == [change.detail for change in prepared.changes]
    assert (shown["from"], shown["to"], shown["generation"]) == ("anthropic", "openai_chat", "k2.6")


@pytest.mark.parametrize("option", [("--model", "kimi-k3[1m]"), ()])
def test_the_note_about_the_window_is_not_part_of_the_name(option: tuple[str, ...]) -> None:
    body = {"model": "kimi-k3[1M]", "messages": [{"role": "user", "content": "hi"}]}
    done = explain("-", *option, "--format", "json", stdin=json.dumps(body).encode())
    shown = json.loads(done.out)
    assert (shown["body"]["model"], shown["generation"]) == ("kimi-k3", "k3")


def test_people_get_the_body_and_then_the_changes_without_colours_in_a_pipe() -> None:
    done = explain(REQUEST, "--host", "vllm", "--model", "kimi-k2.5")
    out = done.out.decode()
    assert done.code == 0
    assert "\x1b" not in out
    assert '"id": "functions.Read:0"' in out
    assert out.index("Request sent to the host") < out.index("Changes (")
    assert "toolu_01 -> functions.Read:0 (history_id)" in out


NOTES = {"type": "text", "media_type": "text/plain", "data": "Some notes."}
SEARCH = {"type": "web_search_20250305", "name": "web_search"}


@pytest.mark.parametrize(
    ("added", "rule"),
    [
        ({"messages": [{"role": "user", "content": [{"type": "document", "source": NOTES}]}]}, "document_text"),
        ({"messages": [{"role": "user", "content": "News?"}], "tools": [SEARCH]}, "tool_left_out"),
    ],
    ids=["document", "web search"],
)
def test_a_messages_request_is_recognized_by_its_documents_and_tools(added: dict[str, Any], rule: str) -> None:
    body = {"model": "kimi-k3", "max_tokens": 100, **added}
    done = explain("-", "--host", "vllm", "--format", "json", stdin=json.dumps(body).encode())
    shown = json.loads(done.out)
    assert shown["from"] == "anthropic"
    assert rule in [change["rule"] for change in shown["changes"]]


def test_a_request_that_is_right_says_so() -> None:
    body = {"model": "gpt-x", "messages": [{"role": "user", "content": "hi"}]}
    done = explain("-", stdin=json.dumps(body).encode())
    assert done.out.decode().endswith("No changes needed.\n")


def test_the_host_is_found_from_its_address() -> None:
    done = explain(REQUEST, "--base-url", "https://openrouter.ai/api/v1", "--model", "kimi-k2.6", "--format", "json")
    assert json.loads(done.out)["host"] == "openrouter"


def test_a_cell_of_the_table_can_be_set() -> None:
    done = explain(REQUEST, "--host", "vllm", "--model", "kimi-k2.5", "--set", "history_ids=keep", "--format", "json")
    assert json.loads(done.out)["body"]["messages"][-1]["tool_call_id"] == "toolu_01"


REFUSED: dict[str, tuple[Any, list[str], int, str]] = {
    "a message without a role": (
        {"model": "m", "messages": [{}]},
        [],
        1,
        "request refused: messages[0].role is required",
    ),
    "no JSON": ('{"model":\n x}', [], 1, "invalid JSON: invalid character at line 2, column 2"),
    "half a request": ('{"model":', [], 1, "invalid JSON: unexpected end of data at line 1, column 10"),
    "a host that nobody knows": ({"model": "m", "messages": []}, ["--host", "moonshoot"], 1, "messages"),
    "a host that nobody knows, with a good request": (
        {"model": "m", "messages": [{"role": "user", "content": "x"}]},
        ["--host", "moonshoot"],
        2,
        "did you mean 'moonshot'?",
    ),
    "a cell that nobody knows": (
        {"model": "m", "messages": [{"role": "user", "content": "x"}]},
        ["--set", "tool_limits=5"],
        2,
        "did you mean 'tool_limit'?",
    ),
    "a setting without a value": (
        {"model": "m", "messages": [{"role": "user", "content": "x"}]},
        ["--set", "tool_limit"],
        2,
        "--set tool_limit: expected FIELD=VALUE",
    ),
}


@pytest.mark.parametrize(("body", "arguments", "code", "told"), REFUSED.values(), ids=REFUSED.keys())
def test_what_cannot_be_is_said_in_a_line(
    body: Any, arguments: list[str], code: int, told: str, tmp_path: Path
) -> None:
    done = explain(written(tmp_path, body), *arguments)
    assert done.code == code
    assert told in done.stderr
    assert done.out == b""


def test_a_refusal_in_json_is_in_the_clients_own_dialect(tmp_path: Path) -> None:
    path = written(tmp_path, {"model": "m", "system": "s", "messages": [{"role": "user", "content": 5}]})
    done = explain(path, "--format", "json")
    shown = json.loads(done.out)
    assert done.code == 1
    assert shown["type"] == "error"
    assert shown["error"]["type"] == "invalid_request_error"
    assert "messages[0].content" in shown["error"]["message"]


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    done = explain(tmp_path / "none.json")
    assert done.code == 1
    assert "No such file" in done.stderr


def test_help_teaches() -> None:
    done = explain("--help")
    assert done.code == 0
    assert "--base-url" in done.out.decode()


def test_nothing_in_a_request_steers_the_terminal(tmp_path: Path) -> None:
    hostile = "a\x1b[2Jb\x9b31mc\u202etxt\u2066d\u2028e\x7ff\u200fg"
    body = {"model": f"gpt{hostile}", "messages": [{"role": "user", "content": hostile, f"x{hostile}": hostile}]}
    path = written(tmp_path, body)
    for form in ("text", "json"):
        out = explain(path, "--format", form).out.decode()
        assert not [char for char in out if not char.isprintable() and char != "\n"], form
    shown = json.loads(explain(path, "--format", "json").out)
    assert shown["body"]["messages"][0]["content"] == hostile
    # A refusal too.
    refused = written(
        tmp_path,
        {"model": "kimi-k2.5", "messages": [{"role": "user", "content": "x", "tool_calls": hostile}], "tools": hostile},
    )
    done = explain(refused, "--format", "json")
    assert done.code == 1
    assert not [char for char in done.out.decode() + done.stderr if not char.isprintable() and char != "\n"]


def conversation(*texts: str, **more: Any) -> dict[str, Any]:
    said = [{"role": ("user", "assistant")[at % 2], "content": text} for at, text in enumerate(texts)]
    return {"model": "kimi-k3", "max_tokens": 100, "system": "Be brief.", "messages": said, **more}


def compared(folder: Path, before: Any, after: Any, *options: str) -> CompletedCommand:
    (folder / "first.json").write_text(before if isinstance(before, str) else json.dumps(before))
    (folder / "second.json").write_text(after if isinstance(after, str) else json.dumps(after))
    files = ("--previous", folder / "first.json", folder / "second.json")
    return explain(*files, "--from", "anthropic", "--host", "moonshot", *options)


def test_two_requests_show_what_ruins_the_prompt_cache(tmp_path: Path) -> None:
    first = conversation("one", "two", "three")
    cases = [
        (conversation("one", "two", "three", "four", "five"), None),
        (conversation("one", "x", "three", "four", "five"), "messages[2] (assistant) changed"),
        (conversation("one", "two", "three", system="It is 10:31."), "messages[0] (system) changed"),
        (
            conversation("one", "two", "three", tools=[{"name": "t", "input_schema": {"type": "object"}}]),
            "tools[0] (t)",
        ),
    ]
    for second, lost in cases:
        done = compared(tmp_path, first, second)
        assert (done.code, done.stderr) == (0, "")
        title, *rest = done.out.decode().splitlines()
        assert title == f"Prompt prefix, compared with {tmp_path}/first.json", "the answer alone, not below the request"
        if lost is None:
            assert rest == ["  Unchanged: the host can read the previous request from its cache."]
        else:
            assert lost in rest[0]
            assert rest[1] == "  From there on, the host cannot use its prompt cache."
        shown = json.loads(compared(tmp_path, first, second, "--format", "json").out)
        assert (shown["prefix_lost"] is None) == (lost is None)
        assert (lost or "") in (shown["prefix_lost"] or "")
        assert shown["body"]["model"] == "kimi-k3"
    alone = json.loads(explain(tmp_path / "second.json", "--format", "json").out)
    assert "prefix_lost" not in alone


def test_a_previous_request_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    done = compared(tmp_path, "{", conversation("one"))
    assert done.code == 1
    assert "first.json: " in done.stderr
    missing = explain("--previous", tmp_path / "none.json", REQUEST)
    assert (missing.code, missing.stderr) == (1, f"moonshim explain: {tmp_path}/none.json: No such file or directory\n")


def test_two_stream_logs_show_a_pause_longer_than_the_ttl(tmp_path: Path) -> None:
    body = {"model": "kimi-k3", "messages": [{"role": "user", "content": "hi"}], "prompt_cache_options": {"ttl": "5m"}}
    for name, time in (("first", "2026-11-16T10:00:00Z"), ("second", "2026-11-16T10:12:30Z")):
        header = StreamHeader(model="kimi-k3", host="moonshot", time=time, changes=(), request=body)
        (tmp_path / f"{name}.log").write_bytes(render_header(header))
    done = explain("--previous", tmp_path / "first.log", tmp_path / "second.log", "--format", "json")
    assert json.loads(done.out)["prefix_lost"] == "TTL: 12 min since the previous request, longer than 5m"
