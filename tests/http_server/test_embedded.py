"""An application that is served beside whatever else runs in a loop."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from moonshim.http_server.server import answers, serve_inside
from moonshim.http_server.sockets import BindError


async def healthy(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


def test_it_answers_as_soon_as_it_is_there_and_no_longer_when_it_is_closed() -> None:
    async def main() -> None:
        inside = await serve_inside(healthy)
        host, port = inside.url.removeprefix("http://").split(":")
        assert await answers(host, int(port))
        with pytest.raises(BindError, match="in use"):
            await serve_inside(healthy, port=int(port))
        await inside.close()
        assert not await answers(host, int(port))

    asyncio.run(main())
