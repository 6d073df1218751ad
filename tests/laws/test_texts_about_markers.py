"""A text that only talks about markers arrives as it is, without calls, with declared tools and without."""

from __future__ import annotations

import pytest

from tests.laws.marker_texts import texts
from tests.laws.marker_texts.cases import Runner, report


@pytest.mark.parametrize("declared", [True, False], ids=["tools", "no tools"])
@pytest.mark.parametrize("form", texts.FORMS)
def test_a_text_about_markers_stays_as_it_is(form: str, declared: bool) -> None:
    found = list(texts.cases(form, declared=declared))
    faults = Runner().faults(found)
    assert not faults, report(faults, len(found), "texts")


def test_there_are_enough_texts() -> None:
    assert len(texts.texts()) >= 150
