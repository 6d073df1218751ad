"""The clients that can be launched, one module each: where a client reads its settings from, and what they are."""

from __future__ import annotations

from typing import Final

from moonshim.launch.clients.aider import AIDER
from moonshim.launch.clients.claude import CLAUDE
from moonshim.launch.clients.codex import CODEX
from moonshim.launch.clients.crush import CRUSH
from moonshim.launch.clients.kimi import KIMI
from moonshim.launch.clients.opencode import OPENCODE
from moonshim.launch.clients.pi import PI
from moonshim.launch.clients.qwen import QWEN
from moonshim.launch.clients.settings import KEY_VARIABLE
from moonshim.launch.plan import Client

__all__ = ["CLIENTS", "KEY_VARIABLE", "client_name"]

CLIENTS: Final[dict[str, Client]] = {
    client.name: client for client in (CLAUDE, CODEX, OPENCODE, KIMI, QWEN, CRUSH, PI, AIDER)
}
"""By the name on the command line."""


def client_name(name: str) -> str:
    """The name of a client that has another one.

    >>> client_name("claude-code"), client_name("codex"), client_name("unknown")
    ('claude', 'codex', 'unknown')
    """
    return next((client.name for client in CLIENTS.values() if client.other_name == name), name)
