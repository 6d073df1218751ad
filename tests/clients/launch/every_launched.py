"""Every client that `moonshim launch` can start and that can be installed here."""

from __future__ import annotations

import json
from typing import Any, Final

from tests.clients.client import Shell
from tests.clients.launch.launched import CLOSED, OTHER, Launched, UserFiles

__all__ = ["LAUNCHED"]

CTRL_C, CTRL_D, ENTER = "\x03", "\x04", "\r"


def _json(value: Any) -> str:
    return json.dumps(value, indent=4) + "\n"


# -- Claude Code ----------------------------------------------------------------------------------------------------


def _claude(user: UserFiles) -> dict[str, str]:
    env = {
        "ANTHROPIC_BASE_URL": CLOSED,
        "ANTHROPIC_AUTH_TOKEN": "sk-of-the-user",
        "ANTHROPIC_MODEL": OTHER,
        "ANTHROPIC_SMALL_FAST_MODEL": OTHER,
        "ANTHROPIC_DEFAULT_HAIKU_MODEL": OTHER,
        "CLAUDE_CODE_USE_BEDROCK": "1",
        "DISABLE_AUTOUPDATER": "1",
        "IS_SANDBOX": "1",  # without it, root may not skip the permissions
    }
    # A file of an earlier version, which Claude Code would migrate if it took our models for its own.
    mine = {"env": env, "model": "opus", "cleanupPeriodDays": 99, "skipDangerousModePermissionPrompt": True}
    return {".claude/settings.json": _json(mine)}


def _claude_state(user: UserFiles) -> dict[str, str]:
    project = {"hasTrustDialogAccepted": True, "hasCompletedProjectOnboarding": True}
    server = {"type": "stdio", "command": user.server[0], "args": list(user.server[1:])}
    return {
        ".claude.json": _json(
            {
                "hasCompletedOnboarding": True,
                "mcpServers": {"notes": server},
                "projects": {str(user.work): project},
            }
        )
    }


# -- Codex ----------------------------------------------------------------------------------------------------------


def _codex(user: UserFiles) -> dict[str, str]:
    return {
        ".codex/config.toml": f"""\
# Mine.
model = "{OTHER}"
model_provider = "mine"
model_context_window = 1234
check_for_update_on_startup = false
approval_policy = "never"
sandbox_mode = "danger-full-access"

[analytics]
enabled = false

# Codex itself adds these two to a file without them, whoever starts it.
[tui]
screen_reader_detection_done = true

[tui.model_availability_nux]
"gpt-6.1-sol" = 9

[model_providers.mine]
name = "mine"
base_url = "{CLOSED}"
env_key = "OPENAI_API_KEY"

[mcp_servers.notes]
command = "{user.server[0]}"
args = {json.dumps(list(user.server[1:]))}

[projects."{user.work}"]
trust_level = "trusted"
"""
    }


# -- opencode -------------------------------------------------------------------------------------------------------


def _opencode(user: UserFiles) -> dict[str, str]:
    mine = {
        "npm": "@ai-sdk/openai-compatible",
        "options": {"baseURL": CLOSED, "apiKey": "sk-of-the-user"},
        "models": {OTHER: {}},
    }
    return {
        ".config/opencode/opencode.json": _json(
            {
                "$schema": "https://opencode.ai/config.json",
                "model": f"mine/{OTHER}",
                "small_model": f"mine/{OTHER}",
                "agent": {"build": {"model": f"mine/{OTHER}"}},
                "provider": {"mine": mine, "moonshim": mine},
                "mcp": {"notes": {"type": "local", "command": list(user.server)}},
                "permission": "allow",
                "autoupdate": False,
                "share": "disabled",
            }
        )
    }


# -- kimi-code ------------------------------------------------------------------------------------------------------


def _kimi(user: UserFiles) -> dict[str, str]:
    return {
        ".kimi-code/config.toml": f"""\
# Mine.
default_model = "mine"
default_permission_mode = "yolo"
telemetry = false

[providers.mine]
type = "kimi"
base_url = "{CLOSED}"
api_key = "sk-of-the-user"

[models.mine]
provider = "mine"
model = "{OTHER}"
max_context_size = 1234

[secondary_model]
model = "mine"
""",
        ".kimi-code/mcp.json": _json(
            {"mcpServers": {"notes": {"command": user.server[0], "args": list(user.server[1:])}}}
        ),
        ".kimi-code/tui.toml": "[upgrade]\nauto_install = false\n",
    }


# -- qwen-code ------------------------------------------------------------------------------------------------------


def _qwen(user: UserFiles) -> dict[str, str]:
    mine = [
        {"id": name, "name": "mine", "baseUrl": CLOSED, "envKey": "OPENAI_API_KEY"} for name in (OTHER, "kimi-k2.5")
    ]
    return {
        ".qwen/settings.json": _json(
            {
                "$version": 4,  # qwen-code itself adds it
                "general": {"enableAutoUpdate": False},
                "privacy": {"usageStatisticsEnabled": False},
                "tools": {"shell": {"enableInteractiveShell": True}},
                "security": {"auth": {"selectedType": "openai", "baseUrl": CLOSED}},
                "model": {"name": OTHER},
                "modelProviders": {"openai": mine},
                "env": {"OPENAI_BASE_URL": CLOSED},
                "mcpServers": {"notes": {"command": user.server[0], "args": list(user.server[1:])}},
            }
        )
    }


