"""`[routes]`: what may be written there, and what is reported about the rest."""

from __future__ import annotations

import pytest

from moonshim.config import Routes, warnings_of
from tests.config.texts import PROVIDER, problems, toml

BASE = f'{PROVIDER}\n[aliases]\n"claude-*" = "kimi-k2.5"\n[routes]\n'


def test_without_the_table_there_are_no_routes() -> None:
    config = toml(PROVIDER)
    assert config.routes == Routes()
    assert config.routes.targets == {}


def test_a_route_has_one_model_or_several() -> None:
    config = toml(
        BASE
        + """\
        think = "kimi-k2.5"
        long_context = ["vllm/kimi-k2.5", "vllm,kimi-k2.5"]
        long_context_tokens = 1000
        background_models = ["*haiku*", "gpt-?-mini"]
        image = " vllm/kimi-k2.5 "
        """
    )
    assert config.routes == Routes(
        image=("vllm/kimi-k2.5",),
        think=("kimi-k2.5",),
        long_context=("vllm/kimi-k2.5", "vllm,kimi-k2.5"),
        long_context_tokens=1000,
        background_models=("*haiku*", "gpt-?-mini"),
    )
    assert list(config.routes.targets) == ["image", "long_context", "think"], "in order of precedence"
    assert warnings_of(config) == []


def test_a_file_without_providers_routes_to_those_of_the_environment() -> None:
    config = toml('[routes]\nbackground = "moonshot/kimi-k2.6"', {"MOONSHOT_API_KEY": "sk-1"})
    assert config.routes.background == ("moonshot/kimi-k2.6",)
    assert warnings_of(config) == []


WRONG = {
    "an unknown model": (
        'think = "kimi-k2.6"',
        "routes.think: no provider has the model 'kimi-k2.6' (did you mean 'kimi-k2.5'?)",
    ),
    "an unknown model in a list": (
        'image = ["kimi-k2.5", "vllm/k9"]',
        "routes.image: no provider has the model 'vllm/k9'",
    ),
    "an unknown provider": ('background = "vlm/kimi-k2.5"', "routes.background: no provider has the model"),
    "an alias": ('background = "claude-*"', "routes.background: no provider has the model 'claude-*'"),
    "an unknown key": ('longContext = "kimi-k2.5"', "unknown key 'longContext' (did you mean 'long_context'?)"),
    "an empty list": ("web_search = []", "routes.web_search: empty list"),
    "an empty string": ('web_search = ""', "routes.web_search: must not be empty"),
    "another type": ("web_search = 5", "routes.web_search: expected a string, got an integer"),
    "another type in a list": ("web_search = [5]", "routes.web_search[0]: expected a string, got an integer"),
    "no tokens": ("long_context_tokens = 0", "routes.long_context_tokens: must be at least 1"),
    "tokens that are no integer": ("long_context_tokens = 1.5", "routes.long_context_tokens: expected an integer"),
    "names that are no strings": ("background_models = [1]", "routes.background_models[0]: expected a string"),
}


@pytest.mark.parametrize(("text", "message"), WRONG.values(), ids=WRONG.keys())
def test_a_mistake_is_reported_with_its_key_and_line(text: str, message: str) -> None:
    (problem,) = problems(BASE + text)
    assert message in problem
    assert problem.startswith(f"moonshim.toml:{BASE.count(chr(10)) + 1}: routes.")


def test_something_other_than_a_table_is_reported() -> None:
    (problem,) = problems(f"routes = 5\n{PROVIDER}")
    assert "routes: expected a table, got an integer" in problem


def test_routes_without_a_pattern_are_a_warning() -> None:
    config = toml(f'{PROVIDER}\n[aliases]\nfast = "kimi-k2.5"\n[routes]\nthink = "kimi-k2.5"')
    (warning,) = warnings_of(config)
    assert warning == "routes: no alias is a pattern such as `claude-*`, so no request is routed"


def test_a_provider_that_only_a_route_names_is_no_surprise() -> None:
    text = f'{BASE}think = "any/model"\n[[providers]]\nname = "any"\napi_base_url = "http://localhost:1/v1"'
    assert warnings_of(toml(text)) == []
