"""Patterns of schemas: what is found, and what nobody waits for."""

from __future__ import annotations

import pytest

from moonshim.simulator.model.patterns import finds
from moonshim.simulator.model.schema_check import allows
from moonshim.simulator.model.tool_arguments import sample

ENDLESS = [
    "^(\\w+)+!$",
    "^(([a-z])+.)+!$",
    "(a|a)+!",
    "(x+x+)+!",
    "(((a*)*)*)*!",
    "a*a*a*a*a*a*a*a*!",
    "(a?){30}a{30}!",
]


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        ("^[a-z]+(-[a-z]+)*$", "moon-shim", True),
        ("^\\S+@\\S+\\.\\S+$", "someone@example.com", True),
        ("^(?=.*\\d).{8,}$", "moonshim-1", True),
        ("^[0-9a-f]{8}-[0-9a-f]{4}$", "no", False),
        ("(?<n>a)", "a", None),  # of another language
        ("a" * 5000, "a" * 5000, None),
    ],
)
def test_patterns_that_people_write_are_looked_for(pattern: str, text: str, found: bool | None) -> None:
    assert finds(pattern, text) is found


@pytest.mark.parametrize("pattern", ENDLESS)
def test_a_pattern_that_could_be_read_in_endless_ways_is_not_looked_for_in_a_long_text(pattern: str) -> None:
    assert finds(pattern, "a" * 60) is None
    assert allows({"pattern": pattern}, "a" * 60)
    assert isinstance(sample({"type": "string", "pattern": pattern}, word="a" * 60), str)


@pytest.mark.parametrize(
    "pattern",
    [
        "(?:(?:a{999}){999}){999}",
        "(?:(?:(?:){9999}){9999}){9999}",
        "(a)" + "".join(f"(\\{group}\\{group})" for group in range(1, 60)),
    ],
)
def test_a_text_written_after_a_pattern_has_an_end(pattern: str) -> None:
    made = sample({"type": "string", "pattern": pattern})
    assert isinstance(made, str)
    assert len(made) < 1_000_000
