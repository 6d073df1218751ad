"""Random clean streams: text, calls, usage, finish and unknown fields leave as they came, without error or repair."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest

from tests.laws.clean_streams.compare import differences
from tests.laws.clean_streams.streams import clean_case
from tests.support.profiles import PROFILE, SEED

CASES: Final = {"quick": 400, "full": 1_000, "explore": 100_000}[PROFILE]
_BLOCKS: Final = {"quick": 4, "full": 10, "explore": 200}[PROFILE]
_SHOWN: Final = 5


@pytest.mark.fuzz
@pytest.mark.parametrize("block", range(_BLOCKS))
def test_a_clean_stream_leaves_as_it_came(block: int, record_property: Callable[[str, Any], None]) -> None:
    numbers = range(block, CASES, _BLOCKS)
    record_property("clean_streams", len(numbers))
    failing: list[str] = []
    for number in numbers:
        case = clean_case(SEED, number)
        if wrong := differences(case):
            failing.append(f"{case.title}\n    " + "\n    ".join(one[:300] for one in wrong))
    again = "In full: python -m tests.laws.clean_streams.show SEED NUMBER"
    assert not failing, "\n".join([f"{len(failing)} of {len(numbers)} fail", *failing[:_SHOWN], again])
