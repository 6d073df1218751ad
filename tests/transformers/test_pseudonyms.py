"""The example plug-in, loaded the way people load one: names stay at home, however the answer is cut."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest
from msgspec import Struct

from moonshim import Mender
from moonshim.engine.prepare import Prepared, prepare_request, read_request
from moonshim.engine.reasoning_cache import cache_entry, lookup
from moonshim.engine.values.conversation import ToolCall
from moonshim.errors import InvalidOption
from moonshim.transformers import Chain, load_chain
from tests.support.streams import chunk, sse

EXAMPLES: Final = Path(__file__).parent.parent.parent / "examples"
NAMES: Final = {"Acme Corp": "Company A", 'Jane "JD" Doe': "Person 1"}
OWN: Final = 'Jane "JD" Doe of Acme Corp. Comp, Person'


class Use(Struct, frozen=True):
    name: str
    options: dict[str, Any] = {}


def chain(names: dict[str, str] = NAMES) -> Chain:
    return load_chain([Use("./pseudonyms.py:Pseudonyms", {"names": names}), Use("Kimi")], folder=EXAMPLES)


def asked(*more: dict[str, Any]) -> dict[str, Any]:
    system = {"role": "system", "content": "You work for Acme Corp."}
    return {"model": "kimi-k2.6", "messages": [system, {"role": "user", "content": f"Who is {OWN}?"}, *more]}


def prepared(body: dict[str, Any], dialect: str = "openai_chat") -> Prepared:
    made = chain()
    return prepare_request(body, dialect=dialect, host="moonshot", options=made.options, transformers=made.transformers)


def test_the_host_reads_no_name() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "find", "arguments": '{"who": "Acme Corp"}'}}
    said = {"role": "assistant", "content": "At Acme Corp.", "reasoning_content": "Acme Corp?", "tool_calls": [call]}
    sent = prepared(asked(said, {"role": "tool", "tool_call_id": "c1", "content": "Acme Corp: 7"})).body
    assert "Acme" not in json.dumps(sent)
    assert json.dumps(sent).count("Company A") == 6


ANSWER: Final[list[dict[str, Any]]] = [
    {"role": "assistant", "reasoning_content": "Person 1, then. Company"},
    {"content": "Person 1 of Company A. Comp, Person"},
    {
        "tool_calls": [
            {
                "index": 0,
                "id": "functions.find:0",
                "type": "function",
                "function": {"name": "find", "arguments": '{"who": "Person 1"}'},
            }
        ]
    },
]


@pytest.mark.parametrize("dialect", ["openai_chat", "anthropic", "openai_responses"])
@pytest.mark.parametrize("cut", [1, 2, 5, 1000])
def test_the_client_reads_every_name_however_it_is_cut(dialect: str, cut: int) -> None:
    body: dict[str, Any] = {"model": "kimi-k2.6", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
    if dialect == "openai_responses":
        body = {"model": "kimi-k2.6", "input": "hi"}
    deltas: list[dict[str, Any]] = []
    for delta in ANSWER:
        for field in ("reasoning_content", "content"):
            text = delta.get(field, "")
            deltas += [{field: text[at : at + cut]} for at in range(0, len(text), cut)]
        deltas += [{"tool_calls": delta["tool_calls"]}] if "tool_calls" in delta else []
    mender = Mender(plan=prepared(body, dialect).plan)
    assert mender.feed(sse([*map(chunk, deltas), chunk({}, finish="tool_calls")])) + mender.flush()
    thought, said, call = mender.message.parts
    assert thought.text == 'Jane "JD" Doe, then. Company'  # type: ignore[union-attr]
    assert said.text == OWN  # type: ignore[union-attr]
    assert isinstance(call, ToolCall)
    assert json.loads(call.arguments) == {"who": 'Jane "JD" Doe'}


def test_what_was_thought_is_known_again_by_the_names_of_the_client() -> None:
    asking = read_request(asked())
    made = chain()
    plan = asking.prepare(host="moonshot", options=made.options, transformers=made.transformers).plan
    mender = Mender(plan=plan)
    mender.feed(sse([chunk({"reasoning_content": "Company A?", "content": "Company A."}), chunk({}, finish="stop")]))
    filing = cache_entry(asking.turns(), mender.message)
    assert filing is not None
    later = read_request(asked({"role": "assistant", "content": "Acme Corp."}, {"role": "user", "content": "Sure?"}))
    (turn,) = later.lost_turns()
    thought = lookup(turn, {filing.field: filing.value} if turn.key == filing.key else {})
    assert thought is not None
    assert thought.text == "Acme Corp?"
    sent = later.prepare(host="moonshot", transformers=made.transformers, recalled={turn.index: thought}).body
    assert sent["messages"][2]["reasoning_content"] == "Company A?"


def test_pseudonyms_that_begin_alike_are_refused() -> None:
    with pytest.raises(InvalidOption, match="no pseudonym may be a prefix of another"):
        chain({"a": "Company 1", "b": "Company 12"})
