"""A request to a model, whatever its dialect: values that the scripted model and the renderers read."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from msgspec import Struct

__all__ = ["Json", "OfferedTool", "Part", "Role", "SimCall", "SimMedia", "SimRequest", "SimResult", "SimTurn", "Wire"]

Json: TypeAlias = dict[str, Any]
Wire: TypeAlias = Literal["openai_chat", "anthropic"]
Role: TypeAlias = Literal["system", "user", "assistant", "tool"]


class SimMedia(Struct, frozen=True):
    """An image or a video. Its content is ignored."""

    kind: Literal["image", "video"] = "image"


Part: TypeAlias = "str | SimMedia"


class SimCall(Struct, frozen=True):
    """A call of the history, as the client sent it back."""

    id: str
    name: str
    arguments: str


class SimResult(Struct, frozen=True):
    """A tool's result. `name` is that of the call with the same id; empty if there is none."""

    call_id: str
    name: str
    text: str
    is_error: bool = False
    parts: tuple[Part, ...] = ()
    """Text and media in order; empty if there is only one text."""


class SimTurn(Struct, frozen=True, kw_only=True):
    """One message. Results in Messages become a turn of role `tool`, with the text that came beside them."""

    role: Role
    name: str = ""
    """The author's name, if the client sends one: a template writes it in place of the role."""
    text: str = ""
    parts: tuple[Part, ...] = ()
    """Text and media in order; empty if there is only one text."""
    reasoning: str | None = None
    """None: the client sent none; empty: it sent an empty one."""
    calls: tuple[SimCall, ...] = ()
    results: tuple[SimResult, ...] = ()
    tools: tuple[OfferedTool, ...] = ()
    """Tools declared in a system message (K3)."""
    partial: bool = False
    """A partial answer for the model to continue (`partial` in the last message)."""

    def begins_message(self, before: SimTurn | None) -> bool:
        """Whether this turn starts a new user message; `before` is the turn before it (ignoring system turns).

        Text after results is not a new message but belongs to them: agents add reminders there, and images that a
        result cannot hold. Starting over at each of them would never end.
        """
        return self.role == "user" and (before is None or (before.role == "assistant" and not before.calls))


class OfferedTool(Struct, frozen=True):
    """A tool that may be called."""

    name: str
    description: str = ""
    schema: Json = {}
    declared: Json = {}
    """Chat: the original entry of `tools`, with fields that the three above lack (`strict`, a built-in type)."""


class SimRequest(Struct, frozen=True, kw_only=True):
    """A request that passed all checks, in the form in which a `Model` gets it."""

    wire: Wire
    model: str
    """Without suffixes: `kimi-k2.5` for `kimi-k2.5+split-bytes`."""
    generation: str
    """`k2`, `k2-thinking`, `k2.5`, `k2.6`, `k2.7`, `k3`, `k3.1`, or `other` for a model that is not a Kimi."""
    turns: tuple[SimTurn, ...]
    tools: tuple[OfferedTool, ...] = ()
    """Every tool: those of the request, then those declared in messages."""
    tool_choice: str = "auto"
    """`auto`, `none`, `required`, or the name of a tool."""
    thinking: bool = True
    stream: bool = False
    wants_usage: bool = True
    """Whether a stream should report its usage (`stream_options.include_usage`); Messages always does."""
    max_tokens: int | None = None
    body: Json = {}
    """The original request."""

    @property
    def family(self) -> str:
        """`k2`, `k3` or `other`: the grammar that the model writes."""
        return self.generation[:2] if self.generation != "other" else "other"

    @property
    def words(self) -> str:
        """The user's last message."""
        return next((turn.text for turn in reversed(self.turns) if turn.role == "user"), "")

    @property
    def since(self) -> tuple[SimTurn, ...]:
        """The turns since the user's last message: what this response continues from."""
        start, before = -1, None
        for at, turn in enumerate(self.turns):
            if turn.role != "system":
                start, before = (at if turn.begins_message(before) else start), turn
        return self.turns[start + 1 :]

    @property
    def round(self) -> int:
        """Number of this response to the user's last message, from 1."""
        return 1 + sum(turn.role == "assistant" for turn in self.since)

    @property
    def history(self) -> tuple[SimCall, ...]:
        """Every call so far, in order."""
        return tuple(call for turn in self.turns for call in turn.calls)
