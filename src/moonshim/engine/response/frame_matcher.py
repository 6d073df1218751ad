"""What is to go out in Messages, and the frames that came -> the host's own frame wherever that says the same.

A payload that says what the host's own said leaves as that came, byte for byte; one that had
to be changed keeps the host's other fields.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Final, Generic, TypeAlias, TypeVar

from moonshim.engine.repair.frame_output import FrameOutput
from moonshim.engine.response.chunk_mender import Released

__all__ = ["FrameMatcher", "HostFrame", "keep_fields"]

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


class HostFrame(Generic[Origin]):
    """A payload of the host on its way, and what became of it."""

    __slots__ = ("origin", "output", "passes", "payload", "size")

    def __init__(self, origin: Origin | None, payload: Body, output: FrameOutput) -> None:
        self.origin = origin
        self.payload = payload
        self.output = output
        self.size = 0
        self.passes = False
        """It says nothing that we have a word for, and leaves as it came."""


class FrameMatcher(Generic[Origin]):
    """Where both sides speak the same dialect: what goes out leaves as the host's own frame that says it.

    A payload may be told later than it came (a block is opened by its first word), so
    frames that have told nothing yet are remembered, as many as can be of use. The end of
    a block may be told earlier than it came: it waits for the host's next word.
    """

    def __init__(self, *, shifted: bool = False) -> None:
        self._unmatched: deque[HostFrame[Origin]] = deque(maxlen=_MAX_UNMATCHED)
        self._early: list[Body] = []
        self._shifted = shifted
        """Blocks have other numbers than the host's own: from now on they are known by nothing."""

    @property
    def rewrites_deltas(self) -> bool:
        """Whether deltas leave as they are written: their blocks have other numbers than the host's."""
        return self._shifted

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits to be told, or to be told as."""
        return not self._unmatched and not self._early

    def match(self, payloads: list[Body], frame: HostFrame[Origin], *, over: bool) -> list[Released[Origin]]:
        """What goes out for this frame, each payload as the host's own where there is one."""
        if not self._shifted and any(self._is_shifted(payload, frame) for payload in payloads):
            self._shifted = True
        if self._shifted:
            return self._rewrite(payloads, frame)
        if self._early and frame.passes and "index" in frame.payload:
            payloads, self._early = [*self._early, *payloads], []
        if frame.passes and not over:
            if payloads in ([], [frame.payload]) and self._is_in_unsent_block(frame):
                return self._wait(frame)
            if not payloads and frame.origin is not None and "index" not in frame.payload:
                return [Released(frame.origin)]
        elif self._early:
            payloads, self._early = [*self._early, *payloads], []
        if frame.origin is not None and frame not in self._unmatched:
            self._unmatched.append(frame)
        released: list[Released[Origin]] = []
        for place, payload in enumerate(payloads, 1):
            candidates = [one for one in self._unmatched if _is_match(one.payload, payload)]
            exact = (one for one in candidates if keep_fields(one.payload, payload) is one.payload)
            matched = next(exact, candidates[-1] if candidates else None)
            if matched is not None:
                released += self._skip_to(matched, payload)
                kept = keep_fields(matched.payload, payload)
                released.append(Released(matched.origin) if kept is matched.payload else Released(None, [kept]))
            elif place == len(payloads) and payload.get("type") == "content_block_stop" and not over:
                self._early = [payload]
            else:
                released.append(Released(None, [payload]))
        return released

    def _is_shifted(self, payload: Body, frame: HostFrame[Origin]) -> bool:
        """Whether a block goes out under another number than it came by."""
        kind = payload.get("type")
        if kind == "content_block_start":
            begun = (*self._unmatched, frame)
            return not any(_is_match(one.payload, payload) and _opens_same_kind(one.payload, payload) for one in begun)
        pieces = kind == "content_block_delta" and frame.payload.get("type") == "content_block_delta"
        return pieces and frame.payload.get("index") != payload.get("index")

    def _rewrite(self, payloads: list[Body], frame: HostFrame[Origin]) -> list[Released[Origin]]:
        """Blocks are written anew; what belongs to no block still leaves as it came, where it says the same."""
        waiting = [one.origin for one in self._unmatched if one.passes and "index" not in one.payload]
        payloads = [*self._early, *payloads]
        self._early = []
        self._unmatched.clear()
        released = [Released(origin) for origin in waiting]
        if frame.passes and not payloads and "index" not in frame.payload:
            return [*released, Released(frame.origin)]
        for payload in payloads:
            alike = "index" not in payload and _is_match(frame.payload, payload)
            kept = keep_fields(frame.payload, payload) if alike else payload
            same = kept is frame.payload and frame.origin is not None
            released.append(Released(frame.origin) if same else Released(None, [kept]))
        return released

    def _is_in_unsent_block(self, frame: HostFrame[Origin]) -> bool:
        """Whether the block that the host has just begun is not told yet: what passes stays behind its start."""
        started = [one for one in self._unmatched if one.payload.get("type") == "content_block_start"]
        index = frame.payload.get("index")
        return bool(started) and index in (None, started[-1].payload.get("index"))

    def _wait(self, frame: HostFrame[Origin]) -> list[Released[Origin]]:
        """Of signs of life only one waits, so that their client goes on hearing them."""
        earlier = [one for one in self._unmatched if one.passes and "index" not in one.payload]
        if "index" in frame.payload or not earlier:
            self._unmatched.append(frame)
            return []
        self._unmatched.remove(earlier[0])
        self._unmatched.append(frame)
        return [Released(earlier[0].origin)]

    def _skip_to(self, matched: HostFrame[Origin], payload: Body) -> list[Released[Origin]]:
        """Frames before this one that no payload will be like: what says nothing, or nothing that we know, leaves."""
        released: list[Released[Origin]] = []
        while (passed := self._unmatched.popleft()) is not matched:
            if _follows(passed.payload, payload) and (passed.passes or _is_empty(passed.payload)):
                released.append(Released(passed.origin))
        return released


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


def keep_fields(incoming: Body, outgoing: Body) -> Body:
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
        # Clients put deltas behind the empty text of a start: that has to be there. A signature is not put behind one.
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
