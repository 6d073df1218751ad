"""The raw bytes of hosts' responses -> one file per stream, which `moonshim mend` can read.

Writing happens in a separate thread: a chunk costs the event loop one append to a queue. Disk problems never reach a
request; they are logged once, and the file is marked incomplete.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Collection
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec

from moonshim.engine.exchange import MAX_ANSWER_BYTES, Form
from moonshim.engine.values.conversation import Change
from moonshim.gateway.observe.echoed_keys import EchoMasker
from moonshim.gateway.observe.record import RequestRecord
from moonshim.gateway.observe.stream_header import (
    OUTCOME_AT,
    StreamHeader,
    StreamOutcome,
    render_header,
    render_outcome,
)
from moonshim.http_server.log_lines import without_secrets

__all__ = ["StreamLog", "StreamLogs"]

MEBIBYTE: Final = 1024 * 1024
FOLDER_BYTES: Final = 1024 * MEBIBYTE
FOLDER_FILES: Final = 5000
FILE_BYTES: Final = MAX_ANSWER_BYTES + MEBIBYTE
"""Room for the piece with which a response gets too large, so that a replay ends where the gateway ended it."""
HELD_BYTES: Final = 64 * MEBIBYTE
"""Maximum bytes waiting for the disk, of all streams together."""
PIECE: Final = 256 * 1024
FLUSH_SECONDS: Final = 0.5
LAST_SECONDS: Final = 5.0
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9-]+")


class Sent(Protocol):
    """The parts of a `Prepared` that are logged."""

    @property
    def body(self) -> dict[str, Any]: ...

    @property
    def profile(self) -> Any: ...

    @property
    def plan(self) -> Any: ...

    @property
    def changes(self) -> list[Change]: ...


class StreamLogs:
    """A folder of logs, readable by its owner only, with a maximum size: the oldest files are deleted first."""

    def __init__(
        self,
        folder: Path,
        *,
        max_bytes: int = FOLDER_BYTES,
        max_files: int = FOLDER_FILES,
        max_file_bytes: int = FILE_BYTES,
        max_held: int = HELD_BYTES,
        on_failure: Callable[[str], None] | None = None,
    ) -> None:
        self._folder, self._max_bytes, self._max_files = folder, max_bytes, max_files
        self.max_file_bytes, self.max_held = max_file_bytes, max_held
        self._on_failure = on_failure or _log_failure
        self._failed = False
        self._open: deque[StreamLog] = deque()
        self._wake = threading.Event()
        self._closing = False
        self._thread: threading.Thread | None = None
        self.queued = self.settled = 0
        """Bytes queued, and bytes written or given up; the difference is pending."""

    def open(
        self,
        record: RequestRecord,
        sent: Sent,
        *,
        input_format: Form = "sse",
        output_format: Form = "sse",
        max_answer_bytes: int = MAX_ANSWER_BYTES,
        secrets: Collection[str] = (),
    ) -> StreamLog:
        """Open the log for one response. `input_format`: how it is read; `output_format`: what the client is sent;
        `max_answer_bytes`: where the gateway ends it.

        `secrets` are values that the host was sent and might echo: they are masked, all else is written unchanged.
        """
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="moonshim-stream-log", daemon=True)
            self._thread.start()
        log = StreamLog(self, record, sent, (input_format, output_format), max_answer_bytes, secrets)
        self._open.append(log)
        self._wake.set()
        return log

    def wake(self) -> None:
        self._wake.set()

    def close(self, seconds: float = LAST_SECONDS) -> None:
        """Write what is pending, but do not hang on a disk that has stopped responding."""
        self._closing = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join(seconds)

    # -- in the thread ---------------------------------------------------------------

    def _run(self) -> None:
        while True:
            self._wake.wait(FLUSH_SECONDS if self._open else None)
            self._wake.clear()
            closing = self._closing
            ended = 0
            for _ in range(len(self._open)):
                log = self._open.popleft()
                if self._flush(log, last=closing):
                    ended += 1
                else:
                    self._open.append(log)
            if ended:
                self._make_room()
            if closing:
                return

    def _flush(self, log: StreamLog, *, last: bool) -> bool:
        """Flush one stream; return whether it is finished."""
        ended = log.ended or last
        try:
            log.flush(self._folder, ended=ended)
        except Exception as error:  # the thread must survive: the other streams are unaffected
            log.give_up()
            self._fail(error)
        return ended

    def _make_room(self) -> None:
        try:
            files = sorted(
                (seen.st_mtime_ns, entry.path, seen.st_size)
                for entry in os.scandir(self._folder)
                if entry.name.startswith("sse_") and entry.name.endswith(".log")
                for seen in [entry.stat(follow_symlinks=False)]
            )
            size = sum(one[2] for one in files)
            excess = len(files) - self._max_files
            for place, (_, path, length) in enumerate(files):
                if place >= excess and size <= self._max_bytes:
                    return
                Path(path).unlink(missing_ok=True)
                size -= length
        except OSError as error:  # another worker may be deleting files too
            if not isinstance(error, FileNotFoundError):
                self._fail(error)

    def _fail(self, error: Exception) -> None:
        """Log the failure once, not for every chunk."""
        if not self._failed:
            self._failed = True
            self._on_failure(f"{self._folder}: {getattr(error, 'strerror', None) or error}")


class StreamLog:
    """One file. Bytes are on disk within a second, or the file is marked incomplete.

    Up to 64 KiB are held back while they might contain the beginning of an echoed key.
    """

    __slots__ = (
        "_deaf",
        "_echoes",
        "_file",
        "_header",
        "_owner",
        "_pieces",
        "_received",
        "_size",
        "_whole",
        "_word",
        "ended",
    )

    def __init__(
        self,
        owner: StreamLogs,
        record: RequestRecord,
        sent: Sent,
        forms: tuple[Form, Form],
        max_answer_bytes: int = MAX_ANSWER_BYTES,
        secrets: Collection[str] = (),
    ) -> None:
        self._owner, self._echoes = owner, EchoMasker(secrets)
        self._header = (record, sent, forms, max_answer_bytes, time.time())
        self._pieces: deque[bytes] = deque()
        self._received = self._size = 0
        self._deaf, self._whole = False, True
        self._file: int | None = None
        self._word = StreamOutcome().word
        self.ended = False

    def write(self, data: bytes) -> None:
        """Queue more bytes. Returns at once."""
        if self._deaf:
            return
        owner = self._owner
        self._received += len(data)
        if self._received > owner.max_file_bytes or owner.queued - owner.settled > owner.max_held:
            self._deaf, self._whole = True, False
            return
        owner.queued += len(data)
        self._pieces.append(data)
        if owner.queued - owner.settled > PIECE:
            owner.wake()

    def close(self, outcome: str) -> None:
        """End of the stream."""
        self._deaf, self._word = True, outcome
        self.ended = True
        self._owner.wake()

    # -- in the thread ---------------------------------------------------------------

    def flush(self, folder: Path, *, ended: bool) -> None:
        if self._file is None:
            self._file = self._create(folder)
        taken = b"".join(self._take())
        try:
            data = self._echoes.feed(taken, last=ended)
            _write_all(self._file, data)
        finally:
            self._owner.settled += len(taken)
        self._size += len(data)
        if ended:
            outcome = StreamOutcome(self._word, self._size, self._whole)
            os.pwrite(self._file, render_outcome(outcome), OUTCOME_AT)
            os.close(self._file)
            self._file = None

    def give_up(self) -> None:
        """Stop writing: the disk does not accept the data."""
        self._deaf, self._whole = True, False
        self._owner.settled += sum(map(len, self._take()))
        if self._file is not None and self.ended:
            os.close(self._file)
            self._file = None

    def _take(self) -> list[bytes]:
        taken: list[bytes] = []
        while self._pieces:
            taken.append(self._pieces.popleft())
        return taken

    def _create(self, folder: Path) -> int:
        record, sent, (input_format, output_format), max_answer_bytes, began = self._header
        request_id = without_secrets(record.request_id)  # clients can choose the id
        moment = datetime.fromtimestamp(began).astimezone()
        stem = f"sse_{moment:%Y-%m-%d_%H-%M-%S}_{_UNSAFE.sub('-', request_id)[:64] or 'request'}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        number = 1
        while True:
            name = f"{stem}.log" if number == 1 else f"{stem}-{number}.log"
            try:
                file = os.open(folder / name, flags, 0o600)
                break
            except FileExistsError:  # a retried request has several streams
                number += 1
        header = StreamHeader(
            request_id=request_id,
            time=datetime.fromtimestamp(began, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            client=without_secrets(record.client),
            provider=record.provider,
            host=sent.profile.host,
            model=without_secrets(record.model),
            dialect=sent.profile.dialect,
            client_dialect=record.dialect,
            asked_model=without_secrets(record.requested_model),
            input_format=input_format,
            output_format=output_format,
            reply_id=sent.plan.reply.id,
            created=sent.plan.reply.created,
            max_answer_bytes=max_answer_bytes,
            options=msgspec.to_builtins(sent.plan.options),
            grammar=sent.profile.grammar,
            hides_reasoning=sent.plan.hides_reasoning,
            visible_limit=sent.plan.visible_limit if sent.plan.hides_reasoning else None,
            changes=tuple(msgspec.convert(without_secrets(msgspec.to_builtins(sent.changes)), list[Change])),
            request=without_secrets(sent.body),
        )
        try:
            _write_all(file, render_header(header))
        except BaseException:
            os.close(file)
            raise
        return file


def _write_all(file: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(file, rest) :]


def _log_failure(problem: str) -> None:
    from moonshim.gateway.observe import logs

    logs.event("stream_log_failed", level="error", problem=problem)
