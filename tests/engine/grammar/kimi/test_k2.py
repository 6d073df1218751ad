"""The K2 grammar: sections, and every known way to lose a part of one, come out as speech and calls."""

from __future__ import annotations

import pytest

from moonshim.engine.grammar.kimi.k2 import HEADER_LIMIT, PROSE_LIMIT, KimiK2Grammar
from moonshim.engine.grammar.protocol import (
    CallDelta,
    CallEnded,
    CallLost,
    CallStarted,
    Channel,
    GrammarEvent,
    Notice,
    OrphanStarted,
    TextFound,
)
from moonshim.engine.values.options import ToolTokens
from tests.engine.grammar.family_runs import merged, run
from tests.support.looped import looped

SECTION, END_SECTION = "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"
ONE_SECTION, END_ONE_SECTION = "<|tool_call_section_begin|>", "<|tool_call_section_end|>"
CALL, ARGS, END = "<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>"
NAMES = frozenset({"ls", "read_file", "read"})
SIZES = (1, 2, 3, 7, 19, 100_000)


def say(text: str, channel: Channel = "text") -> TextFound:
    return TextFound(channel, text)


def whole(header: str, arguments: str = "{}", channel: Channel = "text", *, closed: bool = True) -> list[GrammarEvent]:
    """A call from its begin to its end."""
    return [CallStarted(channel, header), CallDelta(arguments), CallEnded(closed)]


def written(header: str, arguments: str = "{}") -> str:
    """A call as the model was taught to write it."""
    return f"{CALL}{header}{ARGS}{arguments}{END}"


LS, CAT = "functions.ls:0", "functions.cat:1"

FOUND: dict[str, tuple[str, list[GrammarEvent]]] = {
    "text without markers": ("Hello, world.", [say("Hello, world.")]),
    "nothing at all": ("", []),
    "one call in a section": (SECTION + written(LS) + END_SECTION, whole(LS)),
    "two calls in a section": (SECTION + written(LS) + written(CAT) + END_SECTION, whole(LS) + whole(CAT)),
    "two sections, text before, between and after": (
        f"a {SECTION}{written(LS)}{END_SECTION} b {SECTION}{written(CAT)}{END_SECTION} c",
        [say("a "), *whole(LS), say(" b "), *whole(CAT), say(" c")],
    ),
    "white space between markers vanishes": (
        f"{SECTION}\n {CALL} {LS} {ARGS} {{}} {END}\n\n{written(CAT)} \n{END_SECTION}",
        whole(LS) + whole(CAT),
    ),
    "other text in a section stays, with its white space": (
        f"{SECTION}\nfirst: {written(LS)} then {written(CAT)}{END_SECTION}",
        [say("\nfirst: "), *whole(LS), say(" then "), *whole(CAT)],
    ),
    "an empty section": (f"a{SECTION}{END_SECTION}b", [say("ab")]),
    "white space between two sections vanishes": (
        f"{SECTION}{written(LS)}{END_SECTION}\n{SECTION}{written(CAT)}{END_SECTION}",
        whole(LS) + whole(CAT),
    ),
    "white space behind the last section stays": (SECTION + written(LS) + END_SECTION + "\n", [*whole(LS), say("\n")]),
    "no section begin": (written(LS) + END_SECTION, whole(LS)),
    "no section end": (SECTION + written(LS), whole(LS)),
    "no call end before the section end": (f"{SECTION}{CALL}{LS}{ARGS}{{}}{END_SECTION}x", [*whole(LS), say("x")]),
    "no call end before the next call": (f"{CALL}{LS}{ARGS}{{}}{written(CAT)}", whole(LS) + whole(CAT)),
    "nothing closes the call, but its arguments are whole": (f"{CALL}{LS}{ARGS}{{}}", whole(LS)),
    "text behind a call that nothing closed": (f"{CALL}{LS}{ARGS}{{}} Done.", [*whole(LS), say(" Done.")]),
    "the singular section": (ONE_SECTION + written(LS) + END_ONE_SECTION, whole(LS)),
    "arguments that break off": (f'{CALL}{LS}{ARGS}{{"a": "b', whole(LS, '{"a": "b', closed=False)),
    "a call that breaks off before its arguments": (f"{CALL}{LS}{ARGS}", [CallStarted("text", LS), CallEnded(False)]),
    "a call without arguments": (f"{CALL}{LS}{ARGS}{END}", [CallStarted("text", LS), CallEnded(True)]),
    "a header without the arguments marker": (
        f"{CALL}{LS}{END}",
        [CallStarted("text", LS, opened=False), CallEnded(True)],
    ),
    "a header that another call follows": (
        f"{CALL}{LS}{written(CAT)}",
        [CallStarted("text", LS, opened=False), CallEnded(True), *whole(CAT)],
    ),
    "arguments right behind a clear header": (f"{CALL}{LS}{{}}{END}", whole(LS)),
    "a marker inside a string of the arguments": (
        written(LS, f'{{"a": "{END}{END_SECTION}"}}'),
        whole(LS, f'{{"a": "{END}{END_SECTION}"}}'),
    ),
    "an escaped quote before a marker inside a string": (
        written(LS, f'{{"a": "\\"{END}"}}'),
        whole(LS, f'{{"a": "\\"{END}"}}'),
    ),
    "a marker outside of strings ends the arguments": (
        f'{CALL}{LS}{ARGS}{{"a": {END}b',
        [*whole(LS, '{"a": '), say("b")],
    ),
    "a < outside of strings that is no marker": (written(LS, '{"a": <b>}'), whole(LS, '{"a": <b>}')),
    "words before the object are for the repair": (written(LS, 'null{"a": 1}'), whole(LS, 'null{"a": 1}')),
    "words instead of an object": (written(LS, "true"), whole(LS, "true")),
    "a second object is for the repair": (written(LS, "{} {}"), whole(LS, "{}{}")),
    "words between the object and the call's end": (written(LS, "{} ok"), whole(LS, "{} ok")),
    "words between the object and the section's end": (
        f"{SECTION}{CALL}{LS}{ARGS}{{}} ok{END_SECTION}",
        [*whole(LS), say(" ok")],
    ),
    "an arguments marker within the arguments": (
        f"{CALL}{LS}{ARGS}{ARGS}{{}}{END}",
        [CallStarted("text", LS), Notice("stray_marker", ARGS), CallDelta("{}"), CallEnded(True)],
    ),
    "an arguments marker before something that is no value": (f"a{ARGS}b", [say(f"a{ARGS}b")]),
    "a call end that belongs to nothing": (f"a{END}b", [say("a"), Notice("stray_marker", END), say("b")]),
    "think tags move text to the reasoning": (
        "<think>Hm.</think>Yes",
        [say("Hm.", "reasoning"), say("Yes")],
    ),
    "the other think tags": ("◁think▷Hm.◁/think▷Yes", [say("Hm.", "reasoning"), say("Yes")]),
    "a section inside an unclosed think": (
        f"<think>Hm. {SECTION}{written(LS)}{END_SECTION}",
        [say("Hm. ", "reasoning"), *whole(LS, channel="reasoning")],
    ),
    "an orphan closing tag": ("a</think>b", [say("a"), Notice("stray_marker", "</think>"), say("b")]),
    "an unfinished marker at the end is text": ("Hi <|tool_ca", [say("Hi <|tool_ca")]),
    "an unknown token is text": ("a <|im_end|> b", [say("a <|im_end|> b")]),
    "a header that never ends": (
        f"a{CALL}functions.l",
        [say("a"), CallLost("text", f"{CALL}functions.l", f"{CALL}functions.l")],
    ),
}


