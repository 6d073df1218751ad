"""Which route applies to a request: the decision, the names that may be routed, the record of a conversation."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import pytest

from moonshim.config import Config, ProviderConfig, RouteName, Routes, Target
from moonshim.config.model import ROUTE_NAMES
from moonshim.engine.prepare import ParsedRequest, read_request
from moonshim.gateway.memory.routes import HOST_SECONDS, ConversationRoute, RouteMemory
from moonshim.gateway.observe.record import RequestRecord
from moonshim.gateway.outbound.routes import choose_route, sees_images
from moonshim.gateway.outbound.routing import Router
from moonshim.store import StoreUnavailable
from moonshim.store.memory import MemoryStore

Json = dict[str, Any]
PNG: Final[Json] = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}
HI: Final[Json] = {"role": "user", "content": "hi"}
IMAGE: Final[Json] = {"role": "user", "content": [{"type": "text", "text": "Look."}, PNG]}
HELLO: Final[Json] = {"role": "assistant", "content": "Hello!"}
CALL: Final[Json] = {
    "role": "assistant",
    "content": [{"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}}],
}
SEARCH: Final[Json] = {"type": "web_search_20250305", "name": "web_search", "max_uses": 8}
THINK: Final[Json] = {"thinking": {"type": "enabled", "budget_tokens": 2000}}


def result(*content: Json) -> Json:
    return {"type": "tool_result", "tool_use_id": "toolu_1", "content": list(content)}


def messages(*turns: Json, model: str = "claude-sonnet-5", **more: Any) -> ParsedRequest:
    return read_request({"model": model, "max_tokens": 9, "messages": list(turns) or [HI]} | more, dialect="anthropic")


def chat(**more: Any) -> ParsedRequest:
    return read_request({"model": "gpt-5", "messages": [HI]} | more)


def responses(**more: Any) -> ParsedRequest:
    return read_request({"model": "gpt-5-codex", "input": "hi"} | more, dialect="openai_responses")


def function(name: str) -> Json:
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {}}}}


CASES: Final[dict[str, tuple[ParsedRequest, RouteName | None]]] = {
    "nothing special": (messages(), None),
    "an image": (messages(IMAGE), "image"),
    "an image in a tool result": (messages(HI, CALL, {"role": "user", "content": [result(PNG)]}), "image"),
    "an image, and tools since": (messages(IMAGE, CALL, {"role": "user", "content": [result()]}), "image"),
    "an image, tools since, and a reminder after the results": (
        messages(IMAGE, CALL, {"role": "user", "content": [result(), {"type": "text", "text": "Remember."}]}),
        "image",
    ),
    "an image in an earlier turn": (messages(IMAGE, HELLO, HI), None),
    "a document": (
        messages({"role": "user", "content": [{"type": "document", "source": {"type": "text", "data": "x"}}]}),
        None,
    ),
    "a web search in Messages": (messages(tools=[SEARCH]), "web_search"),
    "a web search in Responses": (responses(tools=[{"type": "web_search"}]), "web_search"),
    "an older web search in Responses": (responses(tools=[{"type": "web_search_preview"}]), "web_search"),
    "the web search of Kimi": (
        chat(tools=[{"type": "builtin_function", "function": {"name": "$web_search"}}]),
        "web_search",
    ),
    "a function called web_search": (chat(tools=[function("web_search")]), None),
    "another tool that the host runs": (messages(tools=[{"type": "web_fetch_20250910", "name": "web_fetch"}]), None),
    "a small model": (messages(model="claude-haiku-4-5"), "background"),
    "a small model in capitals": (messages(model="Claude-3-5-HAIKU"), "background"),
    "a small model that thinks": (messages(model="claude-haiku-4-5", **THINK), "background"),
    "thinking": (messages(**THINK), "think"),
    "adaptive thinking": (messages(thinking={"type": "adaptive"}), "think"),
    "thinking disabled": (messages(thinking={"type": "disabled"}), None),
    "an effort in Messages, which is not about thinking": (messages(output_config={"effort": "high"}), None),
    "an effort in Chat": (chat(reasoning_effort="low"), "think"),
    "no effort in Chat": (chat(reasoning_effort="none"), None),
    "an effort in Responses": (responses(reasoning={"effort": "medium"}), "think"),
    "no effort in Responses": (responses(reasoning={"effort": "none"}), None),
    "only a summary in Responses": (responses(reasoning={"summary": "auto"}), None),
}


@pytest.mark.parametrize(("parsed", "route"), CASES.values(), ids=CASES.keys())
def test_the_request_decides(parsed: ParsedRequest, route: RouteName | None) -> None:
    assert choose_route(parsed, 100, Routes(), ROUTE_NAMES) == route
    if route is not None:
        assert choose_route(parsed, 100, Routes(), set(ROUTE_NAMES) - {route}) != route, "only if it can be used"


def test_more_tokens_than_the_limit_are_a_long_context() -> None:
    routes = Routes(long_context_tokens=500)
    assert choose_route(messages(), 500, routes, ROUTE_NAMES) is None
    assert choose_route(messages(), 501, routes, ROUTE_NAMES) == "long_context"
    assert choose_route(messages(), 1, routes, ROUTE_NAMES, was_long=True) == "long_context", "it stays"
    assert choose_route(messages(), 60_000, Routes(), ROUTE_NAMES) is None
    assert choose_route(messages(), 60_001, Routes(), ROUTE_NAMES) == "long_context"


def test_small_models_can_be_listed() -> None:
    routes = Routes(background_models=("gpt-*-Mini", "claude-instant"))
    for name, route in {
        "gpt-5-mini": "background",
        "CLAUDE-INSTANT": "background",
        "claude-haiku-4-5": None,
        "gpt-5": None,
    }.items():
        assert choose_route(messages(model=name), 1, routes, ROUTE_NAMES) == route, name


def test_routes_have_an_order_of_precedence() -> None:
    everything = messages(IMAGE, model="claude-haiku-4-5", tools=[SEARCH], **THINK)
    usable, order = list(ROUTE_NAMES), []
    while (route := choose_route(everything, 60_001, Routes(), usable)) is not None:
        order.append(route)
        usable.remove(route)
    assert order == ["image", "web_search", "long_context", "background", "think"]


# --- names ----------------------------------------------------------------------------------------------------------


def provider(name: str, *models: str, **more: Any) -> ProviderConfig:
    return ProviderConfig(name=name, api_base_url=f"https://{name}.test/v1", models=models, **more)


CONFIG: Final = Config(
    providers=(provider("moonshot", "kimi-k3", "kimi-k2.6", "kimi-k2-0905-preview"), provider("openrouter")),
    aliases={
        "claude-*": ("moonshot/kimi-k3",),
        "gpt-*": ("moonshot/kimi-k3", "openrouter/moonshotai/kimi-k3"),
        "any-*": ("openrouter/*",),
        "fast": ("kimi-k2.6",),
    },
    routes=Routes(
        background=("kimi-k2.6",),
        think=("openrouter/moonshotai/kimi-k3", "moonshot/kimi-k3"),
        image=("kimi-k2-0905-preview", "kimi-k2.6"),
    ),
)
ROUTER: Final = Router(CONFIG)


def usable(name: str, *allowed: str, router: Router = ROUTER) -> dict[RouteName, list[str]] | None:
    routes = router.resolve(name, allowed=allowed).routes
    if routes is None:
        return None
    return {route: [f"{one.provider.name}|{one.model}" for one in targets] for route, targets in routes.items()}


@pytest.mark.parametrize("name", ["claude-sonnet-5", "CLAUDE-OPUS-5", "gpt-5"])
def test_a_name_that_matches_a_pattern_can_be_routed(name: str) -> None:
    assert usable(name) == {
        "image": ["moonshot|kimi-k2.6"],
        "background": ["moonshot|kimi-k2.6"],
        "think": ["openrouter|moonshotai/kimi-k3", "moonshot|kimi-k3"],
    }, "a model that does not accept images is skipped"


@pytest.mark.parametrize(
    "name", ["kimi-k3", "KIMI-K3", "moonshot/kimi-k3", "moonshot,kimi-k3", "fast", "claude-kimi-k3", "any-model"]
)
def test_a_model_that_the_client_chose_is_never_routed(name: str) -> None:
    assert usable(name) is None


def test_without_routes_nothing_is_routed() -> None:
    assert usable("claude-sonnet-5", router=Router(Config(providers=CONFIG.providers, aliases=CONFIG.aliases))) is None


def test_a_route_to_a_model_that_is_gone_is_skipped() -> None:
    config = Config(
        providers=CONFIG.providers,
        aliases=CONFIG.aliases,
        routes=Routes(think=("gone/away",), background=("gone/away", "kimi-k2.6")),
    )
    assert usable("claude-x", router=Router(config)) == {"background": ["moonshot|kimi-k2.6"]}


class TestKeysThatMayNotUseEveryModel:
    def test_a_granted_name_grants_no_model_of_a_route(self) -> None:
        assert usable("claude-sonnet-5", "claude-*") == {"think": ["moonshot|kimi-k3"]}, "what the name leads to anyway"

    def test_models_of_a_route_are_granted_by_their_names(self) -> None:
        assert usable("claude-sonnet-5", "claude-*", "kimi-k2.6") == {
            "image": ["moonshot|kimi-k2.6"],
            "background": ["moonshot|kimi-k2.6"],
            "think": ["moonshot|kimi-k3"],
        }
        assert usable("claude-sonnet-5", "claude-*", "openrouter/*") == {
            "think": ["openrouter|moonshotai/kimi-k3", "moonshot|kimi-k3"]
        }

    def test_a_key_without_any_of_them_is_not_routed(self) -> None:
        config = Config(providers=CONFIG.providers, aliases=CONFIG.aliases, routes=Routes(background=("kimi-k2.6",)))
        assert usable("claude-haiku-4-5", "kimi-k3", router=Router(config)) == {}


def test_whether_a_model_sees_images_is_what_its_profile_says() -> None:
    blind = provider("a", "kimi-k2-0905-preview")
    assert not sees_images(Target(blind, "kimi-k2-0905-preview"))
    assert sees_images(Target(blind, "kimi-k3"))
    told = provider("a", model_overrides={"kimi-k2-0905-preview": {"media": ["image"]}})
    assert sees_images(Target(told, "kimi-k2-0905-preview"))


# --- the record of a conversation -----------------------------------------------------------------------------------

ONE, TWO = Target(CONFIG.providers[0], "kimi-k3"), Target(CONFIG.providers[1], "moonshotai/kimi-k3")


def request_record() -> RequestRecord:
    return RequestRecord(request_id="r", path="/v1/messages", dialect="anthropic")


class Memory:
    """Records in a store that counts its writes."""

    def __init__(self) -> None:
        self.store = MemoryStore(1_000_000)
        self.written: list[tuple[str, bytes]] = []
        put = self.store.put

        async def counted(key: str, value: bytes, ttl: float | None) -> None:
            self.written.append((key, value))
            await put(key, value, ttl)

        self.store.put = counted  # type: ignore[method-assign]
        self.memory = RouteMemory(self.store, 600.0)

    def recall(self, *turns: Json, tenant: str = "local", model: str = "claude-sonnet-5") -> ConversationRoute:
        return asyncio.run(self.memory.recall(tenant, messages(*turns, model=model), request_record()))

    def exchange(
        self, *turns: Json, target: Target = ONE, is_long: bool = False, now: float = 1000.0, **who: str
    ) -> None:
        route = self.recall(*turns, **who)
        for _ in range(2):  # written once
            asyncio.run(self.memory.remember(route, target, request_record(), is_long=is_long, now=now))


def test_a_long_conversation_stays_long_from_its_first_request_on() -> None:
    memory = Memory()
    memory.exchange(HI, is_long=True)
    assert memory.recall(HI, HELLO, HI).was_long
    memory.exchange(HI, HELLO, HI)
    assert memory.recall(HI, HELLO, HI, HELLO, HI).was_long
    assert len(memory.written) == 2, "under the opening, then under the identity"


def test_a_conversation_that_begins_with_the_same_words_is_another_one() -> None:
    memory = Memory()
    memory.exchange(HI, is_long=True)
    memory.exchange(HI, HELLO, HI, is_long=True)
    other = {"role": "assistant", "content": "Good morning!"}
    assert not memory.recall(HI).was_long, "it begins"
    memory.exchange(HI)
    assert not memory.recall(HI, other, HI).was_long
    assert not memory.recall(HI, other, HI, other, HI).was_long
    assert memory.recall(HI, HELLO, HI, HELLO, HI).was_long


def test_a_title_that_a_small_model_writes_for_the_same_words_changes_nothing() -> None:
    memory = Memory()
    memory.exchange(HI, is_long=True)
    memory.exchange(HI, model="claude-haiku-4-5")
    assert memory.recall(HI, HELLO, HI).was_long


def test_another_model_in_the_same_conversation_finds_the_record() -> None:
    memory = Memory()
    memory.exchange(HI, HELLO, HI, is_long=True)
    assert memory.recall(HI, HELLO, HI, HELLO, HI, model="claude-opus-5").was_long


def test_tenants_do_not_share_records() -> None:
    memory = Memory()
    memory.exchange(HI, HELLO, HI, is_long=True)
    assert not memory.recall(HI, HELLO, HI, tenant="key:other").was_long


def test_the_host_that_answered_last_is_tried_first_for_an_hour() -> None:
    memory = Memory()
    memory.exchange(HI, HELLO, HI, target=TWO, now=1000.0)
    later = memory.recall(HI, HELLO, HI, HELLO, HI)
    assert later.order([ONE, TWO], 1001.0) == [TWO, ONE]
    assert later.order([ONE], 1001.0) == [ONE]
    assert later.order([ONE, TWO], 1001.0 + HOST_SECONDS) == [ONE, TWO]
    assert memory.recall(HI).order([ONE, TWO], 1001.0) == [ONE, TWO]


def test_an_unchanged_record_is_written_again_only_after_a_while() -> None:
    memory = Memory()
    turns = [HI, HELLO, HI]
    for now, writes in ((1000.0, 1), (1100.0, 1), (1299.0, 1), (1301.0, 2)):
        memory.exchange(*turns, now=now)
        assert len(memory.written) == writes, now
    memory.exchange(*turns, now=1302.0, target=TWO)
    memory.exchange(*turns, now=1303.0, target=TWO, is_long=True)
    assert len(memory.written) == 4


def test_no_text_and_no_name_is_stored() -> None:
    memory = Memory()
    secret = {"role": "user", "content": "a-very-secret-word"}
    memory.exchange(secret)
    memory.exchange(secret, HELLO, HI)
    for key, value in memory.written:
        assert len(key) < 80
        assert len(value) < 40
        for word in ("secret", "Hello", "kimi", "moonshot", "claude", "local"):
            assert word not in key
            assert word.encode() not in value


@pytest.mark.parametrize("value", [b"", b"\xff\x00", b"nonsense"])
def test_an_unreadable_record_is_skipped(value: bytes) -> None:
    memory = Memory()
    memory.exchange(HI, HELLO, HI, is_long=True)
    ((key, _),) = memory.written
    asyncio.run(memory.store.put(key, value, None))
    assert not memory.recall(HI, HELLO, HI).was_long


def test_a_store_that_fails_costs_the_record_only() -> None:
    class Failing(MemoryStore):
        async def get_many(self, keys: Any) -> Any:
            raise StoreUnavailable("gone")

        async def put(self, key: str, value: bytes, ttl: float | None) -> None:
            raise StoreUnavailable("gone")

    async def main() -> None:
        memory, record = RouteMemory(Failing(1000), 600.0), request_record()
        route = await memory.recall("local", messages(HI, HELLO, HI), record)
        assert not route.was_long
        assert route.order([ONE, TWO], 0.0) == [ONE, TWO]
        await memory.remember(route, ONE, record, is_long=True, now=0.0)
        assert record.store_failures == ["routes", "routes"]

    asyncio.run(main())
