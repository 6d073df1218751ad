"""Every vector, written in each client's dialect: the same answer, whatever the dialect and the chunking."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import pytest

from moonshim.engine.dialects.protocol import Dialect
from moonshim.engine.dialects.registry import CLIENT_DIALECTS
from moonshim.engine.frames import Released
from moonshim.engine.response.pipeline import ResponsePipeline
from moonshim.engine.upstream_events import FinishReported, TextDelta, UpstreamEvent, UpstreamFailed
from moonshim.engine.values.conversation import Message, Reasoning, Text, ToolCall
from moonshim.engine.values.events import CallPiece, Finished
from tests.support.looped import looped
from tests.support.profiles import PROFILE
from tests.support.vector_checks import Run, joined_parts, plan_of, same
from tests.support.vector_files import Vector, fields_of, name_of, vectors

Said: TypeAlias = tuple[str, str, list[tuple[str, str]]]
WRITERS: Final = [*((client, True) for client in CLIENT_DIALECTS), ("openai_chat", False)]
"""The client's dialect, and whether its encoder writes the response, or the host's own chunks are patched."""
TEXT_SIZES: Final = (3,) if PROFILE == "quick" else (0, 1, 3)


def is_translatable(vector: Vector) -> bool:
    """Chunks of one choice, with every rule on: without them native deltas stay as faulty as they came."""
    framed = vector.raw is None and vector.raw_base64 is None
    options = vector.options_value()
    mends = options is None or options.repair_deltas
    return framed and mends and not vector.expect.others and "kimi" in vector.model


def writers(vector: Vector) -> list[tuple[str, bool]]:
    # Reasoning of less than eight characters is not recognised when the encoder repeats it in `reasoning_details`.
    short = vector.name.startswith("A summary is reasoning, and details")
    return [writer for writer in WRITERS if not (short and writer == ("openai_chat", True))]


def written(pipeline: ResponsePipeline[dict[str, Any]], vector: Vector, field: str, size: int) -> list[dict[str, Any]]:
    released: list[Released[dict[str, Any]]] = []
    for one in vector.as_chunks(field, size):
        released += pipeline.feed(one, one)
    if vector.end == "done":
        released += pipeline.done(None)
    released += pipeline.end()
    payloads = [one.payloads if one.payloads is not None else [one.origin or {}] for one in released]
    return [payload for some in payloads for payload in some]


def heard_again(dialect: Dialect, payloads: list[dict[str, Any]]) -> list[UpstreamEvent]:
    decoder = dialect.decoder()
    return [heard for payload in payloads for heard in decoder.feed(payload)] + decoder.flush()


class Ear:
    """What a client makes of it: text by channel, calls by index, and how it ended."""

    def __init__(self, heard: list[UpstreamEvent]) -> None:
        self.text = {"text": "", "reasoning": ""}
        self.calls: dict[int, list[str]] = {}
        self.ending: str | None = None
        for one in heard:
            match one:
                case TextDelta(channel=channel, text=text):
                    self.text[channel] += text
                case CallPiece():
                    call = self.calls.setdefault(one.index or 0, ["", ""])
                    call[0] += one.name or ""
                    call[1] += one.arguments
                case FinishReported(reason=reason):
                    self.ending = reason
                case UpstreamFailed():
                    self.ending = "error"
                case _:
                    pass

    @property
    def said(self) -> Said:
        return self.text["reasoning"], self.text["text"], [(call[0], call[1]) for _, call in sorted(self.calls.items())]


def said_by(message: Message) -> Said:
    reasoning = "".join(part.text for part in message.parts if isinstance(part, Reasoning))
    text = "".join(part.text for part in message.parts if isinstance(part, Text))
    calls = [(part.name, part.arguments) for part in message.parts if isinstance(part, ToolCall)]
    return reasoning, text, calls


@pytest.mark.parametrize("vector", [vector for vector in vectors() if is_translatable(vector)], ids=name_of)
@looped("field", fields_of)
@looped("client, encoded", writers)
def test_the_answer_says_the_same_in_every_dialect(vector: Vector, field: str, client: str, encoded: bool) -> None:
    for size in TEXT_SIZES if vector.is_text else (0,):
        mended = Run(vector, [vector.stream(field, size)]).mender
        plan = plan_of(vector, client)
        assert plan.client is not None
        encoder = plan.client.encoder(plan.reply) if encoded else None
        pipeline: ResponsePipeline[dict[str, Any]] = ResponsePipeline(plan, encoder=encoder)
        payloads = written(pipeline, vector, field, size)
        same("message", joined_parts(pipeline.message()), joined_parts(mended.message))
        same("ending", type(pipeline.ending()), type(mended.ending))
        ear = Ear(heard_again(plan.client, payloads))
        same("said", sorted_calls(ear.said), sorted_calls(said_by(mended.message)))
        ending = mended.ending
        same("finish", ear.ending, ending.reason if isinstance(ending, Finished) else "error")


def sorted_calls(said: Said) -> Said:
    """Messages has no way to say that there were no arguments at all: a call without any has an empty object."""
    return said[0], said[1], sorted((name, arguments.lstrip() or "{}") for name, arguments in said[2])
