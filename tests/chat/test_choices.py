"""The models and providers of a configuration, as a chat finds them."""

from __future__ import annotations

from decimal import Decimal

import pytest

from moonshim.chat.choices import Choices, NoSuchModel
from moonshim.chat.usage import UsageTotals
from moonshim.config import Config, Price, ProviderConfig, Secret, config_from_environment
from moonshim.engine.values.conversation import Usage
from moonshim.engine.values.events import Repaired

MOONSHOT = ProviderConfig(
    name="moonshot", api_base_url="https://api.moonshot.ai/v1", models=("kimi-k3", "kimi-k2.5"), keys=(Secret("sk-1"),)
)
OTHER = ProviderConfig(name="other", api_base_url="https://o.example/v1", models=("kimi-k2.5",))
ANY = ProviderConfig(name="any", api_base_url="http://localhost:8000/v1")


def choices(*providers: ProviderConfig, **aliases: tuple[str, ...]) -> Choices:
    return Choices(Config(providers=providers, aliases=aliases))


def test_of_several_providers_the_nearest_is_taken() -> None:
    made = choices(MOONSHOT, OTHER, ANY)
    assert made.find("kimi-k2.5").provider.name == "moonshot"
    assert made.find("kimi-k2.5", near="other").provider.name == "other"
    assert made.find("other/kimi-k2.5", near="moonshot").provider.name == "other"
    assert made.find("KIMI-K3").model == "kimi-k3"


def test_a_provider_that_takes_any_name_does() -> None:
    made = choices(MOONSHOT, ANY)
    assert made.find("qwen3-coder", near="any").provider.name == "any"
    assert made.find("any/qwen3-coder").model == "qwen3-coder"
    with pytest.raises(NoSuchModel, match="Model 'qwen3-coder' not found"):
        made.find("qwen3-coder", near="moonshot")


def test_a_provider_that_is_named_has_to_have_the_model() -> None:
    made = choices(MOONSHOT, OTHER)
    assert made.find("Kimi-K2.5", near="OTHER", only=True).model == "kimi-k2.5"
    with pytest.raises(NoSuchModel, match=r"`other` has no model `kimi-k3`; it has `kimi-k2\.5`"):
        made.find("kimi-k3", near="other", only=True)
    with pytest.raises(NoSuchModel, match="unknown provider `nobody`; configured: `moonshot`, `other`"):
        made.find("kimi-k3", near="nobody", only=True)


def test_claude_codes_note_about_the_window_is_no_part_of_a_name() -> None:
    made = choices(MOONSHOT, OTHER, ANY)
    assert made.find("kimi-k3[1m]").model == "kimi-k3"
    assert made.find("kimi-k2.5[1m]", near="other", only=True).model == "kimi-k2.5"
    assert made.find("qwen3-coder[1m]", near="any").model == "qwen3-coder"


def test_who_answers_when_nobody_was_named() -> None:
    assert choices(MOONSHOT, OTHER).first().model == "kimi-k3"
    assert choices(MOONSHOT, OTHER).first("other").provider.name == "other"
    assert choices(MOONSHOT, OTHER, default=("other/kimi-k2.5",)).first().provider.name == "other"
    assert choices(ANY, **{"claude-*": ("any/mine",)}).first().model == "mine"
    config = config_from_environment({"MOONSHOT_API_KEY": "sk-1"})
    assert config is not None
    assert Choices(config).first().model == "kimi-k3"
    with pytest.raises(NoSuchModel, match="`any` lists no models; use --model NAME"):
        choices(ANY).first()


def test_a_provider_is_made_as_it_is_configured() -> None:
    made = choices(MOONSHOT)
    provider = made.provider_for(made.first(), tool_format="xml", thinking="off")
    assert (provider.name, provider.model, provider.base_url) == ("moonshot", "kimi-k3", MOONSHOT.api_base_url)
    assert (provider.tool_format, provider.format_is_set) == ("xml", True)
    assert "sk-1" not in repr(provider)


def test_the_ledger_counts_what_is_known_and_says_nothing_of_the_rest() -> None:
    ledger = UsageTotals()
    assert (ledger.cost, ledger.is_counted) == ("", False)
    ledger.add(Usage(1000, 100, 500, 20), Price(input=Decimal(1), output=Decimal(10), cached=Decimal("0.1")))
    ledger.add(None, None)
    ledger.add_repairs([Repaired("a"), Repaired("a"), Repaired("b")])
    assert (ledger.answers, ledger.input, ledger.output, ledger.cached, ledger.reasoning) == (2, 1000, 100, 500, 20)
    assert ledger.cost == "$0.0016"  # 500 fresh x 1 + 500 cached x 0.1 + 100 out x 10 = 1,550 millionths
    assert ledger.repairs == {"a": 2, "b": 1}
    ledger.add(Usage(1_000_000, 0), Price(input=Decimal(3), output=Decimal(10), currency="¥"))
    assert ledger.cost == "$0.0016 and ¥3.00"
    ledger.add(Usage(10, 10), None)
    assert ledger.amounts == {"$": 0.00155, "¥": 3.0}
    assert ledger.cost == "more than $0.0016 and ¥3.00"
