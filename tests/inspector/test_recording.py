"""What is recorded, and for how long; with several workers; without text."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from playwright.sync_api import Page, expect

from moonshim.simulator import Simulator
from tests.inspector.test_page import WEATHER, ask, chat, rows
from tests.support.servers import running

SECRET: Final = "sk-host-0123456789abcdef"
IMAGE: Final = "iVBORw0KGgo" + "A" * 5000


def configured(folder: Path, host: str, gateway: str = "", provider: str = "") -> Path:
    file = folder / "moonshim.toml"
    file.write_text(
        f"""
[gateway]
{gateway}
[[providers]]
name = "host"
api_base_url = "{host}/v1"
api_key = "{SECRET}"
models = ["kimi-k2.6", "kimi-k2.6+markers-in-content", "kimi-k3"]
{provider}
"""
    )
    file.chmod(0o600)
    return file


LISTEN: Final = """() => new Promise((resolve) => {
  const seen = new Map();
  const source = new EventSource("/inspector/api/events");
  let quiet = 0;
  source.addEventListener("exchanges", (event) => {
    for (const one of JSON.parse(event.data)) seen.set(one.id, one);
    clearTimeout(quiet);
    quiet = setTimeout(() => { source.close(); resolve([...seen.values()]) }, 1500);
  });
})"""


def exchanges(page: Page) -> list[dict[str, Any]]:
    """What the page knows, read through its own stream of events."""
    found: list[dict[str, Any]] = page.evaluate(LISTEN)
    return found


def test_all_workers_are_shown(tmp_path: Path, new_page: Callable[..., Page]) -> None:
    with Simulator(behaviour="moonshot").running() as host:
        file = configured(tmp_path, host.url, f'store = "sqlite:{tmp_path}/store.db"\nworkers = 2')
        with running("serve", "--config", file, cwd=tmp_path) as gateway:
            page = new_page(gateway.url)
            for _ in range(40):  # each on its own connection, which either worker may take
                ask(gateway, chat("kimi-k2.6", stream=False))
            expect(page.locator(".count")).to_have_text("40 of 40")
            known = exchanges(page)
            assert {one["worker"] for one in known} == {1, 2}
            for one in known:
                status, text = gateway.get(f"/inspector/api/exchanges/{one['id']}")
                assert status == 200
                assert json.loads(text)["summary"]["request_id"] == one["request_id"]


def test_secrets_and_images_are_left_out(tmp_path: Path, new_page: Callable[..., Page]) -> None:
    with Simulator(behaviour="moonshot", api_key=SECRET).running() as host:
        file = configured(tmp_path, host.url)
        with running("serve", "--config", file, cwd=tmp_path) as gateway:
            content = [
                {"type": "text", "text": f"my key is {SECRET}"},
                {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{IMAGE}"}},
            ]
            ask(gateway, chat("kimi-k2.6", messages=[{"role": "user", "content": content}]))
            page = new_page(gateway.url)
            expect(rows(page)).to_have_count(1)
            (one,) = exchanges(page)
            for path in (f"exchanges/{one['id']}", f"exchanges/{one['id']}/log", "state"):
                text = gateway.get(f"/inspector/api/{path}")[1]
                assert SECRET not in text
                assert IMAGE[:200] not in text


def test_privacy_keeps_shapes_and_times_only(tmp_path: Path, new_page: Callable[..., Page]) -> None:
    with Simulator(behaviour="moonshot").running() as host:
        file = configured(tmp_path, host.url, 'inspector = "private"')
        with running("serve", "--config", file, cwd=tmp_path) as gateway:
            ask(gateway, chat("kimi-k2.6+markers-in-content", "The weather in Paris, please"))
            page = new_page(gateway.url)
            expect(rows(page).first).to_contain_text("markers")
            (one,) = exchanges(page)
            text = gateway.get(f"/inspector/api/exchanges/{one['id']}")[1]
            assert "Paris" not in text
            found = json.loads(text)
            assert found["timeline"]
            user, answer = found["conversation"]
            assert user == {"role": "user", "parts": [{"kind": "text", "size": 28}], "answer": False}
            assert (answer["role"], answer["answer"]) == ("assistant", True)
            assert [part["kind"] for part in answer["parts"]] == ["reasoning", "call"]
            rows(page).first.click()
            expect(page.locator("#panel")).to_contain_text("Privacy mode")
            expect(page.locator(".message.user")).to_contain_text("text28 characters")
            expect(page.locator(".message.answer")).to_contain_text("call")


def test_the_oldest_are_dropped(tmp_path: Path, new_page: Callable[..., Page]) -> None:
    with Simulator(behaviour="moonshot").running() as host:
        file = configured(tmp_path, host.url, "inspector_bytes = 300000")
        with running("serve", "--config", file, cwd=tmp_path) as gateway:
            for number in range(12):
                ask(
                    gateway,
                    chat("kimi-k2.6", f"{number} " + "x" * 50_000, tools=[{"type": "function", "function": WEATHER}]),
                )
            state = json.loads(gateway.get("/inspector/api/state")[1])["recording"]
            assert 0 < state["bytes"] <= 300_000
            assert 1 <= state["exchanges"] < 12
            page = new_page(gateway.url)
            expect(page.locator(".count")).to_contain_text(f"{state['exchanges']} of")
