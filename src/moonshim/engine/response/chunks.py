"""Mends a stream for people who hold parsed chunks: dicts in, dicts out, sync or async."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator, Mapping
from typing import Any, TypeAlias, Unpack, overload

from moonshim.engine.frames import Released
from moonshim.engine.plan import Plan, PlanArguments, plan_for
from moonshim.engine.response.body import with_client_model
from moonshim.engine.response.pipeline import ResponsePipeline
from moonshim.errors import InvalidInput

__all__ = ["mend_chunks"]

Chunk: TypeAlias = dict[str, Any]
Pipeline: TypeAlias = ResponsePipeline[Chunk]


@overload
def mend_chunks(chunks: Iterable[Chunk], **request: Unpack[PlanArguments]) -> Iterator[Chunk]: ...


@overload
def mend_chunks(chunks: AsyncIterable[Chunk], **request: Unpack[PlanArguments]) -> AsyncIterator[Chunk]: ...


def mend_chunks(
    chunks: Iterable[Chunk] | AsyncIterable[Chunk], **request: Unpack[PlanArguments]
) -> Iterator[Chunk] | AsyncIterator[Chunk]:
    """Chunks as their host gave them -> as the client expects them; a clean chunk of Chat is the same object.

    With the `plan` of `prepare_request`, payloads of the host's dialect -> those of the client's, under
    the name of the model that the client asked for. Without one both are Chat, and the request is described by
    `model` and, where known, `tools`, `tool_choice`, `history` and `options`.

    >>> hello = {"choices": [{"index": 0, "delta": {"content": "Hi"}, "finish_reason": "stop"}]}
    >>> list(mend_chunks([hello], model="kimi-k2.5")) == [hello]
    True
    """
    plan = plan_for(**request)
    pipeline: Pipeline = ResponsePipeline(plan, collect=False)
    if isinstance(chunks, AsyncIterable):
        return _mend_async(pipeline, chunks, plan)
    if isinstance(chunks, Iterable) and not isinstance(chunks, (str, bytes, Mapping)):
        return _mend(pipeline, chunks, plan)
    raise InvalidInput("chunks must be an iterable of dicts, plain or async", field="chunks")


def _mend(pipeline: Pipeline, chunks: Iterable[Chunk], plan: Plan) -> Iterator[Chunk]:
    for chunk in chunks:
        yield from _output_chunks(_feed(pipeline, chunk, plan))
    yield from _output_chunks(pipeline.end())


async def _mend_async(pipeline: Pipeline, chunks: AsyncIterable[Chunk], plan: Plan) -> AsyncIterator[Chunk]:
    async for chunk in chunks:
        for one in _output_chunks(_feed(pipeline, chunk, plan)):
            yield one
    for one in _output_chunks(pipeline.end()):
        yield one


def _feed(pipeline: Pipeline, chunk: Chunk, plan: Plan) -> list[Released[Chunk]]:
    if not isinstance(chunk, dict):
        raise InvalidInput(f"a chunk must be a dict, not {type(chunk).__name__}", field="chunks")
    if not plan.translates:
        chunk = with_client_model(chunk, plan)
    return pipeline.feed(chunk, chunk)


def _output_chunks(released: list[Released[Chunk]]) -> Iterator[Chunk]:
    for one in released:
        if one.payloads is not None:
            yield from one.payloads
        elif one.origin is not None:
            yield one.origin
