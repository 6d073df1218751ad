"""How hosts send arguments that the model meant otherwise."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moonshim.simulator.faults.arguments import FAULTS
from moonshim.simulator.response import HostResponse
from tests.simulator.faults.answers import LS, PARIS, answer_to, apply_speech, by_name, sim_request

ROWS = by_name(FAULTS)


def arguments_after(name: str, *arguments: str) -> list[str]:
    answer = answer_to(sim_request(), *(("Bash", given) for given in arguments))
    return [call.arguments for call in apply_speech(ROWS[f"arguments-{name}"], answer).calls]


@pytest.mark.parametrize(
    ("name", "intended", "sent"),
    [
        ("encoded-twice", '{"city": "Köln"}', r'"{\"city\": \"Köln\"}"'),
        ("nested-encoded", '{"todos": [{"title": "a"}], "n": 1}', r'{"todos":"[{\"title\":\"a\"}]","n":1}'),
        ("nested-encoded", '{"n": 1}', '{"n": 1}'),
        ("raw-controls", r'{"a": "1\n2\t3\u0001", "b\n": "\\n"}', '{"a": "1\n2\t3\x01", "b\n": "\\\\n"}'),
        ("odd-escapes", r'{"a": "\\d \\x1b \\v \\n \\\\d \\"}', r'{"a": "\d \x1b \v \\n \\\d \\"}'),
        ("odd-escapes", r'{"path": "C:\\"}', r'{"path": "C:\\"}'),
        ("trailing-brace", '{"a": 1}', '{"a": 1}}'),
        ("trailing-junk", '{"a": 1}', '{"a": 1} "}} <|im_end|>'),
        ("twice", '{"a": 1}', '{"a": 1}{"a": 1}'),
        ("behind-empty", '{"a": 1}', '{}{"a": 1}'),
        ("listed", '{"a": [1]}', '[{"a": [1]}]'),
        ("pairs", '{"a": {"b": 1}}', '"a": {"b": 1}'),
        ("pairs", "{}", ""),
        ("values", '{"a": 1, "b": "c"}', '[1,"c"]'),
        ("values", "{}", "{}"),
        ("lost", '{"a": 1}', ""),
        ("empty", "{ }", ""),
        ("empty", '{"a": 1}', '{"a": 1}'),
        ("unclosed", '{"a": {"b": 1}}\n', '{"a": {"b": 1}'),
        ("garbage", '{"a": 1}', '{"filePath":": [.'),
    ],
)
def test_arguments_are_sent_otherwise(name: str, intended: str, sent: str) -> None:
    assert arguments_after(name, intended) == [sent]


def test_the_last_call_is_cut_off_and_the_others_are_whole() -> None:
    fault = ROWS["arguments-cut-off"]
    answer = apply_speech(fault, answer_to(sim_request(), PARIS, LS))
    assert [call.arguments for call in answer.calls] == ['{"city": "Paris"}', '{"comman']
    assert answer.finish == "length"
    assert fault.fatal


def test_what_cannot_be_mended_is_marked_so() -> None:
    assert {name for name, fault in ROWS.items() if fault.fatal} == {
        "arguments-cut-off",
        "arguments-garbage",
        "arguments-lost",
        "arguments-values",
    }


@given(st.dictionaries(st.text(), st.one_of(st.text(), st.lists(st.text()), st.integers())))
def test_control_characters_in_strings_mean_the_same_to_a_reader_that_allows_them(given: dict[str, object]) -> None:
    (sent,) = arguments_after("raw-controls", json.dumps(given))
    assert json.loads(sent, strict=False) == given


@given(st.text(alphabet='\\"nvxd /\n'))
def test_backslashes_that_are_not_doubled_mean_the_same_when_they_are(text: str) -> None:
    (sent,) = arguments_after("odd-escapes", json.dumps({"a": text}))
    doubled, at = "", 0
    while at < len(sent):
        pair = sent[at : at + 2]
        lone = pair.startswith("\\") and pair[1:] not in '"\\/bfnrtu'
        doubled += "\\\\" if lone else pair if pair.startswith("\\") else sent[at]
        at += 1 if lone or not pair.startswith("\\") else 2
    assert json.loads(doubled) == {"a": text}


def test_identity_and_text_stay_as_they_are() -> None:
    answer = answer_to(sim_request(), PARIS, LS)
    for fault in FAULTS:
        reply: HostResponse = apply_speech(fault, answer)
        assert [(call.id, call.name) for call in reply.calls] == [(call.id, call.name) for call in answer.calls]
        assert (reply.text, reply.reasoning) == (answer.text, answer.reasoning)
