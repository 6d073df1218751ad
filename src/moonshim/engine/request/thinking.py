"""The client's thinking settings -> the fields in which this host expects them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from moonshim.engine.dialects.registry import dialect_named
from moonshim.engine.hosts.profile import HostProfile
from moonshim.engine.values.conversation import Change, Request, Thinking

__all__ = ["add_headroom", "is_switched_off", "spell_thinking", "thinks_anyway", "will_think"]

Json: TypeAlias = dict[str, Any]

_OFF: Final = frozenset({"none", "off", "disabled"})
_SPELLINGS: Final = {
    "openai_chat": ("thinking", "reasoning_effort", "chat_template_kwargs", "reasoning", "enable_thinking"),
    "anthropic": ("thinking",),
}
"""By dialect: fields in which clients set thinking. `output_config` also carries other settings, so the dialect
handles it."""
_TEMPLATE_WORDS: Final = frozenset({"thinking", "enable_thinking", "preserve_thinking", "thinking_effort"})
_REASONING_WORDS: Final = frozenset({"enabled", "effort", "max_tokens"})
# KIMI 3: K3 documents no thinking object but accepts these, which its own clients send.
_ACCEPTED: Final[tuple[Json, ...]] = ({"type": "enabled"}, {"type": "enabled", "keep": "all"})
_PLACE: Final = "thinking"
_MESSAGES_STYLES: Final = ("anthropic", "output_config")
"""Messages has no setting for keeping the reasoning of earlier turns."""


class RequestedThinking(Struct, frozen=True):
    """The client's settings, without anything that the host does not support."""

    enabled: bool | None
    effort: str | None
    """In the host's spelling."""
    budget: int | None
    keep: bool


def will_think(request: Request, profile: HostProfile) -> bool:
    """Whether the model will think. Gives the same result before and after the request is adapted.

    >>> from moonshim.engine.hosts.detect import profile_for
    >>> row = profile_for(host="moonshot", model="kimi-k2.6")
    >>> off = Request(model="", thinking=Thinking(enabled=False))
    >>> will_think(Request(model="kimi-k2.6"), row), will_think(off, row)
    (True, False)
    """
    enabled = False if is_switched_off(request) else request.thinking.enabled
    if profile.thinking is None or enabled is None or (enabled is False and not profile.can_disable):
        return profile.thinking_default == "on"
    return enabled


def is_switched_off(request: Request) -> bool:
    """Whether the request disables thinking, in any form."""
    enabled = request.thinking.enabled
    if enabled is None:
        return request.thinking.effort in _OFF or _is_disabled(request.body_overrides)
    return not enabled


def thinks_anyway(request: Request, profile: HostProfile) -> bool:
    """Whether this host's model is known to think although the request disables it.

    >>> from moonshim.engine.hosts.detect import profile_for
    >>> off = Request(model="", thinking=Thinking(enabled=False))
    >>> [thinks_anyway(off, profile_for(host="moonshot", model=name)) for name in ("kimi-k3", "kimi-k2.6")]
    [True, False]
    """
    return is_switched_off(request) and will_think(request, profile)


def add_headroom(request: Request, profile: HostProfile) -> tuple[Request, list[Change]]:
    """More output tokens for a model that thinks anyway: its reasoning shares the limit, which is about what the client
    sees. Where the host cannot give more, the limit stays."""
    tokens, headroom = request.sampling.max_tokens, profile.thinking_headroom
    if headroom is None or tokens is None or tokens <= 0:
        return request, []
    raised = tokens + headroom
    if profile.output_limit is not None:
        raised = min(raised, profile.output_limit)
    if not profile.clips_output and profile.context_window is not None and raised >= profile.context_window:
        raised = tokens
    if raised <= tokens:
        return request, []
    why = f"{tokens} raised to {raised}: this model thinks although the request disables it"
    return replace(request, sampling=replace(request.sampling, max_tokens=raised)), [
        Change("thinking_headroom", why, "max_tokens")
    ]


def _is_disabled(overrides: Json) -> bool:
    match overrides:
        case (
            {"thinking": {"type": "disabled"}}
            | {"chat_template_kwargs": {"thinking": False}}
            | {"reasoning": {"enabled": False}}
            | {"enable_thinking": False}
            | {"reasoning_effort": "none"}
        ):
            return True
    return False


def spell_thinking(request: Request, profile: HostProfile) -> tuple[Request, list[Change]]:
    """Set thinking in the host's spelling (`Request.body_overrides`); correct fields stay as received."""
    if profile.thinking == "passed":
        return request, []
    fields = _client_fields(request, profile)
    # An empty object (`thinking: {}`) is refused; in the other fields it is ignored.
    if request.thinking == Thinking() and "thinking" not in fields:
        return request, []
    changes: list[Change] = []
    wanted = _supported_thinking(request.thinking, profile, changes)
    rendered = _STYLES[profile.thinking](wanted, fields) if profile.thinking else {}
    left = Thinking(effort=wanted.effort) if profile.thinking == "output_config" else Thinking()
    right = _without_accepted(fields, profile) == rendered and (bool(fields) or left == request.thinking)
    if right and not changes and left in (Thinking(), request.thinking):
        return request, []
    if fields and not changes and rendered != fields:
        shown = ", ".join(sorted(rendered)) or "nothing, which has the same effect"
        changes.append(Change("thinking", f"{', '.join(sorted(fields))} sent to this host as {shown}", _PLACE))
    overrides: Json = dict.fromkeys(_SPELLINGS[profile.dialect]) | rendered
    return replace(request, thinking=left, body_overrides=request.body_overrides | overrides), changes


