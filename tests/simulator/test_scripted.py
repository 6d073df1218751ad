"""The scripted model: it plays its scenario through, loses nothing, and does what a client demands."""

from __future__ import annotations

import json
from textwrap import dedent
from typing import Any

import pytest

from moonshim.simulator.model.scenario import BUILT_IN
from moonshim.simulator.model.scenario_file import parse_scenario
from moonshim.simulator.model.scripted import ScriptedModel
from moonshim.simulator.request import OfferedTool, SimCall, SimResult, SimTurn
from tests.simulator.conversing import HELLO, WEATHER, asked, converse, returned, scripted

ONE_CALL = scripted("one-call")


def playing(text: str) -> ScriptedModel:
    return ScriptedModel(parse_scenario(dedent(text)))


class TestBuiltIn:
    @pytest.mark.parametrize("name", BUILT_IN)
    def test_everything_that_tools_returned_is_in_the_end(self, name: str) -> None:
        answers, results = converse(scripted(name))
        end = answers[-1].text + answers[-1].reasoning
        assert all(result in end for result in results)
        assert all(json.loads(call.arguments).keys() == {"city"} for intended in answers for call in intended.calls)

    @pytest.mark.parametrize(
        ("name", "calls"),
        [
            ("one-call", [1, 0]),
            ("parallel", [3, 0]),
            ("five-rounds", [1, 2, 1, 2, 1, 0]),
            ("eight-rounds", [1] * 8 + [0]),
            ("web-search", [1, 0]),
            ("text-only", [0]),
            ("long-answer", [0]),
            ("think-only", [1, 0]),
            ("unicode", [3, 0]),
            ("typed-arguments", [1, 0]),
            ("big-arguments", [1, 0]),
        ],
    )
    def test_it_has_its_rounds(self, name: str, calls: list[int]) -> None:
        answers, _ = converse(scripted(name))
        assert [len(intended.calls) for intended in answers] == calls
        assert all(intended.reasoning for intended in answers)

    def test_no_two_calls_are_the_same(self) -> None:
        answers, _ = converse(scripted("eight-rounds"))
        assert len({call.arguments for intended in answers for call in intended.calls}) == 8

    def test_big_arguments_are_big_and_a_long_answer_is_long(self) -> None:
        answers, _ = converse(scripted("big-arguments"))
        assert len(answers[0].calls[0].arguments) > 40_000
        (answer,), _ = converse(scripted("long-answer"))
        assert len(answer.text.split()) > 250

    def test_typed_arguments_have_every_type(self) -> None:
        schema = {
            "type": "object",
            "properties": {
                "count": {"type": "integer"},
                "share": {"type": "number"},
                "deep": {"type": "object", "properties": {"flag": {"type": "boolean"}}},
                "none": {"type": ["string", "null"]},
                "list": {"type": "array", "items": {"type": "string"}},
            },
        }
        answers, _ = converse(scripted("typed-arguments"), tools=[OfferedTool("record", "", schema)])
        assert json.loads(answers[0].calls[0].arguments) == {
            "count": 1,
            "share": 1.5,
            "deep": {"flag": True},
            "none": None,
            "list": ["moonshim-1"],
        }

    def test_unicode_arguments_are_written_as_they_are(self) -> None:
        answers, _ = converse(scripted("unicode"))
        written = "".join(call.arguments for call in answers[0].calls)
        for hard in ("北京 🌧️", "<|tool_call_begin|", "👨‍👩‍👧‍👦", r"\"", r"\\n", r"\n", r"\t"):
            assert hard in written
        assert answers[0].text == "我来看一下 👀"


