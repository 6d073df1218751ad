"""Where a configuration comes from: the file that counts, what is in it as bytes, and the environment without one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from moonshim.config import (
    LOOKED_FOR,
    Config,
    ConfigError,
    FoundConfig,
    config_from_environment,
    endpoint_of,
    load_config,
    look_for_config,
    parse_config,
    warnings_of,
)
from moonshim.config.files.find import user_folders
from moonshim.config.known_hosts import INIT_HOSTS, KNOWN_HOSTS, KnownHost
from moonshim.engine.hosts.detect import host_of, profile_for
from tests.config.texts import PROVIDER, toml


def made(path: Path, text: str = PROVIDER) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_the_command_line_counts_before_the_variable_before_this_folder_before_the_users(tmp_path: Path) -> None:
    home, here = tmp_path / "home", tmp_path / "here"
    here.mkdir()
    environ = {"HOME": str(home)}
    assert look_for_config(None, environ, here) is None
    for path in (
        home / ".config" / "moonshim" / "moonshim.json",
        home / ".config" / "moonshim" / "moonshim.toml",
        here / "moonshim.json",
        here / "moonshim.toml",
    ):
        made(path)
        found = look_for_config(None, environ, here)
        assert found is not None
        assert (found.path, found.needs_trust) == (path, path.parent == here)
    environ["MOONSHIM_CONFIG"] = str(made(tmp_path / "by-variable.toml"))
    assert look_for_config(None, environ, here) == FoundConfig(tmp_path / "by-variable.toml", needs_trust=False)
    made(here / "by-hand.toml")
    assert look_for_config("by-hand.toml", environ, here) == FoundConfig(here / "by-hand.toml", needs_trust=False)


@pytest.mark.parametrize(("explicit", "environ"), [("none.toml", {}), (None, {"MOONSHIM_CONFIG": "none.toml"})])
def test_a_file_that_was_named_and_is_not_there_is_an_error(
    explicit: str | None, environ: dict[str, str], tmp_path: Path
) -> None:
    made(tmp_path / "moonshim.toml")
    with pytest.raises(ConfigError, match=r"none\.toml: no such file"):
        look_for_config(explicit, environ, tmp_path)


FOLDERS = {
    "linux": ({"HOME": "/h"}, ["/h/.config/moonshim"]),
    "linux with XDG_CONFIG_HOME": ({"HOME": "/h", "XDG_CONFIG_HOME": "/x"}, ["/x/moonshim", "/h/.config/moonshim"]),
    "darwin": ({"HOME": "/h"}, ["/h/.config/moonshim", "/h/Library/Application Support/moonshim"]),
    "win32": ({"APPDATA": "/a", "HOME": "/h"}, ["/a/moonshim"]),
    "linux of nobody": ({}, []),
}


@pytest.mark.parametrize(("platform", "environ", "folders"), [(name, *case) for name, case in FOLDERS.items()])
def test_every_system_has_its_folder(platform: str, environ: dict[str, str], folders: list[str]) -> None:
    assert [path.as_posix() for path in user_folders(environ, platform.split()[0])] == folders


def test_a_file_is_read_as_what_its_name_says_or_as_what_it_looks_like(tmp_path: Path) -> None:
    json_text = '\n [{"name": "vllm", "api_base_url": "http://localhost:8000/v1"}]'
    for name, text in {"a.toml": PROVIDER, "b.conf": PROVIDER, "c.json": json_text, "d": json_text}.items():
        assert [one.name for one in load_config(made(tmp_path / name, text), {}).providers] == ["vllm"]


def test_a_mark_of_byte_order_is_no_mistake(tmp_path: Path) -> None:
    path = tmp_path / "moonshim.toml"
    path.write_bytes(b"\xef\xbb\xbf" + PROVIDER.encode())
    assert load_config(path, {}).source == str(path)


def test_a_file_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_bytes(b"a = 1\nb = '\xff'")
    with pytest.raises(ConfigError, match=r"bad\.toml:2: not valid UTF-8"):
        load_config(tmp_path / "bad.toml", {})
    with pytest.raises(ConfigError, match="expected a file, got a folder"):
        load_config(tmp_path, {})
    with pytest.raises(ConfigError, match="No such file"):
        load_config(tmp_path / "none.toml", {})
    (tmp_path / "large.toml").write_bytes(b"#" * (4 * 1024 * 1024 + 1))
    with pytest.raises(ConfigError, match="at most"):
        load_config(tmp_path / "large.toml", {})


def from_environment(**environ: str) -> Config:
    config = config_from_environment(environ)
    assert config is not None
    return config


def test_without_a_key_there_is_no_configuration() -> None:
    assert config_from_environment({"MOONSHOT_API_KEY": " ", "PATH": "/bin"}) is None
    assert {"MOONSHOT_API_KEY", "KIMI_API_KEY", "OPENROUTER_API_KEY", "FIREWORKS_API_KEY", "TOGETHER_API_KEY"} <= set(
        LOOKED_FOR
    )


def test_the_international_address_of_kimi_code_is_kimi_code() -> None:
    config = from_environment(KIMI_API_KEY="k", KIMI_BASE_URL="https://api.kimi.ai/coding/v1")
    assert config.providers[0].models == from_environment(KIMI_API_KEY="k").providers[0].models
    assert config.aliases["claude-*"] == ("kimi/kimi-for-coding",)


@pytest.mark.parametrize("host", KNOWN_HOSTS, ids=lambda host: host.name)
def test_a_key_is_enough_for_every_known_host(host: object) -> None:
    known = next(one for one in KNOWN_HOSTS if one is host)
    (provider,) = from_environment(**{known.variable: "k"}).providers
    assert (provider.name, [key.reveal() for key in provider.keys]) == (known.name, ["k"])
    assert host_of(provider.api_base_url) != "generic"
    assert endpoint_of(provider) == f"{known.api_base_url}/chat/completions"
    assert known.default is None or not known.models or known.default in known.models


@pytest.mark.parametrize("host", INIT_HOSTS, ids=lambda host: host.name)
def test_a_key_that_people_have_for_other_models_starts_nothing(host: KnownHost) -> None:
    parts = dict.fromkeys(host.address_parts, "mine")
    assert config_from_environment({host.variable: "k", **parts}) is None
    assert host.variable not in LOOKED_FOR
    beside = from_environment(**{"MOONSHOT_API_KEY": "k", host.variable: "k"})
    assert [provider.name for provider in beside.providers] == ["moonshot"]


@pytest.mark.parametrize("host", INIT_HOSTS, ids=lambda host: host.name)
def test_a_host_that_init_offers_has_a_profile_of_its_own_and_the_models_it_names(host: KnownHost) -> None:
    values = {"MODAL_ENDPOINT_HOST": "me--kimi.modal.run"}
    address = host.address({name: values.get(name, "mine-1") for name in host.address_parts})
    assert host.missing_parts(address) == {}
    assert host_of(address) != "generic"
    assert host.default is None or not host.models or host.default in host.models
    assert host.default is None or host.models or host.default in host.spellings.values()
    assert all(host_of(region) == host_of(address) for region in host.regions)


def test_a_part_of_an_address_cannot_change_the_rest_of_it() -> None:
    bedrock = next(host for host in INIT_HOSTS if host.name == "bedrock")
    for value in ("", " ", "us-east-1/../x", "evil.example/", "a@b", "x?y", "{AWS_REGION}", ".x"):
        assert bedrock.missing_parts(bedrock.address({"AWS_REGION": value})), value


def test_claude_code_and_codex_get_a_kimi_with_nothing_but_a_key() -> None:
    config = from_environment(MOONSHOT_API_KEY="a", OPENROUTER_API_KEY="b")
    expected = ("moonshot/kimi-k3", "openrouter/moonshotai/kimi-k3")
    assert {name: config.aliases[name] for name in ("claude-*", "gpt-*", "codex-*")} == dict.fromkeys(
        ("claude-*", "gpt-*", "codex-*"), expected
    )
    assert "kimi-*" not in config.aliases, "moonshot lists its models: a misspelt one is an error"
    assert "kimi-k2.6" not in config.aliases, "moonshot has a model of this name"
    assert warnings_of(config) == []


def test_a_model_of_ones_own_takes_their_place() -> None:
    config = from_environment(TOGETHER_API_KEY="a", MOONSHIM_MODEL="together/moonshotai/Kimi-K2.5")
    assert config.aliases["claude-*"] == ("together/moonshotai/Kimi-K2.5",)
    with pytest.raises(ConfigError, match="MOONSHIM_MODEL: no provider with a key has the model 'groq/x'"):
        from_environment(TOGETHER_API_KEY="a", MOONSHIM_MODEL="groq/x")


def test_a_host_whose_names_are_not_known_asks_for_one() -> None:
    config = from_environment(TOGETHER_API_KEY="a", TOGETHER_BASE_URL="https://openrouter.ai/api/v1")
    assert config.aliases == {}
    assert "MOONSHIM_MODEL" in warnings_of(config)[0]


def test_an_address_of_ones_own_is_taken() -> None:
    china = from_environment(MOONSHOT_API_KEY="a", MOONSHOT_BASE_URL="https://api.moonshot.cn/v1").providers[0]
    assert (endpoint_of(china), "kimi-k3" in china.models) == ("https://api.moonshot.cn/v1/chat/completions", True)
    messages = from_environment(MOONSHOT_API_KEY="a", MOONSHOT_BASE_URL="https://api.moonshot.ai/anthropic").providers[
        0
    ]
    assert (messages.dialect, "kimi-k3" in messages.models) == ("anthropic", True)
    other = from_environment(MOONSHOT_API_KEY="a", MOONSHOT_BASE_URL="https://openrouter.ai/api/v1")
    assert (other.providers[0].models, other.aliases) == ((), {})
    with pytest.raises(ConfigError, match="environment: MOONSHOT_BASE_URL: expected an http"):
        from_environment(MOONSHOT_API_KEY="a", MOONSHOT_BASE_URL="api.moonshot.cn")


@pytest.mark.parametrize("host", KNOWN_HOSTS, ids=lambda host: host.name)
def test_what_stands_behind_an_address_that_nobody_knows_is_what_its_variable_is_called_after(host: KnownHost) -> None:
    given = {host.variable: "a", host.address_variable: "http://proxy.internal:8000/v1"}
    (provider,) = (config := from_environment(**given)).providers
    assert provider.models == host.models
    assert config.aliases.get("claude-*") == ((f"{host.name}/{host.default}",) if host.default else None)
    row = profile_for(model="kimi-k3", host=provider.host, base_url=provider.api_base_url, upstream="openai_chat")
    assert row.host == profile_for(model="kimi-k3", base_url=host.api_base_url, upstream="openai_chat").host


@pytest.mark.parametrize(
    ("variable", "value", "expected"),
    [
        ("MOONSHIM_SECRET", "short", "environment: MOONSHIM_SECRET: must have at least 16 characters"),
        ("MOONSHIM_STORE", "mysql:user:word@host", "environment: MOONSHIM_STORE: expected `memory:`"),
    ],
)
def test_what_the_environment_says_of_the_gateway_is_checked_as_a_file_is(
    variable: str, value: str, expected: str
) -> None:
    with pytest.raises(ConfigError, match=expected) as without_a_file:
        from_environment(MOONSHOT_API_KEY="a", **{variable: value})
    with pytest.raises(ConfigError, match=expected) as with_one:
        toml(PROVIDER, {variable: value})
    assert value not in f"{without_a_file.value} {with_one.value}"


def test_a_file_without_providers_leaves_them_to_the_environment() -> None:
    config = toml('[gateway]\nport = 1\n[aliases]\nfast = "kimi-k2.5"', {"MOONSHOT_API_KEY": "a"})
    assert ([one.name for one in config.providers], config.port) == (["moonshot"], 1)
    assert config.aliases == {"fast": ("kimi-k2.5",)}
    assert "claude-*" in toml("[gateway]\nport = 1", {"MOONSHOT_API_KEY": "a"}).aliases


def test_store_and_secret_come_from_the_environment_too() -> None:
    config = from_environment(MOONSHOT_API_KEY="a", MOONSHIM_STORE="sqlite:x.db", MOONSHIM_SECRET="s" * 16)
    assert config.store == "sqlite:x.db"
    assert config.secret is not None


def test_a_mark_at_the_start_of_a_key_file_is_no_part_of_the_key(tmp_path: Path) -> None:
    """Editors on Windows write one."""
    file = tmp_path / "key"
    file.write_bytes(b"\xef\xbb\xbfsk-from-a-file\r\n")
    file.chmod(0o600)
    config = toml(PROVIDER + 'api_key_file = "key"\n', folder=tmp_path)
    assert [key.reveal() for key in config.providers[0].keys] == ["sk-from-a-file"]


KEYS_THAT_ARE_NONE = [
    "sk-hush\nsk-hush2",
    "sk-hush\rx: y",
    "sk-hush\x00",
    "sk-hush\x9b",
    "sk-hush\u200b",
    "sk-hüsh-hush",
]


@pytest.mark.parametrize("key", KEYS_THAT_ARE_NONE)
@pytest.mark.parametrize("written", ["api_key = '${K}'", "api_keys = ['sk-good', '${K}']", "api_key_env = 'K'"])
def test_a_key_that_fits_into_no_header_is_told_and_not_repeated(key: str, written: str) -> None:
    with pytest.raises(ConfigError) as caught:
        toml(f"{PROVIDER}{written}\n", {"K": key})
    (told,) = caught.value.problems
    assert f"providers[0].{written.partition(' ')[0]}: the key from" in told
    assert "hush" not in told


@pytest.mark.parametrize("key", [b"sk-hush\x00", "sk-hüsh-hush".encode(), "sk-hush".encode("utf-16")])
def test_a_key_in_a_file_is_held_to_the_same(tmp_path: Path, key: bytes) -> None:
    (tmp_path / "key").write_bytes(key)
    with pytest.raises(ConfigError) as caught:
        toml(PROVIDER + 'api_key_file = "key"\n', folder=tmp_path)
    assert "api_key_file: " in str(caught.value)
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize("key", KEYS_THAT_ARE_NONE)
def test_a_key_in_the_environment_is_held_to_the_same(key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        config_from_environment({"MOONSHOT_API_KEY": key})
    assert "environment: MOONSHOT_API_KEY: not a valid key" in str(caught.value)
    assert "hush" not in str(caught.value)


def test_what_is_no_file_is_told_and_not_waited_for(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.toml"
    os.mkfifo(pipe)
    for path, kind in ((pipe, "a pipe"), (tmp_path, "a folder"), (Path(os.devnull), "a device or a socket")):
        with pytest.raises(ConfigError, match=f"expected a file, got {kind}"):
            load_config(path, {})


def test_a_key_file_that_is_not_a_file_is_named_for_what_it_is(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, kind in ((tmp_path, "a folder"), (tmp_path / "pipe", "a pipe")):
        text = f'[[providers]]\nname = "a"\napi_base_url = "http://x.invalid"\napi_key_file = "{path}"\n'
        with pytest.raises(ConfigError, match=f"api_key_file: expected a file, got {kind}: {path}"):
            parse_config(text, suffix=".toml", environ={}, source="test")
