"""`Log` tells of requests and answers what can be counted, and not a word of them unless it is asked to."""

from __future__ import annotations

import json
import logging
from typing import Any, Final

import pytest

from moonshim import Mender
from moonshim.engine.prepare import prepare_request
from moonshim.transformers import Log
from moonshim.transformers.log import NAMES_LIMIT, TEXT_LIMIT
from tests.support.streams import chunk, sse

Told = list[tuple[str, str, dict[str, Any]]]
SECRET: Final = "the password is fish"
USAGE: Final = {"prompt_tokens": 3, "completion_tokens": 9, "total_tokens": 12}
MARKERS: Final = (
    "<|tool_calls_section_begin|><|tool_call_begin|>functions.ls:0<|tool_call_argument_begin|>{}"
    "<|tool_call_end|><|tool_calls_section_end|>"
)


def ask(log: Log, *deltas: dict[str, Any], finish: str | None = "stop", text: str = SECRET) -> None:
    tool = {"type": "function", "function": {"name": "ls", "parameters": {"type": "object", "properties": {}}}}
    asked = {"model": "kimi-k2.5", "messages": [{"role": "user", "content": text}], "tools": [tool], "stream": True}
    plan = prepare_request(asked, host="generic", transformers=[log]).plan
    chunks = [chunk({"role": "assistant"}), *map(chunk, deltas)]
    chunks += [chunk({}, finish=finish), {**chunk({}), "choices": [], "usage": USAGE}] if finish else []
    mender = Mender(plan=plan)
    assert mender.feed(sse(chunks, done=finish is not None)) + mender.flush()


@pytest.fixture
def told() -> Told:
    return []


def test_a_request_and_its_answer_are_told_in_numbers(told: Told) -> None:
    log = Log(lambda *said: told.append(said))
    ask(log, {"reasoning_content": "hm " + SECRET}, {"content": SECRET}, {"content": MARKERS})
    assert told == [
        ("info", "log_request", {"model": "kimi-k2.5", "messages": 1, "tools": 1, "stream": True}),
        (
            "info",
            "log_answer",
            {
                "model": "kimi-k2.5",
                "characters": {"text": len(SECRET), "reasoning": len(SECRET) + 3, "call": 2},
                "calls": 1,
                "called": ["ls"],
                "repairs": told[1][2]["repairs"],
                "finish": "tool_calls",
                "tokens": {"input": 3, "output": 9},
            },
        ),
    ]
    assert "finish_reason" in told[1][2]["repairs"]
    assert SECRET not in json.dumps(told)


def test_words_are_told_when_somebody_asks_for_them_and_not_all_of_them(told: Told) -> None:
    log = Log(lambda *said: told.append(said), level="debug", text=True)
    ask(log, *({"content": "x" * 99} for _ in range(20)), text="y" * 9999)
    assert [(level, fields["text"]) for level, _, fields in told] == [
        ("debug", "y" * TEXT_LIMIT),
        ("debug", "x" * TEXT_LIMIT),
    ]


def test_what_is_told_of_many_calls_is_bounded(told: Told) -> None:
    log = Log(lambda *said: told.append(said))
    entries = [
        {"index": n, "id": f"functions.ls:{n}", "type": "function", "function": {"name": "ls", "arguments": "{}"}}
        for n in range(NAMES_LIMIT + 5)
    ]
    ask(log, *({"tool_calls": [entry]} for entry in entries), finish="tool_calls")
    assert (told[1][2]["calls"], len(told[1][2]["called"])) == (NAMES_LIMIT + 5, NAMES_LIMIT)


def test_an_answer_that_broke_off_says_so(told: Told) -> None:
    ask(Log(lambda *said: told.append(said)), {"content": "Hi"}, finish=None)
    assert told[1][2]["failed"] == "stream_ended"
    assert "finish" not in told[1][2]


def test_without_a_sink_the_standard_log_is_told(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="moonshim.transformers"):
        ask(Log(level="warning"), {"content": SECRET})
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]
    assert "kimi-k2.5" in caplog.text
    assert SECRET not in caplog.text
