"""What somebody types while an answer streams is there when it is over; it never answers a permission prompt."""

from __future__ import annotations

from pathlib import Path

import pytest

from moonshim.simulator import Simulator
from tests.chat.talking import ALT_ENTER, CTRL_C, Talk, in_folder

pytest.importorskip("pty")

BACKSPACE, ESCAPE, UP = "\x7f", "\x1b", "\x1b[A"
PASTE = "\x1b[200~{}\x1b[201~"


def talk_to(host: Simulator, folder: Path, *arguments: str, model: str = "kimi-k2.5", **changes: str) -> Talk:
    return Talk("--base-url", f"{host.url}/v1", "--model", model, *arguments, cwd=folder, **changes)


def typed(talk: Talk, *lines: str) -> bool:
    """Whether the input has these lines, not sent yet, and the cursor is behind them."""
    shown = [f"> {lines[0]}", *(f"  {line}" for line in lines[1:])]
    cursor = talk.screen.cursor
    before = talk.display[cursor.y + 1 - len(shown) : cursor.y + 1]
    return not cursor.hidden and before == shown and cursor.x == len(shown[-1])


def test_text_typed_while_a_tool_runs_is_in_the_input_when_the_turn_is_over(host: Simulator, tmp_path: Path) -> None:
    folder = in_folder(tmp_path)
    with talk_to(host, folder, "--yolo") as talk:
        talk.says("the gate")
        talk.sees("until [ -e open ]")
        talk.types(f"{UP}hallo")
        talk.sees("> hallo")  # it is shown while the turn goes on
        for key in (BACKSPACE, BACKSPACE, BACKSPACE, BACKSPACE):
            talk.types(key)
        talk.types("ello")
        talk.types(f" to{ALT_ENTER}you")
        talk.until(lambda: any(line.endswith("you") for line in talk.display), "last word")
        (folder / "open").touch()
        talk.sees("The gate was open.")
        talk.until(lambda: typed(talk, "hello to", "you"), "text in the input")
        assert "Hello yourself." not in talk.text
        talk.types("\r")
        talk.sees("Hello yourself.")


def test_lines_that_are_sent_ahead_are_answered_one_after_the_other(host: Simulator, tmp_path: Path) -> None:
    folder = in_folder(tmp_path)
    with talk_to(host, folder, "--yolo") as talk:
        talk.says("the gate")
        talk.sees("until [ -e open ]")
        talk.types("first words\r")
        talk.types("second words\rand the rest")
        talk.until(lambda: any(line.endswith("and the rest") for line in talk.display), "last word")
        (folder / "open").touch()
        talk.sees("You said: first words", "You said: second words")
        talk.until(lambda: typed(talk, "and the rest"), "text in the input")
        assert talk.text.index("You said: first words") < talk.text.index("You said: second words")


def test_a_paste_during_an_answer_is_not_sent_line_by_line(host: Simulator, tmp_path: Path) -> None:
    folder = in_folder(tmp_path)
    with talk_to(host, folder, "--yolo") as talk:
        talk.says("the gate")
        talk.sees("until [ -e open ]")
        # A terminal marks what is pasted only if it was asked to.
        assert talk.raw.rfind("\x1b[?2004h") > talk.raw.rfind("\x1b[?2004l")
        talk.types(PASTE.format("one\rtwo"))
        talk.sees("> one")
        (folder / "open").touch()
        talk.sees("The gate was open.")
        talk.until(lambda: typed(talk, "one", "two"), "text in the input")
        assert "You said" not in talk.text


def test_after_a_stop_nothing_is_sent_that_was_typed_before(host: Simulator, tmp_path: Path) -> None:
    with talk_to(host, in_folder(tmp_path), model="kimi-k2.5+stall") as talk:
        talk.says("a long one")
        talk.sees("Paragraph 2 is about the sea.")
        talk.types("first\rand more")
        talk.until(lambda: any(line.endswith("and more") for line in talk.display), "last word")
        talk.types(CTRL_C)
        talk.sees("Stopped.")
        talk.until(lambda: typed(talk, "first and more"), "text in the input")
        assert len(host.requests[-1].body["messages"]) == 2


def test_what_is_typed_around_a_permission_prompt_never_answers_it(host: Simulator, tmp_path: Path) -> None:
    folder = in_folder(tmp_path)
    with talk_to(host, folder, "--allow", "bash") as talk:
        talk.says("the gate")
        talk.sees("until [ -e open ]")
        for letter in "say y":
            talk.types(letter)
        talk.sees("> say y")
        (folder / "open").touch()
        talk.sees("Run this?", "write_file  new.txt")
        assert not (folder / "new.txt").exists()
        # At the prompt nothing is kept, and words are not an answer.
        talk.types("always")
        talk.types(PASTE.format("y"))

        def seconds() -> int:
            return max((int(line.split()[1]) for line in talk.display if line.startswith("working")), default=-1)

        talk.until(lambda: seconds() >= 0, "how long it works")
        begun = seconds()
        talk.until(lambda: seconds() >= begun + 2, "later second")
        assert "Run this?" in talk.text
        talk.types("n")
        talk.sees("the user denied this call", "The gate was open.")
        talk.until(lambda: typed(talk, "say y"), "text in the input")
        assert not (folder / "new.txt").exists()


def test_a_dumb_terminal_keeps_what_is_typed_too(host: Simulator, tmp_path: Path) -> None:
    folder = in_folder(tmp_path)
    with talk_to(host, folder, "--yolo", TERM="dumb") as talk:
        talk.until(lambda: talk.raw.rpartition("\n")[2].startswith("> "), "place to type")
        talk.types("the gate\r")
        talk.sees("I wait.")
        talk.types("hello\r")
        (folder / "open").touch()
        talk.sees("The gate was open.", "Hello yourself.")
