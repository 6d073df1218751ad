"""A Messages stream starts with a count of its input, which a Chat host reports at the end."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

from moonshim import Mender, prepare_request
from moonshim.engine.prepare import read_request
from moonshim.engine.tokens import estimate_tokens, sample_tokens

BODY: Final[dict[str, Any]] = {
    "model": "kimi-k3",
    "max_tokens": 100,
    "stream": True,
    "messages": [{"role": "user", "content": "What is in this file? " * 200}],
}
USAGE: Final = {"prompt_tokens": 1200, "completion_tokens": 3, "total_tokens": 1203, "cached_tokens": 256}


def usages(*, usage: dict[str, int] | None, stream: bool = True) -> list[dict[str, int]]:
    """The usage at the start and at the end of the client's stream."""
    plan = prepare_request(BODY | {"stream": stream}, dialect="anthropic", host="moonshot").plan
    chunks: list[dict[str, Any]] = [
        {"id": "c", "choices": [{"index": 0, "delta": {"role": "assistant", "content": "Code."}}]},
        {"id": "c", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
        *([{"id": "c", "choices": [], "usage": usage}] if usage else []),
    ]
    mender = Mender(plan=plan)
    out = mender.feed(b"".join(b"data: " + json.dumps(one).encode() + b"\n\n" for one in chunks))
    out += mender.feed(b"data: [DONE]\n\n") + mender.flush()
    events = [json.loads(line[6:]) for line in out.decode().splitlines() if line.startswith("data: ")]
    start = next(event["message"]["usage"] for event in events if event["type"] == "message_start")
    end = next(event["usage"] for event in events if event["type"] == "message_delta")
    return [start, end]


def test_it_starts_with_an_estimate_and_ends_with_the_count() -> None:
    start, end = usages(usage=USAGE)
    assert start["input_tokens"] == read_request(BODY, dialect="anthropic").estimate_tokens()
    assert (start["cache_read_input_tokens"], start["cache_creation_input_tokens"], start["output_tokens"]) == (0, 0, 0)
    assert (end["input_tokens"], end["cache_read_input_tokens"], end["output_tokens"]) == (944, 256, 3)


def test_the_estimate_stays_where_the_host_reports_nothing() -> None:
    start, end = usages(usage=None)
    assert start["input_tokens"] == end["input_tokens"] > 800


def test_a_whole_response_needs_no_estimate() -> None:
    assert usages(usage=None, stream=False)[0]["input_tokens"] == 0


@pytest.mark.parametrize("size", [0, 1, 100, 12_288, 12_289, 100_000, 3_000_000])
def test_a_sample_is_close_to_the_whole(size: int) -> None:
    text = "".join(
        f"def step_{n}(x: int) -> int:\n    return x + {n}  # adds {n * 7}\n" for n in range(size // 50 + 1)
    )[:size]
    parts = [text[at : at + size // 7 + 1] for at in range(0, size, size // 7 + 1)] or [""]
    messages = [{"role": "user", "content": part or "-"} for part in parts]
    request = read_request(BODY | {"messages": messages}, dialect="anthropic").request
    assert 0.85 < sample_tokens(request) / estimate_tokens(request) < 1.15
