# ruff: noqa: RUF001  - texts in many scripts
"""Dice -> a text as a model writes it: prose, code, many scripts, tables, base64, markup with stray backticks."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

SAMPLES: Final = {
    path.stem: path.read_text("utf-8") for path in sorted((Path(__file__).parents[3] / "bench" / "texts").glob("*.txt"))
}
"""Texts in natural and in programming languages."""

_WORDS: Final = (
    *("the", "a", "an", "of", "to", "and", "or", "not", "with", "from", "into", "it's", "don't", "isn't", "we'll"),
    *("file", "files", "path", "parser", "stream", "token", "call", "result", "value", "error", "request", "response"),
    *("server", "client", "tool", "function", "name", "index", "chunk", "buffer", "config", "README.md", "src/main.py"),
    *("foo_bar", "getUserName", "HTTPServer", "42", "3.14", "2026-11-02", "v1.2.3", "async", "await", "lambda"),
    *("naïve", "café", "Zürich", "state-of-the-art"),
)

_PROSE: Final = (
    "The id is functions.read_file:1, as before.",
    "The tool functions.Bash:0 has already run.",
    "I list the files now.",
    'It returned {"city": "Paris", "ok": true} for both.',
    "In F# one writes `x |> f |> g`, and `<|` is its mirror.",
    "If a < b and b > c, then a <|> c isn't defined.",
    "GPT's end token is <|endoftext|>, isn't it?",
    "Use <tool> tags, </div>, <thinking> or <T extends U>.",
    "A stray ` backtick, and ``two`` of them.",
    'He said: "it\'s `done`".',
    "- [ ] open\n- [x] done\n",
    "> quoted `code` in a quote\n",
    "| a | b |\n|---|---|\n| `1` | 2 |\n",
    "### Step 1: don't panic\n",
    "$E = mc^2$ and \\frac{a}{b} \\le \\sqrt{x}",
    "C:\\Users\\me\\notes.txt",
    "https://example.com/a?b=c&d=%20e#f",
    "功能已经完成，请检查 `main.py` 文件。",
    "次に、テストを実行します。",
    "다음 단계를 진행하겠습니다.",
    "Давайте проверим ещё раз.",
    "שלום עולם, זה מבחן.",
    "مرحبا بالعالم، هذا اختبار.",
    "สวัสดีชาวโลก นี่คือการทดสอบ",
    "नमस्ते दुनिया, यह एक परीक्षण है।",
    "გამარჯობა მსოფლიო",
    "Γειά σου Κόσμε",
    "ሰላም ለዓለም",
    "བོད་སྐད་ཡིན།",
    "வணக்கம் உலகம்",
    "မင်္ဂလာပါ",
    "Xin chào thế giới, đây là một bài kiểm tra.",
    "👍🏽 👩‍👩‍👧‍👦 🇫🇷 🏳️‍🌈 ✅ 🚀🚀🚀",
    "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𝕞𝕒𝕥𝕙 𝟘𝟙𝟚 ∑∏∫√∞≠≤≥",
    "┌──┬──┐\n│a │b │\n└──┴──┘",
    "⠓⠑⠇⠇⠕ ▁▂▃▄▅▆▇█",
    "𠮷野家で𩸽を食べる",
    "e\u0301a\u0308n\u0303 Z͑ͫ̓ͪ̂a̴̵l̷g̸o",
)

_RANGES: Final = (
    (0x21, 0x7E),
    (0xA1, 0x17F),
    (0x370, 0x3FF),
    (0x410, 0x44F),
    (0x5D0, 0x5EA),
    (0x627, 0x64A),
    (0x905, 0x939),
    (0xE01, 0xE2E),
    (0x10D0, 0x10F0),
    (0x1200, 0x1248),
    (0x2190, 0x21FF),
    (0x2500, 0x257F),
    (0x3041, 0x3096),
    (0x4E00, 0x9FA5),
    (0xAC00, 0xD7A3),
    (0x1F300, 0x1F5FF),
    (0x20000, 0x2A6D6),
    (0x12000, 0x12399),
)


def text(dice: random.Random, longest: int = 1500) -> str:
    """A text of up to about so many characters, mostly short; never empty, never with a marker of Kimi."""
    wanted = min(longest, int(2 ** dice.uniform(1, 11)))
    found = ""
    while len(found) < wanted:
        found += dice.choice(_KINDS)(dice, wanted - len(found)) + dice.choice(("", " ", "\n", "\n\n"))
    return found if found.strip() else "OK."


def _prose(dice: random.Random, wanted: int) -> str:
    words = dice.choices(_WORDS, k=max(1, min(wanted // 6, 60)))
    words[0] = words[0].capitalize()
    return " ".join(words) + dice.choice((".", "!", ":", "", "…"))


def _phrase(dice: random.Random, wanted: int) -> str:
    return dice.choice(_PROSE)


def _sample(dice: random.Random, wanted: int) -> str:
    sample = SAMPLES[dice.choice(list(SAMPLES))]
    at = dice.randrange(len(sample))
    return sample[at : at + max(wanted, 20)]


def _fenced(dice: random.Random, wanted: int) -> str:
    code = SAMPLES[dice.choice(("python", "typescript", "shell", "json", "diff", "minified"))]
    at = dice.randrange(len(code))
    fence = dice.choice(("```", "~~~", "````"))
    closing = dice.choice((f"\n{fence}\n", f"\n{fence}\n", ""))
    return f"\n{fence}{dice.choice(('', 'python', 'ts', 'sh'))}\n{code[at : at + max(wanted, 30)]}{closing}"


def _base64(dice: random.Random, wanted: int) -> str:
    return base64.b64encode(dice.randbytes(max(3, min(wanted, 600) * 3 // 4))).decode()


def _hex(dice: random.Random, wanted: int) -> str:
    return dice.randbytes(max(2, min(wanted, 200) // 2)).hex()


def _letters(dice: random.Random, wanted: int) -> str:
    low, high = dice.choice(_RANGES)
    return "".join(chr(dice.randint(low, high)) for _ in range(max(1, min(wanted, 80)))).replace("<|", "< |")


def _json(dice: random.Random, wanted: int) -> str:
    return json.dumps(value(dice), ensure_ascii=dice.random() < 0.3, indent=dice.choice((None, 2)))


def _numbers(dice: random.Random, wanted: int) -> str:
    return dice.choice((" ", ",", "", "\t")).join(
        str(dice.randint(0, 10**6)) for _ in range(max(1, min(wanted, 150) // 6))
    )


def _spaces(dice: random.Random, wanted: int) -> str:
    return dice.choice((" ", "\n", "\t", "\r\n", "  \n", "-", "=", "*", "`")) * dice.randint(1, 12)


_KINDS: Final[tuple[Callable[[random.Random, int], str], ...]] = (
    *(_prose, _prose, _prose, _phrase, _phrase, _sample, _sample, _sample),
    *(_fenced, _base64, _hex, _letters, _json, _numbers, _spaces),
)


def value(dice: random.Random, depth: int = 0) -> Any:
    """A JSON value as it may stand in the arguments of a call."""
    kind = dice.random()
    if depth < 3 and kind < 0.2:
        return {dice.choice(_WORDS): value(dice, depth + 1) for _ in range(dice.randint(0, 3))}
    if depth < 3 and kind < 0.35:
        return [value(dice, depth + 1) for _ in range(dice.randint(0, 3))]
    if kind < 0.5:
        return dice.choice((0, 1, -3, 10**9, 0.5, 1e-7, 123456789012))
    if kind < 0.6:
        return dice.choice((True, False, None))
    return text(dice, 120)
