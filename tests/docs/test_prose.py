"""The check of prose refuses what readers stumble over, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts import check_prose


def found_in_page(folder: Path, text: str) -> list[str]:
    page = folder / "page.md"
    page.write_text(text, "utf-8")
    return [finding.phrase for finding in check_prose.check_page(page)]


def found_in_source(folder: Path, code: str) -> list[str]:
    source = folder / "module.py"
    source.write_text(code, "utf-8")
    return [finding.phrase for finding in check_prose.check_source(source)]


@pytest.mark.parametrize(
    ("text", "phrase"),
    [
        ("Whoever uses it is told.", "Whoever"),
        ("What is no JSON passes.", "is no JSON"),
        ("The value must be a whole number.", "whole number"),
        ("The stream is written\nanew.", "anew"),
        ("Calls are made\nright.", "made\nright"),
        ("There is something behind its end.", "behind its"),
        ("It must be a text.", "a text"),
        ("That is none.", "is none"),
    ],
)
def test_a_phrase_to_avoid_is_found_even_over_a_line_break(tmp_path: Path, text: str, phrase: str) -> None:
    assert phrase.replace("\n", " ") in found_in_page(tmp_path, text)


@pytest.mark.parametrize(
    "text",
    [
        "There is no key for this host.",
        "The field is no longer sent.",
        "Moonshim runs behind a reverse proxy, or behind LiteLLM.",
        "You can switch models in a conversation.",
        "Open it in a text editor.",
        "The log has `told` and `kept`.",
        "```\nwhoever said so\n```",
    ],
)
def test_plain_english_and_quoted_code_pass(tmp_path: Path, text: str) -> None:
    assert found_in_page(tmp_path, text) == []


def test_messages_are_checked_and_docstrings_are_not(tmp_path: Path) -> None:
    code = '"""Whoever reads this."""\nMESSAGE = f"nobody knows {1 + 1}"\nKEY = "told"\n'
    assert found_in_source(tmp_path, code) == ["nobody"]


def test_a_line_may_quote(tmp_path: Path) -> None:
    assert found_in_source(tmp_path, 'BODY = "nobody is here"  # prose: quoted\n') == []


def test_a_finding_says_where_and_what_to_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_prose, "ROOT", tmp_path)
    (tmp_path / "page.md").write_text("Fine.\n\nIt is a whole number.\n", "utf-8")
    (finding,) = check_prose.check_page(tmp_path / "page.md")
    assert str(finding) == "page.md:3: 'whole number': write integer"