# -- pi -------------------------------------------------------------------------------------------------------------


def _pi(user: UserFiles) -> dict[str, str]:
    model = {"id": OTHER, "name": "mine", "contextWindow": 1234, "maxTokens": 123}
    mine = {"baseUrl": CLOSED, "api": "openai-completions", "apiKey": "sk-of-the-user", "models": [model]}
    return {
        # pi itself writes the version whose changes it has shown.
        ".pi/agent/settings.json": _json(
            {"defaultProvider": "mine", "defaultModel": OTHER, "quietStartup": True, "lastChangelogVersion": "99.0.0"}
        ),
        ".pi/agent/models.json": _json({"providers": {"mine": mine}}),
    }


# -- aider ----------------------------------------------------------------------------------------------------------


def _aider(user: UserFiles) -> dict[str, str]:
    return {
        ".aider.conf.yml": f"""\
# Mine.
model: openai/{OTHER}
weak-model: openai/{OTHER}
openai-api-base: {CLOSED}
openai-api-key: sk-of-the-user
api-key: [openai=sk-of-the-user]
gitignore: false
analytics: false
check-update: false
show-release-notes: false
""",
        ".env": f"OPENAI_API_BASE={CLOSED}\nOPENAI_API_KEY=sk-of-the-user\n",
        ".aider.model.settings.yml": f"- name: openai/{OTHER}\n  edit_format: whole\n",
    }


LAUNCHED: Final = (
    Launched(
        name="claude",
        package="@anthropic-ai/claude-code",
        folder="claude-code",
        needs_scripts=True,
        settings=_claude,
        state=_claude_state,
        once=lambda prompt: ("-p", prompt, "--dangerously-skip-permissions"),
        shell=Shell(tool="Bash", more={"description": "Look"}),
        has_cache_key=False,  # Messages has none
        arguments=("--dangerously-skip-permissions",),
        ready=("\N{HEAVY RIGHT-POINTING ANGLE QUOTATION MARK ORNAMENT}",),
        quit=(CTRL_C, CTRL_C),
    ),
    Launched(
        name="codex",
        package="@openai/codex",
        folder="codex",
        settings=_codex,
        once=lambda prompt: ("exec", "--skip-git-repo-check", prompt),
        shell=Shell(tool="exec_command", command="cmd"),
        ready=("\N{SINGLE RIGHT-POINTING ANGLE QUOTATION MARK}",),
        picker="/model",
        unwanted=("Model metadata",),
        quit=("/quit", ENTER),
    ),
    Launched(
        name="opencode",
        package="opencode-ai",
        folder="opencode",
        needs_scripts=True,
        settings=_opencode,
        once=lambda prompt: ("run", prompt),
        shell=Shell(tool="bash", more={"description": "Look"}),
        environment={"OPENCODE_DISABLE_MODELS_FETCH": "1"},
        ready=("┃  Ask anything",),
        quit=("/exit", ENTER, ENTER),
    ),
    Launched(
        name="kimi",
        package="@moonshot-ai/kimi-code",
        folder="kimi-code",
        settings=_kimi,
        once=lambda prompt: ("-p", prompt),
        shell=Shell(tool="Bash"),
        environment={"KIMI_CODE_NO_AUTO_UPDATE": "1"},
        answers=(("Trust this folder?", ENTER),),
        ready=("│ >",),
        quit=(CTRL_C, CTRL_C, CTRL_D),
    ),
    Launched(
        name="qwen",
        package="@qwen-code/qwen-code",
        folder="qwen-code",
        settings=_qwen,
        once=lambda prompt: ("-p", prompt, "--yolo"),
        shell=Shell(tool="run_shell_command", more={"is_background": False}),
        environment={"QWEN_CODE_SUPPRESS_YOLO_WARNING": "1"},
        arguments=("--yolo",),
        ready=("*   Type your message", ">   Type your message"),
        quit=(CTRL_C, CTRL_C),
    ),
    Launched(
        name="pi",
        package="@mariozechner/pi-coding-agent",
        folder="pi",
        settings=_pi,
        once=lambda prompt: ("-p", prompt),
        shell=Shell(tool="bash"),
        has_mcp=False,
        environment={"PI_OFFLINE": "1"},
        ready=("(moonshim)", "0.0%"),
        quit=(CTRL_D,),
    ),
    Launched(
        name="aider",
        package="aider-chat",
        folder="aider",
        on_pypi=True,
        settings=_aider,
        once=lambda prompt: ("--no-git", "--yes-always", "--message", prompt),
        shell=None,
        has_mcp=False,
        arguments=("--no-git",),
        ready=(">",),
        quit=("/exit", ENTER),
    ),
)
