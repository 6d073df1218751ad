"""Scenarios in files: what may be written, and what is told of every mistake, with its line."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from moonshim.simulator.model.scenario import ANY, BUILT_IN, Act, PlannedAnswer, PlannedCall, PlannedRound, Scenario
from moonshim.simulator.model.scenario_file import ScenarioError, load_scenario, parse_scenario
from moonshim.simulator.model.scripted import ScriptedModel
from moonshim.simulator.request import SimTurn
from tests.simulator.conversing import HELLO, WEATHER, asked, converse, returned

ROOT = Path(__file__).parent.parent.parent
FOLDER = ROOT / "src" / "moonshim" / "simulator" / "model" / "scenarios"
WEATHER_FILE = ROOT / "examples" / "simulator" / "weather.toml"


def problems(text: str, suffix: str = ".toml") -> list[str]:
    with pytest.raises(ScenarioError) as caught:
        parse_scenario(dedent(text), suffix=suffix, source=f"s{suffix}")
    return caught.value.problems


class TestBuiltIn:
    def test_every_name_has_a_file_and_every_file_a_name(self) -> None:
        assert {file.stem for file in FOLDER.iterdir()} == set(BUILT_IN)

    @pytest.mark.parametrize("name", BUILT_IN)
    def test_it_is_what_the_table_says(self, name: str) -> None:
        scenario = load_scenario(name)
        assert (scenario.name, scenario.about) == (name, BUILT_IN[name])

    @pytest.mark.parametrize("name", BUILT_IN)
    def test_its_answer_has_every_result(self, name: str) -> None:
        for act in load_scenario(name).acts:
            assert "{results}" in act.answer.say + act.answer.think


class TestReading:
    def test_everything_that_can_be_said(self) -> None:
        text = """
            about = "all of it"
            [[round]]
            think = "t"
            say = "s ${HOME} {other}"
            when = "error"
            repeat = 3
            call = ["ls", { tool = ["a", "*"], count = 2, text = "ab", length = 5, optional = true }]
            [[round]]
            call = "ls"
            [[round]]
            [answer]
            say = "end"
            [no_tools]
            think = "none"
            """
        assert parse_scenario(dedent(text), name="all") == Scenario(
            name="all",
            about="all of it",
            acts=(
                Act(
                    rounds=(
                        PlannedRound(
                            think="t",
                            say="s ${HOME} {other}",
                            when="error",
                            repeat=3,
                            calls=(
                                PlannedCall(tools=("ls",)),
                                PlannedCall(tools=("a", ANY), count=2, text="ababa", optional=True),
                            ),
                        ),
                        PlannedRound(calls=(PlannedCall(tools=("ls",)),)),
                        PlannedRound(calls=(PlannedCall(),)),
                    ),
                    answer=PlannedAnswer(think="", say="end"),
                    no_tools=PlannedAnswer(think="none", say=""),
                ),
            ),
        )

    def test_json_says_the_same(self) -> None:
        toml = parse_scenario("[[round]]\ncall = [{tool = 'ls', arguments = {a = 1}}]\n[answer]\nsay = 'x'")
        json = '{"round": [{"call": [{"tool": "ls", "arguments": {"a": 1}}]}], "answer": {"say": "x"}} // so'
        assert parse_scenario(json, suffix=".json") == toml

    def test_nothing_at_all_is_an_answer(self) -> None:
        assert parse_scenario("").acts == (Act(),)

    def test_a_file_is_found_by_its_path(self, tmp_path: Path) -> None:
        file = tmp_path / "mine"
        file.write_text("about = 'mine'")
        assert load_scenario(file).about == "mine"
        assert load_scenario(str(file)).name == "mine"


class TestMistakes:
    def test_a_name_that_is_none_is_told_with_the_nearest(self) -> None:
        with pytest.raises(ScenarioError, match=r"unknown scenario 'five-round' \(did you mean 'five-rounds'\?\)"):
            load_scenario("five-round")
        with pytest.raises(ScenarioError, match=r"choose from one-call, parallel, .*, or give the path of a file"):
            load_scenario("xyz")

    def test_a_file_that_is_none_is_told(self, tmp_path: Path) -> None:
        with pytest.raises(ScenarioError, match=r"nowhere\.toml: No such file or directory"):
            load_scenario("nowhere.toml")
        with pytest.raises(ScenarioError, match="expected a file, got a folder"):
            load_scenario(tmp_path)

    def test_all_mistakes_are_told_at_once_each_with_its_line(self) -> None:
        text = """\
            abuot = "x"
            [[round]]
            repeat = 0
            when = "eror"
            say = "{resutls}"
            [[round]]
            call = [
              { tol = "ls" },
              5,
              { tool = [] },
              { tool = "ls", arguments = "[]" },
              { tool = "ls", arguments = { at = 2026-01-01 }, text = "x" },
            ]
            [answer]
            sya = "x"
            """
        assert problems(text) == [
            "s.toml:1: abuot: unknown key 'abuot' (did you mean 'about'?)",
            "s.toml:3: round[0].repeat: must be at least 1 and at most 1000",
            "s.toml:4: round[0].when: expected one of always, error, success (did you mean 'error'?)",
            "s.toml:5: round[0].say: unknown placeholder '{resutls}' (did you mean '{results}'?)",
            "s.toml:8: round[1].call[0].tol: unknown key 'tol' (did you mean 'tool'?)",
            "s.toml:9: round[1].call[1]: expected a table, got an integer",
            's.toml:10: round[1].call[2].tool: expected at least one tool name; use `"*"` for any tool',
            "s.toml:11: round[1].call[3].arguments: expected a string with a JSON object",
            "s.toml:12: round[1].call[4].text: only for generated arguments, but `arguments` is set",
            "s.toml:12: round[1].call[4].arguments.at: JSON does not support dates and times: write a string",
            "s.toml:15: answer.sya: unknown key 'sya' (did you mean 'say'?)",
        ]

    @pytest.mark.parametrize(
        ("text", "received"),
        [
            ("[[round]\n", "s.toml:1:8: Expected ']]' at the end of an array declaration"),
            ("[round]\nsay = 'x'", "s.toml:1: round: expected a list of tables (`[[round]]` in TOML), got a table"),
            ("[[round]]\ncall = []",
             "s.toml:2: round[0].call: expected at least one call; leave `call` out to call any tool"),
            ("[[round]]\ncall = 5",
             "s.toml:2: round[0].call: expected a tool name or a list of calls, got an integer"),
            ("[[round]]\ncall = ''", 's.toml:2: round[0].call: the tool name is empty; use `"*"` for any tool'),
            ("[[round]]\nsay = 5", "s.toml:2: round[0].say: expected a string, got an integer"),
            ("[answer]\n", "s.toml:1: answer: empty answer: set `say`"),
            ("[answer]\nsay = ''", "s.toml:1: answer: empty answer: set `say`"),
            ("[[turn]]\n", "s.toml:1: turn: unknown key 'turn'; write one `[[act]]` per user message"),
            ("answer.say = 'x'\n[[act]]\n",
             "s.toml:1: answer: this belongs in an act: move it below `[[act]]` as `act.answer`"),
            ("act = []", "s.toml:1: act: expected at least one act"),
            ("[[act]]\nanswr = 1", "s.toml:2: act[0].answr: unknown key 'answr' (did you mean 'answer'?)"),
            ("round = []", "s.toml:1: round: expected at least one round; leave `round` out to call nothing"),
            ("[[round]]\ncall = [{ tool = 'ls', length = 5 }]",
             "s.toml:2: round[0].call[0].length: requires `text`, which it repeats up to this length"),
            ("[[round]]\ncall = [{ arguments = '{\"a\": }' }]",
             "s.toml:2: round[0].call[0].arguments: not valid JSON: Expecting value: line 1 column 7 (char 6)"),
            ("[[round]]\ncall = [{ arguments = { a = [inf] } }]",
             "s.toml:2: round[0].call[0].arguments.a[0]: JSON does not support this number"),
            ("[[round]]\ncall = [{ count = 100 }, { count = 100 }]",
             "s.toml:2: round[0].call: expected at most 128 calls per round"),
            ("[[round]]\nrepeat = 600\n[[round]]\nrepeat = 600", "s.toml:1: round: expected at most 1000 rounds"),
        ],
    )  # fmt: skip
    def test_a_mistake_is_told(self, text: str, received: str) -> None:
        assert problems(text) == [received]

    def test_json_has_lines_too(self) -> None:
        assert problems('{\n "round": [\n  {"sy": 1}]}', ".json") == [
            "s.json:3: round[0].sy: unknown key 'sy' (did you mean 'say'?)"
        ]
        assert problems("[1]", ".json") == ["s.json: expected an object, got a list"]


class TestExample:
    """The scenario that teaches how to write one."""

    MODEL = ScriptedModel(load_scenario(str(WEATHER_FILE)))

    def test_it_plays_as_its_comments_say(self) -> None:
        answers, results = converse(self.MODEL)
        assert [[call.arguments for call in intended.calls] for intended in answers] == [
            ['{"city": "Paris", "days": 2}', '{"city":"Berlin", "days":null}'],
            ['{"city": "moonshim-3"}'],
            ['{"city": "moonshim-4"}'],
            [],
        ]
        assert answers[0].text == "Let me look."
        assert answers[-1].text == "You asked: Hello there\n\n" + "\n".join(results)

    def test_it_tries_again_after_an_error(self) -> None:
        first = self.MODEL.reply(asked())
        again = self.MODEL.reply(asked(HELLO, *returned(first, lambda call: "!no such city")))
        assert again.text == "Let me try again."
        assert "no such city" in again.reasoning

    def test_it_has_words_for_a_title_and_for_thanks(self) -> None:
        assert self.MODEL.reply(asked(tools=())).text == "The weather, from a script"
        thanks = [HELLO, SimTurn(role="assistant", text="Sunny"), SimTurn(role="user", text="Thanks!")]
        assert self.MODEL.reply(asked(*thanks, tools=[WEATHER])).text == "You are welcome."
