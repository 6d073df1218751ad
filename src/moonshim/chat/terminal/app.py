"""A chat and a terminal -> a conversation with a person: each input is a command or goes to the model."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from prompt_toolkit.input import create_input

from moonshim.chat.commands.registry import is_command, run_command
from moonshim.chat.conversations import count_messages, data_folder, first_line
from moonshim.chat.permissions import Grant, PermissionAnswer
from moonshim.chat.render.screen import ReasoningItem, TextItem
from moonshim.chat.session import Session
from moonshim.chat.setup import ChatOptions, open_session
from moonshim.chat.terminal.canvas import Canvas
from moonshim.chat.terminal.prompt import PROMPT, create_prompt, input_history
from moonshim.chat.terminal.turn_view import TurnView
from moonshim.engine.values.conversation import Message, Text, ToolCall
from moonshim.errors import MoonshimError

__all__ = ["chat"]


async def chat(options: ChatOptions, environ: Mapping[str, str]) -> int:
    """Chat until the user leaves; return the exit code."""
    terminal: list[_Terminal] = []

    async def ask(call: ToolCall, grant: Grant | None) -> PermissionAnswer:
        return await terminal[0].view.ask(call, grant)

    async with open_session(options, environ, ask) as session:
        terminal.append(_Terminal(session, environ, resumed=options.resume is not None))
        await terminal[0].talk()
    return 0


class _Terminal:
    def __init__(self, session: Session, environ: Mapping[str, str], *, resumed: bool) -> None:
        self._session, self._resumed = session, resumed
        self._canvas = Canvas(sys.stdout)
        source = create_input()
        self.view = TurnView(session, self._canvas, source)
        self._prompt = create_prompt(
            session,
            history=input_history(data_folder(environ) / "typed"),
            source=source,
            toggle_fold=self._toggle_fold,
        )
        self._interrupted = False
        """Whether the last key was Ctrl-C."""

    async def talk(self) -> None:
        self._greet()
        while True:
            try:
                line = (await self._prompt.prompt_async()).strip()
            except EOFError:
                break
            except KeyboardInterrupt:
                if self._interrupted:
                    break
                self._interrupted = True
                self._canvas.say("Press Ctrl-C again or type /exit to exit.", "dim")
                continue
            self._interrupted = False
            if line and not await self._handle_input(line):
                break
        self._print_goodbye()

    async def _handle_input(self, line: str) -> bool:
        """Handle one input; return whether the chat continues."""
        if not is_command(line):
            return await self._turn(line)
        reply = run_command(self._session, line)
        if reply.text:
            self._canvas.say(f"{reply.text}\n", column=reply.column)
        match reply.then:
            case "retry":
                return await self._turn(None)
            case "unfold":
                self._show_reasoning()
            case "leave":
                return False
        return True

    async def _turn(self, prompt: str | None) -> bool:
        try:
            continues = await self.view.show(prompt)
        except MoonshimError as error:
            self._canvas.say(str(error), "red")
            continues = True
        self._interrupted = self.view.was_interrupted
        self._canvas.say("")
        return continues

    def _toggle_fold(self) -> None:
        reply = run_command(self._session, "/fold")
        self._canvas.say(reply.text, "dim")
        if reply.then == "unfold":
            self._show_reasoning()

    def _show_reasoning(self) -> None:
        if self._session.hidden:
            self._canvas.paint(self._canvas.items([ReasoningItem(text) for text in self._session.hidden]))
            self._canvas.say("")
            self._session.hidden = []

    def _greet(self) -> None:
        session, one = self._session, self._session.provider
        self._canvas.say(f"moonshim chat · {one.name}/{one.model} · {_short_path(session.folder)} · /help", "bold")
        if session.choices.config.source == "--demo":
            self._canvas.say("This is the simulator, not a model: its answers are made up.", "yellow")
        if session.permission.yolo:
            self._canvas.say("--yolo: the model writes files and runs commands without asking", "yellow")
        for note in session.notes:
            self._canvas.say(note, "red")
        if self._resumed:
            self._show_end()
        self._canvas.say("")

    def _show_end(self) -> None:
        """Show the end of a conversation that is continued."""
        messages = self._session.history.messages
        self._canvas.say(
            f"{self._session.history.path.stem}: {count_messages(len(messages))}; /history lists them", "dim"
        )
        words = next((one for one in reversed(messages) if one.role == "user"), None)
        if words is not None:
            self._canvas.say(f"{PROMPT}{first_line((words,))}", "dim")
        if messages and messages[-1].role == "assistant" and (text := _text_of(messages[-1])):
            self._canvas.paint(self._canvas.items([TextItem(text)]))

    def _print_goodbye(self) -> None:
        if self._session.history.messages:
            self._canvas.say(f"To continue: {self._session.resume_command}", "dim")


def _short_path(folder: Path) -> str:
    """The folder as people write it."""
    try:
        return f"~/{folder.relative_to(Path.home())}".removesuffix("/.")
    except (ValueError, RuntimeError):
        return str(folder)


def _text_of(message: Message) -> str:
    return "".join(part.text for part in message.parts if isinstance(part, Text))
