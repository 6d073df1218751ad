"""An HTTP client of an SDK -> the same client, whose requests and responses are mended.

The SDKs are built on httpx, or on httpx2, its continuation: both have the same names, and a client accepts only the
streams of its own library. So the code here is written once and mixed into the classes of either. It wraps the client's
own transports, which still do their work (proxies, certificates, timeouts, pools).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from functools import cache
from importlib import import_module
from typing import Any, Final, TypeVar

from moonshim.engine.hosts.errors.classify import ERROR_BYTES
from moonshim.errors import InvalidInput, MoonshimError, UpstreamBroke, UpstreamStalled
from moonshim.integrations.exchange import ClientExchange, ClientState, ErrorReply, Route, render_error, route_of

__all__ = ["mend_client"]

_LIBRARIES: Final = ("httpx", "httpx2")
_OF_THE_BODY: Final = (b"content-length", b"transfer-encoding")
Client = TypeVar("Client")


def mend_client(client: Client, state: ClientState) -> Client:
    """The given client: from now on its requests are prepared, and its responses mended."""
    library = next((name for name in map(_library_of, type(client).__mro__) if name in _LIBRARIES), None)
    if library is None:
        raise InvalidInput(f"client must be an httpx or httpx2 client, not {type(client).__name__}", field="client")
    http: Any = import_module(library)
    if isinstance(client, http.AsyncClient):
        kind = _mix_in(MendingAsyncTransport, http.AsyncBaseTransport)
    else:
        kind = _mix_in(MendingTransport, http.BaseTransport)
    held: Any = client  # its transports have no public name
    mounts = held._mounts.items()
    held._mounts = {at: None if inner is None else kind(http, inner, state) for at, inner in mounts}
    held._transport = kind(http, held._transport, state)
    return client


def _library_of(kind: type) -> str:
    return kind.__module__.partition(".")[0]


@cache
def _mix_in(ours: type, theirs: type) -> Any:
    """Our class combined with theirs, which is known only at run time."""
    return type(ours.__name__, (ours, theirs), {})


# --- one response -----------------------------------------------------------------------------------------------


class _MendedResponse:
    """One response for the SDK, mended piece by piece as the host sends it: the part without I/O.

    If the answer is not what the program demands, `send` sends the request of another round, whose response follows;
    so does the response to the same request, if the model's answer to the first one is to blame for a failure.
    """

    def __init__(self, http: Any, exchange: ClientExchange, response: Any, send: Callable[[], Any]) -> None:
        self._http, self._exchange, self._response, self._send = http, exchange, response, send
        self._first = b""
        self._started, self._over = False, False

    def response(self) -> Any:
        """The response for the SDK."""
        headers = self._exchange.headers(self._response.headers.multi_items())
        given: dict[str, Any] = {"stream": self, "extensions": self._response.extensions}
        return self._http.Response(self._response.status_code, headers=headers, **given)

    def _start_response(self) -> None:
        self._exchange.start_response(self._response.headers.get("content-type"))

    def _host_error(self, start: bytes) -> ErrorReply:
        return self._exchange.host_error(self._response.status_code, self._response.headers.multi_items(), start)

    def _feed(self, data: bytes | None) -> bytes:
        """The mended bytes for the SDK; None: there are no more."""
        exchange = self._exchange
        out = b"" if data is None else exchange.feed(data)
        if data is None or exchange.pending:
            # Some hosts leave the connection open after the end of a response: the next round does not wait for them.
            out += exchange.end()
        return self._pass(out, over=data is None)

    def _start_round(self) -> bytes:
        """What comes before the response of the next round; the last bytes, if there is none."""
        out = self._exchange.start_round()
        return self._pass(out, over=self._exchange.is_over)

    def _refuse_round(self, response: Any, start: bytes) -> bytes:
        out = self._exchange.refuse_round(response.status_code, response.headers.multi_items(), start)
        return self._pass(out, over=True)

    @property
    def _wants_retry(self) -> bool:
        """Whether a broken connection changes nothing: all of an answer came that is asked for again."""
        return self._exchange.has_ended and self._exchange.wants_retry

    def _start_retry(self, response: Any) -> None:
        self._response = response
        self._exchange.start_retry(response.headers.get("content-type"))

    def _fail(self, error: Exception) -> bytes:
        """The connection broke: raise the library's own error, or, if the stream has started, report it in the
        stream; unless the response ends well anyway."""
        if not (self._started or self._exchange.ends_well):
            raise error
        broke: MoonshimError = UpstreamBroke("the connection to the host was lost during the response")
        if isinstance(error, self._http.TimeoutException):
            broke = UpstreamStalled("the host stopped sending data (read timeout)")
        return self._pass(self._exchange.fail(broke), over=True)

    def _pass(self, out: bytes, *, over: bool) -> bytes:
        self._started = self._started or bool(out)
        self._over = over and not self._exchange.pending
        return out


class MendedStream(_MendedResponse):
    """The mended bytes of a response. Closing it closes the host's."""

    def open(self) -> ErrorReply | None:
        """Wait for the first piece; a response that is nothing but an error becomes an error response."""
        self._source = self._response.iter_bytes()
        if not self._response.is_success:
            return self._host_error(_read_start(self._source))
        self._start_response()
        self._first = self._piece()
        return self._exchange.stream_error()

    def _piece(self) -> bytes:
        """The next piece; empty at the end."""
        out = b""
        while not out and not self._over:
            try:
                if self._exchange.pending:
                    out = self._play_round()
                    continue
                data = None if self._exchange.is_useless else next(self._source, None)
            except self._http.RequestError as error:
                if not self._wants_retry:
                    return self._fail(error)
                data = None
            if data is not None or not (self._exchange.wants_retry and self._ask_again()):
                out = self._feed(data)
        return out

    def _ask_again(self) -> bool:
        """Whether the host accepted the same request once more: its response follows."""
        try:
            response = self._send()
        except self._http.RequestError:
            return False
        if not response.is_success:
            response.close()
            return False
        self._response.close()
        self._start_retry(response)
        self._source = response.iter_bytes()
        return True

    def _play_round(self) -> bytes:
        out = self._start_round()
        if self._over:
            return out
        self._response.close()
        response = self._send()
        if not response.is_success:
            try:
                return out + self._refuse_round(response, _read_start(response.iter_bytes()))
            finally:
                response.close()
        self._response, self._source = response, response.iter_bytes()
        self._start_response()
        return out

    def __iter__(self) -> Iterator[bytes]:
        out = self._first
        while out:
            yield out
            out = self._piece()

    def close(self) -> None:
        self._response.close()


