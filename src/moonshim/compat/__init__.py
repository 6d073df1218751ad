"""Names that version 0.1 documented -> the current names, each with a DeprecationWarning.

The old names work for one release. To remove them, delete this package and the code that imports it:
`moonshim/__init__.py`, which looks up missing modules here, and the modules that import it by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from importlib import import_module
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Final, NamedTuple, ParamSpec, TypeVar
from warnings import warn

__all__ = ["FORMER_ROLES", "FormerName", "find_old_module", "new_name", "renamed_arguments"]

P = ParamSpec("P")
T = TypeVar("T")

FORMER_ROLES: Final = {"human": "user", "ai": "assistant"}
"""The roles of messages: old name -> current name."""


class _Moved(NamedTuple):
    """Where a module went, and which of its names have changed."""

    to: str
    names: Mapping[str, str] = {}


_MODULES: Final[dict[str, _Moved]] = {
    "moonshim.conversation": _Moved("moonshim.engine.values.conversation", {"Speaker": "Role"}),
    "moonshim.dialects": _Moved("moonshim.engine.dialects"),
    "moonshim.dialects.openai_responses": _Moved(
        "moonshim.engine.dialects.openai_responses",
        {
            "completed_in": "find_completed",
            "continued": "continue_conversation",
            "left_behind": "drop_unsupported",
            "said_items": "completed_items",
        },
    ),
    "moonshim.events": _Moved("moonshim.engine.values.events", {"failed_by": "failure_from"}),
    "moonshim.hosts": _Moved("moonshim.engine.hosts"),
    "moonshim.hosts.condition": _Moved(
        "moonshim.engine.request.adapt",
        {
            "Conditioned": "AdaptedRequest",
            "condition": "adapt_request",
            "condition_foreign": "adapt_foreign_history",
        },
    ),
    "moonshim.hosts.detect": _Moved("moonshim.engine.hosts.detect", {"needs_for": "profile_for"}),
    "moonshim.hosts.needs": _Moved("moonshim.engine.hosts.profile", {"Needs": "HostProfile"}),
    "moonshim.hosts.table": _Moved("moonshim.engine.hosts.table", {"ROWS": "RULES", "Row": "HostRule"}),
    "moonshim.plan": _Moved("moonshim.engine.plan"),
    "moonshim.prepare": _Moved("moonshim.engine.prepare", {"Asked": "ParsedRequest"}),
    "moonshim.recollection": _Moved(
        "moonshim.engine.reasoning_cache",
        {
            "Filing": "CacheEntry",
            "Turns": "ConversationIndex",
            "recalled": "lookup",
            "turn_filing": "cache_entry",
        },
    ),
    "moonshim.stage": _Moved("moonshim.engine.stages"),
    "moonshim.tokens": _Moved("moonshim.engine.tokens"),
}
_PUBLIC: Final = ("moonshim", "moonshim.types")
"""Where people should import from, if the name is there."""


def find_old_module(name: str) -> ModuleSpec | None:
    """The spec of a module that had this name; None if there was no such module."""
    if name not in _MODULES:
        return None
    is_package = any(other.startswith(f"{name}.") for other in _MODULES)
    return ModuleSpec(name, _OldModule(_MODULES[name]), is_package=is_package)


class _OldModule(Loader):
    """Creates a module whose names are looked up where they are now."""

    def __init__(self, moved: _Moved) -> None:
        self._moved = moved

    def exec_module(self, module: ModuleType) -> None:
        names, target = self._moved.names, import_module(self._moved.to)

        def from_new_home(name: str) -> Any:
            if name == "__path__":  # not a package
                raise AttributeError(name)
            if name == "__all__":
                renamed = {new: old for old, new in names.items()}
                return [renamed.get(new, new) for new in target.__all__]
            value = getattr(target, names.get(name, name))
            if not name.startswith("_"):
                warn(
                    f"{module.__name__}.{name} is deprecated; use {_home(target.__name__, names.get(name, name))}",
                    DeprecationWarning,
                    stacklevel=2,
                )
            return value

        vars(module)["__getattr__"] = from_new_home


def _home(module: str, name: str) -> str:
    public = (home for home in _PUBLIC if name in import_module(home).__all__)
    return f"{next(public, module)}.{name}"


def new_name(module: str, old: str, names: Mapping[str, str]) -> str:
    """The current name of what was called `old` in this module, with a warning; other names are returned unchanged.

    For a module's `__getattr__`: the warning points at the caller that accessed the module.
    """
    if old not in names:
        return old
    warn(f"{module}.{old} is deprecated; use {module}.{names[old]}", DeprecationWarning, stacklevel=3)
    return names[old]


class FormerName:
    """A class attribute that forwards to the current one: `needs: ClassVar[FormerName] = FormerName("profile")`."""

    def __init__(self, new: str) -> None:
        self._new = new
        self._old = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self._old = f"{owner.__name__}.{name}"

    def __get__(self, value: object, owner: type) -> Any:
        if value is None:
            return self
        warn(f"`{self._old}` is deprecated; use `{self._new}`", DeprecationWarning, stacklevel=2)
        return getattr(value, self._new)


def renamed_arguments(**names: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Accept keyword arguments under their old names too: `@renamed_arguments(goes="output_format")`."""

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            for old in names.keys() & kwargs.keys():
                warn(f"the argument {old} is deprecated; use {names[old]}", DeprecationWarning, stacklevel=2)
                kwargs[names[old]] = kwargs.pop(old)
            return function(*args, **kwargs)

        return call

    return decorate
