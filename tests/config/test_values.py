"""Values as they are meant: variables, keys from four places, models with cells, limits, dates, paths."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from moonshim.config import ConfigError, KeySource, Limits, Retries, Timeouts, TransformerUse, warnings_of
from tests.config.texts import PROVIDER, problems, toml

DIGEST = f"sha256:{'a' * 64}"

VARIABLES = {
    "${HOST}": "h.example",
    "x-${HOST}-y": "x-h.example-y",
    "${NONE:-other}": "other",
    "${NONE:-}x": "x",
    "${EMPTY:-other}": "other",
    "${HOST:-other}": "h.example",
    "$$HOST": "$HOST",
    "$${HOST}": "${HOST}",
    "$HOST": "h.example",
    "$HOST/x": "h.example/x",
    "a$HOST": "a$HOST",
    "$host": "$host",
    "5$": "5$",
    "${TRICKY}": "${HOST}",
}


@pytest.mark.parametrize(("written", "intended"), VARIABLES.items())
def test_variables_are_put_in_and_nothing_else_is(written: str, intended: str) -> None:
    environ = {"HOST": "h.example", "EMPTY": "", "TRICKY": "${HOST}"}
    config = toml(f'{PROVIDER}\n[gateway]\nallowed_hosts = ["{written}"]', environ)
    assert config.allowed_hosts == (intended,)


def test_numbers_and_switches_may_come_from_variables() -> None:
    text = f'{PROVIDER}\n[gateway]\nport = "${{PORT}}"\nopen_without_keys = "${{OPEN:-true}}"'
    config = toml(text, {"PORT": "99"})
    assert (config.port, config.open_without_keys) == (99, True)


def test_keys_come_from_four_places_each_once(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("from-file\nand more\n")
    file.chmod(0o600)
    (provider,) = toml(
        """
        [[providers]]
        name = "p"
        api_base_url = "https://h"
        api_key = "${A}"
        api_keys = ["plain", "${B}"]
        api_key_env = "C"
        api_key_file = "key"
        """,
        {"A": "from-a", "B": "from-b", "C": "from-c"},
        tmp_path,
    ).providers
    assert [key.reveal() for key in provider.keys] == ["from-a", "plain", "from-b", "from-c", "from-file"]
    places = ["A", "the configuration file", "B", "C", f"the file {file}"]
    assert provider.key_sources == tuple(KeySource(place) for place in places)


@pytest.mark.parametrize(
    ("setting", "place"),
    [
        ('api_key_env = "NONE"', "api_key_env"),
        ('api_key = "$NONE"', "api_key"),
        ('api_key = "${NONE}"', "api_key"),
        ('apiKey = "$NONE"', "apiKey"),
        ('api_keys = ["${NONE}"]', "api_keys[0]"),
    ],
)
def test_a_variable_that_is_not_set_is_a_key_that_is_missing(setting: str, place: str) -> None:
    config = toml(f'[[providers]]\nname = "p"\napi_base_url = "https://h"\n{setting}\nmodels = ["m"]')
    assert config.providers[0].keys == ()
    assert config.providers[0].key_sources == (KeySource("NONE", found=False),)
    assert warnings_of(config) == [f"moonshim.toml:4: providers[0].{place}: environment variable NONE is not set"]


def test_one_of_several_keys_may_be_missing() -> None:
    text = '[[providers]]\nname = "p"\napi_base_url = "https://h"\nmodels = ["m"]\napi_keys = ["$NONE", "$B", "$EMPTY"]'
    config = toml(text, {"B": "from-b", "EMPTY": ""})
    (provider,) = config.providers
    assert [key.reveal() for key in provider.keys] == ["from-b"]
    assert provider.key_sources == (KeySource("NONE", found=False), KeySource("B"), KeySource("EMPTY", found=False))
    assert warnings_of(config) == [
        "moonshim.toml:5: providers[0].api_keys[0]: environment variable NONE is not set",
        "moonshim.toml:5: providers[0].api_keys[2]: environment variable EMPTY is empty",
    ]


def test_a_key_with_only_a_part_in_a_variable_cannot_do_without_it() -> None:
    text = '[[providers]]\nname = "p"\napi_base_url = "https://h"\napi_key = "sk-${NONE}"'
    expected = "moonshim.toml:4: providers[0].api_key: environment variable NONE is not set"
    assert problems(text) == [expected]


def test_a_variable_that_is_empty_is_told_wherever_it_stands() -> None:
    environ = {"EMPTY": ""}
    text = '[[providers]]\nname = "${EMPTY}"\napi_base_url = "https://h"'
    assert problems(text, environ=environ) == ["moonshim.toml:2: providers[0].name: must not be empty"]
    config = toml('[[providers]]\nname = "p"\napi_base_url = "https://h"\nmodels = ["m"]\napi_key = "$EMPTY"', environ)
    assert config.providers[0].key_sources == (KeySource("EMPTY", found=False),)
    assert warnings_of(config) == ["moonshim.toml:5: providers[0].api_key: environment variable EMPTY is empty"]


def test_a_key_file_that_others_can_read_is_a_warning(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("k")
    file.chmod(0o644)
    config = toml(f'[[providers]]\nname = "p"\napi_base_url = "https://h"\nmodels = ["m"]\napi_key_file = "{file}"')
    (warning,) = warnings_of(config)
    assert "is readable by other users" in warning
    assert "chmod 600" in warning


def test_cells_are_set_for_a_provider_and_for_a_model() -> None:
    (provider,) = toml(
        """
        [[providers]]
        name = "p"
        api_base_url = "https://h"
        tool_limit = 64
        models = ["a", { id = "b", tool_limit = 3, media = ["image"] }, { name = "c" }]

        [providers.cells]
        context_window = 1000
        """
    ).providers
    assert provider.models == ("a", "b", "c")
    assert provider.overrides_for("a") == {"tool_limit": 64, "context_window": 1000}
    assert provider.overrides_for("b") == {"tool_limit": 3, "context_window": 1000, "media": ["image"]}


def test_timeouts_hold_for_all_unless_a_provider_has_its_own() -> None:
    config = toml(
        """
        [timeouts]
        connect = 1
        first_byte = 2

        [[providers]]
        name = "a"
        api_base_url = "https://h"

        [[providers]]
        name = "b"
        api_base_url = "https://h"
        timeouts = { first_byte = 3.5 }
        """
    )
    assert [provider.timeouts for provider in config.providers] == [
        Timeouts(connect=1.0, first_byte=2.0, between_bytes=120.0),
        Timeouts(connect=1.0, first_byte=3.5, between_bytes=120.0),
    ]


def test_the_gateway_limits_and_retries_are_as_they_are_said(tmp_path: Path) -> None:
    config = toml(
        f"""
        {PROVIDER.replace(chr(10), chr(10) + "        ")}
        [gateway]
        host = "0.0.0.0"
        workers = 2
        store = "sqlite:state.db"
        secret_env = "S"
        heartbeat_seconds = 5
        allowed_origins = ["https://a"]
        log_dir = "logs"
        log_level = "debug"

        [limits]
        body_bytes = 10

        [retries]
        attempts = 1
        budget = 0
        """,
        {"S": "0123456789abcdef"},
        tmp_path,
    )
    assert (config.host, config.workers, config.heartbeat_seconds) == ("0.0.0.0", 2, 5.0)
    assert (config.store, config.log_dir) == (f"sqlite:{tmp_path / 'state.db'}", str(tmp_path / "logs"))
    assert config.secret is not None
    assert config.secret.reveal() == "0123456789abcdef"
    assert (config.limits, config.retries) == (Limits(body_bytes=10), Retries(attempts=1, budget=0.0))
    assert (config.allowed_origins, config.log_level) == (("https://a",), "debug")


def test_the_environment_counts_more_than_the_file_for_store_and_secret() -> None:
    text = f'{PROVIDER}\n[gateway]\nstore = "memory:"\nsecret = "of the file, of the file"'
    config = toml(text, {"MOONSHIM_STORE": "redis://cache", "MOONSHIM_SECRET": "of the environment"})
    assert config.store == "redis://cache"
    assert config.secret is not None
    assert config.secret.reveal() == "of the environment"


NOON = datetime(2027, 1, 31, 12, tzinfo=UTC)
DATES = {
    "2027-01-31": datetime(2027, 1, 31, 23, 59, 59, 999999, UTC),
    "2027-01-31T12:00:00Z": NOON,
    "2027-01-31 12:00:00": NOON,
    "2027-01-31T14:00:00+02:00": NOON,
    '"2027-01-31T12:00:00Z"': NOON,
    '"2027-01-31"': datetime(2027, 1, 31, 23, 59, 59, 999999, UTC),
}


@pytest.mark.parametrize(("written", "intended"), DATES.items())
def test_a_date_always_has_a_time_zone(written: str, intended: datetime) -> None:
    text = f'{PROVIDER}\n[[keys]]\nname = "k"\ndigest = "{DIGEST}"\nmodels = ["kimi-*"]\nexpires = {written}'
    (key,) = toml(text).keys
    assert key.expires == intended
    assert key.expires is not None
    assert key.expires.tzinfo is not None


def test_a_key_that_has_expired_is_a_warning() -> None:
    config = toml(f'{PROVIDER}\n[[keys]]\nname = "k"\ndigest = "{DIGEST}"\nexpires = 2027-01-31T12:00:00Z')
    assert warnings_of(config, NOON - timedelta(seconds=1)) == []
    assert warnings_of(config, NOON) == ["key 'k': expired on 2027-01-31"]


def test_aliases_are_one_model_or_several() -> None:
    config = toml(f'{PROVIDER}\n[aliases]\na = "kimi-k2.5"\n"b*" = ["vllm/kimi-k2.5", "vllm,kimi-k2.5"]')
    assert config.aliases == {"a": ("kimi-k2.5",), "b*": ("vllm/kimi-k2.5", "vllm,kimi-k2.5")}


def test_a_plug_in_is_looked_for_beside_the_file(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("class Mine:\n    def prepare(self, request): return request\n")
    text = '[[providers]]\nname = "p"\napi_base_url = "https://h"\ntransformer = {use = ["./mine.py:Mine"]}'
    config = toml(text, folder=tmp_path)
    assert config.providers[0].transformers == (TransformerUse(f"{tmp_path / 'mine.py'}:Mine"),)


WARNED = {
    "http to another machine": (
        'api_base_url = "http://vllm:8000/v1"\napi_key = "k"',
        "uses http://, so keys and conversations are sent unencrypted",
    ),
    "no key": ('api_base_url = "https://h"', "has no API key"),
    "no models": (
        'api_base_url = "https://h"\napi_key = "k"\nmodels = []',
        "lists no models, and no alias or route points to it",
    ),
    "Kimi that reads no markers": (
        'api_base_url = "https://h"\napi_key = "k"\ntransformer = {use = ["Kimi"]}',
        "manualToolParsing",
    ),
    "a key twice": ('api_base_url = "https://h"\napi_keys = ["k", "k"]', "duplicate key (from the configuration file)"),
}


@pytest.mark.parametrize(("text", "told"), WARNED.values(), ids=WARNED.keys())
def test_what_works_but_may_surprise_is_a_warning(text: str, told: str) -> None:
    models = "" if "models" in text else 'models = ["m"]'
    (warning,) = warnings_of(toml(f'[[providers]]\nname = "p"\n{text}\n{models}'))
    assert told in warning


QUIET = {
    "loopback": 'api_base_url = "http://127.0.0.1:8000/v1"',
    "a key in a header": 'api_base_url = "https://h"\nheaders = {Authorization = "k"}',
    "the client's key": 'api_base_url = "https://h"\npasses_client_key = true',
    "Kimi that reads markers": (
        'api_base_url = "https://h"\napi_key = "k"\ntransformer = {use = [["Kimi", {manualToolParsing = true}]]}'
    ),
    "Kimi that reads them for the only model": (
        'api_base_url = "https://h"\napi_key = "k"\n'
        'transformer = {use = ["Kimi"], m = {use = [["Kimi", {manualToolParsing = true}]]}}'
    ),
}


@pytest.mark.parametrize("text", QUIET.values(), ids=QUIET.keys())
def test_what_is_as_it_should_be_is_no_warning(text: str) -> None:
    assert warnings_of(toml(f'[[providers]]\nname = "p"\nmodels = ["m"]\n{text}')) == []


def test_an_open_gateway_is_a_warning() -> None:
    config = toml(f"{PROVIDER}\n[gateway]\nopen_without_keys = true")
    assert [warning.partition(":")[0] for warning in warnings_of(config)] == ["open_without_keys"]


@pytest.mark.parametrize("text", ['secret = "short"', 'secret_env = "SIGNS"'])
def test_a_secret_that_can_be_guessed_is_an_error(text: str) -> None:
    with pytest.raises(ConfigError, match="must have at least 16 characters"):
        toml(f"{PROVIDER}\n[gateway]\n{text}", {"SIGNS": "short"})
