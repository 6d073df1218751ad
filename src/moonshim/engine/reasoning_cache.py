"""A conversation -> cache keys for the reasoning of its turns, and the reasoning found under them.

Requests have no conversation id, so an assistant turn is identified by content: its own text and calls, plus the user
and tool text directly before it, form the key; the messages before that identify the conversation. Ids and system
prompts are ignored, since clients rewrite both.

| part | what counts |
|---|---|
| text | joined over all text parts of the message, exact except for surrounding white space |
| call | name and arguments: parsed, keys sorted, without white space; unchanged if they are not JSON |
| result | its text and media, in the order of the calls |
| media | the URL, or a digest of the data |

A stored turn matches when everything before it is equal, back to the start of both conversations. It also matches
when a client has summarized the start of its conversation: everything that the client still has must be equal, with
at least two assistant turns, and nothing but a summary before that. Of several matches the one with the longest
common history wins; if those disagree, there is no match.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Final, Literal, TypeAlias, cast

import msgspec
from msgspec import Struct

from moonshim.engine.values.conversation import Media, Message, Part, Reasoning, Request, Text, ToolCall, ToolResult

__all__ = [
    "MAX_LOST_TURNS",
    "CacheEntry",
    "ConversationIndex",
    "ConversationStart",
    "LostTurn",
    "ReasoningLookup",
    "cache_entry",
    "conversation_start",
    "is_empty_reasoning",
    "lookup",
    "store_key",
]

HISTORY_LENGTH: Final = 64
"""Number of messages before a turn with a digest of their own. The last digest covers all older messages."""
MAX_REASONING_BYTES: Final = 1024 * 1024
"""Maximum number of bytes of reasoning; more is not stored."""
MAX_LOST_TURNS: Final = 1000
"""Maximum number of lost turns of a conversation to look up in a shared store, newest first."""
_TURNS_DROPPED_AT_ONCE: Final = 200
"""Above the maximum, the oldest are dropped in steps of this size: each step invalidates the host's prompt cache."""
_KEYS_PER_BATCH: Final = 200
_VERSION: Final = b"\x01"
_DIGEST: Final = 16
_STEP: Final = _DIGEST + 1
_SLOT: Final = 2
"""Length of the reasoning digest within the field name. It limits the same turn of the same history to 256 entries,
however often it is run."""

Kind: TypeAlias = Literal["u", "m", "t", "a", "c", "z"]
"""First letter of a step: user text, user message with media; results; response, response with calls; all older
steps."""
_TURNS: Final = ("a", "c")
_SUMMARIES: Final = ("u", "a")
_LONGEST_SUMMARY: Final = 2
_FEWEST_TURNS: Final = 2


class _Steps:
    """The steps of a conversation, as digests."""

    def __init__(self) -> None:
        self.digests: list[str] = []
        self._older: list[str] = []
        """By number of steps covered: one digest for all of them. Computed on demand."""

    def history(self, count: int) -> tuple[str, ...]:
        """The digests of the first `count` steps, nearest first; the oldest share one digest."""
        steps = self.digests
        if count <= HISTORY_LENGTH:
            return tuple(reversed(steps[:count]))
        older = count - (HISTORY_LENGTH - 1)
        for step in steps[len(self._older) : older]:
            self._older.append(_digest((self._older[-1] if self._older else "") + step))
        return (*reversed(steps[older:count]), "z" + self._older[older - 1])


class LostTurn(Struct, frozen=True):
    """An assistant turn without its reasoning."""

    index: int
    """Index of its message in `Request.messages`."""
    key: str
    steps: _Steps
    """Of its conversation. Not the `ConversationIndex`, which would create a reference cycle."""
    before: int
    """Number of steps before it."""

    @property
    def history(self) -> tuple[str, ...]:
        """Digests of what came before, nearest first. Computed on demand: most turns never need it."""
        return self.steps.history(self.before)

    def reasoning(self, entries: Mapping[str, bytes]) -> Reasoning | None:
        """The reasoning of this turn, from the entries stored under its `key`; None if it is not certain."""
        return lookup(self, entries)


class CacheEntry(Struct, frozen=True):
    """Where the reasoning of a response is stored: `value` under `key` as the entry `field`."""

    key: str
    field: str
    value: bytes


class _StoredReasoning(Struct, frozen=True, array_like=True):
    begins: bytes
    """The first step of the conversation."""
    history: bytes
    reasoning: bytes
    """As msgpack."""


