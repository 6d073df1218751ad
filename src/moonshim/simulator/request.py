"""What a model is asked, whatever dialect it came in: values that the scripted model and the renderers read."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from msgspec import Struct

__all__ = ["Json", "OfferedTool", "Part", "Role", "SimCall", "SimMedia", "SimRequest", "SimResult", "SimTurn", "Wire"]

Json: TypeAlias = dict[str, Any]
Wire: TypeAlias = Literal["openai_chat", "anthropic"]
Role: TypeAlias = Literal["system", "user", "assistant", "tool"]


class SimMedia(Struct, frozen=True):
    """A picture or a film. What is in it nobody here looks at."""

    kind: Literal["image", "video"] = "image"


Part: TypeAlias = "str | SimMedia"


class SimCall(Struct, frozen=True):
    """A call of the history, as the client sent it back."""

    id: str
    name: str
    arguments: str


class SimResult(Struct, frozen=True):
    """What a tool returned. `name` is that of the call with the same id; empty when there is none."""

    call_id: str
    name: str
    text: str
    is_error: bool = False
    parts: tuple[Part, ...] = ()
    """Text and media in their order; empty when there is only the text."""


class SimTurn(Struct, frozen=True, kw_only=True):
    """One message. Results of Messages stand in a turn of role `tool`, with the text that came beside them."""

    role: Role
    name: str = ""
    """Whose words they are, where the client says so: a template writes it in the place of the role."""
    text: str = ""
    parts: tuple[Part, ...] = ()
    """Text and media in their order; empty when there is only the text."""
    reasoning: str | None = None
    """None: the client sent none; empty: it sent an empty one."""
    calls: tuple[SimCall, ...] = ()
    results: tuple[SimResult, ...] = ()
    tools: tuple[OfferedTool, ...] = ()
    """Tools that a system message brings (K3)."""
    partial: bool = False
    """An answer that has been begun, and that the model goes on with (`partial` in the last message)."""

    def begins_message(self, before: SimTurn | None) -> bool:
        """Whether a person says something new here, behind this turn (those of the system aside).

        Words behind results are no new message, but stand beside them: agents remind of things there, and bring images
        that a result cannot hold. Whoever began again at each would never end.
        """
        return self.role == "user" and (before is None or (before.role == "assistant" and not before.calls))


class OfferedTool(Struct, frozen=True):
    """A tool that may be called."""

    name: str
    description: str = ""
    schema: Json = {}
    declared: Json = {}
    """Chat: the entry of `tools` as it came, with what the three above do not say (`strict`, a built-in type)."""


class SimRequest(Struct, frozen=True, kw_only=True):
    """A request that no rule refused."""

    wire: Wire
    model: str
    """Without what was added to it: `kimi-k2.5`, where `kimi-k2.5+split-bytes` was asked for."""
    generation: str
    """`k2`, `k2-thinking`, `k2.5`, `k2.6`, `k2.7`, `k3`, `k3.1`, or `other` for a model that is no Kimi."""
    turns: tuple[SimTurn, ...]
    tools: tuple[OfferedTool, ...] = ()
    """Every tool: those of the request, then those that messages bring."""
    tool_choice: str = "auto"
    """`auto`, `none`, `required`, or the name of a tool."""
    thinking: bool = True
    stream: bool = False
    wants_usage: bool = True
    """Whether a stream should tell its usage (`stream_options.include_usage`); Messages always does."""
    max_tokens: int | None = None
    body: Json = {}
    """The request as it came."""

    @property
    def family(self) -> str:
        """`k2`, `k3` or `other`: which grammar the model writes."""
        return self.generation[:2] if self.generation != "other" else "other"

    @property
    def words(self) -> str:
        """What the user said last."""
        return next((turn.text for turn in reversed(self.turns) if turn.role == "user"), "")

    @property
    def since(self) -> tuple[SimTurn, ...]:
        """The turns behind the beginning of the user's last message: what this answer goes on from."""
        asked, before = -1, None
        for at, turn in enumerate(self.turns):
            if turn.role != "system":
                asked, before = (at if turn.begins_message(before) else asked), turn
        return self.turns[asked + 1 :]

    @property
    def round(self) -> int:
        """Which answer to the user's last message this will be; the first is 1."""
        return 1 + sum(turn.role == "assistant" for turn in self.since)

    @property
    def history(self) -> tuple[SimCall, ...]:
        """Every call so far, in order."""
        return tuple(call for turn in self.turns for call in turn.calls)
