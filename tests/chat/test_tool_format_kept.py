"""A tool format that was set belongs to the conversation: /save, /load and --resume bring it back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from moonshim.simulator import Simulator
from tests.chat.talking import Talk, in_folder
from tests.support.command import run_moonshim

pytest.importorskip("pty")


def talk_to(host: Simulator, folder: Path, *arguments: str) -> Talk:
    return Talk("--base-url", f"{host.url}/v1", "--model", "kimi-k2.5", *arguments, cwd=folder)


def test_a_tool_format_that_was_set_survives_save_load_and_resume(host: Simulator, tmp_path: Path) -> None:
    folder = in_folder(tmp_path)
    with talk_to(host, folder) as talk:
        assert "hermes (set)" in talk.asks("/toolformat hermes")[0]
        talk.asks("hello")
        talk.asks("/save words")
        assert "detected" in talk.asks("/toolformat auto")[0]
        talk.asks("hello")
        talk.asks("/save native")
        talk.asks("/load words")
        assert "hermes (set)" in talk.display[-1]
        # It is in use, not only shown: the tools are in the prompt, and the calls in the text are read.
        assert "● glob  *.md" in talk.asks("as hermes would")
        assert "tools" not in host.requests[-1].body
        # A format belongs to the model that it was set for.
        talk.asks("/load native")
        talk.asks("/model kimi-k3")
        talk.asks("/load words")
        assert "kimi-k3 · tool format: kimi · " in talk.display[-1]
        talk.says("/exit")
        assert talk.ends() == 0
    with talk_to(host, folder, "--resume", "words") as talk:
        talk.until(talk.is_ready, "place to type")
        assert "hermes (set)" in talk.display[-1]
    with talk_to(host, folder, "--resume", "native") as talk:
        talk.until(talk.is_ready, "place to type")
        assert "kimi-k2.5 · tool format: kimi · " in talk.display[-1]
    with talk_to(host, folder, "--resume", "words", "--tool-format", "qwen") as talk:
        talk.until(talk.is_ready, "place to type")
        assert "qwen (set)" in talk.display[-1]


def test_a_tool_format_that_is_not_known_here_does_not_keep_a_conversation_from_going_on(
    host: Simulator, tmp_path: Path
) -> None:
    kept = tmp_path / "later.jsonl"
    to = ("--base-url", f"{host.url}/v1", "--model", "kimi-k2.5", "--resume", str(kept), "--output", "json")
    lines = [
        {"moonshim": "conversation", "version": 1},
        {"switched": {"model": "kimi-k2.5", "provider": "127.0.0.1", "tool_format": "klingon"}},
        {"message": {"speaker": "human", "parts": [{"type": "text", "text": "hi"}]}},
        {"message": {"speaker": "ai", "parts": [{"type": "text", "text": "Hi."}]}},
    ]
    kept.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    done = run_moonshim("chat", *to, "-p", "hello", cwd=tmp_path)
    assert (done.code, json.loads(done.out)["format"]) == (0, "kimi")
