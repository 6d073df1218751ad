"""The text of an answer that should be JSON -> the JSON in it that matches the schema, or what is wrong with it.

Models write JSON into a code block, between two sentences, or with a trailing comma. That JSON is cut
out, and repaired like the arguments of a call if necessary. Nothing is added to it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec
from msgspec import Struct

from moonshim.engine.repair.argument_record import ArgumentsRecord
from moonshim.engine.repair.schema import SchemaArguments
from moonshim.engine.repair.schema_check import find_mismatches
from moonshim.engine.wire.json_scanner import ValueScanner

__all__ = ["JsonAnswer", "read_json_answer"]

_MAX_CANDIDATES: Final = 8
_MAX_UNCLOSED: Final = 4
"""How often the end of a value is looked for in vain: each time, the rest of the text is read."""
_FENCE: Final = "```"
_LABEL: Final = re.compile(r"[A-Za-z0-9_+-]*[ \t]*\n?")
_BRACKET: Final = re.compile(r"[{\[]")


class JsonAnswer(Struct, frozen=True):
    """The JSON of an answer."""

    text: str | None
    """Matches the schema; None: nothing in the answer does."""
    changed: str = ""
    """How it differs from what the model wrote, in words; empty: it does not."""
    wrong: tuple[str, ...] = ()
    """Why nothing in the answer matches, in words for the model."""


def read_json_answer(text: str, schema: dict[str, Any]) -> JsonAnswer:
    """Find the JSON in an answer.

    >>> read_json_answer('Here it is:\\n```json\\n{"n": 1}\\n```', {"type": "object"})
    JsonAnswer(text='{"n": 1}', changed='text around the JSON removed', wrong=())
    >>> read_json_answer("One.", {"type": "object"}).wrong
    ('the answer is not JSON',)
    """
    whole, wrong, size = text.strip(), list[str](), -1
    candidates = list(dict.fromkeys(_candidates(whole)))
    for candidate in candidates:
        found = _check(candidate, schema)
        if found is None:
            continue
        if not found:
            return JsonAnswer(candidate, "" if candidate == whole else "text around the JSON removed")
        if len(candidate) > size:
            wrong, size = found, len(candidate)
    for candidate in candidates:
        mended = _mend(candidate, schema)
        if mended is not None and _check(mended, schema) == []:
            return JsonAnswer(mended, "invalid JSON mended")
    return JsonAnswer(None, wrong=tuple(wrong) or ("the answer is not JSON",))


def _check(text: str, schema: dict[str, Any]) -> list[str] | None:
    """What is wrong with this JSON; None: it is not JSON."""
    try:
        return find_mismatches(schema, msgspec.json.decode(text))
    except (msgspec.MsgspecError, ValueError, RecursionError):
        if "\\ud" not in text.lower():
            return None
    try:  # a lone surrogate, which msgspec refuses
        return find_mismatches(schema, json.loads(text))
    except (ValueError, RecursionError):
        return None


def _mend(text: str, schema: dict[str, Any]) -> str | None:
    """The object that this text was meant to be, mended like the arguments of a call."""
    if not text.startswith("{"):
        return None
    arguments = SchemaArguments(ArgumentsRecord(), schema)
    return arguments.feed(text) + arguments.close()


def _candidates(text: str) -> Iterator[str]:
    """The parts of the text that may be the JSON, most likely first."""
    yield text
    if (start := text.find(_FENCE)) >= 0 and (end := text.rfind(_FENCE)) > start:
        opened = _LABEL.match(text, start + len(_FENCE))
        yield text[opened.end() if opened else start + len(_FENCE) : end].strip()
    position = unclosed = count = 0
    while count < _MAX_CANDIDATES and (found := _BRACKET.search(text, position)):
        scanner = ValueScanner()
        stop = scanner.scan(text, found.start())
        if scanner.inside:
            unclosed += 1
            if unclosed == 1:
                yield text[found.start() :]
            if unclosed > _MAX_UNCLOSED:
                return
            position = found.end()
        else:
            yield text[found.start() : stop]
            position = stop
        count += 1
