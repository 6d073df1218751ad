"""What is wrong is told completely: the file, the line, the path and the nearest right word; never a secret."""

from __future__ import annotations

import json

import pytest

from moonshim.config import ConfigError, parse_config, warnings_of
from tests.config.texts import PROVIDER, problems, toml

WRONG: dict[str, tuple[str, str]] = {
    "an unknown key": (
        '[[providers]]\nname = "a"\napi_base_url = "https://h"\nmodles = []',
        "moonshim.toml:4: providers[0].modles: unknown key 'modles' (did you mean 'models'?)",
    ),
    "an unknown table": (
        "[gatway]\nport = 1",
        "moonshim.toml:1: gatway: unknown key 'gatway' (did you mean 'gateway'?)",
    ),
    "a key in the wrong place": (
        "store = 'memory:'",
        "moonshim.toml:1: store: unknown key 'store'; it belongs in `[gateway]`",
    ),
    "a wrong type": (
        "[gateway]\n\nport = 'x'",
        "moonshim.toml:3: gateway.port: expected an integer, got a string",
    ),
    "a switch for a number": ("[gateway]\nport = true", "expected an integer, got a boolean"),
    "a number for a switch": ("[gateway]\nopen_without_keys = 1", "expected a boolean, got an integer"),
    "a port that none is": ("[gateway]\nport = 70000", "must be at least 1 and at most 65535"),
    "a number that is no number": ("[timeouts]\nconnect = nan", "must be a finite number"),
    "a timeout of nothing": ("[timeouts]\nconnect = 0", "timeouts.connect: must be greater than 0"),
    "an invalid level": ("[gateway]\nlog_level = 'inof'", "did you mean 'info'?"),
    "an invalid store": ("[gateway]\nstore = 'mysql://h'", "gateway.store: expected `memory:`, `sqlite:PATH`"),
    "an invalid limit": ("[limits]\nbody_byte = 3", "did you mean 'body_bytes'?"),
    "an invalid retry": ("[retries]\nattempts = 0", "retries.attempts: must be at least 1"),
    "one table where there may be several": ("[keys]\nname = 'x'", "keys: expected a list of tables (`[[keys]]`"),
    "a value where a table is wanted": ("limits = 3", "limits: expected a table, got an integer"),
    "an alias to nothing": ("[aliases]\na = []", "aliases.a: empty list: name a model"),
    "an alias to no model": (
        "[aliases]\n'claude-*' = 'kimi-k2.6'",
        "aliases.\"claude-*\": no provider has the model 'kimi-k2.6' (did you mean 'kimi-k2.5'?)",
    ),
    "an alias to a model that its provider does not have": (
        "[aliases]\na = 'vllm/kimi-k2.6'",
        "did you mean 'vllm/kimi-k2.5'?",
    ),
    "an alias to a number": ("[aliases]\na = [3]", "aliases.a[0]: expected a string, got an integer"),
    "a key in plain text": ("[[keys]]\nname = 'n'\nkey = 'msk_x'", "only its `digest`; `moonshim keys new` creates"),
    "a key for a digest": (
        "[[keys]]\nname = 'n'\ndigest = 'msk_x'",
        "expected a digest (`sha256:` and 64 hexadecimal digits), not the key itself",
    ),
    "no digest": ("[[keys]]\nname = 'n'", "keys[0]: `digest` is required"),
    "an invalid date": (
        f"[[keys]]\nname = 'n'\ndigest = 'sha256:{'0' * 64}'\nexpires = 'soon'",
        "keys[0].expires: expected a date",
    ),
    "the same digest twice": (
        f"[[keys]]\nname = 'n'\ndigest = 'sha256:{'0' * 64}'\n[[keys]]\nname = 'm'\ndigest = 'sha256:{'0' * 64}'",
        "keys[1].digest: same digest as the key 'n'",
    ),
    "the same name twice": (
        f"[[keys]]\nname = 'n'\ndigest = 'sha256:{'0' * 64}'\n[[keys]]\nname = 'n'\ndigest = 'sha256:{'1' * 64}'",
        "duplicate key name 'n'",
    ),
    "a variable that is not set": (
        "[gateway]\nstore = '${NOPE}'",
        "gateway.store: environment variable NOPE is not set",
    ),
    "a variable that has no end": ("[gateway]\nstore = '${NOPE'", "missing `}` after `${`"),
    "a secret whose variable is not set": (
        "[gateway]\nsecret_env = 'NOPE'",
        "gateway.secret_env: environment variable NOPE is not set",
    ),
    "two secrets": ("[gateway]\nsecret = 'x'\nsecret_env = 'NOPE'", "set only one of `secret` and `secret_env`"),
    "a text that is empty": ("[gateway]\nhost = ''", "gateway.host: must not be empty"),
}


