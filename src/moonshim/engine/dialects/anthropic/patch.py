"""Writes a Messages response as its host sent it: events leave untouched, or patched where something had to change.

An event that says what the host's own said leaves as that came, byte for byte; one that had
to be changed keeps the host's other fields.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, Final, Generic, TypeAlias, TypeVar

from moonshim.engine.dialects.anthropic.encode import MessagesEncoder, encode_response
from moonshim.engine.dialects.protocol import PatchContext, Template
from moonshim.engine.frames import HostFrame, Released
from moonshim.engine.values.events import BlockDelta, Event, Failed

__all__ = ["MessagesPatchWriter"]

Body: TypeAlias = dict[str, Any]
Origin = TypeVar("Origin")
_MAX_UNMATCHED: Final = 8
_BLOCKS: Final = {
    "text_delta": "text",
    "thinking_delta": "thinking",
    "signature_delta": "thinking",
    "input_json_delta": "call",
}
"""To which kind of block a delta belongs."""


class MessagesPatchWriter(Generic[Origin]):
    """Encodes the response, and sends the host's own event in place of each one that says the same."""

    ends_with_reason: Final = False
    keeps_frames: Final = True
    single: Final = True
    ignored: Final[frozenset[str]] = frozenset()

    def __init__(self, context: PatchContext) -> None:
        self._context = context
        self._encoder = MessagesEncoder(context.reply)
        self._matcher: _FrameMatcher[Origin] = _FrameMatcher()

    @property
    def passes_text(self) -> bool:
        """Whether a text event that needs no repair leaves unchanged."""
        return not self._matcher.is_shifted

    @property
    def is_idle(self) -> bool:
        """Whether no event waits here for a later one."""
        return self._matcher.is_idle

    def write(self, frame: HostFrame[Origin]) -> list[Released[Origin]]:
        """What leaves for this frame."""
        if frame.payload is None and frame.origin is not None:
            return [Released(frame.origin)]
        events = _join_deltas(frame.parts[0].events) if frame.parts else []
        payloads = [payload for event in events for payload in self._encoder.feed(event)]
        return self._matcher.match(payloads, frame, over=False)

    def write_ending(self, frame: HostFrame[Origin], events: Sequence[Event]) -> list[Released[Origin]]:
        """The end of the response."""
        payloads = [payload for event in events for payload in self._encoder.feed(event)]
        return self._matcher.match(payloads, frame, over=True)

    def write_body(self, frame: HostFrame[Origin]) -> Body:
        """The whole response, the same object where nothing had to change."""
        body = frame.payload or {}
        events = frame.parts[0].events
        written = encode_response(events, self._context.reply)
        return written if any(isinstance(event, Failed) for event in events) else _keep_fields(body, written)

    def write_without_ending(self, frames: Sequence[HostFrame[Origin]]) -> list[Released[Origin]]:
        """Nothing is left of frames that only end the response; the blocks of the next one have other numbers."""
        self._matcher = _FrameMatcher(shifted=True)
        return []

    def template(self, index: int) -> Template | None:
        """How the next piece of this block is written."""
        return self._encoder.template(index)


def _join_deltas(events: list[Event]) -> list[Event]:
    """What came in one frame, and was decided in two steps, still leaves in one."""
    if len(events) < 2:
        return events
    out: list[Event] = []
    for event in events:
        last = out[-1] if out else None
        if isinstance(event, BlockDelta) and isinstance(last, BlockDelta) and event.index == last.index:
            out[-1] = BlockDelta(event.index, last.text + event.text)
        else:
            out.append(event)
    return out


