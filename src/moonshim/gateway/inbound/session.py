"""A request -> the session that it belongs to, for the usage books: the client's own id, or one of the conversation.

Ids of conversations are digests of text. They are keyed with the gateway's secret and the tenant: nobody can find a
text by trying, or see that two tenants have the same prompt.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import blake2b
from typing import Final

from moonshim.engine.hosts.errors.body import mask_secrets
from moonshim.engine.values.conversation import Request, Text
from moonshim.engine.wire.json_codec import decode_object

__all__ = ["session_key", "session_of"]

_HEADERS: Final = (
    "x-claude-code-session-id",
    "session_id",  # Codex, and with a hyphen in later versions
    "session-id",
    "x-qwen-code-session-id",
    "x-session-id",  # opencode
    "x-session-affinity",
    "x-opencode-session",
)
_NAMES: Final = frozenset(_HEADERS)
_USUAL: Final = re.compile(r"[!-~]{1,64}", re.ASCII)
_IN_USER: Final = "_session_"
"""Claude Code up to 2.1 sends `user_…_account_…_session_…` in `metadata.user_id`; later versions send JSON there."""
_FIRST_CHARACTERS: Final = 2048


def session_key(secret: bytes) -> bytes:
    """The key of a gateway's session ids."""
    return blake2b(secret, digest_size=32, person=b"moonshim session").digest()


def session_of(headers: Mapping[str, str], request: Request, key: bytes, tenant: str) -> str:
    """At most 64 printable ASCII characters. Tenants share only ids that their clients chose.

    >>> key, request = session_key(b"secret"), Request(model="k3", cache_key="c 1")
    >>> session_of({"x-session-id": "ses_1"}, request, key, "key:ci"), session_of({}, request, key, "key:ci")
    ('ses_1', 'id-a66bafdc8c293108')
    >>> session_of({}, Request(model="k3", user="user_1_account__session_0b2c"), key, "key:ci")
    '0b2c'
    """
    own = request.cache_key
    if not own and request.user:
        own = _session_in_user(request.user)
    if not _NAMES.isdisjoint(headers):
        own = headers[next(name for name in _HEADERS if name in headers)] or own
    if own:
        return own if _USUAL.fullmatch(own) and mask_secrets(own) == own else f"id-{_digest(key, tenant, own)}"
    text = ""
    for message in request.messages:
        if message.role == "user":
            text = "\n".join([part.text for part in message.parts if isinstance(part, Text)])
            break
    # Its beginning and its length: a long text should not cost much here.
    return f"conversation-{_digest(key, tenant, f'{request.user} {len(text)} {text[:_FIRST_CHARACTERS]}')}"


def _session_in_user(user: str) -> str | None:
    if user.startswith("{"):
        session = (decode_object(user[:_FIRST_CHARACTERS].encode("utf-8", "replace")) or {}).get("session_id")
        return session if isinstance(session, str) else None
    return user.rpartition(_IN_USER)[2] if _IN_USER in user else None


def _digest(key: bytes, tenant: str, text: str) -> str:
    content = f"{len(tenant)} {tenant} {text}".encode("utf-8", "surrogatepass")
    return blake2b(content, digest_size=8, key=key).hexdigest()
