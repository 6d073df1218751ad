"""Files that version 0.1 wrote still load: conversations, stores, configurations.

`python -m tests.compatibility.test_earlier_files` wrote the folder `version_0_1` with the code of that version. Do not
write it again: a later version gets a folder of its own.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import pytest

from moonshim.simulator import Simulator
from tests.support.command import run_moonshim
from tests.support.servers import Running, running

WRITTEN: Final = Path(__file__).parent / "version_0_1"
STORE: Final = WRITTEN / "state.db"
CLIENT: Final = WRITTEN / "clients.json"
TOOL: Final = {
    "name": "read_file",
    "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
}
CONFIG: Final = """
[[providers]]
name = "sim"
api_base_url = "{url}/v1"
host = "moonshot"
models = ["kimi-k2.6"]

[gateway]
store = "sqlite:{store}"
"""


@contextmanager
def gateway(folder: Path) -> Iterator[tuple[Running, Simulator]]:
    """A gateway on the store in this folder, in front of a host that refuses calls without their reasoning."""
    with Simulator(behaviour="moonshot", scenario="five-rounds", seed=7).running() as host:
        file = folder / "gateway.toml"
        file.write_text(CONFIG.format(url=host.url, store=folder / "state.db"))
        with running("serve", "--config", file, cwd=folder) as one:
            yield one, host


def ask(one: Running, path: str, body: dict[str, Any]) -> dict[str, Any]:
    status, text = one.post(path, body, **{"anthropic-version": "2023-06-01"})
    assert status == 200, text
    found: dict[str, Any] = json.loads(text)
    return found


def messages_body(messages: list[Any]) -> dict[str, Any]:
    return {"model": "kimi-k2.6", "max_tokens": 4000, "messages": messages, "tools": [TOOL]}


def without_thinking(content: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [block for block in content if block["type"] not in ("thinking", "redacted_thinking")]


def results_for(content: list[dict[str, Any]]) -> dict[str, Any]:
    calls = [block["id"] for block in content if block["type"] == "tool_use"]
    assert calls
    return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": one, "content": "1"} for one in calls]}


def record() -> None:
    """Write the store with two rounds of a Messages client that drops reasoning, and a Response."""
    WRITTEN.mkdir(exist_ok=True)
    with TemporaryDirectory() as folder, gateway(Path(folder)) as (one, _):
        messages: list[Any] = [{"role": "user", "content": "Count the lines."}]
        signed: list[Any] = list(messages)
        for _ in range(2):
            content = ask(one, "/v1/messages", messages_body(messages))["content"]
            messages += [{"role": "assistant", "content": without_thinking(content)}, results_for(content)]
            signed += [{"role": "assistant", "content": content}, results_for(content)]
        response = ask(one, "/v1/responses", {"model": "kimi-k2.6", "input": "Hello"})
        one.stop()
        with closing(sqlite3.connect(f"{folder}/state.db")) as database:
            database.execute("PRAGMA journal_mode = DELETE")
            database.execute("VACUUM")
        shutil.copy(f"{folder}/state.db", STORE)
    CLIENT.write_text(json.dumps({"messages": messages, "signed": signed, "response": response["id"]}, indent=1) + "\n")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Running, Simulator]]:
    folder = tmp_path_factory.mktemp("earlier")
    shutil.copy(STORE, folder / "state.db")
    with closing(sqlite3.connect(folder / "state.db")) as database, database:
        # What was written expires after a week; these tests are about what can be read, whenever they run.
        for table in ("item", "entries"):
            database.execute(f"UPDATE {table} SET expires = ? WHERE expires IS NOT NULL", (time.time() + 10_000,))
    with gateway(folder) as one:
        yield one


def reasoning_sent(host: Simulator) -> list[str]:
    messages = host.requests[-1].body["messages"]
    return [message.get("reasoning_content", "") for message in messages if message["role"] == "assistant"]


@pytest.mark.parametrize("history", ["messages", "signed"])
def test_a_conversation_goes_on_with_the_reasoning_of_the_old_store(
    served: tuple[Running, Simulator], history: str
) -> None:
    """Dropped reasoning is found in the store; reasoning that the client kept is under the old signature."""
    one, host = served
    written = json.loads(CLIENT.read_text())
    ask(one, "/v1/messages", messages_body(written[history]))
    thoughts = [
        block["thinking"]
        for message in written["signed"]
        if message["role"] == "assistant"
        for block in message["content"]
        if block["type"] == "thinking"
    ]
    assert len(thoughts) == 2
    assert all(thoughts)
    assert reasoning_sent(host) == thoughts


def test_a_response_of_the_old_store_can_be_continued(served: tuple[Running, Simulator]) -> None:
    one, host = served
    before = json.loads(CLIENT.read_text())["response"]
    ask(one, "/v1/responses", {"model": "kimi-k2.6", "input": "Go on", "previous_response_id": before})
    sent = [message["role"] for message in host.requests[-1].body["messages"]]
    assert sent == ["user", "assistant", "user"]
    assert one.get(f"/v1/responses/{before}")[0] == 200


@pytest.mark.parametrize(
    ("file", "facts"),
    {
        "config.json": ["https://openrouter.ai/api/v1/chat/completions", "moonshotai/Kimi-K2-Instruct", "claude-*"],
        "config.toml": [
            "MOONSHOT_API_KEY",
            "tool_limit, context_window",
            "http://proxy.internal:3128",
            "connect 5 s, first byte 300 s, between bytes 60 s",
            "moonshot/kimi-k3, then openrouter/moonshotai/kimi-k3",
            "60 requests/min; 200,000 tokens/min; 4 concurrent streams",
        ],
    }.items(),
)
def test_a_configuration_is_read_as_before(file: str, facts: list[str]) -> None:
    variables = {"MOONSHOT_API_KEY": "k", "OPENROUTER_API_KEY": "o", "MOONSHIM_SECRET": "s" * 32}
    done = run_moonshim("config", "check", WRITTEN / file, stdin=b"", cwd=None, **variables)
    assert done.code == 0, done.stderr
    shown = done.out.decode()
    assert [fact for fact in facts if fact not in shown] == []


if __name__ == "__main__":
    record()
