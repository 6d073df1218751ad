"""The name of a plug-in and its options -> a transformer: by entry point, by module, or by file."""

from __future__ import annotations

import difflib
import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Iterable, Mapping
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from moonshim.conversation import Request
from moonshim.errors import InvalidOption, MoonshimError
from moonshim.stage import Stage, Transformer

__all__ = ["GROUP", "Plugin", "load_plugin", "nearest"]

GROUP: Final = "moonshim.transformers"
"""The entry points that packages offer transformers by."""


class Plugin:
    """A transformer of somebody else, under the name that it was configured by; what it leaves out does nothing."""

    def __init__(self, name: str, inner: Any) -> None:
        self.name = name
        self.inner = inner

    def prepare(self, request: Request) -> Request:
        made: Request = self.inner.prepare(request) if hasattr(self.inner, "prepare") else request
        return made

    def stages(self, plan: Any) -> list[Stage]:
        made: list[Stage] = self.inner.stages(plan) if hasattr(self.inner, "stages") else []
        return made


def load_plugin(
    name: str, options: Mapping[str, Any], *, folder: Path | None = None, known: Iterable[str]
) -> Transformer:
    """The transformer of this name. Files are looked for beside the configuration, in `folder`.

    Raises `InvalidOption` for what is not there, cannot be loaded, or does not take these options.
    """
    if ":" in name:
        place, _, attribute = name.rpartition(":")
        made = _attribute(_module(name, place, folder), attribute, name)
    else:
        made = _entry_point(name, known)
    if not callable(made):
        raise InvalidOption(f"the transformer {name!r} is {type(made).__name__}, not a class", field=name)
    try:
        inner = made(**options)
    except MoonshimError:
        raise
    except TypeError as error:
        raise InvalidOption(f"the transformer {name!r} does not take these options: {error}", field=name) from error
    except Exception as error:
        raise InvalidOption(f"the transformer {name!r} could not be made: {_shown(error)}", field=name) from error
    if not any(callable(getattr(inner, method, None)) for method in ("prepare", "stages")):
        raise InvalidOption(f"the transformer {name!r} has neither prepare nor stages", field=name)
    return Plugin(name, inner)


def _entry_point(name: str, known: Iterable[str]) -> Any:
    offered: dict[str, EntryPoint] = {one.name: one for one in entry_points(group=GROUP)}
    if name not in offered:
        raise InvalidOption(f"there is no transformer {name!r}; {nearest(name, [*known, *offered])}", field=name)
    try:
        return offered[name].load()
    except Exception as error:
        raise InvalidOption(f"the transformer {name!r} cannot be loaded: {_shown(error)}", field=name) from error


def _module(name: str, place: str, folder: Path | None) -> ModuleType:
    try:
        return _from_file(place, folder) if place.endswith(".py") else importlib.import_module(place)
    except FileNotFoundError as error:
        raise InvalidOption(f"the transformer {name!r}: there is no file {error.filename}", field=name) from error
    except Exception as error:
        raise InvalidOption(f"the transformer {name!r} cannot be loaded: {_shown(error)}", field=name) from error


def _from_file(place: str, folder: Path | None) -> ModuleType:
    """The module in a file, read anew each time: a configuration is loaded again when somebody has changed it."""
    path = Path(place).expanduser()
    path = (folder / path if folder is not None else path).resolve()
    source = path.read_bytes()
    name = f"moonshim_plugin_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None:
        raise ImportError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    before = sys.modules.get(name)
    # Dataclasses and the like look for their module there.
    sys.modules[name] = module
    try:
        # Not through the loader: it may take yesterday's byte code for a file that was changed within its second.
        exec(compile(source, str(path), "exec"), module.__dict__)
    except BaseException:
        if before is None:
            del sys.modules[name]
        else:
            sys.modules[name] = before
        raise
    return module


def _attribute(module: ModuleType, attribute: str, name: str) -> Any:
    if not hasattr(module, attribute):
        classes = [word for word, value in vars(module).items() if isinstance(value, type) and not word.startswith("_")]
        raise InvalidOption(
            f"the transformer {name!r}: no {attribute!r} there; {nearest(attribute, classes)}", field=name
        )
    return getattr(module, attribute)


def nearest(name: str, known: Iterable[str]) -> str:
    """The word that was meant, or all there are."""
    words = sorted(set(known))
    lower = {word.lower(): word for word in words}
    close = difflib.get_close_matches(name.lower(), lower, n=1)
    return f"did you mean {lower[close[0]]!r}?" if close else f"there is {', '.join(words) or 'nothing'}"


def _shown(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
