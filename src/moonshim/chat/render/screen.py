"""The steps of a turn -> finished items, to be printed once, and items that still grow.

Pure: no clock, no terminal. A piece of text is finished as soon as nothing that comes later can change how it looks, so
that little has to be repainted.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from moonshim.agent.events import MessageSaved, RoundStarted, RunEnded, SaveFailed, Step, ToolEnded, ToolStarted
from moonshim.chat.render.markdown_cut import finished_length
from moonshim.engine.values.conversation import Text, ToolCall, ToolResult
from moonshim.engine.values.events import BlockClosed, BlockDelta, BlockOpened, Repaired

__all__ = ["NoticeItem", "ReasoningItem", "Screen", "ScreenItem", "TextItem", "ToolCallItem", "text_of_result"]

CallState: TypeAlias = Literal["arriving", "whole", "running", "done", "broken"]


class TextItem(Struct, frozen=True):
    """A piece of the answer, in Markdown."""

    text: str
    first: bool = True
    """Whether it is the start of the answer."""


class ReasoningItem(Struct, frozen=True):
    """A piece of the reasoning, or the sign that there is some."""

    text: str
    first: bool = True
    folded: bool = False
    words: int = 0
    """Number of lines in all of it, so far."""


class ToolCallItem(Struct, frozen=True):
    """A call, and its result when it has one."""

    name: str
    arguments: str = ""
    state: CallState = "arriving"
    result: str = ""
    is_error: bool = False
    seconds: float = 0.0
    full: bool = False
    """Whether to show all of it, for a permission decision."""


class NoticeItem(Struct, frozen=True):
    """Something outside the conversation: a failure, a note."""

    text: str
    kind: Literal["note", "failed"] = "note"


ScreenItem: TypeAlias = TextItem | ReasoningItem | ToolCallItem | NoticeItem

_ENDINGS: Final[dict[str, str]] = {
    "rounds": "Round limit reached.",
    "repeating": "The model kept repeating the same call.",
    "failed": "The request failed.",
    "refused": "Stopped: a tool call was denied.",
    "cancelled": "Stopped.",
}


class Screen:
    """One turn: `feed` it with every step, `take` what can be printed, show `open_items` below that."""

    def __init__(self, *, folded: bool = False) -> None:
        self.folded = folded
        """Whether reasoning is shown as a line; it can be changed at any time."""
        self.model = ""
        self.hidden: list[str] = []
        """The reasoning that was folded, to be shown on request."""
        self.repairs: list[Repaired] = []
        self._open: list[_Block] = []  # in the order in which they are shown
        self._blocks: dict[int, _Block] = {}  # of the current response, by their index
        self._calls: dict[str, _Block] = {}  # by the id that the loop has for them
        self._model_called = False

    @property
    def is_waiting(self) -> bool:
        """Whether the model was called and nothing of its response has arrived."""
        return self._model_called and not self._blocks

    def feed(self, step: Step) -> None:
        match step:
            case RoundStarted(model=model):
                self.model, self._blocks, self._model_called = model, {}, True
            case BlockOpened(index=index, kind=kind, name=name, call_id=call_id):
                block = self._blocks[index] = _Block(kind, name or "")
                self._open.append(block)
                if call_id is not None:
                    self._calls[call_id] = block
            case BlockDelta(index=index, text=text) if index in self._blocks:
                self._blocks[index].grow(text)
            case BlockClosed(index=index, complete=complete) if index in self._blocks:
                self._close(self._blocks[index], complete)
            case Repaired():
                self.repairs.append(step)
            case ToolStarted(call=call):
                self._block_of(call).state = "running"
            case ToolEnded(call=call, result=result, seconds=seconds):
                self._end_call(call, result, seconds)
            case MessageSaved(message=message) if message.role == "assistant":
                self._model_called = False
            case SaveFailed(detail=detail):
                self._add_notice(NoticeItem(detail, "failed"))
            case RunEnded(reason=reason, detail=detail):
                self.end()
                if reason != "answered":
                    by_hand = reason in ("refused", "cancelled")
                    self._add_notice(NoticeItem(detail or _ENDINGS[reason], "note" if by_hand else "failed"))
            case _:
                pass

    def take(self) -> list[ScreenItem]:
        """The items that have been finished since the last call, in order."""
        done: list[ScreenItem] = []
        while self._open:
            block = self._open[0]
            pieces = block.pieces(self.folded)
            self.hidden += [block.text for piece in pieces if isinstance(piece, ReasoningItem) and piece.folded]
            done += pieces
            if not block.is_done:
                break
            del self._open[0]
        return done

    def open_items(self) -> list[ScreenItem]:
        """The unfinished items, as they look now."""
        return [item for block in self._open if (item := block.open_item(self.folded)) is not None]

    def end(self) -> None:
        """End of the turn: everything that still grows is finished as it is."""
        self._model_called = False
        for block in self._open:
            if not block.is_done:
                self._close(block, False)
                block.state = "broken" if block.kind == "call" else "done"

    def _add_notice(self, notice: NoticeItem) -> None:
        block = _Block("told", "")
        block.notice, block.state = notice, "done"
        self._open.append(block)

    # -- single items
    # ----------------------------------------------------------------------------------------------------

    def _close(self, block: _Block, complete: bool) -> None:
        block.state = "done" if block.kind != "call" else "whole" if complete else "broken"

    def _block_of(self, call: ToolCall) -> _Block:
        """The block of a call. A call without one, which another program made, gets one."""
        block = self._calls.get(call.id)
        if block is None:
            block = self._calls[call.id] = _Block("call", call.name)
            self._open.append(block)
        block.name, block.text = call.name, call.arguments
        return block

    def _end_call(self, call: ToolCall, result: ToolResult, seconds: float) -> None:
        block = self._block_of(call)
        block.result, block.is_error, block.seconds = text_of_result(result), result.is_error, seconds
        block.state = "done"


def text_of_result(result: ToolResult) -> str:
    """A tool's result for display; media by their kind.

    >>> from moonshim.engine.values.conversation import Media
    >>> text_of_result(ToolResult("1", parts=(Text("ok"), Media("image"))))
    'ok\\n[image]'
    """
    return "\n".join(part.text if isinstance(part, Text) else f"[{part.kind}]" for part in result.parts)


class _Block:
    """A block of a response on its way to the screen."""

    def __init__(self, kind: str, name: str) -> None:
        self.kind, self.name = kind, name
        self._text = ""
        self._grown: list[str] = []
        self.state: CallState = "arriving"
        self.result: str | None = None
        self.is_error, self.seconds = False, 0.0
        self.notice: NoticeItem | None = None
        self._printed = 0  # how much of the text has been printed
        self._started = False
        self._looked_at = 0

    @property
    def is_done(self) -> bool:
        return self.state in ("done", "broken")

    def grow(self, text: str) -> None:
        self._grown.append(text)

    @property
    def text(self) -> str:
        if self._grown:  # joined on demand: arguments of a megabyte come in a quarter of a million pieces
            self._text += "".join(self._grown)
            self._grown.clear()
        return self._text

    @text.setter
    def text(self, text: str) -> None:
        self._text = text
        self._grown.clear()

    def pieces(self, folded: bool) -> list[ScreenItem]:
        """The pieces that can be printed now; each is returned once."""
        match self.kind:
            case "told":
                return [self.notice] if self.notice is not None else []
            case "call":
                return [self._call_item()] if self.is_done else []
            case "reasoning" if folded and not self._started:
                return [self._folded_item()] if self.is_done and self.text.strip() else []
            case "reasoning":
                end = len(self.text) if self.is_done else self.text.rfind("\n") + 1
            case _:
                end = len(self.text) if self.is_done else self._printed + self._stable_length()
        piece = self.text[self._printed : end]
        if not piece.strip():
            return []
        made = self._piece(piece)
        self._printed, self._started = end, True
        return [made]

    def _stable_length(self) -> int:
        """How much of the rest looks the same whatever follows. A long block is parsed again only when it has grown by
        a tenth, so that the work stays linear."""
        rest = self.text[self._printed :]
        if len(rest) < self._looked_at * 1.1:
            return 0
        found = finished_length(rest)
        self._looked_at = 0 if found else len(rest)
        return found

    def open_item(self, folded: bool) -> ScreenItem | None:
        """The rest, as it looks now."""
        if self.kind in ("call", "told"):
            return self.notice if self.kind == "told" else self._call_item()
        rest = self.text[self._printed :]
        if not rest.strip():
            return None
        if self.kind == "reasoning" and folded and not self._started:
            return self._folded_item()
        return self._piece(rest)

    def _piece(self, text: str) -> ScreenItem:
        first = not self._started
        if self.kind == "reasoning":
            return ReasoningItem(text, first=first)
        return TextItem(text, first=first)

    def _folded_item(self) -> ReasoningItem:
        return ReasoningItem("", folded=True, words=len(self.text.split()))

    def _call_item(self) -> ToolCallItem:
        open_item = ToolCallItem(self.name, self.text, self.state)
        if self.result is None:
            return open_item
        return replace(open_item, result=self.result, is_error=self.is_error, seconds=self.seconds)
