"""Law 11 with a memory: what is put back stays put back, so that the host's prompt cache goes on fitting."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any, Final

import pytest
from msgspec.structs import replace

from tests.engine.reasoning_cache.clients import DIALECTS, Memory, Step, asked_of
from tests.engine.reasoning_cache.test_edits import CONVERSATION, POLL, SUMMARY

HOSTS: Final = [("moonshot", "openai_chat"), ("openrouter", "openai_chat"), ("kimi-coding", "anthropic")]
POLLING: Final = (replace(POLL, user="Run it."), *(replace(POLL, thought=f"p{n}") for n in range(36)))
SUMMED_UP: Final = (replace(CONVERSATION[3], user=SUMMARY.user, thought=""), *CONVERSATION[4:])
CONVERSATIONS: Final = {
    "a few rounds": (CONVERSATION, ["t0", "t1", "t2", "t3", "t4", "t5"]),
    "the same over and over": (POLLING, [f"p{n}" for n in range(35)]),
    "behind a summary": (SUMMED_UP, ["t5"]),
}


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(("host", "upstream"), HOSTS)
@pytest.mark.parametrize(("steps", "known"), CONVERSATIONS.values(), ids=CONVERSATIONS.keys())
def test_a_conversation_only_grows(
    dialect: str, host: str, upstream: str, steps: tuple[Step, ...], known: list[str]
) -> None:
    memory = Memory()
    memory.hear(dialect, CONVERSATION)
    sent: list[list[str]] = []
    for n, step in enumerate(steps):
        asked = asked_of(dialect, steps[:n], step.user)
        made = asked.prepare(host=host, upstream=upstream, model="kimi-k2.6", recalled=memory.recall(asked))
        said: list[Any] = [made.body.get("system"), *made.body["messages"]]
        sent.append([json.dumps(message) for message in said])
        memory.hear(dialect, steps[: n + 1], since=n)
    for earlier, later in pairwise(sent):
        assert later[: len(earlier)] == earlier
    assert [thought for thought in known if f'"{thought}"' in "".join(sent[-1])] == known
