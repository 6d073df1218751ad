"""Hypothesis strategies for canonical requests: conversations with every kind of part, tools of every kind."""

from __future__ import annotations

from typing import Any, Final

from hypothesis import strategies as st

from moonshim.engine.values.conversation import (
    Media,
    Message,
    Part,
    Reasoning,
    Request,
    ResponseFormat,
    Sampling,
    SearchSettings,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolChoice,
    ToolResult,
)
from moonshim.engine.wire.json_codec import encode

__all__ = ["conversations", "requests"]

PIXEL: Final = "iVBORw0KGgo="
PAPER: Final = "JVBERi0xLjQ="
NAMES: Final = ("ls", "read_file", "mcp__git__log", "apply_patch")

words: Final = st.text(alphabet='aäb {}"\\\n<你🙂:,', min_size=1, max_size=10)
_texts: Final = st.builds(Text, words)


# --- media --------------------------------------------------------------------------------------------------------

images: Final = st.sampled_from(
    (
        Media("image", url="https://x.example/a.png"),
        Media("image", url="https://x.example/b.png", detail="high"),
        Media("image", data=PIXEL, media_type="image/png"),
        Media("image", data="/9j/4AAQ", media_type="image/jpeg", detail="low"),
    )
)
documents: Final = st.sampled_from(
    (
        Media("file", data=PAPER, media_type="application/pdf", name="paper.pdf"),
        Media("file", data=PAPER, media_type="application/pdf"),
        Media("file", url="https://x.example/paper.pdf"),
        Media("file", data="aGVsbG8=", media_type="text/plain", name="hello.txt"),
    )
)


# --- messages -----------------------------------------------------------------------------------------------------

DETAILS: Final[tuple[tuple[dict[str, Any], ...], ...]] = (
    (),
    ({"type": "reasoning.encrypted", "data": "b3BhcXVl"},),
    ({"type": "summary"}, {"type": "encrypted", "encrypted": "ZW5j"}),
    ({"type": "redacted_thinking", "data": "cmVk"},),
    ({"type": "reasoning.text", "text": "signed", "signature": "c2ln", "format": "x"},),
)


@st.composite
def _thoughts(draw: st.DrawFn) -> Reasoning:
    """Reasoning as it comes from hosts: with a signature, or with details, or under some name."""
    details = draw(st.sampled_from(DETAILS))
    signature = next((one["signature"] for one in details if "signature" in one), None)
    text = "signed" if signature else draw(words | st.just(""))
    if not details:
        signature = draw(st.sampled_from((None, "EqoBCkgIARAB")))
    field = draw(st.sampled_from((None, "reasoning_content", "reasoning", "reasoning_details")))
    if field == "reasoning_details" and (not details or details[0]["type"] != "summary"):
        field = None
    return Reasoning(text, signature, details, field)


_objects: Final = st.dictionaries(
    st.sampled_from(("path", "n", "deep")),
    words | st.integers(-5, 5) | st.booleans() | st.none() | st.lists(st.integers(0, 3), max_size=2),
    max_size=3,
)


@st.composite
def _arguments(draw: st.DrawFn, name: str) -> str:
    if name == "apply_patch":
        return '{"input":' + encode(draw(words)).decode() + "}"
    given = _objects.map(lambda value: encode(value).decode())
    broken = draw(st.integers(0, 9)) == 9
    return '{"path": "a' if broken else draw(given)


_gave: Final = st.lists(
    _texts | _texts | images | documents | st.just(Text("")),
    max_size=3,
).map(tuple)


@st.composite
def _round(draw: st.DrawFn, count: int) -> tuple[list[ToolCall], list[ToolResult]]:
    """Calls in parallel and their results, in any order; every other round has identifiers that were used before."""
    made = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=3))
    spelled = draw(st.sampled_from((None, "functions.{name}:{n}", "toolu_{n}", "{name}_{n}")))
    calls = []
    for n, name in enumerate(made):
        wire_id = None if spelled is None else spelled.format(name=name, n=n)
        calls.append(ToolCall(f"hist_tool_x{count + n}", name, draw(_arguments(name)), wire_id))
    results = [
        ToolResult(call.id, call.name, draw(_gave), draw(st.booleans()), call.wire_id)
        for call in draw(st.permutations(calls))
    ]
    return calls, results


