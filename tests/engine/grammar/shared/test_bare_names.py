"""Bare headers: where `functions.declared_name:3` begins, if what stands at the end of a text may become one."""

from __future__ import annotations

import pytest

from moonshim.engine.grammar.shared.bare_names import BareNames, bare_names, ends_in_word

NAMES = BareNames(["ls", "read_file", "mcp.git-log"])


@pytest.mark.parametrize(
    ("text", "header"),
    [
        ("", ""),
        ("l", "l"),
        ("run ls", "ls"),
        ("run ls:", "ls:"),
        ("run ls:0", "ls:0"),
        ("run ls:0 ", "ls:0 "),
        ("run ls:012345678", "ls:012345678"),
        ("run functions.ls:3", "functions.ls:3"),
        ("run funct", "funct"),
        ("(read_", "read_"),
        ("\nmcp.git-log:1", "mcp.git-log:1"),
        ("调用ls:0", "ls:0"),
        ("run ls ", ""),
        ("run ls: 0", ""),
        ("run lsx", ""),
        ("run rm:0", ""),
        ("tools", ""),
        ("tools:0", ""),
        ("my_ls:0", ""),
        ("a:ls", ""),
        ("run ls:0x", ""),
        ("run ls:0.", ""),
        ("LS:0", ""),
    ],
)
def test_the_header_that_may_still_grow_at_the_end_of_a_text(text: str, header: str) -> None:
    start = NAMES.start(text, 0, len(text), in_word=False)
    assert text[start:] == header


@pytest.mark.parametrize(
    ("last", "is_header"),
    [
        ("", True),
        (" ", True),
        ("\n", True),
        ("你", True),
        ("(", True),
        ("a", False),
        ("_", False),
        (".", False),
        (":", False),
    ],
)
def test_a_header_begins_only_where_a_word_does(last: str, is_header: bool) -> None:
    assert (NAMES.start("ls:0", 0, 4, in_word=ends_in_word(last)) == 0) is is_header


def test_only_the_part_between_begin_and_end_is_looked_at() -> None:
    text = "ls:0 and read_file more"
    assert NAMES.start(text, 5, 18, in_word=False) == 9
    assert NAMES.start(text, 0, 3, in_word=False) == 0


def test_what_is_held_back_is_bounded() -> None:
    for text in ("ls:" + "0" * 40, "ls:0" + " " * 40, "functions." * 40):
        assert NAMES.start(text, 0, len(text), in_word=False) == len(text)


@pytest.mark.parametrize(
    ("header", "whole"),
    [("ls:0", True), ("functions.ls:12 ", True), ("ls", False), ("ls:", False), ("ls3", False), ("", False)],
)
def test_a_header_is_whole_when_it_has_its_index(header: str, whole: bool) -> None:
    assert BareNames.is_complete(header) is whole


def test_every_beginning_of_a_header_is_known() -> None:
    assert {"l", "ls", "f", "functions.", "functions.ls", "functions.mcp.git-log"} <= NAMES.beginnings
    assert not {"", "s", "ls:", "functions.x"} & NAMES.beginnings


@pytest.mark.parametrize("names", [frozenset[str](), frozenset({""})])
def test_without_names_there_is_nothing_to_find(names: frozenset[str]) -> None:
    assert bare_names(names) is None


def test_an_empty_name_is_no_name() -> None:
    assert BareNames(["", "ls"]).start(":0", 0, 2, in_word=False) == 2
