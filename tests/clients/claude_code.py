"""Claude Code: `claude -p`, over Messages."""

from __future__ import annotations

from typing import Final

import msgspec

from tests.clients.client import Client, Command, Place, Shell

__all__ = ["CLAUDE_CODE"]


def _command(place: Place) -> Command:
    arguments = (place.program("claude"), "-p", place.prompt, "--output-format", "json")
    return Command(
        (*arguments, "--dangerously-skip-permissions"),
        {
            "ANTHROPIC_BASE_URL": place.url,
            "ANTHROPIC_AUTH_TOKEN": "none",
            "ANTHROPIC_MODEL": place.model,
            "ANTHROPIC_SMALL_FAST_MODEL": place.model,
            "CLAUDE_CONFIG_DIR": str(place.home / ".claude"),
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            "DISABLE_TELEMETRY": "1",
            "IS_SANDBOX": "1",  # without it, root may not skip the permissions
        },
    )


def _answer(printed: str) -> str:
    return str(msgspec.json.decode(printed, type=dict[str, object]).get("result", ""))


CLAUDE_CODE: Final = Client(
    name="Claude Code",
    dialect="messages",
    folder="claude-code",
    packages=("@anthropic-ai/claude-code",),
    needs_scripts=True,
    command=_command,
    shell=Shell(tool="Bash", more={"description": "Look"}),
    answer=_answer,
)
