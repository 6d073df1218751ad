"""The login of kimi-code on this machine -> the key for its host. Its file is read, never written or refreshed.

kimi-code stores the tokens of each region in its own file below `~/.kimi-code/credentials`, as JSON with
`access_token` and `expires_at` (seconds since 1970), and refreshes them itself while it runs.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import msgspec

from moonshim.config.model import Secret

__all__ = ["KIMI_LOGIN", "LOGIN_HOSTS", "LoginKey", "LoginState", "login_file"]

KIMI_LOGIN: Final = "kimi-login"
"""The value of `api_key_from`."""
LOGIN_HOSTS: Final = {"api.kimi.com": None, "api.kimi.ai": ("https://auth.kimi.ai", "https://api.kimi.ai/coding/v1")}
"""The hosts that a login is for, each with what kimi-code derives the name of its file from; None: the default one."""
_RUN_KIMI: Final = "Run `kimi` once to log in again; kimi-code refreshes its login while it runs."


class _Credentials(msgspec.Struct):
    access_token: str
    expires_at: float = 0.0
    """0: it does not expire."""


class LoginState(msgspec.Struct, frozen=True):
    """What is known about a login, without its tokens."""

    file: Path
    found: bool
    """Whether the file exists and has a token."""
    expires_at: float | None = None
    """Seconds since 1970; None: never."""
    has_expired: bool = False


class LoginKey(Secret):
    """The current access token of a login. The file is read again when it changes."""

    __slots__ = ("_clock", "_credentials", "_path", "_seen")

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        super().__init__("")
        self._path, self._clock = path, clock
        self._seen: tuple[int, int] | None = None
        self._credentials: _Credentials | None = None

    @property
    def problem(self) -> str | None:
        state = self.state
        if not state.found:
            return f"There is no login of kimi-code in {self._path}. {_RUN_KIMI}"
        return f"The login of kimi-code has expired. {_RUN_KIMI}" if state.has_expired else None

    @property
    def state(self) -> LoginState:
        credentials = self._read()
        if credentials is None:
            return LoginState(self._path, found=False)
        expires = credentials.expires_at or None
        has_expired = expires is not None and expires <= self._clock()
        return LoginState(self._path, found=True, expires_at=expires, has_expired=has_expired)

    def reveal(self) -> str:
        credentials = self._read()
        return "" if credentials is None else credentials.access_token

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LoginKey) and other._path == self._path

    def __hash__(self) -> int:
        return hash(self._path)

    def _read(self) -> _Credentials | None:
        try:
            status = self._path.stat()
            seen = (status.st_mtime_ns, status.st_ino)
            if seen != self._seen:
                found = msgspec.json.decode(self._path.read_bytes(), type=_Credentials)
                self._credentials = found if found.access_token.isascii() and found.access_token.isprintable() else None
                self._seen = seen
        except (OSError, msgspec.MsgspecError):
            self._seen = self._credentials = None
        return self._credentials if self._credentials and self._credentials.access_token else None


def login_file(api_base_url: str, environ: Mapping[str, str]) -> Path | None:
    """Where kimi-code stores the login for this address; None if there is no home folder.

    >>> str(login_file("https://api.kimi.com/coding", {"HOME": "/home/me"}))
    '/home/me/.kimi-code/credentials/kimi-code.json'
    >>> login_file("https://api.kimi.ai/coding/v1", {"KIMI_CODE_HOME": "/k"}).name
    'kimi-code-env-0e4f99c69cc27850.json'
    """
    if own := environ.get("KIMI_CODE_HOME"):
        folder = Path(own)
    elif home := environ.get("HOME") or environ.get("USERPROFILE"):
        folder = Path(home) / ".kimi-code"
    else:
        return None
    name = "kimi-code"
    if (scope := LOGIN_HOSTS.get(urlsplit(api_base_url).hostname or "")) is not None:
        text = json.dumps({"oauthHost": scope[0], "baseUrl": scope[1]}, separators=(",", ":"))
        name = f"kimi-code-env-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    return folder / "credentials" / f"{name}.json"
