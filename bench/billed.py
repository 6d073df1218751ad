"""Choose the margins of `engine/repair/billed`: `python -m bench.billed` compares its estimate with Kimi's tokenizer.

A response is taken for incomplete when its host charges for more tokens than the estimate allows. So the estimate must
never be clearly too low, and it should not be much too high.
"""

from __future__ import annotations

import argparse
import random
from typing import Final

from splintr import Tokenizer

from bench.token_texts import MOST, text_of
from moonshim.engine.repair.billed import MARGIN, most_tokens

LENGTHS: Final = (5, 15, 40, 100, 300, 1000)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--number", type=int, default=20_000, help="pieces of text")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    chance = random.Random(arguments.seed)
    tokenizer = Tokenizer.from_pretrained("kimi_k2")
    kinds = sorted(MOST)
    texts = {kind: text_of(kind) for kind in kinds}
    rows: dict[int, list[tuple[int, int, str]]] = {length: [] for length in LENGTHS}
    for _ in range(arguments.number):
        kind, length = chance.choice(kinds), chance.choice(LENGTHS)
        start = chance.randrange(max(1, len(texts[kind]) - length))
        piece = texts[kind][start : start + length]
        rows[length].append((len(tokenizer.encode_ordinary(piece)), most_tokens(piece), kind))
    factor, room = MARGIN
    print(f"{arguments.number:,} pieces of text, seed {arguments.seed}; alarm above {factor} x estimate + {room}\n")
    print("| characters | most tokens over the estimate | median of tokens / estimate | highest | alarms |")
    print("|---:|---:|---:|---:|---:|")
    for length, found in rows.items():
        ratios = sorted(true / guess for true, guess, _ in found)
        over = max(found, key=lambda row: row[0] - row[1])
        alarms = sum(true > guess * factor + room for true, guess, _ in found)
        spread = f"{ratios[len(ratios) // 2]:.2f} | {ratios[-1]:.2f}"
        print(f"| {length} | {over[0] - over[1]} ({over[2]}) | {spread} | {alarms} |")


if __name__ == "__main__":
    main()
