"""The inspector in a real browser, on a gateway whose host is the simulator."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from playwright.sync_api import Page, expect

from moonshim.config.model import digest_of
from moonshim.simulator import Simulator
from tests.inspector.hosts import delta, steered_host
from tests.support.servers import Running, running

Open = Callable[..., Page]

WEATHER: Final = {
    "name": "get_weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
MARKERS: Final = "kimi-k2.6+markers-in-content"
KEY: Final = "msk_me-0123456789abcdef"
HOSTILE: Final = '</script><img src=x onerror="document.title=1">\u202egnp.exe\u202c\u0007<b>bold</b>'
NARROW: Final = {"width": 360, "height": 740}


def chat(model: str = MARKERS, text: str = "What is the weather in Paris?", **more: Any) -> dict[str, Any]:
    tools = [{"type": "function", "function": WEATHER}]
    return {"model": model, "stream": True, "messages": [{"role": "user", "content": text}], "tools": tools} | more


def ask(gateway: Running, body: dict[str, Any] | None = None, client: str = "curl/8") -> None:
    gateway.post("/v1/chat/completions", body or chat(), **{"user-agent": client})


def rows(page: Page) -> Any:
    return page.locator(".rows .row")


def screenshot(page: Page, name: str) -> None:
    """Where MOONSHIM_SCREENSHOTS says; pictures are for people, not compared."""
    if folder := os.environ.get("MOONSHIM_SCREENSHOTS"):
        page.screenshot(path=str(Path(folder) / f"{name}.png"))


def test_an_exchange_appears_at_once_with_its_repairs(gateway: Running, new_page: Open) -> None:
    page = new_page(gateway.url)
    expect(page.get_by_text("No exchanges yet")).to_be_visible()
    ask(gateway, client="opencode/1.2")
    expect(rows(page)).to_have_count(1)
    row = rows(page).first
    for words in ("opencode", MARKERS, "200", "markers", "finish"):
        expect(row).to_contain_text(words)
    screenshot(page, "live")


def test_one_exchange_in_every_view(gateway: Running, new_page: Open) -> None:
    ask(gateway)
    page = new_page(gateway.url)
    rows(page).first.click()
    panel = page.locator("#panel")
    expect(panel.locator(".message.user")).to_contain_text("What is the weather in Paris?")
    expect(panel.locator(".message.answer")).to_contain_text("get_weather")
    expect(panel.locator(".message.answer .json")).to_contain_text('city: "Paris"')
    screenshot(page, "conversation")

    page.get_by_role("tab", name="Stream").click()
    repaired = panel.locator(".frame.repaired")
    expect(repaired.first).to_contain_text("marker_call")
    expect(panel).to_contain_text("2 repaired")
    screenshot(page, "stream")
    page.get_by_role("button", name="Only repaired").click()
    expect(panel.locator(".frame:not(.labels)")).to_have_count(2)
    repaired.first.get_by_role("link", name="marker_call").click()
    expect(page.locator("tr.wanted")).to_contain_text("marker_call")
    page.go_back()
    page.get_by_role("tab", name="Timeline").click()
    expect(panel).to_contain_text("Stream")
    screenshot(page, "timeline")


def test_a_history_with_other_ids(gateway: Running, new_page: Open) -> None:
    call = {"id": "call_x", "type": "function", "function": {"name": "get_weather", "arguments": "{}"}}
    history = [
        {"role": "user", "content": "What is the weather in Paris?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_x", "content": "18 degrees"},
    ]
    ask(gateway, chat(messages=history))
    page = new_page(gateway.url)
    rows(page).first.click()
    panel = page.locator("#panel")
    expect(panel.locator(".message.tool")).to_contain_text("Result of get_weather")
    page.get_by_role("tab", name="Request").click()
    expect(panel).to_contain_text("history_id")
    expect(panel.locator(".diff .changed").filter(has_text="functions.get_weather:0").first).to_be_visible()
    screenshot(page, "request")
    page.get_by_role("tab", name="Details").click()
    pair = panel.locator("table.ids tr.changed")
    expect(pair).to_contain_text("call_x")
    expect(pair).to_contain_text("functions.get_weather:0")


def test_an_exchange_that_still_streams(gateway: Running, new_page: Open) -> None:
    place = urlsplit(gateway.url)
    body = json.dumps(chat("kimi-k2.6+stall", "Tell me a long story", tools=None)).encode()
    page = new_page(gateway.url)
    with socket.create_connection((place.hostname or "", place.port or 0)) as client:
        head = ["POST /v1/chat/completions HTTP/1.1", "host: localhost", f"content-length: {len(body)}"]
        client.sendall("\r\n".join([*head, "content-type: application/json", "", ""]).encode() + body)
        expect(rows(page).first).to_contain_text("streaming")
        rows(page).first.click()
        expect(page.locator(".exchange-head .status.running")).to_be_visible()
        expect(page.locator(".message.answer")).to_be_visible()
    expect(page.locator(".exchange-head")).to_contain_text("client left")


def test_what_a_person_opened_stays_open_while_it_streams(tmp_path: Path, new_page: Open) -> None:
    with steered_host() as host, ThreadPoolExecutor(1) as pool:
        file = tmp_path / "moonshim.toml"
        file.write_text(f'[[providers]]\nname = "host"\napi_base_url = "{host.url}/v1"\nmodels = ["kimi-k2.6"]\n')
        file.chmod(0o600)
        with running("serve", "--config", file, cwd=tmp_path) as gateway:
            page = new_page(gateway.url)
            asked = pool.submit(ask, gateway, chat("kimi-k2.6", tools=None))
            host.send(delta(reasoning_content="Let me think."), delta(content="First"))
            rows(page).first.click()
            answer = page.locator(".message.answer")
            expect(answer).to_contain_text("First")
            answer.locator("summary").click()
            expect(answer).to_contain_text("Let me think.")
            host.send(delta(content=", then second"))
            expect(answer).to_contain_text("First, then second")
            expect(answer.locator("details")).to_have_attribute("open", "")
            expect(page.locator(".exchange-head .status.running")).to_be_visible()
            host.end()
            asked.result()
            expect(page.locator(".exchange-head .status.ok")).to_be_visible()
            expect(answer.locator("details")).to_have_attribute("open", "")


def test_filters_and_pause(gateway: Running, new_page: Open) -> None:
    ask(gateway)
    ask(gateway, chat("kimi-k2.6"))
    gateway.post("/v1/chat/completions", {"model": "kimi-k2.6", "messages": 7})
    page = new_page(gateway.url)
    expect(rows(page)).to_have_count(3)
    page.get_by_role("button", name="Repaired").click()
    expect(rows(page)).to_have_count(1)
    page.get_by_role("button", name="Repaired").click()
    page.get_by_role("button", name="Failed").click()
    expect(rows(page)).to_have_count(1)
    expect(rows(page).first).to_contain_text("400")
    page.get_by_role("button", name="Failed").click()
    page.get_by_label("Filter by model").select_option(MARKERS)
    expect(rows(page)).to_have_count(1)
    page.get_by_label("Filter by model").select_option("")
    page.get_by_role("searchbox").fill("marker_call")
    expect(rows(page)).to_have_count(1)
    page.get_by_role("searchbox").fill("")
    page.get_by_role("button", name="Pause").click()
    ask(gateway)
    expect(page.locator(".count")).to_contain_text("waiting")
    expect(rows(page)).to_have_count(3)
    page.get_by_role("button", name="Resume").click()
    expect(rows(page)).to_have_count(4)


def test_the_keyboard_alone(gateway: Running, new_page: Open) -> None:
    ask(gateway, chat("kimi-k3"))
    ask(gateway)
    page = new_page(gateway.url)
    expect(rows(page)).to_have_count(2)
    press = page.keyboard.press
    press("ArrowDown")
    expect(rows(page).first).to_have_attribute("aria-selected", "true")
    press("Enter")
    expect(page.get_by_role("tab", name="Conversation")).to_have_attribute("aria-selected", "true")
    press("ArrowRight")
    expect(page.get_by_role("tab", name="Stream")).to_have_attribute("aria-selected", "true")
    press("Escape")
    expect(rows(page)).to_have_count(2)
    press("/")
    page.keyboard.type("kimi-k3")
    expect(rows(page)).to_have_count(1)
    press("Escape")
    press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    press("Escape")
    press("2")
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    expect(page.locator("figure.card")).to_have_count(4)
    press("4")
    expect(page.get_by_role("heading", name="Try it")).to_be_visible()


def test_a_pasted_stream_is_mended(gateway: Running, new_page: Open, tmp_path: Path) -> None:
    page = new_page(gateway.url, "#/try")
    page.get_by_role("button", name="Mend").click()
    expect(page.get_by_role("alert")).to_contain_text("Paste a response first")
    page.get_by_role("textbox").fill("not a stream")
    page.get_by_role("button", name="Mend").click()
    expect(page.get_by_role("alert")).to_contain_text("not a response")
    page.get_by_role("button", name="Load an example").click()
    expect(page.locator(".frame.repaired")).to_have_count(2)
    screenshot(page, "try")
    ask(gateway)
    with_log = new_page(gateway.url)
    rows(with_log).first.click()
    with with_log.expect_download() as download:
        with_log.get_by_role("link", name="Download log").click()
    log = tmp_path / "exchange.log"
    download.value.save_as(log)
    page.locator("#file").set_input_files(log)
    expect(page.locator(".frame.repaired").first).to_contain_text("marker_call")


def test_dark_and_narrow(gateway: Running, new_page: Open) -> None:
    ask(gateway)
    page = new_page(gateway.url, color_scheme="dark", viewport=NARROW)
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert background == "rgb(15, 17, 23)"
    for path in ("#/live", "#/overview", "#/try", "#/rules/marker_call"):
        page.goto(f"/inspector{path}")
        expect(page.locator("main h1").first).to_be_attached()
        assert page.evaluate("document.documentElement.scrollWidth") <= NARROW["width"]
    page.goto("/inspector#/live")
    rows(page).first.click()
    for name in ("Conversation", "Stream", "Request", "Timeline", "Details"):
        page.get_by_role("tab", name=name).click()
        assert page.evaluate("document.documentElement.scrollWidth") <= NARROW["width"], name
    page.get_by_role("button", name="Switch between light and dark").click()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(251, 251, 253)"


LINES: Final = """one => {
  const range = document.createRange();
  range.selectNodeContents(one);
  return range.getClientRects().length;
}"""
TICKS: Final = "all => all.map(one => [one.textContent, one.getBoundingClientRect().height])"


def test_the_overview_of_a_single_request(gateway: Running, new_page: Open) -> None:
    ask(gateway)
    page = new_page(gateway.url, "#/overview", viewport=NARROW)
    for title, name in {"Repairs by rule": "marker_call", "Error rate by provider": "demo"}.items():
        chart = page.locator("figure", has=page.get_by_role("heading", name=title))
        expect(chart.locator(".legend")).to_contain_text(name)
        found = chart.locator(".tick[text-anchor=end]").evaluate_all(TICKS)
        assert len({text for text, _ in found}) == len(found), found
        assert min(height for _, height in found) > 9, "too small to read"
    for link in page.locator("nav a").all():
        assert link.evaluate(LINES) == 1


def test_no_cell_is_cut_off(gateway: Running, new_page: Open) -> None:
    ask(gateway, chat("kimi-k3+overloaded"))
    page = new_page(gateway.url)
    expect(rows(page).first).to_contain_text("×3")
    for width in (1920, 1280, 1200, 1110, 1000, 768, 721):
        page.set_viewport_size({"width": width, "height": 700})
        for place in (".rows .row", ".head .row", ".rows .c4", ".head .c4"):
            wide, room = page.locator(place).first.evaluate("one => [one.scrollWidth, one.clientWidth]")
            assert wide <= room, (width, place)


def test_a_refused_request_was_not_sent(gateway: Running, new_page: Open) -> None:
    gateway.post("/v1/chat/completions", chat("nope"))
    page = new_page(gateway.url)
    rows(page).first.click()
    for name in ("Stream", "Request"):
        page.get_by_role("tab", name=name).click()
        expect(page.locator("#panel")).to_contain_text("The request was not sent to a host.")


def test_hostile_text_is_text(gateway: Running, new_page: Open) -> None:
    large = json.dumps({"x": "A" * 3_000_000})
    call = {"id": "c", "type": "function", "function": {"name": "get_weather", "arguments": large}}
    history = [
        {"role": "user", "content": HOSTILE},
        {"role": "assistant", "content": HOSTILE, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": HOSTILE},
        {"role": "user", "content": HOSTILE},
    ]
    ask(gateway, chat(messages=history), client="<b>evil</b>/1")
    page = new_page(gateway.url)
    rows(page).first.click()
    panel = page.locator("#panel")
    expect(panel).to_contain_text("</script><img src=x")
    expect(panel).to_contain_text("U+202E")
    assert panel.locator("img, script, b:has-text('bold')").count() == 0
    assert page.title() == "Moonshim inspector"
    for name in ("Stream", "Request", "Details"):
        page.get_by_role("tab", name=name).click()
        expect(panel).to_be_visible()
    assert page.evaluate("document.documentElement.innerHTML.length") < 3_000_000


def test_two_hundred_exchanges_a_second(gateway: Running, new_page: Open) -> None:
    """The list keeps up and can be used while they come: of all rows, only those exist that can be seen."""
    page = new_page(gateway.url)
    expect(page.get_by_text("No exchanges yet")).to_be_visible()
    bodies = [chat("kimi-k2.6", stream=False, tools=None), {"model": "kimi-k2.6", "messages": 7}]
    started = time.monotonic()

    def ask_in_turn(number: int) -> None:
        # At most 200 a second; as many as the machine can, if that is less.
        time.sleep(max(0.0, started + number / 200 - time.monotonic()))
        ask(gateway, bodies[number % 10 == 0])

    with ThreadPoolExecutor(16) as pool:
        sent = [pool.submit(ask_in_turn, number) for number in range(1500)]
        expect(rows(page).nth(5)).to_be_visible()
        page.get_by_role("button", name="Failed").click()
        expect(rows(page).first).to_contain_text("400")
        page.get_by_role("button", name="Failed").click()
        page.get_by_role("button", name="Pause").click()
        rows(page).first.click()
        expect(page.locator(".exchange-head")).to_be_visible()
        page.keyboard.press("Escape")
        page.get_by_role("button", name="Resume").click()
        for one in sent:
            one.result()
    expect(page.locator(".count")).to_have_text("1,500 of 1,500")
    assert rows(page).count() < 80
    page.get_by_role("button", name="Failed").click()
    expect(page.locator(".count")).to_have_text("150 of 1,500")
    page.get_by_role("button", name="Failed").click()
    expect(page.locator(".count")).to_have_text("1,500 of 1,500")
    page.locator(".scroller").evaluate("one => { one.scrollTop = one.scrollHeight }")
    expect(page.locator('.rows .row[aria-rowindex="1501"]')).to_be_visible()


def test_cost_and_budgets(tmp_path: Path, new_page: Open) -> None:
    with Simulator(behaviour="moonshot").running() as host:
        file = tmp_path / "moonshim.toml"
        file.write_text(
            f"""
