"""An agent on Kimi models: a provider that gets streaming tool calls right, and the loop on it. No terminal in here."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from moonshim.agent.asking import AnswerStream, Exchanged, answered
    from moonshim.agent.provider import AnswerFailed, Provider

__all__ = ["AnswerFailed", "AnswerStream", "Exchanged", "Provider", "answered"]

_HOMES = {
    "AnswerFailed": "provider",
    "AnswerStream": "asking",
    "Exchanged": "asking",
    "Provider": "provider",
    "answered": "asking",
}

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        # Nothing is loaded before it is used: whoever wants the values needs no HTTP client.
        from importlib import import_module

        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
        return value
