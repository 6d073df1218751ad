"""One turn on a terminal: steps and keys -> what is painted, and permission questions."""

from __future__ import annotations

import asyncio
import signal
import time
from contextlib import suppress
from typing import Final

from prompt_toolkit.input import Input
from prompt_toolkit.key_binding import KeyPress
from rich.cells import cell_len
from rich.text import Text

from moonshim.chat.permissions import Grant, PermissionAnswer
from moonshim.chat.render.sanitize import one_line
from moonshim.chat.render.screen import ReasoningItem, Screen, ToolCallItem
from moonshim.chat.render.status import status_parts
from moonshim.chat.session import Session
from moonshim.chat.terminal.canvas import Canvas
from moonshim.chat.terminal.keys import TypeAhead, reading_keys
from moonshim.chat.terminal.prompt import PROMPT
from moonshim.engine.values.conversation import ToolCall

__all__ = ["TurnView"]

_FRAME_SECONDS: Final = 0.05
_TYPING_SECONDS: Final = 0.5
"""A letter that follows another this soon is part of a word, and allows nothing: people keep typing while a question
appears."""
_ANSWERS: Final[dict[str, PermissionAnswer]] = {"y": "once", "a": "always", "n": "no", "interrupt": "stop"}


class _Question:
    """A call that waits for permission."""

    def __init__(self, call: ToolCall, grant: Grant | None) -> None:
        """`grant`: what "always" allows; None: it is not a possible answer."""
        self.call = ToolCallItem(call.name, call.arguments, "whole", full=True)
        self.answers = {key: answer for key, answer in _ANSWERS.items() if answer != "always" or grant is not None}
        always = "" if grant is None else f"a always: {grant.label}   "
        self.text = f"Run this?  y once   {always}n no   Ctrl-C stop"
        self.answer: asyncio.Future[PermissionAnswer] = asyncio.get_running_loop().create_future()
        self.is_painted = False
        """Whether the user can have seen it: a key that was pressed before is not an answer."""
        self.is_above = False
        """Whether the call has been printed above the changing lines."""


