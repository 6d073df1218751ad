"""What is wrong is told completely: the file, the line, the path and the nearest right word; never a secret."""

from __future__ import annotations

import json

import pytest

from moonshim.config import ConfigError, parse_config, warnings_of
from tests.config.texts import PROVIDER, problems, toml

WRONG: dict[str, tuple[str, str]] = {
    "an unknown key": (
        '[[providers]]\nname = "a"\napi_base_url = "https://h"\nmodles = []',
        "moonshim.toml:4: providers[0].modles: nothing is called `modles` here; did you mean `models`?",
    ),
    "an unknown table": (
        "[gatway]\nport = 1",
        "moonshim.toml:1: gatway: nothing is called `gatway` here; did you mean",
    ),
    "a key in the wrong place": (
        "store = 'memory:'",
        "moonshim.toml:1: store: nothing is called `store` here; it belongs",
    ),
    "a wrong type": (
        "[gateway]\n\nport = 'x'",
        "moonshim.toml:3: gateway.port: this must be a whole number, not a text",
    ),
    "a switch for a number": ("[gateway]\nport = true", "this must be a whole number, not true or false"),
    "a number for a switch": ("[gateway]\nopen_without_keys = 1", "this must be true or false, not a whole number"),
    "a port that none is": ("[gateway]\nport = 70000", "this must be at least 1 and at most 65535"),
    "a number that is no number": ("[timeouts]\nconnect = nan", "this must be more than 0"),
    "a timeout of nothing": ("[timeouts]\nconnect = 0", "timeouts.connect: this must be more than 0"),
    "a level that is none": ("[gateway]\nlog_level = 'inof'", "did you mean `info`?"),
    "a store that is none": ("[gateway]\nstore = 'mysql://h'", "gateway.store: this must be `memory:`, `sqlite:PATH`"),
    "a limit that is none": ("[limits]\nbody_byte = 3", "did you mean `body_bytes`?"),
    "a retry that is none": ("[retries]\nattempts = 0", "retries.attempts: this must be at least 1"),
    "one table where there may be several": ("[keys]\nname = 'x'", "keys: this must be a list of tables (`[[keys]]`"),
    "a value where a table is wanted": ("limits = 3", "limits: this must be a table, not a whole number"),
    "an alias to nothing": ("[aliases]\na = []", "aliases.a: this leads nowhere"),
    "an alias to no model": (
        "[aliases]\n'claude-*' = 'kimi-k2.6'",
        'aliases."claude-*": no provider has the model `kimi-k2.6`; did you mean `kimi-k2.5`?',
    ),
    "an alias to a model that its provider does not have": (
        "[aliases]\na = 'vllm/kimi-k2.6'",
        "did you mean `vllm/kimi-k2.5`?",
    ),
    "an alias to a number": ("[aliases]\na = [3]", "aliases.a[0]: this must be a text, not a whole number"),
    "a key in plain text": ("[[keys]]\nname = 'n'\nkey = 'msk_x'", "only its `digest`; `moonshim keys new` makes"),
    "a key for a digest": ("[[keys]]\nname = 'n'\ndigest = 'msk_x'", "this is no digest"),
    "no digest": ("[[keys]]\nname = 'n'", "keys[0]: a key needs a `digest`"),
    "a date that is none": (
        f"[[keys]]\nname = 'n'\ndigest = 'sha256:{'0' * 64}'\nexpires = 'soon'",
        "keys[0].expires: this must be a date",
    ),
    "the same digest twice": (
        f"[[keys]]\nname = 'n'\ndigest = 'sha256:{'0' * 64}'\n[[keys]]\nname = 'm'\ndigest = 'sha256:{'0' * 64}'",
        "keys[1].digest: this is the digest of the key `n`",
    ),
    "the same name twice": (
        f"[[keys]]\nname = 'n'\ndigest = 'sha256:{'0' * 64}'\n[[keys]]\nname = 'n'\ndigest = 'sha256:{'1' * 64}'",
        "two keys are called `n`",
    ),
    "a variable that is not set": (
        "[gateway]\nstore = '${NOPE}'",
        "gateway.store: the environment variable `NOPE` is not",
    ),
    "a variable that has no end": ("[gateway]\nstore = '${NOPE'", "a `${` has no `}` behind it"),
    "a secret whose variable is not set": (
        "[gateway]\nsecret_env = 'NOPE'",
        "gateway.secret_env: the environment variable",
    ),
    "two secrets": ("[gateway]\nsecret = 'x'\nsecret_env = 'NOPE'", "one of them is enough"),
    "a text that is empty": ("[gateway]\nhost = ''", "gateway.host: this must not be empty"),
}


@pytest.mark.parametrize(("text", "told"), WRONG.values(), ids=WRONG.keys())
def test_a_mistake_is_told_with_its_place(text: str, told: str) -> None:
    found = problems(text + "\n" + PROVIDER if "[[providers]]" not in text else text)
    assert any(told in problem for problem in found), found


