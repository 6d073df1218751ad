"""The examples of the page on transformers run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).parent.parent.parent / "docs" / "guides" / "transformers.md").read_text("utf-8")
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_an_example_does_what_it_says(number: int) -> None:
    assert "assert " in EXAMPLES[number]
    exec(compile(EXAMPLES[number], f"transformers.md, example {number + 1}", "exec"), {"__name__": "example"})


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 4
