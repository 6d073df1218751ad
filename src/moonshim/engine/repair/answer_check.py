"""The events of a response -> the same, held back until the response is what the client demands of it.

A response that is not stays here: `wrong` says why, for the model that is asked again, and `release` returns it as the
model wrote it, unless it must not reach the client at all: see `refusal`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from moonshim.engine.values.events import (
    BlockClosed,
    BlockDelta,
    BlockOpened,
    BlockSigned,
    Event,
    Failed,
    Finished,
    Repaired,
)
from moonshim.engine.values.expected import ExpectedAnswer

__all__ = ["AnswerCheck"]

_COMPLETE: Final = ("stop", "tool_calls")
"""A response that ended otherwise was cut off: asking again would end in the same way."""


class AnswerCheck:
    """Checks one response. Reasoning passes at once; everything else waits until it is known to be right.

    Where a call is demanded, that call releases what is held. Where only some tools may be called, calls wait for the
    end of the response, and so does all that follows the first; text before it passes, if nothing else is demanded.
    """

    def __init__(self, expected: ExpectedAnswer) -> None:
        self._expected = expected
        self._held: list[Event] = []
        self._reasoning: set[int] = set()
        self._texts: list[str] = []
        self._calls: dict[int, str] = {}
        """The names of the tools that were called."""
        self._is_live = False
        self._passes_text = expected.allowed is not None and expected.tool is None and not expected.is_summary
        self._passing: set[int] = set()
        """Blocks of text that are passed on as they come."""
        self.passed_text = ""
        """What was passed on of a response that is not right."""
        self.wrong: tuple[str, ...] = ()
        """Why the response is not what was demanded; empty: it is, or it has not ended."""
        self.is_cut_off: bool = False
        """The response is wrong because it was cut off."""

    def feed(self, event: Event) -> list[Event]:
        """The events to pass on."""
        if self._is_live or not isinstance(event, (BlockOpened, BlockDelta, BlockSigned, BlockClosed)):
            return [event]
        index = event.index
        if isinstance(event, BlockOpened) and event.kind == "reasoning":
            self._reasoning.add(index)
        if index in self._reasoning:
            return [event]
        if self._passes_text and not self._calls and isinstance(event, BlockOpened) and event.kind == "text":
            self._passing.add(index)
        if index in self._passing:
            self.passed_text += event.text if isinstance(event, BlockDelta) else ""
            return [event]
        self._held.append(event)
        if isinstance(event, BlockOpened) and event.kind == "call":
            self._calls[index] = event.name or ""
            if self._is_settled_by(event.name or ""):
                return self._go_live()
        elif isinstance(event, BlockDelta) and index not in self._calls:
            self._texts.append(event.text)
        return []

    def end(self, finished: Finished) -> list[Event]:
        """The response ended well: what was held back; nothing if it is `wrong`."""
        if self._is_live:
            return []
        tool = self._expected.tool
        if self._expected.is_summary:
            if not "".join(self._texts).strip():
                self.wrong = ("there is no summary",)
            elif finished.reason in _COMPLETE:
                return self._text_alone()
        elif outside := self._calls_outside():
            self.wrong = tuple(f"the tool {name} must not be called now" for name in outside)
        elif tool is None or any(tool in ("", name) for name in self._calls.values()):
            return self._go_live()
        else:
            self.wrong = (f"the tool {tool} was not called" if tool else "no tool was called",)
        if finished.reason not in _COMPLETE:
            self.wrong, self.is_cut_off = (f"the response was cut off ({finished.reason})",), True
        return []

    def release(self) -> list[Event]:
        """A response that is `wrong`, as the model wrote it, with a report of what is wrong with it."""
        return [*self._go_live(), Repaired("forced_call_missing", "; ".join(self.wrong))]

    def refusal(self, names: Mapping[str, str]) -> Failed | None:
        """The error for a client that cannot be given this `wrong` response; None: `release` it.

        `names`: the client's names of the tools that have a different name at the host.
        """
        if self._expected.is_summary:
            return Failed("compaction_failed", "The model returned no summary.", retryable=True)
        if outside := self._calls_outside():
            called = ", ".join(names.get(name, name) for name in outside)
            return Failed(
                "call_not_allowed", f"The model called {called}, which allowed_tools excludes.", retryable=True
            )
        return None

    def _calls_outside(self) -> list[str]:
        """The tools that were called and may not be, each once."""
        allowed = self._expected.allowed
        called = dict.fromkeys(self._calls.values())
        return [] if allowed is None else [name for name in called if name not in allowed]

    def _is_settled_by(self, name: str) -> bool:
        """Whether a call of this tool makes the response right, whatever follows."""
        wanted = self._expected
        return wanted.allowed is None and not wanted.is_summary and wanted.tool in ("", name)

    def _text_alone(self) -> list[Event]:
        """The response as one text."""
        index = next(event.index for event in self._go_live() if isinstance(event, BlockOpened))
        return [BlockOpened(index, "text"), BlockDelta(index, "".join(self._texts).strip()), BlockClosed(index)]

    def _go_live(self) -> list[Event]:
        held, self._held, self._is_live = self._held, [], True
        return held
