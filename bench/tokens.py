"""Compare the token estimate with Kimi's own tokenizer on many kinds of text: `python -m bench.tokens`."""

from __future__ import annotations

import time
from typing import Final

from splintr import AnyTokenizer, Tokenizer

from bench.token_texts import MOST, text_of
from moonshim.engine.tokens import estimate_text

OTHERS: Final = ("o200k_base", "qwen3", "deepseek_v3", "glm4")
"""Vocabularies of other families, to see how far the estimate can be used for them."""


def count(tokenizer: AnyTokenizer, text: str) -> int:
    """Tokens of the text as such: what looks like a marker is text too."""
    return len(tokenizer.encode_ordinary(text))


def main() -> None:
    kimi = Tokenizer.from_pretrained("kimi_k2")
    others = [Tokenizer.from_pretrained(name) for name in OTHERS]
    print(f"| text | characters | Kimi | estimate | bias | {' | '.join(OTHERS)} |")
    print("|---|" + "---:|" * (4 + len(OTHERS)))
    for kind in MOST:
        text = text_of(kind)
        true, guess = count(kimi, text), estimate_text(text)
        biases = " | ".join(f"{guess / count(other, text) - 1:+.0%}" for other in others)
        print(f"| {kind.replace('_', ' ')} | {len(text)} | {true} | {guess} | {guess / true - 1:+.0%} | {biases} |")
    print()
    for kind in ("english", "chinese", "python", "schema"):
        text = text_of(kind)
        megabyte = text * (1_000_000 // len(text.encode()))
        started = time.process_time()
        estimate_text(megabyte)
        print(f"1 MB of {kind}: {(time.process_time() - started) * 1000:.0f} ms")


if __name__ == "__main__":
    main()
