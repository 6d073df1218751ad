"""The official packages read how much of a prompt was cached and written, over both dialects of a host that caches."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import pytest

from moonshim.config import Config, ProviderConfig, Secret
from moonshim.simulator import IntendedResponse, Simulator
from moonshim.simulator.response import TokenTotals
from tests.support.gateway.hosts import PATIENCE
from tests.support.gateway.running import Running, running

MODEL: Final = "kimi-k3"
SYSTEM: Final = "You are an agent that reads files and says what is in them. " * 100
HOUR: Final = {"type": "ephemeral", "ttl": "1h"}
LIFETIME: Final[dict[str, dict[str, Any]]] = {
    "openai_chat": {"prompt_cache_options": {"ttl": "1h"}},
    "openai_responses": {"prompt_cache_options": {"ttl": "1h"}},
    "anthropic": {"cache_control": HOUR},
}


class Brief:
    """A model with one answer."""

    def reply(self, request: Any, /) -> IntendedResponse:
        return IntendedResponse(reasoning="Hm.", text="Done.")


class Clock:
    now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


async def ask(gateway: Running, client: str, *, stream: bool, hour: bool) -> tuple[dict[str, int | None], Any]:
    """One question; what its package read, in the words of `Usage`, and the first usage of a Messages stream."""
    extra = LIFETIME[client] if hour else {}
    first: Any = None
    if client == "anthropic":
        messages: Any = [{"role": "user", "content": "Hi"}]
        message: Any
        async with gateway.anthropic() as claude:
            if stream:
                async with claude.messages.stream(
                    model=MODEL, max_tokens=1000, system=SYSTEM, messages=messages, extra_body=extra
                ) as events:
                    async for event in events:
                        first = event.message.usage if event.type == "message_start" else first
                    message = await events.get_final_message()
            else:
                message = await claude.messages.create(
                    model=MODEL, max_tokens=1000, system=SYSTEM, messages=messages, extra_body=extra
                )
        used = message.usage
        # Messages counts what was read and what was written apart from the rest.
        read, written = used.cache_read_input_tokens or 0, used.cache_creation_input_tokens or 0
        hourly = used.cache_creation.ephemeral_1h_input_tokens if used.cache_creation else None
        return {
            "input": used.input_tokens + read + written,
            "output": used.output_tokens,
            "cached": read,
            "written": written,
            "hourly": hourly if not stream else None,  # the package takes it from message_start alone
        }, first
    async with gateway.openai() as openai:
        if client == "openai_responses":
            asked: Any = {"model": MODEL, "instructions": SYSTEM, "input": "Hi", "extra_body": extra}
            if stream:
                async with openai.responses.stream(**asked) as answers:
                    async for _ in answers:
                        pass
                    answer = await answers.get_final_response()
            else:
                answer = await openai.responses.create(**asked)
            assert answer.usage is not None
            details = answer.usage.input_tokens_details
            return {
                "input": answer.usage.input_tokens,
                "output": answer.usage.output_tokens,
                "cached": details.cached_tokens,
                "written": details.cache_write_tokens,
                "hourly": None,
            }, None
        talk: Any = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": "Hi"}]
        told: Any = None
        if stream:
            chunks = await openai.chat.completions.create(
                model=MODEL, messages=talk, stream=True, stream_options={"include_usage": True}, extra_body=extra
            )
            async for chunk in chunks:
                told = chunk.usage or told
        else:
            told = (await openai.chat.completions.create(model=MODEL, messages=talk, extra_body=extra)).usage
        return {
            "input": told.prompt_tokens,
            "output": told.completion_tokens,
            "cached": told.prompt_tokens_details.cached_tokens,
            "written": told.prompt_tokens_details.cache_write_tokens,
            "hourly": None,
        }, None


def config_of(simulator: Simulator, upstream: str) -> Config:
    dialect: Any = upstream
    path, host = ("v1", "moonshot") if upstream == "openai_chat" else ("anthropic", "moonshot-anthropic")
    provider = ProviderConfig(
        name="host",
        api_base_url=f"{simulator.url}/{path}",
        models=(MODEL,),
        host=host,
        dialect=dialect,
        keys=(Secret("sk-host"),),
    )
    return Config(providers=(provider,))


def served(simulator: Simulator) -> TokenTotals:
    """What the host counted last."""
    tally = simulator.requests[-1].tally
    assert tally is not None
    return tally


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("upstream", ["openai_chat", "anthropic"])
@pytest.mark.parametrize("client", list(LIFETIME))
def test_every_package_reads_the_counts_of_its_host(client: str, upstream: str, stream: bool) -> None:
    asyncio.run(asyncio.wait_for(_reads_the_counts(client, upstream, stream), PATIENCE))


async def _reads_the_counts(client: str, upstream: str, stream: bool) -> None:
    clock = Clock()
    async with (
        Simulator(model=Brief(), assume=("cache-writes",), clock=clock) as simulator,
        running(config_of(simulator, upstream)) as gateway,
    ):
        # A cold prompt is written for an hour, read within that hour, and written again after it.
        for wait, reads in ((0, False), (1800, True), (3601, False)):
            clock.now += wait
            counts, first = await ask(gateway, client, stream=stream, hour=True)
            tally = served(simulator)
            assert not simulator.refusals
            assert (tally.cached > 1000, (tally.written or 0) > 1000) == (reads, not reads)
            assert tally.hourly == tally.written
            hourly = counts.pop("hourly")
            assert counts == {
                "input": tally.prompt,
                "output": tally.completion,
                "cached": tally.cached,
                "written": tally.written,
            }
            assert hourly in (None, tally.hourly)
            assert client != "anthropic" or stream or hourly is not None
            if first is not None and upstream == "openai_chat":
                # The host reports its count at the end: until then there is an estimate.
                assert 0.7 * tally.prompt < first.input_tokens < 1.5 * tally.prompt
            if first is not None and upstream == "anthropic":
                assert first.cache_creation.ephemeral_1h_input_tokens == tally.hourly


@pytest.mark.parametrize("upstream", ["openai_chat", "anthropic"])
@pytest.mark.parametrize("client", list(LIFETIME))
def test_without_a_lifetime_the_host_caches_for_five_minutes(client: str, upstream: str) -> None:
    asyncio.run(asyncio.wait_for(_caches_for_five_minutes(client, upstream), PATIENCE))


async def _caches_for_five_minutes(client: str, upstream: str) -> None:
    clock = Clock()
    async with (
        Simulator(model=Brief(), assume=("cache-writes",), clock=clock) as simulator,
        running(config_of(simulator, upstream)) as gateway,
    ):
        for wait, reads in ((0, False), (299, True), (301, False)):
            clock.now += wait
            await ask(gateway, client, stream=True, hour=False)
            assert (served(simulator).cached > 0, served(simulator).hourly) == (reads, 0)
