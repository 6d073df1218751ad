"""Texts of a request and a call that repeats one of them: found in any spelling, with linear work."""

from __future__ import annotations

import pytest

from moonshim.engine.grammar.kimi import quotations
from moonshim.engine.grammar.kimi.quotations import QuotationMatch, normalize, quotations_in

_K3 = '<|open|>call tool="list_files" index="1"<|sep|><|close|>call<|sep|>'


@pytest.mark.parametrize(
    "unit", ['a\\"\\"b ', 'a\\\\"-b ', "a--b ", "x\\u003cy ", "a&amp;b ", "a\\n> b\n", "e\u0301\u200b- "]
)
def test_the_work_is_linear_in_the_call(unit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    read = 0

    def count(text: str) -> str:
        nonlocal read
        read += len(text)
        return normalize(text)

    monkeypatch.setattr(quotations, "normalize", count)
    arguments = f'{{"command": "{unit * 400}"}}'
    found = quotations_in([f"<|tool_call_argument_begin|>{arguments}<|tool_call_end|>"])
    assert found is not None
    match, read = QuotationMatch(found), 0
    for character in arguments:
        match.feed(character)
        assert match.may_match
    assert read < 25 * len(arguments)


def test_a_call_of_k3_without_arguments_is_found_by_its_name() -> None:
    found = quotations_in([f"The log says: {_K3}"])
    assert found is not None
    assert found.contains("list_files", "{}")
    assert not found.contains("delete_files", "{}")
    assert not found.contains("files", "{}")


def test_the_header_of_a_call_with_arguments_is_no_call_without_them() -> None:
    found = quotations_in([_K3.replace("<|close|>", '<|open|>argument key="path" type="string"<|sep|>/<|close|>', 1)])
    assert found is not None
    assert not found.contains("list_files", "{}")


@pytest.mark.parametrize(
    "text", ["\ufeffNotes.", "\x1b[32mok\x1b[0m", "100%7Cx", "&#124; a &#124;", "\\u007c", "\uff5c"]
)
def test_a_text_without_a_marker_is_none_whatever_is_in_it(text: str) -> None:
    assert quotations_in([text]) is None
