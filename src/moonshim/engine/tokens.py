"""A request -> an estimate of the tokens that a Kimi model reads, rather too high than too low.

No vocabulary is needed. A byte pair encoder splits text where the kind of character changes (a word starts, a number
ends, a bracket follows a letter), and splits long or rare words again. Each kind of change can be counted without
looking at single characters in Python, and the tables below give its cost. The costs were fitted to Kimi's
vocabulary; docs/concepts/tokens.md has the measured bias.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import ceil, sqrt
from typing import Any, Final, assert_never

from moonshim.engine.values.conversation import Media, Message, Reasoning, Request, Text, Tool, ToolCall, ToolResult
from moonshim.engine.wire import json_codec as json_text

__all__ = ["MEDIA_TOKENS", "estimate_text", "estimate_tokens", "mean_tokens", "sample_tokens"]

MEDIA_TOKENS: Final = 1_500
"""Tokens of an image or any other non-text part, whatever its size: its bytes are never counted."""

# What a chat template adds around the content, for the most verbose generation: K3 tags every part.
_REQUEST: Final = 96  # thinking effort, and the start of the response
_TOOLS: Final = 40
_CHOICE: Final = 40
_FORMAT: Final = 48
_MESSAGE: Final = 12
_ANSWER: Final = 14
_CALL: Final = 20
_ARGUMENT: Final = 13
_RESULT: Final = 10


def estimate_tokens(request: Request) -> int:
    """Estimate the tokens of the prompt for this request: all content, and the template around it.

    >>> from moonshim.engine.values.conversation import Message, Request, Text
    >>> estimate_tokens(Request(model="kimi-k2.5", messages=(Message("user", (Text("What is the time?"),)),)))
    116
    """
    texts, total = _prompt(request)
    # One joined text: its random error is smaller than the sum of separate errors.
    return total + estimate_text("\n".join(texts))


_PIECE: Final = 512
_PIECES: Final = 24
"""How much of a long prompt `sample_tokens` reads: pieces of this many characters, at equal distances."""


def sample_tokens(request: Request) -> int:
    """An estimate like `estimate_tokens`, from a sample of a long prompt: less exact, and cheap for any length.

    >>> from moonshim.engine.values.conversation import Message, Request, Text
    >>> request = Request(model="kimi-k3", messages=(Message("user", (Text("What is the time? " * 10_000),)),))
    >>> 0.9 < sample_tokens(request) / estimate_tokens(request) < 1.1
    True
    """
    texts, total = _prompt(request)
    size = sum(map(len, texts))
    if size <= _PIECE * _PIECES:
        return total + estimate_text("\n".join(texts))
    pieces, distance, passed = list[str](), size / _PIECES, 0
    for text in texts:
        # The pieces that start in this text; one at its end is shorter, which the scale makes up for.
        while (at := int(len(pieces) * distance) - passed) < len(text) and len(pieces) < _PIECES:
            pieces.append(text[at : at + _PIECE])
        passed += len(text)
    return total + ceil(estimate_text("\n".join(pieces)) * size / sum(map(len, pieces)))


def _prompt(request: Request) -> tuple[list[str], int]:
    """The texts of a request, and the tokens of everything around them."""
    texts = [text for message in request.messages for text in _texts(message)]
    total = _REQUEST + sum(map(_template_tokens, request.messages))
    if request.tools:
        total += _TOOLS
        texts.extend(map(_declaration_text, request.tools))
    if request.tool_choice is not None and request.tool_choice.mode != "auto":
        total += _CHOICE
    if request.response_format is not None:
        total += _FORMAT
        texts.append(_compact(request.response_format.schema or {}))
    return texts, total


def _template_tokens(message: Message) -> int:
    """Tokens of a message and its parts apart from their text."""
    total = _MESSAGE + (_ANSWER if message.role == "assistant" else 0)
    for part in message.parts:
        match part:
            case Text() | Reasoning():
                pass
            case Media():
                total += MEDIA_TOKENS
            case ToolCall(arguments=arguments):
                values = json_text.decode_object(arguments.encode("utf-8", "surrogatepass")) or {}
                total += _CALL + _ARGUMENT * len(values)
            case ToolResult(parts=parts):
                total += _RESULT + MEDIA_TOKENS * sum(isinstance(each, Media) for each in parts)
            case _:
                assert_never(part)
    return total


def _texts(message: Message) -> Iterator[str]:
    for part in message.parts:
        match part:
            case Text(text=text) | Reasoning(text=text):
                yield text
            case ToolCall(name=name, arguments=arguments):
                yield name
                yield arguments
            case ToolResult(name=tool, parts=inner):
                yield tool or ""
                yield from (each.text for each in inner if isinstance(each, Text))
            case Media():
                pass
            case _:
                assert_never(part)


def _declaration_text(tool: Tool) -> str:
    function = {"name": tool.name, "description": tool.description or "", "parameters": tool.parameters or {}}
    return _compact({"type": "function", "function": function})


def _compact(value: Any) -> str:
    return json_text.encode(value).decode()


# --- one text ---------------------------------------------------------------------------------------------------


def estimate_text(text: str) -> int:
    """Estimate the tokens of a text: 0 for an empty one, otherwise at least 1.

    >>> estimate_text(""), estimate_text("The quick brown fox jumps over the lazy dog.")
    (0, 14)
    """
    if not text:
        return 0
    mean = mean_tokens(text)
    # Costs are averages: short texts vary more than long ones.
    return max(1, ceil(mean + sqrt(max(mean, 0.0))))


def mean_tokens(text: str) -> float:
    """The tokens of a text, estimated neither too high nor too low.

    >>> round(mean_tokens("The quick brown fox jumps over the lazy dog."), 1)
    10.6
    """
    mean = _ascii_cost(text) if text else 0.0
    return mean if text.isascii() else mean + _script_cost(text)


def _kinds(*rows: tuple[str, str], other: str) -> bytes:
    table = bytearray(other.encode() * 256)
    for characters, kind in rows:
        for character in characters:
            table[ord(character)] = ord(kind)
    return bytes(table)


_LOWER: Final = "abcdefghijklmnopqrstuvwxyz"
_CONSONANTS: Final = "bcdfghjklmnpqrstvwxz"

# `?` stands for non-ASCII characters, so question marks are replaced first.
_KIND: Final = _kinds(
    (_LOWER, "a"),
    (_LOWER.upper(), "A"),
    ("0123456789", "0"),
    (" ", " "),
    ("\r\n", "\n"),
    ("\t", "\t"),
    ("?", "x"),
    other=".",
)
_CONSONANT: Final = _kinds((_CONSONANTS + _CONSONANTS.upper(), "b"), other=" ")
_SPACE: Final = _kinds((" ", " "), other=".")

# Where a word starts, capitalized or not, and what precedes it: a space, punctuation, a digit, or a line break, tab
# or other script.
_BEGIN: Final = _kinds((_LOWER + _LOWER.upper(), "a"), ("0123456789", "0"), (" ", " "), ("\r\n\t?", "\n"), other=".")
_BEGINNINGS: Final = ((b" a", 0.95), (b".a", 0.66), (b"\na", 1.32), (b"0a", 0.84))

_COSTS: Final = (
    # camel case, and long words
    (b"aA", 0.4),
    (b"aaaa", 0.15),
    (b"a" * 8, 0.95),
    (b"a" * 12, 0.9),
    # capitals: a few in a row are a name or a constant, many are neither
    (b"A", 0.63),
    (b"AA", -0.93),
    (b"AAAA", 1.0),
    (b"Aa", -0.28),
    # a space before a number is a token; the numbers themselves are counted separately
    (b" 0", 0.98),
    # punctuation: single, minus what is saved because it often comes in groups
    (b".", 0.91),
    (b"..", -0.8),
    (b"....", -1.0),
    (b" .", 0.52),
    # lines, tabs, deep indentation
    (b"\n", 0.8),
    (b".\n", -0.7),
    (b"\n\n", -1.0),
    (b"\t", 0.74),
    (b"\t\t", -1.0),
    (b" " * 8, 0.28),
)
_SPACES: Final = 0.69
_DIGITS: Final = 1.25
_CLUSTER: Final = 3.43
_RULES: Final = (b"----", b"====", b"****", b"####", b"....", b"____", b"////")
_RULE: Final = -0.91
_OTHER_LATIN: Final = re.compile(
    rb" (?:d(?:e[lmnrst]?|i|ie|a[ns]|engan)|e(?:[lnrt]|in?|ine|en|st)|un[ade]?|untuk|la|les|los|que|p[eo]r|para|pas"
    rb"|con|com|che|il|ist|nicht|nie|na|non|mit|von|zu|auf|het|van|och|og|att|som|till|ja|ve|bir|yang)(?= )"
)
"""Short words of other languages in Latin script, whose long words seldom have a token of their own."""
_OTHER_LATIN_COST: Final = 0.9


def _ascii_cost(text: str) -> float:
    data = text.replace("?", "!").encode("ascii", "replace")
    kinds, begins = b" " + data.translate(_KIND), b" " + data.translate(_BEGIN)
    cost = sum(kinds.count(pattern) * each for pattern, each in _COSTS)
    cost += sum(begins.count(pattern) * each for pattern, each in _BEGINNINGS)
    # Kimi, like most models, reads numbers in groups of three from the left.
    groups = kinds.replace(b"000", b"3").replace(b"00", b"0")
    cost += _DIGITS * (groups.count(b"3") + groups.count(b"0"))
    cost += _SPACES * kinds.translate(_SPACE).count(b".  ")
    # Four consonants are rarely part of a word with its own token: keys, hashes, abbreviations.
    cost += _CLUSTER * data.translate(_CONSONANT).count(b"bbbb")
    # A line of repeated punctuation is one token, or a few.
    cost += _RULE * sum(data.count(rule) for rule in _RULES)
    cost += _OTHER_LATIN_COST * len(_OTHER_LATIN.findall(data))
    return cost


# --- other scripts ----------------------------------------------------------------------------------------------

# The upper byte of a UTF-16 unit identifies the script. First block, last block, code letter, cost per unit.
_SCRIPTS: Final[tuple[tuple[int, int, str, float], ...]] = (
    (0x00, 0x00, " ", 0.0),  # Latin: ASCII, and what `_ACCENT` counts
    (0x01, 0x02, "l", 2.3),  # Latin, extended
    (0x03, 0x03, "g", 0.74),  # Greek
    (0x04, 0x04, "c", 0.24),  # Cyrillic
    (0x05, 0x05, "h", 0.79),  # Hebrew, Armenian
    (0x06, 0x08, "a", 0.63),  # Arabic
    (0x09, 0x09, "d", 0.79),  # Devanagari, Bengali
    (0x0A, 0x0D, "i", 1.23),  # other scripts of India
    (0x0E, 0x0E, "t", 0.84),  # Thai, Lao
    (0x0F, 0x1D, "i", 1.23),  # Georgian, Khmer, …
    (0x1E, 0x1F, "v", 0.3),  # Vietnamese: the letter after it already counts
    (0x20, 0x2F, "s", 0.66),  # dashes, quotes, arrows, boxes, symbols
    (0x30, 0x31, "k", 0.66),  # kana, CJK punctuation
    (0x4E, 0x9F, "H", 0.48),  # Chinese characters
    (0xAC, 0xD7, "K", 0.52),  # Hangul
    (0xD8, 0xDF, "E", 1.45),  # half of a character above U+FFFF: emoji
    (0xFF, 0xFF, "f", 1.3),  # full-width punctuation
)
_RARE: Final = 3.0
"""Blocks not listed above: each byte may be a token."""
_ACCENT: Final = 2.3
_RUNS: Final = (("c", 1.5), ("H", 0.9), ("K", 2.0))
"""Cost of a word start, in scripts with words long enough to share it."""
_PAIRED_SYMBOLS: Final = -0.91
_SINGLE: Final = re.compile(
    "[們個這來時會國說對學後過發經麼還沒點開關問間無與從為現實樣種動產業務資訊數據檔網頁設計語請選擇確認變輸錯誤處儲備並將應該讓給進當體電話號碼導覽權戶"
    "曰矣焉哉乎吾亦乃惟兮]"
)
"""Frequent in traditional and classical Chinese, which has far fewer multi-character tokens."""
_SINGLE_COST: Final = 2.4


def _script_table() -> tuple[bytes, dict[bytes, float]]:
    table, costs = bytearray(b"?" * 256), {b"?": _RARE}
    for first, last, letter, cost in _SCRIPTS:
        table[first : last + 1] = letter.encode() * (last + 1 - first)
        costs[letter.encode()] = cost
    return bytes(table), costs


_SCRIPT, _SCRIPT_COSTS = _script_table()
_RUN_COSTS: Final = tuple((_kinds((letter, letter), other="."), f".{letter}".encode(), cost) for letter, cost in _RUNS)


def _script_cost(text: str) -> float:
    units = b" " + text.encode("utf-16-le", "surrogatepass")[1::2].translate(_SCRIPT)
    cost = sum(units.count(letter) * each for letter, each in _SCRIPT_COSTS.items())
    cost += sum(units.translate(only).count(begin) * each for only, begin, each in _RUN_COSTS)
    cost += _PAIRED_SYMBOLS * units.count(b"ss")
    cost += _ACCENT * (len(text.encode("latin-1", "ignore")) - len(text.encode("ascii", "ignore")))
    if b"H" in units:
        cost += _SINGLE_COST * len(_SINGLE.findall(text))
    return cost
