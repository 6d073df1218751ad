"""The agent, the HTTP clients for SDKs and `moonshim explain` read documents as the gateway does."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, Final

import openai

from moonshim.agent import Provider
from moonshim.integrations import async_openai_http_client, openai_http_client
from moonshim.types import Media, Message
from tests.support.command import run_moonshim
from tests.support.gateway.counting_host import streaming
from tests.support.gateway.hosts import Host, run
from tests.support.pdf_files import as_base64, text_pdf

PDF: Final = as_base64(text_pdf("Revenue grew."))
SHOWN: Final = "# a.pdf\n\n[Page 1 of 1]\nRevenue grew."
FILE: Final[Any] = {"type": "file", "file": {"filename": "a.pdf", "file_data": f"data:application/pdf;base64,{PDF}"}}
MESSAGES: Final[Any] = [{"role": "user", "content": [FILE]}]


def test_the_agent_and_the_clients_for_sdks() -> None:
    async def test() -> None:
        async with Host(streaming("Good.")) as host:
            media = Media("file", data=PDF, media_type="application/pdf", name="a.pdf")
            async with Provider(f"{host.url}/v1", model="kimi-k2.5") as provider:
                await provider.complete([Message("user", (media,))])
            url = f"{host.url}/v1"
            async with openai.AsyncOpenAI(base_url=url, api_key="k", http_client=async_openai_http_client()) as client:
                await client.chat.completions.create(model="kimi-k2.5", messages=MESSAGES)

            def blocking() -> None:
                with openai.OpenAI(base_url=url, api_key="k", http_client=openai_http_client()) as one:
                    one.chat.completions.create(model="kimi-k2.5", messages=MESSAGES)

            await asyncio.to_thread(blocking)
            shown = [json.loads(asked.body)["messages"][0]["content"] for asked in host.requests]
            assert shown == [SHOWN, [{"type": "text", "text": SHOWN}], [{"type": "text", "text": SHOWN}]]

    run(test())


def test_explain(tmp_path: Path) -> None:
    file = tmp_path / "request.json"
    file.write_text(json.dumps({"model": "kimi-k2.5", "messages": MESSAGES}))
    done = run_moonshim("explain", file, "--host", "moonshot", "--format", "json")
    document = json.loads(done.out)
    assert document["body"]["messages"][0]["content"] == [{"type": "text", "text": SHOWN}]
    assert "document_text" in [change["rule"] for change in document["changes"]]