@pytest.mark.parametrize(("text", "told"), WRONG.values(), ids=WRONG.keys())
def test_a_mistake_is_told_with_its_place(text: str, told: str) -> None:
    found = problems(text + "\n" + PROVIDER if "[[providers]]" not in text else text)
    assert any(told in problem for problem in found), found


PROVIDERS: dict[str, tuple[str, str]] = {
    "no name": ('api_base_url = "https://h"', "moonshim.toml:1: providers[0]: `name` is required"),
    "no address": ('name = "a"', "providers[0]: `api_base_url` is required"),
    "a name with a slash": ('name = "a/b"\napi_base_url = "https://h"', "must not contain `/` or `,`"),
    "an address without a scheme": (
        'name = "a"\napi_base_url = "api.moonshot.ai"',
        "expected an http:// or https:// URL",
    ),
    "an address of another kind": ('name = "a"\napi_base_url = "ftp://h"', "expected an http:// or https:// URL"),
    "an address with a bad port": ('name = "a"\napi_base_url = "http://h:x"', "cannot parse its host or port"),
    "an address with a password": (
        'name = "a"\napi_base_url = "https://u:p@h"',
        "must not contain a user name or password",
    ),
    "two names for the address": (
        'name = "a"\napi_base_url = "https://h"\nbase_url = "https://h"',
        "set only one of `api_base_url` and `base_url`",
    ),
    "an invalid host row": ('name = "a"\napi_base_url = "https://h"\nhost = "vlm"', "did you mean 'vllm'?"),
    "an invalid dialect": (
        'name = "a"\napi_base_url = "https://h"\ndialect = "openai"',
        "did you mean 'openai_chat'?",
    ),
    "an invalid cell": ('name = "a"\napi_base_url = "https://h"\ntool_limt = 3', "did you mean 'tool_limit'?"),
    "a cell with a wrong value": (
        'name = "a"\napi_base_url = "https://h"\ntool_limit = "x"',
        "invalid value 'x' for tool_limit: expected an integer or null, got a string",
    ),
    "a cell with a wrong word": (
        'name = "a"\napi_base_url = "https://h"\n[providers.cells]\nhistory_ids = "k3"',
        "providers[0].cells.history_ids: invalid value 'k3' for history_ids: expected one of ",
    ),
    "a row under cells": (
        'name = "a"\napi_base_url = "https://h"\ncells = {host = "vllm"}',
        "set `host` on the provider",
    ),
    "a model without a name": (
        'name = "a"\napi_base_url = "https://h"\nmodels = [{}]',
        "models[0]: `id` is required",
    ),
    "a model that is a number": (
        'name = "a"\napi_base_url = "https://h"\nmodels = [\n 3]',
        "moonshim.toml:5: providers[0].m",
    ),
    "a model twice": (
        'name = "a"\napi_base_url = "https://h"\nmodels = ["x", {id = "x"}]',
        "models[1]: duplicate model 'x'",
    ),
    "models that are a text": (
        'name = "a"\napi_base_url = "https://h"\nmodels = "x"',
        "expected a list, got a string",
    ),
    "a header with no name": (
        'name = "a"\napi_base_url = "https://h"\nheaders = {"a b" = "x"}',
        "not a valid header name",
    ),
    "a header of two lines": (
        'name = "a"\napi_base_url = "https://h"\nheaders = {a = "x\\ny"}',
        "a single line of printable characters",
    ),
    "a header of the request": (
        'name = "a"\napi_base_url = "https://h"\nheaders = {Host = "x"}',
        "cannot be configured",
    ),
    "a file that is not there": (
        'name = "a"\napi_base_url = "https://h"\napi_key_file = "none"',
        "no such file: none",
    ),
    "certificates that are not there": (
        'name = "a"\napi_base_url = "https://h"\nca_bundle = "none"',
        "no such file: none",
    ),
    "an invalid proxy": (
        'name = "a"\napi_base_url = "https://h"\nproxy = "socks"',
        "providers[0].proxy: expected an http:// or https:// URL",
    ),
    "the same name twice": (
        'name = "a"\napi_base_url = "https://h"\n[[providers]]\nname = "A"\napi_base_url = "https://h"',
        "moonshim.toml:5: providers[1].name: duplicate provider name 'A'",
    ),
}