PROVIDERS: dict[str, tuple[str, str]] = {
    "no name": ('api_base_url = "https://h"', "moonshim.toml:1: providers[0]: a provider needs a `name`"),
    "no address": ('name = "a"', "providers[0]: a provider needs an `api_base_url`"),
    "a name with a slash": ('name = "a/b"\napi_base_url = "https://h"', "this must not have `/` or `,` in it"),
    "an address without a scheme": ('name = "a"\napi_base_url = "api.moonshot.ai"', "http:// or https:// address"),
    "an address of another kind": ('name = "a"\napi_base_url = "ftp://h"', "http:// or https:// address"),
    "an address with a bad port": ('name = "a"\napi_base_url = "http://h:x"', "its name or port cannot be read"),
    "an address with a password": ('name = "a"\napi_base_url = "https://u:p@h"', "there is a name or a password"),
    "two names for the address": (
        'name = "a"\napi_base_url = "https://h"\nbase_url = "https://h"',
        "one of them is enough",
    ),
    "a host row that is none": ('name = "a"\napi_base_url = "https://h"\nhost = "vlm"', "did you mean `vllm`?"),
    "a dialect that is none": (
        'name = "a"\napi_base_url = "https://h"\ndialect = "openai"',
        "did you mean `openai_chat`?",
    ),
    "a cell that is none": ('name = "a"\napi_base_url = "https://h"\ntool_limt = 3', "did you mean `tool_limit`?"),
    "a cell with a wrong value": (
        'name = "a"\napi_base_url = "https://h"\ntool_limit = "x"',
        "tool_limit cannot be 'x'",
    ),
    "a cell with a wrong word": (
        'name = "a"\napi_base_url = "https://h"\n[providers.cells]\nhistory_ids = "k3"',
        "providers[0].cells.history_ids: history_ids cannot be 'k3'",
    ),
    "a row under cells": (
        'name = "a"\napi_base_url = "https://h"\ncells = {host = "vllm"}',
        "is a key of the provider",
    ),
    "a model without a name": (
        'name = "a"\napi_base_url = "https://h"\nmodels = [{}]',
        "models[0]: a model needs an `id`",
    ),
    "a model that is a number": (
        'name = "a"\napi_base_url = "https://h"\nmodels = [\n 3]',
        "moonshim.toml:5: providers[0].m",
    ),
    "a model twice": (
        'name = "a"\napi_base_url = "https://h"\nmodels = ["x", {id = "x"}]',
        "models[1]: `x` is there twice",
    ),
    "models that are a text": (
        'name = "a"\napi_base_url = "https://h"\nmodels = "x"',
        "this must be a list, not a text",
    ),
    "a header with no name": ('name = "a"\napi_base_url = "https://h"\nheaders = {"a b" = "x"}', "no name of a header"),
    "a header of two lines": (
        'name = "a"\napi_base_url = "https://h"\nheaders = {a = "x\\ny"}',
        "one line of printable",
    ),
    "a header of the request": ('name = "a"\napi_base_url = "https://h"\nheaders = {Host = "x"}', "cannot be set"),
    "a file that is not there": (
        'name = "a"\napi_base_url = "https://h"\napi_key_file = "none"',
        "there is no file none",
    ),
    "certificates that are not there": (
        'name = "a"\napi_base_url = "https://h"\nca_bundle = "none"',
        "there is no file none",
    ),
    "a proxy that is none": (
        'name = "a"\napi_base_url = "https://h"\nproxy = "socks"',
        "providers[0].proxy: this must be",
    ),
    "the same name twice": (
        'name = "a"\napi_base_url = "https://h"\n[[providers]]\nname = "A"\napi_base_url = "https://h"',
        "moonshim.toml:5: providers[1].name: two providers are called `A`",
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


BROKEN: dict[str, tuple[str, str, str]] = {
    "TOML": (".toml", "[[providers]]\nname = \n", "moonshim.toml:2:8: Invalid value"),
    "TOML that ends": (".toml", 'name = """', "moonshim.toml:1: "),
    "TOML with a key twice": (".toml", "a = 1\na = 2\nb = 3", "moonshim.toml:2:6: Cannot overwrite a value"),
    "JSON": (".json", '{"a": 1\n "b": 2}', "moonshim.json:2:2: a comma or `}` is needed here"),
    "JSON without a value": (".json", '{"a": }', "moonshim.json:1:7: a value is needed here"),
    "JSON with a key twice": (".json", '{"a": 1,\n"a": 2}', "moonshim.json:2:1: the key `a` is there twice"),
    "JSON without a colon": (".json", '{"a" 1}', "a colon is needed behind the key `a`"),
    "JSON without a key": (".json", "{1: 1}", "moonshim.json:1:2: a key is needed here"),
    "JSON that goes on": (".json", "{} x", "moonshim.json:1:4: nothing can follow here"),
    "JSON of nothing": (".json", "  ", "there is nothing in it"),
    "JSON that is too deep": (".json", "[" * 100, "nested more than 64 deep"),
    "JSON with a long number": (".json", '{"PORT": ' + "1" * 5000 + "}", "this number is too long"),
    "a text": (".json", '"x"', "moonshim.json: this must be a table, not a text"),
    "an empty list": (".json", "[]", "moonshim.json: there is no provider in it"),
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
    "an address that is none": {"api_base_url": SECRET},
    "a proxy that is none": {"proxy": SECRET},
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
    assert problem.startswith("x.toml: it has no provider, and the environment has no key of a known host")
