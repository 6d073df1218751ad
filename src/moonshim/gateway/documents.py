"""Documents of a request -> what a host without files gets instead of them, a few at a time and fairly."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from moonshim.config import Target, profile_of
from moonshim.documents import DocumentReader
from moonshim.engine.prepare import ParsedRequest
from moonshim.gateway.inbound.admission import TenantThreads
from moonshim.gateway.inbound.call import ClientCall

__all__ = ["DocumentExtraction"]

AT_ONCE: Final = 2
"""Processes that read documents."""


class DocumentExtraction:
    """Reads the documents of requests. Other requests, and those of other tenants, are not held up."""

    def __init__(self) -> None:
        busy = "The gateway is busy with the documents of other requests. Retry in a moment."
        self._threads = TenantThreads(AT_ONCE, "documents", when_busy=busy)
        self._reader = DocumentReader()

    async def read(self, call: ClientCall, parsed: ParsedRequest, targets: Iterable[Target] | None = None) -> None:
        """Read the documents of the request, one after the other: each waits for its turn.

        Nothing is read if all of `targets` accept files.
        """
        documents = await call.run_work(parsed.documents)
        if documents and (targets is None or not all(map(_accepts_files, targets))):
            parsed.extracted = {
                media.data or "": await self._threads.run(
                    call.tenant, call.held.limits, self._reader.read, media, number
                )
                for number, media in enumerate(documents)
            }

    def close(self) -> None:
        self._threads.close()
        self._reader.close()


def _accepts_files(target: Target) -> bool:
    return "file" in profile_of(target).media
