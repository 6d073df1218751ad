"""`file.py:Name` or `package.module:Name` -> a fake model written in Python, whose responses are validated.

The name is that of a class with a method `reply`, an object that has one, or a function: each takes a `SimRequest` and
returns an `IntendedResponse`.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from pathlib import Path
from traceback import extract_tb
from types import ModuleType
from typing import Any, Final

from msgspec import Struct

from moonshim.config.problems import nearest
from moonshim.errors import InvalidInput, MoonshimError
from moonshim.simulator.host.models import generation_of
from moonshim.simulator.request import SimRequest
from moonshim.simulator.response import IntendedCall, IntendedResponse, Model
from moonshim.transformers.code_files import module_of

__all__ = ["ModelFailed", "PluginError", "load_model"]

_ABOUT: Final = "a class with a method `reply`, an object that has one, or a function"


class PluginError(InvalidInput):
    """The model does not exist or cannot be created.

    Its code is that of the chat's `NoSuchModel`: both mean that a model named by the user does not exist. They are two
    classes because this one is an invalid argument of the simulator, and the simulator does not know the chat.
    """

    code = "no_such_model"


class ModelFailed(MoonshimError):
    """A fake model raised, or returned something other than a valid response."""

    code = "model_failed"


class PluginModel(Struct, frozen=True):
    """A fake model. It returns a valid `IntendedResponse`, or `ModelFailed` says what is wrong."""

    place: str
    inner: Callable[[SimRequest], Any]

    def reply(self, request: SimRequest) -> IntendedResponse:
        try:
            returned = self.inner(request)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # also SystemExit and the like: they fail this response only
            raise ModelFailed(f"model {self.place} raised {_describe_exception(error)}") from error
        if inspect.iscoroutine(returned):
            returned.close()
            raise ModelFailed(f"model {self.place} is asynchronous: `reply` must be a synchronous function")
        problem = _problem(returned)
        if problem is not None:
            raise ModelFailed(f"model {self.place} {problem}")
        calls = tuple(IntendedCall(_plain(call.name), _plain(call.arguments)) for call in returned.calls)
        return IntendedResponse(reasoning=_plain(returned.reasoning), text=_plain(returned.text), calls=calls)


def load_model(place: str) -> Model:
    """The model under this name, instantiated if it is a class. Files are relative to the current folder."""
    where, colon, name = place.rpartition(":")
    if not colon and generation_of(place) is not None:
        why = "is a model name for requests, not a Python model; write `my_model.py:Name`"
        raise PluginError(f"{place} {why}", field="model")
    if not colon or not where or not name:
        example = f"{place.rstrip(':') or 'my_model.py'}:Name"
        raise PluginError(f"missing name of the model; write it after a colon: `{example}`", field="model")
    try:
        found = _attribute(_module(where), name, place)
        return PluginModel(place, _callable(found, place))
    except MoonshimError:
        raise
    except BaseException as error:  # also SystemExit, as raised by a script that is not a model
        raise PluginError(f"cannot load model {place}: {_describe_exception(error)}", field="model") from error


def _module(where: str) -> ModuleType:
    if not where.endswith(".py"):
        try:
            return importlib.import_module(where)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{where}.".startswith(f"{error.name}."):
                raise  # the module exists, but imports another that does not
            hint = f"; did you mean the file {where}.py?" if Path(f"{where}.py").is_file() else ""
            raise PluginError(f"module '{where}' not found{hint}", field="model") from None
    path = Path(where).expanduser().resolve()
    if not path.is_file():
        raise PluginError(f"file {where} not found", field="model")
    return module_of(path, "model")


def _attribute(module: ModuleType, name: str, place: str) -> Any:
    if not hasattr(module, name):
        own = [
            word
            for word, value in vars(module).items()
            if not word.startswith("_") and callable(value) and getattr(value, "__module__", None) == module.__name__
        ]
        hint = nearest(name, own) or (f"; choose from {', '.join(own)}" if own else "")
        raise PluginError(f"model {place}: '{name}' not found{hint}", field="model")
    return getattr(module, name)


def _callable(found: Any, place: str) -> Callable[[SimRequest], Any]:
    if isinstance(found, type):
        try:
            found = found()
        except BaseException as error:
            raise PluginError(f"cannot create model {place}: {_describe_exception(error)}", field="model") from error
    reply = getattr(found, "reply", None)
    if callable(reply):
        method: Callable[[SimRequest], Any] = reply
        return method
    if inspect.isroutine(found):
        function: Callable[[SimRequest], Any] = found
        return function
    raise PluginError(f"model {place}: expected {_ABOUT}, got {type(found).__name__}", field="model")


def _problem(returned: Any) -> str | None:
    """What is wrong with a model's return value. Python accepts anything in the fields of a value."""
    if isinstance(returned, str):
        return "returned a string: return `IntendedResponse(text=…)`"
    if not isinstance(returned, IntendedResponse):
        return f"returned {type(returned).__name__} instead of an IntendedResponse"
    for field in ("reasoning", "text"):
        if not isinstance(getattr(returned, field), str):
            kind = type(getattr(returned, field)).__name__
            return f"returned an IntendedResponse whose `{field}` is {kind} instead of a string"
    calls: Any = returned.calls
    if not isinstance(calls, tuple | list):
        return f"returned an IntendedResponse whose `calls` is {type(calls).__name__} instead of a tuple"
    return next((problem for call in calls if (problem := _problem_of_call(call)) is not None), None)


def _problem_of_call(call: Any) -> str | None:
    if not isinstance(call, IntendedCall):
        return f"returned a call that is {type(call).__name__} instead of an IntendedCall"
    name: Any = call.name
    if not isinstance(name, str):
        return f"returned a call whose `name` is {type(name).__name__} instead of a string"
    arguments: Any = call.arguments
    if not isinstance(arguments, str):
        kind = type(arguments).__name__
        return f"returned a call whose `arguments` is {kind} instead of a JSON string such as `json.dumps({{…}})`"
    return None


def _plain(text: str) -> str:
    """A plain `str`: a member of a string enumeration is one too, but not every encoder accepts it."""
    return str.__str__(text)


def _describe_exception(error: BaseException) -> str:
    """The exception and where it was raised."""
    if isinstance(error, SyntaxError) and error.filename is not None:
        return f"SyntaxError: {error.msg} ({error.filename}:{error.lineno})"
    frames = extract_tb(error.__traceback__)
    place = f" ({frames[-1].filename}:{frames[-1].lineno})" if frames and frames[-1].filename != __file__ else ""
    try:
        return f"{type(error).__name__}: {error}{place}"
    except BaseException:  # formatting its message runs code of the model too
        return f"{type(error).__name__}{place}"
