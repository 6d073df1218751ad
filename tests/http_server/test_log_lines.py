"""Whatever is logged is one line of JSON, whoever reads it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from moonshim.http_server.log_lines import json_line


@pytest.mark.parametrize("value", [{1, 2}, "half \ud83d a character", b"\xff", 10**400, object])
def test_whatever_is_logged_becomes_json(value: Any) -> None:
    assert json.loads(json_line({"event": "odd", "value": value}))["event"] == "odd"


@pytest.mark.parametrize("char", ["\x7f", "\x85", "\x9b", "\u2028", "\u2029", "\u202a", "\u202e", "\u2066", "\u2069"])
def test_nothing_in_a_line_of_json_ends_it_turns_it_around_or_moves_a_cursor(char: str) -> None:
    fields = {"event": "request", "model": f"a{char}b", char: "é \\"}
    line = json_line(fields)
    assert char not in line
    assert f"a\\u{ord(char):04x}b" in line
    assert json.loads(line) == fields


def test_letters_of_any_language_stay_in_a_line_of_json() -> None:
    assert json_line({"event": "月之暗面 é"}) == '{"event":"月之暗面 é"}'
