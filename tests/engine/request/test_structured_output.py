"""What a client demands of an answer reaches the host in a field that it obeys, or the model in words."""

from __future__ import annotations

from typing import Any, Final

import pytest

from moonshim.engine.exchange import Exchange, RequestTarget
from moonshim.engine.prepare import Prepared, prepare_request, read_request
from moonshim.errors import Problem

Json = dict[str, Any]
SCHEMA: Final[Json] = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
FORMAT: Final[Json] = {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}}}
TOOLS: Final[Json] = {"tools": [{"type": "function", "function": {"name": "pick", "parameters": SCHEMA}}]}
NAMED: Final[Json] = TOOLS | {"tool_choice": {"type": "function", "function": {"name": "pick"}}}


def prepared(host: str, model: str, fields: Json, *messages: Json, upstream: str = "openai_chat") -> Prepared:
    said = messages or ({"role": "user", "content": "hi"},)
    return prepare_request({"model": model, "messages": list(said)} | fields, host=host, upstream=upstream)


def last_words(body: Json) -> str:
    content = body["messages"][-1]["content"]
    return content if isinstance(content, str) else str(content[-1]["text"])


@pytest.mark.parametrize("host", ["moonshot", "fireworks", "vllm", "sglang"])
def test_a_host_that_enforces_a_schema_gets_it(host: str) -> None:
    ready = prepared(host, "kimi-k3", FORMAT)
    assert ready.body["response_format"]["type"] == "json_schema"
    assert last_words(ready.body) == "hi"


@pytest.mark.parametrize("host", ["kimi-coding", "openrouter", "together", "groq", "nim", "generic"])
def test_a_host_that_may_ignore_a_schema_gets_it_and_the_answer_is_not_checked(host: str) -> None:
    ready = prepared(host, "kimi-k2.5", FORMAT)
    assert ready.body["response_format"]["type"] == "json_schema"
    assert ready.expected is None
    assert last_words(ready.body) == "hi"


@pytest.mark.parametrize("host", ["siliconflow", "deepinfra"])
def test_a_host_with_json_mode_only_gets_that_and_the_model_the_schema(host: str) -> None:
    ready = prepared(host, "kimi-k2.5", FORMAT)
    assert ready.body["response_format"] == {"type": "json_object"}
    assert '"required":["n"]' in last_words(ready.body)
    assert [change.rule for change in ready.changes] == ["response_format"]


@pytest.mark.parametrize("host", ["moonshot", "kimi-coding", "vllm", "generic"])
@pytest.mark.parametrize("asked", [FORMAT, {"response_format": {"type": "json_object"}}], ids=["schema", "object"])
def test_over_messages_the_model_gets_it_in_words(host: str, asked: Json) -> None:
    ready = prepared(host, "kimi-k3", asked, upstream="anthropic")
    assert not {"response_format", "output_config", "output_format"} & ready.body.keys()
    assert "raw JSON data" in last_words(ready.body)
    assert ready.expected is None


def test_a_model_that_may_call_tools_is_not_kept_from_it() -> None:
    assert last_words(prepared("siliconflow", "kimi-k3", FORMAT | TOOLS).body).startswith("You may call tools first.")


def test_a_start_of_the_answer_stays_last_and_nothing_is_checked() -> None:
    start = {"role": "assistant", "content": "{", "partial": True}
    ready = prepared("siliconflow", "kimi-k3", FORMAT | NAMED, {"role": "user", "content": "hi"}, start)
    assert [message["role"] for message in ready.body["messages"]] == ["user", "system", "assistant"]
    assert ready.expected is None
    assert not ready.plan.unwraps_json


def test_another_model_gets_what_the_client_sends() -> None:
    ready = prepared("siliconflow", "gpt-5", FORMAT | NAMED)
    assert ready.body["response_format"] == FORMAT["response_format"]
    assert ready.expected is None
    assert not ready.plan.unwraps_json


# host, model -> tool_choice, whether the model is asked in words; None: trusted
FORCED: Final[dict[tuple[str, str], tuple[Any, bool] | None]] = {
    ("moonshot", "kimi-k3"): ("required", True),
    ("moonshot", "kimi-k2.5"): ("auto", True),
    ("vllm", "kimi-k2.5"): None,
    ("generic", "kimi-k2.5"): (NAMED["tool_choice"], False),
}


@pytest.mark.parametrize(("target", "expected"), FORCED.items())
def test_a_forced_call(target: tuple[str, str], expected: tuple[Any, bool] | None) -> None:
    ready = prepared(*target, NAMED)
    if expected is None:
        assert ready.expected is None
        assert ready.body["tool_choice"] == NAMED["tool_choice"]
        return
    choice, in_words = expected
    assert ready.body["tool_choice"] == choice
    assert ("MUST call the tool `pick`" in last_words(ready.body)) is in_words
    assert ready.expected is not None
    assert ready.expected.tool == "pick"


@pytest.mark.parametrize("target", FORCED)
def test_a_choice_of_a_tool_that_is_not_declared_is_not_demanded_in_words(target: tuple[str, str]) -> None:
    choice = {"type": "function", "function": {"name": "other"}}
    ready = prepared(*target, TOOLS | {"tool_choice": choice})
    assert ready.expected is None
    assert ready.body["messages"] == prepared(*target, TOOLS).body["messages"]


def test_a_host_that_refuses_the_field_gets_a_description_from_then_on() -> None:
    parsed = read_request({"model": "kimi-k2.5", "messages": [{"role": "user", "content": "hi"}]} | FORMAT)
    exchange, target = Exchange(parsed), RequestTarget(key="t", host="groq")
    exchange.prepare(target)
    invalid = Problem(status=400, kind="invalid_request", message="response_format: the schema is invalid")
    assert not exchange.correct(invalid)
    message = "This model does not support response format `json_schema`."
    assert exchange.correct(Problem(status=400, kind="invalid_request", message=message))
    assert "raw JSON data" in last_words(exchange.prepare(target).body)
