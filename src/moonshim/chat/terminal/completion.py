"""The text before the cursor -> completions: commands, their arguments, and file names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from moonshim.chat.commands.registry import COMMANDS
from moonshim.chat.session import Session

__all__ = ["ChatCompleter", "file_names"]

_MOST: Final = 200


class ChatCompleter(Completer):
    """Completes for one chat: models and formats are the current ones."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
        text = document.text_before_cursor
        if text.startswith("/") and " " not in text and "/" not in text[1:]:
            for name, command in COMMANDS.items():
                if name.startswith(text[1:].lower()):
                    yield Completion(f"/{name}", -len(text), display_meta=command.help)
            return
        word = document.get_word_before_cursor(WORD=True)
        name, space, words = text.partition(" ")
        known = COMMANDS.get(name[1:].lower()) if name.startswith("/") and space else None
        if known is not None and " " not in words.lstrip():
            yield from _completions(sorted(_with_prefix(known.complete(self._session), word)), word)
        if known is None or name in ("/export", "/load", "/save"):
            yield from _completions(file_names(word, self._session.folder), word)


def _completions(words: Iterable[str], word: str) -> Iterator[Completion]:
    return (Completion(found, -len(word)) for found in words)


def _with_prefix(words: Iterable[str], word: str) -> list[str]:
    return [found for found in dict.fromkeys(words) if found.lower().startswith(word.lower())]


def file_names(word: str, folder: Path) -> list[str]:
    """File names that start with a word; folders end with a slash. Nothing for an empty word: that would be noise."""
    if not word:
        return []
    start, _, beginning = word.rpartition("/")
    place = folder / Path(f"{start}/" if start or word.startswith("/") else ".").expanduser()
    try:
        entries = sorted(place.iterdir())[: _MOST * 10]
        found = [
            f"{entry.name}/" if entry.is_dir() else entry.name
            for entry in entries
            if entry.name.startswith(beginning) and entry.name.isprintable() and (beginning or entry.name[0] != ".")
        ]
    except OSError:
        return []
    return [f"{start}/{name}" if "/" in word else name for name in found[:_MOST]]
