"""Claude Code: variables, and a settings file given with a flag, which overrides the `env` of the user's settings."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from moonshim.launch.clients.settings import all_models, direct_connection, home_folder, read_object
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


NO_FALLBACK: Final = ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "DISABLE_TELEMETRY", "DO_NOT_TRACK")
"""With one of these, nothing replaces the server's check of tool calls where the server has none (tried with 2.1.328),
unless `CLAUDE_CODE_AUTO_MODE_SERVER=0` is set too."""
_OWN_CHECK: Final = "CLAUDE_CODE_AUTO_MODE_SERVER"
WITHOUT_OWN_CHECK: tuple[tuple[str, str], ...] = ()
"""The first and the last version of each range that cannot check tool calls by itself in auto mode. None is known:
2.1.328 says that an upcoming release will be the first."""
_MODES: Final = ("--permission-mode", "--dangerously-skip-permissions")
_AN_ANSWER: Final = ("-p", "--print")


_PROJECT_SETTINGS: Final = (Path(".claude", "settings.local.json"), Path(".claude", "settings.json"))
"""Settings of a project, in the folder in which Claude Code is started. They override those of the user."""


def no_fallback_note(environ: Mapping[str, str]) -> str | None:
    """What to know about a variable of the user that leaves auto mode without a check; None if none is set."""
    places: list[tuple[object, str]] = [(environ, "the environment")]
    places += [(read_object(path).get("env"), f"{path.as_posix()} of this project") for path in _PROJECT_SETTINGS]
    places.append((user_settings(environ).get("env"), "the settings of Claude Code"))
    for values, place in places:
        if isinstance(values, Mapping) and not values.get(_OWN_CHECK):
            for name in NO_FALLBACK:
                if values.get(name):
                    return (
                        f"{name} is set in {place}: it turns off Claude Code's own check in auto mode, unless "
                        f"{_OWN_CHECK}=0 is set too. `moonshim launch claude` sets that"
                    )
    return None


def _lacks_own_check(version: str) -> bool:
    """Whether this version is in the table."""
    numbers = _numbers(version)
    return any(_numbers(first) <= numbers <= _numbers(last) for first, last in WITHOUT_OWN_CHECK)


def _numbers(version: str) -> tuple[int, ...]:
    """
    >>> _numbers("2.1.328 (Claude Code)"), _numbers("")
    ((2, 1, 328), ())
    """
    found = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(map(int, found[0].split("."))) if found else ()


def _last_session(context: LaunchContext, since: float) -> str | None:
    """From the name of the file in which it keeps a session. Only of those that a person can go on with."""
    if any(argument in _AN_ANSWER for argument in context.arguments):
        return None
    project = re.sub(r"[^A-Za-z0-9]", "-", str(Path.cwd()))
    found: list[tuple[float, str]] = []
    for path in (_folder(context.environ) / "projects" / project).glob("*.jsonl"):
        with contextlib.suppress(OSError):
            found.append((path.stat().st_mtime, path.stem))
    return next((name for time, name in sorted(found, reverse=True) if time >= since), None)


def _folder(environ: Mapping[str, str]) -> Path:
    folder = environ.get("CLAUDE_CONFIG_DIR")
    return Path(folder) if folder else home_folder(environ) / ".claude"


def user_settings(environ: Mapping[str, str]) -> dict[str, Any]:
    """The settings of the user for all projects."""
    return read_object(_folder(environ) / "settings.json")


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
        # Not CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC, which turns off updates too.
        "DISABLE_TELEMETRY": "1",
        "DISABLE_ERROR_REPORTING": "1",
        "DISABLE_FEEDBACK_COMMAND": "1",
        **direct_connection(context),
    }
    if window := context.model.context_window:
        # It assumes 1 million tokens for a model that it does not know, and earlier versions 200,000.
        env["CLAUDE_CODE_MAX_CONTEXT_TOKENS"] = str(window)
        if window >= _COMPACT_LEAST:
            env["CLAUDE_CODE_AUTO_COMPACT_WINDOW"] = str(min(window, _COMPACT_MOST))
    if user_settings(context.environ).get("model") == "opus":
        # It takes our Opus for one with a larger variant, and would change the setting to `opus[1m]` for good. Only
        # then, since it warns that this variable does not limit the window of a model that it does not know.
        env["CLAUDE_CODE_DISABLE_1M_CONTEXT"] = "1"
    arguments = ["--settings", str(context.folder / "claude.json")]
    unset: tuple[str, ...] = ("ANTHROPIC_API_KEY", *_OTHER_HOSTS)
    notes: list[str] = []
    if context.has_judge:
        unset = (*unset, _OWN_CHECK)  # 0 makes it check by itself, without the judge
    else:
        # The server's check of tool calls needs a judge. Without one it checks by itself, with requests to the model.
        env[_OWN_CHECK] = "0"
        notes += [note for note in (no_fallback_note(context.environ),) if note is not None]
        if WITHOUT_OWN_CHECK and _lacks_own_check(context.version()):
            is_chosen = any(argument.split("=")[0] in _MODES for argument in context.arguments)
            arguments += [] if is_chosen else ["--permission-mode", "default"]
            notes.append(
                "this version of Claude Code cannot check tool calls by itself in auto mode, and the gateway has no"
                " judge"
                + ("" if is_chosen else ": it starts in the mode that asks before each action")
                + ". Update Claude Code, or give the gateway a judge with --judge"
            )
    # The `env` of the user's settings overrides the environment; a file given with --settings overrides both. An empty
    # value is an unset variable.
    settings: dict[str, Any] = {"env": env | dict.fromkeys(unset, ""), "model": model}
    # Without it, `/model` lists the main model once for each of its own families, and again as the gateway's.
    rows = [{"model": one.id, "description": "Moonshim"} for one in all_models(context)]
    settings["modelPicker"] = {"options": rows, "replaceBuiltInOptions": True}
    return ClientPlan(
        arguments=tuple(arguments),
        env=env,
        unset=unset,
        files={"claude.json": json.dumps(settings, indent=2)},
        notes=tuple(notes),
    )


CLAUDE: Final = Client(
    name="claude",
    title="Claude Code",
    program="claude",
    agent="claude-cli/2.1.328",
    install="npm install -g @anthropic-ai/claude-code",
    guide="guides/claude-code",
    other_name="claude-code",
    plan=_plan,
    last_session=_last_session,
)
