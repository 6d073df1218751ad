"""kimi-code: `kimi -p`, in each of its four types of provider."""

from __future__ import annotations

from typing import Final

from tests.clients.client import Client, Command, Dialect, Place, Shell

__all__ = ["KIMI_CODE"]

_CONFIG: Final = """\
default_model = "tested"
default_permission_mode = "yolo"
telemetry = false

[providers.tested]
type = "{type}"
base_url = "{url}"
api_key = "none"

[models.tested]
provider = "tested"
model = "{model}"
max_context_size = 262144
capabilities = ["thinking", "tool_use"]
"""
_TUI: Final = "[upgrade]\nauto_install = false\n"
_TYPES: Final[dict[str, tuple[Dialect, str]]] = {
    "kimi": ("chat", "/v1"),
    "openai": ("chat", "/v1"),
    "openai_responses": ("responses", "/v1"),
    "anthropic": ("messages", ""),
}
"""The types, each with its dialect and what it wants behind the address."""


def _client(kind: str, dialect: Dialect, path: str) -> Client:
    def command(place: Place) -> Command:
        folder = place.home / ".kimi-code"
        folder.mkdir()
        settings = _CONFIG.format(type=kind, url=place.url + path, model=place.model)
        (folder / "config.toml").write_text(settings)
        (folder / "tui.toml").write_text(_TUI)
        return Command((place.program("kimi"), "-p", place.prompt), {"KIMI_CODE_HOME": str(folder)})

    return Client(
        name=f"kimi-code, {kind}",
        dialect=dialect,
        folder="kimi-code",
        packages=("@moonshot-ai/kimi-code",),
        command=command,
        shell=Shell(tool="Bash"),
    )


KIMI_CODE: Final = tuple(_client(kind, dialect, path) for kind, (dialect, path) in _TYPES.items())
