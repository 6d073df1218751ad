"""A table of values -> one test item that loops over all of them and names the combination that failed."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

Test: TypeAlias = Callable[..., None]


def looped(names: str, values: Iterable[Any] | Callable[..., Iterable[Any]]) -> Callable[[Test], Test]:
    """Like `pytest.mark.parametrize`, but inside one item. A failure carries a note with its values.

    `values` may be a function of the item's other arguments (by name), if they decide what to loop over. Fixtures are
    created once for the whole loop.

    >>> @looped("size", [1, 2])
    ... @looped("text, pieces", [("ab", 2)])
    ... def test(text: str, pieces: int, size: int) -> None:
    ...     assert len(text) // size == pieces
    >>> try:
    ...     test()
    ... except AssertionError as error:
    ...     print(*error.__notes__)
    text='ab', pieces=2 size=2
    """
    keys = [name.strip() for name in names.split(",")]

    def decorate(test: Test) -> Test:
        signature = inspect.signature(test)
        taken = set(inspect.signature(values).parameters) if callable(values) else set()

        @functools.wraps(test)
        def run(*args: Any, **given: Any) -> None:
            rows = values(**{name: given[name] for name in taken}) if callable(values) else values
            for row in rows:
                combination = dict(zip(keys, row if len(keys) > 1 else (row,), strict=True))
                try:
                    test(*args, **given, **combination)
                except BaseException as error:
                    error.add_note(", ".join(f"{key}={value!r}" for key, value in combination.items()))
                    raise

        left = [parameter for name, parameter in signature.parameters.items() if name not in keys]
        run.__signature__ = signature.replace(parameters=left)  # type: ignore[attr-defined]
        return run

    return decorate
