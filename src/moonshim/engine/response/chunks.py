"""Mends a stream for people who hold parsed chunks: dicts in, dicts out, sync or async."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator, Mapping
from typing import Any, TypeAlias, overload

from moonshim.engine.plan import Plan, Tools, plan_for
from moonshim.engine.response.chunk_mender import ChunkMender, Released, with_client_model
from moonshim.engine.response.pipeline import ResponsePipeline
from moonshim.engine.values.conversation import Message
from moonshim.engine.values.options import KimiOptions
from moonshim.errors import InvalidInput

__all__ = ["mend_chunks"]

Chunk: TypeAlias = dict[str, Any]
AnyMender: TypeAlias = ChunkMender[Chunk] | ResponsePipeline[Chunk]


@overload
def mend_chunks(
    chunks: Iterable[Chunk],
    *,
    plan: Plan | None = None,
    model: str | None = None,
    tools: Tools | None = None,
    tool_choice: Any = None,
    history: Iterable[Mapping[str, Any] | Message] | None = None,
    options: KimiOptions | None = None,
) -> Iterator[Chunk]: ...


@overload
def mend_chunks(
    chunks: AsyncIterable[Chunk],
    *,
    plan: Plan | None = None,
    model: str | None = None,
    tools: Tools | None = None,
    tool_choice: Any = None,
    history: Iterable[Mapping[str, Any] | Message] | None = None,
    options: KimiOptions | None = None,
) -> AsyncIterator[Chunk]: ...


def mend_chunks(
    chunks: Iterable[Chunk] | AsyncIterable[Chunk],
    *,
    plan: Plan | None = None,
    model: str | None = None,
    tools: Tools | None = None,
    tool_choice: Any = None,
    history: Iterable[Mapping[str, Any] | Message] | None = None,
    options: KimiOptions | None = None,
) -> Iterator[Chunk] | AsyncIterator[Chunk]:
    """Chunks as their host gave them -> as the client expects them; a clean chunk of Chat is the same object.

    With the `plan` of `prepare_request`, payloads of the host's dialect -> those of the client's, under
    the name of the model that the client asked for; without one both are Chat.

    >>> hello = {"choices": [{"index": 0, "delta": {"content": "Hi"}, "finish_reason": "stop"}]}
    >>> list(mend_chunks([hello], model="kimi-k2.5")) == [hello]
    True
    """
    plan = plan_for(plan=plan, model=model, tools=tools, tool_choice=tool_choice, history=history, options=options)
    mender: AnyMender = ResponsePipeline(plan, collect=False) if plan.translates else ChunkMender(plan, collect=False)
    if isinstance(chunks, AsyncIterable):
        return _mend_async(mender, chunks, plan)
    if isinstance(chunks, Iterable) and not isinstance(chunks, (str, bytes, Mapping)):
        return _mend(mender, chunks, plan)
    raise InvalidInput("chunks must be an iterable of dicts, plain or async", field="chunks")


def _mend(mender: AnyMender, chunks: Iterable[Chunk], plan: Plan) -> Iterator[Chunk]:
    for chunk in chunks:
        yield from _output_chunks(_feed(mender, chunk, plan))
    yield from _output_chunks(mender.end())


async def _mend_async(mender: AnyMender, chunks: AsyncIterable[Chunk], plan: Plan) -> AsyncIterator[Chunk]:
    async for chunk in chunks:
        for one in _output_chunks(_feed(mender, chunk, plan)):
            yield one
    for one in _output_chunks(mender.end()):
        yield one


def _feed(mender: AnyMender, chunk: Chunk, plan: Plan) -> list[Released[Chunk]]:
    if not isinstance(chunk, dict):
        raise InvalidInput(f"a chunk must be a dict, not {type(chunk).__name__}", field="chunks")
    if isinstance(mender, ChunkMender):
        chunk = with_client_model(chunk, plan)
    return mender.feed(chunk, chunk)


def _output_chunks(released: list[Released[Chunk]]) -> Iterator[Chunk]:
    for one in released:
        if one.chunks is not None:
            yield from one.chunks
        elif one.origin is not None:
            yield one.origin