@st.composite
def conversations(draw: st.DrawFn) -> tuple[Message, ...]:
    """Prompts, questions, thoughts, rounds of calls and answers, in the order of a real conversation."""
    out = [Message("system", tuple(draw(st.lists(_texts, min_size=1, max_size=2))))] * draw(st.integers(0, 2))
    count = 0
    for _ in range(draw(st.integers(1, 3))):
        said: list[Part] = draw(st.lists(_texts | _texts | images | documents, min_size=1, max_size=3))
        out.append(Message("user", tuple(said)))
        if draw(st.integers(0, 3)) == 0:
            out.append(Message("system", (draw(_texts),)))
        for _ in range(draw(st.integers(0, 2))):
            calls, results = draw(_round(count))
            count += len(calls)
            before: list[Part] = draw(st.lists(_thoughts(), max_size=2))
            before += draw(st.lists(_texts, max_size=1))
            out.append(Message("assistant", (*before, *calls)))
            if draw(st.booleans()):
                out.append(Message("tool", tuple(results)))
            else:
                out += [Message("tool", (result,)) for result in results]
        if draw(st.booleans()):
            thought: list[Part] = draw(st.lists(_thoughts(), max_size=1))
            out.append(Message("assistant", (*thought, *draw(st.lists(_texts, min_size=1, max_size=2)))))
    return tuple(out)


# --- tools and fields -----------------------------------------------------------------------------------------------

SCHEMA: Final[dict[str, Any]] = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
_FREE: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {"input": {"type": "string"}},
    "required": ["input"],
    "additionalProperties": False,
}
TOOLS: Final = (
    Tool("ls", "List files", SCHEMA),
    Tool("read_file", None, SCHEMA, strict=True),
    Tool("wait", "No parameters"),
    Tool("mcp__git__log", "The log", SCHEMA, namespace="mcp__git__"),
    Tool("late", "Loaded later", SCHEMA, deferred=True),
    Tool("apply_patch", "Patches", _FREE, kind="custom"),
    Tool("web_search", kind="server", search=SearchSettings()),
)
_choices: Final = st.sampled_from(
    (
        None,
        ToolChoice("auto"),
        ToolChoice("none"),
        ToolChoice("required"),
        ToolChoice("tool", "ls"),
        ToolChoice("auto", allowed=("ls",)),
        ToolChoice("required", allowed=("ls", "read_file")),
    )
)


def _maybe(*values: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from((None, *values))


_sampling: Final = st.builds(
    Sampling,
    temperature=_maybe(0.0, 0.6, 1.0),
    top_p=_maybe(0.95),
    top_k=_maybe(40),
    presence_penalty=_maybe(0.5),
    frequency_penalty=_maybe(0.5),
    seed=_maybe(7),
    n=_maybe(2),
    max_tokens=_maybe(1, 4096),
    stop=st.sampled_from(((), ("END",), ("a", "b"))),
)
_thinking: Final = st.sampled_from(
    (
        Thinking(),
        Thinking(enabled=True),
        Thinking(enabled=False),
        Thinking(effort="high"),
        Thinking(effort="minimal"),
        Thinking(enabled=True, effort="low", budget=2048),
        Thinking(enabled=True, keep="all"),
    )
)
_formats: Final = st.sampled_from(
    (
        None,
        ResponseFormat("text"),
        ResponseFormat("json_object"),
        ResponseFormat("json_schema", "answer", SCHEMA),
        ResponseFormat("json_schema", "city", SCHEMA, strict=True, description="A city"),
    )
)


@st.composite
def requests(draw: st.DrawFn) -> Request:
    """A whole request; a choice of tools stands beside tools only, and names those that are there."""
    tools = draw(st.none() | st.just(TOOLS) | st.lists(st.sampled_from(TOOLS), unique_by=id).map(tuple))
    named = {tool.name for tool in tools or ()}
    choice = draw(_choices) if tools else None
    if choice is not None and not {choice.name or "ls", *(choice.allowed or ())} <= named:
        choice = ToolChoice("auto")
    return Request(
        model="kimi-k2.6",
        messages=draw(conversations()),
        tools=tools,
        tool_choice=choice,
        parallel_calls=draw(_maybe(True, False)) if tools else None,
        sampling=draw(_sampling),
        thinking=draw(_thinking),
        response_format=draw(_formats),
        stream=draw(_maybe(True, False)),
        include_usage=draw(_maybe(True)),
        user=draw(_maybe("user-1")),
        metadata=draw(st.sampled_from(({}, {"session": "s1"}))),
        cache_key=draw(_maybe("key-1")),
    )
