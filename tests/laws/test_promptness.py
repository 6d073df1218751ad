"""Law 9: after any prefix of the input, the output contains everything that the prefix has decided."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Final, Protocol

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moonshim import Mender
from tests.laws.scripts import TOOLS, pieces
from tests.laws.timelines import (
    Passage,
    Sink,
    continued_call,
    k2_passages,
    k3_passages,
    native_passages,
    text_passages,
    undecided,
)
from tests.support.looped import looped
from tests.support.streams import (
    MARKERS,
    REASONING_FIELDS,
    Listener,
    ReceivedChoice,
    chunk,
    parse_payloads,
    read_sse,
    sse,
)

_MARKER: Final = 27
"""The longest marker less one character; frames may wait for as many characters in all."""
_ESCAPE: Final = 11
"""Two halves of a character as escapes, without the backslash that has gone out, and without the last digit."""
_TAG: Final = len('<|open|>argument key="path" type="string"<|sep|>') - 1
_CHANNEL: Final = {"content": "text"} | dict.fromkeys(REASONING_FIELDS, "reasoning")
_SIGHT: Final = 64
"""How far back something may stand that leaves the end undecided."""

k2_models = st.sampled_from(("kimi-k2.5", "kimi-for-coding"))
k3_models = st.sampled_from(("kimi-k3", "kimi-for-coding"))
all_models = st.sampled_from(("kimi-k2.5", "kimi-k3", "kimi-for-coding"))
sizes = st.one_of(st.integers(1, 30).map(lambda size: [size]), st.lists(st.integers(1, 30), min_size=1, max_size=6))


class Feeds(Protocol):
    def feed(self, data: bytes, /) -> bytes: ...
    def flush(self) -> bytes: ...


class Clock:
    """Feeds a stream frame by frame, and compares what is out with what is decided."""

    def __init__(self, mender: Feeds, passages: Sequence[Passage], model: str) -> None:
        self._mender = mender
        self._passages = passages
        self._model = model
        self._listener = Listener()
        self._decided: defaultdict[Sink, str] = defaultdict(str)
        self._sources: defaultdict[str, str] = defaultdict(str)
        """What has come, by the field it came in."""
        self._runs: defaultdict[str, str] = defaultdict(str)
        """The same, since something else came last."""
        self._final: defaultdict[Sink, str] = defaultdict(str)
        for passage in passages:
            for step in passage.steps:
                self._final[step.sink] += step.gives

    def run(self, step: Sequence[int]) -> None:
        self._hear(self._mender.feed(sse([chunk({"role": "assistant"}, model=self._model)], done=False)))
        for passage in self._passages:
            self._run(passage, step)
        self._hear(self._mender.feed(sse([chunk({}, "stop", model=self._model)])))
        for sink, text in self._final.items():
            delivered = self._delivered(sink)
            # Half a marker at the end is no text: it is reported.
            reported = [repair.detail for repair in getattr(self._mender, "repairs", ())]
            assert not text or delivered == text or text.removeprefix(delivered) in reported, sink
        self._hear(self._mender.flush())

    def _run(self, passage: Passage, sizes: Sequence[int]) -> None:
        at, ends = 0, 0
        steps = list(reversed(passage.steps))
        where = passage.field if passage.call is None else f"native {passage.call.index}"
        self._runs[where] = ""
        for delta, count in passage.deltas(pieces(sizes)):
            self._sources[where] += passage.source[at : at + count]
            self._runs[where] += passage.source[at : at + count]
            at += count
            while steps and ends + len(steps[-1].source) <= at:
                one = steps.pop()
                ends += len(one.source)
                self._decided[one.sink] += one.gives
            self._hear(self._mender.feed(sse([chunk(delta, model=self._model)], done=False)))
            self._check(where, native=passage.call is not None)

    def _hear(self, data: bytes) -> None:
        for value in parse_payloads(read_sse(data)):
            self._listener.hear(value)

    def _delivered(self, sink: Sink) -> str:
        heard: ReceivedChoice = self._listener[0]
        kind, place = sink
        if kind == "text":
            return heard.content
        if kind == "reasoning":
            return "".join(text for what, text in heard.order if what == "reasoning")
        if place >= len(heard.calls):
            return ""
        return heard.calls[place].name if kind == "header" else heard.calls[place].arguments

    def _check(self, where: str, *, native: bool) -> None:
        for sink, decided in list(self._decided.items()):
            if not decided:
                continue
            delivered = self._delivered(sink)
            assert self._final[sink].startswith(delivered), f"{sink}: {delivered!r} is not what was sent"
            late = len(decided) - len(delivered)
            allowed = self._allowed(sink, where, native=native)
            assert late <= allowed, f"{sink}: {late} characters late, not {allowed}: {decided[len(delivered) :]!r}"

    def _allowed(self, sink: Sink, where: str, *, native: bool) -> int:
        """How many characters may wait, by what stands at the end of the source; nothing, where all is decided."""
        kind, _ = sink
        if kind == "header":
            return self._allowed_header(sink, native=native)
        if kind == "arguments":
            return self._allowed_arguments(self._decided[sink], self._sources[where], native=native)
        # K3 thinks in the content, too: so the text that came just now counts for either channel.
        spoken = "" if native else where
        sources = [text for name, text in self._sources.items() if name == spoken or _CHANNEL.get(name) == kind]
        # Where another field came between, a word begins anew; half a marker does not.
        held = [undecided(text) for text in (*sources, self._runs[spoken])]
        if not any(map(any, held)) and not any("<|" in text[-_SIGHT:] for text in sources):
            return 0
        return _MARKER + max(bare for _, bare in held)

    def _allowed_header(self, sink: Sink, *, native: bool) -> int:
        """A frame that brings a native call whole waits with its empty object."""
        if native and self._decided["arguments", sink[1]] == "{}":
            return len(self._final[sink])
        return 0

    @staticmethod
    def _allowed_arguments(decided: str, source: str, *, native: bool) -> int:
        if "<" in source[-_SIGHT:] and not native:
            return _TAG if "<|close|>" in source or "<|open|>" in source else _ESCAPE
        if "\\" in decided[-_ESCAPE - 1 :]:
            return _MARKER if native else _ESCAPE
        if decided.rstrip().endswith(","):
            # A closing bracket may follow, which makes the comma one too many.
            return _MARKER if native else len(decided) - len(decided.rstrip()) + 1
        if decided == "{}":
            # An object may follow, which is then the one that was meant. A native frame waits as a whole.
            return 2 if native else 1
        return 0


def _stays_apart(passages: Sequence[Passage]) -> bool:
    """No marker comes to be where a passage goes on with what an earlier one, of the same field, left half said."""
    joined: defaultdict[str, str] = defaultdict(str)
    for passage in passages:
        joined[passage.field] += passage.source
    apart = sum(passage.source.count(tag) for passage in passages for tag in MARKERS if passage.call is None)
    return sum(text.count(tag) for name, text in joined.items() for tag in MARKERS if name != "native") == apart


def check(passages: Sequence[Passage], sizes: Sequence[int], model: str, mender: Feeds | None = None) -> None:
    Clock(mender or Mender(model=model, tools=list(TOOLS)), passages, model).run(sizes)


@given(text_passages.filter(_stays_apart), sizes, all_models)
def test_text_is_out_but_for_what_may_be_a_marker(passages: list[Passage], sizes: list[int], model: str) -> None:
    check(passages, sizes, model)


@given(k2_passages, sizes, k2_models)
def test_calls_in_markers_are_out_as_they_come(passages: list[Passage], sizes: list[int], model: str) -> None:
    check(passages, sizes, model)


@given(k3_passages, sizes, k3_models)
def test_calls_of_k3_are_out_as_they_come(passages: list[Passage], sizes: list[int], model: str) -> None:
    check(passages, sizes, model)


@given(native_passages.filter(_stays_apart), sizes, all_models)
def test_native_calls_are_out_as_they_come(passages: list[Passage], sizes: list[int], model: str) -> None:
    check(passages, sizes, model)


# -- the clock itself ------------------------------------------------------------------------------------------


class Hoarder:
    """A mender that lets nothing out for so many frames; by default, not before the end."""

    def __init__(self, mender: Mender, frames: int = 10_000) -> None:
        self._mender = mender
        self._late = frames
        self._held: list[bytes] = []

    def feed(self, data: bytes) -> bytes:
        self._held.append(self._mender.feed(data))
        if b'"stop"' in data:
            return self._all()
        return self._held.pop(0) if len(self._held) > self._late else b""

    def flush(self) -> bytes:
        return self._all() + self._mender.flush()

    def _all(self) -> bytes:
        held, self._held = b"".join(self._held), []
        return held


_SENTENCE: Final = "A sentence that is longer than any marker, and in which nothing is undecided. "
_EXAMPLES: Final[dict[str, tuple[list[Passage], str]]] = {
    "text": ([Passage(continued_call(_SENTENCE, ("text", 0)))], "kimi-k2.5"),
    "reasoning": ([Passage(continued_call(_SENTENCE, ("reasoning", 0)), "reasoning_content")], "kimi-k3"),
}


@looped("size", [1, 4, 30])
@pytest.mark.parametrize("name", _EXAMPLES)
def test_a_mender_that_buffers_would_be_found_out(name: str, size: int) -> None:
    passages, model = _EXAMPLES[name]
    for frames in (1, 10_000):
        check(passages, [size], model, Mender(model=model, tools=list(TOOLS)))
        with pytest.raises(AssertionError, match="characters late"):
            check(passages, [size], model, Hoarder(Mender(model=model, tools=list(TOOLS)), frames))


@pytest.mark.parametrize("lead", ["", "\n", " \n "])
def test_white_space_after_a_call_does_not_let_more_text_wait(lead: str) -> None:
    call = '<|tool_call_begin|>functions.read:0<|tool_call_argument_begin|>{"a": 1}<|tool_call_end|>'
    marker = "<|tool_call_section_begin|>"
    for text in (f"{lead}some words {marker[:size]}" for size in range(2, len(marker))):
        for cut in range(len(lead) + 2):
            mender, listener = Mender(model="kimi-k2.5", tools=list(TOOLS)), Listener()
            sent = [chunk({"content": piece}) for piece in (call, text[:cut], text[cut:])]
            for value in parse_payloads(read_sse(mender.feed(sse(sent, done=False)))):
                listener.hear(value)
            late = len(text) - len(listener[0].content)
            assert late <= _MARKER, f"{late} characters late: {text[:cut]!r}, {text[cut:]!r}"
