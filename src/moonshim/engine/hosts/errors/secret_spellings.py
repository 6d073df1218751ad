"""The secrets of a request -> every spelling in which a host may echo them."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Collection, Iterator
from typing import Final

import msgspec

__all__ = ["spellings"]

MIN_SECRET_LENGTH: Final = 6
"""Shorter secrets could be ordinary words of a message."""
_UNRESERVED: Final = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_SCHEMES: Final = frozenset({"bearer", "basic", "token", "apikey", "api-key", "key"})


def spellings(secrets: Collection[str]) -> list[str]:
    """Longest first: one may be part of another.

    >>> spellings(["Bearer ab/cdef"])[-1]
    'ab/cdef'
    >>> spellings(["short"])
    []
    """
    found: set[str] = set()
    for secret in secrets:
        for part in _parts(secret.strip()):
            if len(part) >= MIN_SECRET_LENGTH:
                found.update(_spell(part))
    return sorted(found, key=lambda spelling: (-len(spelling), spelling))


def _parts(secret: str) -> Iterator[str]:
    """The value of a header, the key in it, and the password in that."""
    yield secret
    scheme, _, key = secret.partition(" ")
    key = key.strip()
    if scheme.lower() not in _SCHEMES or not key:
        return
    yield key
    if scheme.lower() == "basic":
        try:
            account = b64decode(key, validate=True).decode()
        except ValueError:
            return
        yield account
        yield account.partition(":")[2]


def _spell(secret: str) -> Iterator[str]:
    yield secret
    data = secret.encode("utf-8", "replace")
    for unchanged in (_UNRESERVED, _UNRESERVED | frozenset(b"/")):  # in a query, and in a path
        yield "".join(chr(byte) if byte in unchanged else f"%{byte:02X}" for byte in data)
    yield msgspec.json.encode(data.decode())[1:-1].decode()
    for plain in (data, data + b":", b":" + data):  # as the user name or the password without the other
        yield b64encode(plain).decode()
