"""Files of claude-code-router 2 and LiteLLM: every leaf is accounted for, and the result serves a request."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from moonshim.config import ConfigError, endpoint_of, load_config, parse_config, warnings_of
from moonshim.config.files.json_file import read_json
from moonshim.setup import from_litellm
from moonshim.setup.account import Entry, leaves_of
from moonshim.setup.converted import Converted
from moonshim.setup.document import render
from moonshim.setup.from_litellm import convert_litellm
from moonshim.setup.from_router import convert_router
from moonshim.simulator import Simulator
from tests.support.command import run_moonshim
from tests.support.servers import running

yaml = pytest.importorskip("yaml")

HERE: Final = Path(__file__).parent
KEY: Final = "sk-lab-13579"
SECRETS: Final = ("open-sesame-12345", "sk-or-literal-98765", "sk-from-file-24680", "pa55word", "sk-master-11111", KEY)
ENVIRONMENT: Final = {
    "HOME": "/home/me",
    "LAB_KEY": KEY,
    "LAB_URL": "http://127.0.0.1:9",
    "VLLM_URL": "http://127.0.0.1:9/v1",
    "GROQ_API_KEY": "sk-groq",
    "LITELLM_MASTER_KEY": "sk-master-11111",
}
PLUG_IN: Final = """\
class Shout:
    def __init__(self, loud=False):
        self.loud = loud
    def prepare(self, request):
        return request
