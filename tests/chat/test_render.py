"""What a person sees of an answer, of its calls, and of whatever a model or a tool tries to do to the terminal."""

from __future__ import annotations

import json
import re

import pytest
from rich.console import Console

from moonshim.chat.render.items import lines_of
from moonshim.chat.render.screen import NoticeItem, ReasoningItem, ScreenItem, TextItem, ToolCallItem
from tests.chat.test_sanitize import HOSTILE

STYLING = re.compile(r"\x1b\[[\d;]*m")
HEIGHT, WIDTH = 10, 40


def console(**changes: object) -> Console:
    given = {"force_terminal": True, "width": WIDTH, "color_system": "truecolor", "legacy_windows": False}
    return Console(**(given | changes))  # type: ignore[arg-type]  # a table of options


def shown(*items: ScreenItem, growing: bool = False) -> list[str]:
    return [STYLING.sub("", line) for line in lines_of(console(), items, height=HEIGHT, growing=growing)]


def test_markdown_is_rendered() -> None:
    text = "# Head\n\nSome **bold** words.\n\n- one\n- two\n\n```py\nx = 1\n```"
    assert shown(TextItem(text)) == ["", "Head", "", "Some bold words.", "", " • one", " • two", "", "", " x = 1"]


def test_pieces_look_as_the_whole_does() -> None:
    whole = shown(TextItem("One.\n\n# Two\n\n- three"))
    assert shown(TextItem("One.\n\n"), TextItem("# Two\n\n", first=False), TextItem("- three", first=False)) == whole


def test_the_address_of_a_link_is_seen() -> None:
    assert shown(TextItem("[bank](https://evil.example)")) == ["", "bank (https://evil.example)"]
    assert "\x1b]8" not in "".join(lines_of(console(), [TextItem("[a](https://b.c)")], height=9))


def test_reasoning_is_dim() -> None:
    (_, line) = lines_of(console(), [ReasoningItem("hm")], height=9)
    assert line == "  \x1b[2;3mhm\x1b[0m"
    assert shown(ReasoningItem("one\n"), ReasoningItem("two\n", first=False)) == ["", "  one", "  two"]


def test_folded_reasoning_says_how_to_unfold_it() -> None:
    assert shown(ReasoningItem("", folded=True, words=12)) == ["", "  12 words of reasoning (Ctrl-T to show)"]


def test_a_result_is_cut_to_a_screenful_and_says_so() -> None:
    lines = shown(ToolCallItem("bash", '{"command": "seq 100"}', "done", "\n".join(map(str, range(100)))))
    assert lines[:4] == ["", "● bash  seq 100", "  0", "  1"]
    assert lines[-1].startswith("  … 90 more lines")
    assert len(lines) < HEIGHT + 5


def test_a_line_without_end_is_cut_too() -> None:
    assert len(shown(ToolCallItem("bash", "{}", "done", "x" * 1_000_000))) < HEIGHT * 2


def test_what_grows_shows_its_end() -> None:
    fence = "```py\n" + "".join(f"x{number} = 1\n" for number in range(1000))
    lines = shown(TextItem(fence), growing=True)
    assert lines[-1].strip() == "x999 = 1"
    assert len(lines) < HEIGHT * 6


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_nothing_that_is_said_moves_the_cursor(text: str) -> None:
    said = f"{text} `{text}` [{text}](http://a.b/{text})\n\n```{text}\n{text}\n```\n\n# {text}\n\n| {text} |\n|--|\n"
    items: list[ScreenItem] = [
        TextItem(said),
        ReasoningItem(said),
        ToolCallItem(text, json.dumps({"command": text, text: text}), "done", text),
        ToolCallItem(text, text, "arriving"),
        NoticeItem(text),
    ]
    for plain in shown(*items):
        assert plain.isprintable(), repr(plain)


@pytest.mark.parametrize("entity", ["&#x202e;", "&#27;[2J", "&#x9b;2J", "&#8232;", "&lrm;"])
def test_an_entity_is_no_way_around(entity: str) -> None:
    text = f"a{entity}b `{entity}` [{entity}](http://a.b/{entity} '{entity}')\n\n```{entity}\nx\n```\n\n# {entity}"
    for line in shown(TextItem(text)):
        assert line.isprintable(), repr(line)


def test_without_colours_there_is_no_escape_at_all() -> None:
    plain = console(force_terminal=False, color_system=None, no_color=True)
    items: list[ScreenItem] = [
        TextItem("**bold** `code`\n\n```py\nx = 1\n```"),
        ReasoningItem("hm"),
        ToolCallItem("bash", "{}", "done", "ok"),
    ]
    assert "\x1b" not in "".join(lines_of(plain, items, height=9))
