"""Rows about the command `/toolformat` -> what ours does: the facts that it shows and sets, not its wording."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from conformance.checked import Checked
from conformance.replies import Json
from moonshim.chat.commands.registry import COMMANDS, run_command
from moonshim.chat.setup import ChatOptions, open_session
from moonshim.errors import MoonshimError

__all__ = ["check"]

_SHOWN: Final = re.compile(r"tool format: (\S+) \((auto-detected|manual override|set|detected)", re.IGNORECASE)
_LIST: Final = re.compile(r"^ *(?:Structured|Text-based): (.*)$", re.MULTILINE)
_MODELS: Final[dict[str | None, str]] = {"openai": "gpt-4o", "kimi": "gpt-4o", None: "a-model-that-nobody-knows"}
"""A model for each state: where a format is overridden, one of another format."""


def check(row: Json) -> Checked:
    return asyncio.run(_check(row["input"], row["expect"]))


async def _check(given: Json, expect: Json) -> Checked:
    state: Json = given.get("state", {"currentFormat": "openai", "isAutoDetected": True})
    with TemporaryDirectory() as name:
        wish = ChatOptions(base_url="http://127.0.0.1:9/v1", model=_MODELS[state["currentFormat"]], folder=Path(name))
        async with open_session(wish, {"HOME": name, "XDG_DATA_HOME": name}) as session:
            if not state["isAutoDetected"] or "set_override" in expect:
                session.set(tool_format="qwen" if "set_override" in expect else state["currentFormat"])
            if "set_raises" in given:
                session.agent.switch = _raising(given["set_raises"])  # type: ignore[method-assign]
            kind = "info"
            try:
                COMMANDS["toolformat"].run(session, given["args"].strip())
            except (MoonshimError, OSError):
                kind = "error"
            text = run_command(session, f"/toolformat {given['args']}").text
            override = session.setting.tool_format
    wanted = str(expect.get("content") or expect.get("content_startswith", ""))
    got: Json = {"messageType": kind}
    expected: Json = {"messageType": expect["messageType"]}
    if "set_override" in expect:
        got["override"], expected["override"] = override, expect["set_override"]
    for key, read in (("shown", _shown), ("listed", _listed)):
        if (facts := read(wanted)) is not None:
            got[key], expected[key] = read(text), facts
    for cause in (given[key] for key in ("set_raises", "read_raises") if key in given):
        got["cause"], expected["cause"] = cause if cause in text else None, cause
    return Checked(got, expected)


def _shown(text: str) -> list[Any] | None:
    """The format and whether somebody set it."""
    found = _SHOWN.search(text)
    return [found[1], found[2].lower() in ("manual override", "set")] if found else None


def _listed(text: str) -> list[str] | None:
    return [name for line in _LIST.findall(text) for name in line.split(", ")] or None


def _raising(words: str) -> Any:
    def fail(*given: Any) -> None:
        raise OSError(5, words)

    return fail
