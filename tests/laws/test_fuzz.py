"""Ten thousand random streams: no exception escapes, the framing stays whole, no word is lost, the work is bounded."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable, Sequence
from typing import Any, Final

import pytest

from moonshim import KimiOptions
from tests.laws.checks import assert_message_is_what_was_sent, assert_nothing_lost, assert_one_end
from tests.laws.scripts import SHAPES, Call, Run, Script, Setting, mend, pieces
from tests.laws.strategies import NAMES, told_apart
from tests.support.profiles import examples
from tests.support.streams import FIELDS, MARKERS, parse_payloads, read_sse

_CASES: Final = 10_000
_BLOCKS: Final = 20
"""The cases of one kind are spread over so many tests, so that a failure names few of them."""

_ALPHABET: Final = (
    *MARKERS,
    *(
        "<",
        "<",
        "<|",
        "<|t",
        "</",
        "<t",
        "|>",
        ":",
        "functions.",
        "functions",
        "{",
        "}",
        '"',
        "\\",
        "[",
        "]",
        "{}",
        "null",
    ),
    *NAMES,
    *(
        "<|open|>think<|sep|>",
        "<|close|>think",
        "<|open|>tools<|sep|>",
        "<|close|>tools<|sep|>",
        "<|close|>call<|sep|>",
    ),
    *('<|open|>call tool="read" index="1"<|sep|>', '<|open|>argument key="a" type="object"<|sep|>'),
    *('<|open|>argument key="b" type="string"<|sep|>', "<|close|>argument<|sep|>", "<|close|>message<|sep|>"),
    *(
        "functions.read:0",
        "search:1",
        "call_7",
        "3",
        '{"a": 1}',
        '{"a": "',
        '"}',
        "\\u",
        "\\ud83d",
        "\\q",
        "\n",
        " ",
        "  ",
    ),
    *("é", "你", "🙂", "\x07"),
)
_MODELS: Final = ("kimi-k2.5", "kimi-k3", "kimi-for-coding", "kimi-k2.5", "kimi-k3", "gpt-4o")
_OPTIONS: Final = (
    None,
    None,
    None,
    KimiOptions(),
    KimiOptions.mending(repair_arguments="schema"),
    KimiOptions.mending(tool_call_streaming="assembled"),
    KimiOptions.mending(assemble_tool_deltas=True, id_policy="unique"),
    KimiOptions(manual_tool_parsing=True),
)


def _setting(dice: random.Random) -> Setting:
    tools = dice.choice(("all", "all", "unknown", "none"))
    return Setting(dice.choice(_MODELS), tools, None, dice.choice(_OPTIONS))


class Words:
    """Words that come once in a stream."""

    def __init__(self) -> None:
        self._count = -1

    def next(self) -> str:
        self._count += 1
        return f"zq{self._count}k"


def _soup(dice: random.Random, words: Words, longest: int = 14) -> str:
    few = dice.sample(_ALPHABET, dice.randint(2, 12))
    return "".join(words.next() if dice.random() < 0.3 else dice.choice(few) for _ in range(dice.randint(0, longest)))


def _part(dice: random.Random, words: Words) -> Run | Call:
    choice = dice.choice((0, 0, 0, 0, 1))
    text = _soup(dice, words)
    if dice.random() < 0.25:
        call = Call(
            dice.choice((*NAMES, "other")),
            text if dice.random() < 0.3 else json.dumps({"a": text}),
            dice.choice((None, "call_1", "functions.read:0")),
            dice.choice((0, 0, 1, "0", None)),
            dice.choice(SHAPES),
            choice,
        )
        return told_apart(call)
    fields: tuple[str, ...] = ("content",) if dice.random() < 0.6 else (dice.choice(FIELDS),)
    return Run(text, fields, choice)


def _script(dice: random.Random) -> Script:
    words = Words()
    # The first words teach the mender the shape of the chunks: what follows may then be read on the fast path.
    warm = (Run(words.next() + " " + words.next() + " "),) if dice.random() < 0.6 else ()
    parts = (*warm, *(_part(dice, words) for _ in range(dice.randint(1, 4))))
    finish = dice.choice(("stop", "tool_calls", "length", "engine_overloaded", None))
    return Script(parts, finish, done=dice.random() < 0.8, setting=_setting(dice))


def _sizes(dice: random.Random) -> list[int]:
    return dice.choice(([1], [1], [2], [4], [10_000], [dice.randint(1, 30) for _ in range(5)]))


def _split(dice: random.Random, data: bytes) -> list[bytes]:
    if dice.random() < 0.3:
        return [data]
    edges = [0, *sorted(dice.randint(0, len(data)) for _ in range(dice.randint(0, 20))), len(data)]
    return [data[start:stop] for start, stop in itertools.pairwise(edges)]


def _is_whole(data: bytes) -> None:
    """Valid framing: lines that end, events that are closed; what is no UTF-8 came in as none."""
    read_sse(data.decode("utf-8", "replace").encode())


# -- the kinds of cases ----------------------------------------------------------------------------------------


def soup_over_frames(dice: random.Random) -> None:
    script = _script(dice)
    frames = script.frames(pieces(_sizes(dice)))
    outcome = mend(script.setting, frames if dice.random() < 0.5 else _split(dice, b"".join(frames)), script.choices)
    assert_nothing_lost(script, outcome)
    assert_one_end(script, outcome)
    assert_message_is_what_was_sent(script, outcome)


def random_bytes(dice: random.Random) -> None:
    data = dice.choice(
        (dice.randbytes, lambda size: bytes(dice.choices(b'data: {}[]"\\\r\n:,<|>\xf0\x9f\xe4', k=size)))
    )(dice.randint(0, 300))
    mender = _setting(dice).mender(framing=dice.choice(("sse", "ndjson")))
    for piece in _split(dice, data):
        assert isinstance(mender.feed(piece), bytes)
    mender.flush()


def _value(dice: random.Random, depth: int = 4) -> Any:
    kind = dice.randint(0, 9 if depth else 5)
    if kind >= 8:
        return [_value(dice, depth - 1) for _ in range(dice.randint(0, 3))]
    if kind >= 6:
        return {dice.choice(_KEYS): _value(dice, depth - 1) for _ in range(dice.randint(0, 4))}
    return dice.choice((None, True, 0, -1, 10**30, 1.5, "", "stop", "tool_calls", dice.choice(_ALPHABET), "\ud83d"))


_KEYS: Final = (
    *("choices", "delta", "index", "finish_reason", "usage", "message", "error", "id", "type", "model", "x"),
    *FIELDS,
    *("tool_calls", "function", "name", "arguments", "text"),
)


def _chunk(dice: random.Random) -> Any:
    if dice.random() < 0.2:
        return _value(dice)
    entry = {key: _value(dice, 2) for key in ("index", "id", "function", "type") if dice.random() < 0.7}
    delta = {key: _value(dice, 2) for key in (*FIELDS, "role", "finish_reason", "x") if dice.random() < 0.3}
    if dice.random() < 0.5:
        delta["tool_calls"] = dice.choice(([entry], [entry, _value(dice, 1)], _value(dice, 1)))
    choice = {
        "index": dice.choice((0, 0, 0, 1, _value(dice, 0))),
        "delta": dice.choice((delta, delta, _value(dice, 1))),
    }
    if dice.random() < 0.3:
        choice["finish_reason"] = _value(dice, 0)
    return {"choices": dice.choice(([choice], [choice], [choice, _value(dice, 1)], _value(dice, 1))), "id": "c"}


def random_json(dice: random.Random) -> None:
    chunks = [_chunk(dice) for _ in range(dice.randint(1, 8))]
    frames = [b"data: %b\n\n" % json.dumps(chunk).encode() for chunk in chunks]
    frames += [b"data: [DONE]\n\n"] * dice.randint(0, 1)
    mender = _setting(dice).mender()
    out = b"".join([mender.feed(frame) for frame in frames]) + mender.flush()
    _is_whole(out)
    parse_payloads(read_sse(out))
    assert mender.message.role == "assistant"


def mutated_streams(dice: random.Random) -> None:
    script = _script(dice)
    data = bytearray(b"".join(script.frames(pieces(_sizes(dice)))))
    for _ in range(dice.randint(1, 4)):
        at = dice.randrange(len(data))
        until = min(len(data), at + dice.randint(1, 40))
        match dice.randint(0, 3):
            case 0:
                data[at] = dice.randrange(256)
            case 1:
                del data[at:until]
            case 2:
                data[at:at] = data[at:until]
            case _:
                data[at:at] = dice.choice(
                    (b"\r", b"\n", b"\r\n\r\n", b"\xef\xbb\xbf", b": hello\n", b"event: x\n", b"\\")
                )
        if not data:
            return
    mender = script.setting.mender()
    out = b"".join([mender.feed(piece) for piece in _split(dice, bytes(data))]) + mender.flush()
    _is_whole(out)
    # A stream that was cut short says so once more; nothing else is added to what came.
    assert len(out) <= 3 * len(data) + 4096


_KINDS: Final[Sequence[tuple[Callable[[random.Random], None], int]]] = (
    (soup_over_frames, 40),
    (random_bytes, 20),
    (random_json, 20),
    (mutated_streams, 20),
)


@pytest.mark.parametrize("block", range(_BLOCKS))
@pytest.mark.parametrize(("kind", "share"), _KINDS, ids=[kind.__name__ for kind, _ in _KINDS])
def test_ten_thousand_random_streams(kind: Callable[[random.Random], None], share: int, block: int) -> None:
    for number in range(examples(_CASES * share // 100 // _BLOCKS)):
        seed = f"{kind.__name__}-{block}-{number}"
        try:
            kind(random.Random(seed))
        except Exception as error:
            raise AssertionError(f"random.Random({seed!r}): {error!r}") from error
