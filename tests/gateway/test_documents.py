"""PDF files through the gateway: the official packages of each dialect, and files that are made to do harm."""

from __future__ import annotations

import asyncio
import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest

from tests.support.gateway.counting_host import streaming
from tests.support.gateway.hosts import Host, run
from tests.support.gateway.running import MODEL, Running, config_for, running
from tests.support.pdf_files import HOSTILE, JPEG, as_base64, encrypted, scanned, text_bomb, text_pdf
from tests.support.servers import running as process

REPORT: Final = as_base64(text_pdf("Quarterly report", "Revenue grew by 4 percent."))
SCAN: Final = as_base64(scanned(1))
SHOWN: Final = "# report.pdf\n\n[Page 1 of 2]\nQuarterly report\n\n[Page 2 of 2]\nRevenue grew by 4 percent."


def data_url(data: str) -> str:
    return f"data:application/pdf;base64,{data}"


async def ask_messages(gateway: Running, data: str) -> Any:
    source = {"type": "base64", "media_type": "application/pdf", "data": data}
    content: Any = [{"type": "document", "title": "report.pdf", "source": source}, {"type": "text", "text": "Well?"}]
    async with gateway.anthropic() as client:
        answer = await client.messages.create(
            model=MODEL, max_tokens=99, messages=[{"role": "user", "content": content}]
        )
        return answer.content[0]


async def ask_messages_in_a_result(gateway: Running, data: str) -> Any:
    source = {"type": "base64", "media_type": "application/pdf", "data": data}
    block = {"type": "document", "title": "report.pdf", "source": source}
    messages: Any = [
        {"role": "user", "content": "Read it."},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_1", "name": "Read", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": [block]}]},
    ]
    async with (
        gateway.anthropic() as client,
        client.messages.stream(model=MODEL, max_tokens=99, messages=messages) as stream,
    ):
        return (await stream.get_final_message()).content[0]


async def ask_chat(gateway: Running, data: str) -> Any:
    file: Any = {"type": "file", "file": {"filename": "report.pdf", "file_data": data_url(data)}}
    async with gateway.openai() as client:
        answer = await client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": [file]}])
        return answer.choices[0].message


async def ask_responses(gateway: Running, data: str) -> Any:
    file: Any = {"type": "input_file", "filename": "report.pdf", "file_data": data_url(data)}
    async with gateway.openai() as client:
        answer = await client.responses.create(model=MODEL, input=[{"role": "user", "content": [file]}])
        return answer.output[0]


ASKING: Final[dict[str, Callable[[Running, str], Any]]] = {
    "messages": ask_messages,
    "a tool result": ask_messages_in_a_result,
    "chat": ask_chat,
    "responses": ask_responses,
}


def sent_text(body: bytes) -> str:
    """All texts of the request that the host got, and the URLs of its images."""
    found = []
    for message in json.loads(body)["messages"]:
        content = message.get("content") or ""
        entries: list[dict[str, Any]] = [{"text": content}] if isinstance(content, str) else content
        found += [entry.get("text") or entry.get("image_url", {}).get("url") or "" for entry in entries]
    return "\n".join(found)


@pytest.mark.parametrize("dialect", ASKING)
def test_official_packages_send_documents(dialect: str) -> None:
    async def test() -> None:
        async with Host(streaming("Good news.")) as host, running(config_for(host.url)) as gateway:
            await ASKING[dialect](gateway, REPORT)
            assert SHOWN in sent_text(host.requests[0].body)
            await ASKING[dialect](gateway, SCAN)
            assert f"data:image/jpeg;base64,{as_base64(JPEG)}" in sent_text(host.requests[1].body)
            await ASKING[dialect](gateway, as_base64(encrypted()))
            note = '[The document "report.pdf" could not be read: it is encrypted.]'
            assert note in sent_text(host.requests[2].body)

    run(test())


def test_a_conversation_repeats_its_document_in_the_same_words_and_reports_it() -> None:
    async def test() -> None:
        async with (
            Host(streaming("Good news.")) as host,
            running(config_for(host.url)) as gateway,
            aiohttp.ClientSession(gateway.url) as client,
        ):
            first = {"role": "user", "content": [{"type": "file", "file": {"filename": "a.pdf", "file_data": REPORT}}]}
            said = [first, {"role": "assistant", "content": "Good news."}, {"role": "user", "content": "And?"}]
            for messages in ([first], said):
                body = {"model": MODEL, "messages": messages}
                async with client.post("/v1/chat/completions", json=body) as answer:
                    assert answer.status == 200
                    assert "document_text=1" in answer.headers["x-moonshim-repairs"]
            one, two = (json.loads(asked.body)["messages"][0] for asked in host.requests)
            assert one == two

    run(test())


def test_the_text_of_a_document_counts_in_count_tokens() -> None:
    async def test() -> None:
        async with running(config_for("http://127.0.0.1:9")) as gateway, gateway.anthropic() as client:
            counts = []
            for words in (1, 3000):
                data = as_base64(text_pdf("word " * words))
                source: Any = {"type": "base64", "media_type": "application/pdf", "data": data}
                messages: Any = [{"role": "user", "content": [{"type": "document", "source": source}]}]
                counts.append((await client.messages.count_tokens(model=MODEL, messages=messages)).input_tokens)
            assert counts[1] > counts[0] + 2500

    run(test())


def peak_memory(pid: int) -> int:
    """The most memory that a process has had, in bytes."""
    found = re.search(r"VmHWM:\s*(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


def test_hostile_files_neither_stop_the_gateway_nor_make_it_grow(tmp_path: Path) -> None:
    """While the slowest is being read, others are answered."""

    async def test() -> None:
        async with Host(streaming("Thanks.")) as host:
            file = tmp_path / "moonshim.toml"
            file.write_text(
                f'[[providers]]\nname = "host"\nhost = "vllm"\napi_base_url = "{host.url}/v1"\nmodels = ["{MODEL}"]\n'
            )
            with process("serve", "--config", file, cwd=tmp_path) as gateway:
                timeout = aiohttp.ClientTimeout(total=None)
                async with aiohttp.ClientSession(gateway.url, timeout=timeout) as client:

                    async def ask(*content: dict[str, Any]) -> int:
                        body = {"model": MODEL, "messages": [{"role": "user", "content": list(content)}]}
                        data = io.BytesIO(json.dumps(body).encode())
                        async with client.post("/v1/chat/completions", data=data) as answer:
                            await answer.read()
                            return answer.status

                    def file_part(name: str, data: bytes) -> dict[str, Any]:
                        return {"type": "file", "file": {"filename": name, "file_data": data_url(as_base64(data))}}

                    assert await ask(file_part("good", text_pdf("Fine."))) == 200
                    before = peak_memory(gateway.process.pid)
                    slow = asyncio.ensure_future(ask(file_part("slow", text_bomb())))
                    for number in range(20):
                        assert await ask({"type": "text", "text": f"Hello {number}."}) == 200
                    assert not slow.done(), "others were answered first, though they asked later"
                    assert await slow == 200
                    hostile = [file_part(name, make()) for name, (make, _) in HOSTILE.items()]
                    assert await ask(*hostile) == 200
                    assert peak_memory(gateway.process.pid) - before < 100_000_000
            shown = next(text for asked in host.requests if "10,000 pages" in (text := sent_text(asked.body)))
            for name, (_, problem) in HOSTILE.items():
                assert f'"{name}"' in shown
                assert problem in shown

    run(test())
