"""The help of every command: it fits a terminal of 80 columns, and the reference page shows it."""

from __future__ import annotations

from typing import Final

import pytest

from moonshim.cli.command_tree import command_tree, subcommands_of
from scripts.cli_reference import BEGIN, COLUMNS, END, PAGE, reference

PATHS: Final = [command.path for command in command_tree().walk()]


def test_the_reference_page_is_current() -> None:
    written = PAGE.read_text("utf-8").partition(BEGIN)[2].partition(END)[0]
    assert written == reference(), "run: python -m scripts.cli_reference"


@pytest.mark.parametrize("path", PATHS, ids=[" ".join(["moonshim", *path]) for path in PATHS])
def test_help_fits_80_columns_and_explains_every_option(path: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", COLUMNS)
    command = next(one for one in command_tree().walk() if one.path == path)
    text = command.parser.format_help()
    assert [line for line in text.splitlines() if len(line) > int(COLUMNS)] == []
    assert command.parser.description
    assert command.summary or not path
    for action in command.parser._actions:
        assert action.help or action is subcommands_of(command.parser), action