_STORED: Final = msgspec.msgpack.Decoder(_StoredReasoning)
_REASONING: Final = msgspec.msgpack.Decoder(Reasoning)
_ENCODER: Final = msgspec.msgpack.Encoder()


class ConversationIndex:
    """Finds the turns of a conversation that lost their reasoning, and the cache key of the next turn.

    Results for a turn depend only on what precedes it, never on what follows (law 11).
    """

    def __init__(self, messages: Sequence[Message]) -> None:
        self.lost: list[LostTurn] = []
        self._steps = _Steps()
        self._since: list[str] = []
        """The steps after the last assistant turn."""
        self._results: list[tuple[int, bytes]] = []
        self._calls: dict[str, int] = {}
        for index, message in enumerate(messages):
            if message.role == "assistant":
                self._add_assistant(index, message)
            elif message.role != "system":
                self._add_other(message)
        self._settle()

    def entry_for(self, answer: Message) -> CacheEntry | None:
        """Where to store the reasoning of the response to this conversation; None if there is nothing to store, or
        nothing to identify it by."""
        reasoning = _join_reasoning(part for part in answer.parts if isinstance(part, Reasoning))
        turn = _turn_step(answer)
        if is_empty_reasoning(reasoning) or turn is None:
            return None
        try:
            thought = _ENCODER.encode(reasoning)
        except (UnicodeEncodeError, OverflowError, RecursionError):
            return None  # A lone surrogate, or a number that no store accepts.
        if len(thought) > MAX_REASONING_BYTES:
            return None
        history = _pack_steps(self._steps.history(len(self._steps.digests)))
        first = next(iter(self._steps.digests or self._since), None)
        stored = _StoredReasoning(_pack_steps((first,)) if first is not None else b"", history, thought)
        field = f"{_digest(history)}.{_digest(thought)[:_SLOT]}"
        return CacheEntry(self._key(turn), field, _VERSION + _ENCODER.encode(stored))

    def _add_other(self, message: Message) -> None:
        if message.is_one_text and message.role != "tool":
            if cast(Text, message.parts[0]).text.strip():
                self._since.append("u" + _digest_of_text(message))
            return
        content: list[Part] = []
        for part in message.parts:
            if isinstance(part, ToolResult):
                # An orphan has no position among the calls: it stays after the others.
                place = self._calls.get(part.call_id, len(self._calls))
                self._results.append((place, _digest_of(part.parts)))
            else:
                content.append(part)
        if any(isinstance(part, Media) or (isinstance(part, Text) and part.text.strip()) for part in content):
            shows = any(isinstance(part, Media) for part in content)
            kind: Kind = "t" if message.role == "tool" else "m" if shows else "u"
            self._since.append(kind + _digest_of(content).hex())

    def _add_assistant(self, index: int, message: Message) -> None:
        self._settle()
        turn = _turn_step(message)
        if turn is None:
            return
        if message.is_one_text or is_empty_reasoning(
            _join_reasoning(part for part in message.parts if isinstance(part, Reasoning))
        ):
            self.lost.append(LostTurn(index, self._key(turn), self._steps, len(self._steps.digests)))
        self._steps.digests += (*self._since, turn)
        self._since = []
        calls = [] if message.is_one_text else [part.id for part in message.parts if isinstance(part, ToolCall)]
        self._calls = {call: place for place, call in enumerate(calls)}

    def _settle(self) -> None:
        """Put results before other user content, whatever the client's order."""
        if self._results:
            results = [digest for _, digest in sorted(self._results, key=lambda result: result[0])]
            self._since.insert(0, "t" + _digest(b"".join(results)))
            self._results = []

    def _key(self, turn: str) -> str:
        return _digest("".join((turn, *self._since)))


def cache_entry(conversation: Request | ConversationIndex, answer: Message) -> CacheEntry | None:
    """Where to store the reasoning of a response, given request and response as the client knows them; None if it has
    none.

    >>> asked = Request(model="k3", messages=(Message("user", (Text("hi"),)),))
    >>> entry = cache_entry(asked, Message("assistant", (Reasoning("They greet."), Text("Hello!"))))
    >>> later = ConversationIndex([*asked.messages, Message("assistant", (Text("Hello!"),))]).lost[0]
    >>> later.key == entry.key, lookup(later, {entry.field: entry.value})
    (True, Reasoning(text='They greet.', signature=None, details=(), field=None))
    """
    if not any(isinstance(part, Reasoning) for part in answer.parts):
        return None
    turns = conversation if isinstance(conversation, ConversationIndex) else ConversationIndex(conversation.messages)
    return turns.entry_for(answer)


