"""Limits of tokens and stop sequences end an answer where a host would end it."""

from __future__ import annotations

import pytest

from moonshim.simulator.response import IntendedResponse
from moonshim.simulator.wire.truncate import truncate
from tests.simulator.asking import MEANT, sim_request

WORDS = IntendedResponse(reasoning="Hm, hm.", text="one two three END four", calls=MEANT.calls)


def test_an_answer_that_fits_is_left_alone() -> None:
    reply = truncate(MEANT, sim_request(max_tokens=1000))
    assert (reply.intended, reply.finish) == (MEANT, "tool_calls")
    assert truncate(IntendedResponse(text="Hi"), sim_request()).finish == "stop"


@pytest.mark.parametrize("tokens", range(1, 60))
def test_a_shorter_answer_begins_like_the_whole_one(tokens: int) -> None:
    reply = truncate(MEANT, sim_request(max_tokens=tokens))
    assert MEANT.reasoning.startswith(reply.intended.reasoning)
    assert MEANT.text.startswith(reply.intended.text)
    for part, whole in zip(reply.intended.calls, MEANT.calls, strict=False):
        assert part.name == whole.name
        assert whole.arguments.startswith(part.arguments)
    assert reply.finish == ("tool_calls" if reply.intended == MEANT else "length")


def test_a_call_can_end_in_the_middle_of_its_arguments() -> None:
    cuts = [truncate(MEANT, sim_request(max_tokens=tokens)).intended for tokens in range(1, 60)]
    assert any(
        0 < len(one.calls[-1].arguments) < len(MEANT.calls[len(one.calls) - 1].arguments) for one in cuts if one.calls
    )


def test_thoughts_use_up_the_tokens_first() -> None:
    reply = truncate(MEANT, sim_request(max_tokens=3))
    assert reply.intended.reasoning
    assert not reply.intended.text


@pytest.mark.parametrize(
    ("wire", "body"),
    [
        ("openai_chat", {"stop": "END"}),
        ("openai_chat", {"stop": ["x", "", "END"]}),
        ("anthropic", {"stop_sequences": ["END"], "stop": 7}),
    ],
)
def test_a_stop_sequence_ends_the_text_before_itself(wire: str, body: dict[str, object]) -> None:
    reply = truncate(WORDS, sim_request(wire=wire, body=body))
    assert (reply.intended.text, reply.intended.calls) == ("one two three ", ())
    assert (reply.finish, reply.stopped_by) == ("stop", "END")


@pytest.mark.parametrize(
    "body", [{}, {"stop": None}, {"stop": 7}, {"stop": [7, None, ""]}, {"stop_sequences": ["END"]}]
)
def test_what_is_no_stop_sequence_of_the_dialect_stops_nothing(body: dict[str, object]) -> None:
    assert truncate(WORDS, sim_request(body=body)).intended == WORDS


def test_the_stop_sequence_that_comes_first_counts() -> None:
    assert truncate(WORDS, sim_request(body={"stop": ["four", "two"]})).stopped_by == "two"


def test_a_stop_sequence_behind_the_last_token_was_never_reached() -> None:
    reply = truncate(WORDS, sim_request(body={"stop": "END"}, max_tokens=6))
    assert (reply.finish, reply.stopped_by) == ("length", None)
