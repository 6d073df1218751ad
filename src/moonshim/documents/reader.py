"""A PDF -> its text and images, extracted by a process with limits, which a hostile file cannot leave.

A PDF can be made so that reading it takes forever or needs more memory than there is. So `pdf_worker.py` reads it in a
process of its own: with a limit on its memory and CPU time, without the environment, files and sockets of this one. It
is killed when it takes too long. The limits are constants: what a document contains must not depend on settings or
load, because it is a part of the prompt, and hosts cache prompts.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections import OrderedDict
from collections.abc import Iterable
from functools import cache
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import msgspec

from moonshim.engine.values.conversation import Media
from moonshim.engine.values.documents import ExtractedDocument

__all__ = ["MAX_BYTES", "MAX_DOCUMENTS", "DocumentReader", "can_read_pdf"]

MAX_BYTES: Final = 32 * 1024 * 1024
"""Size of a document: what the APIs of Anthropic and OpenAI accept in one request."""
MAX_DOCUMENTS: Final = 20
"""Documents that are read of one conversation, counted from its start."""
WALL_SECONDS: Final = 60.0
"""After this the process is killed. It may use less CPU time, so that a busy machine rarely makes a difference."""
CACHE_BYTES: Final = 32 * 1024 * 1024

_ENTRY_BYTES: Final = 1024
"""Counted for every entry of the cache, beside its content."""
_OUTPUT_BYTES: Final = 32 * 1024 * 1024
_WORKER: Final = Path(__file__).with_name("pdf_worker.py")
_ENVIRONMENT: Final = ("SYSTEMROOT", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
"""What a Python may need to start at all."""

_NOT_INSTALLED: Final = ExtractedDocument(
    problem="the package that reads PDF documents is not installed (moonshim[documents])"
)
_TOO_LARGE: Final = ExtractedDocument(problem=f"it is larger than {MAX_BYTES // 1024 // 1024} MiB")
_TOO_MANY: Final = ExtractedDocument(problem=f"only the first {MAX_DOCUMENTS} documents of a conversation are read")
_TOO_SLOW: Final = ExtractedDocument(problem="reading it takes too long")
_NOT_STARTED: Final = ExtractedDocument(problem="the process that reads documents could not be started")


def can_read_pdf() -> bool:
    """Whether the package for it is installed."""
    return _pypdf_folder() is not None


class DocumentReader:
    """Extracts documents, and remembers the results of the last ones: conversations repeat their documents.

    Safe to use from several threads. `read` blocks; call it in a thread if you have an event loop.
    """

    def __init__(self, *, cache_bytes: int = CACHE_BYTES, seconds: float = WALL_SECONDS) -> None:
        self._cache: OrderedDict[bytes, tuple[ExtractedDocument, int]] = OrderedDict()
        self._cache_bytes, self._room, self._seconds = cache_bytes, cache_bytes, seconds
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._closed = False

    def read_all(self, documents: Iterable[Media]) -> dict[str, ExtractedDocument]:
        """What each document contains, by its data."""
        return {media.data or "": self.read(media, number) for number, media in enumerate(documents)}

    def read(self, media: Media, number: int = 0) -> ExtractedDocument:
        """What a document contains; `number` counts the documents of its conversation."""
        data = (media.data or "").encode("ascii", "replace")
        if number >= MAX_DOCUMENTS:
            return _TOO_MANY
        if len(data) * 3 // 4 > MAX_BYTES + 2:
            return _TOO_LARGE
        digest = sha256(data).digest()
        with self._lock:
            if (known := self._cache.get(digest)) is not None:
                self._cache.move_to_end(digest)
                return known[0]
        folder = _pypdf_folder()
        if folder is None:
            return _NOT_INSTALLED
        try:
            found, size = self._run(data, folder)
        except OSError:
            return _NOT_STARTED
        self._remember(digest, found, size)
        return found

    def close(self) -> None:
        """End the processes that are still running."""
        with self._lock:
            self._closed = True
            for process in self._running:
                process.kill()

    def _remember(self, digest: bytes, found: ExtractedDocument, size: int) -> None:
        with self._lock:
            if digest in self._cache or size > self._cache_bytes or self._closed:
                return
            self._cache[digest] = found, size
            self._room -= size
            while self._room < 0:
                _, (_, freed) = self._cache.popitem(last=False)
                self._room += freed

    def _run(self, data: bytes, folder: str) -> tuple[ExtractedDocument, int]:
        """Run the worker once; its result, and how many bytes that takes."""
        environment = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
        with subprocess.Popen(
            [sys.executable, "-IBS", str(_WORKER), folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=Path(folder).anchor,
            env=environment,
            start_new_session=True,  # a Ctrl-C on the terminal of this process is not for it
        ) as process:
            timer = threading.Timer(self._seconds, process.kill)
            timer.daemon = True
            timer.start()
            with self._lock:
                self._running.add(process)
                if self._closed:
                    process.kill()
            try:
                out = _converse(process, data)
            finally:
                process.kill()
                timer.cancel()
                with self._lock:
                    self._running.discard(process)
        try:
            return msgspec.json.decode(out, type=ExtractedDocument), len(out) + _ENTRY_BYTES
        except (msgspec.DecodeError, UnicodeDecodeError):
            # It was killed: by the timer, by the limit on its CPU time, or by the system, which had no memory left.
            return _TOO_SLOW, _ENTRY_BYTES


def _converse(process: subprocess.Popen[bytes], data: bytes) -> bytes:
    """Send the document, and read the result. The worker reads everything before it writes."""
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(data)
        process.stdin.close()
    except BrokenPipeError:
        pass  # it is dead already
    return process.stdout.read(_OUTPUT_BYTES)


@cache
def _pypdf_folder() -> str | None:
    """The folder that has the package, for the worker, which knows only the standard library."""
    found = find_spec("pypdf")
    return None if found is None or found.origin is None else str(Path(found.origin).parent.parent)
