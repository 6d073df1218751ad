"""A URL -> five rounds of an agent built on the openai package, with everything that it received."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from hashlib import sha256
from typing import Any, Final

from msgspec import Struct
from openai import DefaultHttpxClient, OpenAI, OpenAIError

__all__ = ["MARKER", "ROUNDS", "Round", "Run", "converse"]

ROUNDS: Final = 5
MARKER: Final = re.compile(r"<\|[a-z_]+\|>")
QUESTION: Final = "A test of this project fails. Find out why, and fix it."

_GIVEN: Final[dict[str, str]] = {
    "list_files": "src/moon.py tests/test_moon.py",
    "read_file src/moon.py": "def phase(day): return day % 29.5",
    "read_file tests/test_moon.py": "def test_phase(): assert phase(29.53) == 0",
    "search": "src/moon.py:1: def phase(day)",
    "run_tests": "1 failed: assert 0.03 == 0",
    "git_log": "4f2a91c Round the month, it is nearly the same",
    "edit_file": "1 place changed in src/moon.py",
}
_PARAMETERS: Final[dict[str, dict[str, str]]] = {
    "list_files": {"folder": "string"},
    "read_file": {"path": "string"},
    "search": {"pattern": "string", "folder": "string"},
    "run_tests": {"path": "string", "verbose": "boolean"},
    "git_log": {"count": "integer"},
    "edit_file": {"path": "string", "old": "string", "new": "string"},
}
TOOLS: Final[list[Any]] = [
    {
        "type": "function",
        "function": {
            "name": name,
            "parameters": {
                "type": "object",
                "properties": {key: {"type": kind} for key, kind in parameters.items()},
                "required": list(parameters),
            },
        },
    }
    for name, parameters in _PARAMETERS.items()
]


class Round(Struct, frozen=True, kw_only=True):
    """One response: what the agent understood, and the raw bytes."""

    number: int
    calls: tuple[tuple[str, str], ...] = ()
    text: str = ""
    problem: str = ""
    """Why the agent cannot continue; empty if it can."""
    raw: bytes = b""


class Run(Struct, frozen=True):
    """A whole conversation."""

    rounds: tuple[Round, ...]
    messages: list[Any]
    """The history as sent in the last request."""

    @property
    def broke_in(self) -> Round | None:
        return next((one for one in self.rounds if one.problem), None)

    @property
    def lost(self) -> list[str]:
        """Tool results that are missing in the last answer."""
        last = self.rounds[-1].text
        return [result for result in _GIVEN.values() if result not in last]

    @property
    def perfect(self) -> bool:
        """Every round completed, no marker was seen, and the answer has every tool result."""
        clean = not any(MARKER.search(one.text) for one in self.rounds)
        return self.broke_in is None and len(self.rounds) == ROUNDS + 1 and clean and not self.lost


def converse(url: str, model: str, tell: Callable[[Round], None]) -> Run:
    """Run the usual agent loop. `tell` is called after every round."""
    seen: list[bytes] = []
    rounds: list[Round] = []
    messages: list[Any] = [{"role": "user", "content": QUESTION}]
    # Both ends are on this machine, where a configured proxy cannot reach them.
    http: Any = DefaultHttpxClient(event_hooks={"response": [_keeping(seen)]}, trust_env=False)
    with OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=20, http_client=http) as client:
        while len(rounds) <= ROUNDS:
            seen.clear()
            made = _round(client, model, messages, len(rounds) + 1)
            one = Round(**made, number=len(rounds) + 1, raw=b"".join(seen))
            rounds.append(one)
            tell(one)
            if one.problem or not one.calls:
                break
    return Run(tuple(rounds), messages)


def _round(client: OpenAI, model: str, messages: list[Any], number: int) -> dict[str, Any]:
    """Send one request and run the tools; the fields of a `Round`."""
    text, calls = "", dict[int, dict[str, str]]()
    try:
        stream = client.chat.completions.create(model=model, messages=messages, tools=TOOLS, stream=True)
        for chunk in stream:
            for choice in chunk.choices:
                text += choice.delta.content or ""
                for entry in choice.delta.tool_calls or ():
                    call = calls.setdefault(entry.index, {"name": "", "arguments": ""})
                    call["name"] += (entry.function and entry.function.name) or ""
                    call["arguments"] += (entry.function and entry.function.arguments) or ""
    except OpenAIError as error:
        return {"text": text, "problem": f"error from the host: {error}"}
    made = tuple((call["name"], call["arguments"]) for call in calls.values())
    problem = ""
    if MARKER.search(text):
        problem = "the tool call leaked into the text: no tool runs, and the user sees markers"
    elif number <= ROUNDS and not made:
        problem = "no tool call"
    results = [_tool(name, arguments) for name, arguments in made]
    if None in results:
        problem = "the arguments are not valid JSON"
    _keep(messages, text, made, results)
    return {"text": text, "calls": made, "problem": problem}


def _keep(messages: list[Any], text: str, calls: tuple[tuple[str, str], ...], results: list[str | None]) -> None:
    """Add a round to the history the way most agents do: with their own call ids, and without the reasoning."""
    before = sum(len(message.get("tool_calls") or ()) for message in messages)
    names = [f"call_{sha256(bytes([before + at])).hexdigest()[:12]}" for at in range(len(calls))]
    entries = [
        {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}
        for id, (name, arguments) in zip(names, calls, strict=True)
    ]
    messages.append({"role": "assistant", "content": text, **({"tool_calls": entries} if entries else {})})
    for id, result in zip(names, results, strict=True):
        messages.append({"role": "tool", "tool_call_id": id, "content": result or "the arguments are not valid JSON"})


def _tool(name: str, arguments: str) -> str | None:
    """The result of a tool; None if its arguments are not valid JSON."""
    try:
        values = json.loads(arguments)
    except ValueError:
        return None
    return _GIVEN.get(f"{name} {values.get('path')}") or _GIVEN.get(name, f"unknown tool {name}")


def _keeping(seen: list[bytes]) -> Callable[[Any], None]:
    """A hook for the HTTP client that records the raw bytes of every response."""

    def hook(response: Any) -> None:
        stream = response.stream
        # The HTTP package depends on the version of openai; all of them have a class of this name.
        (kind,) = (one for one in type(stream).__mro__ if one.__name__ == "SyncByteStream")

        def read(self: Any) -> Iterator[bytes]:
            for data in stream:
                seen.append(data)
                yield data

        response.stream = type("Kept", (kind,), {"__iter__": read, "close": lambda self: stream.close()})()

    return hook