@looped("size", SIZES)
@pytest.mark.parametrize("case", FOUND)
def test_what_is_found_does_not_depend_on_the_chunking(case: str, size: int) -> None:
    text, found = FOUND[case]
    assert run(KimiK2Grammar("text"), text, size) == found


@pytest.mark.parametrize("words", ["null {}", "12 < 13", "two words"])
def test_words_instead_of_an_object_keep_the_white_space_between_them(words: str) -> None:
    found = [run(KimiK2Grammar("text"), written(LS, words), size) for size in SIZES]
    assert found == [whole(LS, words)] * len(SIZES)


def orphan(line: str) -> list[GrammarEvent]:
    """A call whose name, if it has one, has gone out as text."""
    return [OrphanStarted("text", line), CallDelta("{}"), CallEnded(True)]


BARE: dict[str, tuple[str, list[GrammarEvent]]] = {
    "a declared name with an index": (f"ls:0{ARGS}{{}}{END}", whole("ls:0")),
    "behind other words": (f"I call read_file:12{ARGS}{{}}{END}", [say("I call "), *whole("read_file:12")]),
    "with its prefix": (f"functions.ls:3{ARGS}{{}}{END}", whole("functions.ls:3")),
    "with a space before the marker": (f"ls:0 {ARGS}{{}}{END}", whole("ls:0")),
    "in a section": (f"{SECTION}ls:0{ARGS}{{}}{END}{END_SECTION}", whole("ls:0")),
    "behind a Chinese word": (f"调用ls:0{ARGS}{{}}{END}", [say("调用"), *whole("ls:0")]),
    "a name that is not declared": (
        f"rm:0{ARGS}{{}}",
        [say("rm:0"), *orphan("rm:0")],
    ),
    "a name without an index": (f"ls{ARGS}{{}}", [say("ls"), *orphan("ls")]),
    "in the middle of a word": (f"tools:0{ARGS}{{}}", [say("tools:0"), *orphan("tools:0")]),
    "without an arguments marker": ("ls:0 and read_file:1", [say("ls:0 and read_file:1")]),
    "at the end": ("call functions.read_file:12", [say("call functions.read_file:12")]),
}


