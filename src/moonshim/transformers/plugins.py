"""The name of a plug-in and its options -> a transformer: by entry point, by module, or by file."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import sys
import sysconfig
from collections.abc import Iterable, Mapping
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from traceback import walk_tb
from types import ModuleType
from typing import Any, Final

from moonshim.engine.stages import Stage, Transformer, TransformerFailed
from moonshim.engine.values.conversation import Request
from moonshim.engine.values.events import Event
from moonshim.errors import InvalidOption, MoonshimError, Refused
from moonshim.transformers.code_files import module_of
from moonshim.transformers.log import Sink, standard_log

__all__ = ["FAULT", "GROUP", "Plugin", "is_module_in", "load_plugin", "nearest"]

GROUP: Final = "moonshim.transformers"
"""The entry point group for transformers."""


FAULT: Final = "transformer_failed"
"""The log event for a plug-in that raises."""


class Plugin:
    """A third-party transformer; missing methods do nothing, and exceptions are logged.

    Everything that it raises is its own failure, even `SystemExit` and `CancelledError`: it ends a request, not a
    gateway. Its `name`, which clients see in errors, is that of its file and class, without the folders of this
    machine.
    """

    def __init__(self, place: str, inner: Any, log: Sink = standard_log) -> None:
        self.name = place.replace("\\", "/").rpartition("/")[2]
        self.inner = inner
        self._place, self._log = place, log

    def prepare(self, request: Request) -> Request:
        try:
            made: Request = self.inner.prepare(request) if hasattr(self.inner, "prepare") else request
        except Refused:
            raise  # on purpose
        except BaseException as error:
            raise self.failure(error) from error
        return made

    def stages(self, plan: Any) -> list[Stage]:
        try:
            made: list[Stage] = self.inner.stages(plan) if hasattr(self.inner, "stages") else []
        except BaseException as error:
            raise self.failure(error) from error
        return [_Watched(stage, self) for stage in made] if isinstance(made, list) else made

    def failure(self, error: BaseException) -> TransformerFailed:
        """Log where it failed. The client only gets the name, through the error to raise."""
        fields = {"transformer": self._place, "at": _location(error, self.inner), "raised": _error_text(error)}
        self._log("error", FAULT, fields)
        return TransformerFailed.from_error(self.name, error)


class _Watched:
    """A stage of a plug-in, whose exceptions are logged before they propagate."""

    __slots__ = ("_plugin", "_stage")

    def __init__(self, stage: Stage, plugin: Plugin) -> None:
        self._stage, self._plugin = stage, plugin

    def feed(self, event: Event) -> list[Event]:
        try:
            return self._stage.feed(event)
        except BaseException as error:
            raise self._plugin.failure(error) from error

    def flush(self) -> list[Event]:
        try:
            return self._stage.flush()
        except BaseException as error:
            raise self._plugin.failure(error) from error


def _location(error: BaseException, inner: Any) -> str:
    """The file and the line: the last one in the plug-in's own file, or else the last one of all."""
    own = getattr(sys.modules.get(type(inner).__module__), "__file__", None)
    frames = [(frame.f_code.co_filename, line) for frame, line in walk_tb(error.__traceback__)]
    frames = [place for place in frames if place[0] != __file__] or frames
    mine = [place for place in frames if place[0] == own]
    file, line = (mine or frames or [(own or "?", 0)])[-1]
    return f"{file}:{line}"


def load_plugin(
    name: str,
    options: Mapping[str, Any],
    *,
    folder: Path | None = None,
    known: Iterable[str],
    log: Sink = standard_log,
    source: bytes | None = None,
) -> Transformer:
    """The transformer of this name. Files are relative to the configuration's `folder`; `log` gets failures.

    With `source`, that is run instead of the file's current content. Raises `InvalidOption` for a plug-in that is
    missing, cannot be loaded, or does not accept these options.
    """
    try:
        inner = _create(name, options, folder, known, source)
        if any(callable(getattr(inner, method, None)) for method in ("prepare", "stages")):
            return Plugin(name, inner, log)
    except MoonshimError:
        raise
    except BaseException as error:  # also SystemExit, as raised by a script that is not a plug-in
        text = f"{_error_text(error)}{_raised_at(error)}"
        raise InvalidOption(f"cannot load transformer {name!r}: {text}", field=name) from error
    raise InvalidOption(f"transformer {name!r} must have a method prepare or stages", field=name)