[usage]
file = "{tmp_path}/usage.db"
[prices."kimi-k3"]
input = 3
output = 15
[prices."kimi-k2.5"]
input = 6
output = 20
currency = "CNY"
[[providers]]
name = "host"
api_base_url = "{host.url}/v1"
models = ["kimi-k3", "kimi-k2.6", "kimi-k2.5"]
[[keys]]
name = "me"
digest = "{digest_of(KEY)}"
rights = ["inspect"]
budgets = [{{ period = "day", limit = "5.00", soft = true }}]
"""
        )
        file.chmod(0o600)
        with running("serve", "--config", file, cwd=tmp_path) as gateway:
            for model in ("kimi-k3", "kimi-k2.6", "kimi-k2.5"):
                gateway.post("/v1/chat/completions", chat(model, stream=False), authorization=f"Bearer {KEY}")
            page = new_page(gateway.url, "#/cost")
            page.get_by_label("Gateway key").fill(KEY)
            page.get_by_role("button", name="Sign in").click()
            page.get_by_role("button", name="Model", exact=True).click()
            table = page.locator("table.usage")
            expect(table.locator("tr", has_text="kimi-k3")).to_contain_text("$0.0")
            expect(table.locator("tr", has_text="kimi-k2.6")).to_contain_text("unknown")
            expect(table.locator("tfoot")).to_contain_text("≥ $0.0")
            for model, widths in (("kimi-k3", ["100%", "0%"]), ("kimi-k2.5", ["0%", "100%"])):
                bars = table.locator("tr", has_text=model).locator(".track .span")
                assert sorted(bars.evaluate_all("all => all.map((one) => one.style.width)")) == sorted(widths)
            expect(page.locator(".budgets")).to_contain_text("of $5.00")
            screenshot(page, "cost")
            page.goto("/inspector#/live")
            expect(rows(page).filter(has_text="kimi-k3")).to_contain_text("$0.0")


def test_long_names_and_a_narrow_page_when_signed_in(tmp_path: Path, new_page: Open) -> None:
    with Simulator(behaviour="moonshot").running() as host:
        file = tmp_path / "moonshim.toml"
        file.write_text(
            f"""
