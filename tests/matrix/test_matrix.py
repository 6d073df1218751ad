"""End-to-end tests of every fault, model generation, client and upstream dialect, on real sockets.

A pairwise selection of the combinations runs with all other tests; `make test-matrix` runs the full product. Directly
at the host, the same conversation runs without the change of models, so that only the fault can break it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest
from msgspec.structs import replace

from moonshim.simulator.faults import FAULTS
from tests.matrix.breaking import BREAKS
from tests.matrix.cells import BROKEN_ROUND, CLEAN, CLIENTS, MODELS, Cell, full, pairwise
from tests.matrix.scene import OTHER, Scene, scene
from tests.matrix.steps import ROUNDS
from tests.matrix.talks import Talk, conversation, is_from_the_package, problems_of, talk, was_cut_off
from tests.support.playing import Call
from tests.support.profiles import PROFILE

FULL: Final = os.environ.get("MOONSHIM_MATRIX") == "full"
CELLS: Final = full() if FULL else pairwise()
if PROFILE == "quick":  # other interpreters: what differs between them shows in a few
    CELLS[:] = CELLS[::12]
SAID_ANYWHERE: Final = frozenset({"think-never-closed", "xtml-think-never-closed", "xtml-reasoning-in-content"})
"""Nothing in these answers tells where the thoughts end."""
Note = Callable[[str, object], None]


@pytest.fixture(scope="module")
def stage() -> Iterator[Scene]:
    with scene() as one:
        yield one


def _since(stage: Scene, cell: Cell, number: int) -> list[Any]:
    return [one for one in stage.boxes[cell.host].requests if one.number > number]


def _last(stage: Scene, cell: Cell) -> int:
    requests = stage.boxes[cell.host].requests
    return requests[-1].number if requests else 0


def _is_exact(cell: Cell) -> bool:
    """Arguments that the host wrote as JSON, for a client that shows them as they came."""
    group = "" if cell.fault == CLEAN else FAULTS[cell.fault].group
    written_otherwise = group == "arguments" or (group == "leaks" and cell.generation.startswith("k3"))
    written_otherwise |= cell.fault == "object-arguments"  # no text at all
    return not written_otherwise and cell.client != "anthropic" and cell.wire != "anthropic"


def _meant(seen: list[Any]) -> list[Any]:
    """What the model meant, by round: a round that was asked for again counts once."""
    return list({one.request.round: one.intended for one in seen if one.intended is not None}.values())


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: f"{cell.fault.replace(' ', '-')}-{cell}")
def test_through_moonshim(stage: Scene, cell: Cell, record_property: Note) -> None:
    record_property("fault", cell.fault)
    before = _last(stage, cell)
    said = stage.run(_through(stage, cell))
    seen = _since(stage, cell, before)
    if cell.cannot_be_mended:
        problems = _problems_of_an_end(said, _meant(seen), cell)
        record_property("mended", "wrong" if problems else "failed as expected")
    else:
        problems = problems_of(said, _meant(seen), exact=_is_exact(cell), anywhere=cell.fault in SAID_ANYWHERE)
        problems += [f"the host refused: {one.problem}" for one in seen if one.problem is not None]
        record_property("mended", "wrong" if problems else "correct")
    assert not problems


async def _through(stage: Scene, cell: Cell) -> Talk:
    model, other = (stage.name_of(cell, name) for name in (cell.model, OTHER))
    return await talk(conversation(stage.mended, cell.client, model, cell.way), model, other)


def _problems_of_an_end(said: Talk, intended: list[Any], cell: Cell) -> list[str]:
    """What came before is right; then an error of the package's own, and never half a call."""
    # The helpers read arguments while they come, and raise what their reader of JSON has to say.
    read_early = cell.way == "helper" and isinstance(said.error, ValueError)
    before, rest = said.answers[: BROKEN_ROUND - 1], said.answers[BROKEN_ROUND - 1 :]
    found = [] if len(before) == BROKEN_ROUND - 1 else [f"the conversation ended after {len(before)} answers"]
    told = cell.is_silent or said.error is not None or any(was_cut_off(answer) for answer in rest)
    run = [call for answer in rest if not was_cut_off(answer) for call in answer.calls]
    found += [f"incomplete call: {call}" for call in run if not _is_meant(call, intended)]
    if not told:
        found.append(f"expected an error, got {rest}")
    if said.error is not None and not (read_early or is_from_the_package(said.error)):
        found.append(f"{type(said.error).__name__} is not an error of the SDK: {said.error}")
    return found


