"""The chat where a terminal can do little: an encoding without most characters, or a cursor that cannot be moved."""

from __future__ import annotations

from pathlib import Path

from moonshim.simulator import Simulator
from tests.chat.talking import COLUMNS, Talk


def talk_to(host: Simulator, folder: Path, **changes: str) -> Talk:
    return Talk("--base-url", f"{host.url}/v1", "--model", "kimi-k2.5", "--yolo", cwd=folder, **changes)


def test_no_line_is_shown_twice_where_the_encoding_lacks_characters(host: Simulator, tmp_path: Path) -> None:
    with talk_to(host, tmp_path, LC_ALL="C", PYTHONUTF8="0") as talk:
        talk.asks("long")
        shown = [line for line in talk.lines if line.startswith("Paragraph")]
        assert shown == [f"Paragraph {number} is about the sea." for number in range(1, 30)]
        talk.asks("list the files")
        assert talk.text.count("There are two things:") == 1
        assert "\\u" not in talk.text


def test_a_dumb_terminal_is_as_wide_as_it_is(host: Simulator, tmp_path: Path) -> None:
    with talk_to(host, tmp_path, TERM="dumb") as talk:
        talk.until(lambda: talk.raw.rpartition("\n")[2].startswith("> "), "place to type")
        words = "word " * 16 + "end"  # with `You said: ` more than 80 columns, and less than there are
        talk.types(f"{words}\r")
        talk.sees("You said:")
        talk.until(lambda: talk.raw.rpartition("\n")[2].startswith("> "), "place to type")
        assert 80 < len(f"You said: {words}") < COLUMNS
        assert f"You said: {words}" in [line.strip() for line in talk.lines]
