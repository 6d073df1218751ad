"""docs/guides/chat.md matches the chat: its screens, commands, options and exit codes."""

from __future__ import annotations

import re

import pytest

from moonshim.chat.commands.registry import COMMANDS
from moonshim.chat.oneshot import EXIT_CODES
from moonshim.cli.chat import parser
from scripts.record_chat import PAGE, page_part, record, recorded_part

TEXT = PAGE.read_text("utf-8")


def section(title: str) -> str:
    return TEXT.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def test_the_recording_is_what_people_see() -> None:
    pytest.importorskip("pty")
    # Tokens are counted over the path of the folder, too, which is another one each time.
    shown, seen = (
        re.sub(r"[\d,]+ (in|out|cached)", r"N \1", part) for part in (recorded_part(TEXT), page_part(record()))
    )
    assert shown.splitlines() == seen.splitlines()


def test_the_commands_of_the_page_are_those_there_are() -> None:
    written = re.findall(r"^\| `/(\w+) ?(.*?)` \|", section("Commands"), re.MULTILINE)
    assert {name: usage.replace("\\|", "|") for name, usage in written} == {
        name: command.usage for name, command in COMMANDS.items()
    }


def test_the_options_of_the_page_are_those_there_are() -> None:
    named = set(re.findall(r"`(--?[a-z-]+)", section("Options"))) | {"--prompt"}
    there = {option for action in parser()._actions for option in action.option_strings} - {"-h", "--help"}
    assert named == there


def test_the_exit_codes_of_the_page_are_those_there_are() -> None:
    codes = {int(code) for code in re.findall(r"^\| (\d+) \|", section("For scripts"), re.MULTILINE)}
    assert codes == {*EXIT_CODES.values(), 2}
    assert codes == {int(code) for code in re.findall(r"^  (\d+)  ", parser().epilog or "", re.MULTILINE)}
