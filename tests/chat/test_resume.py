"""`--resume` without a name goes on with the last conversation of this folder, and with no `-p` run that failed."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from moonshim.simulator import Simulator
from tests.chat.talking import Talk, in_folder
from tests.support.command import CompletedCommand, run_moonshim

ANSWERED = {"speaker": "ai", "parts": [{"type": "text", "text": "Hi."}]}


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    return tmp_path / "one", tmp_path / "other"


def chat(host: Simulator, folder: Path, *arguments: str, model: str = "kimi-k2.5") -> CompletedCommand:
    to = ("--base-url", f"{host.url}/v1", "--model", model, "--output", "json")
    return run_moonshim("chat", *to, *arguments, cwd=folder, XDG_DATA_HOME=str(folder.parent / "data"))


def name_of(done: CompletedCommand) -> str:
    answer: dict[str, Any] = json.loads(done.out)
    return str(answer["conversation"])


def kept(folder: Path) -> Path:
    """Where the conversations of somebody are who works in this folder."""
    return folder.parent / "data" / "moonshim" / "chats"


def test_the_last_conversation_is_that_of_this_folder(
    host: Simulator, folders: tuple[Path, Path], tmp_path: Path
) -> None:
    one, other = folders
    here, there = name_of(chat(host, one, "-p", "hello")), name_of(chat(host, other, "-p", "hello"))
    assert here != there
    assert name_of(chat(host, one, "-p", "hello again", "--resume")) == here
    assert name_of(chat(host, other, "-p", "hello again", "--resume")) == there
    # The folder is that of the tools, by whatever name; and a name leads to a conversation from anywhere.
    (tmp_path / "link").symlink_to(one)
    assert name_of(chat(host, other, "-p", "hello", "--resume", "--folder", str(tmp_path / "link"))) == here
    assert name_of(chat(host, other, "-p", "hello", "--resume", here)) == here


def test_a_folder_without_a_conversation_is_told_so_and_where_the_last_one_is(
    host: Simulator, folders: tuple[Path, Path]
) -> None:
    one, other = folders
    there = name_of(chat(host, other, "-p", "hello"))
    done = chat(host, one, "-p", "hello", "--resume")
    assert done.code == 2
    assert f"no conversations in the folder {one}" in done.stderr
    assert f"`moonshim chat --resume {there}`" in done.stderr


@pytest.mark.parametrize(
    ("model", "more"), [("kimi-k2.5+unheard-of", ()), ("kimi-k2.5", ("--rounds", "1"))], ids=["at once", "after tools"]
)
def test_a_run_for_a_script_that_failed_is_not_gone_on_with(
    host: Simulator, folders: tuple[Path, Path], model: str, more: tuple[str, ...]
) -> None:
    one, _ = folders
    answered = name_of(chat(host, one, "-p", "hello"))
    failed = chat(host, one, "-p", "both of them", *more, model=model)
    assert failed.code in (1, 3)
    assert name_of(chat(host, one, "-p", "hello", "--resume")) == answered
    # Whoever names it can have it; once it is answered it is a conversation like any other.
    assert name_of(chat(host, one, "-p", "hello", "--resume", name_of(failed))) == name_of(failed)
    assert name_of(chat(host, one, "-p", "hello", "--resume")) == name_of(failed)


def test_a_chat_whose_only_turn_failed_is_gone_on_with(host: Simulator, folders: tuple[Path, Path]) -> None:
    pytest.importorskip("pty")
    one, _ = folders
    chat(host, one, "-p", "hello")
    data = {"XDG_DATA_HOME": str(one.parent / "data")}
    to = ("--base-url", f"{host.url}/v1")
    with Talk(*to, "--model", "kimi-k2.5+unheard-of", cwd=one, **data) as talk:
        talk.says("remember the milk")
        talk.sees("unknown fault or scenario")
        talk.says("/exit")
        assert talk.ends() == 0
    with Talk(*to, "--model", "kimi-k2.5", "--resume", cwd=one, **data) as talk:
        talk.sees("1 message;", "> remember the milk")


def test_files_of_earlier_versions_are_found_by_name_and_by_the_folder_that_they_say(
    host: Simulator, folders: tuple[Path, Path]
) -> None:
    one, other = folders
    kept(one).mkdir(parents=True)
    openings: dict[str, dict[str, Any]] = {"silent": {}, "here": {"folder": str(one)}}
    for place, (name, more) in enumerate(openings.items()):
        lines = [
            {"moonshim": "conversation", "version": 1, **more},
            {"message": {"speaker": "human", "parts": [{"type": "text", "text": "Hi"}]}},
            {"message": ANSWERED},
        ]
        path = kept(one) / f"{name}.jsonl"
        path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        os.utime(path, (1_000_000_000 - place, 1_000_000_000 - place))
    os.mkfifo(kept(one) / "pipe.jsonl")
    (kept(one) / "broken.jsonl").write_text("nothing\n")
    assert name_of(chat(host, one, "-p", "hello", "--resume")) == "here"
    assert name_of(chat(host, one, "-p", "hello", "--resume", "silent")) == "silent"
    assert chat(host, other, "-p", "hello", "--resume").code == 2


def test_a_copy_belongs_to_the_folder_of_the_conversation(host: Simulator, folders: tuple[Path, Path]) -> None:
    pytest.importorskip("pty")
    one, other = folders
    data = {"XDG_DATA_HOME": str(one.parent / "data")}
    with Talk("--base-url", f"{host.url}/v1", "--model", "kimi-k2.5", cwd=in_folder(one), **data) as talk:
        talk.asks("hello")
        talk.asks("/save copy")
        talk.says("/exit")
        assert talk.ends() == 0
    assert name_of(chat(host, one, "-p", "hello", "--resume")) == "copy"
    assert chat(host, other, "-p", "hello", "--resume").code == 2