class _FrameMatcher(Generic[Origin]):
    """Finds the host's own event for each one that is to leave.

    An event may leave later than it came (a block is opened by its first word), so
    frames for which nothing has left yet are remembered, as many as can be of use. The end of
    a block may be due earlier than it came: it waits for the host's next event.
    """

    def __init__(self, *, shifted: bool = False) -> None:
        self._unmatched: deque[HostFrame[Origin]] = deque(maxlen=_MAX_UNMATCHED)
        self._early: list[Body] = []
        self._shifted = shifted
        self._open_call: Any = None
        """The number of the call that is open for the client."""
        self._filled: Any = None
        """The host's number of the call that got input last."""
        self._empty: Any = None
        """The host's number of the call that got a delta without input last, and no other."""

    @property
    def is_shifted(self) -> bool:
        """Whether blocks have other numbers than the host's own: then deltas are never its own."""
        return self._shifted

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits."""
        return not self._unmatched and not self._early

    def match(self, payloads: list[Body], frame: HostFrame[Origin], *, over: bool) -> list[Released[Origin]]:
        """What goes out for this frame, each payload as the host's own where there is one."""
        if not self._shifted and any(self._shifts(payload, frame) for payload in payloads):
            self._shifted = True
        if self._shifted:
            return self._rewrite(payloads, frame)
        if _kind_of(_payload(frame)) == "call":
            self._note_input(_payload(frame))
            if not payloads and not self._early and self._continues_call(frame):
                return [Released(frame.origin)]
        payloads = [payload for payload in payloads if not self._is_filler(payload)]
        if self._early and frame.is_unknown and "index" in _payload(frame):
            payloads, self._early = [*self._early, *payloads], []
        if frame.is_unknown and not over:
            if payloads in ([], [_payload(frame)]) and self._is_in_unsent_block(frame):
                return self._wait(frame)
            if not payloads and frame.origin is not None and "index" not in _payload(frame):
                return [Released(frame.origin)]
        elif self._early:
            payloads, self._early = [*self._early, *payloads], []
        if frame.origin is not None and frame not in self._unmatched:
            self._unmatched.append(frame)
        released: list[Released[Origin]] = []
        for place, payload in enumerate(payloads, 1):
            self._note_call(payload)
            candidates = [one for one in self._unmatched if _is_match(_payload(one), payload)]
            exact = (one for one in candidates if _keep_fields(_payload(one), payload) is _payload(one))
            matched = next(exact, candidates[-1] if candidates else None)
            if matched is not None:
                released += self._skip_to(matched, payload)
                kept = _keep_fields(_payload(matched), payload)
                released.append(Released(matched.origin) if kept is _payload(matched) else Released(None, [kept]))
            elif place == len(payloads) and payload.get("type") == "content_block_stop" and not over:
                self._early = [payload]
            else:
                released.append(Released(None, [payload]))
        return released

    def _note_call(self, payload: Body) -> None:
        match payload:
            case {"type": "content_block_start"}:
                is_call = payload["content_block"].get("type") == "tool_use"
                self._open_call = payload["index"] if is_call else None
            case {"type": "content_block_stop"}:
                self._open_call = None

    def _note_input(self, delta: Body) -> None:
        index = delta.get("index")
        if not _is_empty(delta):
            self._filled, self._empty = index, None
        elif self._filled != index:
            self._empty = index

    def _continues_call(self, frame: HostFrame[Origin]) -> bool:
        """Whether this is a delta without input, as hosts send it first, of the call that is open for the client."""
        payload = _payload(frame)
        is_open = self._open_call is not None and self._open_call == payload.get("index")
        return is_open and frame.origin is not None and _is_empty(payload)

    def _is_filler(self, payload: Body) -> bool:
        """Whether this says that a call has no input, as the host said by an empty delta."""
        is_empty = self._empty is not None and self._empty == payload.get("index") and _kind_of(payload) == "call"
        return is_empty and payload["delta"].get("partial_json") in ("", "{}")

    def _shifts(self, payload: Body, frame: HostFrame[Origin]) -> bool:
        """Whether a block goes out under another number than it came by."""
        kind = payload.get("type")
        if kind == "content_block_start":
            begun = (*self._unmatched, frame)
            return not any(
                _is_match(_payload(one), payload) and _opens_same_kind(_payload(one), payload) for one in begun
            )
        pieces = kind == "content_block_delta" and _payload(frame).get("type") == "content_block_delta"
        return pieces and _payload(frame).get("index") != payload.get("index")

    def _rewrite(self, payloads: list[Body], frame: HostFrame[Origin]) -> list[Released[Origin]]:
        """Blocks are encoded; what belongs to no block still leaves as it came, where it says the same."""
        waiting = [one.origin for one in self._unmatched if one.is_unknown and "index" not in _payload(one)]
        payloads = [*self._early, *payloads]
        self._early = []
        self._unmatched.clear()
        released = [Released(origin) for origin in waiting]
        if frame.is_unknown and not payloads and "index" not in _payload(frame):
            return [*released, Released(frame.origin)]
        for payload in payloads:
            alike = "index" not in payload and _is_match(_payload(frame), payload)
            kept = _keep_fields(_payload(frame), payload) if alike else payload
            same = kept is _payload(frame) and frame.origin is not None
            released.append(Released(frame.origin) if same else Released(None, [kept]))
        return released

    def _is_in_unsent_block(self, frame: HostFrame[Origin]) -> bool:
        """Whether the start of the host's current block has not been sent yet: what passes stays after it."""
        started = [one for one in self._unmatched if _payload(one).get("type") == "content_block_start"]
        index = _payload(frame).get("index")
        return bool(started) and index in (None, _payload(started[-1]).get("index"))

    def _wait(self, frame: HostFrame[Origin]) -> list[Released[Origin]]:
        """Hold back at most one keep-alive event, so that the client still receives the others."""
        earlier = [one for one in self._unmatched if one.is_unknown and "index" not in _payload(one)]
        if "index" in _payload(frame) or not earlier:
            self._unmatched.append(frame)
            return []
        self._unmatched.remove(earlier[0])
        self._unmatched.append(frame)
        return [Released(earlier[0].origin)]

    def _skip_to(self, matched: HostFrame[Origin], payload: Body) -> list[Released[Origin]]:
        """Frames before this one that no payload will be like: what says nothing, or nothing that we know, leaves."""
        released: list[Released[Origin]] = []
        while (passed := self._unmatched.popleft()) is not matched:
            if _follows(_payload(passed), payload) and (passed.is_unknown or _is_empty(_payload(passed))):
                released.append(Released(passed.origin))
        return released


