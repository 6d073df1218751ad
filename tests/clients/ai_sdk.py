"""The AI SDK: a loop with one tool (`ai_sdk_loop.mjs`), over each of its providers that can reach us."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

from tests.clients.client import Client, Command, Dialect, Place, Shell

__all__ = ["AI_SDK"]

_LOOP: Final = Path(__file__).with_name("ai_sdk_loop.mjs")
_PROVIDERS: Final[dict[str, Dialect]] = {
    "openai-chat": "chat",
    "openai-compatible": "chat",
    "openai-responses": "responses",
    "anthropic": "messages",
}


def _client(provider: str, dialect: Dialect) -> Client:
    def command(place: Place) -> Command:
        # Node looks for packages beside the file that imports them.
        loop = shutil.copy(_LOOP, place.installed / _LOOP.name)
        arguments = ("node", str(loop), provider, f"{place.url}/v1", place.model, place.prompt)
        return Command(arguments)

    return Client(
        name=f"AI SDK, {provider}",
        dialect=dialect,
        folder="ai-sdk",
        packages=("ai", "@ai-sdk/openai", "@ai-sdk/anthropic", "@ai-sdk/openai-compatible"),
        command=command,
        shell=Shell(tool="bash"),
    )


AI_SDK: Final = tuple(_client(provider, dialect) for provider, dialect in _PROVIDERS.items())
