"""A web search that the client declares: the gateway answers its calls in further rounds with the host."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import aiohttp
import pytest
from anthropic import APIStatusError

from moonshim.config import Config, ProviderConfig, Secret, WebSearch
from moonshim.gateway.inspector.views import detail_of
from moonshim.simulator import Simulator
from tests.support.gateway.hosts import HostRequest, Peer, whole
from tests.support.gateway.official_clients import Packages
from tests.support.gateway.running import running
from tests.support.gateway.stages import Stage, stage
from tests.support.gateway.strict_hosts import ROWS, PlannedResponse, Row, StrictKimi, Turn

SEARCH: Final[dict[str, Any]] = {"type": "web_search_20250305", "name": "web_search", "max_uses": 8}
REQUEST: Final[dict[str, Any]] = {
    "max_tokens": 1000,
    "messages": [{"role": "user", "content": "What is new?"}],
    "tools": [SEARCH],
}
QUERY: Final = "kimi k3 release"


def play(body: Any, row: Row, turns: list[Turn]) -> PlannedResponse:
    """Search once, then repeat what the search gave."""
    (tool,) = [tool["function"]["name"] if "function" in tool else tool["name"] for tool in body["tools"]]
    assert tool == "web_search"
    if not turns:
        return PlannedResponse("I should search.", "Let me look.", [(tool, json.dumps({"query": QUERY}))])
    (_, given) = turns[-1].results[0]
    return PlannedResponse("Now I know.", f"Found: {given}")


@pytest.fixture(scope="module")
def scene() -> Iterator[Stage]:
    with stage(StrictKimi(play), lambda host: Config(providers=host.providers())) as one:
        yield one


PAGE: Final = "https://docs.example/k3"
FOUND: Final = [
    {"url": PAGE, "title": "Kimi K3", "content": "K3 is out since July.", "publishedDate": "2026-07-20"},
    {"url": "https://sub.blog.example/a", "title": "A blog", "content": "Opinions."},
]


class SearchingKimi(StrictKimi):
    """The hosts, and beside them a SearXNG."""

    def __init__(self, plays: Any) -> None:
        super().__init__(plays)
        self.queries: list[str] = []

    async def _answer(self, peer: Peer, asked: HostRequest) -> None:
        if not asked.path.startswith("/searxng/"):
            await super()._answer(peer, asked)
            return
        self.queries.append(parse_qs(urlsplit(asked.path).query)["q"][0])
        await peer.send(whole(json.dumps({"results": FOUND}).encode()))


def cite(body: Any, row: Row, turns: list[Turn]) -> PlannedResponse:
    """Search once, then answer with a link to the first result and one to a page that was not found."""
    names = [tool["function"]["name"] if "function" in tool else tool["name"] for tool in body["tools"]]
    last = turns[-1] if turns else None
    if last is None or not last.results:
        return PlannedResponse("I should search.", "Let me look. ", [(names[-1], json.dumps({"query": QUERY}))])
    text = f"It is out ([source]({PAGE})), says {PAGE}. Not https://invented.example/."
    return PlannedResponse("Now I know.", text)


@pytest.fixture(scope="module")
def searching() -> Iterator[Stage]:
    def config(host: SearchingKimi) -> Config:
        search = WebSearch(provider="searxng", base_url=f"{host.url}/searxng")
        return Config(providers=host.providers(), web_search=search)

    with stage(SearchingKimi(cite), config) as one:
        yield one


async def ask(scene: Stage, model: str, *, stream: bool, **given: Any) -> Any:
    request = {**REQUEST, "model": model, **given}
    if not stream:
        return await scene.packages.anthropic.messages.create(**request)
    async with scene.packages.anthropic.messages.stream(**request) as streamed:
        async for _ in streamed:
            pass
        return await streamed.get_final_message()


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("row", sorted(set(ROWS) - {"moonshot"}))
def test_without_a_provider_client_and_model_learn_that_search_is_unavailable(
    scene: Stage, row: str, stream: bool
) -> None:
    answer = scene.run(ask(scene, f"{row}/{ROWS[row].model}", stream=stream))
    assert scene.host.refused == []
    kinds = [block.type for block in answer.content]
    assert kinds == ["thinking", "text", "server_tool_use", "web_search_tool_result", "thinking", "text"]
    _, text, search, result, _, last = answer.content
    assert text.text == "Let me look."
    assert (search.name, search.input) == ("web_search", {"query": QUERY})
    assert result.tool_use_id == search.id
    assert result.content.error_code == "unavailable"
    assert "Web search is not available" in last.text
    assert answer.stop_reason == "end_turn"
    # The second request to the host repeats the first, with the call and its result after it.
    first, second = scene.host.bodies[-2:]
    assert second["messages"][: len(first["messages"])] == first["messages"]


@pytest.fixture
def plays(scene: Stage) -> Iterator[Any]:
    """Another script for one test."""

    def play_instead(script: Any) -> None:
        scene.host.plays = script

    yield play_instead
    scene.host.plays, scene.host.down = play, set()


LOOK: Final[dict[str, Any]] = {"name": "look", "description": "Look.", "input_schema": {"type": "object"}}


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_a_call_of_the_clients_own_tool_beside_a_search_ends_the_response(
    scene: Stage, plays: Any, stream: bool
) -> None:
    plays(lambda *_: PlannedResponse("Hm.", "", [("look", "{}"), ("web_search", json.dumps({"query": QUERY}))]))
    before = len(scene.host.bodies)
    answer = scene.run(ask(scene, "vllm/kimi-k2.5", stream=stream, tools=[LOOK, SEARCH]))
    assert [block.type for block in answer.content] == [
        *("thinking", "tool_use", "server_tool_use", "web_search_tool_result")
    ]
    assert answer.stop_reason == "tool_use"
    assert len(scene.host.bodies) == before + 1


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_a_model_that_never_stops_searching_is_stopped(scene: Stage, plays: Any, stream: bool) -> None:
    plays(lambda *_: PlannedResponse("Again.", "", [("web_search", json.dumps({"query": QUERY}))]))
    before = len(scene.host.bodies)
    answer = scene.run(ask(scene, "vllm/kimi-k2.5", stream=stream))
    assert len(scene.host.bodies) == before + 10
    assert sum(block.type == "server_tool_use" for block in answer.content) == 10
    assert answer.stop_reason == "end_turn"


def test_a_host_that_fails_in_a_later_round_ends_the_stream_with_an_error(scene: Stage, plays: Any) -> None:
    def fail_later(body: Any, row: Row, turns: list[Turn]) -> PlannedResponse:
        scene.host.down = {"vllm"}
        return play(body, row, turns)

    plays(fail_later)
    with pytest.raises(APIStatusError, match="down"):
        scene.run(ask(scene, "vllm/kimi-k2.5", stream=True))


def test_a_failure_in_a_later_round_is_tried_again_before_anything_was_sent(scene: Stage, plays: Any) -> None:
    rounds: list[int] = []

    def fail_once(body: Any, row: Row, turns: list[Turn]) -> PlannedResponse:
        rounds.append(len(turns))
        scene.host.down = {"kimi-coding"} if len(rounds) == 1 else set()
        return play(body, row, turns)

    plays(fail_once)
    config = Config(providers=scene.host.providers(), aliases={"any": ("kimi-coding/k3", "vllm/kimi-k2.5")})

    async def test() -> Any:
        async with running(config) as gateway:
            packages = Packages(gateway.url)
            try:
                return await packages.anthropic.messages.create(**{**REQUEST, "model": "any"})
            finally:
                await packages.close()

    answer = scene.run(test())
    assert answer.content[-1].text.startswith("Found:")
    assert rounds == [0, 0, 1]  # the second host starts over


# --- with a provider --------------------------------------------------------------------------------------------

LINKS: Final = [PAGE, PAGE]


def links_in(text: str, spans: list[tuple[int, int]]) -> list[str]:
    return [text[start:end] for start, end in spans]


def check_rounds(scene: Stage) -> None:
    """The host has accepted everything, and its second request repeats the first."""
    assert scene.host.refused == []
    first, second = scene.host.bodies[-2:]
    assert second["messages"][: len(first["messages"])] == first["messages"]
    assert "K3 is out since July." in json.dumps(second["messages"][-1])
    assert scene.host.queries[-1].startswith(QUERY)


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("row", sorted(ROWS))
def test_messages_clients_get_results_and_citations(searching: Stage, row: str, stream: bool) -> None:
    answer = searching.run(ask(searching, f"{row}/{ROWS[row].model}", stream=stream))
    check_rounds(searching)
    _, _, search, result, _, text = answer.content
    assert (search.type, search.input) == ("server_tool_use", {"query": QUERY})
    assert [(one.url, one.title, one.page_age) for one in result.content] == [
        (PAGE, "Kimi K3", "2026-07-20"),
        ("https://sub.blog.example/a", "A blog", None),
    ]
    assert [one.url for one in text.citations] == LINKS
    assert text.citations[0].cited_text == "K3 is out since July."
    assert answer.usage.server_tool_use.web_search_requests == 1
    assert answer.stop_reason == "end_turn"


@pytest.mark.parametrize("row", sorted(ROWS))
def test_the_next_turn_sends_the_host_what_the_rounds_sent(searching: Stage, row: str) -> None:
    model = f"{row}/{ROWS[row].model}"
    answer = searching.run(ask(searching, model, stream=False))
    rounds = searching.host.bodies[-1]["messages"]
    history = [
        *REQUEST["messages"],
        {"role": "assistant", "content": [block.model_dump(exclude_none=True) for block in answer.content]},
        {"role": "user", "content": "And K2?"},
    ]
    searching.run(ask(searching, model, stream=False, messages=history))
    assert searching.host.refused == []
    assert searching.host.bodies[-2]["messages"][: len(rounds)] == rounds


def test_domain_lists_are_sent_and_enforced(searching: Stage) -> None:
    tools = [{**SEARCH, "blocked_domains": ["docs.example"]}]
    answer = searching.run(ask(searching, "vllm/kimi-k2.5", stream=False, tools=tools))
    assert searching.host.queries[-1] == f"{QUERY} -site:docs.example"
    assert [one.url for one in answer.content[3].content] == ["https://sub.blog.example/a"]
    assert answer.content[-1].citations is None  # the page was not among the results
    tools = [{**SEARCH, "allowed_domains": ["blog.example"]}]
    answer = searching.run(ask(searching, "vllm/kimi-k2.5", stream=False, tools=tools))
    assert [one.url for one in answer.content[3].content] == ["https://sub.blog.example/a"]


def test_more_searches_than_allowed_are_not_run(searching: Stage) -> None:
    tools = [{**SEARCH, "max_uses": 0}]
    before = len(searching.host.queries)
    answer = searching.run(ask(searching, "vllm/kimi-k2.5", stream=True, tools=tools))
    assert answer.content[3].content.error_code == "max_uses_exceeded"
    assert len(searching.host.queries) == before


async def respond(scene: Stage, model: str, *, stream: bool, **given: Any) -> Any:
    request = {"model": model, "input": "What is new?", "tools": [{"type": "web_search"}], "store": False, **given}
    if not stream:
        return await scene.packages.openai.responses.create(**request)
    async with scene.packages.openai.responses.stream(**request) as streamed:
        kinds = [event.type async for event in streamed]
        assert [kind for kind in kinds if "web_search_call" in kind] == [
            *(f"response.web_search_call.{word}" for word in ("in_progress", "searching", "completed"))
        ]
        return await streamed.get_final_response()


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("row", sorted(ROWS))
def test_responses_clients_get_a_search_item_and_annotations(searching: Stage, row: str, stream: bool) -> None:
    model, include = f"{row}/{ROWS[row].model}", ["web_search_call.action.sources"]
    answer = searching.run(respond(searching, model, stream=stream, include=include))
    check_rounds(searching)
    kinds = [item.type for item in answer.output]
    assert kinds == ["reasoning", "message", "web_search_call", "reasoning", "reasoning", "message"]
    search, message = answer.output[2], answer.output[-1]
    assert (search.status, search.action.type, search.action.query) == ("completed", "search", QUERY)
    assert [source.url for source in search.action.sources] == [PAGE, "https://sub.blog.example/a"]
    (part,) = message.content
    spans = [(one.start_index, one.end_index) for one in part.annotations]
    assert [one.url for one in part.annotations] == LINKS
    assert links_in(part.text, spans) == [f"[source]({PAGE})", PAGE]
    # The next turn: the items come back as they were.
    rounds = searching.host.bodies[-1]["messages"]
    items = [item.model_dump(exclude_none=True) for item in answer.output]
    question = {"role": "user", "content": "What is new?"}
    history = [question, *items, {"role": "user", "content": "And K2?"}]
    searching.run(respond(searching, model, stream=False, input=history))
    assert searching.host.refused == []
    assert searching.host.bodies[-2]["messages"][: len(rounds)] == rounds


@pytest.mark.parametrize("choice", ["auto", "required"])
def test_a_client_that_forbids_access_to_the_web_gets_no_search(searching: Stage, choice: str) -> None:
    """Codex, unless its search is `live`."""
    look = {"type": "function", "name": "look", "parameters": {"type": "object"}}
    tools = [{"type": "web_search", "external_web_access": False}, look]
    before = len(searching.host.queries)
    request: Any = {"model": "vllm/kimi-k2.5", "input": "What is new?", "tools": tools, "tool_choice": choice}
    answer = searching.run(searching.packages.openai.responses.create(**request, store=False))
    declared = searching.host.bodies[-1]["tools"]
    assert [tool["function"]["name"] for tool in declared] == ["look"]
    assert "web_search_call" not in [item.type for item in answer.output]
    assert len(searching.host.queries) == before


@pytest.mark.parametrize("row", sorted(ROWS))
def test_chat_clients_get_annotations(searching: Stage, row: str) -> None:
    async def whole_answer() -> Any:
        return await searching.packages.openai.chat.completions.create(**request)

    async def streamed_answer() -> Any:
        async with searching.packages.openai.chat.completions.stream(**request) as streamed:
            async for _ in streamed:
                pass
            return await streamed.get_final_completion()

    request: Any = {
        "model": f"{row}/{ROWS[row].model}",
        "messages": [{"role": "user", "content": "What is new?"}],
        "web_search_options": {},
    }
    for answer in (searching.run(whole_answer()), searching.run(streamed_answer())):
        check_rounds(searching)
        (choice,) = answer.choices
        message = choice.message
        cited = [
            one["url_citation"] if isinstance(one, dict) else one.url_citation.model_dump()
            for one in message.annotations
        ]
        assert [one["url"] for one in cited] == LINKS
        spans = [(one["start_index"], one["end_index"]) for one in cited]
        assert links_in(message.content, spans) == [f"[source]({PAGE})", PAGE]
        assert (choice.finish_reason, message.tool_calls) == ("stop", None)


def test_the_simulator_searches_and_answers_with_what_was_found(searching: Stage) -> None:
    """So that real clients can be run without a model."""

    async def test() -> Any:
        async with Simulator(scenario="web-search") as kimi:
            provider = ProviderConfig(
                name="kimi", api_base_url=f"{kimi.url}/v1", keys=(Secret("k"),), models=("kimi-k3",)
            )
            search = WebSearch(provider="searxng", base_url=f"{searching.host.url}/searxng")
            async with running(Config(providers=(provider,), web_search=search)) as gateway:
                packages = Packages(gateway.url)
                try:
                    return await packages.anthropic.messages.create(**{**REQUEST, "model": "kimi-k3"})
                finally:
                    await packages.close()

    answer = searching.run(test())
    assert "K3 is out since July." in answer.content[-1].text
    assert [one.url for one in answer.content[-1].citations] == [PAGE, "https://sub.blog.example/a"]


def test_the_inspector_shows_each_round(searching: Stage) -> None:
    searching.run(ask(searching, "vllm/kimi-k2.5", stream=True))
    inspector = searching.gateway.state.inspector
    assert inspector is not None
    trace = list(inspector.tracer)[-1]
    assert len(trace.attempts) == 2
    assert json.dumps(detail_of(trace), default=str)


def test_searches_are_booked_and_counted(searching: Stage) -> None:
    searching.run(ask(searching, "vllm/kimi-k2.5", stream=True))

    async def metrics() -> str:
        async with aiohttp.ClientSession() as session, session.get(f"{searching.gateway.url}/metrics") as response:
            return await response.text()

    assert 'moonshim_searches_total{outcome="ok",provider="searxng"}' in searching.run(metrics())


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_the_hosts_own_search_is_played_with_the_host(scene: Stage, plays: Any, stream: bool) -> None:
    given = {"search_result": {"search_id": "s-1"}}

    def host_search(body: Any, row: Row, turns: list[Turn]) -> PlannedResponse:
        assert body["tools"] == [{"type": "builtin_function", "function": {"name": "$web_search"}}]
        if not turns:
            return PlannedResponse("Searching.", "", [("$web_search", json.dumps(given))])
        (_, echoed) = turns[-1].results[0]
        return PlannedResponse("", f"Echo: {echoed}")

    plays(host_search)
    answer = scene.run(ask(scene, "moonshot/kimi-k2.5", stream=stream))
    search, result, text = (block for block in answer.content if block.type != "thinking")
    assert (search.name, search.input) == ("web_search", given)
    assert result.content == []  # the host returns no list, and none is invented
    assert json.loads(text.text.removeprefix("Echo: ")) == given