@looped("size", SIZES)
@pytest.mark.parametrize("case", BARE)
def test_a_bare_header_is_held_only_if_its_name_is_declared(case: str, size: int) -> None:
    text, found = BARE[case]
    assert run(KimiK2Grammar("text", names=NAMES), text, size) == found


@pytest.mark.parametrize(
    ("names", "text", "said", "held"),
    [
        (None, "Hello", "Hello", ""),
        (None, "Hello <", "Hello ", "<"),
        (None, "a <|tool_call_argument_begin|", "a ", "<|tool_call_argument_begin|"),
        (None, "a <|toll", "a <|toll", ""),
        (None, "functions.ls:0", "functions.ls:0", ""),
        (NAMES, "I read", "I ", "read"),
        (NAMES, "I ready", "I ready", ""),
        (NAMES, "see functions.read_f", "see ", "functions.read_f"),
        (NAMES, "ls:12", "", "ls:12"),
        (NAMES, "tools", "tools", ""),
    ],
)
def test_only_what_may_become_a_marker_or_a_bare_header_is_held(
    names: frozenset[str] | None, text: str, said: str, held: str
) -> None:
    grammar = KimiK2Grammar("text", names=names)
    assert merged(grammar.feed(text)) == ([say(said)] if said else [])
    assert grammar.held == held


def test_a_header_goes_out_with_the_arguments_marker_and_arguments_as_they_come() -> None:
    grammar = KimiK2Grammar("text")
    assert grammar.feed(CALL + LS) == []
    assert grammar.feed(ARGS) == [CallStarted("text", LS)]
    assert grammar.feed('{"a') == [CallDelta('{"a')]
    assert grammar.feed('": "x') == [CallDelta('": "x')]
    assert grammar.feed(" y") == [CallDelta(" y")]
    assert grammar.feed('"}') == [CallDelta('"}')]
    assert grammar.feed(END) == [CallEnded(True)]


def test_nothing_of_an_open_call_is_held_as_text() -> None:
    grammar = KimiK2Grammar("text")
    grammar.feed(CALL + LS + ARGS + '{"a": <|tool')
    assert grammar.held == ""


@looped("size", SIZES)
def test_without_calls_only_the_think_tags_are_read(size: int) -> None:
    text = f"<think>Hm.</think>{SECTION}{written(LS)}{END_SECTION}"
    grammar = KimiK2Grammar("text", names=NAMES, calls=False)
    assert run(grammar, text, size) == [say("Hm.", "reasoning"), say(f"{SECTION}{written(LS)}{END_SECTION}")]


@looped("size", SIZES)
def test_where_reasoning_has_a_field_of_its_own_think_tags_are_words(size: int) -> None:
    grammar = KimiK2Grammar("text")
    grammar.tags_are_text = True
    assert run(grammar, "Write <think>so</think>.</think>", size) == [
        say("Write <think>so</think>."),
        Notice("stray_marker", "</think>"),
    ]


@looped("size", SIZES)
def test_in_reasoning_everything_stays_reasoning(size: int) -> None:
    text = f"Hm.{SECTION}{written(LS)}{END_SECTION} So."
    found = run(KimiK2Grammar("reasoning"), text, size)
    assert found == [say("Hm.", "reasoning"), *whole(LS, channel="reasoning"), say(" So.", "reasoning")]


@looped("size", SIZES)
def test_markers_can_be_others_and_the_rest_keep_their_text(size: int) -> None:
    tokens = ToolTokens(call_begin="[[", arg_begin="((", call_end="~~")
    text = f"a {SECTION}[[{LS}(({{}}~~{END_SECTION} b {CALL}"
    assert run(KimiK2Grammar("text", tokens=tokens), text, size) == [say("a "), *whole(LS), say(f" b {CALL}")]


@looped("size", SIZES)
def test_a_header_over_the_limit_is_lost(size: int) -> None:
    header = "x" * (HEADER_LIMIT + 1)
    found = run(KimiK2Grammar("text"), f"{CALL}{header} and more", size)
    assert found == [CallLost("text", CALL + header, CALL + header), say(" and more")]


@looped("size", SIZES)
def test_text_behind_the_arguments_waits_no_longer_than_its_limit(size: int) -> None:
    text = " and" * (PROSE_LIMIT // 2)
    assert run(KimiK2Grammar("text"), f"{CALL}{LS}{ARGS}{{}}{text}", size) == [*whole(LS), say(text)]


def test_after_a_flush_the_grammar_reads_on_as_new() -> None:
    grammar = KimiK2Grammar("text", names=NAMES)
    grammar.feed(f'{CALL}{LS}{ARGS}{{"a')
    grammar.flush()
    assert run(grammar, f"b{written(CAT)}") == [say("b"), *whole(CAT)]


def test_every_text_that_means_something_is_named() -> None:
    grammar = KimiK2Grammar("text", tokens=ToolTokens(call_end="~~"))
    assert {SECTION, END_SECTION, ONE_SECTION, END_ONE_SECTION, CALL, ARGS, "~~", "<think>"} <= set(grammar.markers)
    assert END not in grammar.markers
