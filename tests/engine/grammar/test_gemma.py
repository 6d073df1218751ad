"""Gemma: what is too long to be what it should be."""

from __future__ import annotations

import json
from typing import Final

import pytest

from moonshim.engine.grammar.protocol import CallDelta, Notice
from moonshim.engine.grammar.shared.raw_values import HOLD_LIMIT
from tests.engine.grammar.family_runs import run
from tests.engine.grammar.raw_text import raw_grammar

OPEN: Final = "<|tool_call>call:put"
QUOTE: Final = '<|"|>'


@pytest.mark.parametrize("size", [5, 1000, 1_000_000])
class TestLimits:
    def test_a_text_without_quotes_that_is_too_long_is_a_string_all_the_same(self, size: int) -> None:
        value = "x" * (HOLD_LIMIT + 30)
        found = run(raw_grammar("gemma"), f"{OPEN}{{text:{value},count:1}}", size)
        assert Notice("value_as_string", value[:HOLD_LIMIT]) in found
        written = "".join(one.text for one in found if isinstance(one, CallDelta))
        assert json.loads(written) == {"text": value, "count": 1}

    @pytest.mark.parametrize("lead", ["", QUOTE])
    def test_a_key_without_end_is_reported_in_pieces(self, size: int, lead: str) -> None:
        found = run(raw_grammar("gemma"), f"{OPEN}{{{lead}" + "x" * (HOLD_LIMIT + 3) + f"{lead},count:1}}", size)
        assert [one.detail for one in found if isinstance(one, Notice)] == ["x" * HOLD_LIMIT, "xxx"]