class TestWords:
    def test_without_tools_it_says_plainly_what_it_is(self) -> None:
        intended = ONE_CALL.reply(asked(tools=()))
        assert "not a model" in intended.text
        assert "Hello there" in intended.text
        assert not intended.calls

    def test_a_title_is_short_and_repeats_what_was_said(self) -> None:
        system = SimTurn(role="system", text="Generate a title for this conversation.")
        words = "Please help me to find out why the tests of my project fail since yesterday, and mend them"
        intended = ONE_CALL.reply(asked(system, SimTurn(role="user", text=words), tools=()))
        assert intended.text == "Please help me to find out why the tests of my project…"

    def test_the_asides_of_an_agent_are_not_the_users_words(self) -> None:
        text = "<system-reminder>\nToday is Sunday in Rome.\n</system-reminder>\nHow is the weather in Oslo?"
        intended = ONE_CALL.reply(asked(SimTurn(role="user", text=text)))
        assert intended.calls[0].arguments == '{"city": "Oslo"}'

    def test_who_is_not_to_think_does_not(self) -> None:
        answers, _ = converse(ONE_CALL, thinking=False)
        assert not any(intended.reasoning for intended in answers)
        (answer,), _ = converse(scripted("think-only"), tools=(), thinking=False)
        assert answer.reasoning == ""
        assert "Hello there" in answer.text

    def test_an_empty_result_is_told_as_one(self) -> None:
        answers, _ = converse(ONE_CALL, work=lambda call: "")
        assert answers[-1].text == "Here is what came back: (nothing)"

    def test_what_a_tool_returned_is_not_read_as_a_scenario(self) -> None:
        answers, _ = converse(ONE_CALL, work=lambda call: "{user} {results}")
        assert answers[-1].text == "Here is what came back: {user} {results}"

    def test_half_a_character_can_be_sent(self) -> None:
        intended = ONE_CALL.reply(asked(SimTurn(role="user", text="half \ud83d"), tools=()))
        assert intended.text.encode()

    @pytest.mark.parametrize(
        "body",
        [
            {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": WEATHER.schema}}},
            {"output_config": {"format": {"type": "json_schema", "schema": WEATHER.schema}}},
        ],
    )
    def test_an_answer_is_json_where_a_schema_asks_for_it(self, body: Any) -> None:
        answers, (result,) = converse(ONE_CALL, body=body)
        assert json.loads(answers[-1].text) == {"city": f"Here is what came back: {result}"}

    def test_an_answer_is_an_object_where_any_will_do(self) -> None:
        answers, (result,) = converse(ONE_CALL, body={"response_format": {"type": "json_object"}})
        assert result in json.loads(answers[-1].text)["answer"]


class TestConversation:
    def test_each_message_begins_anew(self) -> None:
        first, _ = converse(ONE_CALL)
        reply = [HELLO, *returned(first[0], lambda call: "old"), SimTurn(role="assistant", text="old"), HELLO]
        answers, (result,) = converse(ONE_CALL, *reply)
        assert [len(intended.calls) for intended in answers] == [1, 0]
        assert answers[-1].text == f"Here is what came back: {result}"

    def test_words_behind_results_are_no_new_message(self) -> None:
        """Agents remind of things there; a model that called again each time would never end."""
        call = ONE_CALL.reply(asked())
        reply = [HELLO, *returned(call, lambda made: "Rain"), SimTurn(role="user", text="Remember to be kind.")]
        assert ONE_CALL.reply(asked(*reply)).text == "Here is what came back: Rain"

    def test_several_messages_at_once_are_one(self) -> None:
        context = SimTurn(role="user", text="<environment_context>\n<cwd>/tmp</cwd>\n</environment_context>")
        intended = ONE_CALL.reply(asked(context, SimTurn(role="user", text="How is Oslo today?")))
        assert intended.calls[0].arguments == '{"city": "Oslo"}'

    def test_each_act_serves_a_message_and_the_last_all_others(self) -> None:
        model = playing("[[act]]\nanswer.say = 'one'\n[[act]]\nanswer.say = 'two'")
        turns = [HELLO]
        for expected in ("one", "two", "two"):
            assert model.reply(asked(*turns)).text == expected
            turns += [SimTurn(role="assistant", text=expected), HELLO]

    def test_rounds_that_wait_for_an_error_are_played_after_one_only(self) -> None:
        model = playing("""
            [[round]]
            say = "first"
            [[round]]
            when = "error"
            say = "again"
            [[round]]
            when = "success"
            say = "more"
            """)
        failing = iter(["!no", "fine", "fine", "fine"])
        answers, _ = converse(model, work=lambda call: next(failing))
        assert [intended.text for intended in answers[:-1]] == ["first", "again", "more"]
        answers, _ = converse(model, work=lambda call: "fine")
        assert [intended.text for intended in answers[:-1]] == ["first", "more"]
        answers, _ = converse(model, work=lambda call: "Error: no such city")
        assert [intended.text for intended in answers[:-1]] == ["first", "again"]

    def test_texts_know_the_round_and_the_last_result(self) -> None:
        model = playing("[[round]]\nrepeat = 3\nthink = 'Round {round} after {result}.'\n")
        answers, _ = converse(model, work=lambda call: call.arguments)
        assert [intended.reasoning for intended in answers[:-1]] == [
            "Round 1 after .",
            'Round 2 after {"city": "moonshim-1"}.',
            'Round 3 after {"city": "moonshim-2"}.',
        ]


class TestTools:
    def test_arguments_are_sent_exactly(self) -> None:
        model = playing("""
            [[round]]
            call = [
              { tool = "get_weather", arguments = '{ "city":"Oslo","n": 1.0 , "u": null}' },
              { tool = "get_weather", arguments = { city = "Rom", deep = [{ a = true }] } },
            ]
            """)
        first, second = model.reply(asked()).calls
        assert first.arguments == '{ "city":"Oslo","n": 1.0 , "u": null}'
        assert second.arguments == '{"city": "Rom", "deep": [{"a": true}]}'

    def test_the_first_of_several_tools_that_is_offered_is_called(self) -> None:
        model = playing('[[round]]\ncall = [{ tool = ["shell", "get_weather", "*"] }]')
        assert model.reply(asked()).calls[0].name == "get_weather"
        assert model.reply(asked(tools=[OfferedTool("other")])).calls[0].name == "other"

    def test_a_tool_that_is_not_offered_is_told_and_the_rest_goes_on(self) -> None:
        model = playing('[[round]]\ncall = "fly"\n[[round]]\ncall = ["get_weather", "swim"]')
        answers, (result,) = converse(model)
        assert [[call.name for call in intended.calls] for intended in answers] == [["get_weather"], []]
        assert result in answers[-1].text
        assert "The scenario calls `fly`, `swim`, but the request offers only `get_weather`." in answers[-1].text

    def test_nothing_is_called_when_nothing_fits(self) -> None:
        (answer,), _ = converse(playing('[[round]]\ncall = "fly"'))
        assert answer.text == "The scenario calls `fly`, but the request offers only `get_weather`."

    def test_what_changes_things_is_called_only_by_name(self) -> None:
        tools = [OfferedTool("Write"), OfferedTool("Task"), OfferedTool("WebFetch")]
        (answer,), _ = converse(ONE_CALL, SimTurn(role="user", text="Write a file"), tools=tools)
        assert "calls none of these tools unless a scenario names them: `Write`, `Task`, `WebFetch`" in answer.text
        assert playing('[[round]]\ncall = "Write"').reply(asked(tools=tools)).calls[0].name == "Write"

    @pytest.mark.parametrize(
        ("names", "words", "called"),
        [
            (["Task", "Bash", "Read"], "Hello", "Bash"),
            (["Task", "Bash", "Read"], "Please read notes.md", "Read"),
            (["apply_patch", "update_plan", "exec_command"], "Hello", "exec_command"),
            (["edit", "glob", "list"], "Hello", "list"),
            (["lookup", "get_time"], "Hello", "lookup"),
            (["lookup", "get_time"], "Use get_time, please", "get_time"),
            (["final_result", "lookup"], "Hello", "lookup"),
        ],
    )
    def test_any_tool_is_the_one_that_fits_best(self, names: list[str], words: str, called: str) -> None:
        sim_request = asked(SimTurn(role="user", text=words), tools=[OfferedTool(name) for name in names])
        assert ONE_CALL.reply(sim_request).calls[0].name == called


class TestToolChoice:
    def test_none_is_answered_in_words(self) -> None:
        assert not ONE_CALL.reply(asked(tool_choice="none")).calls

    @pytest.mark.parametrize("choice", ["required", "get_weather"])
    def test_a_call_is_made_where_the_scenario_would_answer_and_the_loop_ends(self, choice: str) -> None:
        answers, (result,) = converse(scripted("text-only"), tool_choice=choice)
        assert [len(intended.calls) for intended in answers] == [1, 0]
        assert result in answers[-1].text

    def test_the_tool_that_is_named_is_called(self) -> None:
        tools = [OfferedTool("Bash"), OfferedTool("Write"), WEATHER]
        for name in ("get_weather", "Write"):
            (call,) = ONE_CALL.reply(asked(tools=tools, tool_choice=name)).calls
            assert call.name == name

    def test_what_is_required_may_also_be_a_tool_that_changes_things(self) -> None:
        (call,) = ONE_CALL.reply(asked(tools=[OfferedTool("Write")], tool_choice="required")).calls
        assert call.name == "Write"

    def test_who_wants_calls_only_gets_the_answer_through_one(self) -> None:
        final = OfferedTool("final_result", "", {"properties": {"text": {"type": "string"}}, "required": ["text"]})
        tools = [WEATHER, final]
        first = ONE_CALL.reply(asked(tools=tools, tool_choice="required"))
        assert [call.name for call in first.calls] == ["get_weather"]
        reply = [HELLO, *returned(first, lambda call: "Rain")]
        (last,) = ONE_CALL.reply(asked(*reply, tools=tools, tool_choice="required")).calls
        assert last.name == "final_result"
        assert json.loads(last.arguments) == {"text": "Here is what came back: Rain"}


def test_the_same_question_gets_the_same_answer() -> None:
    sim_request = asked(HELLO, SimTurn(role="assistant", calls=(SimCall("a", "get_weather", "{}"),)),
                     SimTurn(role="tool", results=(SimResult("a", "get_weather", "x"),)))  # fmt: skip
    assert ONE_CALL.reply(sim_request) == ONE_CALL.reply(sim_request)
