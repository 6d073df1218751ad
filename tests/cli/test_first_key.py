"""The first run with keys: what `serve` asks for, `keys new` makes, and the next `serve` reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from moonshim.simulator import Simulator
from tests.support.command import run_moonshim
from tests.support.servers import running

pytestmark = pytest.mark.usefixtures("nothing_configured")


def test_a_gateway_for_others_is_three_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Simulator(behaviour="moonshot").running() as host:
        monkeypatch.setenv("MOONSHOT_API_KEY", "sk-0123456789abcdef")
        monkeypatch.setenv("MOONSHOT_BASE_URL", f"{host.url}/v1")
        refused = run_moonshim("serve", "--host", "0.0.0.0", "--port", "0", cwd=tmp_path)
        assert (refused.code, "moonshim keys new NAME" in refused.stderr) == (2, True)
        made = run_moonshim("keys", "new", "alice", cwd=tmp_path)
        assert made.code == 0, made.stderr
        key = made.out.decode().strip()
        (file,) = (tmp_path / "home").rglob("moonshim.toml")
        with running("serve", cwd=tmp_path) as gateway:
            asked = {"model": "kimi-k2.5", "messages": [{"role": "user", "content": "hi"}]}
            assert gateway.post("/v1/chat/completions", asked)[0] == 401
            assert gateway.post("/v1/chat/completions", asked, authorization=f"Bearer {key}")[0] == 200
            assert gateway.stop() == 0
        file.write_text(file.read_text().replace("[gateway]\n", '[gateway]\nhost = "0.0.0.0"\n'))
        assert run_moonshim("config", "check", cwd=tmp_path).code == 0, "with a key, others may reach it"