def _read_start(source: Iterator[bytes]) -> bytes:
    """As much of the body of an error as is read."""
    start = b""
    while len(start) < ERROR_BYTES and (data := next(source, b"")):
        start += data
    return start


class MendedAsyncStream(_MendedResponse):
    """The async version."""

    async def open(self) -> ErrorReply | None:
        self._source = self._response.aiter_bytes()
        if not self._response.is_success:
            return self._host_error(await _read_start_async(self._source))
        self._start_response()
        self._first = await self._piece()
        return self._exchange.stream_error()

    async def _piece(self) -> bytes:
        out = b""
        while not out and not self._over:
            try:
                if self._exchange.pending:
                    out = await self._play_round()
                    continue
                data = None if self._exchange.is_useless else await anext(self._source, None)
            except self._http.RequestError as error:
                if not self._wants_retry:
                    return self._fail(error)
                data = None
            if data is not None or not (self._exchange.wants_retry and await self._ask_again()):
                out = self._feed(data)
        return out

    async def _ask_again(self) -> bool:
        try:
            response = await self._send()
        except self._http.RequestError:
            return False
        if not response.is_success:
            await response.aclose()
            return False
        await self._response.aclose()
        self._start_retry(response)
        self._source = response.aiter_bytes()
        return True

    async def _play_round(self) -> bytes:
        out = self._start_round()
        if self._over:
            return out
        await self._response.aclose()
        response = await self._send()
        if not response.is_success:
            try:
                return out + self._refuse_round(response, await _read_start_async(response.aiter_bytes()))
            finally:
                await response.aclose()
        self._response, self._source = response, response.aiter_bytes()
        self._start_response()
        return out

    async def __aiter__(self) -> AsyncIterator[bytes]:
        out = self._first
        while out:
            yield out
            out = await self._piece()

    async def aclose(self) -> None:
        await self._response.aclose()


