"""Text of models and tools does nothing to a terminal, and stays readable."""

from __future__ import annotations

import sys
import unicodedata

import pytest

from moonshim.chat.render.sanitize import clean, clean_line

HOSTILE = {
    "clears the screen": "\x1b[2J",
    "sets a title": "\x1b]0;owned\x07",
    "writes to the clipboard": "\x1b]52;c;cm0gLXJm\x1b\\",
    "moves up": "\x1b[10A",
    "an escape of one byte": "\x9b2J",
    "goes back": "abc\b\b\bxyz",
    "overwrites the line": "safe\rrm -rf /",
    "reverses": "a\u202etxt.exe",
    "isolates": "\u2066a\u2069",
    "hides words": "a\U000e0041\U000e0042",
    "zero width": "pay\u200bpal",
    "another line": "a\u2028b",
    "half a character": "\ud83d",
    "deletes": "\x7f",
    "rings": "\x07",
    "shifts": "\x0e\x0f",
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_nothing_is_left_that_a_terminal_obeys(text: str) -> None:
    made = clean(text)
    assert not [char for char in made if unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp")]
    assert "\\" in made


def test_every_character_that_is_obeyed_is_known_as_one() -> None:
    obeyed = {chr(code) for code in range(sys.maxunicode + 1) if unicodedata.category(chr(code)) in ("Cc", "Cf", "Cs")}
    obeyed |= {"\u2028", "\u2029"}
    assert {char for char in obeyed if clean(char) == char} == {"\n", "\u200c", "\u200d"}


@pytest.mark.parametrize(
    "text",
    [
        "plain words\nand lines",
        "今天天气　怎么样",
        "à la\u00a0carte, 10\u202f000 €",
        "שלום",
        "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",
        "👨\u200d👩\u200d👧 ❤\ufe0f 🇫🇷",
        "─│┌ ✓ …",
    ],
)
def test_ordinary_text_stays_as_it_is(text: str) -> None:
    assert clean(text) == text


def test_lines_end_as_they_do_here_and_tabs_become_spaces() -> None:
    assert clean("a\r\nb\tc") == "a\nb    c"
    assert clean_line("a\nb") == "a\\nb"
