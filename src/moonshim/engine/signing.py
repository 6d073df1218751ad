"""Data that a client must return to us unread <-> an opaque token: authenticated, not encrypted.

Anthropic clients echo the signature of a thinking block, Responses clients the `encrypted_content` of a reasoning item.
We put this token there:

    moonshim1.<key id>.<payload, base64url of JSON>.<tag, base64url of HMAC-SHA256>

It lets us recognize our own tokens, detect changes, and never send one to a host that would validate it. The tag also
covers the kind of token, so signed reasoning is not accepted as a conversation summary. Anyone with the token can read
the payload: it contains only what the client was shown and what the host requires back.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
from typing import Any, Final, Literal, TypeAlias, get_args

import msgspec
from msgspec import Struct

from moonshim.errors import InvalidInput

__all__ = [
    "ALTERED",
    "PREFIX",
    "InvalidSignature",
    "SignedKind",
    "SignedPayload",
    "Signer",
    "UnknownSigningKey",
    "is_signed",
]

SignedKind: TypeAlias = Literal["reasoning", "summary", "search"]
"""What a token is for."""

ALTERED: Final = "this token was issued by Moonshim and has been altered: send it back as received, or remove it"
PREFIX: Final = "moonshim1."
_FIELDS: Final = frozenset({None, "reasoning_content", "reasoning", "reasoning_details"})
_UNKEYED: Final = b"moonshim without a secret: the tag is only a check sum"


class SignedPayload(Struct, frozen=True, omit_defaults=True):
    """The payload of a token: the data that would be lost when reasoning crosses dialects."""

    text: str | None = None
    """The reasoning itself, if the client's dialect may drop it; None if the client shows it anyway."""
    signature: str | None = None
    """The host's own signature."""
    details: tuple[dict[str, Any], ...] = ()
    field: str | None = None


class InvalidSignature(InvalidInput):
    """A token under our own key was altered."""

    code = "seal_broken"


class UnknownSigningKey(Exception):
    """A Moonshim token under another key: it is dropped and reported."""


def is_signed(token: object) -> bool:
    """Whether a signature or encrypted content was created by Moonshim, under any key.

    >>> is_signed("moonshim1.ab.cd.ef"), is_signed("EqoBCkgIARAB")
    (True, False)
    """
    return isinstance(token, str) and token.startswith(PREFIX)


class Signer:
    """Creates and reads tokens under one secret (without one the tag is only a checksum).

    >>> sealer = Signer(b"secret")
    >>> sealer.open(sealer.sign(SignedPayload(signature="abc"))).signature
    'abc'
    """

    __slots__ = ("_keys", "key_id")

    def __init__(self, secret: bytes | None = None) -> None:
        if secret is not None and not isinstance(secret, bytes):
            raise InvalidInput(f"secret must be bytes, not {type(secret).__name__}", field="secret")
        secret = _UNKEYED if secret is None else secret
        self._keys: dict[str, bytes] = {
            kind: hashlib.sha256(f"moonshim {kind} key\0".encode() + secret).digest() for kind in get_args(SignedKind)
        }
        self.key_id: str = hashlib.sha256(b"moonshim key id\0" + secret).hexdigest()[:8]

    def sign(self, payload: SignedPayload, kind: SignedKind = "reasoning") -> str:
        """The token for a payload; deterministic."""
        try:
            data = msgspec.json.encode(payload)
        except UnicodeEncodeError:  # lone surrogate
            data = json.dumps(msgspec.to_builtins(payload)).encode()
        body = _to_text(data)
        return f"{PREFIX}{self.key_id}.{body}.{self._tag(body, kind)}"

    def open(self, token: str, kind: SignedKind = "reasoning", *, field: str | None = None) -> SignedPayload:
        """The payload of a token. Raises `UnknownSigningKey` for another key, `InvalidSignature` (400) if it was
        altered."""
        parts = token.removeprefix(PREFIX).split(".")
        if len(parts) == 3 and parts[0] != self.key_id:
            raise UnknownSigningKey(parts[0])
        made_as = self._kind(parts[1], parts[2]) if len(parts) == 3 and token.isascii() else None
        if made_as is None:
            raise InvalidSignature(ALTERED, field=field)
        if made_as != kind:
            raise InvalidSignature(
                f"this token was issued by Moonshim as {made_as} and cannot be used as {kind}", field=field
            )
        try:
            payload = _decode_payload(_from_text(parts[1]))
        except (msgspec.DecodeError, binascii.Error, ValueError, RecursionError):
            raise InvalidSignature("this token was issued by Moonshim and cannot be read", field=field) from None
        if payload.field not in _FIELDS:
            raise InvalidSignature(
                "this token was issued by Moonshim and names an unknown reasoning field", field=field
            )
        return payload

    def is_for(self, token: object, kind: SignedKind) -> bool:
        """Whether this is our own token, under this key, and was created as this kind."""
        parts = token.removeprefix(PREFIX).split(".") if isinstance(token, str) and is_signed(token) else []
        if len(parts) != 3 or parts[0] != self.key_id or not parts[1].isascii() or not parts[2].isascii():
            return False
        return self._kind(parts[1], parts[2]) == kind

    def _kind(self, body: str, tag: str) -> str | None:
        """The kind that a token was created as; None if the tag does not match."""
        return next((kind for kind in self._keys if hmac.compare_digest(tag, self._tag(body, kind))), None)

    def _tag(self, body: str, kind: str) -> str:
        return _to_text(hmac.new(self._keys[kind], f"{self.key_id}.{body}".encode(), hashlib.sha256).digest()[:16])


def _decode_payload(data: bytes) -> SignedPayload:
    try:
        return msgspec.json.decode(data, type=SignedPayload)
    except msgspec.DecodeError:
        if b"\\ud" not in data:
            raise
        return msgspec.convert(json.loads(data), SignedPayload)  # lone surrogate


def _to_text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _from_text(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
