"""The commands for the conversation: /history, /save, /load, /export, /retry, /undo, /clear, /cost."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from moonshim.chat.commands.command import CommandResult, UsageError
from moonshim.chat.conversations import count_messages
from moonshim.chat.export import EXPORTS, as_markdown, export_messages
from moonshim.chat.render.sanitize import one_line
from moonshim.chat.render.screen import text_of_result
from moonshim.engine.values.conversation import Media, Message, Reasoning, Text, ToolCall, ToolResult

if TYPE_CHECKING:
    from moonshim.chat.session import Session

__all__ = ["clear", "conversations", "cost", "export", "exports", "history", "load", "retry", "save", "undo"]

_WIDE = 100


def history(session: Session, words: str) -> CommandResult:
    messages = session.history.messages
    if words:
        if not words.isdecimal() or not 1 <= int(words) <= len(messages):
            raise UsageError(f"no message {words}: the conversation has {count_messages(len(messages))}")
        return CommandResult(as_markdown([messages[int(words) - 1]]).rstrip())
    if not messages:
        return CommandResult("the conversation is empty")
    lines = [f"{number:>3}  {_NAMES[one.role]:<5}  {_short(one)}" for number, one in enumerate(messages, start=1)]
    return CommandResult("\n".join([*lines, "/history NUMBER shows one message in full"]), column=12)


_NAMES = {"system": "sys", "user": "you", "assistant": "model", "tool": "tool"}


def _short(message: Message) -> str:
    parts: list[str] = []
    for part in message.parts:
        match part:
            case Text(text=text):
                parts.append(text)
            case Reasoning(text=text):
                parts.append(f"({len(text.split())} words of reasoning)" if text.strip() else "")
            case ToolCall(name=name, arguments=arguments):
                parts.append(f"{name} {arguments}")
            case ToolResult():
                parts.append(text_of_result(part))
            case Media(kind=kind):
                parts.append(f"[{kind}]")
    line = one_line(" ".join(parts))
    return line if len(line) <= _WIDE else f"{line[: _WIDE - 1]}…"


def save(session: Session, words: str) -> CommandResult:
    history = session.history
    if not words:
        state = "" if history.is_kept else "\nwarning: the file cannot be written, so the latest messages are not saved"
        return CommandResult(
            f"saved automatically in {history.path}{state}\n"
            f"{session.resume_command} continues it; /save NAME saves a copy"
        )
    if not history.messages:
        raise UsageError("the conversation is empty")
    path = session.shelf.path(words)
    history.copy_to(path).close()
    return CommandResult(f"saved a copy as {path}\n/load {words} continues from here")


def load(session: Session, words: str) -> CommandResult:
    if not words:
        rows = session.shelf.newest()
        if not rows:
            return CommandResult(f"no conversations in {session.shelf.folder} yet")
        lines = []
        for row in rows:
            modified = f"{datetime.fromtimestamp(row.modified):%Y-%m-%d %H:%M}"
            lines.append(f"{row.id}  {modified}  {count_messages(row.count):>12}  {row.words}")
        return CommandResult("\n".join([*lines, "/load NAME continues one of them; a unique prefix is enough"]))
    session.load(words)
    count = count_messages(len(session.history.messages))
    troubles = "".join(f"\n{trouble}" for trouble in session.history.troubles)
    return CommandResult(f"loaded {session.history.path.stem}: {count}{troubles}\n/history lists them")


def conversations(session: Session) -> Sequence[str]:
    return ["last", *session.shelf.names()]


def export(session: Session, words: str) -> CommandResult:
    format, _, name = words.partition(" ")
    if format not in EXPORTS:
        raise UsageError(f"unknown format `{format}`" if format else "a format is missing")
    messages = session.history.messages
    if not messages:
        raise UsageError("the conversation is empty")
    suffix = EXPORTS[format][0]
    default = (
        f"{session.history.path.stem}.{suffix}" if suffix == "md" else f"{session.history.path.stem}.{format}.{suffix}"
    )
    path = session.folder / Path(name.strip() or default).expanduser()
    text = export_messages(messages, format)
    try:
        with path.open("x", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
    except FileExistsError:
        raise UsageError(f"{path} already exists; choose another name") from None
    return CommandResult(f"exported to {path}")


def exports(session: Session) -> Sequence[str]:
    return tuple(EXPORTS)


def retry(session: Session, words: str) -> CommandResult:
    _reject_arguments("retry", words)
    if not session.history.messages:
        raise UsageError("the conversation is empty")
    return CommandResult(then="retry")


def undo(session: Session, words: str) -> CommandResult:
    _reject_arguments("undo", words)
    before = session.history.messages
    count = session.agent.undo()
    if not count:
        raise UsageError("nothing to undo")
    return CommandResult(f"removed: {_short(before[-count])} ({count_messages(count)})")


def clear(session: Session, words: str) -> CommandResult:
    _reject_arguments("clear", words)
    former = session.start_new()
    return CommandResult(f"new conversation; /load {former} returns to the last one" if former else "new conversation")


def cost(session: Session, words: str) -> CommandResult:
    _reject_arguments("cost", words)
    ledger = session.ledger
    lines = [f"answers: {ledger.answers}"]
    if ledger.is_counted:
        lines.append(f"tokens:  {ledger.input:,} in ({ledger.cached:,} cached), {ledger.output:,} out")
        if ledger.reasoning:
            lines[-1] += f" ({ledger.reasoning:,} for reasoning)"
    else:
        lines.append("tokens:  not reported by the host")
    if ledger.cost:
        lines.append(f"cost:    {ledger.cost}")
    else:
        lines.append("cost:    unknown; add [prices] to the configuration")
    lines.append(f"repairs: {ledger.repairs.total()}")
    lines += [f"  {count} × {rule}" for rule, count in ledger.repairs.most_common()]
    return CommandResult("\n".join(lines))


def _reject_arguments(name: str, words: str) -> None:
    if words:
        raise UsageError(f"/{name} takes no arguments")