"""


@pytest.fixture(scope="module")
def host() -> Iterator[Simulator]:
    with Simulator(behaviour="moonshot", api_key=KEY).running() as simulator:
        yield simulator


@pytest.fixture
def router_text(host: Simulator) -> str:
    return (HERE / "router.json").read_text().replace("@HOST@", host.url)


@pytest.fixture
def litellm_text(host: Simulator) -> str:
    return (HERE / "litellm.yaml").read_text().replace("@HOST@", host.url)


def router(text: str, folder: Path = HERE, environ: dict[str, str] | None = None) -> Converted:
    return convert_router(text, source="config.json", folder=folder, environ=environ or {})


def litellm(text: str, environ: dict[str, str] | None = None) -> Converted:
    return convert_litellm(text, source="config.yaml", environ=environ or {})


def by_path(converted: Converted) -> dict[str, Entry]:
    from moonshim.config.problems import display_path

    return {display_path(entry.path): entry for entry in converted.account.entries()}


def outcomes(converted: Converted, outcome: str) -> list[str]:
    return [path for path, entry in by_path(converted).items() if entry.outcome == outcome]


def is_there(document: Any, place: str) -> bool:
    """Whether a key such as `providers[0].headers.X-Title` is in the document."""
    first = place.split(" ")[0].rstrip(",;:")
    for step in first.replace("[", ".").replace("]", "").replace('"', "").split("."):
        if isinstance(document, list):
            document = document[int(step)] if step.isdecimal() else next(iter(document))
        elif step in document:
            document = document[step]
        else:
            return "models" in first  # a model's own settings, by its name
    return True


class TestBoth:
    @pytest.mark.parametrize("tool", ["router", "litellm"])
    def test_every_leaf_is_accounted_for_once_and_by_name(self, tool: str, router_text: str, litellm_text: str) -> None:
        value = read_json(router_text)[0] if tool == "router" else yaml.safe_load(litellm_text)
        converted = router(router_text) if tool == "router" else litellm(litellm_text)
        entries = converted.account.entries()
        assert [entry.path for entry in entries] == list(leaves_of(value))
        # Nothing is left to the sentence for settings that the converter has never heard of.
        unknown = [entry.path for entry in entries if entry.detail == "Moonshim has no such setting"]
        assert unknown == ([] if tool == "router" else [("litellm_settings", "something_new")])

    @pytest.mark.parametrize("tool", ["router", "litellm"])
    def test_no_secret_is_in_the_report(self, tool: str, router_text: str, litellm_text: str) -> None:
        converted = router(router_text) if tool == "router" else litellm(litellm_text)
        details = [entry.detail for entry in converted.account.entries()]
        assert [secret for secret in SECRETS for detail in details if secret in detail] == []

    @pytest.mark.parametrize("tool", ["router", "litellm"])
    def test_the_result_can_be_loaded(self, tool: str, router_text: str, litellm_text: str, tmp_path: Path) -> None:
        (tmp_path / "shout.py").write_text(PLUG_IN)
        converted = router(router_text, tmp_path) if tool == "router" else litellm(litellm_text)
        text = render(converted.document)
        assert tomllib.loads(text) == converted.document
        config = parse_config(text, suffix=".toml", environ=ENVIRONMENT, source="new")
        assert [note for note in config.notes if "not set" not in note] == []


class TestClaudeCodeRouter:
    def test_the_result_means_what_the_file_means(self, router_text: str, tmp_path: Path) -> None:
        """The same reader serves the file as it is: both configurations must agree."""
        (tmp_path / "shout.py").write_text(PLUG_IN)
        old = parse_config(router_text, suffix=".json", environ=ENVIRONMENT, source="old", folder=tmp_path)
        text = render(router(router_text, tmp_path, ENVIRONMENT).document)
        new = parse_config(text, suffix=".toml", environ=ENVIRONMENT, source="new")
        for field in ("name", "keys", "models", "dialect", "host", "overrides", "model_overrides", "model_bodies"):
            assert [getattr(one, field) for one in old.providers] == [getattr(one, field) for one in new.providers]
        for field in ("headers", "timeouts", "transformers", "model_transformers", "proxy"):
            assert [getattr(one, field) for one in old.providers] == [getattr(one, field) for one in new.providers]
        assert (old.keys, old.host, old.port, old.log_level) == (new.keys, new.host, new.port, new.log_level)
        assert new.aliases["claude-*"] == old.aliases["claude-*"][:2]
        assert new.routes.long_context_tokens == old.routes.long_context_tokens == 200_000
        assert {**old.routes.targets, "web_search": None} == {**new.routes.targets, "web_search": None}
        assert new.aliases["claude-*haiku*"] == old.aliases["claude-*haiku*"]

    def test_keys_become_variables_or_stay_in_the_file(self, router_text: str) -> None:
        first, second, third = router(router_text).document["providers"]
        assert first["api_key_env"] == "LAB_KEY"
        assert second["api_key"] == "sk-or-literal-98765"
        assert not {"api_key", "api_key_env"} & set(third)

    def test_variables_stay_variables(self, router_text: str) -> None:
        converted = router(router_text, environ={"LAB_URL": "http://elsewhere", "TITLE": "other"})
        _, second, third = converted.document["providers"]
        assert third["api_base_url"] == "${LAB_URL}/anthropic"
        assert second["headers"]["X-Title"] == "${TITLE:-mine}"
        assert converted.variables == ["LAB_KEY", "LAB_URL"]

    def test_what_is_not_taken_over_has_its_reason(self, router_text: str) -> None:
        converted = router(router_text)
        entries = by_path(converted)
        assert set(outcomes(converted, "not_needed")) == {
            "CLAUDE_PATH",
            "NON_INTERACTIVE_MODE",
            "PROXY_URL",
            "Providers[0].transformer.use[1]",
            'Providers[0].transformer."kimi-k2.6".use[0]',
            "Providers[1].transformer.use[0][0]",
            "Providers[1].transformer.use[1].sampling.temperature",
            "Providers[2].api_key",
            "forceUseImageAgent",
            "transformers[2].name",
            "transformers[2].path",
        }
        assert "JavaScript" in entries["CUSTOM_ROUTER_PATH"].detail
        assert "JavaScript" in entries["Providers[1].transformer.use[3]"].detail
        assert "no provider has this model" in entries["Router.webSearch"].detail
        assert "not supported" in entries["Router.custom"].detail
        assert "null" in entries["Providers[1].transformer.use[0][1].provider.sort"].detail
        assert "`messages` cannot be set" in entries["Providers[1].transformer.use[0][1].messages"].detail

    @pytest.mark.parametrize("tool", ["router", "litellm"])
    def test_what_is_taken_over_is_where_the_report_says(self, tool: str, router_text: str, litellm_text: str) -> None:
        converted = router(router_text) if tool == "router" else litellm(litellm_text, ENVIRONMENT)
        tables = ("providers[", "aliases.", "gateway.", "timeouts.", "retries.", "limits.", "keys[", "routes.")
        named = {
            entry.detail
            for entry in converted.account.entries()
            if entry.outcome == "taken" and entry.detail.startswith(tables) and "*" not in entry.detail
        }
        assert len(named) > 15
        assert [place for place in named if not is_there(converted.document, place)] == []

    def test_kinds_of_requests_are_routes(self, router_text: str) -> None:
        converted = router(router_text)
        assert converted.document["routes"] == {
            "background": "moonshot/kimi-k2.6",
            "think": ["openrouter/moonshotai/kimi-k3", "moonshot/kimi-k3"],
            "long_context": "moonshot/kimi-k3",
            "image": "messages/kimi-k2.5",
            "long_context_tokens": 200000,
        }
        assert converted.document["aliases"]["think"] == converted.document["routes"]["think"]
        entries = by_path(converted)
        assert entries["Router.longContextThreshold"].detail == "routes.long_context_tokens"
        assert entries["fallback.think[0]"].detail == 'routes.think and aliases."think"'

    def test_the_threshold_is_written_even_if_it_is_the_usual_one(self) -> None:
        provider = {"name": "a", "api_base_url": "https://a.example/v1", "models": ["kimi-k3"]}
        routes = {"longContext": "a,kimi-k3", "longContextThreshold": "many"}
        converted = router(json.dumps({"Providers": [provider], "Router": routes}))
        assert converted.document["routes"] == {"long_context": "a/kimi-k3", "long_context_tokens": 60000}
        assert by_path(converted)["Router.longContextThreshold"].outcome == "no_counterpart"

    @pytest.mark.parametrize(
        ("changes", "expected"),
        [
            ({"PROXY_URL": "http://127.0.0.1:7890"}, {"proxy": "http://127.0.0.1:7890"}),
            ({"PROXY_URL": "$LAB_PROXY"}, {"proxy": "$LAB_PROXY"}),
        ],
    )
    def test_a_proxy_is_one_of_every_provider(self, changes: dict[str, Any], expected: dict[str, Any]) -> None:
        provider = {"name": "a", "api_base_url": "https://api.moonshot.ai/v1", "models": ["kimi-k3"]}
        (made,) = router(json.dumps({"Providers": [provider]} | changes)).document["providers"]
        assert made == provider | expected

    def test_a_proxy_is_not_for_servers_on_this_machine(self) -> None:
        provider = {"name": "a", "api_base_url": "http://localhost:11434/v1/chat/completions", "models": ["qwen"]}
        converted = router(json.dumps({"Providers": [provider], "PROXY_URL": "http://127.0.0.1:7890"}))
        assert "proxy" not in converted.document["providers"][0]
        assert by_path(converted)["PROXY_URL"].detail == "proxy of every provider that is not on this machine"

    def test_a_provider_with_another_protocol_is_left_out_with_its_routes(self) -> None:
        providers = [
            {
                "name": "cli",
                "api_base_url": "https://cloudcode-pa.googleapis.com/v1internal",
                "models": ["gemini-2.5-pro"],
                "transformer": {"use": ["gemini-cli"]},
            },
            {"name": "a", "api_base_url": "https://api.moonshot.ai/v1", "models": ["kimi-k3"]},
        ]
        routes = {"default": "a,kimi-k3", "webSearch": "cli,gemini-2.5-pro"}
        converted = router(json.dumps({"Providers": providers, "Router": routes}))
        assert [provider["name"] for provider in converted.document["providers"]] == ["a"]
        assert "routes" not in converted.document
        assert set(converted.document["aliases"]) == {"default", "claude-*"}
        entries = by_path(converted)
        assert entries["Providers[0].name"].outcome == "no_counterpart"
        assert entries["Providers[0].name"].detail.startswith("left out: transformer 'gemini-cli' ")
        assert entries["Providers[1].name"].detail == "providers[0].name"
        assert entries["Router.webSearch"].detail == "its provider is left out"
        config = parse_config(render(converted.document), suffix=".toml", environ={}, source="new")
        assert [provider.name for provider in config.providers] == ["a"]

    def test_gemini_is_used_at_its_compatible_endpoint(self) -> None:
        """The provider of claude-code-router's own example."""
        provider = {
            "name": "gemini",
            "api_base_url": "https://generativelanguage.googleapis.com/v1beta/models/",
            "api_key": "$GEMINI_API_KEY",
            "models": ["gemini-2.5-flash"],
            "transformer": {"use": ["gemini"]},
        }
        text = json.dumps({"Providers": [provider], "Router": {"webSearch": "gemini,gemini-2.5-flash"}})
        converted = router(text)
        (made,) = converted.document["providers"]
        assert made["api_base_url"] == "https://generativelanguage.googleapis.com/v1beta/openai"
        assert converted.document["routes"] == {"web_search": "gemini/gemini-2.5-flash"}
        assert by_path(converted)["Providers[0].transformer.use[0]"].outcome == "taken"
        config = parse_config(text, suffix=".json", environ={"GEMINI_API_KEY": "k"}, source="config.json")
        url = endpoint_of(config.providers[0])
        assert url == "https://generativelanguage.googleapis.com/v1beta/openai/chat/completions"

    def test_a_key_in_a_variable_is_stored_as_its_digest_if_it_is_set(self) -> None:
        text = json.dumps(
            {"APIKEY": "$ROUTER_KEY", "Providers": [{"name": "a", "api_base_url": "https://a.example/v1"}]}
        )
        with_key = router(text, environ={"ROUTER_KEY": "open-sesame"})
        assert with_key.document["keys"][0]["digest"].startswith("sha256:")
        without = router(text)
        assert without.document["gateway"] == {"require_keys": True}
        assert "ROUTER_KEY is not set" in by_path(without)["APIKEY"].detail

    def test_a_variant_of_a_listed_model_can_be_a_route(self) -> None:
        """claude-code-router sends what `Router` names, listed or not; `:online` is OpenRouter's web search."""
        provider = {
            "name": "openrouter",
            "api_base_url": "https://openrouter.ai/api/v1/chat/completions",
            "models": ["moonshotai/kimi-k2.6"],
        }
        routes = {
            "default": "openrouter,moonshotai/kimi-k2.6",
            "webSearch": "openrouter,moonshotai/kimi-k2.6:online",
            "think": "openrouter,moonshotai/kimi-k2.5:online",
        }
        text = json.dumps({"Providers": [provider], "Router": routes})
        served = parse_config(text, suffix=".json", environ=ENVIRONMENT, source="old")
        assert [note for note in served.notes if "'webSearch'" in note] == []
        assert [note for note in served.notes if "'think'" in note] != []
        converted = router(text)
        models = ["moonshotai/kimi-k2.6", "moonshotai/kimi-k2.6:online"]
        assert converted.document["providers"][0]["models"] == models
        assert converted.document["routes"] == {"web_search": "openrouter/moonshotai/kimi-k2.6:online"}
        assert by_path(converted)["Router.webSearch"].outcome == "taken"
        assert by_path(converted)["Router.think"].outcome == "no_counterpart"

    def test_keys_of_a_provider_that_are_not_known_are_reported(self) -> None:
        """claude-code-router ignores them; a key that looks like a typing mistake is still refused."""
        provider = {"name": "a", "api_base_url": "http://lab.test/v1", "models": ["m"], "transformer": None}
        text = json.dumps({"Providers": [{**provider, "weight": 3, "notes": {"by": "me"}}]})
        converted = router(text)
        found = by_path(converted)
        assert found["Providers[0].weight"].outcome == "no_counterpart"
        assert found["Providers[0].notes.by"].outcome == "no_counterpart"
        assert found["Providers[0].transformer"].outcome == "not_needed"
        assert converted.document["providers"] == [{"name": "a", "api_base_url": "http://lab.test/v1", "models": ["m"]}]
        with pytest.raises(ConfigError, match="did you mean 'models'"):
            router(json.dumps({"Providers": [{**provider, "modles": ["m"]}]}))

    @pytest.mark.parametrize(
        "text",
        [
            "[]",
            '{"model_list": []}',
            '{"Providers": [{"name": "x"}]}',
            "{",
            '{"Providers": [], "Router": {}}',
            '{"providers": [{"name": "a", "api_base_url": "http://lab.test/v1"}]}',  # of Moonshim itself
            '{"LOG": true, "OPENAI_BASE_URL": "https://lab.test/v1", "OPENAI_MODEL": "m"}',  # of version 1
        ],
    )
    def test_another_file_is_refused(self, text: str) -> None:
        with pytest.raises(ConfigError):
            router(text)


