"""A call that the model has read somewhere and repeats is text, whatever the host, the client and the chunks."""

from __future__ import annotations

from typing import Final

import pytest

import moonshim
from tests.laws.marker_texts import quotations
from tests.laws.marker_texts.cases import Runner, report
from tests.laws.marker_texts.show import REQUESTS
from tests.support.profiles import PROFILE

_ONLY: Final = 6 if PROFILE == "quick" else None
"""How many of the fifteen ways to repeat a call are tried with each request."""
_BLOCKS: Final = 18
_NUMBERS: Final = {
    group: [number for number in range(REQUESTS) if quotations.group(number) == group]
    for group in ("plain", "escaped", "prefixed")
}


def check(numbers: list[int], group: str) -> None:
    found = [case for number in numbers for case in quotations.cases(number, only=_ONLY)]
    faults = Runner().faults(found)
    assert not faults, report(faults, len(found), group)


@pytest.mark.parametrize("block", range(_BLOCKS))
def test_a_quoted_call_is_text(block: int) -> None:
    check(_NUMBERS["plain"][block::_BLOCKS], "quotations")


def test_a_call_whose_markers_are_escaped_in_the_request_is_text() -> None:
    check(_NUMBERS["escaped"], "quotations-escaped")


def test_a_call_with_a_line_number_in_front_of_each_line_is_text() -> None:
    check(_NUMBERS["prefixed"], "quotations-prefixed")


def test_a_quoted_call_over_the_limit_is_text() -> None:
    command = "echo " + "x" * 3000
    call = f'<|tool_call_begin|>functions.bash:0<|tool_call_argument_begin|>{{"command": "{command}"}}<|tool_call_end|>'
    body = {"choices": [{"index": 0, "message": {"role": "assistant", "content": call}, "finish_reason": "stop"}]}
    tools = [{"type": "function", "function": {"name": "bash", "parameters": {"type": "object"}}}]
    options = moonshim.KimiOptions.mending(buffer_limit=1024)
    mended = moonshim.mend_response(body, model="kimi-k2.5", tools=tools, quoted=[call], options=options)
    assert mended.body["choices"][0]["message"] == {"role": "assistant", "content": call}
    assert "buffer_limit" in [repair.rule for repair in mended.repairs]


def test_there_are_enough_requests() -> None:
    assert sum(map(len, _NUMBERS.values())) >= 500
    assert len(_NUMBERS["plain"]) >= 450
