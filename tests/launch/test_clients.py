"""The settings of each client: pure functions of the gateway's address, its key and its models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from msgspec.structs import replace

from moonshim.cli.launch import _environment_lines
from moonshim.launch.clients import CLIENTS, KEY_VARIABLE, claude
from moonshim.launch.clients.claude import CLAUDE
from moonshim.launch.plan import Client, ClientPlan, LaunchContext, ModelInfo

KEY: Final = "msk_secret-of-the-gateway"
MAIN: Final = ModelInfo("kimi-k3", 1_048_576, 1_048_576, "moonshot")
SMALL: Final = ModelInfo("kimi-k2.5", 262_144, 262_144, "moonshot")
OTHERS: Final = (ModelInfo("kimi-k2.6", 262_144, 262_144, "moonshot"), ModelInfo("plain-1"))
NO_LIST: Final = {"kimi"}
"""It cannot be given one."""
OWN_CACHE_KEY: Final = {"claude", "codex", "kimi"}
"""Clients that send the id of their session, or for which the gateway makes a key."""

every_client = pytest.mark.parametrize("client", CLIENTS.values(), ids=list(CLIENTS))


def context_of(folder: Path, **environ: str) -> LaunchContext:
    return LaunchContext(
        url="http://127.0.0.1:4242",
        key=KEY,
        model=MAIN,
        small_model=SMALL,
        models=(SMALL, *OTHERS, MAIN),
        session="session-of-this-launch",
        folder=folder,
        environ={"HOME": str(folder / "home"), **environ},
    )


def all_of(plan: ClientPlan) -> str:
    return "\n".join([*plan.arguments, *plan.env.values(), *plan.files.values()])


@every_client
def test_no_argument_contains_the_key(client: Client, tmp_path: Path) -> None:
    plan = client.plan(context_of(tmp_path))
    assert KEY not in " ".join(plan.arguments)
    assert KEY in all_of(plan)


@every_client
def test_a_plan_has_the_address_the_models_and_the_window(client: Client, tmp_path: Path) -> None:
    text = all_of(client.plan(context_of(tmp_path)))
    assert "http://127.0.0.1:4242" in text
    assert MAIN.id in text
    assert str(MAIN.context_window) in text
    assert (SMALL.id in text) == (client.name != "kimi")


@every_client
def test_a_client_with_a_list_gets_every_model(client: Client, tmp_path: Path) -> None:
    text = all_of(client.plan(context_of(tmp_path)))
    assert all((model.id in text) == (client.name not in NO_LIST) for model in OTHERS)


@every_client
def test_a_client_without_a_cache_key_gets_one(client: Client, tmp_path: Path) -> None:
    text = all_of(client.plan(context_of(tmp_path)))
    assert ("session-of-this-launch" in text) == (client.name not in OWN_CACHE_KEY)


@every_client
def test_a_plan_depends_on_the_context_only_and_writes_nothing(client: Client, tmp_path: Path) -> None:
    context = context_of(tmp_path)
    assert client.plan(context) == client.plan(context)
    assert list(tmp_path.iterdir()) == []


@every_client
def test_paths_in_a_plan_are_those_of_its_files(client: Client, tmp_path: Path) -> None:
    plan = client.plan(context_of(tmp_path))
    named = {part for part in (*plan.arguments, *plan.env.values()) if part.startswith(f"{tmp_path}/")}
    written = {str(tmp_path / name) for name in plan.files}
    assert {path for path in named if "home" not in path} <= written | {str(Path(path).parent) for path in written}


@every_client
def test_files_are_json_unless_they_are_code(client: Client, tmp_path: Path) -> None:
    for name, text in client.plan(context_of(tmp_path)).files.items():
        assert name.endswith(".js") or json.loads(text)


@every_client
def test_a_model_without_a_known_window_is_accepted(client: Client, tmp_path: Path) -> None:
    unknown = ModelInfo("kimi-next")
    plan = client.plan(msgspec.structs.replace(context_of(tmp_path), model=unknown, small_model=unknown, models=()))
    assert "kimi-next" in all_of(plan)
    assert "None" not in all_of(plan)


@pytest.mark.parametrize("name", ["kimi", "opencode", "pi", "crush"])
def test_a_model_without_images_is_not_offered_them(name: str, tmp_path: Path) -> None:
    blind = msgspec.structs.replace(MAIN, sees_images=False, thinks=False)
    context = context_of(tmp_path)
    before = all_of(CLIENTS[name].plan(context))
    after = all_of(CLIENTS[name].plan(msgspec.structs.replace(context, model=blind, small_model=blind, models=())))
    word = {
        "kimi": "image_in",
        "pi": '"image"',
        "opencode": '"image"',
        "crush": '"supports_attachments": true',
    }
    assert word[name] in before
    assert word[name] not in after


@every_client
@pytest.mark.parametrize("name", ["HTTP_PROXY", "https_proxy", "ALL_PROXY"])
def test_the_gateway_is_excluded_from_a_proxy(client: Client, name: str, tmp_path: Path) -> None:
    assert "NO_PROXY" not in client.plan(context_of(tmp_path)).env
    env = client.plan(context_of(tmp_path, **{name: "http://proxy:1", "no_proxy": "intranet"})).env
    assert (env["NO_PROXY"], env["no_proxy"]) == ("intranet,127.0.0.1", "intranet,127.0.0.1")
    assert "NO_PROXY" not in client.plan(context_of(tmp_path, **{name: "http://proxy:1", "NO_PROXY": "*"})).env


@every_client
def test_print_env_masks_the_key(client: Client, tmp_path: Path) -> None:
    context = context_of(tmp_path)
    plan = client.plan(context)
    masked = "\n".join(_environment_lines(client, context, plan, show_keys=False))
    assert KEY not in masked
    assert "***" in masked
    assert KEY in "\n".join(_environment_lines(client, context, plan, show_keys=True))


# -- one client each ------------------------------------------------------------------------------------------------


def test_claude_overrides_the_settings_of_the_user_too(tmp_path: Path) -> None:
    plan = CLIENTS["claude"].plan(context_of(tmp_path))
    settings = json.loads(plan.files["claude.json"])
    assert plan.arguments == ("--settings", str(tmp_path / "claude.json"))
    assert plan.env.items() <= settings["env"].items()
    assert plan.env["ANTHROPIC_DEFAULT_HAIKU_MODEL"] == SMALL.id
    # A user of Bedrock has this in the environment or in the settings.
    assert "CLAUDE_CODE_USE_BEDROCK" in plan.unset
    assert settings["env"]["CLAUDE_CODE_USE_BEDROCK"] == ""


@pytest.mark.parametrize(
    ("window", "compact"), [(262_144, "262144"), (1_048_576, "1000000"), (65_536, None), (None, None)]
)
def test_claude_gets_a_window_for_compaction_that_it_accepts(
    window: int | None, compact: str | None, tmp_path: Path
) -> None:
    context = msgspec.structs.replace(context_of(tmp_path), model=ModelInfo("kimi-k3", window))
    env = CLIENTS["claude"].plan(context).env
    assert env.get("CLAUDE_CODE_AUTO_COMPACT_WINDOW") == compact
    assert env.get("CLAUDE_CODE_MAX_CONTEXT_TOKENS") == (str(window) if window else None)


def test_claude_checks_tool_calls_by_itself(tmp_path: Path) -> None:
    """Without a judge in the gateway. The other variable would leave it without any check."""
    plan = CLAUDE.plan(context_of(tmp_path))
    settings = json.loads(plan.files["claude.json"])
    for env in (plan.env, settings["env"]):
        assert env["CLAUDE_CODE_AUTO_MODE_SERVER"] == "0"
        assert "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC" not in env
    assert plan.notes == ()


def test_a_variable_that_leaves_auto_mode_without_a_check_is_mentioned(tmp_path: Path) -> None:
    name = "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC"
    (note,) = CLAUDE.plan(context_of(tmp_path, **{name: "1"})).notes
    assert note.startswith(f"{name} is set in the environment: ")
    settings = tmp_path / ".claude" / "settings.json"
    settings.parent.mkdir()
    settings.write_text(json.dumps({"env": {name: "1"}}))
    (note,) = CLAUDE.plan(context_of(tmp_path, HOME=str(tmp_path))).notes
    assert note.startswith(f"{name} is set in the settings of Claude Code: ")


@pytest.mark.parametrize("file", [".claude/settings.json", ".claude/settings.local.json"])
def test_such_a_variable_of_the_project_is_mentioned_too(
    file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "work" / ".claude").mkdir(parents=True)
    (tmp_path / "work" / file).write_text(json.dumps({"env": {"DO_NOT_TRACK": "1"}}))
    monkeypatch.chdir(tmp_path / "work")
    (note,) = CLAUDE.plan(context_of(tmp_path, HOME=str(tmp_path))).notes
    assert note.startswith(f"DO_NOT_TRACK is set in {file} of this project: ")
    (tmp_path / "work" / file).write_text("not JSON")
    assert CLAUDE.plan(context_of(tmp_path, HOME=str(tmp_path))).notes == ()


@pytest.mark.parametrize(
    ("version", "chosen", "added"),
    [
        ("9.1.7 (Claude Code)", (), ("--permission-mode", "default")),
        ("9.1.7 (Claude Code)", ("--permission-mode", "auto"), ()),
        ("9.1.7 (Claude Code)", ("--permission-mode=plan",), ()),
        ("9.0.9 (Claude Code)", (), ()),
        ("9.3.0 (Claude Code)", (), ()),
        ("", (), ()),
    ],
)
def test_a_version_that_cannot_check_by_itself_asks_before_each_action(
    version: str, chosen: tuple[str, ...], added: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No such version is known, so the table gets one that does not exist."""
    monkeypatch.setattr(claude, "WITHOUT_OWN_CHECK", (("9.1.0", "9.2.99"),))
    plan = CLAUDE.plan(replace(context_of(tmp_path), version=lambda: version, arguments=chosen))
    assert plan.arguments[2:] == added
    assert bool(plan.notes) == version.startswith("9.1.7")