class TestLiteLLM:
    def test_what_is_not_taken_over_has_its_reason(self, litellm_text: str) -> None:
        entries = by_path(litellm(litellm_text, ENVIRONMENT))
        assert "vertex_ai" in entries["model_list[6].litellm_params.vertex_project"].detail
        assert entries["model_list[7].litellm_params.model"].detail == "its provider is not named"
        assert entries["litellm_settings.num_retries"].outcome == "no_counterpart"
        assert entries["litellm_settings.drop_params"].outcome == "not_needed"
        assert entries["environment_variables.FROM_FILE"].outcome == "taken"
        assert entries["environment_variables.OTHER"].outcome == "no_counterpart"

    def test_models_with_other_settings_are_other_providers(self, litellm_text: str) -> None:
        document = litellm(litellm_text).document
        assert [one["name"] for one in document["providers"]] == [
            "moonshot",
            "openrouter",
            "vllm",
            "vllm-2",
            "moonshot-2",
            "groq",
        ]
        assert document["providers"][0]["host"] == "moonshot"
        assert document["aliases"]["thinking"][0] == "vllm-2/kimi-k2.5"
        assert document["aliases"]["gpt-4"] == document["aliases"]["kimi-k3"]
        assert document["prices"] == {"moonshot/kimi-k3": {"input": 0.6, "output": 2.5, "cached": 0.1}}

    def test_a_credential_gives_a_model_its_address_and_key(self) -> None:
        converted = litellm("""
            model_list:
              - {model_name: a, litellm_params: {model: openai/m, litellm_credential_name: lab}}
              - {model_name: b, litellm_params: {model: openai/m, litellm_credential_name: lab, api_key: sk-own}}
              - {model_name: c, litellm_params: {model: openai/m, litellm_credential_name: gone}}
            credential_list:
              - credential_name: lab
                credential_values: {api_base: "http://lab.test/v1", api_key: os.environ/LAB_KEY}
                credential_info: {description: ours}
        """)
        first, second, third = converted.document["providers"]
        assert first == {
            "name": "openai",
            "api_base_url": "http://lab.test/v1",
            "api_key_env": "LAB_KEY",
            "models": ["m"],
        }
        assert (second["api_base_url"], second["api_key"]) == ("http://lab.test/v1", "sk-own")
        assert third["api_base_url"] == "https://api.openai.com/v1"
        found = by_path(converted)
        assert found["model_list[0].litellm_params.litellm_credential_name"].outcome == "taken"
        assert found["model_list[2].litellm_params.litellm_credential_name"].outcome == "no_counterpart"
        assert found["credential_list[0].credential_values.api_base"].outcome == "taken"
        assert found["credential_list[0].credential_values.api_key"].outcome == "taken"
        assert found["credential_list[0].credential_info.description"].outcome == "no_counterpart"

    def test_a_price_without_a_decimal_point_is_a_number_too(self) -> None:
        """YAML reads `3e-06` as text, and LiteLLM takes it for a number."""
        converted = litellm("""
            model_list:
              - model_name: a
                litellm_params: {model: moonshot/kimi-k3, input_cost_per_token: 3e-06, output_cost_per_token: "1.5e-05"}
              - model_name: b
                litellm_params: {model: moonshot/kimi-k2.6, input_cost_per_token: nan, output_cost_per_token: x}
        """)
        assert converted.document["prices"] == {"moonshot/kimi-k3": {"input": 3.0, "output": 15.0}}

    def test_a_dollar_in_a_key_stays_one(self, litellm_text: str) -> None:
        text = render(litellm(litellm_text).document)
        config = parse_config(text, suffix=".toml", environ=ENVIRONMENT, source="new")
        assert config.providers[1].keys[0].reveal() == "sk-or-literal-98765$x"

    def test_a_master_key_that_is_not_set_still_means_that_a_key_is_required(self, litellm_text: str) -> None:
        converted = litellm(litellm_text)
        assert "keys" not in converted.document
        assert converted.document["gateway"]["require_keys"] is True

    def test_without_pyyaml_it_says_what_to_install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def missing(name: str) -> Any:
            raise ImportError(name)

        monkeypatch.setattr(from_litellm, "import_module", missing)
        with pytest.raises(ConfigError, match="pip install pyyaml"):
            litellm("model_list: []")

    @pytest.mark.parametrize(
        ("text", "why"),
        [
            ("a: [1", "config.yaml:1:6"),
            ("- 1", "no `model_list`"),
            ("model_list: [{model_name: a, litellm_params: {model: bedrock/a}}]", "no entry of `model_list`"),
            ("model_list: [1, {}, {litellm_params: []}]", "no entry of `model_list`"),
        ],
    )
    def test_another_file_is_refused(self, text: str, why: str) -> None:
        with pytest.raises(ConfigError, match=why.replace("`", ".")):
            litellm(text)


