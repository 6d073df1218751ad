"""Web search, documents, schemas, headers: what the host is, what its model does, and what must come of it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from tests.clients.built_in.feature import Feature, Run, Scene
from tests.clients.built_in.performer import COUNT, PAGE, Performer
from tests.clients.cases import Case
from tests.clients.judging import said_otherwise
from tests.clients.launch.notes_server import LARGE_TOOL
from tests.support.pdf_files import text_pdf

__all__ = [
    "ANSWER_SCHEMA",
    "CATALOG",
    "DOCUMENT",
    "DOCUMENT_MESSAGES",
    "HEADERS",
    "LARGE_SCHEMA",
    "NO_SEARCH",
    "REPORT",
    "SCHEMA",
    "SCHEMA_LIMIT",
    "SCHEMA_MESSAGES",
    "SCHEMA_TOOL",
    "WEB_SEARCH",
]

REPORT: Final = "report.pdf"
ANSWER_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {"word": {"type": "string"}, "count": {"type": "integer"}},
    "required": ["word", "count"],
    "additionalProperties": False,
}
QUERY: Final = "what is new about kimi"
_SEARCH: Final = Path(__file__).with_name("search.py")
_LEAKING: Final = Case(name="leaking", model="kimi-k2.5", behaviour="selfhost", faults=("markers-in-content",))
_MOONSHOT: Final = Case(name="moonshot", model="kimi-k3", behaviour="moonshot", host="moonshot")
_MESSAGES: Final = Case(
    name="messages",
    model="kimi-k2.5",
    behaviour="moonshot",
    host="moonshot-anthropic",
    path="/anthropic",
    dialect="anthropic",
)
_DISOBEDIENT: Final = ("json-in-fence", "choice-ignored-first")


# -- web search -------------------------------------------------------------------------------------------------------


def _searching(scene: Scene) -> Performer:
    """Claude Code has a tool of its own, to be loaded first, which asks in a request of its own. Codex has the search
    itself; the command after it makes Codex send the search back."""
    return Performer(
        ("ToolSearch", {"query": "select:WebSearch", "max_results": 5}),
        ("WebSearch", {"query": QUERY}),
        ("web_search", {"query": QUERY}),
        ("exec_command", {"cmd": "true"}),
    )


def _search_config(scene: Scene) -> dict[str, Any]:
    return {"web_search": {"provider": "command", "command": [sys.executable, str(_SEARCH), scene.word]}}


def _found(run: Run) -> Iterator[str]:
    if PAGE not in run.answer:
        yield f"the page that was found is not in the answer: {run.answer[:200]!r}"
    if not any(line.get("searches") for line in run.lines):
        yield "the gateway ran no search"
    links = f'Links: [{{"title":"A page","url":"{PAGE}"}}]'
    if (
        not any(links in text for text in run.results("WebSearch"))
        and f"web search: {QUERY}" not in run.ended.complained
    ):
        yield "the client did not see the search"
    if not run.results("WebSearch"):  # which asks in a request of its own
        yield from said_otherwise(run.requests)


def _told_unavailable(run: Run) -> Iterator[str]:
    results = run.results("WebSearch")
    if not any("Web search error: unavailable" in text for text in results):
        yield f"the client did not see that there is no search: {[text[:200] for text in results]}"


WEB_SEARCH: Final = Feature(
    name="web-search",
    about="a search that the gateway runs",
    host=_LEAKING,
    model=_searching,
    prompt="Search the web: what is new about Kimi?",
    config=_search_config,
    judge=_found,
)
NO_SEARCH: Final = Feature(
    name="no-search",
    about="a search without a provider",
    host=_LEAKING,
    model=_searching,
    prompt="Search the web: what is new about Kimi?",
    has_word=False,
    judge=_told_unavailable,
)


# -- documents --------------------------------------------------------------------------------------------------------


def _write_report(scene: Scene) -> None:
    (scene.work / REPORT).write_bytes(text_pdf("Quarterly report", f"The password is {scene.word}."))


def _reading(scene: Scene) -> Performer:
    path = str(scene.work / REPORT)
    return Performer(("Read", {"file_path": path}), ("read", {"filePath": path}))


def _was_a_document(run: Run) -> Iterator[str]:
    if "document_text" not in run.changes():
        yield f"the client sent no document; the gateway changed {', '.join(sorted(run.changes()))}"
    yield from said_otherwise(run.requests)


DOCUMENT: Final = Feature(
    name="document",
    about="the text of a PDF file",
    host=_MOONSHOT,
    model=_reading,
    prompt=f"What is the password in {REPORT}?",
    prepare=_write_report,
    judge=_was_a_document,
)
DOCUMENT_MESSAGES: Final = replace(DOCUMENT, name="document-messages", host=_MESSAGES)


# -- structured output ------------------------------------------------------------------------------------------------


def _is_as_demanded(run: Run, *repairs: str) -> Iterator[str]:
    """`repairs`: without one of them, the host has not misbehaved, and the run has shown little."""
    wanted = {"word": run.scene.word, "count": COUNT}
    try:
        answer = msgspec.json.decode(run.answer)
    except msgspec.DecodeError:
        answer = None
    if answer != wanted:
        yield f"the answer is not the JSON that was demanded: {run.answer[:200]!r}"
    if not set(repairs) & set(run.repairs()):
        yield f"the gateway reported no {' or '.join(repairs)}"


SCHEMA: Final = Feature(
    name="schema",
    about="an answer by a schema, at a host that puts JSON into a fence and ignores a forced call once",
    host=Case(name="selfhost", model="kimi-k2.5", behaviour="selfhost", faults=_DISOBEDIENT),
    model=lambda scene: Performer(("StructuredOutput", {"word": scene.word, "count": COUNT})),
    prompt="The word is {word}. Tell me the word and how many letters it has, as JSON.",
    judge=lambda run: _is_as_demanded(run, "json_fence", "answer_corrected"),
)
SCHEMA_MESSAGES: Final = replace(SCHEMA, name="schema-messages", host=replace(_MESSAGES, faults=_DISOBEDIENT))
SCHEMA_TOOL: Final = replace(
    SCHEMA,
    name="schema-tool",
    about="an answer by a schema, through a tool that the model may call, at a host that leaks markers",
    host=_LEAKING,
    judge=lambda run: _is_as_demanded(run, "marker_call"),
)


# -- headers ----------------------------------------------------------------------------------------------------------


def _are_known(run: Run) -> Iterator[str]:
    if "beta_flags" not in run.changes():
        yield "the client sent no flag that the host does not know"
    known = {"claude-code-20250219", "interleaved-thinking-2025-05-14", "fine-grained-tool-streaming-2025-05-14"}
    for seen in run.requests:
        if (version := seen.headers.get("anthropic-version")) != "2023-06-01":
            yield f"the host got version {version}"
        flags = set(filter(None, seen.headers.get("anthropic-beta", "").split(",")))
        if flags - known:
            yield f"the host got the flags {', '.join(flags - known)}"


HEADERS: Final = Feature(
    name="headers",
    about="anthropic-version and anthropic-beta",
    host=_MESSAGES,
    model=lambda scene: Performer(),
    prompt="The word is {word}. Say it.",
    judge=_are_known,
)


# -- a catalog of models -----------------------------------------------------------------------------------------------


def _is_known(run: Run) -> Iterator[str]:
    if "Model metadata" in run.ended.complained + run.ended.printed:
        yield "the client does not know the model"
    if efforts := {seen.body.get("reasoning_effort") for seen in run.requests} - {"low"}:
        yield f"the host got the efforts {efforts}"
    if not run.results("exec_command"):
        yield "the model has no shell"


CATALOG: Final = Feature(
    name="catalog",
    about="the catalog of the guide, and an effort that is not its default",
    host=_MOONSHOT,
    model=lambda scene: Performer(("exec_command", {"cmd": f"echo {scene.word}"})),
    prompt="Which word is it?",
    judge=_is_known,
)


# -- large tool schemas -----------------------------------------------------------------------------------------------


def _was_shortened(run: Run, limit: int = 120_000) -> Iterator[str]:
    tools = [tool for seen in run.requests if seen.request is not None for tool in seen.request.tools]
    schemas = [tool.schema for tool in tools if tool.name.endswith(LARGE_TOOL)]
    sizes = [len(msgspec.json.encode(schema)) for schema in schemas]
    if not sizes or max(sizes) > limit:
        yield f"the host got schemas of {sizes} bytes"
    if not all("$defs" in schema for schema in schemas):  # the server's has none
        yield "repeated parts of the schema were not moved into $defs"


LARGE_SCHEMA: Final = Feature(
    name="large-schema",
    about="an MCP tool with a schema of 400 KB",
    host=_MOONSHOT,
    model=lambda scene: Performer(
        # Claude Code: the model has to load the tool first.
        ("ToolSearch", {"query": f"select:mcp__notes__{LARGE_TOOL}", "max_results": 5}),
        (LARGE_TOOL, {"subject": "the report"}),
    ),
    prompt="File a note about the report.",
    judge=_was_shortened,
)
SCHEMA_LIMIT: Final = replace(
    LARGE_SCHEMA,
    name="schema-limit",
    about="an MCP tool with a schema of 400 KB, at a host that takes 20 KB",
    provider={"cells": {"schema_limit": 20_000}},
    judge=lambda run: _was_shortened(run, 20_000),
)
