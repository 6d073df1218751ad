"""The user's folder of conversations: names <-> files, and their content."""

from __future__ import annotations

import re
import secrets
import sys
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Final

from msgspec import Struct

from moonshim.agent.history import HistoryError, HistoryFile, read_history, read_opening
from moonshim.chat.render.sanitize import one_line
from moonshim.engine.values.conversation import Message, Text, ToolCall

__all__ = ["ConversationFolder", "SavedConversation", "count_messages", "data_folder", "first_line"]

LAST: Final = "last"
_SUFFIX: Final = ".jsonl"
_NAME: Final = re.compile(r"[A-Za-z0-9][\w.-]{0,99}")
_SHOWN: Final = 60


def data_folder(environ: Mapping[str, str], platform: str = sys.platform) -> Path:
    """The user's data folder for programs.

    >>> str(data_folder({"HOME": "/home/me"}, "linux"))
    '/home/me/.local/share/moonshim'
    """
    if Path(environ.get("XDG_DATA_HOME", "")).is_absolute():  # relative paths are invalid, by the specification
        return Path(environ["XDG_DATA_HOME"]) / "moonshim"
    if platform == "win32" and environ.get("LOCALAPPDATA"):
        return Path(environ["LOCALAPPDATA"]) / "moonshim"
    home = Path(environ["HOME"]) if environ.get("HOME") else Path.home()
    return home / ".local" / "share" / "moonshim"


class SavedConversation(Struct, frozen=True, kw_only=True):
    """A conversation in the folder."""

    id: str
    modified: float
    count: int
    words: str
    """How it begins."""
    model: str = ""


class ConversationFolder:
    """The conversations of one user. Each has its own file, which only that user can read.

    `here` is the current working folder; None: any. `oneshot`: new conversations are for one answer (`-p`).
    """

    def __init__(self, folder: Path, *, here: Path | None = None, oneshot: bool = False) -> None:
        self.folder = folder
        self._here = None if here is None else str(here.resolve())
        self._oneshot = oneshot

    def begin(self, now: datetime | None = None) -> HistoryFile:
        """A new conversation. An empty one leaves no file."""
        moment = (now or datetime.now()).strftime("%Y%m%d-%H%M%S")
        about = {"folder": self._here, "oneshot": self._oneshot or None}
        return HistoryFile.create(
            self.folder / f"{moment}-{secrets.token_hex(2)}{_SUFFIX}",
            {key: value for key, value in about.items() if value is not None},
        )

    def path(self, name: str) -> Path:
        """Path of a conversation of this name, whether it exists or not. Names with a slash, and `.jsonl` files, are
        paths."""
        if "/" in name or "\\" in name or name.endswith(_SUFFIX):
            return Path(name).expanduser()
        if not _NAME.fullmatch(name):
            raise HistoryError(f"invalid conversation name {name!r}: use letters, digits, `-`, `_` and `.`, or a path")
        return self.folder / f"{name}{_SUFFIX}"

    def find(self, name: str) -> Path:
        """The file of a conversation: by its name, by a prefix of it, or `last`: the last one of this folder."""
        if name == LAST:
            return self._last()
        path = self.path(name)
        if path.exists():
            return path
        found = [one for one in self._files() if one.stem.startswith(name)]
        if len(found) == 1:
            return found[0]
        if found:
            names = ", ".join(one.stem for one in found[:5])
            raise HistoryError(f"several conversations start with `{name}`: {names}")
        raise HistoryError(f"no conversation `{name}` ({path}); in a chat, /load lists the saved ones")

    def open(self, name: str) -> HistoryFile:
        return HistoryFile.open(self.find(name))

    def newest(self, most: int = 15) -> list[SavedConversation]:
        """The conversations that were used last; files that cannot be read are skipped."""
        conversations: list[SavedConversation] = []
        for path in self._files()[:most]:
            try:
                found = read_history(path)
            except HistoryError:
                continue
            conversations.append(
                SavedConversation(
                    id=path.stem,
                    modified=path.stat().st_mtime,
                    count=len(found.messages),
                    words=first_line(found.messages),
                    model=found.switched.model,
                )
            )
        return conversations

    def _last(self) -> Path:
        files = self._files()
        if not files:
            raise HistoryError(f"no conversations in {self.folder} yet")
        found = next((path for path in files if self._can_be_last(path)), None)
        if found is None:
            raise HistoryError(
                f"no conversations in the folder {self._here} yet; "
                f"`moonshim chat --resume {files[0].stem}` continues the latest one from any folder"
            )
        return found

    def _can_be_last(self, path: Path) -> bool:
        """Whether it is one of this folder, and not a `-p` run that was never answered."""
        try:
            about = read_opening(path)
            if self._here is not None and about.get("folder") != self._here:
                return False
            return not about.get("oneshot") or any(map(_is_answer, read_history(path).messages))
        except HistoryError:
            return False

    def names(self) -> list[str]:
        """For completion."""
        return [path.stem for path in self._files()]

    def _files(self) -> list[Path]:
        try:
            return sorted(
                self.folder.glob(f"*{_SUFFIX}"), key=lambda path: (path.stat().st_mtime, path.name), reverse=True
            )
        except OSError:
            return []


def count_messages(messages: int) -> str:
    """
    >>> count_messages(1), count_messages(4)
    ('1 message', '4 messages')
    """
    return f"{messages} {'message' if messages == 1 else 'messages'}"


def _is_answer(message: Message) -> bool:
    return message.role == "assistant" and not any(isinstance(part, ToolCall) for part in message.parts)


def first_line(messages: tuple[Message, ...]) -> str:
    """The beginning of a conversation, on one line."""
    for message in messages:
        text = one_line(" ".join(part.text for part in message.parts if isinstance(part, Text)))
        if message.role == "user" and text:
            return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"
    return ""
