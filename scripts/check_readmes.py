"""README.md and README.zh-CN.md -> the commands, settings and code that only one of them shows.

The text of the two may differ, and so may comments inside of code. Everything that a reader copies must not.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
READMES: Final = (ROOT / "README.md", ROOT / "README.zh-CN.md")
_BLOCK: Final = re.compile(r"^```\w*\n(.*?)^```", re.DOTALL | re.MULTILINE)
_COMMAND: Final = re.compile(r"`((?:make|moonshim|pip|\.venv/bin/)[^`]*)`")
_COMMENT: Final = re.compile(r"(?:^|\s+)#.*")


def code_of(text: str) -> list[str]:
    """The lines of code, in order and without comments, then the commands in the text, sorted."""
    blocks = [_COMMENT.sub("", line) for block in _BLOCK.findall(text) for line in block.splitlines()]
    return [line for line in blocks if line] + sorted(set(_COMMAND.findall(_BLOCK.sub("", text))))


def differences(first: str, second: str) -> tuple[list[str], list[str]]:
    """What only the first has, and what only the second has.

    >>> differences("`make serve`", "`make test`")
    (['make serve'], ['make test'])
    """
    one, other = code_of(first), code_of(second)
    return [line for line in one if line not in other], [line for line in other if line not in one]


def main() -> int:
    texts = [path.read_text("utf-8") for path in READMES]
    found = differences(texts[0], texts[1])
    for path, lines in zip(READMES, found, strict=True):
        for line in lines:
            print(f"only in {path.name}: {line}")
    if not any(found) and code_of(texts[0]) != code_of(texts[1]):
        print(f"{READMES[0].name} and {READMES[1].name} show the same commands, but in a different order or number")
        return 1
    return 1 if any(found) else 0


if __name__ == "__main__":
    sys.exit(main())
