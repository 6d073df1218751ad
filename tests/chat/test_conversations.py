"""The folder of conversations, and what others get of them."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path

import pytest

from moonshim.agent.history import HistoryError
from moonshim.chat.conversations import ConversationFolder
from moonshim.chat.export import EXPORTS, export_messages
from moonshim.engine.values.conversation import Message, Reasoning, Text, ToolCall, ToolResult

TALK = (
    Message("user", (Text("What is\nhere? \x1b[2J"),)),
    Message(
        "assistant",
        (Reasoning("Let me see.\nYes."), Text("I look."), ToolCall("hist_tool_1", "bash", '{"command": "ls"}')),
    ),
    Message("tool", (ToolResult("hist_tool_1", "bash", (Text("a ``` b"),)),)),
    Message("assistant", (Text("**One** file."),)),
)


def kept(shelf: ConversationFolder, minute: int) -> str:
    with shelf.begin(datetime(2026, 1, 2, 3, minute)) as history:
        for message in TALK:
            history.add(message)
        return history.path.stem


def test_conversations_are_found_by_their_names(tmp_path: Path) -> None:
    shelf = ConversationFolder(tmp_path / "chats")
    first, second = kept(shelf, 4), kept(shelf, 5)
    assert first.startswith("20260102-030400-")
    assert [one.id for one in shelf.newest()] == [second, first]
    row = shelf.newest()[0]
    assert (row.count, row.words) == (4, "What is here? \\x1b[2J")
    assert shelf.find("last").stem == second
    assert shelf.find(first).stem == first
    assert shelf.find("20260102-0305").stem == second
    assert shelf.find(str(tmp_path / "chats" / f"{first}.jsonl")).stem == first
    assert (tmp_path / "chats").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("20260102", "several conversations start with `20260102`"),
        ("nowhere", "no conversation `nowhere`"),
        ("a b", "invalid conversation name"),
        ("./nowhere.jsonl", "no conversation `./nowhere.jsonl`"),
        ("", "invalid conversation name"),
    ],
)
def test_what_cannot_be_found_is_told(name: str, told: str, tmp_path: Path) -> None:
    shelf = ConversationFolder(tmp_path)
    kept(shelf, 4)
    kept(shelf, 5)
    with pytest.raises(HistoryError, match=told.replace("`", ".")):
        shelf.find(name)


def test_nothing_is_there_at_first(tmp_path: Path) -> None:
    shelf = ConversationFolder(tmp_path / "none")
    assert shelf.newest() == []
    with pytest.raises(HistoryError, match="no conversations in"):
        shelf.find("last")
    with shelf.begin() as history:
        path = history.path
    assert not path.exists()


def test_a_file_that_is_none_is_left_out(tmp_path: Path) -> None:
    shelf = ConversationFolder(tmp_path)
    (tmp_path / "broken.jsonl").write_text("nothing\n")
    name = kept(shelf, 4)
    assert [one.id for one in shelf.newest()] == [name]


def test_others_get_their_own_words() -> None:
    chat = json.loads(export_messages(TALK, "openai"))
    assert [message["role"] for message in chat] == ["user", "assistant", "tool", "assistant"]
    assert chat[1]["reasoning_content"] == "Let me see.\nYes."
    assert chat[1]["tool_calls"][0]["id"] == chat[2]["tool_call_id"]
    messages = json.loads(export_messages(TALK, "anthropic"))
    assert [block["type"] for block in messages[1]["content"]][-1] == "tool_use"
    assert messages[2]["content"][0]["tool_use_id"] == messages[1]["content"][-1]["id"]
    vercel = json.loads(export_messages(TALK, "vercel"))
    assert "hist_tool_1" not in json.dumps(vercel)
    assert set(EXPORTS) == {"openai", "anthropic", "vercel", "markdown"}


def test_people_get_markdown() -> None:
    assert export_messages(TALK, "markdown") == (
        "## You\n\nWhat is\nhere? \x1b[2J\n\n## Model\n\n> Let me see.\n> Yes.\n\nI look.\n\n```\nbash ls\n```\n\n"
        "````\na ``` b\n````\n\n**One** file.\n"
    )
