"""Who may see the inspector: everyone on this machine while there are no keys, else holders of a key with the right.

The page shows conversations, so the rules are stricter than for the API: pages of other origins are never allowed, and
a request that came through a proxy is never taken for a local one.
"""

from __future__ import annotations

import hmac
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from hashlib import sha256
from typing import Final

import msgspec

from moonshim.config.model import Config, GatewayKey
from moonshim.errors import Problem, Refused
from moonshim.gateway.inbound.auth import KeyRing
from moonshim.gateway.inbound.origin import check_own_page, is_local

__all__ = ["COOKIE", "RIGHT", "SESSION_SECONDS", "InspectorAccess"]

COOKIE: Final = "moonshim_inspector"
RIGHT: Final = "inspect"
SESSION_SECONDS: Final = 12 * 3600
_PURPOSE: Final = b"inspector session"


class _Session(msgspec.Struct, array_like=True, frozen=True):
    """The content of a cookie. The key's digest in it ends the session when the key is replaced."""

    name: str
    digest: str
    expires: int


class InspectorAccess:
    """Decides for one request. Sessions are signed cookies, so that every worker knows them."""

    def __init__(self, config: Config, secret: bytes, *, bound_to_loopback: bool) -> None:
        self._config, self._bound_to_loopback = config, bound_to_loopback
        self._secret = hmac.digest(secret, _PURPOSE, "sha256")

    @property
    def needs_key(self) -> bool:
        return self._config.needs_keys or not self._bound_to_loopback

    def check(self, headers: Mapping[str, str]) -> None:
        """Raises `Refused`: 401 if a key would help, 403 if the request must not be answered at all."""
        check_own_page(headers)
        if not self.needs_key:
            if not is_local(headers):
                raise _refusal(
                    403,
                    "Without gateway keys, the inspector is served only to this machine: open it as "
                    "http://localhost, not through a proxy. For other access, create a key with "
                    "`moonshim keys new NAME --right inspect`.",
                )
            return
        if not self._config.keys:
            raise _refusal(
                403,
                "The inspector needs a gateway key here. Create one with `moonshim keys new NAME --right inspect`.",
            )
        if not self._is_signed_in(headers):
            raise _refusal(401, "Sign in with a gateway key that has the right `inspect`.")

    def sign_in(self, headers: Mapping[str, str], key: str) -> str:
        """The value of the cookie for this key. Raises `Refused`."""
        check_own_page(headers)
        found = KeyRing(self._config.keys, required=True).identify({"authorization": f"Bearer {key}"})
        assert found is not None
        if RIGHT not in found.rights:
            raise _refusal(
                403,
                f'Key {found.name!r} may not see the inspector. Add rights = ["inspect"] to it in the configuration.',
            )
        session = _Session(found.name, found.digest, int(time.time()) + SESSION_SECONDS)
        content = msgspec.json.encode(session)
        return f"{_b64(content)}.{_b64(self._sign(content))}"

    def _is_signed_in(self, headers: Mapping[str, str]) -> bool:
        session = self._session(headers.get("cookie", ""))
        if session is None or session.expires < time.time():
            return False
        return any(_allows(key, session) for key in self._config.keys)

    def _session(self, cookies: str) -> _Session | None:
        for cookie in cookies.split(";"):
            name, _, value = cookie.strip().partition("=")
            if name != COOKIE:
                continue
            text, _, signature = value.partition(".")
            try:
                content = urlsafe_b64decode(text.encode())
                if hmac.compare_digest(self._sign(content), urlsafe_b64decode(signature.encode())):
                    return msgspec.json.decode(content, type=_Session)
            except (ValueError, msgspec.DecodeError):
                continue
        return None

    def _sign(self, content: bytes) -> bytes:
        return hmac.new(self._secret, content, sha256).digest()


def _allows(key: GatewayKey, session: _Session) -> bool:
    valid = key.expires is None or time.time() < key.expires.timestamp()
    return valid and key.name == session.name and key.digest == session.digest and RIGHT in key.rights


def _b64(data: bytes) -> str:
    return urlsafe_b64encode(data).decode()


def _refusal(status: int, message: str) -> Refused:
    kind = "authentication" if status == 401 else "permission"
    return Refused(Problem(status=status, kind=kind, message=message, code="inspector_refused"))  # type: ignore[arg-type]
