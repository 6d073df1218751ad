"""The commands that choose the model and how it answers: /model, /provider, /toolformat, /tools, /thinking, /fold."""

from __future__ import annotations

from collections.abc import Sequence
from json import dumps
from typing import TYPE_CHECKING, Final

from moonshim.chat.commands.command import CommandResult, UsageError
from moonshim.chat.efforts import EFFORTS, WAYS_TO_THINK
from moonshim.config import without_secrets
from moonshim.engine.formats import TOOL_FORMATS, list_formats

if TYPE_CHECKING:
    from moonshim.chat.session import Session

__all__ = [
    "efforts",
    "fold",
    "format_names",
    "model",
    "model_names",
    "provider",
    "provider_names",
    "thinking",
    "tool_format",
    "tool_names",
    "tools",
]

_MOST_SHOWN: Final = 40


def model(session: Session, words: str) -> CommandResult:
    if words:
        session.switch(session.choices.find(words, near=session.provider.name))
        return CommandResult(_describe_answering(session))
    lines = [_describe_answering(session)]
    names = session.choices.names()
    lines += [f"  {name}" for name in names[:_MOST_SHOWN]]
    if len(names) > _MOST_SHOWN:
        lines.append(f"  … and {len(names) - _MOST_SHOWN} more")
    takes_any = [host.name for host in session.choices.hosts if not host.models]
    lines += [f"  {name}/NAME" for name in takes_any]
    return CommandResult("\n".join(lines))


def model_names(session: Session) -> Sequence[str]:
    return session.choices.names()


def provider(session: Session, words: str) -> CommandResult:
    if not words:
        width = max(len(host.name) for host in session.choices.hosts)
        lines = [
            f"{'*' if host.name == session.provider.name else ' '} {host.name:<{width}}  "
            f"{without_secrets(host.api_base_url)} ({host.dialect})"
            for host in session.choices.hosts
        ]
        return CommandResult("\n".join(lines))
    host = session.choices.host(words)
    same = session.provider.model
    keeps = same in host.models
    session.switch(session.choices.find(same, near=host.name, only=True) if keeps else session.choices.first(host.name))
    return CommandResult(_describe_answering(session))


def provider_names(session: Session) -> Sequence[str]:
    return [host.name for host in session.choices.hosts]


def tool_format(session: Session, words: str) -> CommandResult:
    """Without an argument, show the format, whether it was detected or set, and the list."""
    if words:
        session.set(tool_format=None if words.lower() == "auto" else words.lower())
    one = session.provider
    how = "set" if one.format_is_set else f"detected from the model name, {one.model}"
    lines = [f"tool format: {one.tool_format} ({how})"]
    if not words:
        lines += [list_formats(), "/toolformat NAME sets one; /toolformat auto detects it from the model name"]
    return CommandResult("\n".join(lines))


def format_names(session: Session) -> Sequence[str]:
    return (*TOOL_FORMATS, "auto")


def tools(session: Session, words: str) -> CommandResult:
    known = session.agent.tools
    if words:
        if words not in known:
            raise UsageError(f"unknown tool `{words}`; available tools: {', '.join(known)}")
        found = known[words]
        return CommandResult(
            f"{found.name}: {found.description or ''}\n{dumps(found.parameters, indent=2, ensure_ascii=False)}"
        )
    permission = session.permission
    lines = []
    width = max(map(len, known), default=0)
    for name, found in known.items():
        about = (found.description or "").strip().partition("\n")[0]
        asks = found.asks and not permission.yolo and name not in permission.always
        lines.append(f"{name:<{width}}  {about}{' (asks first)' if asks else ''}")
    lines += [f"always allowed: {grant.label}" for grant in permission.always.values()]
    lines.append(f"folder: {session.folder}")
    if permission.yolo:
        lines.append("--yolo: all calls run without asking")
    return CommandResult("\n".join(lines), column=width + 2)


def tool_names(session: Session) -> Sequence[str]:
    return list(session.agent.tools)


def thinking(session: Session, words: str) -> CommandResult:
    wanted = words.lower()
    if wanted and wanted not in efforts(session):
        raise UsageError(f"unknown thinking mode `{words}`; use one of {', '.join(WAYS_TO_THINK)}")
    if wanted:
        session.set(thinking=wanted)
    chosen = session.setting.thinking
    text = f"thinking: {chosen}" if chosen else "thinking: the host's default"
    return CommandResult(
        text if wanted else f"{text}\nset it with /thinking on, off, or an effort: {', '.join(EFFORTS)}"
    )


def efforts(session: Session) -> Sequence[str]:
    return WAYS_TO_THINK


def fold(session: Session, words: str) -> CommandResult:
    wanted = words.lower()
    if wanted not in ("", "on", "off"):
        raise UsageError(f"expected on or off, got `{words}`")
    session.folded = not session.folded if not wanted else wanted == "on"
    if session.folded:
        return CommandResult("reasoning is hidden (Ctrl-T or /fold shows it)")
    return CommandResult("reasoning is shown (Ctrl-T or /fold hides it)", then="unfold")


def _describe_answering(session: Session) -> str:
    one = session.provider
    return f"using {one.name}/{one.model} (tool format: {one.tool_format}{', set' if one.format_is_set else ''})"
