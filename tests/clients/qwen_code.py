"""qwen-code: `qwen -p`, over Chat."""

from __future__ import annotations

from typing import Final

from tests.clients.client import Client, Command, Place, Shell

__all__ = ["QWEN_CODE"]

_SETTINGS: Final = """\
{"general": {"enableAutoUpdate": false}, "privacy": {"usageStatisticsEnabled": false}, "telemetry": {"enabled": false}}
"""


def _command(place: Place) -> Command:
    folder = place.home / ".qwen"
    folder.mkdir()
    (folder / "settings.json").write_text(_SETTINGS)
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
