"""Every vector: whole, byte by byte, at several sizes of bytes and of text, streaming and not, and mended twice."""

from __future__ import annotations

import asyncio
import copy
import re
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import pytest

from moonshim import Mender, mend_chunks, mend_response
from tests.support.looped import Test, looped
from tests.support.profiles import PROFILE
from tests.support.streams import DONE, find_markers, ndjson, read_body, read_chunks, split_text, sse
from tests.support.vector_checks import (
    REPORTS,
    Run,
    check_calls,
    check_ending,
    check_received,
    check_repairs,
    check_stream,
    joined_parts,
    read_values,
    same,
    sorted_parts,
)
from tests.support.vector_files import Vector, fields_of, name_of, vectors

# The quick profile is for further interpreters: it looks for what differs between them, not for the same faults again.
BYTE_SIZES: Final = (1,) if PROFILE == "quick" else (1, 2, 3, 7, 64)
TEXT_SIZES: Final = (1, 3) if PROFILE == "quick" else (None, 1, 2, 3, 7)
KEPT_BACK: Final = len("<|tool_call_argument_begin|>") - 1


def each(chosen: Callable[[Vector, str], bool] = lambda vector, field: True) -> Callable[[Test], Test]:
    """Run the test once for each vector that can be like that, in every field where it can."""

    def fields(vector: Vector) -> list[str]:
        return [field for field in fields_of(vector) if chosen(vector, field)]

    def decorate(test: Test) -> Test:
        return pytest.mark.parametrize("vector", [vector for vector in vectors() if fields(vector)], ids=name_of)(
            looped("field", fields)(test)
        )

    return decorate


def is_raw(vector: Vector) -> bool:
    return vector.raw is not None or vector.raw_base64 is not None


every_case = each()


@every_case
def test_the_vector_gives_what_its_file_says(vector: Vector, field: str) -> None:
    came = vector.stream(field, 0)
    check_stream(vector, field, came, Run(vector, [came]))


@every_case
def test_any_split_of_the_bytes_gives_the_same(vector: Vector, field: str) -> None:
    came = vector.stream(field, 0)
    whole = Run(vector, [came])
    for size in BYTE_SIZES:
        run = Run(vector, [came[at : at + size] for at in range(0, len(came), size)])
        same(f"in pieces of {size}", run.out, whole.out)
        same("message", run.mender.message, whole.mender.message)
        same("repairs", run.mender.repairs, whole.mender.repairs)


@each(lambda vector, field: vector.is_text)
def test_any_rechunking_of_the_text_gives_the_same(vector: Vector, field: str) -> None:
    for size in TEXT_SIZES:
        came = vector.stream(field, size)
        check_stream(vector, field, came, Run(vector, [came]))


@every_case
def test_mending_the_mended_stream_changes_nothing(vector: Vector, field: str) -> None:
    for size in (0, 3) if vector.is_text else (0,):
        first = Run(vector, [vector.stream(field, size)])
        again = Run(vector, [first.out])
        same("mended twice", again.out, first.out)
        same("repairs", set(again.rules) - REPORTS, set())


@every_case
def test_assembled_gives_the_same_message(vector: Vector, field: str) -> None:
    came = vector.stream(field, 3)
    options = vector.options_value()
    if options is None:
        # What the model would get without options, but for the one that is changed.
        kimi = "kimi" in vector.model
        changes: dict[str, Any] = {} if kimi else {"preset": "plain", "repair_on_mismatch": False, "id_policy": "keep"}
        vector = copy.copy(vector)
        vector.options = changes
    assembled = Run(vector, [came], tool_call_streaming="assembled")
    incremental = Run(vector, [came])
    same("message", assembled.mender.message, incremental.mender.message)
    same("ending", assembled.mender.ending, incremental.mender.ending)
    values = read_values(assembled.out, vector)
    same("leaked", find_markers(values, vector.expect.keeps), [])
    check_received(vector.expected_in(field), field, read_chunks(values, strict=vector.expect.balanced), summary=True)


# Some faults only a stream can have.
@each(lambda vector, field: vector.body(field) is not None)
def test_a_whole_response_gives_the_same(vector: Vector, field: str) -> None:
    body = vector.body(field)
    assert body is not None
    expect, told, before = vector.expected_in(field), vector.arguments(), copy.deepcopy(body)
    mended = mend_response(body, **told)
    assert body == before, "the body that was passed changed"
    same("leaked", find_markers([mended.body], expect.keeps), [])
    check_received(expect, field, read_body(mended.body, strict=expect.balanced), summary=False)
    check_repairs(expect, mended.repairs)
    check_ending(expect, mended.ending)
    streamed = Run(vector, [vector.stream(field, 3)]).mender.message
    same("message", sorted_parts(mended.message), sorted_parts(streamed))
    if vector.same_message:
        same("order", joined_parts(mended.message), joined_parts(streamed))
    if expect.clean and expect.error is None:
        assert mended.body == before
    again = mend_response(mended.body, **told)
    same("mended twice", again.body, mended.body)
    same("repairs", {repair.rule for repair in again.repairs} - REPORTS, set())


