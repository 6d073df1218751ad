"""The table "What it must put right", row by row: each row, and each example in it, has a vector."""

from __future__ import annotations

from typing import Final

import pytest

from tests.support.vector_files import files, name_of, vectors

ROWS: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    "r01": (
        "K2 sections: calls, text around and inside",
        ("one call", "several calls", "several sections", "white space", "text inside", "text after"),
    ),
    "r02": ("markers cut and chunked in any way", ("alone", "spaces", "cut", "two markers")),
    "r03": (
        "tokens that are missing or singular",
        ("no section begin", "no section end", "no call end", "singular", "unclosed think"),
    ),
    "r04": ("a declared name, an index, the arguments marker", ("bare name", "not a call")),
    "r05": ("a marker's text inside a string argument", ("in a string",)),
    "r06": (
        "identifiers that carry the name",
        (
            "functions.a.b-c:3",
            "search:0",
            "Bash_0",
            "functions_get_weather_1",
            "functionsexec5",
            "functions exec:0",
            "newline inside",
            "undeclared",
        ),
    ),
    "r07": ("identifiers that carry none", ("call00003", "3", "call_59ad", "wrapper", "beside", "text")),
    "r08": ("a declared name and no arguments marker", ("no arguments marker",)),
    "r09": (
        "K3 XTML and its known faults",
        (
            "whole message",
            "several calls",
            "types",
            "escaping",
            "json",
            "elided sep",
            "think never closed",
            "tools inside think",
            "spaced markers",
            "orphan closes",
            "leaked message close",
        ),
    ),
    "r10": ("strays", ("orphan think", "unfinished marker", "unknown token")),
    "r11": ("truncated arguments", ("markers", "native", "K3")),
    "r12": ("empty arguments", ("empty",)),
    "r13": ("a leading {} or null", ("{}", "null")),
    "r14": ("the object twice", ("same", "different")),
    "r15": ("other junk behind the value", ("words", "brace")),
    "r16": ("the whole object as a JSON string", ("string",)),
    "r17": ("raw newlines and control characters", ("newline", "control")),
    "r18": ("an invalid escape, a lone surrogate", ("escape", "surrogate")),
    "r19": ("nested values sent as strings", ("array", "object", "number", "boolean", "string", "held")),
    "r20": (
        "native deltas",
        (
            "index missing",
            "index string",
            "index shared",
            "id repeated",
            "name split",
            "name repeated",
            "arguments before name",
            "whole call",
            "empty name",
            "nulls",
        ),
    ),
    "r21": ("the same calls native and in markers", ("native first", "markers first", "no twin", "one source")),
    "r22": ("stop or missing, complete calls present", ("stop", "missing")),
    "r23": ("finish_reason inside delta", ("calls", "no calls", "error")),
    "r24": ("tool_calls without any call, and other words for stop", ("tool_calls", "eos")),
    "r25": ("missing, no calls, [DONE] seen", ("done",)),
    "r26": ("length, content_filter", ("length", "content_filter")),
    "r27": ("an error as a finish reason", ("engine_overloaded", "another error")),
    "r28": ("the input just ends", ("neither", "middle of arguments")),
    "r29": ("only reasoning, finished with stop", ("reasoning",)),
    "r30": ("identifiers that repeat or collide", ("k2", "unique", "keep", "markers")),
    "r31": ("usage", ("top", "choice", "last chunk", "twice", "reset")),
    "r32": (
        "framing",
        (
            "no space",
            "CRLF",
            "CR",
            "comments",
            "keep-alives",
            "multi-line data",
            "utf-8",
            "no last newline",
            "no DONE",
            "ndjson",
        ),
    ),
    "r33": (
        "surrogate pairs split over chunks",
        ("content", "reasoning", "reasoning_content", "reasoning_details", "arguments", "alone"),
    ),
    "r34": ("an event that is not JSON, or not a chunk", ("not JSON", "not a chunk")),
    "r35": ("several choices", ("clean", "markers", "finish")),
    "r43": ("arguments that lack only their last brackets", ("markers", "native", "not certain", "length")),
    # What servers and models leave of calls.
    "r44": (
        "a call in markers without some of them, or with a wrong id",
        ("no markers", "foreign id", "list", "no id", "arguments alone", "id alone", "misspelled", "colon", "cut off"),
    ),
    "r45": ("arguments of a native call in another place or form", ("text", "empty", "list", "pairs", "id")),
    "r46": ("tags of K3 that are misspelled", ("name", "no tool", "glued", "end", "no key", "K2", "cut off")),
    # What the text around the table asks for.
    "r36": ("assembleToolDeltas", ("native", "markers")),
    "r37": ("copies of the reasoning", ("equal", "unequal")),
    "r38": ("no tools declared", ("tools=[]", "tool_choice none", "K3 wrappers")),
    "r39": ("KimiOptions() does framing, ids and finish", ("markers", "ids", "finish", "framing", "nothing else")),
    "r40": ("any other model", ("left alone", "finish", "framing")),
    "r41": ("a clean stream is identical on both sides", ("identical",)),
    "r42": ("a mended frame keeps its other fields", ("other fields",)),
}


@pytest.mark.parametrize("row", ROWS)
def test_the_row_and_each_of_its_examples_has_a_vector(row: str) -> None:
    title, examples = ROWS[row]
    found = {vector.case for vector in vectors() if vector.row == row}
    assert found, f"no vector for {row}, {title}"
    assert set(examples) <= found, f"{title}: no vector for {sorted(set(examples) - found)}"


def test_every_vector_belongs_to_a_row() -> None:
    assert {vector.row for vector in vectors()} <= ROWS.keys()


@pytest.mark.parametrize("name", files())
def test_no_two_vectors_of_a_file_have_the_same_name(name: str) -> None:
    names = [name_of(vector) for vector in files()[name]]
    assert len(names) == len(set(names))


def test_what_is_held_back_on_purpose_has_a_name() -> None:
    assert [vector.name for vector in vectors() if vector.prompt == bool(vector.holds)] == []


def test_every_vector_says_how_it_ends() -> None:
    assert [
        vector.name for vector in vectors() if (vector.expect.finish is None) == (vector.expect.error is None)
    ] == []
