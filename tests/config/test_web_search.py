"""`[web_search]`: what each provider needs, and what is wrong with a table."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from moonshim.config import ConfigError, Secret, WebSearch
from moonshim.config.review import review_of
from tests.config.texts import toml

PROVIDER = """
[[providers]]
name = "a"
api_base_url = "http://localhost:1/v1"
"""
KEY = {"SEARCH_KEY": "k-1"}


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ('provider = "brave"\napi_key_env = "SEARCH_KEY"', {"provider": "brave", "key": Secret("k-1")}),
        (
            'provider = "tavily"\napi_key = "${SEARCH_KEY}"\nresults = 3\nseconds = 2.5',
            {"provider": "tavily", "key": Secret("k-1"), "results": 3, "seconds": 2.5},
        ),
        (
            'provider = "searxng"\nbase_url = "http://s:8080"',
            {"provider": "searxng", "base_url": "http://s:8080", "price": Decimal(0)},
        ),
        (
            'provider = "command"\ncommand = ["/bin/s", "-j"]',
            {"provider": "command", "command": ("/bin/s", "-j"), "price": Decimal(0)},
        ),
        (
            'provider = "command"\ncommand = ["/bin/s"]\nprice = 0.1\ncurrency = "EUR"',
            {"provider": "command", "command": ("/bin/s",), "price": Decimal("0.1"), "currency": "EUR"},
        ),
    ],
)
def test_a_table_names_who_searches(table: str, expected: dict[str, Any]) -> None:
    config = toml(f"{PROVIDER}\n[web_search]\n{table}", KEY)
    assert config.web_search == WebSearch(**expected)


@pytest.mark.parametrize("setting", ['api_key_env = "NONE"', 'api_key = "$NONE"'])
def test_a_key_whose_variable_is_not_set_is_a_warning(setting: str) -> None:
    config = toml(f'{PROVIDER}\n[web_search]\nprovider = "brave"\n{setting}')
    assert config.web_search == WebSearch(provider="brave")
    (note,) = config.notes
    assert note.endswith("environment variable NONE is not set")


def test_without_a_table_nobody_searches() -> None:
    assert toml(PROVIDER).web_search is None


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ("", "provider: required: one of brave, tavily, exa, searxng, command"),
        ('provider = "bing"', "expected one of brave, tavily, exa, searxng, command"),
        ('provider = "exa"', "api_key_env: required: exa needs a key"),
        ('provider = "searxng"', "base_url: required: the address of your SearXNG instance"),
        ('provider = "searxng"\nbase_url = "s"', "base_url: expected an http:// or https:// URL"),
        ('provider = "command"', "command: required: a list"),
        ('provider = "command"\ncommand = "s"', "command: expected a list of strings"),
        ('provider = "brave"\napi_key = "k"\ncommand = ["s"]', 'command: only used with provider = "command"'),
        ('provider = "brave"\napi_key = "k"\nresults = 21', "results: must be at least 1 and at most 20"),
        ('provider = "brave"\napi_key = "k"\nprice = -1', "price: must be at least 0 and at most 1000000"),
        ('provider = "brave"\napi_key = "k"\nprice = "free"', 'price: expected a number, such as "5.00"'),
        ('provider = "brave"\napi_key = "k"\ncurrency = "dollars each"', "currency: expected a symbol or a code"),
        ('provider = "brave"\napi_key = "k"\nsecond = 1', "unknown key 'second'"),
    ],
)
def test_a_mistake_is_named_with_its_key(table: str, problem: str) -> None:
    with pytest.raises(ConfigError) as error:
        toml(f"{PROVIDER}\n[web_search]\n{table}", KEY)
    assert problem in str(error.value)


def test_a_command_is_shown_before_a_file_is_trusted() -> None:
    review = review_of({"web_search": {"provider": "command", "command": ["./search.sh", "--json"]}})
    assert review.code == ["./search.sh --json"]


def test_the_key_is_never_shown() -> None:
    assert "k-1" not in repr(WebSearch(provider="brave", key=Secret("k-1")))