def _is_meant(call: Call, intended: list[Any]) -> bool:
    wanted = [(one.name, json.loads(one.arguments)) for answer in intended for one in answer.calls]
    try:
        return (call.name, json.loads(call.arguments)) in wanted
    except ValueError:
        return False


ASKED_AGAIN: Final = (
    "markers-end",
    "markers-end-in-slot",
    "id-alone",
    "arguments-alone",
    "xtml-ends",
    "xtml-ends-in-tag",
    "xtml-no-key",
    "arguments-values",
    "arguments-lost",
    "arguments-garbage",
    "arguments-in-content",
    "merged-calls",
    "tool-calls-without-calls",
    "stops-after-thinking",
)
"""Faults that end in an error because a call is lost, and that a second request cures."""


_OF_STREAMS: Final = dict(zip(CLIENTS, ("keep-alives", "comments", "crlf"), strict=True))


@pytest.mark.parametrize("fault", ASKED_AGAIN)
@pytest.mark.parametrize("client", CLIENTS)
def test_a_call_that_is_lost_once_arrives_when_it_is_asked_for_again(stage: Scene, fault: str, client: str) -> None:
    """Whole responses are asked for again by the gateway, so its client sees nothing of it."""
    generation = "k3" if "k3" in FAULTS[fault].families and fault.startswith("xtml") else "k2-thinking"
    cell = Cell(fault, generation, client, "openai_chat", "whole", "selfhost")
    before = _last(stage, cell)
    # The simulator counts by model name: a fault of streams alone makes one for each client.
    name = f"{MODELS[generation]}+{fault}@{BROKEN_ROUND}*1+{_OF_STREAMS[client]}"
    model = stage.name_of(cell, name)
    said = stage.run(talk(conversation(stage.mended, client, model, "whole"), model, None))
    seen = _since(stage, cell, before)
    assert not problems_of(said, _meant(seen), exact=client != "anthropic")
    assert len(seen) == ROUNDS + 2, "one was asked again"


WELL_BEHAVED: Final = {"openai_chat": "selfhost", "anthropic": "moonshot"}
"""Hosts at which a client that keeps everything, ids and thoughts, needs no help: what breaks there is the fault."""


def straight() -> list[Cell]:
    """One for each fault; in the full product one for each upstream dialect as well."""
    chosen = {(cell.fault, cell.wire if FULL else ""): cell for cell in CELLS if cell.client == cell.wire}
    return [replace(cell, host=WELL_BEHAVED[cell.wire]) for cell in chosen.values()]


STRAIGHT: Final = straight()


@pytest.mark.parametrize("cell", STRAIGHT, ids=lambda cell: f"{cell.fault.replace(' ', '-')}-{cell}")
def test_straight_at_the_host(stage: Scene, cell: Cell, record_property: Note) -> None:
    record_property("fault", cell.fault)
    before = _last(stage, cell)
    said = stage.run(_straight(stage, cell))
    broke = bool(problems_of(said, _meant(_since(stage, cell, before)), exact=_is_exact(cell)))
    record_property("direct", "broken" if broke else "correct")
    if cell.fault in BREAKS:
        assert broke


async def _straight(stage: Scene, cell: Cell) -> Talk:
    one = conversation(stage.direct[cell.host], cell.client, cell.model, cell.way)
    one.drops = one.is_signed = False
    return await talk(one, cell.model, None)