def test_claude_lists_each_model_once_and_the_main_model_first(tmp_path: Path) -> None:
    context = context_of(tmp_path)
    picker = json.loads(CLAUDE.plan(context).files["claude.json"])["modelPicker"]
    names = [row["model"] for row in picker["options"]]
    assert picker["replaceBuiltInOptions"]
    assert names[0] == context.model.id
    assert sorted(names) == sorted({model.id for model in (*context.models, context.model, context.small_model)})


def test_a_user_with_opus_keeps_it(tmp_path: Path) -> None:
    """Claude Code would change it to `opus[1m]`. For everybody else the variable is only a warning."""
    name = "CLAUDE_CODE_DISABLE_1M_CONTEXT"
    assert name not in CLAUDE.plan(context_of(tmp_path, HOME=str(tmp_path))).env
    settings = tmp_path / ".claude" / "settings.json"
    settings.parent.mkdir()
    settings.write_text('{"model": "opus"}')
    assert CLAUDE.plan(context_of(tmp_path, HOME=str(tmp_path))).env[name] == "1"


def test_codex_gets_a_provider_without_websockets(tmp_path: Path) -> None:
    plan = CLIENTS["codex"].plan(context_of(tmp_path))
    pairs = dict(part.split("=", 1) for part in plan.arguments[1::2])
    assert set(plan.arguments[::2]) == {"-c"}
    assert pairs["model_providers.moonshim.supports_websockets"] == "false"
    assert pairs["model_providers.moonshim.env_key"] == f'"{KEY_VARIABLE}"'
    assert int(pairs["model_auto_compact_token_limit"]) < int(pairs["model_context_window"])


