"""A conversation in canonical form, in memory or in an append-only file."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import time
import uuid
import weakref
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from moonshim.agent.history_lines import (
    Conversation,
    HistoryError,
    HistoryLine,
    Switched,
    encode_line,
    encode_opening,
    read_lines,
)
from moonshim.engine.values.conversation import Message, ToolCall, ToolResult

__all__ = ["History", "HistoryError", "HistoryFile", "HistoryInUse", "HistoryNotSaved", "read_history", "read_opening"]

_NO_SYNC: Final = (errno.EINVAL, errno.ENOTSUP, errno.EROFS)
"""Errors of files that cannot be synced: pipes, devices, some network disks."""
_LONGEST_OPENING: Final = 64 * 1024
_NO_WAITING: Final = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
"""Do not wait for a pipe that has no writer."""


class HistoryInUse(HistoryError):
    """Another process has this conversation file open for writing."""

    code = "history_in_use"


class HistoryNotSaved(HistoryError):
    """The conversation file could not be written.

    The history in memory is complete. The next change writes everything that is missing in the file.
    """

    code = "history_not_kept"


class History:
    """A conversation in memory. It does not contain the system prompt, which belongs to the agent."""

    def __init__(self, messages: Iterable[Message] = ()) -> None:
        """Create a conversation with these messages."""
        self._messages = list(messages)
        self._switched = Switched()

    @property
    def messages(self) -> tuple[Message, ...]:
        """All messages, the oldest first."""
        return tuple(self._messages)

    @property
    def model(self) -> str:
        """The current model, as set by `switched`; empty if it was never called."""
        return self._switched.model

    @property
    def provider(self) -> str:
        """The name of the current model's provider; empty if it was never set."""
        return self._switched.provider

    @property
    def tool_format(self) -> str:
        """The tool format that was set for the current model; empty if it is detected from the model name."""
        return self._switched.tool_format

    def add(self, message: Message) -> None:
        """Append a message."""
        self._note(HistoryLine(message=message), lambda: self._messages.append(message))

    def undo(self) -> int:
        """Remove the user's last message and everything after it, and return the number of messages removed."""
        count = len(self._messages) - self._last_turn()
        if count:
            self._take_back(count)
        return count

    def undo_answer(self) -> int:
        """Remove everything after the user's last message and return the number of messages removed."""
        count = max(len(self._messages) - self._last_turn() - 1, 0)
        if count:
            self._take_back(count)
        return count

    def clear(self) -> None:
        """Remove all messages."""
        self._note(HistoryLine(clear=True), self._messages.clear)

    def switched(self, model: str, provider: str = "", tool_format: str = "") -> None:
        """Record that this model answers from here on, with this tool format if one was set."""
        switched = Switched(model, provider, tool_format)
        if switched != self._switched:
            self._note(HistoryLine(switched=switched), lambda: self._set_switched(switched))

    @property
    def unanswered(self) -> tuple[ToolCall, ...]:
        """The calls of the last response that have no result yet.

        Hosts reject a history that continues without these results.
        """
        answered: set[str] = set()
        for message in reversed(self._messages):
            if message.role != "tool":
                calls = (part for part in message.parts if isinstance(part, ToolCall))
                return tuple(call for call in calls if call.id not in answered)
            answered |= {part.call_id for part in message.parts if isinstance(part, ToolResult)}
        return ()

    def _last_turn(self) -> int:
        """Index of its first message."""
        places = range(len(self._messages) - 1, -1, -1)
        return next((place for place in places if self._messages[place].role == "user"), 0)

    def _take_back(self, count: int) -> None:
        def act() -> None:
            del self._messages[-count:]

        self._note(HistoryLine(undo=count), act)

    def _set_switched(self, switched: Switched) -> None:
        self._switched = switched

    def _note(self, line: HistoryLine, act: Callable[[], None]) -> None:
        """Do it, and record it, if there is a file."""
        act()


