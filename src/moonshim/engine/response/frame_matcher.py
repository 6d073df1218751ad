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
_UNTOLD: Final = 8
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
        self._untold: deque[HostFrame[Origin]] = deque(maxlen=_UNTOLD)
        self._early: list[Body] = []
        self._shifted = shifted
        """Blocks have other numbers than the host's own: from now on they are known by nothing."""

    @property
    def writes_anew(self) -> bool:
        """Whether deltas leave as they are written: their blocks have other numbers than the host's."""
        return self._shifted

    @property
    def is_calm(self) -> bool:
        """Whether nothing waits to be told, or to be told as."""
        return not self._untold and not self._early

    def match(self, payloads: list[Body], frame: HostFrame[Origin], *, over: bool) -> list[Released[Origin]]:
        """What goes out for this frame, each payload as the host's own where there is one."""
        if not self._shifted and any(self._is_shifted(payload, frame) for payload in payloads):
            self._shifted = True
        if self._shifted:
            return self._anew(payloads, frame)
        if self._early and frame.passes and "index" in frame.payload:
            payloads, self._early = [*self._early, *payloads], []
        if frame.passes and not over:
            if payloads in ([], [frame.payload]) and self._opening(frame):
                return self._wait(frame)
            if not payloads and frame.origin is not None and "index" not in frame.payload:
                return [Released(frame.origin)]
        elif self._early:
            payloads, self._early = [*self._early, *payloads], []
        if frame.origin is not None and frame not in self._untold:
            self._untold.append(frame)
        released: list[Released[Origin]] = []
        for place, payload in enumerate(payloads, 1):
            twins = [one for one in self._untold if _is_twin(one.payload, payload)]
            exact = (one for one in twins if keep_fields(one.payload, payload) is one.payload)
            twin = next(exact, twins[-1] if twins else None)
            if twin is not None:
                released += self._pass_by(twin, payload)
                kept = keep_fields(twin.payload, payload)
                released.append(Released(twin.origin) if kept is twin.payload else Released(None, [kept]))
            elif place == len(payloads) and payload.get("type") == "content_block_stop" and not over:
                self._early = [payload]
            else:
                released.append(Released(None, [payload]))
        return released

    def _is_shifted(self, payload: Body, frame: HostFrame[Origin]) -> bool:
        """Whether a block goes out under another number than it came by."""
        kind = payload.get("type")
        if kind == "content_block_start":
            begun = (*self._untold, frame)
            return not any(_is_twin(one.payload, payload) and _opens_alike(one.payload, payload) for one in begun)
        pieces = kind == "content_block_delta" and frame.payload.get("type") == "content_block_delta"
        return pieces and frame.payload.get("index") != payload.get("index")

    def _anew(self, payloads: list[Body], frame: HostFrame[Origin]) -> list[Released[Origin]]:
        """Blocks are written anew; what belongs to no block still leaves as it came, where it says the same."""
        waiting = [one.origin for one in self._untold if one.passes and "index" not in one.payload]
        payloads = [*self._early, *payloads]
        self._early = []
        self._untold.clear()
        released = [Released(origin) for origin in waiting]
        if frame.passes and not payloads and "index" not in frame.payload:
            return [*released, Released(frame.origin)]
        for payload in payloads:
            alike = "index" not in payload and _is_twin(frame.payload, payload)
            kept = keep_fields(frame.payload, payload) if alike else payload
            same = kept is frame.payload and frame.origin is not None
            released.append(Released(frame.origin) if same else Released(None, [kept]))
        return released

    def _opening(self, frame: HostFrame[Origin]) -> bool:
        """Whether the block that the host has just begun is not told yet: what passes stays behind its start."""
        started = [one for one in self._untold if one.payload.get("type") == "content_block_start"]
        index = frame.payload.get("index")
        return bool(started) and index in (None, started[-1].payload.get("index"))

    def _wait(self, frame: HostFrame[Origin]) -> list[Released[Origin]]:
        """Of signs of life only one waits, so that their client goes on hearing them."""
        earlier = [one for one in self._untold if one.passes and "index" not in one.payload]
        if "index" in frame.payload or not earlier:
            self._untold.append(frame)
            return []
        self._untold.remove(earlier[0])
        self._untold.append(frame)
        return [Released(earlier[0].origin)]

    def _pass_by(self, twin: HostFrame[Origin], payload: Body) -> list[Released[Origin]]:
        """Frames before this one that no payload will be like: what says nothing, or nothing that we know, leaves."""
        released: list[Released[Origin]] = []
        while (passed := self._untold.popleft()) is not twin:
            if _follows(passed.payload, payload) and (passed.passes or _is_empty(passed.payload)):
                released.append(Released(passed.origin))
        return released


def _opens_alike(came: Body, output_format: Body) -> bool:
    """Whether both starts are of one kind of block."""
    one, other = came.get("content_block"), output_format.get("content_block")
    return isinstance(one, dict) and isinstance(other, dict) and one.get("type") == other.get("type")


def _is_twin(came: Body, output_format: Body) -> bool:
    return came.get("type") == output_format.get("type") and came.get("index") == output_format.get("index")


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


def keep_fields(came: Body, output_format: Body) -> Body:
    """What came, if it says all that is to go out; else that, with the fields of what came that it says nothing of."""
    try:
        return came if _says_all(came, output_format) else _kept(came, output_format)
    except RecursionError:
        return output_format


def _says_all(came: Any, output_format: Any) -> bool:
    """Whether what came says all that is to go out; what is null need not be said."""
    if isinstance(came, dict) and isinstance(output_format, dict):
        if not output_format and came:
            return False
        return all(_says(came, key, value) for key, value in output_format.items())
    if isinstance(came, list) and isinstance(output_format, list):
        return len(came) == len(output_format) and all(map(_says_all, came, output_format))
    return type(came) is type(output_format) and bool(came == output_format)


def _says(came: Body, key: str, value: Any) -> bool:
    if key == "usage" and isinstance(value, dict) and isinstance(came.get(key), dict):
        # How much of its count a host repeats, and when, is its own business.
        return all(value.get(name, number) == number for name, number in came[key].items())
    if key not in came:
        # Clients put deltas behind the empty text of a start: that has to be there. A signature is not put behind one.
        return value is None or (key == "signature" and not value)
    return _says_all(came[key], value)


def _kept(came: Body, output_format: Body) -> Body:
    """What is to go out, with the fields of the host's own payload that it says nothing of."""
    out = dict(came)
    for key, value in output_format.items():
        known = came.get(key)
        if isinstance(known, dict) and isinstance(value, dict) and value and known.get("type") == value.get("type"):
            out[key] = _kept(known, value)
        else:
            out[key] = value
    return out
