"""What a person presses while an answer comes -> calls, without an echo on the screen."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from prompt_toolkit.input import Input
from prompt_toolkit.keys import Keys

__all__ = ["reading_keys"]

_NAMES = {Keys.ControlC: "interrupt", Keys.ControlT: "fold"}


@contextmanager
def reading_keys(source: Input, pressed: Callable[[str], None]) -> Iterator[None]:
    """Call `pressed` for each key: `interrupt`, `fold`, or the character itself; other keys do nothing.

    Characters that come at once are words that somebody typed or pasted, and no keys: for those it is `text`.
    Until it is left, the terminal neither echoes nor makes signals of keys.
    """

    def ready() -> None:
        presses = source.read_keys()
        characters = [one.key for one in presses if not isinstance(one.key, Keys) and one.key.isprintable()]
        if characters:
            pressed(characters[0] if len(characters) == 1 else "text")
        for press in presses:
            if press.key in _NAMES:
                pressed(_NAMES[press.key])  # type: ignore[index]  # a key that is in the table

    with source.raw_mode(), source.attach(ready):
        yield
