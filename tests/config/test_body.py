"""`body` of a provider or a model: fields that are merged into every request."""

from __future__ import annotations

import pytest

from tests.config.texts import problems, toml

PROVIDER = """\
[[providers]]
name = "openrouter"
api_base_url = "https://openrouter.ai/api/v1"
models = ["moonshotai/kimi-k3", { id = "moonshotai/kimi-k2.6", body = { provider = { sort = "price" }, top_k = 5 } }]
"""


def test_a_model_has_the_fields_of_its_provider_and_its_own_win() -> None:
    (provider,) = toml(
        PROVIDER + '[providers.body]\ntop_k = 1\nprovider = { only = ["${WHO}"], sort = "x" }', {"WHO": "me"}
    ).providers
    assert provider.body_for("moonshotai/kimi-k3") == {"top_k": 1, "provider": {"only": ["me"], "sort": "x"}}
    assert provider.body_for("moonshotai/kimi-k2.6") == {"top_k": 5, "provider": {"only": ["me"], "sort": "price"}}


@pytest.mark.parametrize("name", ["model", "messages", "tools", "stream"])
def test_fields_that_follow_from_the_request_are_refused_by_name(name: str) -> None:
    (told,) = problems(f"{PROVIDER}[providers.body]\n{name} = 'x'")
    assert told.startswith("moonshim.toml:5: providers[0].body: ")
    assert f"`{name}` cannot be set here" in told
    (told,) = problems(PROVIDER.replace("top_k", name))
    assert f"`{name}` cannot be set here" in told


@pytest.mark.parametrize("value", ["2026-11-01", "nan", "[1, inf]"])
def test_values_that_json_cannot_say_are_refused(value: str) -> None:
    (told,) = problems(f"{PROVIDER}[providers.body]\nfield.inner = {value}")
    assert "body.field.inner" in told
    assert "JSON does not support" in told


def test_a_body_that_is_no_table_is_refused() -> None:
    (told,) = problems(f"{PROVIDER}body = 5")
    assert "must be an object" in told
