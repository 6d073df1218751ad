"""Arguments of calls as the model intends them -> as hosts send them: encoded twice, unescaped, repeated, cut."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, Final

from msgspec.structs import replace

from moonshim.simulator.fault import Fault, Speech
from moonshim.simulator.response import HostResponse

__all__ = ["FAULTS"]

_STRING: Final = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_CONTROL: Final = re.compile(r"\\(?:\\|u00[01][0-9a-fA-F]|[ntrbf])")
_ESCAPABLE: Final = frozenset('"\\/bfnrtu')


# --- changing arguments ---------------------------------------------------------------------------------------------


def _encode_twice(arguments: str) -> str:
    return json.dumps(arguments, ensure_ascii=False)


def _encode_nested(arguments: str) -> str:
    """Lists and objects among the values become JSON in a string."""
    given = _object(arguments)
    if given is None or not any(isinstance(value, (list, dict)) for value in given.values()):
        return arguments
    return _dumps({key: _dumps(value) if isinstance(value, (list, dict)) else value for key, value in given.items()})


def _raw_controls(arguments: str) -> str:
    r"""
    >>> _raw_controls(r'{"a": "1\n2\\n"}')
    '{"a": "1\n2\\\\n"}'
    """
    return _STRING.sub(lambda found: _CONTROL.sub(_raw_control, found.group()), arguments)


def _raw_control(found: re.Match[str]) -> str:
    escape = found.group()
    return escape if escape == "\\\\" else str(json.loads(f'"{escape}"'))


def _odd_escapes(arguments: str) -> str:
    r"""A literal backslash is not doubled where JSON has no such escape: `\v`, `\x1b`, `\d`.

    >>> print(_odd_escapes(r'{"pattern": "\\d+ \\n"}'))
    {"pattern": "\d+ \\n"}
    """
    return _STRING.sub(lambda found: _undouble(found.group()), arguments)


def _undouble(string: str) -> str:
    made, at = [], 0
    while at < len(string):
        pair = string[at : at + 2]
        if pair == "\\\\" and string[at + 2 : at + 3] not in _ESCAPABLE:
            made.append("\\")
        else:
            made.append(pair if pair.startswith("\\") else string[at])
        at += 2 if pair.startswith("\\") else 1
    return "".join(made)


def _empty_arguments(arguments: str) -> str:
    return "" if _object(arguments) == {} else arguments


def _drop_last_brace(arguments: str) -> str:
    return arguments.rstrip().removesuffix("}")


def _drop_braces(arguments: str) -> str:
    return arguments.strip().removeprefix("{").removesuffix("}")


def _list_values(arguments: str) -> str:
    given = _object(arguments)
    return _dumps(list(given.values())) if given else arguments


def _halve_arguments(arguments: str) -> str:
    return arguments[: max(len(arguments) // 2, 1)]


def _object(arguments: str) -> dict[str, Any] | None:
    try:
        given = json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        return None
    return given if isinstance(given, dict) else None


def _dumps(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


# --- the table ---------------------------------------------------------------------------------------------------


def _each(change: Callable[[str], str], *, only_last: bool = False, finish: str | None = None) -> Speech:
    def speech(answer: HostResponse) -> HostResponse:
        if not answer.calls:
            return answer
        first = len(answer.calls) - 1 if only_last else 0
        changed = (replace(call, arguments=change(call.arguments)) for call in answer.calls[first:])
        return replace(answer, calls=(*answer.calls[:first], *changed), finish=finish or answer.finish)

    return speech


def _row(name: str, about: str, speech: Speech, seen: str = "", **more: Any) -> Fault:
    return Fault(
        name=f"arguments-{name}", group="arguments", about=about, seen=seen, needs="calls", speech=speech, **more
    )


FAULTS: Final[tuple[Fault, ...]] = (
    _row(
        "encoded-twice",
        "The arguments are JSON-encoded twice: a string that contains the object",
        _each(_encode_twice),
        "kimi-cli#2406",
    ),
    _row(
        "nested-encoded",
        "Lists and objects inside the arguments are JSON-encoded strings",
        _each(_encode_nested),
        "kimi-cli#2406",
    ),
    _row(
        "raw-controls",
        "Strings in the arguments contain unescaped line breaks and other control characters",
        _each(_raw_controls),
        "kimi-cli#1378",
    ),
    _row(
        "odd-escapes",
        r"Backslashes are not doubled, which produces escapes that JSON does not have, such as `\v` and `\x1b`",
        _each(_odd_escapes),
        "kimiflare#52",
    ),
    _row(
        "trailing-brace",
        "The arguments end with one closing brace too many",
        _each(lambda arguments: arguments + "}"),
        "opencode#20650",
    ),
    _row(
        "trailing-junk",
        "The arguments are followed by something that is not JSON",
        _each(lambda arguments: arguments + ' "}} <|im_end|>'),
        "opencode#20650",
    ),
    _row(
        "twice",
        "The arguments are sent twice in a row",
        _each(lambda arguments: arguments + arguments),
        "opencode#20650",
    ),
    _row(
        "behind-empty",
        "The arguments follow an empty object: `{}{…}`",
        _each(lambda arguments: "{}" + arguments),
        "proxies that concatenate the start and the deltas of a Messages block",
    ),
    _row(
        "listed",
        "The arguments are a list that contains the object",
        _each(lambda arguments: f"[{arguments}]"),
    ),
    _row(
        "pairs",
        "The braces around the arguments are missing",
        _each(_drop_braces),
    ),
    _row(
        "empty",
        "The arguments of a call without arguments are an empty string instead of `{}`",
        _each(_empty_arguments),
        "hosts that send no delta for empty arguments",
    ),
    _row(
        "unclosed",
        "The last brace of the arguments is missing, although the token limit was not reached",
        _each(_drop_last_brace),
        "vllm#41739",
    ),
    _row(
        "cut-off",
        "The token limit cuts off the arguments of the last call",
        _each(_halve_arguments, only_last=True, finish="length"),
        fatal=True,
    ),
    _row(
        "values",
        "The arguments are a list of the values, without their keys",
        _each(_list_values),
        fatal=True,
    ),
    _row(
        "lost",
        "The arguments are an empty string, although the tool cannot be called without any",
        _each(lambda arguments: ""),
        "MLX-LM, vLLM",
        wires=("openai_chat",),
        fatal=True,
    ),
    _row(
        "garbage",
        "The arguments start like an object and continue as garbage",
        _each(lambda arguments: '{"filePath":": [.'),
        "opencode#20650",
        fatal=True,
    ),
)