async def _read_start_async(source: AsyncIterator[bytes]) -> bytes:
    start = b""
    while len(start) < ERROR_BYTES and (data := await anext(source, b"")):
        start += data
    return start


# --- one client -------------------------------------------------------------------------------------------------


class _Mending:
    """Wraps a transport: the part without I/O."""

    def __init__(self, http: Any, inner: Any, state: ClientState) -> None:
        self._http, self._inner, self._state = http, inner, state

    def _prepare(self, request: Any, route: Route) -> ClientExchange | ErrorReply | None:
        """What to send for a request whose body was read; None: send it unchanged."""
        plain = request.url.copy_with(query=None, fragment=None, username=None, password=None)
        try:
            query = request.url.query.decode("ascii", "replace")
            return self._state.begin(route, str(plain), request.headers, request.content, query)
        except MoonshimError as error:
            return render_error(error, route.dialect)

    def _build_request(self, request: Any, route: Route, exchange: ClientExchange) -> Any:
        """The request for the host. The SDK's own stays unchanged: it may be sent again."""
        url = request.url
        if route.asked_at != route.end:
            url = url.copy_with(path=url.path.removesuffix(route.end) + route.asked_at)
        headers = [(name, value) for name, value in request.headers.raw if name.lower() not in _OF_THE_BODY]
        headers = exchange.request_headers(headers)
        return self._http.Request("POST", url, headers=headers, content=exchange.body, extensions=request.extensions)

    def _elsewhere(self, response: Any, route: Route) -> Any:
        """A redirect, which the client follows with the request that the SDK made: at the path of that one."""
        there, question, query = response.headers["location"].partition("?")
        if route.asked_at != route.end and there.endswith(route.asked_at):
            response.headers["location"] = f"{there.removesuffix(route.asked_at)}{route.end}{question}{query}"
        return response

    def _reply(self, reply: ErrorReply) -> Any:
        return self._http.Response(reply.status, headers=reply.headers, content=reply.body)


class MendingTransport(_Mending):
    """Mends requests and responses for Kimi models; everything else passes through unchanged."""

    def handle_request(self, request: Any) -> Any:
        route = route_of(request.method, request.url.path)
        if route is None:
            return self._inner.handle_request(request)
        request.read()
        exchange = self._prepare(request, route)
        if exchange is None:
            return self._inner.handle_request(request)
        if isinstance(exchange, ErrorReply):
            return self._reply(exchange)
        exchange.read_documents()

        def send() -> Any:
            return self._inner.handle_request(self._build_request(request, route, exchange))

        while True:
            response = send()
            if response.has_redirect_location:
                return self._elsewhere(response, route)
            stream = _mix_in(MendedStream, self._http.SyncByteStream)(self._http, exchange, response, send)
            try:
                failed = stream.open()
            except BaseException:
                stream.close()
                raise
            if failed is None:
                return stream.response()
            stream.close()
            if not failed.sends_again:
                return self._reply(failed)

    def close(self) -> None:
        self._inner.close()

    def __enter__(self) -> Any:
        self._inner.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._inner.__exit__(*error)


class MendingAsyncTransport(_Mending):
    """The async version."""

    async def handle_async_request(self, request: Any) -> Any:
        route = route_of(request.method, request.url.path)
        if route is None:
            return await self._inner.handle_async_request(request)
        await request.aread()
        exchange = self._prepare(request, route)
        if exchange is None:
            return await self._inner.handle_async_request(request)
        if isinstance(exchange, ErrorReply):
            return self._reply(exchange)
        if exchange.has_documents:
            from anyio import to_thread  # httpx is built on it, and works with every event loop that it knows

            await to_thread.run_sync(exchange.read_documents)

        async def send() -> Any:
            return await self._inner.handle_async_request(self._build_request(request, route, exchange))

        while True:
            response = await send()
            if response.has_redirect_location:
                return self._elsewhere(response, route)
            stream = _mix_in(MendedAsyncStream, self._http.AsyncByteStream)(self._http, exchange, response, send)
            try:
                failed = await stream.open()
            except BaseException:
                await stream.aclose()
                raise
            if failed is None:
                return stream.response()
            await stream.aclose()
            if not failed.sends_again:
                return self._reply(failed)

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def __aenter__(self) -> Any:
        await self._inner.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._inner.__aexit__(*error)
