"""Names of models, as clients write them, and what they lead to."""

from __future__ import annotations

from typing import Final

import pytest

from moonshim.config import Config, ProviderConfig
from moonshim.errors import Refused
from moonshim.gateway.outbound.routing import Router


def provider(name: str, *models: str) -> ProviderConfig:
    return ProviderConfig(name=name, api_base_url=f"https://{name}.test/v1", models=models)


CONFIG: Final = Config(
    providers=(
        provider("moonshot", "kimi-k3", "kimi-k2.5"),
        provider("openrouter", "moonshotai/kimi-k3", "kimi-k2.5", "glm-5"),
        provider("vllm"),
        provider("Team", "Best"),
    ),
    aliases={
        "claude-*": ("moonshot/kimi-k3", "openrouter/moonshotai/kimi-k3"),
        "claude-haiku-*": ("kimi-k2.5",),
        "claude-opus-5": ("vllm/anything/at-all",),
        "fast": ("openrouter,glm-5", "kimi-k2.5", "moonshot/kimi-k2.5"),
        "glm-5": ("moonshot/kimi-k3",),
        "nowhere": ("moonshot/kimi-k9",),
        "half": ("moonshot/kimi-k9", "TEAM/best"),
        "Loud": ("moonshot/kimi-k3",),
    },
)
ROUTER: Final = Router(CONFIG)


def led_to(name: str, *allowed: str) -> list[str]:
    return [f"{target.provider.name}|{target.model}" for target in ROUTER.targets(name, allowed=allowed)]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # models by themselves
        ("kimi-k3", ["moonshot|kimi-k3"]),
        ("kimi-k2.5", ["moonshot|kimi-k2.5", "openrouter|kimi-k2.5"]),
        ("moonshotai/kimi-k3", ["openrouter|moonshotai/kimi-k3"]),
        # behind their provider
        ("openrouter/kimi-k2.5", ["openrouter|kimi-k2.5"]),
        ("openrouter,kimi-k2.5", ["openrouter|kimi-k2.5"]),
        ("openrouter, kimi-k2.5", ["openrouter|kimi-k2.5"]),
        ("openrouter/moonshotai/kimi-k3", ["openrouter|moonshotai/kimi-k3"]),
        ("openrouter/glm-5", ["openrouter|glm-5"]),
        ("vllm/whatever/it-is", ["vllm|whatever/it-is"]),
        ("VLLM/Whatever", ["vllm|Whatever"]),
        # aliases
        ("claude-opus-5", ["vllm|anything/at-all"]),
        ("claude-haiku-4-5-20251001", ["moonshot|kimi-k2.5", "openrouter|kimi-k2.5"]),
        ("claude-sonnet-5[1m]", ["moonshot|kimi-k3", "openrouter|moonshotai/kimi-k3"]),
        # with Claude Code's note about the window
        ("kimi-k3[1m]", ["moonshot|kimi-k3"]),
        ("Kimi-K3[1M]", ["moonshot|kimi-k3"]),
        ("openrouter/glm-5[1m]", ["openrouter|glm-5"]),
        ("vllm/whatever[1m]", ["vllm|whatever"]),
        ("fast[1m]", ["openrouter|glm-5", "moonshot|kimi-k2.5", "openrouter|kimi-k2.5"]),
        ("claude-kimi-k3[1m]", ["moonshot|kimi-k3"]),
        ("fast", ["openrouter|glm-5", "moonshot|kimi-k2.5", "openrouter|kimi-k2.5"]),
        ("glm-5", ["moonshot|kimi-k3"]),
        ("half", ["Team|Best"]),
        # in any case
        ("KIMI-K3", ["moonshot|kimi-k3"]),
        ("Moonshot/Kimi-K3", ["moonshot|kimi-k3"]),
        ("team/best", ["Team|Best"]),
        ("loud", ["moonshot|kimi-k3"]),
        ("Claude-Haiku-9", ["moonshot|kimi-k2.5", "openrouter|kimi-k2.5"]),
    ],
)
def test_a_name_leads_to_its_targets_first_to_ask_first(name: str, expected: list[str]) -> None:
    assert led_to(name) == expected
    known = ROUTER.first_target(name)
    assert known is not None
    assert f"{known.provider.name}|{known.model}" == expected[0]


