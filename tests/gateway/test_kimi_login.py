"""`api_key_from = "kimi-login"`: the login of kimi-code is read while it is good, and never written or shown."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from moonshim.config import Config, ConfigError
from moonshim.config.kimi_login import LoginKey
from moonshim.config.load import parse_config
from tests.support.gateway.hosts import Host, run
from tests.support.gateway.raw_client import ask, body_of, sending, text_answer
from tests.support.gateway.running import running

PROVIDER = (
    '[[providers]]\nname = "kimi"\napi_base_url = "{url}"\nmodels = ["kimi-for-coding"]\napi_key_from = "kimi-login"\n'
)


def log_in(home: Path, token: str, *, seconds: float = 900.0, name: str = "kimi-code") -> Path:
    """As kimi-code writes it: another file takes the place of the old one."""
    path = home / "credentials" / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(".tmp")
    new.write_text(json.dumps({"access_token": token, "refresh_token": "r", "expires_at": time.time() + seconds}))
    new.chmod(0o600)
    new.replace(path)
    return path


def config(url: str, home: Path) -> Config:
    return parse_config(PROVIDER.format(url=url), suffix=".toml", source="test", environ={"KIMI_CODE_HOME": str(home)})


def test_the_token_of_the_login_is_sent_and_a_new_one_as_soon_as_there_is_one(tmp_path: Path) -> None:
    path = log_in(tmp_path, "token-one")

    async def test() -> None:
        hosted = Host(sending(text_answer("openai_chat", "hi")))
        async with hosted as host, running(config(f"{host.url}/v1", tmp_path)) as gateway:
            for token in ("token-one", "token-two"):
                log_in(tmp_path, token)
                before = path.read_bytes()
                reply = await ask(gateway.port, "openai_chat", body_of("openai_chat", model="kimi-for-coding"))
                assert reply.status == 200
                assert host.requests[-1].headers["authorization"] == f"Bearer {token}"
                assert path.read_bytes() == before

    run(test())


@pytest.mark.parametrize("state", ["expired", "missing", "broken"])
@pytest.mark.parametrize("client", ["openai_chat", "anthropic", "openai_responses"])
def test_a_login_that_cannot_be_used_is_a_401_that_says_what_to_do(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], state: str, client: str
) -> None:
    path = log_in(tmp_path, "token-old", seconds=-1.0)
    if state == "missing":
        path.unlink()
    elif state == "broken":
        path.write_text("{")

    async def test() -> Any:
        async with Host(sending(text_answer("openai_chat", "hi"))) as host:
            async with running(config(f"{host.url}/v1", tmp_path)) as gateway:
                reply = await ask(gateway.port, client, body_of(client, model="kimi-for-coding"))
            assert host.requests == []
            return reply

    reply = run(test())
    assert reply.status == 401
    assert b"Run `kimi` once" in reply.body
    assert b"token-old" not in reply.body
    assert "token-old" not in "".join(capfd.readouterr())


def test_a_login_is_sent_to_its_own_hosts_only(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"api\.kimi\.com and api\.kimi\.ai"):
        config("https://elsewhere.test/v1", tmp_path)


@pytest.mark.parametrize("address", ["https://api.kimi.com/coding/v1", "https://api.kimi.ai/coding"])
def test_each_region_has_its_own_file(tmp_path: Path, address: str) -> None:
    (key,) = config(address, tmp_path).providers[0].keys
    assert isinstance(key, LoginKey)
    assert "There is no login" in str(key.problem)
    log_in(tmp_path, "t", name="kimi-code" if ".com" in address else "kimi-code-env-0e4f99c69cc27850")
    assert (key.problem, key.reveal()) == (None, "t")
    assert "t" not in (repr(key), str(key))


def test_a_file_that_is_rewritten_in_place_is_read_again(tmp_path: Path) -> None:
    path = log_in(tmp_path, "one")
    key = LoginKey(path)
    assert key.reveal() == "one"
    path.write_text(path.read_text().replace("one", "two"))
    os.utime(path, ns=(1, 1))
    assert key.reveal() == "two"