[[providers]]
name = "host"
api_base_url = "{host.url}/v1"
models = ["kimi-k3"]
[[keys]]
name = "the-key-of-{"a-very-" * 10}large-team"
digest = "{digest_of(KEY)}"
rights = ["inspect"]
budgets = [{{ period = "day", limit = "5.00", currency = "KWD", soft = true }}]
"""
        )
        file.chmod(0o600)
        with running("serve", "--config", file, cwd=tmp_path) as gateway:
            gateway.post("/v1/chat/completions", chat("kimi-k3", stream=False), authorization=f"Bearer {KEY}")
            page = new_page(gateway.url, viewport=NARROW)
            assert page.locator(".sign-in code").last.evaluate(LINES) == 1
            page.get_by_label("Gateway key").fill(KEY)
            page.get_by_role("button", name="Sign in").click()
            expect(page.get_by_role("button", name="Sign out")).to_be_visible()
            for path in ("#/live", "#/overview", "#/cost", "#/try"):
                page.goto(f"/inspector{path}")
                expect(page.locator("main h1").first).to_be_attached()
                assert page.evaluate("document.documentElement.scrollWidth") <= NARROW["width"], path
                for link in page.locator("nav a").all():
                    assert link.evaluate(LINES) == 1, path
            page.goto("/inspector#/cost")
            expect(page.locator(".budgets")).to_contain_text("KWD 0 of KWD 5.00")
            page.set_viewport_size({"width": 1280, "height": 700})
            page.goto("/inspector#/rules/marker_call")
            for name in page.locator(".rules code").all():
                assert name.evaluate(LINES) == 1
            colours = "all => [...new Set(all.map(one => getComputedStyle(one).color))]"
            assert len(page.locator(".rules code").evaluate_all(colours)) == 1
            page.goto("/inspector#/live")
            boxes = [one.bounding_box() for one in page.locator(".tools > :is(input, select, button)").all()]
            assert len({box["y"] for box in boxes if box is not None}) == 1, "the filters are in one line"
