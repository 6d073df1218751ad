"""A row of `other_formats.jsonl` (a text of another model family) -> what we read from it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from conformance.checked import Checked, plain_arguments
from conformance.replies import Call, Json, Reply
from moonshim.engine.assemble import Assembler
from moonshim.engine.frames import FrameOutput
from moonshim.engine.grammar.registry import grammar_for
from moonshim.engine.ids import IdRepairer
from moonshim.engine.repair.repairer import ResponseRepairer
from moonshim.engine.repair.tool_names import DeclaredTools
from moonshim.engine.values.conversation import Reasoning, Text, Tool, ToolCall
from moonshim.engine.values.events import Failed, Finished
from moonshim.engine.values.options import KimiOptions
from moonshim.engine.values.tool_calls import declared_tools

__all__ = ["area_of", "check", "key_of"]

_GRAMMARS: Final = {
    "hermes": "hermes",
    "qwen25": "hermes",
    "qwen3_coder": "qwen_xml",
    "deepseek_v3": "deepseek",
    "deepseek_v3_1": "deepseek",
    "llama3_json": "llama_json",
    "pythonic": "pythonic",
    "gemma4": "gemma",
}


def key_of(row: Json) -> str:
    name: str = row["name"]
    return name.replace("TOOLCALLING.", "")


def area_of(row: Json) -> str:
    family: str = row["family"]
    return family


def check(row: Json) -> Checked:
    """The same text as it was given, letter by letter, and at once."""
    pieces: list[str] = row["chunks"]
    text = "".join(pieces)
    finish = row.get("finish_reason") or "stop"
    tools = declared_tools(row["tools"])
    ways = {
        "as given": _reply(pieces, row["family"], tools, finish),
        "character by character": _reply(text, row["family"], tools, finish),
        "at once": _reply([text], row["family"], tools, finish),
    }
    reply, expect = ways["as given"], row["expect"]
    expected: Json = {
        "content": expect["content"] or "",
        "reasoning": expect["reasoning"] or "",
        "calls": [_plain(call["name"], call["arguments"]) for call in expect["tool_calls"] or ()],
    }
    calls = [_plain(call.name, call.arguments) for call in reply.calls]
    got = {"content": reply.content, "reasoning": reply.reasoning, "calls": calls}
    return Checked(got, expected, ways=ways)


def _plain(name: str, arguments: object) -> Json:
    return {"name": name, "arguments": plain_arguments(arguments)}


def _reply(pieces: Iterable[str], family: str, tools: list[Tool], finish: str) -> Reply:
    """What one choice says in the end, through the grammar of the family and every repair of calls."""
    grammar = grammar_for(_GRAMMARS[family], "text", tools=tools)
    answer = ResponseRepairer(DeclaredTools(tools), KimiOptions.mending(), IdRepairer([]), {"text": grammar})
    assembler = Assembler()
    outputs: list[FrameOutput] = []
    for piece in (*pieces, None):
        output = FrameOutput()
        outputs.append(output)
        if piece is None:
            answer.finish(finish, output)
        elif piece:
            answer.feed_text("text", piece, output)
    for output in outputs:
        for event in output.events:
            assembler.feed(event)
    parts = assembler.message.parts
    ending: Finished | Failed | None = assembler.ending
    return Reply(
        "".join(part.text for part in parts if isinstance(part, Text)),
        "".join(part.text for part in parts if isinstance(part, Reasoning)),
        tuple(Call(part.name, part.arguments, part.wire_id or "") for part in parts if isinstance(part, ToolCall)),
        ending.reason if isinstance(ending, Finished) else None,
        ending.code if isinstance(ending, Failed) else None,
    )
