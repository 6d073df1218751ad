"""Names of models, headers and settings: which faults and which scenario they ask for."""

from __future__ import annotations

from collections import Counter

import pytest

from moonshim.errors import MoonshimError
from moonshim.simulator.faults import FAULTS
from moonshim.simulator.selection import UnknownName, chaos_pick, read_model, read_names
from moonshim.simulator.settings import SimulatorSettings


def test_a_model_alone_asks_for_nothing() -> None:
    expected = read_model("kimi-k2.5")
    assert (expected.model, expected.faults, expected.scenario) == ("kimi-k2.5", (), None)


@pytest.mark.parametrize(
    ("asked", "model", "faults", "scenario"),
    [
        ("kimi-k2.5+markers-in-reasoning+split-bytes", "kimi-k2.5", ["markers-in-reasoning", "split-bytes"], None),
        ("moonshotai/Kimi-K2.5+cut-off@3", "moonshotai/Kimi-K2.5", ["cut-off@3"], None),
        ("k3+overloaded*2+five-rounds", "k3", ["overloaded*2"], "five-rounds"),
        ("k3+cut-off@3*1", "k3", ["cut-off@3*1"], None),
        ("k3+unicode", "k3", [], "unicode"),
        ("k3+", "k3", [], None),
    ],
)
def test_names_behind_a_model_are_read(asked: str, model: str, faults: list[str], scenario: str | None) -> None:
    expected = read_model(asked)
    assert (expected.model, [str(one) for one in expected.faults], expected.scenario) == (model, faults, scenario)


def test_a_header_has_commas_and_spaces() -> None:
    faults, scenario = read_names(" cut-off@3 ,five-rounds,, split-bytes ")
    assert [str(one) for one in faults] == ["cut-off@3", "split-bytes"]
    assert scenario == "five-rounds"


def test_every_fault_can_be_asked_for() -> None:
    assert [one.fault.name for one in read_names(",".join(FAULTS))[0]] == list(FAULTS)


def test_a_fault_is_due_in_its_round_and_as_often_as_it_should_be() -> None:
    always, third, twice = read_names("cut-off, cut-off@3, cut-off*2")[0]
    assert [always.is_due(round_, 9) for round_ in (1, 3)] == [True, True]
    assert [third.is_due(round_, 9) for round_ in (1, 2, 3, 4)] == [False, False, True, False]
    assert [twice.is_due(1, displayed) for displayed in (0, 1, 2)] == [True, True, False]


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ("split-byte", "unknown fault or scenario 'split-byte' (did you mean 'split-bytes' or "),
        ("SPLIT-BYTES", "did you mean 'split-bytes' or "),
        ("five-round", "did you mean 'five-rounds' or 'eight-rounds'"),
        ("coding-gates", "did you mean 'coding-gate'?"),
        ("qqqqqqqq", "run `moonshim simulate faults` for a list"),
        ("cut-off@0", "'cut-off@0' is not a valid fault; write `cut-off`, `cut-off@3` or `cut-off*2`"),
        ("cut-off*", "is not a valid fault"),
        ("cut-off*1@3", "is not a valid fault"),
        ("cut off", "is not a valid fault"),
        ("five-rounds@2", "'five-rounds' is a scenario"),
        ("one-call, parallel", "choose one scenario per request, not several: one-call, parallel"),
        ("x" * 5000, "x" * 60 + "…'"),
    ],
)
def test_what_nobody_knows_is_refused_with_the_nearest_name(names: str, words: str) -> None:
    with pytest.raises(UnknownName) as caught:
        read_names(names)
    assert words in str(caught.value)
    assert len(str(caught.value)) < 300
    assert isinstance(caught.value, MoonshimError)
    with pytest.raises(UnknownName):
        read_model(f"kimi-k2.5+{names}")


def test_the_same_scenario_twice_is_one() -> None:
    assert read_names("unicode, unicode")[1] == "unicode"


# -- chaos -----------------------------------------------------------------------------------------------------------


def picks(chaos: float, seed: int = 7, *, stream: bool = True) -> list[str | None]:
    settings = SimulatorSettings(chaos=chaos, seed=seed)
    found = [chaos_pick(settings, number, "openai_chat", "k2", stream) for number in range(1, 401)]
    return [fault.name if fault is not None else None for fault in found]


def test_chaos_is_the_same_for_the_same_seed_and_another_for_another() -> None:
    assert picks(0.5) == picks(0.5)
    assert picks(0.5) != picks(0.5, seed=8)


def test_chaos_comes_at_its_rate() -> None:
    assert set(picks(0.0)) == {None}
    assert None not in picks(1.0)
    assert 20 <= sum(name is not None for name in picks(0.1)) <= 60


def test_a_higher_rate_adds_faults_and_takes_none_away() -> None:
    assert all(few in {None, many} for few, many in zip(picks(0.2), picks(0.6), strict=True))


@pytest.mark.parametrize("stream", [True, False])
def test_chaos_picks_only_what_applies_and_what_is_fatal_too(stream: bool) -> None:
    names = Counter(name for name in picks(1.0, stream=stream) if name is not None)
    assert all(FAULTS[name].applies(wire="openai_chat", family="k2", stream=stream) for name in names)
    assert any(FAULTS[name].fatal for name in names)
    assert len(names) > 50
    assert max(names.values()) < 20
