"""The example for the AI SDK as it stands (`examples/integrations/ai_sdk`): its `fetch` finds the gateway by itself."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

from tests.clients.client import Client, Command, Place, Shell

__all__ = ["AI_SDK_EXAMPLE"]

_EXAMPLE: Final = Path(__file__).parents[2] / "examples" / "integrations" / "ai_sdk"


def _command(place: Place) -> Command:
    # Node looks for packages beside the file that imports them.
    for name in ("agent.ts", "moonshim_fetch.ts"):
        shutil.copy(_EXAMPLE / name, place.installed / name)
    return Command(
        ("node", str(place.installed / "agent.ts"), place.prompt),
        {"MOONSHIM_URL": place.url, "KIMI_MODEL": place.model},
    )


AI_SDK_EXAMPLE: Final = Client(
    name="AI SDK, the example",
    dialect="chat",
    folder="ai-sdk",
    packages=("ai", "@ai-sdk/openai", "@ai-sdk/anthropic", "@ai-sdk/openai-compatible"),
    command=_command,
    shell=Shell(tool="bash"),
)