@pytest.mark.parametrize(("text", "told"), PROVIDERS.values(), ids=PROVIDERS.keys())
def test_a_mistake_in_a_provider_is_told_with_its_place(text: str, told: str) -> None:
    found = problems(f"[[providers]]\n{text}")
    assert any(told in problem for problem in found), found


def test_all_mistakes_of_a_file_are_told_in_its_order() -> None:
    found = problems(
        """
        [gateway]
        port = "x"
        sore = "memory:"

        [[providers]]
        name = "a"
        api_base_url = "nowhere"
        modles = []

        [limits]
        body_bytes = -1
        """
    )
    assert [problem.split(": ")[:2] for problem in found] == [
        ["moonshim.toml:3", "gateway.port"],
        ["moonshim.toml:4", "gateway.sore"],
        ["moonshim.toml:8", "providers[0].api_base_url"],
        ["moonshim.toml:9", "providers[0].modles"],
        ["moonshim.toml:12", "limits.body_bytes"],
    ]


NAMED = '[[providers]]\nname = "a"\napi_base_url = "https://h"\n'
BROKEN: dict[str, tuple[str, str, str]] = {
    "TOML": (".toml", "[[providers]]\nname = \n", "moonshim.toml:2:8: Invalid value"),
    "TOML that ends": (".toml", 'name = """', "moonshim.toml:1: "),
    "TOML with a key twice": (".toml", "a = 1\na = 2\nb = 3", "moonshim.toml:2:6: this key is already set above"),
    "an infinite number": (
        ".toml",
        f"{NAMED}[timeouts]\nfirst_byte = inf",
        "timeouts.first_byte: must be a finite number",
    ),
    "no number": (".toml", f"{NAMED}[timeouts]\nfirst_byte = nan", "timeouts.first_byte: must be a finite number"),
    "a provider in place of its model": (
        ".toml",
        f'{NAMED}models = ["m"]\n[aliases]\nx = "A"',
        "aliases.x: no provider has the model 'A' (did you mean 'a/m'?)",
    ),
    "JSON": (".json", '{"a": 1\n "b": 2}', "moonshim.json:2:2: expected ',' or '}'"),
    "JSON without a value": (".json", '{"a": }', "moonshim.json:1:7: expected a value"),
    "JSON with a key twice": (".json", '{"a": 1,\n"a": 2}', "moonshim.json:2:1: duplicate key 'a'"),
    "JSON without a colon": (".json", '{"a" 1}', "expected ':' after the key 'a'"),
    "JSON without a key": (".json", "{1: 1}", "moonshim.json:1:2: expected a key"),
    "JSON that goes on": (".json", "{} x", "moonshim.json:1:4: unexpected data after the end of the value"),
    "JSON of nothing": (".json", "  ", "the file is empty"),
    "JSON that is too deep": (".json", "[" * 100, "nested more than 64 levels deep"),
    "JSON with a long number": (".json", '{"PORT": ' + "1" * 5000 + "}", "number has too many digits"),
    "a text": (".json", '"x"', "moonshim.json: expected an object, got a string"),
    "providers of the wrong type": (
        ".json",
        '{"providers": {}}',
        "moonshim.json:1: providers: expected a list of objects, got an object",
    ),
    "an empty list": (".json", "[]", "moonshim.json: no provider is configured"),
}


