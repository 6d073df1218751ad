"""Vocabularies for tests: a small one whose counts can be checked by hand, and that of Kimi."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import splintr

__all__ = ["KIMI_SHA256", "TOKENS", "write_kimi", "write_vocabulary"]

TOKENS: Final = (
    *("us", "er", "user", "ab", "34", "12", " a", '="', '="u', "=b"),
    # A Chinese character, and the same with a letter after it.
    *(b"\xe4\xb8", "中", "中a"),
)
"""What the small vocabulary has besides the 256 bytes, each made of two of those before it."""
KIMI_SHA256: Final = "b6c497a7469b33ced9c38afb1ad6e47f03f5e5dc05f15930799210ec050c5103"
"""Of `tiktoken.model` in moonshotai/Kimi-K2-Instruct and moonshotai/Kimi-K3."""
_KIMI_TOKENS: Final = 163_584


def write_vocabulary(folder: Path, tokens: Iterable[str | bytes] = TOKENS) -> Path:
    all_tokens = [bytes((byte,)) for byte in range(256)]
    all_tokens += [token.encode() if isinstance(token, str) else token for token in tokens]
    return _write(folder, all_tokens)


def write_kimi(folder: Path) -> Path:
    """The vocabulary as Moonshot publishes it, from a package that contains it."""
    kimi = splintr.Tokenizer.from_pretrained("kimi_k2")
    return _write(folder, (bytes(kimi.decode_token_bytes(rank)) for rank in range(_KIMI_TOKENS)))


def _write(folder: Path, tokens: Iterable[bytes]) -> Path:
    file = folder / "tiktoken.model"
    file.write_bytes(b"".join(b"%s %d\n" % (b64encode(token), rank) for rank, token in enumerate(tokens)))
    return file