class TurnView:
    """Shows a turn while it happens. Ctrl-C stops it, a second Ctrl-C leaves the chat; Ctrl-T folds reasoning.

    Text typed meanwhile is for the next prompt, and does not answer a question.
    """

    def __init__(self, session: Session, canvas: Canvas, source: Input) -> None:
        self._session, self._canvas, self._source = session, canvas, source
        self._ahead = TypeAhead(source)
        self._screen = Screen()
        self._question: _Question | None = None
        self._interrupts = 0
        self._began = 0.0
        self._typed = 0.0
        """When the last key was pressed that answers nothing."""
        self._task: asyncio.Task[None] | None = None
        self._seen: object = None
        self._lines: list[str] = []

    @property
    def was_interrupted(self) -> bool:
        return self._interrupts > 0

    async def show(self, prompt: str | None) -> bool:
        """Run the turn to its end; return whether the chat continues."""
        self._screen = Screen(folded=self._session.folded)
        self._interrupts, self._began = 0, time.monotonic()
        with suppress(NotImplementedError):  # Windows: there Ctrl-C is only a key
            # Between two turns, while the terminal is in its normal mode, Ctrl-C is a signal.
            asyncio.get_running_loop().add_signal_handler(signal.SIGINT, self._on_key, "interrupt")
        task = self._task = asyncio.create_task(self._run(prompt))
        painting = asyncio.create_task(self._paint_often())
        try:
            self._ahead.begin()
            with self._canvas.marking_pastes(), reading_keys(self._source, self._on_key, self._on_key_presses):
                await asyncio.wait({task, painting}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in (task, painting):
                one.cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.gather(task, painting, return_exceptions=True)
            # A user who stops a turn wants to read before anything else is sent.
            self._ahead.end(sends=not self.was_interrupted)
            self._screen.end()
            self._canvas.paint(self._canvas.items(self._screen.take()))
            self._session.hidden = self._screen.hidden
        for one in (task, painting):
            if not one.cancelled() and (error := one.exception()) is not None:
                raise error
        return self._interrupts < 2

    async def ask(self, call: ToolCall, grant: Grant | None) -> PermissionAnswer:
        """Whether a call may be run: for `Permission`."""
        question = self._question = _Question(call, grant)
        try:
            return await question.answer
        finally:
            self._question = None

    async def _run(self, prompt: str | None) -> None:
        async for step in self._session.steps(prompt):
            self._screen.feed(step)

    # -- keys --------------------------------------------------------------------------------------------------------

    def _on_key_presses(self, presses: list[KeyPress]) -> None:
        if self._question is None:
            self._ahead.add(presses)

    def _on_key(self, key: str) -> None:
        question, now = self._question, time.monotonic()
        is_typing = now - self._typed < _TYPING_SECONDS and key != "interrupt"
        if key == "fold":
            self._fold()
        elif question is not None and question.is_painted and key.lower() in question.answers and not is_typing:
            self._interrupts += key == "interrupt"
            if not question.answer.done():
                question.answer.set_result(_ANSWERS[key.lower()])
        elif key == "interrupt":
            self._interrupts += 1
            if self._interrupts == 1:
                self._session.agent.stop()
            elif self._task is not None:
                self._task.cancel()
        else:
            self._typed = now

    def _fold(self) -> None:
        folded = self._session.folded = self._screen.folded = not self._screen.folded
        if not folded:
            self._canvas.paint(self._canvas.items([ReasoningItem(text) for text in self._screen.hidden]))
            self._screen.hidden = []

    # -- painting ----------------------------------------------------------------------------------------------------

    async def _paint_often(self) -> None:
        while True:
            began = time.monotonic()
            self._paint()
            # A slow terminal, or much to render, must not delay everything else.
            await asyncio.sleep(max(_FRAME_SECONDS, 3 * (time.monotonic() - began)))

    def _paint(self) -> None:
        canvas, question = self._canvas, self._question
        canvas.fit()
        above = canvas.items(self._screen.take())
        if question is None:
            canvas.paint(above, [*self._open_lines(), "", *self._type_ahead_lines(), self._status()])
            return
        call, ask = canvas.items([question.call]), canvas.lines(Text(question.text, style="bold yellow"))
        # What does not fit into the question is printed above: people must see what they allow.
        if not question.is_above and (not canvas.moves or len(call) + len(ask) > canvas.screenful):
            question.is_above = True
            above += call if canvas.moves else [*call, *ask]
        question.is_painted = True
        canvas.paint(above, [*([] if question.is_above else call), "", *ask, "", self._status()])

    def _open_lines(self) -> list[str]:
        """What still grows; rendered again only when something has arrived."""
        items = self._screen.open_items()
        if (seen := (items, self._canvas.console.width, self._canvas.rows)) != self._seen:
            self._seen, self._lines = seen, self._canvas.items(items, growing=True)
        return self._lines

    def _type_ahead_lines(self) -> list[str]:
        """The end of what was typed, on one line."""
        width = self._canvas.console.width - len(PROMPT)
        text = one_line(self._ahead.tail)[-width:]
        while cell_len(text) > width:
            text = text[1:]
        return self._canvas.lines(Text(PROMPT + text, style="dim")) if text else []

    def _status(self) -> str:
        doing = "stopping" if self._interrupts else "waiting" if self._screen.is_waiting else "working"
        key = "Ctrl-C again to exit" if self._interrupts else "Ctrl-C to stop"
        seconds = int(time.monotonic() - self._began)
        parts = [f"{doing} {seconds} s", key, *status_parts(self._session.provider, self._session.ledger)]
        line = Text(" · ".join(parts), style="dim")
        line.truncate(self._canvas.console.width, overflow="ellipsis")
        return self._canvas.lines(line)[0]
