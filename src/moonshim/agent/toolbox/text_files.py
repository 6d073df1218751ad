"""The bytes of a file <-> its text, with its encoding, byte order mark and line endings."""

from __future__ import annotations

import codecs
import contextlib
import os
import stat
import uuid
from pathlib import Path
from typing import Final

from msgspec import Struct

from moonshim.agent.tools import ToolFailed

__all__ = ["LARGEST", "LOOKED_AT", "TextFile", "looks_binary", "read_text_file", "write_bytes"]

LARGEST: Final = 10 * 2**20
"""Maximum size of a file that is edited, or read whole."""
LOOKED_AT: Final = 8192
_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
"""Longer marks first: that of UTF-32 starts with that of UTF-16."""


class TextFile(Struct, frozen=True):
    """A text and how it is encoded in its file: what is not changed stays the same, to the byte."""

    text: str
    encoding: str = "utf-8"
    mark: bytes = b""
    """The byte order mark at the start of the file."""

    @property
    def line_end(self) -> str:
        return "\r\n" if "\r\n" in self.text else "\n"

    @property
    def is_crlf(self) -> bool:
        """Whether every line ends with CRLF; in a file with both kinds, the intended one is unknown."""
        return "\r\n" in self.text and self.text.count("\n") == self.text.count("\r\n")

    def encode(self, text: str) -> bytes:
        try:
            return self.mark + text.encode(self.encoding)
        except UnicodeEncodeError as error:
            raise ToolFailed(f"Error: the text cannot be encoded in {self.encoding}: {error.reason}.") from error


def looks_binary(data: bytes) -> bool:
    """Whether this is binary data, by its first bytes."""
    return b"\0" in data[:LOOKED_AT] and not any(data.startswith(mark) for mark, _ in _MARKS)


def read_text_file(path: Path, shown: str) -> TextFile:
    """Read a file that is small enough to be read whole."""
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST + 1)
    except OSError as error:
        raise ToolFailed(f"Error: cannot read {shown}: {error.strerror}.") from error
    if len(data) > LARGEST:
        raise ToolFailed(f"Error: {shown} is larger than {LARGEST // 2**20} MB.")
    if looks_binary(data):
        raise ToolFailed(f"Error: {shown} is a binary file ({len(data)} bytes).")
    mark, encoding = next((row for row in _MARKS if data.startswith(row[0])), (b"", "utf-8"))
    try:
        return TextFile(data[len(mark) :].decode(encoding), encoding, mark)
    except UnicodeDecodeError:
        # Every byte is a character in Latin-1: nothing is lost when it is written back.
        return TextFile(data.decode("latin-1"), "latin-1")


def write_bytes(path: Path, data: bytes, shown: str) -> None:
    """Replace the whole file atomically, with the permissions of the old one."""
    # Without the name of the file in it, which may have the maximum length already.
    beside = path.with_name(f".moonshim.{uuid.uuid4().hex[:12]}.tmp")
    try:
        try:
            mode = stat.S_IMODE(path.stat().st_mode)
        except FileNotFoundError:
            mode = None
            path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            if mode is not None:
                beside.chmod(mode)
            beside.replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                beside.unlink()
            raise
    except OSError as error:
        raise ToolFailed(f"Error: cannot write {shown}: {error.strerror}.") from error