class ConversationStart(Struct, frozen=True):
    """Digests that identify a conversation by how it begins."""

    opening: str
    """Of everything before the first assistant turn. Other conversations may begin with the same words."""
    identity: str | None
    """Of that and the first assistant turn; None before there is one."""
    has_one_turn: bool
    """There is an assistant turn, and no other."""


def conversation_start(messages: Sequence[Message]) -> ConversationStart:
    """How a conversation begins. The same for all its requests, since clients repeat the history.

    >>> asked, answer = Message("user", (Text("hi"),)), Message("assistant", (Text("Hello!"),))
    >>> first, second = conversation_start([asked]), conversation_start([asked, answer, asked])
    >>> first.opening == second.opening, first.identity, second.has_one_turn
    (True, None, True)
    """
    steps = ((index, _turn_step(message)) for index, message in enumerate(messages) if message.role == "assistant")
    turns = ((index, step) for index, step in steps if step is not None)
    index, step = next(turns, (len(messages), None))
    opening = _digest("".join(ConversationIndex(messages[:index])._since))
    if step is None:
        return ConversationStart(opening, None, False)
    return ConversationStart(opening, _digest(opening + step), next(turns, None) is None)


def lookup(turn: LostTurn, entries: Mapping[str, bytes]) -> Reasoning | None:
    """The reasoning of this turn among the entries under its key; None if it is not certain."""
    history = _pack_steps(turn.history)
    exact = _digest(history)
    found = {one.reasoning for one in _decode_entries(entries, exact) if one.history == history}
    if not found and turn.history:
        found = _match_summary(turn, history, entries)
    if len(found) != 1:
        return None
    try:
        return _REASONING.decode(found.pop())
    except msgspec.MsgspecError:
        return None


def store_key(space: str, key: str) -> str:
    """The store key of an entry within one space; other spaces cannot read it."""
    return f"{space}:{key}"


