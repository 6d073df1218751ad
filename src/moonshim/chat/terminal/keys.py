"""Keys pressed during a response -> calls, without an echo on the screen; typed text is buffered."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from prompt_toolkit.input import Input
from prompt_toolkit.input.typeahead import get_typeahead, store_typeahead
from prompt_toolkit.key_binding import KeyPress
from prompt_toolkit.keys import Keys

__all__ = ["TypeAhead", "reading_keys"]

_NAMES: Final = {Keys.ControlC: "interrupt", Keys.ControlT: "fold"}
_KEPT: Final = (Keys.ControlM, Keys.ControlJ, Keys.BracketedPaste)
"""Enter, another line, and pasted text. Keys that edit or search are for visible lines."""
_SHOWN: Final = 500
"""Characters: more than a line of any terminal has."""


class TypeAhead:
    """The text that is typed during a turn, for the next prompt on the same input."""

    def __init__(self, source: Input) -> None:
        self._source = source
        self._presses: list[KeyPress] = []

    def begin(self) -> None:
        """Start with what the last prompt has read beyond its line."""
        self._presses = get_typeahead(self._source)

    def add(self, presses: Iterable[KeyPress]) -> None:
        escaped = False
        for press in presses:
            if press.key == Keys.ControlH:
                del self._presses[-1:]
            elif press.key == Keys.ControlM and escaped:
                self._presses.append(KeyPress(Keys.ControlJ, "\n"))  # Alt-Enter
            elif not isinstance(press.key, Keys) or press.key in _KEPT:
                self._presses.append(press)
            escaped = press.key == Keys.Escape

    def end(self, *, sends: bool) -> None:
        """Pass it to the next prompt; with `sends`, complete lines are sent, otherwise they only appear in the
        input."""
        presses = [KeyPress(" ") if press.key == Keys.ControlM and not sends else press for press in self._presses]
        store_typeahead(self._source, presses)
        self._presses = []

    @property
    def tail(self) -> str:
        """The end of it, for display."""
        last = (" ⏎ " if press.key == Keys.ControlM else press.data for press in self._presses[-_SHOWN:])
        return "".join(last)[-_SHOWN:]


@contextmanager
def reading_keys(
    source: Input, pressed: Callable[[str], None], typed: Callable[[list[KeyPress]], None]
) -> Iterator[None]:
    """Call `pressed` for each key: `interrupt`, `fold`, or the character itself; other keys do nothing.

    Characters that arrive together are typed or pasted text rather than keys: for those it is `text`. `typed` gets all
    keys that were read together, before `pressed` is called for them. Inside the context, the terminal neither echoes
    keys nor turns them into signals.
    """

    def ready() -> None:
        presses = source.read_keys()
        typed(presses)
        characters = [one.key for one in presses if not isinstance(one.key, Keys) and one.key.isprintable()]
        if len(characters) > 1 or any(one.key == Keys.BracketedPaste for one in presses):
            pressed("text")
        elif characters:
            pressed(characters[0])
        for press in presses:
            if press.key in _NAMES:
                pressed(_NAMES[press.key])  # type: ignore[index]  # a key that is in the table

    with source.raw_mode(), source.attach(ready):
        yield