def catalog_of(context: LaunchContext) -> list[dict[str, Any]]:
    """The models that Codex is given, from the file that its arguments name."""
    plan = CLIENTS["codex"].plan(context)
    pairs = dict(part.split("=", 1) for part in plan.arguments[1::2])
    path = Path(json.loads(pairs["model_catalog_json"]))
    models: list[dict[str, Any]] = json.loads(plan.files[str(path.relative_to(context.folder))])["models"]
    return models


def test_codex_gets_a_catalog_of_all_models_in_which_each_has_its_own_window(tmp_path: Path) -> None:
    models = catalog_of(context_of(tmp_path))
    assert [model["slug"] for model in models] == [MAIN.id, SMALL.id, *(one.id for one in OTHERS)]
    assert [model["max_context_window"] for model in models] == [1_048_576, 262_144, 262_144, 131_072]
    assert {model["visibility"] for model in models} == {"list"}
    # It replaces the shell by a JavaScript tool.
    assert {model["tool_mode"] for model in models} == {"direct"}
    assert all("coding agent" in model["base_instructions"] for model in models)


@pytest.mark.parametrize(
    ("efforts", "thinks", "listed", "default"),
    [
        (("low", "high", "max"), True, ["low", "high", "max"], "high"),
        (("none", "high"), True, ["none", "high"], "high"),
        (("low",), True, ["low"], "low"),
        ((), True, [], None),
        (("low", "high"), False, [], None),
    ],
)
def test_codex_offers_the_efforts_that_the_model_has(
    efforts: tuple[str, ...], thinks: bool, listed: list[str], default: str | None, tmp_path: Path
) -> None:
    model = msgspec.structs.replace(MAIN, efforts=efforts, thinks=thinks, sees_images=False)
    entry = catalog_of(msgspec.structs.replace(context_of(tmp_path), model=model))[0]
    assert [level["effort"] for level in entry["supported_reasoning_levels"]] == listed
    assert entry.get("default_reasoning_level") == default
    assert entry["input_modalities"] == ["text"]


def test_the_guide_has_the_catalog_that_the_launcher_writes(tmp_path: Path) -> None:
    guide = Path(__file__).parents[2] / "docs" / "guides" / "codex.md"
    written = json.loads(guide.read_text("utf-8").split("```json\n")[1].split("```")[0])
    model = msgspec.structs.replace(MAIN, efforts=("low", "high", "max"))
    context = msgspec.structs.replace(context_of(tmp_path), model=model, small_model=model, models=(model,))
    entries = catalog_of(context)
    for entry in (*written["models"], *entries):
        entry.pop("description")
    assert written["models"] == entries


