"""Qwen's XML: what is decided goes out at once, limits, and what was rendered is read back."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moonshim.engine.grammar.protocol import CallDelta, CallEnded, CallStarted, GrammarEvent, TextFound
from moonshim.engine.grammar.qwen_xml import QwenXmlGrammar
from moonshim.engine.grammar.shared.raw_values import HOLD_LIMIT, SPACE_LIMIT
from moonshim.engine.grammar.shared.tag_patterns import NAME_LIMIT
from tests.engine.grammar.family_runs import CUTS, SIZES, by_cuts, by_size, found_in, merged, run
from tests.engine.grammar.raw_text import FRAGMENTS, raw_grammar
from tests.support.looped import looped

OPEN, CLOSE = "<tool_call>\n<function=put>\n", "</function>\n</tool_call>"


def test_tags_are_words_where_reasoning_has_its_own_field() -> None:
    grammar = QwenXmlGrammar("text")
    grammar.tags_are_text = True
    assert grammar.tags_are_text
    found = grammar.feed("a <think>b</think> c</think>")
    assert "".join(one.text for one in found if isinstance(one, TextFound)) == "a <think>b</think> c"


PROMPT: dict[str, tuple[str, list[GrammarEvent], str]] = {
    "half a tag": ("Hi <tool_c", [TextFound("text", "Hi ")], "<tool_c"),
    "an invalid tag": ("Hi <tool_x", [TextFound("text", "Hi <tool_x")], ""),
    "a name": (OPEN, [CallStarted("text", "", "put")], ""),
    "half a string": (
        f"{OPEN}<parameter=text>\na\n",
        [CallStarted("text", "", "put"), CallDelta('{"text": "a')],
        "",
    ),
    "half an array": (
        f"{OPEN}<parameter=list>\n[1, ",
        [CallStarted("text", "", "put"), CallDelta('{"list": [1, ')],
        "",
    ),
    "a value that is over": (
        f"{OPEN}<parameter=count>\n1\n</parameter>\n</function>",
        [CallStarted("text", "", "put"), CallDelta('{"count": 1}'), CallEnded(closed=True)],
        "",
    ),
}


@looped("size", SIZES)
@pytest.mark.parametrize(("text", "expected", "held"), PROMPT.values(), ids=PROMPT.keys())
def test_what_is_decided_goes_out_at_once(text: str, expected: list[GrammarEvent], held: str, size: int) -> None:
    grammar = raw_grammar("qwen_xml")
    assert merged(one for piece in by_size(text, size) for one in grammar.feed(piece)) == expected
    assert grammar.held == held


@pytest.mark.parametrize("size", [5, 1000, 1_000_000])
class TestLimits:
    def test_a_name_that_is_too_long_is_text(self, size: int) -> None:
        for length, is_call in ((NAME_LIMIT, True), (NAME_LIMIT + 1, False)):
            found = run(raw_grammar("qwen_xml"), f"<tool_call><function={'x' * length}></function></tool_call>", size)
            assert (CallStarted("text", "", "x" * length) in found) is is_call

    def test_a_value_that_is_held_too_long_is_a_string(self, size: int) -> None:
        for key in ("count", "undeclared"):
            value = "[" + "1," * (HOLD_LIMIT // 2) + "1]" if key == "undeclared" else "7" * (HOLD_LIMIT + 1)
            found = run(raw_grammar("qwen_xml"), f"{OPEN}<parameter={key}>{value}</parameter>{CLOSE}", size)
            written = "".join(one.text for one in found if isinstance(one, CallDelta))
            assert json.loads(written) == {key: value}

    def test_too_much_white_space_is_text(self, size: int) -> None:
        space = " " * (SPACE_LIMIT + 1)
        text = f"<tool_call>{{}}<function=put>{CLOSE}"
        assert TextFound("text", space) not in run(raw_grammar("qwen_xml"), text.format(space[1:]), size)
        assert TextFound("text", space) in run(raw_grammar("qwen_xml"), text.format(space), size)


# -- properties --------------------------------------------------------------------------

SPEECH = st.lists(st.sampled_from(FRAGMENTS) | st.text(max_size=4), max_size=8).map("".join)
ARGUMENTS = st.fixed_dictionaries(
    {},
    optional={
        "text": SPEECH,
        "count": st.integers() | st.floats(allow_nan=False, allow_infinity=False),
        "flag": st.booleans(),
        "none": st.none(),
        "box": st.dictionaries(SPEECH, SPEECH | st.integers(), max_size=3),
        "list": st.lists(SPEECH | st.sampled_from(["</parameter>", "</function>", CLOSE]), max_size=3),
    },
)


def rendered(arguments: dict[str, Any]) -> str:
    inner = "".join(
        f"<parameter={key}>\n{value if isinstance(value, str) else json.dumps(value)}\n</parameter>\n"
        for key, value in arguments.items()
    )
    return f"{OPEN}{inner}{CLOSE}"


@given(SPEECH, st.lists(ARGUMENTS, max_size=3), CUTS)
def test_what_was_rendered_is_read_back(speech: str, calls: list[dict[str, Any]], cuts: list[int]) -> None:
    found = found_in(raw_grammar("qwen_xml"), by_cuts(speech + "\n".join(map(rendered, calls)), cuts))
    assert found[: bool(speech)] == [TextFound("text", speech)] * bool(speech)
    read = found[bool(speech) :]
    assert [type(one) for one in read] == [CallStarted, CallDelta, CallEnded] * len(calls)
    assert [json.loads(one.text) for one in read if isinstance(one, CallDelta)] == calls
