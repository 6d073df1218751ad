"""`moonshim explain`: what would be sent, every change with its reason, and clear refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import moonshim
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


def test_people_get_the_body_and_then_the_changes_without_colours_in_a_pipe() -> None:
    done = explain(REQUEST, "--host", "vllm", "--model", "kimi-k2.5")
    out = done.out.decode()
    assert done.code == 0
    assert "\x1b" not in out
    assert '"id": "functions.Read:0"' in out
    assert out.index("What would be sent") < out.index("What was changed")
    assert "toolu_01 -> functions.Read:0 (history_id)" in out


def test_a_request_that_is_right_says_so() -> None:
    body = {"model": "gpt-x", "messages": [{"role": "user", "content": "hi"}]}
    done = explain("-", stdin=json.dumps(body).encode())
    assert done.out.decode().endswith("Nothing had to be changed.\n")


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
        "the request is refused: messages[0]: a message must be an object with a role",
    ),
    "no JSON": ("{", [], 1, "not JSON"),
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
        "--set takes CELL=VALUE",
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