def test_opencode_adds_to_a_configuration_in_the_same_variable(tmp_path: Path) -> None:
    mine = {"theme": "mine", "model": "mine/other", "provider": {"mine": {"name": "Mine"}}}
    env = CLIENTS["opencode"].plan(context_of(tmp_path, OPENCODE_CONFIG_CONTENT=json.dumps(mine))).env
    config = json.loads(env["OPENCODE_CONFIG_CONTENT"])
    assert config["theme"] == "mine"
    assert config["model"] == f"moonshim/{MAIN.id}"
    assert config["small_model"] == f"moonshim/{SMALL.id}"
    assert set(config["provider"]) == {"mine", "moonshim"}
    assert {agent["model"] for agent in config["agent"].values()} == {f"moonshim/{MAIN.id}"}
    assert KEY not in env["OPENCODE_CONFIG_CONTENT"]


@pytest.mark.parametrize("broken", ["{not json", "[]", ""])
def test_a_configuration_of_opencode_that_cannot_be_read_is_replaced(broken: str, tmp_path: Path) -> None:
    env = CLIENTS["opencode"].plan(context_of(tmp_path, OPENCODE_CONFIG_CONTENT=broken)).env
    assert set(json.loads(env["OPENCODE_CONFIG_CONTENT"])) == {"agent", "model", "small_model", "provider"}


def test_qwen_keeps_the_settings_of_an_administrator(tmp_path: Path) -> None:
    system = tmp_path / "system" / "settings.json"
    system.parent.mkdir()
    system.write_text(json.dumps({"tools": {"sandbox": True}, "model": {"name": "other", "maxSessionTurns": 9}}))
    plan = CLIENTS["qwen"].plan(context_of(tmp_path, QWEN_CODE_SYSTEM_SETTINGS_PATH=str(system)))
    settings = json.loads(plan.files["qwen.json"])
    assert settings["tools"] == {"sandbox": True}
    assert settings["model"] == {"name": MAIN.id, "maxSessionTurns": 9}
    assert settings["fastModel"] == SMALL.id
    assert plan.env["QWEN_CODE_SYSTEM_DEFAULTS_PATH"] == str(system.with_name("system-defaults.json"))
    assert all(model["envKey"] == KEY_VARIABLE for model in settings["modelProviders"]["openai"])


def test_crush_reads_what_the_user_selected_but_no_login(tmp_path: Path) -> None:
    state = tmp_path / "state" / "crush"
    state.mkdir(parents=True)
    login = {"anthropic": {"oauth": {"refresh_token": "of-the-user"}}}
    mine: dict[str, Any] = {"models": {"large": {"provider": "mine", "model": "other"}}, "providers": login}
    (state / "crush.json").write_text(json.dumps(mine | {"options": {"debug": True}}))
    plan = CLIENTS["crush"].plan(context_of(tmp_path, XDG_DATA_HOME=str(tmp_path / "state")))
    settings = json.loads(plan.files["crush/crush.json"])
    assert plan.env["CRUSH_GLOBAL_DATA"] == str(tmp_path / "crush")
    assert settings["options"] == {"debug": True}
    assert settings["models"]["large"]["model"] == MAIN.id
    assert settings["models"]["small"]["model"] == SMALL.id
    assert set(settings["providers"]) == {"moonshim"}


def test_pi_gets_its_key_from_a_variable(tmp_path: Path) -> None:
    plan = CLIENTS["pi"].plan(context_of(tmp_path))
    assert KEY not in plan.files["moonshim.js"]
    assert f"process.env.{KEY_VARIABLE}" in plan.files["moonshim.js"]
    assert plan.arguments[-4:] == ("--provider", "moonshim", "--model", MAIN.id)


def test_aider_gets_address_and_key_with_each_model(tmp_path: Path) -> None:
    plan = CLIENTS["aider"].plan(context_of(tmp_path))
    settings = json.loads(plan.files["aider-settings.yml"])
    assert [one["name"] for one in settings][:2] == [f"openai/{MAIN.id}", f"openai/{SMALL.id}"]
    assert all(one["extra_params"]["api_key"] == KEY for one in settings)
    assert all(one["extra_params"]["api_base"] == "http://127.0.0.1:4242/v1" for one in settings)
    assert json.loads(plan.files["aider-metadata.json"])[f"openai/{MAIN.id}"]["max_input_tokens"] == MAIN.context_window


def test_every_client_is_described() -> None:
    for name, client in CLIENTS.items():
        assert (client.name, client.guide.partition("/")[0]) == (name, "guides")
        assert client.title
        assert client.program
        assert client.install
