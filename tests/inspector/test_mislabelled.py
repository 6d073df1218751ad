"""A stream under a wrong content type is shown frame by frame, as any other."""

from __future__ import annotations

import pytest

from moonshim.gateway.inspector.stream_rows import mended_rows
from tests.engine.response.reply.asking import answer_of, as_form, plan_for_pair


@pytest.mark.parametrize("form", ["sse", "ndjson"])
def test_its_rows_are_those_of_the_stream(form: str) -> None:
    plan, data = plan_for_pair("openai_chat"), as_form(answer_of("openai_chat"), form)  # type: ignore[arg-type]
    mislabelled, labelled = (mended_rows(plan, data, label, "sse") for label in ("json", form))  # type: ignore[arg-type]
    assert mislabelled == labelled
    assert len(mislabelled.rows) > 5
