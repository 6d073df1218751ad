"""Repairs a stream of parsed chunks: dicts in, dicts out, sync or async."""

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
    """Repair a stream of parsed chunks. Returns an iterator, or an async iterator for async `chunks`.

    With the `plan` from `prepare_request`, the chunks are read in the host's dialect and written in the client's, with
    the model name that the client requested. Without a plan, both sides use Chat, and these arguments describe the
    request: `model`, and if known `tools`, `tool_choice`, `history` and `options`.

    A Chat chunk that needs no repair is returned as the same object. Raises `InvalidInput` if `chunks` is not an
    iterable of dicts, or for an invalid argument.

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
    raise InvalidInput("chunks must be an iterable or async iterable of dicts", field="chunks")


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