def _supported_thinking(thinking: Thinking, profile: HostProfile, changes: list[Change]) -> RequestedThinking:
    def cannot(what: str) -> None:
        changes.append(Change("thinking", what, _PLACE))

    enabled, effort = thinking.enabled, thinking.effort
    if effort in _OFF:
        enabled, effort = False if enabled is None else enabled, None
    if enabled is False:
        if effort is not None:
            cannot(f"effort {effort!r} dropped: thinking is disabled")
            effort = None
        if profile.thinking is None and profile.thinking_default != "on":
            return RequestedThinking(None, None, None, False)
        if not profile.can_disable or profile.thinking is None:
            enabled = None if profile.thinking is None else True
            effort = "none" if "none" in profile.efforts else None
            instead = f"sent as effort {profile.efforts['none']!r}" if effort else "it stays enabled"
            cannot(f"this model cannot disable thinking at this host: {instead}")
    elif enabled and profile.thinking is None and profile.thinking_default == "off":
        cannot("thinking dropped: this model does not support it")
        return RequestedThinking(None, None, None, False)
    word = profile.efforts.get(effort) if effort is not None else None
    if effort is not None and word is None:
        cannot(f"effort {effort!r} dropped: the host does not support it")
    elif word != effort and effort != "none":
        cannot(f"effort {effort!r} sent as {word!r}, the closest value that the host supports")
    keep = thinking.keep == "all" and enabled is not False
    sayable = profile.keep_all and profile.thinking not in _MESSAGES_STYLES
    if keep and not sayable and not profile.always_keeps:
        cannot("keep 'all' dropped: the host does not support it")
        keep = False
    budget = thinking.budget if enabled is not False else None
    if budget is not None and profile.thinking != "anthropic":
        cannot("thinking budget dropped: the host does not support it")
    return RequestedThinking(enabled, word, budget, keep)


def _client_fields(request: Request, profile: HostProfile) -> Json:
    """The client's own thinking fields, if it uses the host's dialect, except those already overridden."""
    received = dialect_named(profile.dialect).body_fields(request)
    return {
        key: received[key]
        for key in _SPELLINGS[profile.dialect]
        if received.get(key) is not None and key not in request.body_overrides
    }


def _without_accepted(fields: Json, profile: HostProfile) -> Json:
    """The client's fields without a thinking object that the host tolerates."""
    if profile.thinking == "reasoning_effort" and profile.keep_all and fields.get("thinking") in _ACCEPTED:
        return {key: value for key, value in fields.items() if key != "thinking"}
    return fields


# --- one function for each spelling: what is wanted, and the client's own fields -> fields of the body ----------------


def _thinking_object(wanted: RequestedThinking, fields: Json) -> Json:
    if wanted.enabled is None and not wanted.keep:
        return {}
    kind = "disabled" if wanted.enabled is False else "enabled"
    return {"thinking": {"type": kind} | ({"keep": "all"} if wanted.keep else {})}


def _reasoning_effort(wanted: RequestedThinking, fields: Json) -> Json:
    if wanted.enabled is False:
        return {"reasoning_effort": "none"}
    return {} if wanted.effort is None else {"reasoning_effort": wanted.effort}


def _template_kwargs(wanted: RequestedThinking, fields: Json) -> Json:
    kwargs: Json = {} if wanted.enabled is None else {"thinking": wanted.enabled}
    if wanted.keep:
        kwargs["preserve_thinking"] = True
    if wanted.effort is not None:
        kwargs["thinking_effort"] = wanted.effort
    kwargs = _other_keys(fields.get("chat_template_kwargs"), _TEMPLATE_WORDS) | kwargs
    return {"chat_template_kwargs": kwargs} if kwargs else {}


def _openrouter(wanted: RequestedThinking, fields: Json) -> Json:
    reasoning: Json = {}
    if wanted.effort is not None:
        reasoning = {"effort": wanted.effort}
    elif wanted.enabled is not None:
        reasoning = {"enabled": wanted.enabled}
    reasoning = _other_keys(fields.get("reasoning"), _REASONING_WORDS) | reasoning
    return {"reasoning": reasoning} if reasoning else {}


def _enable_thinking(wanted: RequestedThinking, fields: Json) -> Json:
    return {} if wanted.enabled is None else {"enable_thinking": wanted.enabled}


def _anthropic(wanted: RequestedThinking, fields: Json) -> Json:
    if wanted.enabled is None:
        return {}
    if wanted.enabled is False:
        return {"thinking": {"type": "disabled"}}
    budget = {} if wanted.budget is None else {"budget_tokens": wanted.budget}
    return {"thinking": {"type": "enabled"} | budget}


def _output_config(wanted: RequestedThinking, fields: Json) -> Json:
    """The dialect writes the effort into `output_config` itself; there is no thinking field."""
    return {}


def _other_keys(value: Any, known: frozenset[str]) -> Json:
    """The other keys of the client's object."""
    return {key: value for key, value in value.items() if key not in known} if isinstance(value, dict) else {}


_STYLES: Final[dict[str, Callable[[RequestedThinking, Json], Json]]] = {
    "thinking_object": _thinking_object,
    "reasoning_effort": _reasoning_effort,
    "template_kwargs": _template_kwargs,
    "openrouter_reasoning": _openrouter,
    "enable_thinking": _enable_thinking,
    "anthropic": _anthropic,
    "output_config": _output_config,
}
