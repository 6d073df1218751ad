"""Two results, ours and theirs -> whether they say the same."""

from __future__ import annotations

import json
from typing import Any

from msgspec import Struct

from conformance.replies import Reply

__all__ = ["Checked", "plain_arguments"]


class Checked(Struct, frozen=True):
    """What came out and what the vector expects, in the same shape, limited to what the vector claims."""

    got: Any
    expected: Any
    ways: dict[str, Reply] = {}
    """The same input by several ways, when it could come by several."""
    ideal: bool = False
    """The vector says that its source is wrong, and what would be right: that is what we are compared with."""

    @property
    def agrees(self) -> bool:
        return _written(self.got) == _written(self.expected)

    @property
    def differing(self) -> frozenset[str]:
        """Which claims are not met; `result` when the vector makes only one."""
        if not isinstance(self.got, dict) or not isinstance(self.expected, dict):
            return frozenset() if self.agrees else frozenset({"result"})
        keys = self.got.keys() | self.expected.keys()
        return frozenset(key for key in keys if _written(self.got.get(key)) != _written(self.expected.get(key)))

    @property
    def consistent(self) -> bool:
        """Whether all ways led to the same reply."""
        return len({*self.ways.values()}) <= 1


def plain_arguments(given: Any) -> Any:
    """Arguments as a value where they are JSON, else as the text that they are."""
    if not isinstance(given, str):
        return given
    try:
        return json.loads(given)
    except ValueError:
        return given


def _written(value: Any) -> str:
    # As text, since 1, 1.0 and True are equal in Python, and no two of them are the same argument.
    return json.dumps(value, sort_keys=True, ensure_ascii=False)
