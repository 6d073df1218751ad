"""Web search as the model sees it: which results may be used, and which of them a text cites."""

from __future__ import annotations

import pytest

from moonshim.engine.values.conversation import SearchSettings
from moonshim.engine.values.searches import SearchResult
from moonshim.engine.web_search import find_citations, is_allowed


class Pages(dict[str, SearchResult]):
    """Known pages that count how often they are looked up."""

    def __init__(self, *urls: str) -> None:
        super().__init__((url, SearchResult(url)) for url in urls)
        self.lookups = 0

    def __contains__(self, url: object) -> bool:
        self.lookups += 1
        return super().__contains__(url)


def test_a_link_before_much_punctuation_is_found_at_once() -> None:
    """A model that repeats itself writes as much punctuation as it may."""
    known = Pages("https://a.example/b", "https://a.example/c")
    (found,) = find_citations(f"See https://a.example/b{'!' * 10_000}", known)
    assert found[:2] == (4, 23)
    assert known.lookups < 10


@pytest.mark.parametrize(
    ("text", "cited"),
    [
        ("https://a.example/f_(x)).", "https://a.example/f_(x)"),
        ("https://a.example/f_(x", None),
        ("(https://a.example/f_)", "https://a.example/f_"),
        ("https://a.example.", "https://a.example/"),
        ("https://a.example/f_(x)y", None),
    ],
)
def test_the_longest_page_before_punctuation_is_cited(text: str, cited: str | None) -> None:
    known = Pages("https://a.example/", "https://a.example/f_", "https://a.example/f_(x)")
    assert [result.url for _, _, result in find_citations(text, known)] == ([cited] if cited else [])


@pytest.mark.parametrize(
    "url",
    [
        r"https://evil.example\@good.example/",
        r"https://evil.example\.good.example/",
        "https://good.example@evil.example",
    ],
)
def test_a_host_that_only_looks_allowed_is_not(url: str) -> None:
    assert not is_allowed(url, SearchSettings(allowed=("good.example",)))
    assert not is_allowed(url, SearchSettings(blocked=("evil.example",)))
