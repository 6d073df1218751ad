"""A terminal -> the lines that a person types: multi-line, with completion and input history."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, get_common_complete_suffix
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import FormattedText
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.input import Input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.styles import Style
from prompt_toolkit.utils import is_dumb_terminal

from moonshim.chat.render.status import status_parts
from moonshim.chat.session import Session
from moonshim.chat.terminal.completion import ChatCompleter

__all__ = ["PROMPT", "create_prompt", "input_history"]

PROMPT: Final = "> "
_MENU_ROWS: Final = 6
_STYLE: Final = Style.from_dict({"bottom-toolbar": "noreverse dim", "prompt": "bold"})


def create_prompt(
    session: Session, *, history: History, source: Input, toggle_fold: Callable[[], None]
) -> PromptSession[str]:
    """The input prompt. Ctrl-C clears the line, or raises `KeyboardInterrupt`; Ctrl-D raises `EOFError`."""
    keys, completer = KeyBindings(), ChatCompleter(session)

    @keys.add("enter")
    def _send(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.document.current_line_before_cursor.endswith("\\") and buffer.document.is_cursor_at_the_end:
            buffer.delete_before_cursor()
            buffer.insert_text("\n")
        else:
            buffer.validate_and_handle()

    # Typed-ahead text has line endings of Ctrl-J: where a second line is not visible, that is not a key.
    @keys.add("escape", "enter")
    @keys.add("c-j", filter=not is_dumb_terminal())
    def _another_line(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    @keys.add("tab")
    def _complete(event: KeyPressEvent) -> None:
        # As a shell does: what is certain is inserted at once; of several, one more Tab takes the first.
        buffer = event.current_buffer
        found = list(completer.get_completions(buffer.document, CompleteEvent(completion_requested=True)))
        common = get_common_complete_suffix(buffer.document, found)
        if len(found) == 1:
            buffer.apply_completion(found[0])
        elif common:
            buffer.insert_text(common)
        elif buffer.complete_state is not None:
            buffer.complete_next()
        elif found:
            buffer.start_completion()

    @keys.add("c-c")
    def _interrupt(event: KeyPressEvent) -> None:
        if event.current_buffer.text:
            event.current_buffer.reset()
        else:
            event.app.exit(exception=KeyboardInterrupt)

    @keys.add("c-t")
    def _fold(event: KeyPressEvent) -> None:
        from prompt_toolkit.application import run_in_terminal

        run_in_terminal(toggle_fold)

    def is_message() -> bool:
        return not prompt.default_buffer.text.startswith("/")

    prompt: PromptSession[str] = PromptSession(
        [("class:prompt", PROMPT)],
        multiline=True,
        prompt_continuation=" " * len(PROMPT),
        key_bindings=keys,
        history=history,
        # Up finds earlier inputs with the same start; in a command, completions are shown while typing.
        enable_history_search=Condition(is_message),
        completer=completer,
        complete_while_typing=True,
        reserve_space_for_menu=_MENU_ROWS,
        bottom_toolbar=lambda: FormattedText(
            [("", " · ".join([*status_parts(session.provider, session.ledger), "/help"]))]
        ),
        style=_STYLE,
        input=source,
    )
    return prompt


def input_history(path: Path) -> History:
    """The inputs of earlier chats; only the user can read the file. Without a place to store it, they are forgotten."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.touch(mode=0o600)
        with path.open("ab"):
            pass
    except OSError:
        return InMemoryHistory()
    return FileHistory(path)
