"""The chat as somebody at a terminal has it: streaming, folding, asking, stopping, resizing, hostile words."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest

from moonshim.simulator import Simulator
from tests.chat.talking import ALT_ENTER, CTRL_C, CTRL_D, CTRL_R, CTRL_T, UP, Talk, in_folder

pytest.importorskip("pty")


def talk_to(host: Simulator, folder: Path, *arguments: str, model: str = "kimi-k2.5", **changes: str) -> Talk:
    return Talk("--base-url", f"{host.url}/v1", "--model", model, *arguments, cwd=folder, **changes)


def test_a_turn_with_tools_and_what_is_asked_before_they_run(host: Simulator, tmp_path: Path) -> None:
    folder = in_folder(tmp_path)
    with talk_to(host, folder) as talk:
        talk.says("list the files")
        talk.sees("A shell can tell.", "Let me look.", "bash  ls", "Run this?  y once   n no   Ctrl-C stop")
        talk.types("y")
        talk.sees("notes.md", "There are two things:", " • a folder")
        # The reasoning is dim, the answer is Markdown, and the call is shown once, with its result.
        assert "\x1b[2;3mA shell can tell.\x1b[0m" in talk.raw
        assert "\x1b[1mtwo\x1b[0m" in talk.raw
        talk.until(talk.is_ready, "place to type")
        assert sum(line.endswith("bash  ls") for line in talk.lines) == 1
        assert "Run this?" not in talk.text
        assert talk.display[-1].endswith("out · /help")

        # No means no, and the model is told; a second time it is asked again.
        talk.says("write it")
        talk.sees("write_file  new.txt", "always: write_file in this folder")
        talk.types("n")
        talk.sees("the user denied this call", "Written.")
        assert not (folder / "new.txt").exists()
        # Always means that nobody is asked again.
        talk.says("write it")
        talk.sees("Run this?")
        talk.types("a")
        talk.sees("Written.", times=2)
        assert (folder / "new.txt").read_text() == "one\ntwo\n"
        talk.says("write it")
        talk.sees("Written.", times=3)
        assert "always allowed: write_file in this folder" in "\n".join(talk.asks("/tools"))
        # Tools that only read are not asked for; their results come in the order of the calls.
        shown = talk.asks("both of them")
        assert [line for line in shown if line.startswith("●")] == ["● read_file  notes.md", "● glob  **/*.py"]
        # A model that knows no tool calling is told of tools in words, and its words are read.
        talk.asks("/toolformat hermes")
        shown = talk.asks("as hermes would")
        assert shown[1:3] == ["● glob  *.md", "  notes.md"]
        assert "hermes (set)" in talk.display[-1]
        talk.asks("/toolformat auto")
        # A result is cut to a screenful.
        talk.says("much of it")
        talk.sees("seq 1000")
        talk.types("y")
        talk.sees("more lines (/history to show all)", "That was much.")
        assert len(talk.display) > sum(line.strip().isdecimal() for line in talk.lines)
        # Ctrl-C at the question ends the turn.
        talk.says("list again")
        talk.sees("Run this?")
        talk.types(CTRL_C)
        talk.sees("the user denied this call", times=2)
        talk.says("/exit")
        assert talk.ends() == 0


def test_words_that_are_typed_while_something_is_asked_allow_nothing(host: Simulator, tmp_path: Path) -> None:
    with talk_to(host, in_folder(tmp_path)) as talk:
        talk.says("list the files")
        talk.sees("Run this?")
        # Somebody types on, or pastes: both begin with a letter that would be an answer, or have one in them.
        talk.types("yes, and also run the tests")
        talk.types("/")
        for letter in "clay":
            talk.types(letter)

        def seconds() -> int:
            return max((int(line.split()[1]) for line in talk.display if line.startswith("working")), default=-1)

        talk.until(lambda: seconds() >= 0, "how long it works")
        begun = seconds()
        talk.until(lambda: seconds() >= begun + 2, "later second")  # so that one has passed
        assert "Run this?" in talk.text
        assert "There are two things:" not in talk.text
        talk.types("y")
        talk.sees("There are two things:")
        assert "always allowed" not in "\n".join(talk.asks("/tools"))
        # A table goes on in its column, and on a narrow screen below.
        shown = talk.asks("/tools")
        begins = next(line for line in shown if line.startswith("bash")).index("Run")
        assert shown[shown.index(next(line for line in shown if line.startswith("bash"))) + 1].startswith(" " * begins)
        assert all(line.startswith((" ", "/", "Enter", "Up", "Ctrl")) or not line for line in talk.asks("/help")[:-4])


def test_an_answer_is_shown_while_it_comes_and_can_be_stopped(host: Simulator, tmp_path: Path) -> None:
    with talk_to(host, in_folder(tmp_path), model="kimi-k2.5+stall") as talk:
        talk.says("a long one")
        # The host has said half, and says nothing more: all that it said is there, and nobody can type yet.
        talk.sees("This will be long.", "Tides", "Paragraph 2 is about the sea.", "working", "Ctrl-C to stop")
        assert "Paragraph 29" not in talk.text
        assert not talk.is_ready()
        talk.types(CTRL_C)
        talk.sees("Stopped.")
        # What was said stays, and the conversation goes on from there.
        talk.asks("/model kimi-k2.5")
        talk.says("hello")
        talk.sees("Hello yourself.")
        assert "model" in "\n".join(talk.asks("/history"))
        talk.types(CTRL_D)
        assert talk.ends() == 0


def test_a_tool_is_stopped_in_the_middle_and_the_conversation_goes_on(host: Simulator, tmp_path: Path) -> None:
    folder = in_folder(tmp_path)
    with talk_to(host, folder, "--yolo") as talk:
        talk.sees("without asking")
        talk.says("wait for it")
        talk.sees("sleep 1000")
        talk.until((folder / "begun").exists, "sign of the command")
        talk.types(CTRL_C)
        talk.sees("the user stopped this tool before it finished", "You can continue the conversation from here.")
        talk.says("hello")
        talk.sees("Hello yourself.")
        # Once more, and twice: the second one leaves.
        (folder / "begun").unlink()
        talk.says("wait again")
        talk.until((folder / "begun").exists, "sign of the command")
        talk.types(CTRL_C)
        talk.until(talk.is_ready, "place to type")
        talk.types(CTRL_C)
        assert talk.ends() == 0
        # The same host has to be named again: nothing is configured here.
        told = " ".join(talk.text.split())
        assert f"moonshim chat --base-url {host.url}/v1 --model kimi-k2.5 --resume 2" in told
    assert not (folder / "never").exists()
    assert not host.refusals


def test_a_terminal_is_left_as_it_was_found(host: Simulator, tmp_path: Path) -> None:
    with talk_to(host, in_folder(tmp_path), model="kimi-k2.5+stall") as talk:
        talk.says("a long one")
        talk.sees("Paragraph 2 is about the sea.", "working")
        assert not talk.child.getecho()
        assert talk.hides_the_cursor()
        talk.child.kill(signal.SIGTERM)
        assert talk.ends() == 143
        assert not talk.hides_the_cursor()
        assert "working" not in talk.text


def test_reasoning_is_folded_and_shown_again(host: Simulator, tmp_path: Path) -> None:
    with talk_to(host, in_folder(tmp_path)) as talk:
        assert talk.asks("/fold")[0] == "reasoning is hidden (Ctrl-T or /fold shows it)"
        talk.says("think of it")
        talk.sees("6 words of reasoning (Ctrl-T to show)", "Thought through.")
        assert "Secret thought" not in talk.text
        talk.until(talk.is_ready, "place to type")
        talk.types(CTRL_T)
        talk.sees("reasoning is shown (Ctrl-T or /fold hides it)", "  Secret thought one.", "  Secret thought two.")
        talk.says("think of it")
        talk.sees("Thought through.", "Secret thought two.", times=2)
        # In the middle of an answer, too.
        talk.asks("/model kimi-k2.5+stall")
        talk.says("a long one")
        talk.sees("This will be long.", "Paragraph 2")
        talk.types(CTRL_T)
        talk.child.kill(signal.SIGINT)  # what Ctrl-C is where nobody reads keys
        talk.sees("Stopped.")
        assert "shown" in talk.asks("/fold")[0]


def test_the_screen_may_change_its_size_in_the_middle(host: Simulator, tmp_path: Path) -> None:
    with talk_to(host, in_folder(tmp_path), model="kimi-k2.5+stall") as talk:
        talk.says("a long one")
        talk.sees("Paragraph 2 is about the sea.")
        talk.resizes(46, 16)
        talk.until(lambda: any(len(line) < 46 and line.endswith("…") for line in talk.display), "shorter status")
        talk.types(CTRL_C)
        talk.sees("Stopped.")
        talk.asks("/model kimi-k2.5")
        shown = talk.asks("a long one")
        assert [line for line in shown if line.startswith("Paragraph")][-1] == "Paragraph 29 is about the sea."
        assert sum(line.startswith("Paragraph 7 ") for line in shown) == 1
        talk.resizes(120, 40)
        assert talk.asks("hello")[-2:] == ["Hello yourself.", ""]


def test_nothing_that_is_said_does_anything_to_the_terminal(host: Simulator, tmp_path: Path) -> None:
    with talk_to(host, in_folder(tmp_path), "--yolo") as talk:
        shown = "\n".join(talk.asks("hostile words"))
        for words in ("evil", "I say", "printf '", "The end"):
            assert f"{words}{'' if words.endswith(chr(39)) else ' '}\\x1b[2J" in shown
        assert "\\u202egpj" in shown
        for sign in ("\x1b]0;owned", "\x07", "\u202e", "\x1b[31mred"):
            assert sign not in talk.raw
        assert "owned" not in talk.screen.title
        assert "moonshim chat ·" in talk.lines[0]


def test_lines_are_edited_completed_and_found_again(host: Simulator, tmp_path: Path) -> None:
    with talk_to(host, in_folder(tmp_path)) as talk:
        talk.until(talk.is_ready, "place to type")
        for end in (ALT_ENTER, "\n", "\\\r"):
            talk.types(f"hello{end}")
        talk.types("there\r")
        talk.sees("Hello yourself.")
        assert "  there" in talk.lines
        talk.until(talk.is_ready, "place to type")
        # Commands, models, formats and files.
        for typed, becomes in {
            "/toolf\t": "> /toolformat",
            "/model kimi-k2\t": "> /model kimi-k2",
            "/toolformat herm\t": "> /toolformat hermes",
            "read no\t": "> read notes.md",
            "read src/ma\t": "> read src/main.py",
        }.items():
            talk.types(typed)
            talk.until(lambda line=becomes: talk.display[talk.screen.cursor.y] == line, becomes)  # type: ignore[misc]
            talk.types(CTRL_C)
            talk.until(talk.is_ready, "empty line")
        talk.types(f"hel{UP}")
        talk.sees("  there", times=2)
        talk.types(CTRL_C)
        talk.until(talk.is_ready, "empty line")
        talk.types(f"{CTRL_R}there")
        talk.sees("  there", times=2)
        talk.types("\x07")
        talk.until(talk.is_ready, "empty line")
        talk.types(CTRL_C)
        talk.sees("Press Ctrl-C again or type /exit to exit.")
        talk.until(talk.is_ready, "empty line")
        talk.types(CTRL_C)
        assert talk.ends() == 0
    kept = tmp_path / "data" / "moonshim" / "typed"
    assert "+hello" in kept.read_text()
    assert kept.stat().st_mode & 0o077 == 0


def test_a_terminal_that_cannot_move_its_cursor_gets_plain_lines(host: Simulator, tmp_path: Path) -> None:
    with talk_to(host, in_folder(tmp_path), TERM="dumb") as talk:
        talk.until(lambda: talk.raw.rpartition("\n")[2].startswith("> "), "place to type")
        talk.types("list it\r")
        talk.sees("Run this?")
        talk.types("y")
        talk.sees("a folder")
        talk.until(lambda: talk.raw.rpartition("\n")[2].startswith("> "), "place to type")
        talk.types("/exit\r")
        talk.ends()
        assert not re.search(r"\x1b\[[\d;]*[A-Za-z]", talk.raw)  # no colour, and nothing that moves
