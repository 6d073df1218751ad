"""docs/reference/configuration.md and the code name the same keys, with the same defaults; its examples work."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from moonshim.config import (
    EXAMPLE,
    Config,
    GatewayKey,
    Limits,
    OtelExport,
    ProviderConfig,
    Retries,
    Routes,
    Timeouts,
    UsageBooks,
    config_from_environment,
    endpoint_of,
    parse_config,
)
from moonshim.config.known_hosts import INIT_HOSTS, KNOWN_HOSTS
from moonshim.config.problems import ConfigError
from moonshim.config.tables.settings import GATEWAY_KEYS
from tests.config.texts import PROVIDER, toml

PAGE = (Path(__file__).parent.parent.parent / "docs" / "reference" / "configuration.md").read_text("utf-8")


def section(title: str) -> str:
    found = re.search(rf"^#+ {re.escape(title)}$(.*?)(?=^#+ |\Z)", PAGE, re.DOTALL | re.MULTILINE)
    assert found is not None, title
    return found[1]


def rows(title: str) -> list[list[str]]:
    """The rows of the first table of a section, without its head."""
    lines = [line for line in section(title).splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def keys_of_page(title: str) -> dict[str, str]:
    return {row[0].strip("`"): row[1].strip("`") for row in rows(title)}


def known_keys(table: str) -> set[str]:
    """The keys that the code itself names, when it is given one that it does not know."""
    with pytest.raises(ConfigError) as caught:
        toml(f"{PROVIDER if 'providers' not in table else ''}\n{table}\nqqqqqqqqqqqq = 1")
    (listed,) = re.findall(r"known keys: (.*)", "\n".join(caught.value.problems))
    return set(listed.split(", "))


TABLES = {
    "Providers": '[[providers]]\nname = "x"\napi_base_url = "https://h"',
    "Gateway keys": f'[[keys]]\nname = "n"\ndigest = "sha256:{"0" * 64}"',
    "Budgets": f'[[keys]]\nname = "n"\ndigest = "sha256:{"0" * 64}"\n[[keys.budgets]]\nperiod = "day"\ntokens = 1',
    "Gateway": "[gateway]",
    "Timeouts": "[timeouts]",
    "Routes": "[routes]",
    "Retries": "[retries]",
    "Limits": "[limits]",
    "Budgets of all keys": "[budgets]",
    "Usage": "[usage]",
    "OpenTelemetry": "[otel]",
    "Web search": "[web_search]",
    "Claude Code": "[claude_code]",
    "Prices": "[prices.x]\ninput = 1\noutput = 1",
}


@pytest.mark.parametrize(("title", "table"), TABLES.items())
def test_the_page_and_the_code_name_the_same_keys(title: str, table: str) -> None:
    assert set(keys_of_page(title)) == known_keys(table)


def test_every_field_of_the_structs_can_be_configured() -> None:
    """Or is made from others, which are named here."""
    made_of = {
        "keys",
        "key_sources",
        "regions",
        "model_overrides",
        "model_bodies",
        "transformers",
        "model_transformers",
    }
    assert fields(ProviderConfig) - made_of - {"overrides"} | {"cells"} <= set(keys_of_page("Providers"))
    assert fields(GatewayKey) == set(keys_of_page("Gateway keys"))
    tables = {
        "providers",
        "aliases",
        "keys",
        "prices",
        "limits",
        "retries",
        "routes",
        "budgets",
        "usage",
        "otel",
        "web_search",
        "claude_code",
        "source",
        "notes",
        "keys_emptied",
    }
    assert fields(Config) - tables | {"secret_env"} == set(keys_of_page("Gateway")) == set(GATEWAY_KEYS)


def fields(struct: type[msgspec.Struct]) -> set[str]:
    return set(struct.__struct_fields__)


def defaults_of(struct: type[msgspec.Struct]) -> Iterable[tuple[str, Any]]:
    return ((field.name, field.default) for field in msgspec.structs.fields(struct))


@pytest.mark.parametrize(
    ("title", "struct"),
    [
        ("Timeouts", Timeouts),
        ("Retries", Retries),
        ("Limits", Limits),
        ("Gateway", Config),
        ("Usage", UsageBooks),
    ],
)
def test_the_page_has_the_defaults_of_the_code(title: str, struct: type[msgspec.Struct]) -> None:
    page, checked = keys_of_page(title), 0
    for name, default in defaults_of(struct):
        if name in page and isinstance(default, int | float):
            shown = str(default).lower() if isinstance(default, bool) else f"{default:.15g}"
            assert page[name] == shown, name
            checked += 1
    assert checked >= 2


def test_the_page_has_the_defaults_of_routes() -> None:
    page, default = keys_of_page("Routes"), Routes()
    assert page["long_context_tokens"] == str(default.long_context_tokens)
    assert tuple(json.loads(page["background_models"])) == default.background_models


def test_the_page_has_the_addresses_as_they_are_understood() -> None:
    cases = [(row[0].strip("`"), row[1].strip("`")) for row in rows("Addresses")]
    assert len(cases) >= 5
    for address, endpoint in cases:
        (provider,) = toml(f'[[providers]]\nname = "p"\napi_base_url = "{address}"').providers
        assert endpoint_of(provider) == endpoint


def test_the_page_has_the_known_hosts_as_they_are_used() -> None:
    shown = [tuple(cell.strip("`") for cell in row) for row in rows("No file at all")]
    assert shown == [
        (host.variable, host.name, host.api_base_url, host.address_variable, host.default or "") for host in KNOWN_HOSTS
    ]
    config = config_from_environment({host.variable: "k" for host in KNOWN_HOSTS})
    assert config is not None
    assert set(re.findall(r"`([a-z-]+\*)`", section("No file at all"))) == {
        name for name in config.aliases if "*" in name
    }


def test_the_page_has_the_hosts_that_need_a_file() -> None:
    shown = [tuple(cell.strip("`") for cell in row) for row in rows("Hosts that need a file")]
    assert shown == [
        (host.name, host.variable, host.api_base_url, host.default or "you name it") for host in INIT_HOSTS
    ]


EXAMPLES = re.findall(r"```(toml|json)\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize(("kind", "text"), EXAMPLES)
def test_the_examples_of_the_page_can_be_used(kind: str, text: str) -> None:
    config = parse_config(text, suffix=f".{kind}", environ={}, source="page")
    assert config.providers


def test_the_problems_of_the_page_are_those_that_are_told() -> None:
    with pytest.raises(ConfigError) as caught:
        toml('[[providers]]\nname = "a"\napi_base_url = "https://h"\n[[providers]]\nmodles = []')
    assert "providers[1].modles: unknown key 'modles' (did you mean 'models'?)" in str(caught.value)
    assert "providers[1].modles: unknown key 'modles' (did you mean 'models'?)" in PAGE


def test_what_the_example_has_commented_out_can_be_used_too(tmp_path: Path) -> None:
    """Every line of it that is no sentence."""
    lines = [
        line.removeprefix("# ") if re.match(r'# (\[|[\w"*-]+ = )', line) else line for line in EXAMPLE.splitlines()
    ]
    text = "\n".join(lines).replace("sha256:…", "sha256:" + "0" * 64)
    (tmp_path / "certificates.pem").touch()
    named = tomllib.loads(text)
    assert {
        "providers",
        "aliases",
        "routes",
        "keys",
        "gateway",
        "timeouts",
        "retries",
        "limits",
        "budgets",
        "prices",
        "otel",
        "web_search",
        "claude_code",
    } == set(named)
    config = parse_config(
        text, suffix=".toml", environ={"MOONSHIM_SECRET": "x" * 16}, source="example", folder=tmp_path
    )
    assert [provider.name for provider in config.providers] == ["moonshot", "openrouter", "vllm"]
    assert set(named["gateway"]) | {"secret"} == set(GATEWAY_KEYS)
    assert set(named["keys"][0]) == fields(GatewayKey)
    assert set(named["routes"]) == fields(Routes)
    assert set(named["otel"]) == fields(OtelExport)
