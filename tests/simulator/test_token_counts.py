"""Tokens of prompts and answers, and what a cache knows of a prompt."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Final, Literal

import msgspec
import pytest

from moonshim.engine.tokens import MEDIA_TOKENS
from moonshim.simulator.host.token_counts import BLOCK, MEASURED_BLOCK, Counter, tokens_of
from moonshim.simulator.request import SimCall, SimRequest, SimResult, SimTurn
from moonshim.simulator.response import IntendedCall, IntendedResponse, TokenTotals

SYSTEM: Final = SimTurn(role="system", text="You are an agent that reads files and says what is in them. " * 40)
SAID: Final = "There is a function in it that adds two numbers, and one that does not. " * 10


def sim_request(*turns: SimTurn, generation: str = "k2.5", model: str = "kimi-k2.5") -> SimRequest:
    return SimRequest(wire="openai_chat", model=model, generation=generation, turns=turns)


def conversation(rounds: int, *, id_of: str = "functions.read:{}", system: SimTurn = SYSTEM) -> SimRequest:
    turns = [system, SimTurn(role="user", text="What is in these files?")]
    for at in range(rounds):
        call = SimCall(id_of.format(at), "read", '{"path": "a.py"}')
        turns += [
            SimTurn(role="assistant", calls=(call,), reasoning="I read on."),
            SimTurn(role="tool", results=(SimResult(call.id, "read", SAID),)),
        ]
    return sim_request(*turns)


def tallies(*questions: SimRequest) -> list[TokenTotals]:
    counter = Counter()
    return [counter.tally(one, IntendedResponse(text="ok")) for one in questions]


def test_a_history_that_stays_as_it_was_is_known_up_to_what_is_new() -> None:
    received = tallies(*(conversation(rounds) for rounds in range(6)))
    assert received[0].cached == 0
    for before, after in pairwise(received):
        assert after.prompt > before.prompt
        assert before.prompt - 3 * BLOCK <= after.cached <= before.prompt
        assert after.cached % BLOCK == 0


def test_ids_that_are_made_anew_on_every_request_cost_all_that_comes_behind_the_first() -> None:
    received = tallies(*(conversation(rounds, id_of=f"call_{rounds}_{{}}") for rounds in range(6)))
    start = tallies(conversation(0))[0].prompt
    assert all(one.cached <= start for one in received)
    assert received[-1].cached < received[-1].prompt / 2


def test_a_system_prompt_that_tells_the_time_costs_everything() -> None:
    clocks = [SimTurn(role="system", text=f"It is 12:0{minute}. {SYSTEM.text}") for minute in range(6)]
    received = tallies(*(conversation(at, system=clock) for at, clock in enumerate(clocks)))
    assert [one.cached for one in received] == [0] * 6


def test_renaming_hides_ids_that_are_made_anew_from_the_cache() -> None:
    counter = Counter()
    received = [
        counter.tally(conversation(rounds, id_of=f"call_{rounds}_{{}}"), IntendedResponse(), renamed=True)
        for rounds in range(6)
    ]
    assert received[-1].cached > received[-1].prompt / 2


def test_the_same_prompt_is_known_whole_and_never_more_than_whole() -> None:
    first, second = tallies(conversation(3), conversation(3))
    assert first.prompt == second.prompt
    assert second.prompt - 2 * BLOCK < second.cached <= second.prompt


def test_another_model_knows_nothing_of_it() -> None:
    ask = conversation(3)
    assert tallies(ask, msgspec.structs.replace(ask, model="kimi-k2.6"))[1].cached == 0


def test_a_short_prompt_is_never_known() -> None:
    assert [one.cached for one in tallies(*[sim_request(SimTurn(role="user", text="Hi"))] * 2)] == [0, 0]


def test_what_is_kept_is_bounded_and_the_oldest_is_forgotten_first() -> None:
    counter = Counter(capacity=200)
    old, new = conversation(5), [sim_request(SimTurn(role="user", text=f"{at} {SAID}" * 20)) for at in range(10)]
    counter.tally(old, IntendedResponse())
    assert counter.tally(old, IntendedResponse()).cached > 0
    for one in new:
        counter.tally(one, IntendedResponse())
        assert counter.stored <= 200
    assert counter.tally(old, IntendedResponse()).cached == 0


def test_of_a_prompt_that_is_too_long_to_keep_its_beginning_is_kept() -> None:
    counter = Counter(capacity=10)
    ask = conversation(20)
    counter.tally(ask, IntendedResponse())
    assert 0 < counter.tally(ask, IntendedResponse()).cached <= 20 * BLOCK


def test_what_was_half_forgotten_is_still_known_from_its_beginning() -> None:
    counter = Counter(capacity=100)
    old, new = conversation(20), sim_request(SimTurn(role="user", text=SAID * 10))
    counter.tally(old, IntendedResponse())
    whole = counter.tally(old, IntendedResponse()).cached
    counter.tally(new, IntendedResponse())
    assert 0 < counter.tally(old, IntendedResponse()).cached < whole


def test_an_answer_counts_its_thoughts_its_text_and_its_calls() -> None:
    counter = Counter()
    ask = sim_request(SimTurn(role="user", text="Hi"))
    call = IntendedCall("read", '{"path": "a.py"}')
    silent = counter.tally(ask, IntendedResponse())
    received = counter.tally(ask, IntendedResponse(reasoning="I think of it.", text="Well.", calls=(call, call)))
    assert (silent.completion, silent.reasoning) == (0, 0)
    assert received.reasoning == tokens_of("I think of it.")
    assert received.completion > received.reasoning + tokens_of("Well.") + 2 * tokens_of(call.arguments)


@pytest.mark.parametrize("generation", ["k2", "k3", "other"])
def test_calls_are_counted_in_every_grammar(generation: str) -> None:
    ask = sim_request(SimTurn(role="user", text="Hi"), generation=generation)
    assert Counter().tally(ask, IntendedResponse(calls=(IntendedCall("read", "{}"),))).completion >= 8


def test_a_marker_is_one_token_and_an_image_is_many() -> None:
    assert tokens_of("<|im_end|>" * 10) == 10
    assert tokens_of("<|media_pad|>") == MEDIA_TOKENS + 1
    assert tokens_of("") == 0


def test_halves_of_characters_are_counted_too() -> None:
    ask = sim_request(SimTurn(role="user", text="\ud83d" * 1000))
    assert tallies(ask, ask)[1].cached > 0


# --- a cache that expires -----------------------------------------------------------------------------------------


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


CLASSES: Final = ("5m", "1h")
HOUR: Final[dict[str, Any]] = {"prompt_cache_options": {"ttl": "1h"}}


def asked(rounds: int, wire: Literal["openai_chat", "anthropic"] = "openai_chat", **body: Any) -> SimRequest:
    return msgspec.structs.replace(conversation(rounds), wire=wire, body=body)


def expiring() -> tuple[Clock, Counter]:
    clock = Clock()
    return clock, Counter(block=MEASURED_BLOCK, clock=clock)


def count(counter: Counter, request: SimRequest) -> TokenTotals:
    return counter.tally(request, IntendedResponse(text="ok"), classes=CLASSES)


def test_what_was_not_read_is_written_in_whole_blocks() -> None:
    _, counter = expiring()
    first, second = count(counter, asked(0)), count(counter, asked(3))
    assert (first.cached, first.written) == (0, first.prompt // 256 * 256)
    assert second.cached % 256 == 0
    assert 0 < second.cached <= (first.written or 0)
    assert second.cached + (second.written or 0) == second.prompt // 256 * 256


@pytest.mark.parametrize(
    ("body", "lifetime"), [({}, 300), ({"prompt_cache_options": {"ttl": "5m"}}, 300), (HOUR, 3600)]
)
def test_a_prompt_is_known_for_its_lifetime_and_each_hit_renews_it(body: dict[str, Any], lifetime: int) -> None:
    clock, counter = expiring()
    first = count(counter, asked(0, **body))
    assert first.hourly == (first.written if lifetime == 3600 else 0)
    for _ in range(3):
        clock.now += lifetime
        again = count(counter, asked(0))
        assert (again.cached, again.written, again.hourly) == (first.written, 0, 0)
    clock.now += lifetime + 1
    assert count(counter, asked(0)).cached == 0


@pytest.mark.parametrize(
    "body",
    [
        {"cache_control": {"type": "ephemeral", "ttl": "1h"}},
        {"system": [{"type": "text", "text": "", "cache_control": {"type": "ephemeral", "ttl": "1h"}}]},
        {"tools": [{"name": "ls", "cache_control": {"type": "ephemeral", "ttl": "1h"}}]},
        {"messages": [{"role": "user", "content": [{"type": "text", "cache_control": {"ttl": "1h"}}]}]},
    ],
)
def test_over_messages_any_mark_asks_for_an_hour(body: dict[str, Any]) -> None:
    tally = count(expiring()[1], asked(0, "anthropic", **body))
    assert tally.hourly == tally.written


def test_a_host_without_classes_reports_no_writes() -> None:
    _, counter = expiring()
    assert counter.tally(asked(0, **HOUR), IntendedResponse()).written is None
    assert Counter().tally(asked(0, **HOUR), IntendedResponse(), classes=CLASSES).written is None