def _create(
    name: str, options: Mapping[str, Any], folder: Path | None, known: Iterable[str], source: bytes | None
) -> Any:
    if ":" in name:
        place, _, attribute = name.rpartition(":")
        made = _attribute(_module(name, place, folder, source), attribute, name)
    else:
        made = _entry_point(name, known)
    if not callable(made):
        raise InvalidOption(f"transformer {name!r} must be a class or function, got {type(made).__name__}", field=name)
    try:
        return made(**options)
    except MoonshimError:
        raise
    except TypeError as error:
        why = f"does not accept these options: {error}"
        raise InvalidOption(f"transformer {name!r} {why}", field=name) from error
    except BaseException as error:
        raise InvalidOption(f"cannot create transformer {name!r}: {_error_text(error)}", field=name) from error


def _entry_point(name: str, known: Iterable[str]) -> Any:
    offered: dict[str, EntryPoint] = {one.name: one for one in entry_points(group=GROUP)}
    if name not in offered:
        raise InvalidOption(f"unknown transformer {name!r}{nearest(name, [*known, *offered])}", field=name)
    return offered[name].load()


def _module(name: str, place: str, folder: Path | None, source: bytes | None) -> ModuleType:
    try:
        return _from_file(place, folder, source) if place.endswith(".py") else importlib.import_module(place)
    except FileNotFoundError as error:
        raise InvalidOption(f"transformer {name!r}: no such file: {error.filename}", field=name) from error


def _from_file(place: str, folder: Path | None, source: bytes | None) -> ModuleType:
    """The module in a file, read again each time: a configuration is reloaded after changes."""
    path = Path(place).expanduser()
    path = (folder / path if folder is not None else path).resolve()
    if source is None and path.exists() and not path.is_file():
        raise ImportError(f"{path} is not a file")  # a pipe may never get a writer
    return module_of(path, "plugin", source)


def is_module_in(folder: Path, name: str) -> bool:
    """Whether a plug-in that is named by a module, or by an entry point, is code in this folder that is not installed.

    Nothing is imported to find out.
    """
    place, colon, _ = name.rpartition(":")
    if not colon:
        place = next((one.module for one in entry_points(group=GROUP) if one.name == name), "")
    try:
        spec = importlib.util.find_spec(place.partition(".")[0])
    except ValueError:  # not a name, or `__main__`, which is running already
        return False
    if spec is None:
        return False
    # Packages in a virtual environment in the folder were installed by the user.
    installed = [Path(sysconfig.get_path(name)).resolve() for name in ("purelib", "platlib", "stdlib", "platstdlib")]
    places = [spec.origin or "", *(spec.submodule_search_locations or ())]
    found = [Path(one).resolve() for one in places if Path(one).is_absolute()]
    return any(
        one.is_relative_to(folder.resolve()) and not any(one.is_relative_to(known) for known in installed)
        for one in found
    )


def _attribute(module: ModuleType, attribute: str, name: str) -> Any:
    if not hasattr(module, attribute):
        classes = [word for word, value in vars(module).items() if isinstance(value, type) and not word.startswith("_")]
        raise InvalidOption(f"transformer {name!r}: {attribute!r} not found{nearest(attribute, classes)}", field=name)
    return getattr(module, attribute)


def nearest(name: str, known: Iterable[str]) -> str:
    """The nearest valid name, or all of them."""
    words = sorted(set(known))
    lower = {word.lower(): word for word in words}
    close = difflib.get_close_matches(name.lower(), lower, n=1)
    return f" (did you mean {lower[close[0]]!r}?)" if close else f"; available: {', '.join(words) or 'none'}"


def _raised_at(error: BaseException) -> str:
    """` (file:line)`: the last line in a file of `module_of`; an empty string if none of it ran."""
    frames = walk_tb(error.__traceback__)
    own = [(frame, line) for frame, line in frames if frame.f_globals.get("__name__", "").startswith("moonshim_")]
    return f" ({own[-1][0].f_code.co_filename}:{own[-1][1]})" if own else ""


def _error_text(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}"
    except BaseException:  # formatting its message runs code of the plug-in too
        return type(error).__name__
