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

    Until it is left, the terminal neither echoes nor makes signals of keys.
    """

    def ready() -> None:
        for press in source.read_keys():
            if press.key in _NAMES:
                pressed(_NAMES[press.key])  # type: ignore[index]  # a key that is in the table
            elif not isinstance(press.key, Keys) and press.key.isprintable():
                pressed(press.key)

    with source.raw_mode(), source.attach(ready):
        yield
