"""Eight rounds over kimi, openai-style, anthropic-style and kimi: saved, loaded in a new process, gone on with.

At a self-host and at the platform, with every fault; every identifier, argument and thought is checked at the wire.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from msgspec import Struct
from msgspec.structs import replace

from moonshim.agent import read_history
from moonshim.simulator.faults import FAULTS
from moonshim.simulator.request import Wire
from tests.agent.asking import Boxes, boxes_for
from tests.agent.eight_rounds import CLEAN, ONCE, EightRounds, Half, Host, go_on
from tests.agent.eight_rounds_checks import wrong_at_the_wire, wrong_in_the_history
from tests.matrix.cells import LEAKS_NO_CALL, READ_CALLS
from tests.support.profiles import PROFILE

BEHAVIOUR_NAMES: Final = ("selfhost", "moonshot")
WIRES: Final[tuple[Wire, ...]] = ("openai_chat", "anthropic")
IN_THE_HISTORY: Final = ("ids", "arguments", "reasoning")
"""Groups of faults that hosts get back: these stay at one host, each at two, while others change it in the middle."""
Place = tuple[str, Wire]


class Cell(Struct, frozen=True):
    """A fault, and where the Kimi is asked in the beginning and in the end."""

    fault: str
    first: Place
    last: Place

    def __str__(self) -> str:
        return "-".join((self.fault, *self.first, *(self.last if self.last != self.first else ())))


def _wires(fault: str) -> list[Wire]:
    families = ("k2", "k3")
    return [
        wire
        for wire in WIRES
        if fault == CLEAN or any(FAULTS[fault].applies(wire=wire, family=family, stream=True) for family in families)
    ]


def cells() -> Iterator[Cell]:
    """Every fault at both hosts, and over every wire that it can come over."""
    everything = os.environ.get("MOONSHIM_MATRIX") == "full"
    for turn, fault in enumerate((CLEAN, *FAULTS)):
        if fault.startswith("swallowed-"):
            continue  # the id that such a server leaves in the text stays there
        wires = _wires(fault)
        # A host that reads calls itself leaks none.
        leaks = fault != CLEAN and FAULTS[fault].group == "leaks" and fault not in LEAKS_NO_CALL
        names = [name for name in BEHAVIOUR_NAMES if not (leaks and name in READ_CALLS)]
        places = [(behaviour, wire) for wire in wires for behaviour in names]
        if not places:
            continue  # of answers that do not stream
        if everything and fault not in ONCE:  # hosts count those
            yield from (Cell(fault, first, last) for first in places for last in places)
            continue
        one, other = names[turn % len(names)], names[(turn + 1) % len(names)]
        if fault == CLEAN or FAULTS[fault].group not in IN_THE_HISTORY:
            yield Cell(fault, (one, wires[0]), (other, wires[-1]))
        if fault == CLEAN:
            yield from (Cell(fault, place, place) for place in places)
        elif FAULTS[fault].group in IN_THE_HISTORY:
            yield from (Cell(fault, place, place) for place in ((one, wires[0]), (other, wires[-1])))


CELLS: Final = list(cells())
if PROFILE == "quick":
    CELLS[:] = CELLS[::12]

GoOn = Callable[[Half], dict[str, Any]]


@pytest.fixture(scope="module")
def boxes() -> Iterator[Boxes]:
    with boxes_for(EightRounds()) as boxes:
        yield boxes


@pytest.fixture(scope="module")
def in_a_new_process() -> Iterator[GoOn]:
    command = [sys.executable, "-m", "tests.agent.eight_rounds"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        asked, told = process.stdin, process.stdout
        assert asked is not None
        assert told is not None

        def go_on_there(half: Half) -> dict[str, Any]:
            asked.write(msgspec.json.encode(half).decode() + "\n")
            asked.flush()
            return dict(json.loads(told.readline()))

        yield go_on_there
        asked.close()


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_a_conversation_of_eight_rounds(boxes: Boxes, in_a_new_process: GoOn, tmp_path: Path, cell: Cell) -> None:
    hosts = {behaviour: boxes.of(behaviour) for behaviour in BEHAVIOUR_NAMES}
    first, last = (Host(behaviour, hosts[behaviour].url, wire) for behaviour, wire in (cell.first, cell.last))
    half = Half(cell.fault, first, last, str(tmp_path / "talk.jsonl"))
    endings = asyncio.run(asyncio.wait_for(go_on(half), 180))
    later = in_a_new_process(replace(half, second=True))
    assert later["process"] != os.getpid()
    endings += later["endings"]

    assert endings[-1].startswith("answered"), endings
    found = read_history(half.path)
    assert found.troubles == ()
    answers = [message for message in found.messages if message.role == "assistant"]
    for behaviour, server in hosts.items():
        assert list(wrong_at_the_wire(list(server.requests), answers, behaviour)) == []
    everything = [one for server in hosts.values() for one in server.requests]
    assert list(wrong_in_the_history(found.messages, everything)) == []
    # The fault was really there.
    assert cell.fault == CLEAN or any(cell.fault in one.faults for one in everything)
