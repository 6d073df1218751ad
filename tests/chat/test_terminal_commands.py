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

        talk.sees("NO MODEL", "without asking")
        told = says("/help")
        assert all(f"/{name} " in told for name in COMMANDS)
        assert "Ctrl-C stops an answer, twice leaves" in told
        assert "show tokens, costs and repairs" in says("/help cost")
        # What is no command, or is used wrongly, explains itself.
        assert "the nearest: /toolformat" in says("/toolfromat")
        assert "usage: /thinking [on|off|effort]" in says("/thinking hard")
        assert "usage: /export openai|anthropic|vercel|markdown" in says("/export")
        assert "nothing was said yet" in says("/retry")
        assert "there is nothing to take back" in says("/undo")
        assert "there is no message 7: there are 0" in says("/history 7")
        assert "/clear takes nothing behind it" in says("/clear all")
        assert "is neither on nor off" in says("/fold maybe")

        # Who answers, and how.
        assert "demo/kimi-k2.5+markers-in-content answers" in says("/model")
        assert "the nearest: `kimi-k3`" in says("/model kimi-k9")
        assert "demo-messages" in says("/provider")
        told = says("/toolformat")
        assert "tool format: kimi (detected from the model's name" in told
        assert "Structured: openai, anthropic, deepseek, qwen, kimi, gemma, mistral" in told
        assert "Text-based: hermes, xml, llama" in told
        assert says("/toolformat openai").startswith("tool format: openai (set)")
        assert "openai (set)" in talk.display[-1]
        assert "Invalid tool format 'klingon'" in says("/toolformat klingon")
        assert "detected" in says("/toolformat auto")
        assert "as the host does by itself" in says("/thinking")
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
        assert "7 words of reasoning (Ctrl-T shows)" in told
        told = says("/cost")
        assert "answers: 4" in told
        assert "× marker_call" in told
        assert "cost: not known" in told
        # Another provider and another model in the same conversation.
        says("/provider demo-messages")
        assert "demo-messages/kimi-k3" in says("/model demo-messages/kimi-k3")
        assert "came back" in says("And over Messages?")
        assert "demo/kimi-k2.6 answers" in says("/model kimi-k2.6")
        assert "came back" in says("/retry")
        assert "taken back: And over Messages? (4 messages)" in says("/undo")

        # What was said.
        told = says("/history")
        assert "1 you What is here?" in told
        assert "8 model" in told
        assert "moonshim-1" in says("/history 3")
        assert "everything is kept as it is said" in says("/save")
        assert "kept as" in says("/save first")
        assert "exists already" in says("/save first")
        for format, start in {"openai": "[", "anthropic": "[", "vercel": "[", "markdown": "#"}.items():
            assert "written to" in says(f"/export {format} out.{format}")
            assert (folder / f"out.{format}").read_text().startswith(start)
        assert "is there already" in says("/export openai out.openai")
        assert says("/clear").startswith("a new conversation; /load ")
        assert "nothing was said yet" in says("/history")
        told = says("/load")
        assert "first" in told
        assert "8 messages What is here?" in told
        assert "there is no conversation `nowhere`" in says("/load nowhere")
        assert "this is first: 8 messages" in says("/load first")
        used.add("exit")
        talk.says("/exit")
        assert talk.ends() == 0
        assert "moonshim chat --demo --resume first goes on from here" in talk.text
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
        assert "demo/kimi-k2.6" in talk.display[-1] or talk.asks("/model")[0].startswith("demo/kimi-k2.6")
        assert "came back" in "\n".join(talk.asks("Go on."))
        assert " 12  model" in "\n".join(talk.asks("/history"))
    assert b"Go on." in kept.read_bytes()
