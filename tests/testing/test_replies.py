"""Scripted replies: one for each round, whoever asks and however often."""

from __future__ import annotations

import pytest

from moonshim.agent import Agent, AgentStopped, Provider, tool
from moonshim.errors import InvalidInput
from moonshim.testing import IntendedCall, IntendedResponse, Replies, Simulator

CALL = IntendedResponse(calls=(IntendedCall("add", '{"a": 2, "b": 3}'),))


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@pytest.mark.parametrize("fault", ["", "markers-in-content", "overloaded*1"])
def test_an_agent_goes_through_the_rounds(fault: str) -> None:
    model = Replies(CALL, IntendedResponse(text="It is 5."))
    with Simulator(model=model, faults=(fault,) if fault else (), log=lambda _: None).running() as host:
        agent = Agent(Provider(f"{host.url}/v1", model="kimi-k2.5"), tools=[add])
        assert agent.run("What is 2 + 3?") == "It is 5."
        assert agent.run("And again?") == "It is 5."
        assert host.refusals == [] or fault == "overloaded*1"


def test_a_round_too_many_is_an_error_that_says_so() -> None:
    with Simulator(model=Replies(CALL), log=lambda _: None).running() as host:
        agent = Agent(Provider(f"{host.url}/v1", model="kimi-k2.5", attempts=1), tools=[add])
        with pytest.raises(AgentStopped, match="Replies"):
            agent.run("What is 2 + 3?")


def test_there_must_be_a_reply() -> None:
    with pytest.raises(InvalidInput, match="at least one"):
        Replies()
