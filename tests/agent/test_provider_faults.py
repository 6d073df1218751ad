"""Hosts that go wrong in every way that can be mended: what an agent gets is what the model meant."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import pytest
from msgspec import Struct

from moonshim.agent import Provider
from moonshim.engine.values.conversation import Reasoning, Text, ToolCall
from moonshim.simulator import FAULTS
from moonshim.simulator.request import Wire
from tests.agent.asking import Boxes, Rounds, boxes_for, run, whole_conversation


class Cell(Struct, frozen=True):
    """A host, and how it is spoken to."""

    behaviour: str
    wire: Wire = "openai_chat"
    row: str | None = None
    path: str = "/v1"


CELLS: Final = (
    Cell("selfhost"),
    Cell("moonshot", row="moonshot"),
    Cell("moonshot", "anthropic", "moonshot-anthropic", "/anthropic"),
    Cell("vllm", row="vllm"),
    Cell("selfhost", "anthropic", None, "/anthropic"),
    Cell("kimi-coding", row="kimi-coding"),
    Cell("openrouter", row="openrouter"),
    Cell("kimi-coding", "anthropic", "kimi-coding", "/anthropic"),
    Cell("fireworks", row="fireworks"),
)
READING: Final = frozenset({"moonshot", "kimi-coding"})
"""Their own parsers read the calls in their text: markers there may be a quotation."""
MODELS: Final = {"k2": "kimi-k2.5", "k3": "kimi-k3"}
CHOSEN: Final = (
    "markers-in-content",
    "markers-in-reasoning",
    "markers-and-native",
    "markers-by-character",
    "slot-number",
    "slot-underscores",
    "think-tags-in-content",
    "xtml-in-content",
    "xtml-and-native",
    "xtml-in-lumps",
    "ids-said-again",
    "ids-same",
    "ids-missing",
    "ids-fireworks-k3",
    "name-in-id",
    "arguments-encoded-twice",
    "arguments-trailing-brace",
    "split-name",
    "late-id",
    "shared-index",
    "missing-index",
    "object-arguments",
    "reasoning-details",
    "reasoning-copies",
    "reasoning-after-text",
    "stop-with-calls",
    "finish-twice",
    "no-finish",
    "no-done",
    "done-twice",
    "usage-last",
    "keep-alives",
    "several-data-lines",
    "crlf",
    "byte-order-mark",
    "json-lines",
    "not-streamed",
    "stream-called-json",
    "split-characters",
    "block-stopped-twice",
    "message-started-again",
    "input-at-start",
    "overlapping-blocks",
    "no-message-stop",
)


def cells() -> Iterator[Any]:
    """Each fault twice, at hosts that take turns."""
    for turn, fault in enumerate(CHOSEN):
        fits = [
            (cell, model)
            for cell in CELLS
            for family, model in MODELS.items()
            if FAULTS[fault].applies(wire=cell.wire, family=family, stream=True)
            and not (cell.behaviour in READING and FAULTS[fault].group == "leaks" and "reasoning" not in fault)
        ]
        for step in (0, 1):
            cell, model = fits[(5 * turn + 3 * step) % len(fits)]
            yield pytest.param(fault, cell, model, id=f"{fault}-{cell.behaviour}-{cell.wire}-{model}")


BOXES: Final[list[Boxes]] = []


@pytest.fixture(scope="module", autouse=True)
def _standing() -> Iterator[None]:
    with boxes_for(Rounds()) as boxes:
        BOXES[:] = [boxes]
        yield


@pytest.mark.parametrize(("fault", "cell", "model"), list(cells()))
def test_an_agent_gets_what_the_model_meant(fault: str, cell: Cell, model: str) -> None:
    async def test() -> None:
        server = BOXES[0].of(cell.behaviour)
        async with Provider(
            f"{server.url}{cell.path}",
            host=cell.row,
            dialect=cell.wire,
            model=f"{model}+{fault}",
            headers={"user-agent": "kimi-cli"},
        ) as provider:
            history = await whole_conversation(provider)
        answers = [message for message in history if message.role == "assistant"]
        assert not server.refusals
        for answer, seen in zip(answers, server.requests, strict=True):
            intended = seen.intended
            assert intended is not None
            calls = [(part.name, json.loads(part.arguments)) for part in answer.parts if isinstance(part, ToolCall)]
            assert calls == [(call.name, json.loads(call.arguments)) for call in intended.calls]
            assert "".join(part.text for part in answer.parts if isinstance(part, Text)).strip() == intended.text
            assert "".join(part.text for part in answer.parts if isinstance(part, Reasoning)) == intended.reasoning
        ids = [part.id for answer in answers for part in answer.parts if isinstance(part, ToolCall)]
        assert len(set(ids)) == len(ids) == 5

    run(test())
