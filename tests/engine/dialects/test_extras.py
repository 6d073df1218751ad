"""What a dialect holds beside the canonical values is that dialect's own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from msgspec import Struct, to_builtins

import moonshim
from moonshim.engine.dialects.anthropic import extras as anthropic
from moonshim.engine.dialects.extras import read_extras
from moonshim.engine.dialects.openai_chat import extras as openai_chat
from moonshim.engine.dialects.openai_responses import extras as openai_responses
from moonshim.engine.dialects.vercel_ai import extras as vercel_ai

SOURCE = Path(moonshim.__file__).parent
READS = re.compile(r"\bextras(\.get\(|\[)")
RECORDS = re.compile(r"\b(Chat|Messages|Responses|Vercel)\w+Extras\b")

WRITTEN: list[tuple[str, Struct, Struct]] = [
    (
        openai_chat.DIALECT,
        openai_chat.ChatMessageExtras(),
        openai_chat.ChatMessageExtras(
            {"name": "x"},
            ("content",),
            (None, openai_chat.ContentSlot({"a": 1}), openai_chat.ContentSlot(raw=None)),
            (None, openai_chat.CallSlot({"id": "x"}, "hist_tool_x"), openai_chat.CallSlot(raw=7)),
            "No.",
            (),
        ),
    ),
    (
        anthropic.DIALECT,
        anthropic.MessagesMessageExtras(),
        anthropic.MessagesMessageExtras({"role": "user", "content": "x"}, 2, [{"type": "text", "text": "x"}]),
    ),
    (
        openai_responses.DIALECT,
        openai_responses.ResponsesMessageExtras(),
        openai_responses.ResponsesMessageExtras(({"type": "message"},), (3,), bare=True),
    ),
    (
        vercel_ai.DIALECT,
        vercel_ai.VercelMessageExtras(),
        vercel_ai.VercelMessageExtras({"x": 1}, (None, vercel_ai.UiContentSlot({"type": "text"}))),
    ),
]


@pytest.mark.parametrize(("dialect", "empty", "written"), WRITTEN, ids=[dialect for dialect, *_ in WRITTEN])
def test_a_record_is_read_again_from_the_plain_object_it_was_saved_as(
    dialect: str, empty: Struct, written: Struct
) -> None:
    assert read_extras({dialect: written}, dialect, empty) is written
    assert read_extras({dialect: to_builtins(written)}, dialect, empty) == written


@pytest.mark.parametrize(("dialect", "empty", "written"), WRITTEN, ids=[dialect for dialect, *_ in WRITTEN])
def test_what_is_no_record_says_nothing(dialect: str, empty: Struct, written: Struct) -> None:
    for value in (None, 7, "x", [written]):
        assert read_extras({dialect: value}, dialect, empty) is empty
    assert read_extras({}, dialect, empty) is empty


def test_only_a_dialect_reads_what_it_holds() -> None:
    outside = [path for path in SOURCE.rglob("*.py") if not path.is_relative_to(SOURCE / "engine" / "dialects")]
    # Tool formats are not dialects: each holds its own unknown fields under its own name.
    outside.remove(SOURCE / "engine" / "formats" / "tools.py")
    for path in outside:
        text = path.read_text()
        assert not READS.search(text), path
        assert not RECORDS.search(text), path
