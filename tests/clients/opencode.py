"""opencode: `opencode run`, over Chat, with the provider that it brings along for hosts like OpenAI's."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from tests.clients.client import Client, Command, Place, Shell

__all__ = ["OPENCODE"]


def _command(place: Place) -> Command:
    model = f"tested/{place.model}"
    settings: dict[str, Any] = {
        "autoupdate": False,
        "share": "disabled",
        "permission": "allow",
        "model": model,
        "small_model": model,  # a title is asked for before the answer
        "provider": {
            "tested": {
                "npm": "@ai-sdk/openai-compatible",
                "options": {"baseURL": f"{place.url}/v1", "apiKey": "none"},
                "models": {place.model: {}},
            }
        },
    }
    (place.work / "opencode.json").write_bytes(msgspec.json.encode(settings))
    environment = {"OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1"}
    return Command((place.program("opencode"), "run", place.prompt), environment)


OPENCODE: Final = Client(
    name="opencode",
    dialect="chat",
    folder="opencode",
    packages=("opencode-ai",),
    needs_scripts=True,
    command=_command,
    shell=Shell(tool="bash", more={"description": "Look"}),
)
