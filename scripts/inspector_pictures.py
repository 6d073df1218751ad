"""Takes the pictures of the inspector for README and docs: a gateway, a simulated host, traffic, a real browser.

python -m scripts.inspector_pictures [FOLDER]      (default: docs/assets)
"""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from playwright.sync_api import FloatRect, Page, sync_playwright

from moonshim.simulator import Simulator
from scripts.browser import ARGUMENTS, ensure_browser

WIDTH: Final = 1200
ROOT: Final = Path(__file__).parents[1]
CONFIG: Final = """
[usage]
file = "memory:"
[[providers]]
name = "moonshot"
api_base_url = "{url}/v1"
models = ["kimi-k3", "kimi-k2.6", "kimi-k2.6+markers-in-content", "kimi-k2.6+arguments-twice",
          "kimi-k2.6+ids-missing"]
[[providers]]
name = "vllm"
api_base_url = "{url}/v1"
models = ["kimi-k2.5", "kimi-k2.5+finish-length"]
[aliases]
"claude-*" = "kimi-k3"
[prices."kimi-k3*"]
input = 3
output = 15
cached = 0.3
[prices."kimi-k2*"]
input = 0.95
output = 4
cached = 0.16
"""
CLIENTS: Final = ("claude-cli/2.1.325 (cli)", "codex_cli_rs/0.166.0", "opencode/1.18.33", "OpenAI/Python 2.1.0")
MODELS: Final = (
    "kimi-k3", "kimi-k2.6+markers-in-content", "kimi-k3", "kimi-k2.6", "kimi-k2.6+arguments-twice", "kimi-k2.5",
    "kimi-k3", "kimi-k2.6+ids-missing", "kimi-k2.5+finish-length", "kimi-k2.6",
)  # fmt: skip
CITIES: Final = ("Paris", "Lisbon", "Osaka", "Quito", "Oslo", "Nairobi")
WEATHER: Final = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


def ask(url: str, number: int) -> None:
    model, client = MODELS[number % len(MODELS)], CLIENTS[number % len(CLIENTS)]
    text = f"What is the weather in {CITIES[number % len(CITIES)]}?"
    path, body = "/v1/chat/completions", chat(model, text)
    if client.startswith("claude"):
        tools = [{"name": "get_weather", "input_schema": WEATHER}]
        messages = [{"role": "user", "content": text}]
        path, body = "/v1/messages", {"model": "claude-sonnet-5", "max_tokens": 4000, "stream": True}
        body |= {"messages": messages, "tools": tools}
    headers = {"content-type": "application/json", "user-agent": client}
    request = urllib.request.Request(url + path, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=60) as response:
        response.read()


def chat(model: str, text: str) -> dict[str, Any]:
    tools = [{"type": "function", "function": {"name": "get_weather", "parameters": WEATHER}}]
    system = {"role": "system", "content": "You are a careful assistant. Use the tools that you have."}
    return {"model": model, "stream": True, "messages": [system, {"role": "user", "content": text}], "tools": tools}


def take(page: Page, url: str, folder: Path) -> None:
    page.goto(f"{url}/inspector")
    page.locator(".rows .row").nth(10).wait_for()
    page.screenshot(path=str(folder / "inspector-live.png"))
    page.get_by_role("searchbox").fill("markers-in-content")
    page.locator(".rows .row", has_text="opencode").or_(page.locator(".rows .row", has_text="codex")).first.click()
    page.get_by_role("tab", name="Stream").click()
    # Up to the end of the first repair: a row that is cut in half looks like a mistake.
    notes = page.locator(".frame.repaired .notes").first.bounding_box()
    assert notes is not None
    clip: FloatRect = {"x": 0, "y": 0, "width": WIDTH, "height": notes["y"] + notes["height"]}
    page.screenshot(path=str(folder / "inspector-stream.png"), clip=clip)


def main(folder: Path) -> None:
    with Simulator(behaviour="selfhost", tokens_per_second=80).running() as host, TemporaryDirectory() as place:
        file = Path(place) / "moonshim.toml"
        file.write_text(CONFIG.format(url=host.url))
        file.chmod(0o600)
        command = [sys.executable, "-m", "moonshim", "serve", "--config", str(file), "--port", "0"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as gateway:
            try:
                assert gateway.stdout is not None
                url = next(word for word in gateway.stdout.readline().split() if word.startswith("http://"))
                with ThreadPoolExecutor(3) as pool:
                    list(pool.map(lambda number: ask(url, number), range(36)))
                with sync_playwright() as playwright:
                    browser = playwright.chromium.launch(executable_path=ensure_browser(), args=list(ARGUMENTS))
                    take(
                        browser.new_page(viewport={"width": WIDTH, "height": 760}, device_scale_factor=1.5), url, folder
                    )
                    browser.close()
            finally:
                gateway.terminate()


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "assets")
