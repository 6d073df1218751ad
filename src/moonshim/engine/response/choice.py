"""The state of one choice of a response, from frame to frame."""

from __future__ import annotations

from msgspec.structs import replace

from moonshim.engine.assemble import Assembler
from moonshim.engine.frames import ChoicePart
from moonshim.engine.grammar.kimi.special_tokens import TokenRestorer
from moonshim.engine.plan import Plan
from moonshim.engine.repair.json_fence import JsonFence
from moonshim.engine.repair.repairer import ResponseRepairer
from moonshim.engine.repair.surrogates import SurrogateJoiner
from moonshim.engine.upstream_events import FinishReported, SignatureReported
from moonshim.engine.values.conversation import Message, Reasoning, ToolCall
from moonshim.engine.values.events import CallPiece, Failed, Finished, Repaired

__all__ = ["Choice"]


class Choice:
    """What is remembered of one choice: its repairer, and the message that its events make."""

    __slots__ = (
        "assembler",
        "calls_before_reasoning",
        "carry",
        "current_call",
        "fence",
        "finish",
        "index",
        "reasoning_field",
        "repairer",
        "restorer",
    )

    def __init__(self, index: int, plan: Plan, *, collect: bool) -> None:
        self.index = index
        self.repairer: ResponseRepairer = plan.new_repairer()
        self.assembler: Assembler | None = Assembler(plan.names) if collect else None
        self.carry = SurrogateJoiner()
        self.restorer: TokenRestorer | None = TokenRestorer() if plan.defused else None
        """Takes the joiners out of special tokens that the request contained."""
        self.fence: JsonFence | None = JsonFence(plan.options.buffer_limit) if plan.unwraps_json else None
        """Takes a code fence off an answer that should be JSON."""
        self.finish: FinishReported | None = None
        """Why the choice ends, once the host has said so."""
        self.reasoning_field: str | None = None
        """The field in which a Chat host sends reasoning; None: none yet, or in copies."""
        self.calls_before_reasoning: int | None = None
        """Number of calls seen when the current reasoning block started."""
        self.current_call: int | None = None
        """The index of the native call that the host is sending."""

    @property
    def likely_ending(self) -> Finished | Failed | None:
        """How the choice ends, as far as that is known: only that nothing follows the finish reason is not certain."""
        repairer = self.repairer
        if repairer.ending is None and self.finish is not None and repairer.is_idle and not repairer.is_undecided:
            return repairer.resolve(self.finish.reason)
        return repairer.ending

    @property
    def is_silent(self) -> bool:
        """Whether the client got nothing but reasoning."""
        return not (self.repairer.blocks.has_text or self.repairer.calls)

    @property
    def message(self) -> Message:
        """What has left of the choice so far; empty where nothing is collected."""
        if self.assembler is None:
            return Message("assistant")
        message, field = self.assembler.message, self.reasoning_field
        if field is None or field == "reasoning_content":
            return message
        named = (
            replace(part, field=field) if isinstance(part, Reasoning) and part.field is None else part
            for part in message.parts
        )
        return replace(message, parts=tuple(named))

    def tool_calls(self) -> list[tuple[int, ToolCall]]:
        """The calls that have left so far, each with its number, in the order of the numbers."""
        assert self.assembler is not None
        numbers = self.repairer.numbers
        # A call from markers and one that is only watched may have the same number.
        return sorted(((numbers[block], call) for block, call in self.assembler.tool_calls()), key=lambda one: one[0])

    # -- what the host sends ---------------------------------------------------------

    def close_other_call(self, index: int | None, part: ChoicePart) -> None:
        """The host sends the call with this index. The one before may be whole: then clients need not wait for it."""
        if index != self.current_call:
            if self.current_call is not None:
                self.repairer.close_call(self.current_call, part, explicit=False)
            self.current_call = index

    def feed_call(self, piece: CallPiece, part: ChoicePart) -> None:
        """A piece of a native call."""
        self.calls_before_reasoning = None
        if self.carry.carried or not piece.arguments.isascii():
            joined = self.carry.join(("arguments", piece.index), piece.arguments, part)
            piece = replace(piece, arguments=joined)
        self.repairer.feed_call(piece, part)

    def sign(self, signed: SignatureReported, part: ChoicePart) -> None:
        """A signature says that reasoning is as the host wrote it. Reasoning that had a call in it no longer is."""
        if signed.field is not None:
            self.reasoning_field = self.reasoning_field or signed.field
        if signed.field == "reasoning_content":
            if not signed.signature and not signed.details:
                return  # the usual field needs no mention
            signed = replace(signed, field=None)
        calls = self.calls_before_reasoning
        if signed.signature and not signed.details and calls not in (None, self.repairer.calls):
            part.events.append(Repaired("signature_dropped", "a call was removed from the reasoning that it covers"))
        else:
            self.repairer.sign(signed, part)

    def flush_halves(self, part: ChoicePart) -> None:
        """Half a character at the end of a text stays alone."""
        if self.carry.carried:
            for channel, rest in self.carry.flush(part):
                if channel in ("text", "reasoning"):
                    self.repairer.feed_text(channel, rest, part)
