"""Every command in a real terminal, right and wrong; and a conversation that goes on in another process."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from moonshim.chat.commands.registry import COMMANDS
from tests.chat.talking import Talk, in_folder

pytest.importorskip("pty")


def test_every_command_and_a_conversation_that_goes_on_in_another_process(tmp_path: Path) -> None:
    folder = in_folder(tmp_path)
    used: set[str] = set()

    with Talk("--demo", "--yolo", cwd=folder) as talk:

        def says(line: str) -> str:
            used.add(line.split()[0].removeprefix("/"))
            # Where lines are broken depends on how long the folder's name is.
            return " ".join(" ".join(talk.asks(line)).split())

        talk.sees("not a model", "without asking")
        told = says("/help")
        assert all(f"/{name} " in told for name in COMMANDS)
        assert "Ctrl-C stops the answer; press it twice to exit." in told
        assert "show tokens, cost and repairs" in says("/help cost")
        # What is no command, or is used wrongly, explains itself.
        assert "did you mean" not in says("/nope")
        assert "unknown command /toolfromat (did you mean /toolformat" in says("/toolfromat")
        assert "usage: /thinking [on|off|effort]" in says("/thinking hard")
        assert "usage: /export openai|anthropic|vercel|markdown" in says("/export")
        assert "the conversation is empty" in says("/retry")
        assert "nothing to undo" in says("/undo")
        assert "no message 7: the conversation has 0 messages" in says("/history 7")
        assert "/clear takes no arguments" in says("/clear all")
        assert "expected on or off, got `maybe`" in says("/fold maybe")

        # Who answers, and how.
        assert "using demo/kimi-k2.5+markers-in-content" in says("/model")
        told = says("/model kimi-k9")
        assert "Model 'kimi-k9' not found. Did you mean 'kimi-k3'," in told
        assert "/v1/models" not in told
        assert "demo-messages" in says("/provider")
        told = says("/toolformat")
        assert "tool format: kimi (detected from the model name" in told
        assert "Structured: openai, anthropic, deepseek, qwen, kimi, gemma, mistral" in told
        assert "Text-based: hermes, xml, llama" in told
        assert says("/toolformat openai").startswith("tool format: openai (set)")
        assert "openai (set)" in talk.display[-1]
        assert "Invalid tool format 'klingon'" in says("/toolformat klingon")
        assert "detected" in says("/toolformat auto")
        assert "thinking: the host's default" in says("/thinking")
        assert says("/thinking off").startswith("thinking: off")
        assert "reasoning is hidden" in says("/fold")
        assert "write_file" in says("/tools")
        assert '"command"' in says("/tools bash")

        # A turn; thinking is off.
        told = says("What is here?")
        assert "Here is what came back: moonshim-1" in told
        assert "I call it" not in told
        assert says("/thinking on").startswith("thinking: on")
        told = says("And now?")
        assert "7 words of reasoning (Ctrl-T to show)" in told
        told = says("/cost")
        assert "answers: 4" in told
        assert "× marker_call" in told
        assert "cost: unknown" in told
        # Another provider and another model in the same conversation.
        says("/provider demo-messages")
        assert "demo-messages/kimi-k3" in says("/model demo-messages/kimi-k3")
        assert "came back" in says("And over Messages?")
        assert "using demo/kimi-k2.6" in says("/model kimi-k2.6")
        assert "came back" in says("/retry")
        assert "removed: And over Messages? (4 messages)" in says("/undo")

        # What was said.
        told = says("/history")
        assert "1 you What is here?" in told
        assert "8 model" in told
        assert "moonshim-1" in says("/history 3")
        assert "saved automatically in" in says("/save")
        assert "saved a copy as" in says("/save first")
        assert "already exists" in says("/save first")
        for format, start in {"openai": "[", "anthropic": "[", "vercel": "[", "markdown": "#"}.items():
            assert "exported to" in says(f"/export {format} out.{format}")
            assert (folder / f"out.{format}").read_text().startswith(start)
        assert "already exists" in says("/export openai out.openai")
        assert says("/clear").startswith("new conversation; /load ")
        assert "the conversation is empty" in says("/history")
        told = says("/load")
        assert "first" in told
        assert "8 messages What is here?" in told
        assert "no conversation `nowhere`" in says("/load nowhere")
        assert "loaded first: 8 messages" in says("/load first")
        used.add("exit")
        talk.says("/exit")
        assert talk.ends() == 0
        assert "To continue: moonshim chat --demo --resume first" in talk.text
    assert set(COMMANDS) <= used

    # In Chat's words: every call has its result, its arguments and its reasoning.
    messages = json.loads((folder / "out.openai").read_text())
    calls = [call for message in messages for call in message.get("tool_calls", ())]
    results = [message["tool_call_id"] for message in messages if message["role"] == "tool"]
    assert [call["id"] for call in calls] == results
    assert [json.loads(call["function"]["arguments"]) for call in calls] == [{"command": "echo moonshim-1"}] * 2

    kept = tmp_path / "data" / "moonshim" / "chats" / "first.jsonl"
    assert kept.stat().st_mode & 0o077 == 0
    with Talk("--demo", "--yolo", "--resume", "first", cwd=folder) as talk:
        talk.sees("first: 8 messages", "> And now?", "Here is what came back: moonshim-1")
        assert "demo/kimi-k2.6" in talk.display[-1] or talk.asks("/model")[0].startswith("using demo/kimi-k2.6")
        assert "came back" in "\n".join(talk.asks("Go on."))
        assert " 12  model" in "\n".join(talk.asks("/history"))
    assert b"Go on." in kept.read_bytes()
