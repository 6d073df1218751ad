"""Claude Code: variables, and a settings file given with a flag, which overrides the `env` of the user's settings."""

from __future__ import annotations

import json
from typing import Final

from moonshim.launch.clients.settings import direct_connection
from moonshim.launch.plan import Client, ClientPlan, LaunchContext

__all__ = ["CLAUDE"]

_OTHER_HOSTS: Final = (
    "CLAUDE_CODE_USE_ANTHROPIC_AWS",
    "CLAUDE_CODE_USE_BEDROCK",
    "CLAUDE_CODE_USE_FOUNDRY",
    "CLAUDE_CODE_USE_GATEWAY",
    "CLAUDE_CODE_USE_MANTLE",
    "CLAUDE_CODE_USE_VERTEX",
)
"""Each selects a host whose address is not `ANTHROPIC_BASE_URL`."""

_COMPACT_LEAST, _COMPACT_MOST = 100_000, 1_000_000
"""It warns about a window for compaction outside of these; those of K3 are a little larger."""


def _plan(context: LaunchContext) -> ClientPlan:
    model, small = context.model.id, context.small_model.id
    env = {
        "ANTHROPIC_BASE_URL": context.url,
        "ANTHROPIC_AUTH_TOKEN": context.key,
        "ANTHROPIC_MODEL": model,
        "ANTHROPIC_DEFAULT_FABLE_MODEL": model,
        "ANTHROPIC_DEFAULT_OPUS_MODEL": model,
        "ANTHROPIC_DEFAULT_SONNET_MODEL": model,
        "ANTHROPIC_DEFAULT_HAIKU_MODEL": small,
        "ANTHROPIC_SMALL_FAST_MODEL": small,  # versions before ANTHROPIC_DEFAULT_HAIKU_MODEL
        "CLAUDE_CODE_SUBAGENT_MODEL": model,
        "CLAUDE_CODE_ENABLE_GATEWAY_MODEL_DISCOVERY": "1",
        # After a broken stream it would send the whole request again without streaming, and pay for it twice.
        "CLAUDE_CODE_DISABLE_NONSTREAMING_FALLBACK": "1",
        # Otherwise it takes our Opus for one with a larger variant, and changes `opus` in the user's settings to
        # `opus[1m]` for good. The size of the window is set below.
        "CLAUDE_CODE_DISABLE_1M_CONTEXT": "1",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        **direct_connection(context),
    }
    if window := context.model.context_window:
        # It assumes 1 million tokens for a model that it does not know, and earlier versions 200,000.
        env["CLAUDE_CODE_MAX_CONTEXT_TOKENS"] = str(window)
        if window >= _COMPACT_LEAST:
            env["CLAUDE_CODE_AUTO_COMPACT_WINDOW"] = str(min(window, _COMPACT_MOST))
    # The `env` of the user's settings overrides the environment; a file given with --settings overrides both. An empty
    # value is an unset variable.
    settings = {"env": env | dict.fromkeys((*_OTHER_HOSTS, "ANTHROPIC_API_KEY"), ""), "model": model}
    return ClientPlan(
        arguments=("--settings", str(context.folder / "claude.json")),
        env=env,
        unset=("ANTHROPIC_API_KEY", *_OTHER_HOSTS),
        files={"claude.json": json.dumps(settings, indent=2)},
    )


CLAUDE: Final = Client(
    name="claude",
    title="Claude Code",
    program="claude",
    agent="claude-cli/2.1.325",
    install="npm install -g @anthropic-ai/claude-code",
    guide="guides/claude-code",
    plan=_plan,
)