class TestTheCommand:
    """`moonshim init --from`, and a request through a gateway with the result."""

    @pytest.fixture(autouse=True)
    def _home(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv("HOME", str(tmp_path / "home"))
        monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
        monkeypatch.delenv("MOONSHIM_CONFIG", raising=False)
        for name, value in ENVIRONMENT.items():
            if name != "HOME":
                monkeypatch.setenv(name, value)

    @pytest.mark.parametrize(
        ("tool", "key", "model", "path", "body"),
        [
            ("claude-code-router", "open-sesame-12345", "claude-sonnet-4-5", "/v1/messages", {"max_tokens": 200}),
            ("litellm", "sk-master-11111", "gpt-4", "/v1/chat/completions", {}),
        ],
    )
    def test_it_is_saved_and_served(
        self,
        tool: str,
        key: str,
        model: str,
        path: str,
        body: dict[str, Any],
        router_text: str,
        litellm_text: str,
        tmp_path: Path,
    ) -> None:
        (tmp_path / "shout.py").write_text(PLUG_IN)
        file = tmp_path / "theirs"
        file.write_text(router_text if tool == "claude-code-router" else litellm_text)
        done = run_moonshim("init", "--from", tool, file, "--alias", "mine=kimi-k3", cwd=tmp_path)
        assert done.code == 0, done.stderr
        shown = done.out.decode()
        for word in ("taken over:", "not needed:", "no counterpart:", "moonshim serve"):
            assert word in shown
        assert [secret for secret in SECRETS if secret in shown + done.stderr] == []
        saved = tmp_path / "home" / ".config" / "moonshim" / "moonshim.toml"
        assert saved.stat().st_mode & 0o777 == 0o600
        config = load_config(saved, ENVIRONMENT)
        assert config.aliases["mine"]
        assert [line for line in warnings_of(config) if "not set" in line] == []
        with running("serve", cwd=tmp_path) as gateway:
            asked = {"model": model, "messages": [{"role": "user", "content": "hi"}]} | body
            status, text = gateway.post(path, asked, authorization=f"Bearer {key}")
            assert status == 200, text
            status, _ = gateway.post(path, asked, authorization="Bearer wrong")
            assert status == 401

    def test_the_usual_place_is_used_without_a_path(self, router_text: str, tmp_path: Path) -> None:
        done = run_moonshim("init", "--from", "claude-code-router", cwd=tmp_path)
        assert (done.code, len(done.lines)) == (2, 1)
        assert ".claude-code-router/config.json: No such file" in done.stderr
        file = tmp_path / "home" / ".claude-code-router" / "config.json"
        file.parent.mkdir(parents=True)
        file.write_text(router_text)
        (file.parent / "shout.py").write_text(PLUG_IN)
        assert run_moonshim("init", "--from", "claude-code-router", cwd=tmp_path).code == 0