class HistoryFile(History):
    """A conversation in a file. A message is on disk when `add` returns, even if the process or the machine crashes.

    Use `create` or `open` to get one. The file is append-only: undo and clear are recorded as lines. Only its owner can
    read it. If a process dies in the middle of a line, `open` skips that line and reports it in `troubles`. When the
    disk is full, `HistoryNotSaved` is raised once; the messages stay in memory and are written as soon as possible.
    """

    def __init__(self, path: Path, descriptor: int, found: Conversation, clock: Callable[[], float]) -> None:
        super().__init__(found.messages)
        self.path = path
        """The path of the file."""
        self.about: dict[str, Any] = found.about
        """The fields of the first line of the file."""
        self.troubles: tuple[str, ...] = found.troubles
        """Messages about lines that could not be read and were skipped."""
        self._switched = found.switched
        self._clock = clock
        self._descriptor = descriptor
        self._size = found.size
        self._pending: list[bytes] = [] if found.ended else [b"\n"]
        """Lines that are not in the file yet."""
        self._reported = False
        self._is_new = False
        self._close = weakref.finalize(self, os.close, descriptor)

    @classmethod
    def create(
        cls, path: str | Path, about: Mapping[str, Any] | None = None, *, clock: Callable[[], float] = time.time
    ) -> HistoryFile:
        """Create a new conversation file. A conversation that is closed while empty leaves no file.

        Args:
            path: The path of the new file. Missing folders are created.
            about: Extra fields for the first line of the file.
            clock: Returns the current time in seconds; for tests.

        Raises:
            HistoryError: The file already exists or cannot be created.
        """
        path = Path(path)
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o600)
        except (OSError, ValueError) as error:
            if isinstance(error, FileExistsError) and path.parent.is_dir():
                raise HistoryError(f"{path} already exists; open it, or choose another name") from None
            raise HistoryError(f"cannot create {path}: {_reason(error)}") from error
        made = cls._begin_file(path, descriptor, about or {}, clock)
        made._is_new = True
        return made

    @classmethod
    def open(cls, path: str | Path, *, clock: Callable[[], float] = time.time) -> HistoryFile:
        """Open an existing conversation file, to continue it.

        Args:
            path: The path of the file.
            clock: Returns the current time in seconds; for tests.

        Raises:
            HistoryError: The file cannot be read or written, or is not a Moonshim conversation.
            HistoryInUse: Another process has the file open.
        """
        path = Path(path)
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_APPEND | _NO_WAITING)
        except (OSError, ValueError) as error:
            raise HistoryError(f"cannot open {path}: {_reason(error)}") from error
        try:
            _check_ordinary(descriptor, path)
            _lock(descriptor, path)
            found = read_lines(_all_of(descriptor, path), str(path))
            if found is None:  # the process that created it was stopped before its first line was complete
                os.ftruncate(descriptor, 0)
            else:
                os.ftruncate(descriptor, found.size)
        except BaseException as error:
            os.close(descriptor)
            if isinstance(error, OSError):
                raise HistoryError(f"cannot write {path}: {_reason(error)}") from error
            raise
        return cls._begin_file(path, descriptor, {}, clock) if found is None else cls(path, descriptor, found, clock)

    @classmethod
    def _begin_file(
        cls, path: Path, descriptor: int, about: Mapping[str, Any], clock: Callable[[], float]
    ) -> HistoryFile:
        opening = {"id": str(uuid.uuid4()), "created": round(clock(), 3), **about}
        try:
            _lock(descriptor, path)
            line = encode_opening(opening)
            _write(descriptor, line)
            _sync_folder(path.parent)
        except BaseException as error:
            os.close(descriptor)
            with contextlib.suppress(OSError):
                path.unlink()
            if isinstance(error, OSError):
                raise HistoryError(f"cannot write {path}: {_reason(error)}") from error
            raise
        return cls(path, descriptor, Conversation(about=opening, size=len(line)), clock)

    @property
    def id(self) -> str:
        """The id of the conversation, or the file name without its suffix if there is none."""
        return str(self.about.get("id") or self.path.stem)

    @property
    def is_kept(self) -> bool:
        """Whether all messages are in the file."""
        return not any(line.strip() for line in self._pending)

    def copy_to(self, path: str | Path) -> HistoryFile:
        """Copy the conversation to a new file, line by line, with its extra fields, and return the copy.

        Raises:
            HistoryError: This file is closed, or the new one already exists or cannot be written.
        """
        if not self._close.alive:
            raise HistoryError(f"{self.path} is closed")
        copy = HistoryFile.create(path, {key: value for key, value in self.about.items() if key not in _OWN})
        try:
            data = _all_of(self._descriptor, self.path).partition(b"\n")[2] + b"".join(self._pending)
            _write(copy._descriptor, data)
        except OSError as error:
            copy.close()
            raise HistoryError(f"cannot write {path}: {_reason(error)}") from error
        copy._is_new = False
        copy._messages, copy._switched, copy._size = list(self._messages), self._switched, copy._size + len(data)
        return copy

    def close(self) -> None:
        """Close the file, so that other processes can open it."""
        if self._close.alive:
            if self._is_new and not self._messages:
                with contextlib.suppress(OSError):
                    self.path.unlink()
            self._close()

    def __enter__(self) -> HistoryFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _note(self, line: HistoryLine, act: Callable[[], None]) -> None:
        data = encode_line(HistoryLine(line.message, line.undo, line.clear, line.switched, round(self._clock(), 3)))
        if not self._close.alive:
            raise HistoryError(f"{self.path} is closed")
        act()
        self._is_new = self._is_new and line.message is None
        self._pending.append(data)
        self._write_pending()

    def _write_pending(self) -> None:
        data = b"".join(self._pending)
        try:
            _write(self._descriptor, data)
        except OSError as error:
            self._truncate()
            if not self._reported:
                self._reported = True
                raise HistoryNotSaved(
                    f"cannot write {self.path}: {_reason(error)}; the conversation continues in memory, "
                    "and is saved as soon as the file can be written again"
                ) from error
            return
        self._size += len(data)
        self._pending, self._reported = [], False

    def _truncate(self) -> None:
        """Remove a line that was written only in part."""
        try:
            os.ftruncate(self._descriptor, self._size)
        except OSError:
            # Then it stays as a line of its own, which cannot be read, but does not spoil the next one.
            if self._pending[0] != b"\n":
                self._pending.insert(0, b"\n")


