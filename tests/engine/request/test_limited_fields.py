"""What a limited client may send: nothing that answers with another model, falls back to one, or costs extra."""

from __future__ import annotations

from typing import Any, Final

import pytest

from moonshim.engine.prepare import Prepared, read_request
from moonshim.errors import CannotExpress

Json = dict[str, Any]
WIDENING: Final[Json] = {
    "models": ["openai/gpt-5-pro"],
    "fallbacks": ["openai/gpt-5-pro"],
    "fallback_models": ["openai/gpt-5-pro"],
    "route": "fallback",
    "plugins": [{"id": "web", "max_results": 10}],
    "web_search_options": {"search_context_size": "high"},
    "service_tier": "priority",
    "speed": "fast",
    "modalities": ["text", "audio"],
    "audio": {"voice": "alloy", "format": "wav"},
    "lora_path": "other",
    "best_of": 10,
    "use_beam_search": True,
    "safety_model": "other",
    "mcp_servers": [{"type": "url", "url": "https://example.com", "name": "x"}],
    "container": "c_1",
    "extra_body": {"models": ["openai/gpt-5-pro"]},
    "x_unknown": True,
    "priority": -100,
    "options": {"num_predict": 100_000},
}
HARMLESS: Final[Json] = {
    "top_k": 20,
    "min_p": 0.1,
    "repetition_penalty": 1.1,
    "chat_template_kwargs": {"thinking": True},
    "seed": 7,
    "metadata": {"a": "b"},
    "service_tier": "flex",
    "modalities": ["text"],
    "transforms": ["middle-out"],
    "usage": {"include": True},
    "guided_json": {"type": "object"},
    "stop_token_ids": [1],
    "prompt_cache_key": "k",
}
RESTRICTING: Final[Json] = {
    "only": ["moonshotai"],
    "ignore": ["other"],
    "data_collection": "deny",
    "zdr": True,
    "max_price": {"prompt": 1},
    "require_parameters": True,
    "allow_fallbacks": False,
    "quantizations": ["fp8"],
}
HOSTS: Final = ("openrouter", "generic", "moonshot", "vllm")


def prepared(fields: Json, *, host: str = "openrouter", is_limited: bool = True, **given: Any) -> Prepared:
    body = {"model": "moonshotai/kimi-k2.5", "messages": [{"role": "user", "content": "hi"}]} | fields
    return read_request(body).prepare(host=host, is_limited=is_limited, **given)


def limited(ready: Prepared) -> list[str | None]:
    return [change.place for change in ready.changes if change.rule == "client_field"]


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("field", WIDENING)
def test_a_field_that_goes_beyond_the_key_is_dropped_and_reported(field: str, host: str) -> None:
    ready = prepared({field: WIDENING[field]}, host=host)
    assert field not in ready.body
    assert limited(ready) == [field]


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("model", ["moonshotai/kimi-k2.5", "gpt-5"])
def test_the_others_pass_at_every_host(host: str, model: str) -> None:
    ready = prepared({"model": model} | HARMLESS, host=host)
    assert limited(ready) == []


def test_what_only_narrows_the_choice_of_a_host_passes() -> None:
    ready = prepared({"provider": RESTRICTING})
    assert ready.body["provider"] == RESTRICTING
    assert limited(ready) == []


def test_the_rest_of_the_same_object_is_dropped() -> None:
    wide = {"sort": "throughput", "data_collection": "allow", "allow_fallbacks": True, "zdr": 1, "new": 1}
    ready = prepared({"provider": {"only": ["a"], **wide}})
    assert ready.body["provider"] == {"only": ["a"]}
    assert limited(ready) == [f"provider.{name}" for name in wide]
    assert "provider" not in prepared({"provider": wide}).body
    assert limited(prepared({"provider": "all"})) == ["provider"]


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"preset": "private"}, "preset"),
        ({"provider": {"order": ["a"]}}, "provider.order"),
        ({"providerOptions": {"gateway": {"only": ["a"]}}}, "providerOptions"),
        ({"inference_geo": "us"}, "inference_geo"),
    ],
)
def test_a_field_that_decides_who_sees_the_data_is_refused(fields: Json, field: str) -> None:
    with pytest.raises(CannotExpress) as refused:
        prepared(fields)
    assert refused.value.field == field
    assert prepared(fields, is_limited=False).body.items() >= fields.items()


def test_a_client_without_limits_keeps_every_field() -> None:
    fields = WIDENING | {"provider": RESTRICTING | {"sort": "price"}}
    ready = prepared(fields, is_limited=False)
    assert ready.body.items() >= fields.items()
    assert limited(ready) == []


def test_what_the_gateway_adds_itself_stays() -> None:
    own = {"models": ["a"], "provider": {"order": ["a"]}, "service_tier": "priority"}
    ready = prepared({"models": ["b"], "reasoning_effort": "low"}, extra_body=own)
    assert ready.body.items() >= own.items()
    assert limited(ready) == ["models"]


@pytest.mark.parametrize("model", ["moonshotai/kimi-k2.5", "gpt-5"])
def test_tools_that_a_host_runs_and_charges_for_do_not_reach_an_unknown_host(model: str) -> None:
    function = {"type": "function", "function": {"name": "ls", "parameters": {"type": "object"}}}
    ready = prepared({"model": model, "tools": [function, {"type": "openrouter:web_search"}]}, host="generic")
    assert ready.body["tools"] == [function]


@pytest.mark.parametrize("dialect", ["anthropic", "openai_responses"])
@pytest.mark.parametrize("upstream", ["openai_chat", "anthropic"])
def test_the_same_holds_for_every_dialect(dialect: str, upstream: str) -> None:
    said: Json = {"input": "hi"} if dialect == "openai_responses" else {"messages": [{"role": "user", "content": "hi"}]}
    fields = {name: value for name, value in WIDENING.items() if name not in ("modalities", "container")}
    body = {"model": "kimi-k2.5", "max_tokens": 10} | said | fields
    if dialect == "openai_responses":
        del body["max_tokens"]
    for host in ("openrouter", "generic"):
        ready = read_request(body, dialect=dialect).prepare(host=host, upstream=upstream, is_limited=True)
        assert not WIDENING.keys() & ready.body.keys(), ready.body
