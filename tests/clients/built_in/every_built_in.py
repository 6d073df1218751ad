"""Everything that the tested clients have built in, with the settings and arguments that turn it on.

What is missing here, the clients do not have:

- opencode and kimi-code have no web search that a model's vendor runs. Their own tools ask a search service themselves
  (Exa, Moonshot's), without the model's host.
- Codex and kimi-code send no documents. Codex attaches images only; the Read tool of kimi-code refuses a PDF file.
- kimi-code has no structured output, and opencode has it in its HTTP API only. Claude Code demands no schema of the
  host: it offers a tool, which the model may call or not.
- Codex sends no headers of Messages.
- Codex shortens large schemas itself, to 30 KB here: only a host that takes less needs the gateway's help.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec
from msgspec.structs import replace

from moonshim.engine.request.extra_body import deep_merge
from tests.clients.built_in.auto_mode import AUTO_MODE, AUTO_MODE_MESSAGES
from tests.clients.built_in.compacting import COMPACT_LIMIT, COMPACTION, COMPACTION_LOCAL
from tests.clients.built_in.feature import BuiltIn, Feature, Scene
from tests.clients.built_in.features import (
    ANSWER_SCHEMA,
    CATALOG,
    DOCUMENT,
    DOCUMENT_MESSAGES,
    HEADERS,
    LARGE_SCHEMA,
    NO_SEARCH,
    REPORT,
    SCHEMA,
    SCHEMA_LIMIT,
    SCHEMA_MESSAGES,
    SCHEMA_TOOL,
    WEB_SEARCH,
)
from tests.clients.built_in.judged import JUDGED, JUDGED_MESSAGES
from tests.clients.claude_code import CLAUDE_CODE
from tests.clients.client import Client, Command, Place
from tests.clients.codex import CODEX
from tests.clients.install import ROOT
from tests.clients.kimi_code import KIMI_CODE
from tests.clients.launch import notes_server
from tests.clients.opencode import OPENCODE

__all__ = ["BUILT_IN"]

_OPENCODE_SCHEMA: Final = Path(__file__).with_name("opencode_schema.mjs")
_ANSWER_SCHEMA: Final = msgspec.json.encode(ANSWER_SCHEMA).decode()
_Setting: TypeAlias = Callable[[Scene, Place], Command]


def _server(scene: Scene) -> list[str]:
    """The command of the MCP server with a large schema."""
    return [sys.executable, str(Path(notes_server.__file__)), scene.word]


def _with(client: Client, *arguments: str) -> _Setting:
    def command(scene: Scene, place: Place) -> Command:
        usual = client.command(place)
        return replace(usual, arguments=(*usual.arguments, *arguments))

    return command


# -- Claude Code ------------------------------------------------------------------------------------------------------


def _claude_with_server(scene: Scene, place: Place) -> Command:
    command, *arguments = _server(scene)
    servers = {"mcpServers": {"notes": {"command": command, "args": arguments}}}
    usual = CLAUDE_CODE.command(place)
    more = ("--strict-mcp-config", "--mcp-config", msgspec.json.encode(servers).decode())
    return replace(usual, arguments=(*usual.arguments, *more))


def _claude_in_auto_mode(scene: Scene, place: Place) -> Command:
    """As somebody uses it who has set the address and nothing else."""
    usual = CLAUDE_CODE.command(place)
    arguments = [one for one in usual.arguments if one != "--dangerously-skip-permissions"]
    needed = ("ANTHROPIC_BASE_URL", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CONFIG_DIR", "DISABLE_AUTOUPDATER")
    environment = {name: usual.environment[name] for name in needed}
    return replace(usual, arguments=(*arguments, "--permission-mode", "auto"), environment=environment)


def _claude_judged(scene: Scene, place: Place) -> Command:
    usual = CLAUDE_CODE.command(place)
    arguments = [one for one in usual.arguments if one != "--dangerously-skip-permissions"]
    environment = {name: value for name, value in usual.environment.items() if name != "IS_SANDBOX"}
    return replace(usual, arguments=(*arguments, "--permission-mode", "auto"), environment=environment)


def _claude_structured(printed: str) -> str:
    return msgspec.json.encode(msgspec.json.decode(printed, type=dict[str, Any]).get("structured_output")).decode()


# -- Codex ------------------------------------------------------------------------------------------------------------


def _codex_with_schema(scene: Scene, place: Place) -> Command:
    schema = place.home / "schema.json"
    schema.write_text(_ANSWER_SCHEMA)
    return _with(CODEX, "--output-schema", str(schema))(scene, place)


def _codex_with_server(scene: Scene, place: Place) -> Command:
    command, *arguments = _server(scene)
    server = ("-c", f"mcp_servers.notes.command={command!r}", "-c", f"mcp_servers.notes.args={arguments!r}")
    return _with(CODEX, *server)(scene, place)


def _codex_with_catalog(scene: Scene, place: Place) -> Command:
    guide = (ROOT / "docs" / "guides" / "codex.md").read_text("utf-8")
    path = place.home / "kimi.json"
    path.write_text(guide.split("```json\n")[1].split("```")[0])
    return _with(CODEX, "-c", f"model_catalog_json={str(path)!r}", "-c", "model_reasoning_effort='low'")(scene, place)


def _codex_compacting(provider: str) -> _Setting:
    """Codex leaves it to the host to shorten a conversation if the provider has OpenAI's name."""
    limit = ("-c", f"model_auto_compact_token_limit={COMPACT_LIMIT}")
    return _with(CODEX, "-c", f"model_providers.tested.name={provider!r}", *limit)