@pytest.mark.parametrize(
    "name",
    [
        "",
        "gpt-5",
        "moonshot",
        "moonshot/",
        "/kimi-k3",
        "moonshot/kimi-k9",
        "nowhere",
        "claude",
        "kimi-k3 ",
        "x" * 100_000,
    ],
)
def test_what_no_provider_has_is_not_found(name: str) -> None:
    with pytest.raises(Refused) as caught:
        ROUTER.targets(name)
    problem = caught.value.problem
    assert (problem.status, problem.kind, problem.code, problem.param) == (404, "not_found", "model_not_found", "model")
    assert len(problem.message) < 600
    assert ROUTER.first_target(name) is None


def test_exact_spelling_goes_before_another_case() -> None:
    router = Router(Config(providers=(provider("a", "Kimi"), provider("b", "kimi"), provider("A", "kimi"))))
    assert [target.provider.name for target in router.targets("kimi")] == ["b", "A"]
    assert [target.provider.name for target in router.targets("KIMI")] == ["a"]
    assert [target.provider.name for target in router.targets("A/kimi")] == ["A"]


def test_a_name_that_is_spelt_in_another_case_goes_before_a_pattern() -> None:
    router = Router(Config(providers=(provider("a", "Best", "rest"),), aliases={"*": ("rest",)}))
    assert router.targets("best")[0].model == "Best"
    assert router.targets("anything")[0].model == "rest"


def test_a_models_own_name_goes_before_a_pattern_that_fits_it() -> None:
    router = Router(Config(providers=(provider("a", "claude-x", "kimi"),), aliases={"claude-*": ("kimi",)}))
    assert router.targets("claude-x")[0].model == "claude-x"


def test_the_longest_pattern_counts() -> None:
    aliases: dict[str, tuple[str, ...]] = {"*": ("one",), "gpt-?": ("two",), "gpt-[0-9]*": ("three",)}
    router = Router(Config(providers=(provider("a", "one", "two", "three"),), aliases=aliases))
    assert [router.targets(name)[0].model for name in ("o5", "gpt-x", "gpt-5-mini")] == ["one", "two", "three"]


def test_a_pattern_passes_a_name_on_to_a_provider_that_takes_any() -> None:
    aliases: dict[str, tuple[str, ...]] = {"*+*": ("vllm/*", "moonshot/*", "moonshot/kimi-k3")}
    router = Router(Config(providers=CONFIG.providers, aliases=aliases))
    targets = [(target.provider.name, target.model) for target in router.targets("Kimi-K2.5+Fast")]
    assert targets == [("vllm", "Kimi-K2.5+Fast"), ("moonshot", "kimi-k3")], "moonshot lists what it has"
    with pytest.raises(Refused):
        router.targets("Kimi-K2.5+Fast", allowed=["glm-*"])


class TestNotFound:
    def message(self, router: Router, name: str, *allowed: str) -> str:
        with pytest.raises(Refused) as caught:
            router.targets(name, allowed=allowed)
        return str(caught.value)

    def test_the_nearest_names_are_told(self) -> None:
        assert "'kimi-k2.5'" in self.message(ROUTER, "kimi-k2-5")
        assert "'moonshot/kimi-k2.5'" in self.message(ROUTER, "moonshot/kimi-k2")

    def test_a_provider_that_takes_any_name_is_told(self) -> None:
        router = Router(Config(providers=(provider("vllm"),)))
        assert "'vllm/kimi-k3'" in self.message(router, "kimi-k3")
        # What agents ask for by themselves is no name of a model there.
        assert "'vllm/MODEL'" in self.message(router, "claude-opus-5")

    def test_where_nothing_is_near_some_that_there_are_are_told(self) -> None:
        assert "'kimi-k3'" in self.message(Router(Config(providers=(provider("a", "kimi-k3"),))), "zzzz")

    def test_nothing_at_all_is_told_too(self) -> None:
        assert self.message(Router(Config()), "kimi-k3") == "Model 'kimi-k3' not found."


def test_the_note_about_the_window_is_no_part_of_a_name_in_the_configuration_unless_a_model_has_it() -> None:
    providers = (provider("moonshot", "kimi-k3", "own[1m]"), provider("any"))
    router = Router(Config(providers=providers, aliases={"wide": ("kimi-k3[1m]",), "claude-*": ("any/*",)}))

    def targets(name: str) -> list[str]:
        return [f"{target.provider.name}|{target.model}" for target in router.targets(name)]

    assert targets("wide") == ["moonshot|kimi-k3"]
    assert targets("own[1m]") == targets("moonshot/own[1m]") == ["moonshot|own[1m]"]
    assert targets("claude-opus-5[1m]") == ["any|claude-opus-5"]  # a host knows no such name either