_OWN: Final = ("moonshim", "version", "id", "created")
"""Fields of the first line that belong to the file."""


def read_history(path: str | Path) -> Conversation:
    """Read a conversation file without locking it, even if another process has it open.

    Raises:
        HistoryError: The file cannot be read, or is not a Moonshim conversation.
    """
    path = Path(path)
    return read_lines(_read(path), str(path)) or Conversation()


def read_opening(path: str | Path) -> dict[str, Any]:
    """Read only the first line of a conversation file."""
    path = Path(path)
    opening = read_lines(_read(path, _LONGEST_OPENING).partition(b"\n")[0] + b"\n", str(path))
    return {} if opening is None else opening.about


def _read(path: Path, most: int | None = None) -> bytes:
    try:
        descriptor = os.open(path, os.O_RDONLY | _NO_WAITING)
    except (OSError, ValueError) as error:
        raise HistoryError(f"cannot open {path}: {_reason(error)}") from error
    try:
        _check_ordinary(descriptor, path)
        return _all_of(descriptor, path) if most is None else os.pread(descriptor, most, 0)
    except OSError as error:
        raise HistoryError(f"cannot read {path}: {_reason(error)}") from error
    finally:
        os.close(descriptor)


def _check_ordinary(descriptor: int, path: Path) -> None:
    """Refuse pipes and devices, which may have no end."""
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        raise HistoryError(f"{path} is not a regular file")


def _reason(error: OSError | ValueError) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def _all_of(descriptor: int, path: Path) -> bytes:
    pieces: list[bytes] = []
    at = 0
    try:
        while piece := os.pread(descriptor, 1 << 20, at):
            pieces.append(piece)
            at += len(piece)
    except OSError as error:
        raise HistoryError(f"cannot read {path}: {_reason(error)}") from error
    return b"".join(pieces)


def _write(descriptor: int, data: bytes) -> None:
    """Write everything, and sync it to disk."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NO_SYNC:
            raise


def _sync_folder(folder: Path) -> None:
    """A new file name is durable only once its folder is synced."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _lock(descriptor: int, path: Path) -> None:
    try:
        import fcntl
    except ImportError:  # Windows has no such lock: there, concurrent processes are not detected
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise HistoryInUse(f"{path} is open in another process; close it there first") from None
    except OSError:
        return  # a file system without locks