# Raw bytes are no chunks, and the end of some is told by [DONE] alone.
@each(lambda vector, field: not is_raw(vector) and (vector.finish is not None or vector.chunks is not None))
def test_parsed_chunks_give_the_same(vector: Vector, field: str) -> None:
    chunks, told = vector.as_chunks(field, 3), vector.arguments()
    before = copy.deepcopy(chunks)
    mended = list(mend_chunks(chunks, **told))
    assert chunks == before, "the chunks that were passed changed"
    events = Run(vector, [sse(chunks, done=False)]).values(vector)
    same("chunks", mended, [one for one in events if one != DONE])
    expect = vector.expected_in(field)
    if expect.clean:
        before_ending = len(chunks) - (expect.error is not None)
        pairs = zip(mended[:before_ending], chunks[:before_ending], strict=True)
        assert all(one is other for one, other in pairs)
        assert expect.error is not None or len(mended) == len(chunks)

    async def arriving() -> AsyncIterator[dict[str, Any]]:
        for one in chunks:
            yield one

    async def collected() -> list[dict[str, Any]]:
        return [one async for one in mend_chunks(arriving(), **told)]

    same("async", asyncio.run(collected()), mended)


# Raw bytes are in one framing, and only [DONE] tells the end of those without a finish.
@each(lambda vector, field: not is_raw(vector) and vector.finish is not None)
def test_ndjson_says_the_same_as_sse(vector: Vector, field: str) -> None:
    lines = copy.copy(vector)
    lines.framing = "ndjson"
    chunks = vector.as_chunks(field, 3)
    events = Run(vector, [sse(chunks, done=False)]).values(vector)
    same("lines", Run(lines, [ndjson(chunks)]).values(lines), [one for one in events if one != DONE])


# -- promptness ------------------------------------------------------------------------------------------------

IN_A_HEADER: Final = re.compile(
    r"<\|tool_call_begin\|>((?!<\|tool_call_(argument_begin|end)\|>).)*\Z|<\|(open|close)\|>((?!<\|sep\|>).)*\Z"
    r"|[\w.-]+:\d+\s*<[|\w]*\Z",
    re.DOTALL,
)
"""A call without a name yet, a tag that has not ended, what may be a bare header: holds that have a name."""
PROMPT: Final = [vector for vector in vectors() if vector.is_text and vector.prompt]


def _delivered(out: bytes, vector: Vector) -> int:
    listener = read_chunks(read_values(out, vector))
    return sum(
        len(heard.content) + len(heard.reasoning) + sum(len(call.arguments) for call in heard.calls)
        for heard in listener.choices.values()
    )


@pytest.mark.parametrize("vector", PROMPT, ids=name_of)
def test_nothing_decided_is_kept_back(vector: Vector) -> None:
    """After any prefix, all is out that a cut at this place would bring, but for the longest marker less one."""
    field = vector.fields[0]
    text = vector.whole_text
    for size in range(1, len(text) + 1, 4):
        if IN_A_HEADER.search(text[:size]):
            continue
        prefix = copy.copy(vector)
        prefix.text = split_text(text[:size], 3)
        prefix.finish = "length"
        chunks = prefix.as_chunks(field, 0)
        mender = Mender(**prefix.arguments())
        early = mender.feed(sse(chunks[:-1], done=False))
        late = early + mender.feed(sse(chunks[-1:])) + mender.flush()
        missing = _delivered(late, vector) - _delivered(early, vector)
        assert missing <= KEPT_BACK, f"{missing} characters are kept back after {text[:size]!r}"


@pytest.mark.parametrize(("vector", "number"), [(v, n) for v in vectors() for n in range(len(v.moments))], ids=name_of)
@looped("size", [1, None])
def test_at_this_moment_this_is_out(vector: Vector, number: int, size: int | None) -> None:
    moment = vector.moments[number]
    for field in vector.fields:
        prefix = copy.copy(vector)
        prefix.text = moment.after
        mender = Mender(**prefix.arguments())
        heard = read_chunks(read_values(mender.feed(sse(prefix.as_chunks(field, size)[:-1], done=False)), vector))[0]
        same("text", heard.content if field == "content" else heard.reasoning, moment.text)
        check_calls(moment.calls, heard.calls)
