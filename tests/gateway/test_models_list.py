"""`GET /v1/models`: what clients can ask for, in the shapes of OpenAI and Anthropic, with the official packages."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any, Final

import anthropic
import msgspec
import openai
import pytest

from moonshim.config import Config, GatewayKey, ProviderConfig, Routes, WebSearch
from moonshim.config.model import digest_of
from tests.support.gateway.hosts import Host, run, whole
from tests.support.gateway.raw_client import ask, body_of, sending, text_answer
from tests.support.gateway.running import running

NONE: Final[Mapping[str, str]] = {}
CLAUDE: Final = {"anthropic-version": "2023-06-01"}
MODELS: Final = ("kimi-k3", "kimi-k2.6", "kimi-k3.1-pro")


def config(
    url: str = "https://api.moonshot.ai", *, pattern: str = "claude-*", keys: tuple[GatewayKey, ...] = ()
) -> Config:
    provider = ProviderConfig(name="moonshot", api_base_url=f"{url}/v1", models=MODELS, host="moonshot")
    return Config(providers=(provider,), aliases={pattern: ("kimi-k3",), "fast": ("kimi-k2.6",)}, keys=keys)


def get(port: int, path: str, headers: Mapping[str, str]) -> tuple[int, Any]:
    url = f"http://127.0.0.1:{port}{path}"
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=dict(headers)), timeout=30) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def listed(
    path: str = "/v1/models", settings: Config | None = None, headers: Mapping[str, str] = NONE
) -> tuple[int, Any]:
    async def test() -> tuple[int, Any]:
        async with running(settings or config()) as gateway:
            return await asyncio.to_thread(get, gateway.port, path, headers)

    found: tuple[int, Any] = run(test())
    return found


def names(body: Any) -> list[str]:
    return [entry["id"] for entry in body["data"]]


def test_other_clients_see_each_model_once() -> None:
    status, body = listed()
    assert (status, names(body)) == (200, ["fast", *MODELS])
    assert body["has_more"] is False


def test_the_output_limit_never_exceeds_the_context_window() -> None:
    provider = ProviderConfig(
        name="demo", api_base_url="http://127.0.0.1:1/v1", models=("kimi-k2-0711-preview",), host="moonshot"
    )
    entry = listed(settings=Config(providers=(provider,)))[1]["data"][0]
    assert entry["context_window"] == 131_072
    assert entry["max_output_tokens"] == entry["max_tokens"] == 131_072


def test_claude_code_sees_names_that_its_picker_accepts() -> None:
    status, body = listed("/v1/models?limit=1000", headers=CLAUDE)
    assert status == 200
    picked = [entry for entry in body["data"] if "claude" in entry["id"]]
    assert [entry["id"] for entry in picked] == ["claude-fast", *(f"claude-{model}" for model in MODELS)]
    assert [entry["display_name"] for entry in picked] == ["fast", *MODELS]
    assert picked[1]["max_input_tokens"] == 1_048_576


def test_without_a_pattern_for_claude_no_such_name_is_promised() -> None:
    _, body = listed("/v1/models", config(pattern="gpt-*"), headers=CLAUDE)
    assert [name for name in names(body) if "claude" in name] == []


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("claude-kimi-k2.6", "kimi-k2.6"),
        ("claude-fast", "kimi-k2.6"),
        ("claude-kimi-k3.1-pro", "kimi-k3.1-pro"),
        ("claude-sonnet-5", "kimi-k3"),
        ("claude-kimi-k9", "kimi-k3"),
    ],
)
def test_a_name_of_the_picker_leads_to_its_model(name: str, model: str) -> None:
    async def test() -> None:
        async with Host(sending(text_answer("openai_chat", "hi"))) as host, running(config(host.url)) as gateway:
            reply = await ask(gateway.port, "anthropic", body_of("anthropic", model=name))
            assert reply.status == 200
            assert json.loads(host.requests[-1].body)["model"] == model

    run(test())


def test_pages_follow_one_another() -> None:
    seen: list[str] = []
    path = "/v1/models?limit=3"
    for _ in range(9):
        _, body = listed(path, headers=CLAUDE)
        seen += names(body)
        if not body["has_more"]:
            break
        path = f"/v1/models?limit=3&after_id={body['last_id']}"
    assert seen == names(listed("/v1/models", headers=CLAUDE)[1])


@pytest.mark.parametrize("query", ["limit=0", "limit=1001", "limit=x", "limit=-1", "limit=%C2%B2", "after_id=none"])
def test_a_page_that_cannot_be_is_refused_by_its_field(query: str) -> None:
    status, body = listed(f"/v1/models?{query}")
    assert status == 400
    assert body["error"]["param"] == query.partition("=")[0]


def test_a_key_sees_only_the_models_that_it_may_use() -> None:
    key = GatewayKey(name="one", digest=digest_of("msk_1"), models=("kimi-k3",))
    _, body = listed("/v1/models", config(keys=(key,)), headers={"authorization": "Bearer msk_1", **CLAUDE})
    assert names(body) == ["kimi-k3", "claude-kimi-k3"]


def test_an_alias_names_the_model_behind_it() -> None:
    assert listed("/v1/models/claude-default")[1]["root"] == "kimi-k3"


def test_a_name_that_is_routed_has_the_window_of_the_long_context() -> None:
    routes = Routes(think=("kimi-k2.6",), long_context=("kimi-k3",))
    settings = msgspec.structs.replace(config(), aliases={"claude-*": ("kimi-k2.6",)}, routes=routes)
    entry = listed("/v1/models/claude-sonnet-5", settings)[1]
    assert (entry["root"], entry["routes"]) == ("kimi-k2.6", ["long_context", "think"])
    assert entry["context_window"] == entry["max_input_tokens"] == 1_048_576
    entry = listed("/v1/models/kimi-k2.6", settings)[1]
    assert "routes" not in entry
    assert entry["context_window"] == 262_144


def test_the_official_packages_read_the_list() -> None:
    async def test() -> None:
        async with running(config()) as gateway:
            url = f"http://127.0.0.1:{gateway.port}"

            def read() -> tuple[list[str], list[str]]:
                with openai.OpenAI(base_url=f"{url}/v1", api_key="none") as client:
                    first = [model.id for model in client.models.list()]
                with anthropic.Anthropic(base_url=url, api_key="none") as other:
                    second = [model.display_name for model in other.models.list(limit=2)]
                return first, second

            first, second = await asyncio.to_thread(read)
            assert first == ["fast", *MODELS]
            assert second == ["fast", *MODELS] * 2

    run(test())


def test_windows_come_from_the_host_where_it_reports_them_and_no_request_waits_for_it() -> None:
    """The host answers only after the first list was sent: that list has the windows of the profile."""

    async def test() -> None:
        entries = [{"id": "kimi-k3", "context_length": 555_000}, {"id": "kimi-k2.6", "context_length": "many"}]

        async def script(peer: Any, request: Any) -> None:
            await host.resumed.wait()
            body = json.dumps({"data": entries}).encode()
            await peer.send(whole(body, headers=("content-type: application/json",)))

        async with Host(script) as host, running(config(host.url)) as gateway:

            async def windows() -> dict[str, int]:
                _, body = await asyncio.to_thread(get, gateway.port, "/v1/models", NONE)
                return {entry["id"]: entry["context_window"] for entry in body["data"]}

            assert (await windows())["kimi-k3"] == 1_048_576
            host.resumed.set()
            while (await windows())["kimi-k3"] != 555_000:
                await asyncio.sleep(0.01)
            assert (await windows())["kimi-k2.6"] == 262_144
            assert [request.path for request in host.requests] == ["/v1/models"]

    run(test())


# -- capabilities -----------------------------------------------------------------------------------------------------


def entry_of(model: str, *, host: str = "moonshot", dialect: str = "openai_chat", **overrides: Any) -> Any:
    """The entry of a model whose host cannot be asked."""
    provider = ProviderConfig(
        name="demo",
        api_base_url="http://127.0.0.1:1/v1",
        models=(model,),
        host=host,
        dialect=dialect,  # type: ignore[arg-type]  # a parameter of the tests below
        overrides=overrides,
    )
    return listed(f"/v1/models/{model}", settings=Config(providers=(provider,)))[1]


@pytest.mark.parametrize(
    ("model", "host", "modalities", "reasoning", "thinking_type", "efforts"),
    [
        ("kimi-k3", "moonshot", ["text", "image", "video"], True, "only", ["low", "high", "max"]),
        ("kimi-k2.7-code", "moonshot", ["text", "image", "video"], True, "only", None),
        ("kimi-k2.6", "moonshot", ["text", "image", "video"], True, "both", None),
        ("kimi-k2.6", "vllm", ["text", "image"], True, "both", None),
        ("kimi-k2-thinking", "moonshot", ["text"], True, "only", None),
        ("kimi-k2-0905-preview", "moonshot", ["text"], False, "no", None),
    ],
)
def test_chat_clients_read_capabilities_under_moonshot_s_names(
    model: str, host: str, modalities: list[str], reasoning: bool, thinking_type: str, efforts: list[str] | None
) -> None:
    entry = entry_of(model, host=host)
    assert entry["architecture"] == {"input_modalities": modalities, "output_modalities": ["text"]}
    assert entry["supports_image_in"] is ("image" in modalities)
    assert entry["supports_video_in"] is ("video" in modalities)
    assert (entry["supports_reasoning"], entry["supports_thinking_type"]) == (reasoning, thinking_type)
    assert entry["supports_tool_use"] is True
    assert entry.get("think_efforts", {}).get("valid_efforts") == efforts


def test_nothing_is_claimed_about_a_model_that_is_not_known() -> None:
    entry = entry_of("some-model", host="generic")
    assert not [name for name in entry if name.startswith("supports_") or name in ("capabilities", "architecture")]


def test_configured_fields_count_as_known() -> None:
    entry = entry_of("some-model", host="generic", media=["image"], thinking="reasoning_effort")
    assert (entry["supports_image_in"], entry["supports_video_in"], entry["supports_reasoning"]) == (True, False, True)


def test_anthropic_s_package_reads_the_capabilities() -> None:
    async def test() -> None:
        async with running(config()) as gateway:

            def read() -> list[anthropic.types.ModelInfo]:
                with anthropic.Anthropic(base_url=f"http://127.0.0.1:{gateway.port}", api_key="none") as client:
                    return [client.models.retrieve(name) for name in ("claude-sonnet-5", "claude-kimi-k2.6")]

            k3, k26 = await asyncio.to_thread(read)
            assert (k3.max_input_tokens, k3.max_tokens) == (1_048_576, 1_048_576)
            assert k3.capabilities is not None
            assert k26.capabilities is not None
            # Strictly: a missing or misspelt field would be an error here, and only None in the client.
            for found in (k3.capabilities, k26.capabilities):
                type(found).model_validate(found.model_dump())
            effort, thinking = k3.capabilities.effort, k3.capabilities.thinking
            assert (effort.supported, effort.low.supported, effort.max.supported) == (True, True, True)
            assert (thinking.types.adaptive.supported, thinking.types.disabled.supported) == (True, False)
            assert k3.capabilities.image_input.supported
            assert k3.capabilities.pdf_input.supported  # the gateway reads them
            assert not k26.capabilities.effort.supported
            assert k26.capabilities.thinking.types.disabled.supported

    run(test())


@pytest.mark.parametrize(("host", "dialect"), [("moonshot", "openai_chat"), ("moonshot-anthropic", "anthropic")])
def test_structured_outputs_are_claimed_in_every_dialect(host: str, dialect: str) -> None:
    assert entry_of("kimi-k3", host=host, dialect=dialect)["capabilities"]["structured_outputs"] == {"supported": True}


def test_web_search_is_claimed_where_somebody_runs_it() -> None:
    provider = ProviderConfig(name="demo", api_base_url="http://127.0.0.1:1/v1", models=("kimi-k3",), host="vllm")
    ours = Config(providers=(provider,), web_search=WebSearch(provider="command", command=("search",)))
    entries = {
        "the gateway": listed("/v1/models/kimi-k3", settings=ours)[1],
        "the host": entry_of("kimi-k3"),
        "nobody": entry_of("kimi-k3", host="vllm"),
    }
    claimed = {who: entry["capabilities"]["server_tools"]["web_search"] for who, entry in entries.items()}
    assert claimed == {
        "the gateway": {"supported": True},
        "the host": {"supported": True},
        "nobody": {"supported": False},
    }


def test_capabilities_come_from_the_host_where_it_reports_them() -> None:
    """In Moonshot's words and in OpenRouter's. What the gateway would not send to this host is still not claimed."""

    async def test() -> None:
        entries: list[dict[str, Any]] = [
            {"id": "kimi-k3", "supports_image_in": False, "supports_video_in": True, "supports_reasoning": True},
            {"id": "kimi-k2-0905", "supports_image_in": True},
            {
                "id": "some-model",
                "context_length": 1000,
                "architecture": {"input_modalities": ["text", "image"]},
                "supported_parameters": ["tools", "reasoning"],
            },
            {"id": "odd", "supports_image_in": "yes", "architecture": [], "supported_parameters": {}},
        ]
        provider = ProviderConfig(
            name="one", api_base_url="", models=tuple(entry["id"] for entry in entries), host="moonshot"
        )

        async def script(peer: Any, request: Any) -> None:
            body = json.dumps({"data": entries}).encode()
            await peer.send(whole(body, headers=("content-type: application/json",)))

        async with Host(script) as host:
            at = msgspec.structs.replace(provider, api_base_url=f"{host.url}/v1")
            async with running(Config(providers=(at,))) as gateway:

                async def read() -> dict[str, Any]:
                    _, body = await asyncio.to_thread(get, gateway.port, "/v1/models", NONE)
                    return {entry["id"]: entry for entry in body["data"]}

                while (found := await read())["some-model"].get("context_window") != 1000:
                    await asyncio.sleep(0.01)
                k3, other = found["kimi-k3"], found["some-model"]
                assert (k3["supports_image_in"], k3["supports_video_in"]) == (False, True)
                assert k3["capabilities"]["image_input"] == {"supported": False}
                assert found["kimi-k2-0905"]["supports_image_in"] is False
                assert other["architecture"]["input_modalities"] == ["text", "image"]
                assert (other["supports_image_in"], other["supports_reasoning"]) == (True, True)
                assert "supports_image_in" not in found["odd"]

    run(test())