# -- opencode ---------------------------------------------------------------------------------------------------------


def _opencode(place: Place, settings: dict[str, Any], *arguments: str) -> Command:
    usual = OPENCODE.command(place)
    path = place.work / "opencode.json"
    path.write_bytes(msgspec.json.encode(deep_merge(msgspec.json.decode(path.read_bytes()), settings)))
    return replace(usual, arguments=(*usual.arguments, *arguments))


def _opencode_with_file(scene: Scene, place: Place, **more: Any) -> Command:
    """As in the guide: without `modalities`, opencode tells the model that it cannot read the file."""
    model = {"attachment": True, "modalities": {"input": ["text", "image", "pdf"], "output": ["text"]}}
    settings = {"provider": {"tested": {"models": {place.model: model}, **more}}}
    return _opencode(place, settings, "--file", str(place.work / REPORT))


def _opencode_over_messages(scene: Scene, place: Place) -> Command:
    """With the other provider that it brings along, which sends the file as a `document` block."""
    return _opencode_with_file(scene, place, npm="@ai-sdk/anthropic")


def _opencode_with_schema(scene: Scene, place: Place) -> Command:
    usual = OPENCODE.command(place)
    script = ("node", str(_OPENCODE_SCHEMA), place.program("opencode"), place.model, place.prompt, _ANSWER_SCHEMA)
    return replace(usual, arguments=script)


def _opencode_with_server(scene: Scene, place: Place) -> Command:
    return _opencode(place, {"mcp": {"notes": {"type": "local", "command": _server(scene)}}})


# -- kimi-code --------------------------------------------------------------------------------------------------------


def _kimi_with_server(client: Client) -> _Setting:
    def setting(scene: Scene, place: Place) -> Command:
        usual = client.command(place)
        command, *arguments = _server(scene)
        servers = {"mcpServers": {"notes": {"command": command, "args": arguments}}}
        (place.home / ".kimi-code" / "mcp.json").write_bytes(msgspec.json.encode(servers))
        return usual

    return setting


def _kimi(kind: str) -> Client:
    return next(client for client in KIMI_CODE if client.name.endswith(f", {kind}"))


def _built_in(
    client: Client, *features: tuple[Feature, _Setting] | tuple[Feature, _Setting, Callable[[str], str]]
) -> tuple[BuiltIn, ...]:
    return tuple(
        BuiltIn(client=client, feature=one[0], command=one[1], answer=one[2] if len(one) > 2 else None)
        for one in features
    )


BUILT_IN: Final = (
    *_built_in(
        CLAUDE_CODE,
        (WEB_SEARCH, _with(CLAUDE_CODE)),
        (NO_SEARCH, _with(CLAUDE_CODE)),
        (DOCUMENT, _with(CLAUDE_CODE)),
        (DOCUMENT_MESSAGES, _with(CLAUDE_CODE)),
        (SCHEMA_TOOL, _with(CLAUDE_CODE, "--json-schema", _ANSWER_SCHEMA), _claude_structured),
        (HEADERS, _with(CLAUDE_CODE)),
        (LARGE_SCHEMA, _claude_with_server),
        (SCHEMA_LIMIT, _claude_with_server),
        (AUTO_MODE, _claude_in_auto_mode),
        (AUTO_MODE_MESSAGES, _claude_in_auto_mode),
        (JUDGED, _claude_judged),
        (JUDGED_MESSAGES, _claude_judged),
    ),
    *_built_in(
        CODEX,
        (WEB_SEARCH, _with(CODEX, "-c", 'web_search="live"')),
        (SCHEMA, _codex_with_schema),
        (SCHEMA_MESSAGES, _codex_with_schema),
        (SCHEMA_LIMIT, _codex_with_server),
        (CATALOG, _codex_with_catalog),
        (COMPACTION, _codex_compacting("OpenAI")),
        (COMPACTION_LOCAL, _codex_compacting("Moonshim")),
    ),
    *_built_in(
        OPENCODE,
        (DOCUMENT, _opencode_with_file),
        (DOCUMENT_MESSAGES, _opencode_over_messages),
        (SCHEMA, _opencode_with_schema),
        (SCHEMA_MESSAGES, _opencode_with_schema),
        (LARGE_SCHEMA, _opencode_with_server),
    ),
    *_built_in(_kimi("kimi"), (LARGE_SCHEMA, _kimi_with_server(_kimi("kimi")))),
    *_built_in(
        _kimi("anthropic"), (HEADERS, _with(_kimi("anthropic"))), (LARGE_SCHEMA, _kimi_with_server(_kimi("anthropic")))
    ),
)
