"""Every vector through every pair of dialects, streamed and whole: the output bytes are the recorded ones.

`digests.json` holds the digests of each vector's outputs. It shows that a change that should change nothing
changed nothing. After an intended change, `MOONSHIM_UPDATE_GOLDEN=1` records it again, and the changelog says why;
`MOONSHIM_GOLDEN_OUTPUT=folder` writes the full outputs, so that two versions can be compared with `diff -r`.
"""

from __future__ import annotations

import hashlib
import json
import os
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal

import pytest

import moonshim
from tests.support.vector_files import Vector, files

RECORDED: Final = Path(__file__).with_name("digests.json")
OUTPUT: Final = os.environ.get("MOONSHIM_GOLDEN_OUTPUT")
UPDATES: Final = os.environ.get("MOONSHIM_UPDATE_GOLDEN") == "1"
CLIENTS: Final = ("openai_chat", "anthropic", "openai_responses")
DIGITS: Final = 8
SECRET: Final = b"golden bytes, thirty-two letters"


def definition(tool: moonshim.Tool, client: str) -> dict[str, Any]:
    if client == "anthropic":
        return {"name": tool.name, "input_schema": tool.parameters}
    return {"type": "function", "name": tool.name, "parameters": tool.parameters}


def plan_for(vector: Vector, client: str, upstream: str) -> moonshim.Plan:
    """The plan of a request in the client's dialect that has the vector's tools, history and options."""
    messages = [*(vector.history or []), {"role": "user", "content": "Go on."}]
    chat: dict[str, Any] = {"model": vector.model, "messages": messages, "stream": True}
    if vector.tools is not None:
        chat["tools"] = vector.tools
    if vector.tool_choice is not None and vector.tools:
        chat["tool_choice"] = vector.tool_choice
    body = chat
    if client != "openai_chat":
        translated = moonshim.translate_messages(messages, from_="openai_chat", to=client)
        said = {"input": translated} if client == "openai_responses" else {"max_tokens": 1000, "messages": translated}
        body = {"model": vector.model, "stream": True, **said}
        if vector.tools is not None:
            tools = moonshim.parse_tools([tool for tool in vector.tools if isinstance(tool, dict)], "openai")
            body["tools"] = [definition(tool, client) for tool in tools]
    return moonshim.prepare_request(
        body,
        dialect=client,
        upstream=upstream,
        options=vector.options_value(),
        secret=SECRET,
        reply_id="golden",
        created=1700000000,
    ).plan


def ending_text(ending: moonshim.Finished | moonshim.Failed | None) -> str:
    match ending:
        case moonshim.Finished():
            return f"finished {ending.reason}"
        case moonshim.Failed():
            return f"failed {ending.code} {ending.message}"
    return "none"


def streamed(vector: Vector, plan: moonshim.Plan, stream: bytes, framing: Literal["sse", "ndjson"] = "sse") -> str:
    """What a client gets of this stream, and what is reported."""
    mender = moonshim.Mender(plan=plan, framing=framing)
    out = bytearray()
    for start in range(0, len(stream), 50):
        out += mender.feed(stream[start : start + 50])
    out += mender.flush()
    repairs = "\n".join(f"{repair.rule}: {repair.detail}" for repair in mender.repairs)
    return (
        f"{bytes(out).decode(errors='backslashreplace')}\n== ending {ending_text(mender.ending)}\n== repairs\n{repairs}"
    )


def whole(body: dict[str, Any], plan: moonshim.Plan) -> str:
    """The same for a response that is not streamed."""
    mended = moonshim.mend_response(body, plan=plan)
    repairs = "\n".join(f"{repair.rule}: {repair.detail}" for repair in mended.repairs)
    return f"{json.dumps(mended.body)}\n== ending {ending_text(mended.ending)}\n== repairs\n{repairs}"


def outputs(vector: Vector) -> dict[str, str]:
    """Everything that the vector becomes, by the field that carries its text, the dialects, and the form."""
    made: dict[str, str] = {}
    for field in vector.fields if vector.is_text else [""]:
        for client in CLIENTS:
            plan = plan_for(vector, client, "openai_chat")
            made[f"{field} {client} stream"] = streamed(vector, plan, vector.stream(field, 3), vector.framing)
            body = vector.body(field)
            if body is not None:
                made[f"{field} {client} whole"] = whole(body, plan)
        # The same response of a Messages host, as the engine itself writes it.
        messages = moonshim.Mender(plan=plan_for(vector, "anthropic", "openai_chat"), framing=vector.framing)
        stream = messages.feed(vector.stream(field, 3)) + messages.flush()
        for client in CLIENTS:
            plan = plan_for(vector, client, "anthropic")
            made[f"{field} anthropic-host {client} stream"] = streamed(vector, plan, stream)
    return made


@cache
def cases() -> dict[str, Vector]:
    """Every vector by its file, its place in it, and its name."""
    return {
        f"{file} {place} {vector.name}": vector for file, group in files().items() for place, vector in enumerate(group)
    }


@cache
def recorded() -> dict[str, str]:
    found: dict[str, str] = json.loads(RECORDED.read_text())
    return found


def digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="backslashreplace")).hexdigest()[:DIGITS]


@pytest.mark.parametrize("case", cases())
def test_the_output_is_the_recorded_one(case: str) -> None:
    made = outputs(cases()[case])
    if OUTPUT:
        for name, text in made.items():
            path = Path(OUTPUT) / case.replace("/", "_") / name.replace(" ", "_")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, errors="backslashreplace")
    before = recorded()[case]
    digests = [before[start : start + DIGITS] for start in range(0, len(before), DIGITS)]
    differs = [name for name, one in zip(made, digests, strict=True) if digest(made[name]) != one]
    assert not differs, f"other bytes than recorded: {differs}; see MOONSHIM_GOLDEN_OUTPUT in {Path(__file__).name}"


def test_every_vector_is_recorded_and_nothing_else() -> None:
    if UPDATES:
        made = {case: "".join(map(digest, outputs(vector).values())) for case, vector in cases().items()}
        RECORDED.write_text(json.dumps(made, indent=0, ensure_ascii=False) + "\n")
    assert recorded().keys() == cases().keys()