def _payload(frame: HostFrame[Any]) -> Body:
    return frame.payload or {}


def _opens_same_kind(incoming: Body, outgoing: Body) -> bool:
    """Whether both starts are of one kind of block."""
    one, other = incoming.get("content_block"), outgoing.get("content_block")
    return isinstance(one, dict) and isinstance(other, dict) and one.get("type") == other.get("type")


def _is_match(incoming: Body, outgoing: Body) -> bool:
    return incoming.get("type") == outgoing.get("type") and incoming.get("index") == outgoing.get("index")


def _follows(passed: Body, payload: Body) -> bool:
    """Whether a frame can leave right before this payload: it belongs to no block, or to the same one."""
    if "index" not in passed:
        return True
    if passed["index"] != payload.get("index") or payload.get("type") == "content_block_start":
        return False
    kinds = {_kind_of(passed), _kind_of(payload)}
    return None in kinds or len(kinds) == 1


def _kind_of(payload: Body) -> str | None:
    """The kind of block that this delta belongs to, if it says so."""
    delta = payload.get("delta")
    kind = delta.get("type") if isinstance(delta, dict) else None
    return _BLOCKS.get(kind) if isinstance(kind, str) else None


def _is_empty(payload: Body) -> bool:
    """Whether this is a delta that says nothing: hosts begin the input of a call with one."""
    delta = payload.get("delta")
    return isinstance(delta, dict) and all(not value for name, value in delta.items() if name != "type")


def _keep_fields(incoming: Body, outgoing: Body) -> Body:
    """What came, if it says all that is to go out; else that, with the fields of what came that it says nothing of."""
    try:
        return incoming if _covers(incoming, outgoing) else _merge(incoming, outgoing)
    except RecursionError:
        return outgoing


def _covers(incoming: Any, outgoing: Any) -> bool:
    """Whether what came says all that is to go out; what is null need not be said."""
    if isinstance(incoming, dict) and isinstance(outgoing, dict):
        if not outgoing and incoming:
            return False
        return all(_covers_field(incoming, key, value) for key, value in outgoing.items())
    if isinstance(incoming, list) and isinstance(outgoing, list):
        return len(incoming) == len(outgoing) and all(map(_covers, incoming, outgoing))
    return type(incoming) is type(outgoing) and bool(incoming == outgoing)


def _covers_field(incoming: Body, key: str, value: Any) -> bool:
    if key == "usage" and isinstance(value, dict) and isinstance(incoming.get(key), dict):
        # How much of its count a host repeats, and when, is its own business.
        return all(value.get(name, number) == number for name, number in incoming[key].items())
    if key not in incoming:
        # Clients append deltas to the empty text of a start: that has to be there. A signature is not appended.
        return value is None or (key == "signature" and not value)
    return _covers(incoming[key], value)


def _merge(incoming: Body, outgoing: Body) -> Body:
    """What is to go out, with the fields of the host's own payload that it says nothing of."""
    out = dict(incoming)
    for key, value in outgoing.items():
        known = incoming.get(key)
        if isinstance(known, dict) and isinstance(value, dict) and value and known.get("type") == value.get("type"):
            out[key] = _merge(known, value)
        else:
            out[key] = value
    return out
