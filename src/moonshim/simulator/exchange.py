"""One request -> what is sent back, and what was seen of it: the whole walk, from the key to the last frame."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

import msgspec
from msgspec import Struct

from moonshim.simulator.answer import Meant, Model
from moonshim.simulator.ids import answer_id
from moonshim.simulator.natures import nature_of
from moonshim.simulator.play import Played, play
from moonshim.simulator.question import Json, Question, Wire
from moonshim.simulator.settings import SimulatorSettings
from moonshim.simulator.stand_ins import Counter, read_question

__all__ = ["Asked", "Exchange", "Seen"]

SEEN_AT_MOST: Final = 1000


class Asked(Struct, frozen=True):
    """A request as it came in."""

    wire: Wire
    headers: Mapping[str, str]
    data: bytes


class Seen(Struct, frozen=True, kw_only=True):
    """What became of a request: of its `problem`, or of what the model meant."""

    number: int
    wire: Wire
    asked_model: str = ""
    body: Json = {}
    question: Question | None = None
    meant: Meant | None = None
    status: int = 200
    """0: the connection was dropped."""
    problem: str | None = None
    """Why it was refused, in the words of the error."""
    faults: tuple[str, ...] = ()
    """Those that were applied."""


class Exchange:
    """What a simulator knows between two requests."""

    def __init__(self, settings: SimulatorSettings, model: Model, *, clock: Callable[[], float]) -> None:
        self.settings, self.nature, self.model = settings, nature_of(settings.nature), model
        self.requests: deque[Seen] = deque(maxlen=SEEN_AT_MOST)
        self._clock, self._counter, self._count = clock, Counter(), 0

    def answer(self, asked: Asked) -> Played:
        self._count += 1
        body = msgspec.json.decode(asked.data)
        question = read_question(body, wire=asked.wire, model=body["model"], generation=_generation(body["model"]))
        meant = self.model.reply(question)
        played = play(
            question,
            meant,
            nature=self.nature,
            answer_id=answer_id(asked.wire, self.settings.seed, self._count, asked.data),
            created=int(self._clock()),
            tally=self._counter.tally(question, meant),
        )
        self.requests.append(
            Seen(
                number=self._count,
                wire=asked.wire,
                asked_model=body["model"],
                body=body,
                question=question,
                meant=meant,
            )
        )
        return played


def _generation(model: str) -> str:
    return "k3" if "k3" in model else "k2.5" if "k2" in model else "other"
