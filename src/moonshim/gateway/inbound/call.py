"""One client request, as far as the routes have read it: the input of an exchange."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from moonshim.config import GatewayKey
from moonshim.engine.dialects.protocol import Dialect
from moonshim.engine.wire.json_codec import encode
from moonshim.errors import MoonshimError
from moonshim.gateway.client_stream import ClientStream
from moonshim.gateway.inbound.admission import LargeWork, Reservation, large_contents
from moonshim.gateway.inbound.large_json import encode_large_json
from moonshim.gateway.inspector.trace import ExchangeTrace
from moonshim.gateway.observe.record import RequestRecord

__all__ = ["LARGE_BYTES", "ClientCall"]

T = TypeVar("T")

LARGE_BYTES: Final = 256 * 1024
"""Above this size, work on a body would delay other requests noticeably, so a thread does it."""


class ClientCall:
    """One client request: its sender, its body, its dialect, and the stream back to the client."""

    __slots__ = (
        "_contents",
        "body",
        "client_stream",
        "dialect",
        "headers",
        "held",
        "keeps_response",
        "key",
        "query",
        "record",
        "tenant",
        "threads",
        "tokens",
        "trace",
    )

    def __init__(
        self,
        *,
        dialect: Dialect,
        headers: Mapping[str, str],
        query: Mapping[str, str],
        record: RequestRecord,
        client_stream: ClientStream,
        key: GatewayKey | None,
        tenant: str,
        held: Reservation,
        threads: LargeWork,
        trace: ExchangeTrace | None = None,
    ) -> None:
        self.dialect = dialect
        self.headers = headers
        """By lower-case names."""
        self.body: dict[str, Any] = {}
        self.key = key
        self.query = query
        """The query string."""
        self.record = record
        self.client_stream = client_stream
        self.tenant = tenant
        """The tenant whose state this request reads and writes: tenants never see each other's."""
        self.held = held
        """The memory that its body, and the items that it references, take up."""
        self.threads = threads
        self.trace = trace
        """Where the inspector records it; None: it does not."""
        self._contents: list[list[Any]] = []
        """The contents of results of work on a large body."""
        self.tokens = 0
        """What the response is charged to its key."""
        self.keeps_response = False
        """The whole response is to be stored, for clients that continue from it (Responses)."""

    @property
    def is_large(self) -> bool:
        """Whether work on its body would delay other requests."""
        return self.held.size > LARGE_BYTES

    async def run_work(self, work: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Run work on the body: directly when it is small, in a thread when it is large."""
        return await self.in_thread(work, *args, **kwargs) if self.is_large else work(*args, **kwargs)

    async def encode_json(self, value: Any) -> bytes:
        """A value as large as the body, as JSON."""
        return await self.in_thread(encode_large_json, value) if self.is_large else encode(value)

    async def grow(self, size: int) -> None:
        """Reserve this many more bytes, for items that the request references in the store."""
        await self.held.grow(size)

    async def in_thread(self, work: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        return await self.threads.run(self.tenant, self.held.limits, self._run_and_track, work, *args, **kwargs)

    def _run_and_track(self, work: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        try:
            result = work(*args, **kwargs)
        except MoonshimError as error:
            error.__context__ = None
            raise error.with_traceback(None)  # noqa: B904  (its frames hold everything that the work has made so far)
        self._contents += large_contents(result)
        return result

    def release(self) -> None:
        """Release what the request holds; a large body is freed in steps."""
        self.body = {}
        if self._contents:
            self.threads.free(self._contents, then=self.held.release)
        else:
            self.held.release()

    @property
    def request_id(self) -> str:
        return self.record.request_id
