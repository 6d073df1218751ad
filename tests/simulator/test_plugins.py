"""Fake models in Python: found, made, asked; and what is told when something is wrong with one."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from moonshim.errors import problem_of
from moonshim.simulator.model.plugins import ModelFailed, PluginError, load_model
from moonshim.simulator.request import OfferedTool, SimResult, SimTurn
from moonshim.simulator.response import IntendedResponse
from tests.simulator.conversing import asked, converse

ROOT = Path(__file__).resolve().parents[2]
PARROT = f"{ROOT}/examples/simulator/parrot.py:Parrot"


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of models, in the current folder."""
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "models.py"
    file.write_text(
        dedent('''
        """Models, good and bad."""
        from dataclasses import dataclass
        from enum import Enum
        from moonshim.simulator import IntendedResponse, IntendedCall

        @dataclass
        class Good:
            said: str = "hello"

            def reply(self, question):
                return IntendedResponse(text=self.said, calls=[IntendedCall("ls", "{}")])

        class NeedsMore:
            def __init__(self, what): ...

        class Silent:
            pass

        made = Good("made")
        number = 5

        def function(question):
            return IntendedResponse(text=question.words)

        def text(question): return "hello"
        def nothing(question): pass
        def list_of_calls(question): return IntendedResponse(calls=[("ls", "{}")])
        def one_call(question): return IntendedResponse(calls=IntendedCall("ls", "{}"))
        def object_arguments(question): return IntendedResponse(calls=(IntendedCall("ls", {"path": "."}),))
        def no_name(question): return IntendedResponse(calls=(IntendedCall(None, "{}"),))
        def no_text(question): return IntendedResponse(text=None)
        def raises(question): return 1 / 0
        class Word(str, Enum):
            HI = "hello"
        def enumerates(question): return IntendedResponse(text=Word.HI, calls=(IntendedCall(Word.HI, "{}"),))
        def exits(question): raise SystemExit(3)
        def gives_up(question): raise GeneratorExit
        def no_arguments(): return IntendedResponse(text="x")
        async def later(question): return IntendedResponse(text="x")
        ''')
    )
    return file


@pytest.mark.parametrize(("name", "text"), [("Good", "hello"), ("made", "made"), ("function", "Hello there")])
def test_a_class_an_object_and_a_function_are_models(written: Path, name: str, text: str) -> None:
    assert load_model(f"models.py:{name}").reply(asked()).text == text
    assert load_model(f"{written}:{name}").reply(asked()).text == text


def test_a_list_of_calls_is_as_good_as_a_tuple(written: Path) -> None:
    assert isinstance(load_model("models.py:Good").reply(asked()).calls, tuple)


def test_a_text_of_another_type_is_a_text(written: Path) -> None:
    intended = load_model("models.py:enumerates").reply(asked())
    assert [type(text) for text in (intended.text, intended.calls[0].name)] == [str, str]
    assert intended.text == "hello"


def test_a_model_in_a_module_is_found(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written.rename(written.parent / "installed_models.py")
    monkeypatch.syspath_prepend(str(written.parent))
    assert load_model("installed_models:function").reply(asked()) == IntendedResponse(text="Hello there")


def test_a_file_is_read_anew_each_time(written: Path) -> None:
    load_model("models.py:function")
    written.write_text(
        "from moonshim.simulator import IntendedResponse\ndef function(question): return IntendedResponse(text='new')"
    )
    assert load_model("models.py:function").reply(asked()).text == "new"


@pytest.mark.parametrize(
    ("place", "received"),
    [
        ("models.py", "missing name of the model; write it after a colon: `models.py:Name`"),
        (":Good", "missing name of the model"),
        ("nowhere.py:Good", "file nowhere.py not found"),
        ("models:Good", "module 'models' not found; did you mean the file models.py?"),
        ("no.such.module:Good", "module 'no.such.module' not found"),
        ("models.py:Godo", "'Godo' not found (did you mean 'Good'?)"),
        ("models.py:NeedsMore", "cannot create model models.py:NeedsMore: TypeError: "),
        (
            "models.py:Silent",
            "expected a class with a method `reply`, an object that has one, or a function, got Silent",
        ),
        ("models.py:number", "got int"),
    ],
)
def test_what_cannot_be_loaded_is_told(written: Path, place: str, received: str) -> None:
    with pytest.raises(PluginError) as caught:
        load_model(place)
    assert received in str(caught.value)


@pytest.mark.parametrize(
    ("text", "received"),
    [
        ("import nothing_like_this", "ModuleNotFoundError: No module named 'nothing_like_this'"),
        ("\n\nraise ValueError('bad day')", "ValueError: bad day (" + "{file}:3)"),
        ("\ndef f(:", "SyntaxError: invalid syntax ({file}:2)"),
        ("raise SystemExit(0)", "SystemExit"),
    ],
)
def test_a_file_that_fails_is_told(written: Path, text: str, received: str) -> None:
    written.write_text(text)
    with pytest.raises(PluginError) as caught:
        load_model("models.py:f")
    assert received.replace("{file}", str(written)) in str(caught.value)


@pytest.mark.parametrize(
    ("name", "received"),
    [
        ("text", "returned a string: return `IntendedResponse(text=…)`"),
        ("nothing", "returned NoneType instead of an IntendedResponse"),
        ("list_of_calls", "returned a call that is tuple instead of an IntendedCall"),
        ("one_call", "whose `calls` is IntendedCall instead of a tuple"),
        ("object_arguments", "whose `arguments` is dict instead of a JSON string"),
        ("no_name", "whose `name` is NoneType"),
        ("no_text", "whose `text` is NoneType instead of a string"),
        ("raises", "raised ZeroDivisionError: division by zero ("),
        ("exits", "raised SystemExit: 3 ("),
        ("gives_up", "raised GeneratorExit"),
        ("no_arguments", "raised TypeError: "),
        ("later", "is asynchronous"),
    ],
)
def test_a_wrong_answer_is_told_when_it_comes(written: Path, name: str, received: str) -> None:
    model = load_model(f"models.py:{name}")
    with pytest.raises(ModelFailed) as caught:
        model.reply(asked())
    assert str(caught.value).startswith(f"model models.py:{name} ")
    assert received in str(caught.value)
    assert problem_of(caught.value).status == 500


class TestParrot:
    """The example."""

    LS = OfferedTool("ls")

    def test_it_repeats_what_it_is_told(self) -> None:
        assert load_model(PARROT).reply(asked(tools=[self.LS])).text == "Hello there"

    def test_it_calls_what_it_is_told_to_call(self) -> None:
        order = SimTurn(role="user", text='Please call ls {"path": "."}')
        answers, _ = converse(load_model(PARROT), order, tools=[self.LS], work=lambda call: call.arguments)
        assert [(call.name, call.arguments) for call in answers[0].calls] == [("ls", '{"path": "."}')]
        assert answers[-1].text == 'It said: {"path": "."}'

    def test_it_calls_only_what_is_offered(self) -> None:
        assert load_model(PARROT).reply(asked(SimTurn(role="user", text="call rm"), tools=[self.LS])).calls == ()

    def test_everything_it_knows_is_in_the_question(self) -> None:
        result = SimTurn(role="tool", results=(SimResult("a", "ls", "README.md"),))
        assert load_model(PARROT).reply(asked(SimTurn(role="user", text="x"), result)).text == "It said: README.md"
