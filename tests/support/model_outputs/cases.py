"""A seed -> what a Kimi model means to say (reasoning, text, calls of declared tools), and how it gets it wrong.

`k2.py` and `k3.py` spell a draft in the grammar of their generation, with one deviation of their tables.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, Final, Literal, TypeAlias, get_args

from msgspec import Struct
from msgspec.structs import replace

Json: TypeAlias = dict[str, Any]
Generation: TypeAlias = Literal["k2", "k3"]
GENERATIONS: Final[tuple[Generation, ...]] = get_args(Generation)


class DeclaredTool(Struct, frozen=True):
    """A tool of the request. No two tools of a request share a key, so arguments fit only one of them."""

    name: str
    types: dict[str, str]
    """Key -> JSON type. The first key is required."""

    def definition(self) -> Json:
        """As a Chat request declares it."""
        properties = {key: {"type": name} for key, name in self.types.items()}
        schema = {"type": "object", "properties": properties, "required": list(self.types)[:1]}
        return {"type": "function", "function": {"name": self.name, "description": self.name, "parameters": schema}}


class MeantCall(Struct, frozen=True):
    """A call that the model means to make."""

    name: str
    arguments: Json


class ModelOutput(Struct, frozen=True, kw_only=True):
    """One response as a model wrote it, and what it meant."""

    generation: Generation
    deviation: str
    tools: tuple[DeclaredTool, ...]
    output: str
    """What follows a prompt that ends in open reasoning, without the token that ends the message."""
    reasoning: str
    content: str
    calls: tuple[MeantCall, ...]
    readable: bool
    """Whether the output says what the calls are. If not, the only good response is an error."""


class Draft(Struct, frozen=True, kw_only=True):
    """What the model means, before it is spelled, and the random choices that a deviation still has to make."""

    random: Random
    tools: tuple[DeclaredTool, ...]
    reasoning: str
    content: str
    calls: tuple[MeantCall, ...]
    deviant: frozenset[int]
    """The calls that deviate: all of them, or one."""

    def json(self, value: object) -> str:
        """A value as JSON, in one of the ways in which models write it."""
        compact = self.random.random() < 0.5
        separators = (",", ":") if compact else (", ", ": ")
        return json.dumps(value, separators=separators, ensure_ascii=self.random.random() < 0.3)

    def only_calls(self, calls: Sequence[MeantCall]) -> Draft:
        return replace(self, calls=tuple(calls), deviant=frozenset(range(len(calls))))


class Spelled(Struct, frozen=True, kw_only=True):
    """An output, and what is different from the draft because of its deviation."""

    output: str
    draft: Draft
    readable: bool = True


Deviation: TypeAlias = Callable[[Draft], str | Spelled]

NAMES: Final = (
    *("read_file", "read", "get-weather", "todoWrite", "Bash", "list_dir2", "mcp__fs__read", "search_docs3"),
    *("web-fetch", "createIssue", "k8s_get-pods", "Grep", "edit_file", "edit_file_lines", "run2"),
)
KEYS: Final = (
    *("path", "query", "city", "days", "todos", "command", "options", "recursive", "limit", "pattern", "content"),
    *("url", "title", "labels", "line", "offset", "unit", "filter", "target", "retries", "body", "verbose", "range"),
)
TYPES: Final = ("string", "string", "string", "integer", "number", "boolean", "object", "array")
STRINGS: Final = (
    *(
        "Paris",
        "",
        " ",
        "a b",
        "12",
        "true",
        "null",
        "-0.5",
        "[1]",
        '{"a": 1}',
        "{open",
        "closed}",
        "日本語 🚀 ünï",
        "naïve–dash",
    ),
    *('say "hi"', "back\\slash", "C:\\temp\\new", "line one\nline two\n", "tab\there", "it's", "`code`", "a < b | c"),
    *("<tool_call>", "<|tool_call_start|>", "<|tool_call", "functions.none:0", "</thinking>", "&quot; &amp;", "<|sep"),
    *(
        "```json\n{}\n```",
        "\\n is not a newline",
        "def f(x):\n    return {'a': \"b\"}\n",
        "x" * 90,
        "rm -rf build && make -j2",
    ),
)
REASONING: Final = (
    "I need the weather.",
    "Zuerst suchen, dann lesen.",
    "Let me think.\nFirst I read the file.",
    "用户想要…",
)
CONTENT: Final = ("", "", "Let me look.", "第一步\uff1a", "I read the file first.\n\n")


def random_draft(random: Random) -> Draft:
    """One to three calls of three to five declared tools."""
    tools = _tools(random)
    count = random.choice((1, 1, 2, 3))
    calls = tuple(random_call(random, random.choice(tools)) for _ in range(count))
    return Draft(
        random=random,
        tools=tools,
        reasoning=random.choice(REASONING),
        content=random.choice(CONTENT),
        calls=calls,
        deviant=frozenset(range(count)) if random.random() < 0.6 else frozenset({random.randrange(count)}),
    )


def random_call(random: Random, tool: DeclaredTool) -> MeantCall:
    """A call with the required argument, and some of the others."""
    keys = [key for at, key in enumerate(tool.types) if at == 0 or random.random() < 0.7]
    return MeantCall(tool.name, {key: _value(random, tool.types[key]) for key in keys})


def _tools(random: Random) -> tuple[DeclaredTool, ...]:
    names = random.sample(NAMES, random.choice((3, 4, 5)))
    keys = iter(random.sample(KEYS, len(KEYS)))
    return tuple(
        DeclaredTool(name, {next(keys): random.choice(TYPES) for _ in range(random.choice((1, 2, 3, 4)))})
        for name in names
    )


def _value(random: Random, kind: str, depth: int = 0) -> object:
    inner: tuple[str, ...]
    match kind:
        case "string":
            return random.choice(STRINGS)
        case "integer":
            return random.choice((0, 1, -7, 42, 100_000, 2**40))
        case "number":
            return random.choice((0, 3, -0.5, 21.25, 1e-7))
        case "boolean":
            return random.random() < 0.5
        case "object":
            inner = ("string", "integer", "boolean") if depth else TYPES
            return {key: _value(random, random.choice(inner), depth + 1) for key in random.sample(KEYS, 2)}
        case _:
            inner = ("string", "integer") if depth else ("string", "integer", "object", "boolean")
            return [_value(random, random.choice(inner), depth + 1) for _ in range(random.choice((0, 1, 2, 3)))]


def spell(generation: Generation, deviation: str, table: Mapping[str, Deviation], random: Random) -> ModelOutput:
    """One output with this deviation."""
    draft = random_draft(random)
    spelled = table[deviation](draft)
    if isinstance(spelled, str):
        spelled = Spelled(output=spelled, draft=draft)
    return ModelOutput(
        generation=generation,
        deviation=deviation,
        tools=spelled.draft.tools,
        output=spelled.output,
        reasoning=spelled.draft.reasoning,
        content=spelled.draft.content,
        calls=spelled.draft.calls,
        readable=spelled.readable,
    )
