"""Recorded responses of a host -> a server on this machine that replays them byte for byte."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import Struct

from moonshim.errors import InvalidInput
from moonshim.http_server.server import EmbeddedServer, serve_inside
from moonshim.http_server.threads import in_thread

__all__ = ["RecordedHost", "RecordedResponse"]

_EVENT_END: Final = re.compile(rb"(?<=\n\n)|(?<=\r\n\r\n)|(?<=\r\r)")
_NOT_LEFT: Final = "all recorded responses have been replayed"
_BODY_LIMIT: Final = 64 * 1024 * 1024


class RecordedResponse(Struct, frozen=True, kw_only=True):
    """A recorded response: the body as a host sent it, with its status and headers."""

    body: bytes
    """The raw body."""
    status: int = 200
    """The HTTP status."""
    headers: Mapping[str, str] = {}
    """The response headers. Without a `content-type`, it is derived from the body: SSE, NDJSON or JSON."""


AnyRecording: TypeAlias = RecordedResponse | bytes | str | Path


class RecordedHost:
    """A local server that answers every POST request with the next recorded response, whatever the request contains.

    Use it in `async with`, or in `with host.running()` if there is no event loop.
    """

    def __init__(self, *recordings: AnyRecording, chunk_size: int | None = None, repeat: bool = False) -> None:
        """Prepare the recordings. The server starts with the `with` statement.

        Args:
            *recordings: The responses, in order: a `RecordedResponse`, a body as bytes, or the path of a file with the
                body.
            chunk_size: The number of bytes to send at once; by default one event (SSE) or line (NDJSON) at a time.
            repeat: Send the last response for all further requests. Otherwise they get an error (500) that is marked
                as not retryable.

        Raises:
            InvalidInput: There is no recording, one has the wrong type, or `chunk_size` is less than 1.
        """
        if not recordings:
            raise InvalidInput("RecordedHost needs at least one recording", field="recordings")
        if chunk_size is not None and chunk_size < 1:
            raise InvalidInput("chunk_size must be at least 1", field="chunk_size")
        self._responses = deque(_read(recording) for recording in recordings)
        self._chunk_size, self._repeat = chunk_size, repeat
        self._server: EmbeddedServer | None = None
        self.requests: list[dict[str, Any]] = []
        """The JSON bodies of the requests so far, the latest last."""

    @property
    def url(self) -> str:
        """The URL of the server, without a path: `http://127.0.0.1:41234`.

        Raises:
            RuntimeError: The server is not running.
        """
        if self._server is None:
            raise RuntimeError("the host is not running; use it in a `with` statement")
        return self._server.url

    async def __aenter__(self) -> RecordedHost:
        self._server = await serve_inside(self._app)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        server, self._server = self._server, None
        if server is not None:
            await server.close()

    def running(self) -> AbstractContextManager[RecordedHost]:
        """Run the server in its own thread, for code without an event loop: `with host.running():`."""
        return in_thread(self, "moonshim-recorded-host")

    async def _app(self, scope: Any, receive: Any, send: Any) -> None:
        body = bytearray()
        while True:
            message = await receive()
            if message["type"] != "http.request":
                return
            body += message.get("body", b"")
            if len(body) > _BODY_LIMIT or not message.get("more_body"):
                break
        is_post = scope["method"] == "POST"
        response = (
            self._next(body) if is_post else _problem(405, f"only POST requests are answered, not {scope['method']}")
        )
        headers = {"content-type": _content_type(response.body)}
        headers |= {name.lower(): value for name, value in response.headers.items()}
        for name in ("content-length", "transfer-encoding", "content-encoding", "connection"):
            headers.pop(name, None)  # they belong to the recorded connection
        raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": response.status, "headers": raw})
        for piece in _pieces(response.body, self._chunk_size):
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    def _next(self, body: bytearray) -> RecordedResponse:
        try:
            self.requests.append(msgspec.json.decode(body, type=dict[str, Any]))
        except msgspec.MsgspecError as error:
            return _problem(400, f"the request is not a JSON object: {error}")
        if not self._responses:
            return _problem(500, _NOT_LEFT)
        if self._repeat and len(self._responses) == 1:
            return self._responses[0]
        return self._responses.popleft()


def _read(recording: object) -> RecordedResponse:
    match recording:
        case RecordedResponse():
            return recording
        case bytes():
            return RecordedResponse(body=recording)
        case str() | Path():
            return RecordedResponse(body=Path(recording).read_bytes())
        case _:
            kind = type(recording).__name__
            raise InvalidInput(
                f"a recording must be a RecordedResponse, bytes or a path, not {kind}", field="recordings"
            )


def _problem(status: int, message: str) -> RecordedResponse:
    error = {"error": {"message": message, "type": "recorded_host", "code": "recorded_host"}}
    return RecordedResponse(body=msgspec.json.encode(error), status=status, headers={"x-should-retry": "false"})


def _content_type(body: bytes) -> str:
    if not body.lstrip().startswith(b"{"):
        return "text/event-stream; charset=utf-8"
    try:
        msgspec.json.decode(body)
    except msgspec.MsgspecError:
        return "application/x-ndjson"
    return "application/json"


def _pieces(body: bytes, size: int | None) -> Iterator[bytes]:
    if size is not None:
        yield from (body[start : start + size] for start in range(0, len(body), size))
    elif body.lstrip().startswith(b"{"):
        yield from body.splitlines(keepends=True)
    else:
        yield from filter(None, _EVENT_END.split(body))
