"""Whose words a scenario answers, in the conversations that real agents send."""

from __future__ import annotations

import pytest

from moonshim.simulator.model.progress import read_progress
from moonshim.simulator.request import SimRequest, SimTurn

REMINDER = "<system-reminder>\nToday is Sunday.\n</system-reminder>"


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (["What is in a.txt?"], "What is in a.txt?"),
        (["What is in a.txt?", REMINDER, REMINDER], "What is in a.txt?"),  # kimi-code
        (["<environment_context>bash</environment_context>", "What is in a.txt?"], "What is in a.txt?"),  # Codex
        ([f"{REMINDER}\nWhat is in a.txt?"], "What is in a.txt?"),  # Claude Code
        ([REMINDER], REMINDER),
    ],
)
def test_the_words_are_those_of_the_person_wherever_an_agent_puts_its_reminders(reply: list[str], words: str) -> None:
    turns = tuple(SimTurn(role="user", text=text) for text in reply)
    sim_request = SimRequest(wire="openai_chat", model="kimi-k2.5", generation="k2.5", turns=turns)
    assert read_progress(sim_request).words == words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("<a>one</a> <b>two</b>\nHow?", "How?"),
        ("<a><a>one</a>How?</a>", "How?</a>"),
        ("<a>How? <b>x</b>", "<a>How?"),
        ("</a>How?<a>", "</a>How?<a>"),
        ("<a>" * 200_000 + "How?", "<a>" * 200_000 + "How?"),
        ("".join(f"<a{number}>" for number in range(100_000)), "".join(f"<a{number}>" for number in range(100_000))),
    ],
)
def test_a_tag_is_an_aside_up_to_its_first_end_however_many_there_are(text: str, words: str) -> None:
    sim_request = SimRequest(
        wire="openai_chat", model="kimi-k2.5", generation="k2.5", turns=(SimTurn(role="user", text=text),)
    )
    assert read_progress(sim_request).words == words
