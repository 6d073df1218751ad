"""The generator of model outputs: repeatable, complete, and true about what the model meant."""

from __future__ import annotations

import json
from typing import Final

import pytest

from moonshim import Mender
from tests.support.model_outputs import (
    DEVIATIONS,
    GENERATIONS,
    Generation,
    ModelOutput,
    Received,
    model_outputs,
    received_from,
    verdict,
)
from tests.support.streams import chunk, sse

MODELS: Final = {"k2": "kimi-k2.6", "k3": "kimi-k3"}


def mended(output: ModelOutput) -> Received:
    """What a client gets if a host without parsers sends the output in one chunk."""
    mender = Mender(model=MODELS[output.generation], tools=[tool.definition() for tool in output.tools])
    return received_from(mender.feed(sse([chunk({"content": output.output}), chunk({}, "stop")])) + mender.flush())


@pytest.mark.parametrize("generation", GENERATIONS)
def test_the_same_seed_gives_the_same_outputs_and_another_seed_others(generation: Generation) -> None:
    assert model_outputs(generation, 60, seed=1) == model_outputs(generation, 60, seed=1)
    assert model_outputs(generation, 60, seed=1) != model_outputs(generation, 60, seed=2)


@pytest.mark.parametrize("generation", GENERATIONS)
def test_every_deviation_comes_equally_often(generation: Generation) -> None:
    table = DEVIATIONS[generation]
    assert len([name for name in table if not name.startswith("clean")]) >= 40
    outputs = model_outputs(generation, 3 * len(table), seed=5)
    assert {name: sum(one.deviation == name for one in outputs) for name in table} == dict.fromkeys(table, 3)


@pytest.mark.parametrize("generation", GENERATIONS)
def test_a_deviation_changes_the_output_and_says_which_calls_were_meant(generation: Generation) -> None:
    for output in model_outputs(generation, 3 * len(DEVIATIONS[generation]), seed=6):
        names = {tool.name for tool in output.tools} | {"browser_open"}
        assert all(call.name in names for call in output.calls), output
        assert bool(output.calls) or output.deviation == "clean: only text", output
        assert output.readable or output.calls, output


@pytest.mark.parametrize("generation", GENERATIONS)
def test_arguments_of_a_draft_fit_only_its_own_tool(generation: Generation) -> None:
    for output in model_outputs(generation, 100, seed=7):
        keys = [key for tool in output.tools for key in tool.types]
        assert len(keys) == len(set(keys)), output.tools


@pytest.mark.parametrize("generation", GENERATIONS)
def test_clean_outputs_are_read_right_by_the_engine(generation: Generation) -> None:
    clean = [name for name in DEVIATIONS[generation] if name.startswith("clean")]
    for output in model_outputs(generation, 20 * len(clean), seed=8, deviations=clean):
        assert verdict(output, mended(output)) == "right", (output, mended(output))


def received(*calls: tuple[str, str], finish: str | None = "tool_calls", error: str | None = None) -> Received:
    return Received(calls=calls, finish=finish, error=error)


def test_a_verdict_says_what_the_response_means_for_an_agent() -> None:
    output = next(one for one in model_outputs("k2", 80, deviations=["clean"]) if len(one.calls) == 2)
    first, second = ((call.name, json.dumps(call.arguments)) for call in output.calls)
    assert verdict(output, received(first, second)) == "right"
    assert verdict(output, received(second, first)) == "right"
    assert verdict(output, received(first, second, finish="stop")) == "lost"
    assert verdict(output, received(first)) == "lost"
    assert verdict(output, received(finish="stop")) == "lost"
    assert verdict(output, received(first, (second[0], "{}"))) == "wrong"
    assert verdict(output, received(first, (second[0], "{"))) == "wrong"
    assert verdict(output, received(first, ("delete_file", second[1]))) == "wrong"
    assert verdict(output, received(first, second, first)) == "lost"
    assert verdict(output, received(first, finish="length")) == "error"
    assert verdict(output, received(first, finish=None, error="overloaded")) == "error"


def test_a_response_to_an_unreadable_output_is_never_right() -> None:
    [output] = model_outputs("k2", 1, deviations=["arguments: two objects"])
    calls = [(call.name, json.dumps(call.arguments)) for call in output.calls]
    assert verdict(output, received(*calls)) == "lost"
    assert verdict(output, received(*calls, error="cut off")) == "error"


def test_an_output_without_calls_is_right_without_calls() -> None:
    [output] = model_outputs("k2", 1, deviations=["clean: only text"])
    assert verdict(output, received(finish="stop")) == "right"
    assert verdict(output, received(("ls", "{}"))) == "wrong"
