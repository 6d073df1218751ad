"""Codex: `codex exec`, over Responses."""

from __future__ import annotations

from typing import Final

from tests.clients.client import Client, Command, Place, Shell

__all__ = ["CODEX"]

_CONFIG: Final = """\
model = "{model}"
model_provider = "tested"
check_for_update_on_startup = false
approval_policy = "never"
sandbox_mode = "danger-full-access"

[analytics]
enabled = false

[model_providers.tested]
name = "tested"
base_url = "{url}/v1"
wire_api = "responses"
env_key = "TESTED_KEY"
"""


def _command(place: Place) -> Command:
    folder = place.home / ".codex"
    folder.mkdir()
    (folder / "config.toml").write_text(_CONFIG.format(model=place.model, url=place.url))
    arguments = (place.program("codex"), "exec", "--skip-git-repo-check", "--sandbox", "danger-full-access")
    return Command((*arguments, place.prompt), {"CODEX_HOME": str(folder), "TESTED_KEY": "none"})


CODEX: Final = Client(
    name="Codex",
    dialect="responses",
    folder="codex",
    packages=("@openai/codex",),
    command=_command,
    shell=Shell(tool="exec_command", command="cmd"),
    reads_files=False,
)