@pytest.mark.parametrize(("suffix", "text", "told"), BROKEN.values(), ids=BROKEN.keys())
def test_a_text_that_cannot_be_read_says_where(suffix: str, text: str, told: str) -> None:
    (problem,) = problems(text, suffix=suffix)
    assert told in problem


SECRET = "sk-very-secret"
HIDDEN = {
    "a key of the wrong type": {"api_key": [SECRET]},
    "keys of the wrong type": {"api_keys": SECRET},
    "a header of the wrong type": {"headers": {"Authorization": [SECRET]}},
    "a header of two lines": {"headers": {"Authorization": f"{SECRET}\n"}},
    "a password in the address": {"api_base_url": f"https://u:{SECRET}@h"},
    "an invalid address": {"api_base_url": SECRET},
    "an invalid proxy": {"proxy": SECRET},
    "something unknown": {"api_keyy": SECRET},
    "a key for the name of its variable": {"api_key_env": SECRET},
}


@pytest.mark.parametrize("fields", HIDDEN.values(), ids=HIDDEN.keys())
def test_a_secret_is_in_no_message(fields: dict[str, object]) -> None:
    provider = {"name": "p", "api_base_url": "https://h", "cells": 3} | fields
    found = problems(json.dumps(provider), suffix=".json")
    assert len(found) >= 2
    assert SECRET not in "".join(found)


def test_a_secret_of_the_gateway_is_in_no_message() -> None:
    found = problems(f'[gateway]\nstore = "{SECRET}"\nsecret = ["{SECRET}"]\n[[keys]]\nkey = "{SECRET}"\nname = "n"')
    assert len(found) >= 3
    assert SECRET not in "".join(found)


def test_a_key_that_could_be_the_name_of_its_variable_is_not_repeated() -> None:
    config = toml('[[providers]]\nname = "p"\napi_base_url = "https://h"\nmodels = ["m"]\napi_key_env = "abc123def"')
    assert "abc123def" not in "".join(warnings_of(config)) + repr(config.providers[0].key_sources)


def test_nothing_secret_shows_when_a_configuration_is_printed() -> None:
    config = toml(
        f"""
        [[providers]]
        name = "p"
        api_base_url = "https://h/v1?key={SECRET}"
        api_key = "{SECRET}"
        headers = {{ Authorization = "{SECRET}" }}

        [gateway]
        secret = "{SECRET}-long-enough"
        store = "redis://:{SECRET}@cache"
        """
    )
    assert SECRET not in repr(config) + str(config) + repr(config.providers[0])


def test_the_error_is_one_that_callers_can_catch() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config("", suffix=".toml", environ={}, source="x.toml")
    (problem,) = caught.value.problems
    assert problem.startswith("x.toml: no provider is configured, and no API key of a known host is set")


def test_providers_of_the_wrong_type_are_one_problem() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config('providers = "x"', suffix=".toml", environ={}, source="x.toml")
    (problem,) = caught.value.problems
    assert problem == "x.toml:1: providers: expected a list of tables (`[[providers]]` in TOML), got a string"


def test_a_price_of_the_wrong_type_is_one_problem() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(f'{NAMED}[prices]\n"a/m" = 1', suffix=".toml", environ={}, source="x.toml")
    assert list(caught.value.problems) == ['x.toml:5: prices."a/m": expected a table, got an integer']


def test_a_number_that_is_too_long_for_python_is_reported() -> None:
    with pytest.raises(ConfigError, match="too many digits"):
        parse_config(f"a = {'9' * 5000}", suffix=".toml", environ={}, source="x.toml")