class TestKeysThatMayNotAskForEverything:
    def test_a_name_that_fits_is_served(self) -> None:
        assert led_to("kimi-k3", "glm-*", "kimi-*") == ["moonshot|kimi-k3"]
        assert led_to("claude-sonnet-5", "claude-*") == ["moonshot|kimi-k3", "openrouter|moonshotai/kimi-k3"]
        assert led_to("moonshot,kimi-k3", "moonshot/*") == ["moonshot|kimi-k3"]

    def test_a_name_of_brackets_can_be_granted_to_the_letter(self) -> None:
        assert led_to("claude-x[1m]", "claude-x[1m]") != []

    def test_the_note_about_the_window_grants_nothing_and_takes_nothing_away(self) -> None:
        assert led_to("kimi-k3[1m]", "kimi-k3") == led_to("kimi-k3", "kimi-k3[1m]") == ["moonshot|kimi-k3"]
        with pytest.raises(Refused):
            led_to("kimi-k3[1m]", "kimi-k2.5")

    def test_a_name_that_leads_to_a_model_that_fits_is_served(self) -> None:
        assert led_to("moonshot/kimi-k3", "kimi-*") == ["moonshot|kimi-k3"]
        assert led_to("openrouter,kimi-k2.5", "kimi-*") == ["openrouter|kimi-k2.5"]
        assert led_to("glm-5", "kimi-*") == ["moonshot|kimi-k3"]

    def test_an_alias_leads_no_key_to_a_model_that_does_not_fit(self) -> None:
        assert led_to("claude-sonnet-5", "kimi-*") == ["moonshot|kimi-k3"]
        assert led_to("claude-sonnet-5", "openrouter/*") == ["openrouter|moonshotai/kimi-k3"]
        assert led_to("fast", "kimi-k2.5") == ["moonshot|kimi-k2.5", "openrouter|kimi-k2.5"]

    @pytest.mark.parametrize("name", ["openrouter/glm-5", "moonshotai/kimi-k3", "claude-opus-5", "Best", "kimi-k9"])
    def test_every_other_name_is_not_found(self, name: str) -> None:
        with pytest.raises(Refused, match=r"Model '.*' not found") as caught:
            led_to(name, "kimi-*")
        assert caught.value.problem.status == 404

    def test_another_case_opens_no_other_door(self) -> None:
        router = Router(Config(providers=(provider("a", "Secret"), provider("b", "secret-not"))))
        assert router.targets("SECRET", allowed=("Secret",))[0].model == "Secret"
        with pytest.raises(Refused):
            router.targets("SECRET", allowed=("SECRET",))

    def test_names_that_are_not_allowed_are_not_suggested(self) -> None:
        with pytest.raises(Refused) as caught:
            led_to("kimi-k2", "glm-5")
        assert "kimi-k2.5" not in str(caught.value)
        assert "'glm-5'" in str(caught.value)


class TestNamesToChooseFrom:
    def test_aliases_come_first_then_models_then_what_several_have(self) -> None:
        assert ROUTER.names() == [
            "claude-opus-5",
            "fast",
            "glm-5",
            "half",
            "Loud",
            "kimi-k3",
            "kimi-k2.5",
            "moonshotai/kimi-k3",
            "Best",
            "moonshot/kimi-k2.5",
            "openrouter/kimi-k2.5",
            "openrouter/glm-5",
        ]

    def test_every_name_that_is_shown_leads_somewhere_and_once(self) -> None:
        names = ROUTER.names()
        assert len(set(names)) == len(names)
        assert all(ROUTER.targets(name) for name in names)

    def test_only_what_is_allowed_is_shown(self) -> None:
        shown = ["fast", "glm-5", "Loud", "kimi-k3", "kimi-k2.5", "moonshot/kimi-k2.5", "openrouter/kimi-k2.5"]
        assert ROUTER.names(("kimi-*",)) == shown
        assert all(ROUTER.targets(name, allowed=("kimi-*",)) for name in ROUTER.names(("kimi-*",)))
