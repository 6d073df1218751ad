"""qwen-code: `qwen -p`, over Chat."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from tests.clients.client import Client, Command, Place, Shell

__all__ = ["QWEN_CODE"]

_SETTINGS: Final[dict[str, Any]] = {
    "general": {"enableAutoUpdate": False},
    "privacy": {"usageStatisticsEnabled": False},
    # In a terminal of its own: otherwise 0.24.4 loses what a command prints just before it ends.
    "tools": {"shell": {"enableInteractiveShell": True}},
}


def _command(place: Place) -> Command:
    folder = place.home / ".qwen"
    folder.mkdir()
    (folder / "settings.json").write_bytes(msgspec.json.encode(_SETTINGS))
    return Command(
        (place.program("qwen"), "-p", place.prompt, "--yolo"),
        {
            "OPENAI_BASE_URL": f"{place.url}/v1",
            "OPENAI_API_KEY": "none",
            "OPENAI_MODEL": place.model,
            "QWEN_CODE_SUPPRESS_YOLO_WARNING": "1",
        },
    )


QWEN_CODE: Final = Client(
    name="qwen-code",
    dialect="chat",
    folder="qwen-code",
    packages=("@qwen-code/qwen-code",),
    command=_command,
    shell=Shell(tool="run_shell_command", more={"is_background": False}),
)
