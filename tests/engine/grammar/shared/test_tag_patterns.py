"""Tags are found wherever they are, and waited for exactly as long as they may still come."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moonshim.engine.grammar.shared.tag_patterns import (
    MORE,
    NAME_LIMIT,
    TagMatch,
    TagPattern,
    TagSet,
    attribute,
    chars,
    either,
    literal,
    row,
    space,
)

NAMED = row(literal("<go "), space(4), attribute("name"), space(4), either(literal(">"), literal("/>")))
TAGS = TagSet(
    [
        TagPattern("named", NAMED),
        TagPattern("word", row(literal("<w="), chars("a-z"), literal(">")), literal("<w")),
        TagPattern("strict", literal("<s>"), literal("!"), at_end=False),
        TagPattern("weak", literal("<s>"), weak=True),
    ]
)

CASES: dict[str, tuple[str, TagMatch | None, TagMatch | None]] = {
    "no tag": ("a < b", None, None),
    "quoted": ('<go name="a b">', TagMatch("named", 0, 15, ('"a b"',)), TagMatch("named", 0, 15, ('"a b"',))),
    "single quotes and space": (
        "<go  name = 'a' />",
        TagMatch("named", 0, 18, ("'a'",)),
        TagMatch("named", 0, 18, ("'a'",)),
    ),
    "no quotes": ("x<go name=a>", TagMatch("named", 1, 12, ("a",)), TagMatch("named", 1, 12, ("a",))),
    "a quote that does not end": ('<go name="a', TagMatch(MORE, 0, 11), TagMatch(MORE, 0, 11)),
    "half a word": ("<go na", TagMatch(MORE, 0, 6), TagMatch(MORE, 0, 6)),
    "what follows is there": ("<w=ab> <w=", TagMatch("word", 0, 6, ("ab",)), TagMatch("word", 0, 6, ("ab",))),
    "what follows may come": ("<w=ab> <", TagMatch(MORE, 0, 8), TagMatch("word", 0, 6, ("ab",))),
    "what follows is something else": ("<w=ab> x", None, None),
    "a weak tag waits for a strong one": ("<s>", TagMatch(MORE, 0, 3), TagMatch("weak", 0, 3)),
    "a strong tag": ("<s>\n!", TagMatch("strict", 0, 3), TagMatch("strict", 0, 3)),
    "a weak tag": ("<s> x", TagMatch("weak", 0, 3), TagMatch("weak", 0, 3)),
}


@pytest.mark.parametrize(("text", "seen", "at_the_end"), CASES.values(), ids=CASES.keys())
def test_what_is_seen(text: str, seen: TagMatch | None, at_the_end: TagMatch | None) -> None:
    assert TAGS.find(text, 0) == seen
    assert TAGS.find(text, 0, final=True) == at_the_end


def test_a_name_has_a_limit() -> None:
    assert TAGS.find(f"<go name={'x' * NAME_LIMIT}", 0) == TagMatch(MORE, 0, NAME_LIMIT + 9)
    assert TAGS.find(f"<go name={'x' * (NAME_LIMIT + 1)}", 0) is None


PIECES = ["<", "<go ", "name", "=", '"', "'", ">", "/>", " ", "a", "<w=", "<w", "<s>", "!", "x"]


@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join), st.lists(st.sampled_from(PIECES), max_size=6))
def test_what_is_seen_does_not_change_when_more_follows(text: str, more: list[str]) -> None:
    seen = TAGS.find(text, 0)
    later = TAGS.find(text + "".join(more), 0)
    if seen is not None and seen.kind != MORE:
        assert later == seen
    else:
        start = seen.start if seen is not None else len(text)
        assert later is None or later.start >= start