class ReasoningLookup:
    """Finds the lost reasoning of a request's turns in any store: read `keys`, then call `resolve`.

    With a `limit`, the oldest turns of a very long conversation are skipped.

    >>> asked = Request(model="k3", messages=(Message("user", (Text("hi"),)),))
    >>> answer = Message("assistant", (Reasoning("They greet."), Text("Hello!")))
    >>> entry = cache_entry(asked, answer)
    >>> later = ConversationIndex([*asked.messages, Message("assistant", (Text("Hello!"),))])
    >>> wanted = ReasoningLookup(later.lost, "alice")
    >>> wanted.keys == [store_key("alice", entry.key)]
    True
    >>> wanted.resolve({wanted.keys[0]: {entry.field: entry.value}})[1].text
    'They greet.'
    """

    __slots__ = ("_turns", "keys")

    def __init__(self, lost: Sequence[LostTurn], space: str, *, limit: int | None = None) -> None:
        if limit is not None and len(lost) > limit:
            lost = lost[-(-(len(lost) - limit) // _TURNS_DROPPED_AT_ONCE) * _TURNS_DROPPED_AT_ONCE :]
        self._turns = [(store_key(space, turn.key), turn) for turn in lost]
        self.keys: list[str] = list(dict.fromkeys(key for key, _ in self._turns))

    def batches(self) -> list[list[str]]:
        """The keys, for stores that look up many at a time."""
        return [self.keys[at : at + _KEYS_PER_BATCH] for at in range(0, len(self.keys), _KEYS_PER_BATCH)]

    def resolve(self, entries: Mapping[str, Mapping[str, bytes]]) -> dict[int, Reasoning]:
        """The reasoning that is known for certain, by the index of its message; `entries` by key and field."""
        found = ((turn.index, lookup(turn, entries[key])) for key, turn in self._turns if key in entries)
        return {index: reasoning for index, reasoning in found if reasoning is not None}


def _match_summary(turn: LostTurn, history: bytes, entries: Mapping[str, bytes]) -> set[bytes]:
    """Reasonings of the turns with the most in common, if all else that the client has is a summary."""
    best, found = 0, set[bytes]()
    for one in _decode_entries(entries):
        # Entries stored after the same summary are newer: they must not change earlier results.
        if len(one.history) <= len(history) or one.begins == history[-_STEP:]:
            continue
        equal = _count_common_steps(history, one.history)
        before = turn.history[equal:]
        turns = sum(step[0] in _TURNS for step in turn.history[:equal])
        if turns < _FEWEST_TURNS or not 1 <= len(before) <= _LONGEST_SUMMARY:
            continue
        if any(step[0] not in _SUMMARIES for step in before) or equal < best:
            continue
        found = {*found, one.reasoning} if equal == best else {one.reasoning}
        best = equal
    return found


def _decode_entries(entries: Mapping[str, bytes], history: str = "") -> Iterable[_StoredReasoning]:
    """The entries of this history, or all of them; entries of a later version, and unreadable ones, are skipped."""
    for field, value in entries.items():
        if field.startswith(history) and value[:1] == _VERSION:
            try:
                yield _STORED.decode(value[1:])
            except msgspec.MsgspecError:
                continue


def _count_common_steps(one: bytes, other: bytes) -> int:
    """Number of equal steps, counted from the nearest."""
    count = 0
    for at in range(0, min(len(one), len(other)), _STEP):
        if one[at : at + _STEP] != other[at : at + _STEP]:
            break
        count += 1
    return count


def is_empty_reasoning(reasoning: Reasoning | None) -> bool:
    """Whether a host would not miss it: no text, no signature, no details."""
    return reasoning is None or not (reasoning.text.strip() or reasoning.signature or reasoning.details)


def _join_reasoning(parts: Iterable[Reasoning]) -> Reasoning | None:
    """All reasoning of a message as one value. A signature is valid for a single text only."""
    nonempty = [part for part in parts if not is_empty_reasoning(part)]
    if len(nonempty) < 2:
        return nonempty[0] if nonempty else None
    text = "\n".join(part.text for part in nonempty if part.text)
    return Reasoning(text, None, tuple(entry for part in nonempty for entry in part.details), nonempty[0].field)


# --- digests ------------------------------------------------------------------------------------------------------


def _turn_step(message: Message) -> str | None:
    """The step of an assistant turn; None if it has no content."""
    if message.is_one_text:
        return "a" + _digest_of_text(message) if cast(Text, message.parts[0]).text.strip() else None
    calls = [part for part in message.parts if isinstance(part, ToolCall)]
    content = [part for part in message.parts if isinstance(part, (Text, Media))]
    shows = any(isinstance(part, Media) for part in content)
    if not calls and not shows and not any(isinstance(part, Text) and part.text.strip() for part in content):
        return None
    call_texts = (text for call in calls for text in (call.name, _canonical(call.arguments)))
    return ("c" if calls or shows else "a") + _digest_of(content, call_texts).hex()


def _digest_of(parts: Iterable[Part], more: Iterable[str] = ()) -> bytes:
    """Digest of text and media, and further strings; each with its length, so that the result is unambiguous."""
    text, pieces = list[str](), list[str]()
    for part in parts:
        if isinstance(part, Text):
            text.append(part.text)
        elif isinstance(part, Media):
            pieces += [part.kind, part.url or "", _digest(part.data) if part.data is not None else ""]
    encoded = [piece.encode("utf-8", "surrogatepass") for piece in ("".join(text).strip(), *pieces, "", *more)]
    return blake2b(b"".join([b"%d:%b" % (len(data), data) for data in encoded]), digest_size=_DIGEST).digest()


def _digest_of_text(message: Message) -> str:
    """The same for a message with a single text, as hexadecimal digits."""
    data = cast(Text, message.parts[0]).text.strip().encode("utf-8", "surrogatepass")
    return blake2b(b"%d:%b0:" % (len(data), data), digest_size=_DIGEST).hexdigest()


def _digest(data: str | bytes) -> str:
    raw = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
    return blake2b(raw, digest_size=_DIGEST).hexdigest()


def _pack_steps(steps: Iterable[str]) -> bytes:
    return b"".join(step[0].encode() + bytes.fromhex(step[1:]) for step in steps)


def _canonical(arguments: str) -> str:
    """Normalized arguments: equal for every client, however it formats them.

    >>> _canonical('{"b": 1.0, "a": [ ]}'), _canonical(""), _canonical('{"a": ')
    ('{"a":[],"b":1}', '{}', '{"a": ')
    """
    if not arguments.strip():
        return "{}"
    try:
        value = json.loads(arguments, parse_float=_number)
        return json.dumps(value, sort_keys=True, separators=(",", ":"))
    except (ValueError, RecursionError):
        return arguments


def _number(text: str) -> Any:
    """Clients with a single number type write 1.0 as 1."""
    number = float(text)
    return int(number) if number.is_integer() else number
