"""What a client has to hand back to us unread -> an opaque token, and back: authenticated, not secret.

Anthropic clients echo the signature of a thinking block, Responses clients the
`encrypted_content` of a reasoning item. What we put there is

    moonshim1.<key id>.<payload, base64url of JSON>.<tag, base64url of HMAC-SHA256>

so that we know our own again, notice when it was altered, and never hand it to a host
that would check it. Whoever holds the token can read the payload: it repeats only what the
client was shown, and what the host said to hand back.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
from typing import Any, Final

import msgspec
from msgspec import Struct

from moonshim.errors import InvalidInput

__all__ = ["PREFIX", "SealBroken", "SealUnknown", "Sealed", "Sealer", "is_sealed"]

PREFIX: Final = "moonshim1."
_FIELDS: Final = frozenset({None, "reasoning_content", "reasoning", "reasoning_details"})
_UNKEYED: Final = b"moonshim without a secret: the tag is only a check sum"


class Sealed(Struct, frozen=True, omit_defaults=True):
    """The payload of a token: what the crossing of a piece of reasoning would lose."""

    text: str | None = None
    """The reasoning itself, where the client's dialect may drop it; None where the client shows it anyway."""
    signature: str | None = None
    """The host's own signature."""
    details: tuple[dict[str, Any], ...] = ()
    field: str | None = None


class SealBroken(InvalidInput):
    """A token of ours, under our own key, was altered."""

    code = "seal_broken"


class SealUnknown(Exception):
    """A token of ours under a key that we do not have: to be dropped, and reported."""


def is_sealed(token: object) -> bool:
    """Whether a signature or encrypted content was made by us, under whatever key.

    >>> is_sealed("moonshim1.ab.cd.ef"), is_sealed("EqoBCkgIARAB")
    (True, False)
    """
    return isinstance(token, str) and token.startswith(PREFIX)


class Sealer:
    """Makes and reads tokens under one secret (without one the tag is only a check sum).

    >>> sealer = Sealer(b"secret")
    >>> sealer.open(sealer.seal(Sealed(signature="abc"))).signature
    'abc'
    """

    __slots__ = ("_key", "key_id")

    def __init__(self, secret: bytes | None = None) -> None:
        if secret is not None and not isinstance(secret, bytes):
            raise InvalidInput(f"secret must be bytes, not {type(secret).__name__}", field="secret")
        secret = _UNKEYED if secret is None else secret
        self._key = hashlib.sha256(b"moonshim seal key\0" + secret).digest()
        self.key_id: str = hashlib.sha256(b"moonshim key id\0" + secret).hexdigest()[:8]

    def seal(self, payload: Sealed) -> str:
        """The token for a payload: the same for the same."""
        try:
            data = msgspec.json.encode(payload)
        except UnicodeEncodeError:  # half a character
            data = json.dumps(msgspec.to_builtins(payload)).encode()
        body = _to_text(data)
        return f"{PREFIX}{self.key_id}.{body}.{self._tag(body)}"

    def open(self, token: str, *, field: str | None = None) -> Sealed:
        """The payload of a token. `SealUnknown`: not our key; `SealBroken` (a 400): ours, but altered."""
        parts = token.removeprefix(PREFIX).split(".")
        if len(parts) == 3 and parts[0] != self.key_id:
            raise SealUnknown(parts[0])
        if (
            len(parts) != 3
            or not token.isascii()
            or not hmac.compare_digest(parts[2].encode(), self._tag(parts[1]).encode())
        ):
            raise SealBroken("this token was issued by Moonshim and has been altered", field=field)
        try:
            sealed = msgspec.json.decode(_from_text(parts[1]), type=Sealed)
        except (msgspec.DecodeError, binascii.Error, ValueError, RecursionError):
            raise SealBroken("this token was issued by Moonshim and cannot be read", field=field) from None
        if sealed.field not in _FIELDS:
            raise SealBroken("this token was issued by Moonshim and names no field of reasoning", field=field)
        return sealed

    def _tag(self, body: str) -> str:
        return _to_text(hmac.new(self._key, f"{self.key_id}.{body}".encode(), hashlib.sha256).digest()[:16])


def _to_text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _from_text(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
