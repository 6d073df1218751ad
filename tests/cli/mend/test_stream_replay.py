"""Logs of streams: `moonshim mend` repeats what the gateway did, `moonshim explain` shows what was sent and why."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final

import pytest

from moonshim.simulator import Simulator
from tests.support.command import CompletedCommand, run_moonshim
from tests.support.servers import Running, running

PROVIDER: Final = """\
[[providers]]
name = "{name}"
api_base_url = "{url}/v1"
{more}
"""
SCHEMA: Final = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
ASKED: Final = "What is the weather in Paris?"
FAULTS: Final = (
    "markers-in-content",
    "no-role",
    "no-done",
    "done-twice",
    "role-in-each-chunk",
    "usage-without-choices",
    "stream-called-json",
    "arguments-twice",
    "ids-openai",
)


pytestmark = pytest.mark.usefixtures("nothing_configured")


def ask(gateway: Running, dialect: str, model: str, *, stream: bool = True) -> str:
    tool = {"name": "get_weather", "parameters": SCHEMA}
    path, body = {
        "chat": (
            "/v1/chat/completions",
            {"messages": [{"role": "user", "content": ASKED}], "tools": [{"type": "function", "function": tool}]},
        ),
        "messages": (
            "/v1/messages",
            {
                "messages": [{"role": "user", "content": ASKED}],
                "max_tokens": 1000,
                "tools": [{"name": "get_weather", "input_schema": SCHEMA}],
            },
        ),
        "responses": ("/v1/responses", {"input": ASKED, "tools": [{"type": "function"} | tool]}),
    }[dialect]
    assert isinstance(body, dict)
    return gateway.post(path, body | {"model": model, "stream": stream})[1]


def by_request(folder: Path) -> dict[str, Path]:
    """The logs, by the requests that they belong to."""
    found: dict[str, Path] = {}
    for path in (folder / "logs").iterdir():
        header = path.read_bytes().partition(b"\n")[0].removeprefix(b": moonshim ")
        found[json.loads(header)["request_id"]] = path
    return found


def reported(done: CompletedCommand) -> dict[str, Any]:
    (entry,) = json.loads(done.stderr)["files"]
    assert isinstance(entry, dict)
    return entry


def test_a_replay_makes_the_repairs_that_the_gateway_made(tmp_path: Path) -> None:
    """Whatever the client speaks, whichever host row and options the provider has, and whatever the host gets wrong."""
    providers = {
        "plain": "",
        "router": 'host = "openrouter"',
        "keeps": 'transformer = { use = [["Kimi", { idPolicy = "keep", manualToolParsing = true }]] }',
        "messages": 'dialect = "anthropic"',
    }
    with Simulator(behaviour="selfhost").running() as host:
        config = "".join(PROVIDER.format(name=name, url=host.url, more=more) for name, more in providers.items())
        (tmp_path / "moonshim.toml").write_text(config)
        with running("serve", "--config", "moonshim.toml", "--log-dir", "logs", cwd=tmp_path) as gateway:
            for provider in providers:
                for dialect in ("chat", "messages", "responses"):
                    for fault in FAULTS:
                        ask(gateway, dialect, f"{provider}/kimi-k2.5+{fault}")
                    ask(gateway, dialect, f"{provider}/kimi-k2.5+markers-in-content", stream=False)
            assert gateway.stop() == 0
            made = {line["request_id"]: line for line in gateway.logged if line["event"] == "request"}
    assert any(line.get("repairs") for line in made.values())
    wrong = {}
    logs = by_request(tmp_path)
    assert len(logs) >= 4 * 3 * len(FAULTS)
    done = run_moonshim("mend", *logs.values(), "--report", "json", "--output", tmp_path / "out", cwd=tmp_path)
    for (request, _), entry in zip(logs.items(), json.loads(done.stderr)["files"], strict=True):
        line = made[request]
        if entry["error"] or entry["rules"] != line.get("repairs", {}):
            wrong[line["requested_model"], line["dialect"]] = (line.get("repairs", {}), entry["rules"], entry["error"])
    assert not wrong


def test_a_replay_is_what_the_client_got(tmp_path: Path) -> None:
    with Simulator(behaviour="selfhost").running() as host:
        (tmp_path / "moonshim.toml").write_text(PROVIDER.format(name="sim", url=host.url, more=""))
        with running("serve", "--config", "moonshim.toml", "--log-dir", "logs", cwd=tmp_path) as gateway:
            ask(gateway, "messages", "sim/kimi-k2.5+markers-in-content")
            assert gateway.stop() == 0
    (log,) = by_request(tmp_path).values()
    done = run_moonshim("mend", log)
    assert done.code == 0
    assert b'"type":"tool_use"' in done.out
    assert b"event: message_stop" in done.out


@pytest.mark.parametrize("dialect", ["chat", "messages", "responses"])
def test_a_replay_names_the_model_that_the_client_asked_for(dialect: str, tmp_path: Path) -> None:
    with Simulator(behaviour="selfhost").running() as host:
        aliases = '[aliases]\nclaude-x = "sim/kimi-k2.5+markers-in-content"\n'
        (tmp_path / "moonshim.toml").write_text(PROVIDER.format(name="sim", url=host.url, more="") + aliases)
        with running("serve", "--config", "moonshim.toml", "--log-dir", "logs", cwd=tmp_path) as gateway:
            got = ask(gateway, dialect, "claude-x")
            assert gateway.stop() == 0
    (log,) = by_request(tmp_path).values()
    replayed = run_moonshim("mend", log).out.decode()
    assert '"model":"' in got
    models = [set(re.findall(r'"model":"[^"]*"', text)) for text in (got, replayed)]
    assert models[0] == models[1]


@pytest.mark.parametrize("fault", ["", "+markers-in-content"])
@pytest.mark.parametrize("upstream", ["openai_chat", "anthropic"])
@pytest.mark.parametrize("dialect", ["chat", "messages", "responses"])
def test_a_replay_has_the_id_and_the_time_that_the_client_got(
    dialect: str, upstream: str, fault: str, tmp_path: Path
) -> None:
    with Simulator(behaviour="selfhost").running() as host:
        provider = PROVIDER.format(name="sim", url=host.url, more=f'dialect = "{upstream}"')
        (tmp_path / "moonshim.toml").write_text(provider)
        with running("serve", "--config", "moonshim.toml", "--log-dir", "logs", cwd=tmp_path) as gateway:
            got = ask(gateway, dialect, f"sim/kimi-k2.5{fault}")
            assert gateway.stop() == 0
    (log,) = by_request(tmp_path).values()
    replayed = run_moonshim("mend", log).out.decode()
    found = [
        set(re.findall(r'"(?:id":"(?:chatcmpl-|msg_|resp_|rs_|fc_)[^"]*"|created(?:_at)?":\d+)', text))
        for text in (got, replayed)
    ]
    assert found[0] == found[1]
    assert found[0]


def test_a_replay_for_a_client_that_turned_thinking_off_has_no_reasoning(tmp_path: Path) -> None:
    """The logged request is that of the host, which was asked to think a little, in more tokens."""
    with Simulator(thinking_tokens=300).running() as host:
        provider = PROVIDER.format(name="sim", url=host.url, more='host = "moonshot"')
        (tmp_path / "moonshim.toml").write_text(provider)
        with running("serve", "--config", "moonshim.toml", "--log-dir", "logs", cwd=tmp_path) as gateway:
            body = {"model": "sim/kimi-k3", "max_tokens": 20, "stream": True, "thinking": {"type": "disabled"}}
            got = gateway.post("/v1/messages", body | {"messages": [{"role": "user", "content": ASKED}]})[1]
            assert gateway.stop() == 0
    (log,) = by_request(tmp_path).values()
    assert "message_stop" in got
    assert "thinking_delta" not in got
    assert run_moonshim("mend", log).out.decode() == got


@pytest.mark.parametrize("fault", ["markers-in-content", "arguments-twice", "stream-called-json"])
@pytest.mark.parametrize("max_bytes", [200, 1500])
@pytest.mark.parametrize("speed", [0.0, 200.0], ids=["at once", "piece by piece"])
def test_a_replay_of_a_response_that_was_too_large_ends_where_the_gateway_ended_it(
    fault: str, max_bytes: int, speed: float, tmp_path: Path
) -> None:
    limits = f"[limits]\nmax_answer_bytes = {max_bytes}\n"
    with Simulator(behaviour="selfhost", tokens_per_second=speed).running() as host:
        (tmp_path / "moonshim.toml").write_text(limits + PROVIDER.format(name="sim", url=host.url, more=""))
        with running("serve", "--config", "moonshim.toml", "--log-dir", "logs", cwd=tmp_path) as gateway:
            got = {dialect: ask(gateway, dialect, f"sim/kimi-k2.5+{fault}") for dialect in ("chat", "messages")}
            assert gateway.stop() == 0
            made = {line["request_id"]: line for line in gateway.logged if line["event"] == "request"}
    assert len(made) == len(got)
    for request, log in by_request(tmp_path).items():
        entry = reported(run_moonshim("mend", log, "--report", "json", "--output", tmp_path / "out"))
        line = made[request]
        if line["outcome"] == "ok":
            # All of it came in one piece, which is possible only at once: what is complete is not cut.
            assert (speed, max_bytes) == (0.0, 1500)
            assert "[DONE]" in got["chat"] or "message_stop" in got["messages"]
            assert entry["ending"]["error"] is None
        else:
            code = line["error"].partition(":")[0]
            assert code in ("answer_too_large", "event_too_large")
            assert entry["ending"]["error"]["code"] == code
            text = got[{"openai_chat": "chat", "anthropic": "messages"}[line["dialect"]]]
            assert "bytes" in text
            assert "error" in text
        assert entry["rules"] == line.get("repairs", {})


def test_a_log_is_explained_with_the_changes_that_were_made(tmp_path: Path) -> None:
    with Simulator(behaviour="selfhost").running() as host:
        provider = PROVIDER.format(name="sim", url=host.url, more='host = "moonshot"')
        (tmp_path / "moonshim.toml").write_text(provider)
        with running("serve", "--config", "moonshim.toml", "--log-dir", "logs", cwd=tmp_path) as gateway:
            tools = [{"name": "get_weather", "input_schema": SCHEMA}]
            asked = {"messages": [{"role": "user", "content": ASKED}], "max_tokens": 1000, "tools": tools}
            status, _ = gateway.post(
                "/v1/messages", asked | {"model": "sim/kimi-k2.5", "stream": True, "temperature": 0.2}
            )
            assert (status, gateway.stop()) == (200, 0)
    (log,) = by_request(tmp_path).values()
    explained = json.loads(run_moonshim("explain", log, "--format", "json").out)
    assert (explained["from"], explained["to"], explained["host"]) == ("anthropic", "openai_chat", "moonshot")
    assert explained["model"] == "kimi-k2.5"
    assert explained["body"]["tools"][0]["function"]["name"] == "get_weather"
    assert "temperature" not in explained["body"]
    assert "temperature" in [change.get("place") for change in explained["changes"]]
    assert "temperature" in run_moonshim("explain", log).out.decode()
    elsewhere = json.loads(run_moonshim("explain", log, "--host", "openrouter", "--format", "json").out)
    assert (elsewhere["from"], elsewhere["host"]) == ("openai_chat", "openrouter")


class TestTheExitStatus:
    WHOLE: Final = (
        b'data: {"model":"kimi-k2","choices":[{"index":0,"delta":{"content":"Hello"},"finish_reason":"stop"}]}\n\n'
        b"data: [DONE]\n\n"
    )
    BROKEN: Final = (
        b'data: {"model":"kimi-k2","choices":[{"index":0,"delta":{"content":"Hel"},"finish_reason":null}]}\n\n'
    )
    ERROR: Final = BROKEN + b'data: {"error":{"message":"engine overloaded"}}\n\n'

    def test_it_says_that_an_answer_ended_in_an_error(self, tmp_path: Path) -> None:
        for name, stream, code in (("whole", self.WHOLE, 0), ("broken", self.BROKEN, 3), ("error", self.ERROR, 3)):
            (tmp_path / name).write_bytes(stream)
            assert run_moonshim("mend", tmp_path / name).code == code, name
        both = run_moonshim("mend", tmp_path / "whole", tmp_path / "broken")
        assert both.code == 3
        assert b"Hello" in both.out

    def test_a_file_that_cannot_be_read_counts_more(self, tmp_path: Path) -> None:
        (tmp_path / "broken").write_bytes(self.BROKEN)
        assert run_moonshim("mend", tmp_path / "broken", tmp_path / "missing").code == 1

    def test_it_is_in_the_help(self) -> None:
        assert b"  3  " in run_moonshim("mend", "--help").out
