"""Sample texts to check the token estimate with, and how far above the real count it may be for each."""

from __future__ import annotations

from pathlib import Path
from typing import Final

__all__ = ["MOST", "text_of"]

TEXTS: Final = Path(__file__).parent / "texts"

MOST: Final[dict[str, float]] = {
    "english": 1.35,
    "markdown": 1.35,
    "chinese": 1.35,
    "chinese_traditional": 1.35,
    "chinese_classical": 1.35,
    "japanese": 1.35,
    "korean": 1.35,
    "russian": 1.35,
    "german": 1.35,
    "french": 1.35,
    "spanish": 1.35,
    "arabic": 1.35,
    "hindi": 1.35,
    "python": 1.35,
    "typescript": 1.35,
    "minified": 1.35,
    "diff": 1.35,
    "schema": 1.35,
    "json": 1.35,
    "shell": 1.35,
    "log": 1.35,
    "hex": 1.35,
    "numbers": 1.35,
    "long_words": 1.5,
    "emoji": 1.35,
    "white_space": 1.35,
    "capitals": 2.2,
}
"""By kind of text (the name of its file): how many times the true count the estimate may be. It is never below it."""


def text_of(kind: str) -> str:
    return (TEXTS / f"{kind}.txt").read_text(encoding="utf-8")
