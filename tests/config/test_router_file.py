"""The file of claude-code-router 2 works as it is: what has a meaning here has it, and the rest is a warning."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from moonshim.config import Config, Routes, TransformerUse, endpoint_of, warnings_of
from tests.config.texts import json_, problems

# Written for this test, with every key that claude-code-router's pages and its user interface know.
FILE = """{
  // its files are JSON5
  "LOG": true,
  "LOG_LEVEL": "warn",
  "CLAUDE_PATH": "",
  "HOST": "0.0.0.0",
  "PORT": 3456,
  "APIKEY": "open-sesame",
  "API_TIMEOUT_MS": "90000",
  "PROXY_URL": "http://127.0.0.1:7890",
  "NON_INTERACTIVE_MODE": false,
  "CUSTOM_ROUTER_PATH": "$HOME/.claude-code-router/custom-router.js",
  "OPENAI_API_KEY": "$OPENAI_API_KEY",
  "StatusLine": {"enabled": true, "currentStyle": "default"},
  "forceUseImageAgent": false,
  "transformers": [
    {"name": "gemini-cli", "path": "$HOME/.claude-code-router/plugins/gemini-cli.js", "options": {"project": "x"}},
  ],
  "Providers": [
    {
      "name": "openrouter",
      "api_base_url": "https://openrouter.ai/api/v1/chat/completions",
      "api_key": "$ROUTER_KEY",
      "models": ["moonshotai/kimi-k2", "moonshotai/kimi-k2-thinking"],
      "transformer": {
        "use": [["openrouter", {"referer": "https://example.com", "title": "mine", "provider": {"only": ["x"]}}]],
        "moonshotai/kimi-k2": {"use": ["tooluse", ["maxtoken", {"max_tokens": 16384}]]},
        "long-gone": {"use": ["reasoning"]},
      },
    },
    {
      "name": "deepseek",
      "api_base_url": "https://api.deepseek.com/chat/completions",
      "api_key": "",
      "models": ["deepseek-chat"],
      "transformer": {"use": ["deepseek", "gemini-cli", "a-name-from-the-plug-in"]},
    },
    {
      "name": "moonshot",
      "api_base_url": "https://api.moonshot.cn/anthropic/v1/messages",
      "api_key": "sk-x",
      "models": ["kimi-k2.5"],
      "transformer": {"use": ["Anthropic"]},
    },
  ],
  "Router": {
    "default": "openrouter,moonshotai/kimi-k2",
    "background": "deepseek,deepseek-chat",
    "think": "openrouter,moonshotai/kimi-k2-thinking",
    "longContext": "",
    "longContextThreshold": 45000,
    "webSearch": "gone,away",
  },
  "fallback": {"default": ["moonshot,kimi-k2.5"]},
}
"""


@pytest.fixture(scope="module")
def config() -> Config:
    return json_(FILE, {"HOME": "/home/me", "ROUTER_KEY": "sk-or-1"})


def test_its_providers_are_ours(config: Config) -> None:
    assert [(provider.name, endpoint_of(provider)) for provider in config.providers] == [
        ("openrouter", "https://openrouter.ai/api/v1/chat/completions"),
        ("deepseek", "https://api.deepseek.com/chat/completions"),
        ("moonshot", "https://api.moonshot.cn/anthropic/v1/messages"),
    ]
    assert [[key.reveal() for key in provider.keys] for provider in config.providers] == [["sk-or-1"], [], ["sk-x"]]
    assert [provider.dialect for provider in config.providers] == ["openai_chat", "openai_chat", "anthropic"]


def test_its_routes_are_aliases_with_their_fallbacks(config: Config) -> None:
    default = ("openrouter/moonshotai/kimi-k2", "moonshot/kimi-k2.5")
    assert config.aliases == {
        "default": default,
        "claude-*": default,
        "background": ("deepseek/deepseek-chat",),
        "claude-*haiku*": ("deepseek/deepseek-chat",),
        "think": ("openrouter/moonshotai/kimi-k2-thinking",),
        "webSearch": ("gone/away",),
    }


def test_its_routes_choose_the_model_by_the_kind_of_request(config: Config) -> None:
    assert config.routes == Routes(
        background=("deepseek/deepseek-chat",),
        think=("openrouter/moonshotai/kimi-k2-thinking",),
        web_search=("gone/away",),
        long_context_tokens=45_000,
    )
    assert not any("Router.think" in one or "longContextThreshold" in one for one in warnings_of(config))


def test_its_routes_have_their_own_fallbacks() -> None:
    provider = {"name": "p", "api_base_url": "https://h/v1", "api_key": "k", "models": ["m", "n"]}
    router = {"default": "p,m", "longContext": "p,m", "image": "p,n", "longContextThreshold": "80000"}
    config = json_(json.dumps({"Providers": [provider], "Router": router, "fallback": {"longContext": ["p,n"]}}))
    assert config.routes == Routes(long_context=("p/m", "p/n"), image=("p/n",), long_context_tokens=80_000)


@pytest.mark.parametrize("written", [0, -5, "many", 1.5, True, []])
def test_an_impossible_threshold_is_a_warning(written: Any) -> None:
    provider = {"name": "p", "api_base_url": "https://h/v1", "api_key": "k", "models": ["m"]}
    router = {"default": "p,m", "longContext": "p,m", "longContextThreshold": written}
    config = json_(json.dumps({"Providers": [provider], "Router": router}))
    assert config.routes.long_context_tokens == 60_000
    assert any("Router.longContextThreshold: expected an integer greater than 0" in one for one in warnings_of(config))


def test_routes_of_its_own_table_take_precedence_over_those_of_router() -> None:
    provider = {"name": "p", "api_base_url": "https://h/v1", "api_key": "k", "models": ["m", "n"]}
    router = {"default": "p,m", "think": "p,m", "background": "gone,away"}
    file = {"Providers": [provider], "Router": router, "routes": {"think": "p/n"}}
    assert json_(json.dumps(file)).routes == Routes(think=("p/n",), background=("gone/away",))
    file["routes"] = {"think": "p/x"}
    (problem,) = problems(json.dumps(file), suffix=".json")
    assert "routes.think: no provider has the model 'p/x'" in problem


def test_its_key_is_a_gateway_key_of_which_only_the_digest_is_kept(config: Config) -> None:
    (key,) = config.keys
    assert key.digest == "sha256:" + sha256(b"open-sesame").hexdigest()
    assert "open-sesame" not in repr(config.keys)


def test_timeouts_proxy_address_and_level_are_taken_over(config: Config) -> None:
    assert {provider.timeouts.first_byte for provider in config.providers} == {90.0}
    assert {provider.proxy for provider in config.providers} == {"http://127.0.0.1:7890"}
    assert (config.host, config.port, config.log_level) == ("0.0.0.0", 3456, "warning")


def test_a_chain_of_its_own_transformers_only_is_no_chain(config: Config) -> None:
    assert [provider.transformers for provider in config.providers] == [None, None, None]
    assert config.providers[0].model_transformers == {}


def test_what_its_transformers_ask_for_is_asked_for_in_our_way(config: Config) -> None:
    first = config.providers[0]
    assert first.headers == {"HTTP-Referer": "https://example.com", "X-Title": "mine"}
    assert first.overrides_for("moonshotai/kimi-k2") == {"default_max_tokens": 16384, "output_limit": 16384}
    assert first.overrides_for("moonshotai/kimi-k2-thinking") == {}
    assert first.body_for("moonshotai/kimi-k2") == {"provider": {"only": ["x"]}}


def test_options_that_its_transformers_put_into_requests_become_the_body_of_requests() -> None:
    provider = """
      name: 'router', api_base_url: 'https://openrouter.ai/api/v1', api_key: 'k', models: ['a', 'b'],
      transformer: {
        use: [['openrouter', {title: 'mine', provider: {only: ['x'], sort: 'price'}, stream: false}]],
        a: {use: [['customparams', {provider: {sort: 'latency'}, top_k: 0x10}]]},
      },"""
    config = json_("{Providers: [{" + provider + "}]}")
    (router,) = config.providers
    assert router.body_for("a") == {"provider": {"only": ["x"], "sort": "latency"}, "top_k": 16}
    assert router.body_for("b") == {"provider": {"only": ["x"], "sort": "price"}}
    assert any("openrouter.stream: `stream` cannot be set here" in one for one in warnings_of(config))
    (own,) = json_("{Providers: [{" + provider + " body: {provider: {sort: 'throughput'}}}]}").providers
    assert own.body_for("b") == {"provider": {"only": ["x"], "sort": "throughput"}}


def test_json5_is_read_with_the_line_of_every_mistake() -> None:
    text = """// keys without quotes
    {
      'providers': [{
        name: "a", api_base_url: 'http://localhost:8000/v1',
        models: ['it\\'s "one" \\x41', "two"], // trailing commas, too
        timeouts: {connect: .5, first_byte: +0x10, between_bytes: 5.},
        modles: [],
      },],
    }"""
    (told,) = problems(text, suffix=".json5")
    assert told.startswith("moonshim.json5:7: providers[0].modles: ")
    (provider,) = json_(text.replace("modles: [],", "")).providers
    assert provider.models == ('it\'s "one" A', "two")
    assert (provider.timeouts.connect, provider.timeouts.first_byte, provider.timeouts.between_bytes) == (
        0.5,
        16.0,
        5.0,
    )


def test_everything_that_has_no_meaning_here_is_named_once_with_its_line(config: Config) -> None:
    told = warnings_of(config)
    lines = FILE.splitlines()
    for key, written in {
        "LOG": '"LOG"',
        "NON_INTERACTIVE_MODE": '"NON_INTERACTIVE_MODE"',
        "CUSTOM_ROUTER_PATH": '"CUSTOM_ROUTER_PATH"',
        "OPENAI_API_KEY": '"OPENAI_API_KEY"',
        "StatusLine": '"StatusLine"',
        "forceUseImageAgent": '"forceUseImageAgent"',
        "transformers[0].path": "gemini-cli.js",
        "Providers[0].transformer.use[0]": '"referer"',
        "Providers[0].transformer.long-gone": '"long-gone"',
    }.items():
        (line,) = [number for number, text in enumerate(lines, 1) if written in text]
        assert len([one for one in told if one.startswith(f"moonshim.json:{line}: {key}: ")]) == 1, (line, key, told)
    assert any("no provider has the model 'gone/away'" in one for one in told)
    assert any("unknown transformer 'a-name-from-the-plug-in'" in one for one in told)


def test_empty_fields_of_its_user_interface_mean_nothing() -> None:
    empty = dict.fromkeys(("HOST", "APIKEY", "API_TIMEOUT_MS", "PROXY_URL", "LOG_LEVEL", "CLAUDE_PATH", "Router"), "")
    provider = {"name": "p", "api_base_url": "https://h/v1", "api_key": "k", "models": ["m"]}
    config = json_(json.dumps(empty | {"PORT": None, "transformers": None, "Providers": [provider]}))
    assert (config.host, config.port, config.keys, config.aliases, config.log_level) == (None, None, (), {}, None)
    assert config.providers[0].timeouts.first_byte == 600.0


def test_another_address_is_not_served_without_its_key() -> None:
    provider = {"name": "p", "api_base_url": "https://h/v1", "api_key": "k", "models": ["m"]}
    config = json_(json.dumps({"HOST": "0.0.0.0", "Providers": [provider]}))
    assert config.host is None
    assert "HOST: ignored without APIKEY: the gateway listens on 127.0.0.1 only" in warnings_of(config)[0]


def test_a_plug_in_in_python_can_be_used_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "class Mine:\n    def __init__(self, word='x'): pass\n    def prepare(self, request): return request\n"
    )
    file = {
        "transformers": [{"path": "./mine.py:Mine", "options": {"word": "a"}}],
        "Providers": [{"name": "p", "api_base_url": "https://h/v1", "transformer": {"use": ["Mine"]}}],
    }
    config = json_(json.dumps(file), folder=tmp_path)
    assert config.providers[0].transformers == (TransformerUse(f"{tmp_path / 'mine.py'}:Mine", {"word": "a"}),)


WRONG: dict[str, tuple[Any, str]] = {
    "a key in small letters that it does not have": ({"Providers": [], "routr": {}}, "did you mean 'Router'?"),
    "a transformer that neither has": (
        {"Providers": [{"name": "p", "api_base_url": "https://h", "transformer": {"use": ["Kimmi"]}}]},
        "did you mean 'Kimi'?",
    ),
}


@pytest.mark.parametrize(("file", "told"), WRONG.values(), ids=WRONG.keys())
def test_what_it_would_not_understand_either_is_a_mistake(file: Any, told: str) -> None:
    assert any(told in problem for problem in problems(json.dumps(file), suffix=".json"))


def test_a_value_that_cannot_be_used_is_ignored_with_a_warning() -> None:
    wrong = {"PORT": "abc", "HOST": 5, "API_TIMEOUT_MS": "soon", "LOG_LEVEL": "loud", "APIKEY": 1, "Router": 5}
    provider = {"name": "a", "api_base_url": "https://h/v1", "models": ["m"]}
    config = json_(json.dumps(wrong | {"Providers": [provider]}))
    assert [note.partition(": ")[2] for note in config.notes] == [
        "APIKEY: expected a string, got an integer; ignored",
        "API_TIMEOUT_MS: expected a number of milliseconds greater than 0, ignored",
        "HOST: expected a string, got an integer; ignored",
        "PORT: expected an integer from 1 to 65535, ignored",
        "LOG_LEVEL: expected one of trace, debug, info, warn, warning, error, fatal, ignored",
        "Router: expected an object, got an integer; ignored",
    ]
