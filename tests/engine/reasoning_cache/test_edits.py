"""What clients do to a conversation, and what is found of its thoughts afterwards: in every dialect."""

from __future__ import annotations

from typing import Any, Final

import pytest
from msgspec.structs import replace

from tests.engine.reasoning_cache.clients import DIALECTS, Memory, Step, Style, asked_of

CONVERSATION: Final = (
    Step("What is in a.txt?", "Let me look.", (("read", '{"path": "a.txt", "n": 1}'),), ("apples",), "t0"),
    Step("", "And the other.", (("read", '{"path": "b.txt", "n": 1}'), ("ls", "{}")), ("pears", "a.txt b.txt"), "t1"),
    Step("", "Fruit.", thought="t2"),
    Step("Which is redder?", "", (("weigh", '{"red": true, "by": {"x": 1, "a": 2}}'),), ("0.7",), "t3"),
    Step("", "", (("weigh", '{"red": false, "by": {}}'),), ("0.2",), "t4"),
    Step("", "Apples are.", thought="t5"),
    Step("Thanks!", "You are welcome.", thought="t6"),
)
THOUGHTS: Final = [step.thought for step in CONVERSATION]
LAST: Final = len(CONVERSATION)


def changed(place: int, **fields: Any) -> tuple[Step, ...]:
    """The conversation with one step otherwise."""
    return (*CONVERSATION[:place], replace(CONVERSATION[place], **fields), *CONVERSATION[place + 1 :])


def known(*places: int, of: int = LAST) -> list[str | None]:
    return [f"t{n}" if n in places else None for n in range(of)]


@pytest.fixture(params=DIALECTS)
def dialect(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def memory(dialect: str) -> Memory:
    memory = Memory()
    memory.hear(dialect, CONVERSATION)
    return memory


STYLES: Final = {
    "as it was": Style(),
    "identifiers rewritten": Style(ids="functions_Bash_{}"),
    "the same identifier everywhere": Style(ids="call"),
    "another system prompt": Style(system="It is Tuesday now."),
    "content as parts": Style(parts=True),
    "arguments in another spacing and order": Style(respaced=True),
    "parallel results in another order": Style(reversed=True),
    "other white space around texts": Style(padded=True),
    "all at once": Style("", "x{}", parts=True, respaced=True, reversed=True, padded=True),
}


@pytest.mark.parametrize("style", STYLES.values(), ids=STYLES.keys())
def test_how_a_client_writes_it_makes_no_difference(dialect: str, memory: Memory, style: Style) -> None:
    assert memory.thoughts(dialect, CONVERSATION, style=style) == THOUGHTS


EDITS: Final = {
    "an answer in other words": (changed(2, text="Fruits."), known(0, 1)),
    "an answer without its text": (changed(1, text=""), known(0)),
    "a call of another tool": (changed(3, calls=(("measure", CONVERSATION[3].calls[0][1]),)), known(0, 1, 2)),
    "a call with other arguments": (changed(3, calls=(("weigh", '{"red": true}'),)), known(0, 1, 2)),
    "calls in another order": (changed(1, calls=CONVERSATION[1].calls[::-1]), known(0)),
    "another tool result": (changed(4, results=("0.9",)), known(0, 1, 2, 3, 4)),
    "an earlier tool result": (changed(0, results=("[cleared]",)), known(0)),
    "parallel results exchanged": (changed(1, results=CONVERSATION[1].results[::-1]), known(0, 1)),
    "another question": (changed(3, user="Which is greener?"), known(0, 1, 2)),
    "another first question": (changed(0, user="What is in b.txt?"), known()),
    "a question with a reminder in it": (changed(6, user="Thanks!\n<reminder>Hm.</reminder>"), known(0, 1, 2, 3, 4, 5)),
    "a step left out": ((*CONVERSATION[:2], *CONVERSATION[3:]), known(0, 1, of=LAST - 1)),
    "taken back": (CONVERSATION[:4], known(0, 1, 2, 3, of=4)),
    "the beginning left out": (CONVERSATION[3:], known(of=LAST - 3)),
}  # fmt: skip


@pytest.mark.parametrize(("steps", "expected"), EDITS.values(), ids=EDITS.keys())
def test_an_edit_loses_what_stands_behind_it_and_nothing_before(
    dialect: str, memory: Memory, steps: tuple[Step, ...], expected: list[str | None]
) -> None:
    assert memory.thoughts(dialect, steps) == expected


def test_what_is_answered_behind_an_edit_comes_back(dialect: str, memory: Memory) -> None:
    edited = (*changed(1, results=("[cleared]", "[cleared]")), Step("And now?", "Now too.", thought="t7"))
    memory.hear(dialect, edited, since=LAST)
    assert memory.thoughts(dialect, edited) == ["t0", "t1", None, None, None, None, None, "t7"]


def test_an_undo_goes_on_with_thoughts_of_its_own(dialect: str, memory: Memory) -> None:
    other = (*CONVERSATION[:3], Step("Which is sweeter?", "", CONVERSATION[3].calls, ("0.1",), "other"))
    memory.hear(dialect, other, since=3)
    assert memory.thoughts(dialect, other) == ["t0", "t1", "t2", "other"]
    assert memory.thoughts(dialect, CONVERSATION) == THOUGHTS


SUMMARY: Final = Step("Summary: they asked about fruit in two files.", "I see.")
POLL: Final = Step("", "", (("wait", "{}"),), ("running",), "p")


class TestCompaction:
    def summed_up(self, dialect: str, memory: Memory, *before: Step, kept: int = 3) -> list[str | None]:
        """What is found of the steps that were kept behind a summary."""
        found = memory.thoughts(dialect, (*before, *CONVERSATION[kept:]))
        assert set(found[: len(before)]) <= {None}
        return found[len(before) :]

    def test_turns_with_two_before_them_come_back(self, dialect: str, memory: Memory) -> None:
        assert self.summed_up(dialect, memory, SUMMARY) == [None, None, "t5", "t6"]

    def test_a_summary_may_stand_before_the_first_words_that_were_kept(self, dialect: str, memory: Memory) -> None:
        first = replace(CONVERSATION[3], user=f"{SUMMARY.user}\n{CONVERSATION[3].user}")
        found = memory.thoughts(dialect, (first, *CONVERSATION[4:]))
        assert found == [None, None, "t5", "t6"]

    def test_a_summary_has_two_messages_at_most(self, dialect: str, memory: Memory) -> None:
        more = Step("Go on, please.", "I will.")
        assert self.summed_up(dialect, memory, SUMMARY, more) == [None] * 4

    def test_a_summary_has_no_calls(self, dialect: str, memory: Memory) -> None:
        calling = replace(SUMMARY, calls=(("ls", "{}"),), results=("a.txt",))
        assert self.summed_up(dialect, memory, calling) == [None] * 4
        otherwise = replace(CONVERSATION[3], user=SUMMARY.user, calls=(("ls", "{}"),))
        assert memory.thoughts(dialect, (otherwise, *CONVERSATION[4:])) == [None] * 4

    def test_one_turn_in_common_is_not_enough(self, dialect: str, memory: Memory) -> None:
        kept = (replace(CONVERSATION[4], user=SUMMARY.user), *CONVERSATION[5:])
        assert memory.thoughts(dialect, kept) == [None, None, "t6"]

    def test_a_change_in_what_was_kept_counts(self, dialect: str, memory: Memory) -> None:
        steps = (SUMMARY, *changed(4, results=("0.9",))[3:])
        assert memory.thoughts(dialect, steps) == [None] * 5

    def test_going_on_behind_it_changes_nothing_that_was_found(self, dialect: str) -> None:
        """The same steps over and over, before the summary and behind it."""
        soon = replace(POLL, text="Soon.", thought="soon")
        before = (replace(POLL, user="Run it."), *[POLL] * 3, soon)
        memory = Memory()
        memory.hear(dialect, before)
        kept: tuple[Step, ...] = (replace(POLL, user=SUMMARY.user), POLL, soon)
        longer = kept
        for n in range(3):
            assert memory.thoughts(dialect, kept) == [None, None, "soon"]
            longer = (*longer, POLL, POLL, replace(soon, thought=f"s{n}"))
            memory.hear(dialect, longer, since=len(longer) - 3)
        assert memory.thoughts(dialect, longer)[5::3] == ["s0", "s1", "s2"]

    @pytest.mark.parametrize("order", [1, -1])
    def test_of_several_the_one_with_the_most_in_common_counts(self, dialect: str, order: int) -> None:
        def held(first: str, name: str) -> tuple[Step, ...]:
            texts = ("0", first, "2", "3", "4")
            return tuple(Step(f"{name}?" if text == "0" else "And?", text, thought=name) for text in texts)

        memory = Memory()
        for first, name in [("1", "near"), ("x", "far")][::order]:
            memory.hear(dialect, held(first, name))
        kept = (Step(SUMMARY.user, "1"), *held("1", "near")[2:])
        assert memory.thoughts(dialect, kept) == [None, None, "near", "near"]

    def test_several_that_could_be_meant_are_none(self, dialect: str) -> None:
        before = tuple(replace(POLL, user="" if n else "Run it.", thought=f"p{n}") for n in range(7))
        memory = Memory()
        memory.hear(dialect, before)
        assert memory.thoughts(dialect, before) == [f"p{n}" for n in range(7)]
        assert memory.thoughts(dialect, (replace(POLL, user=SUMMARY.user), *before[4:])) == [None] * 4


class TestConversationsThatLookAlike:
    def test_each_gets_its_own(self, dialect: str, memory: Memory) -> None:
        other = tuple(replace(step, thought=f"o{n}") for n, step in enumerate(changed(0, user="What is in c.txt?")))
        memory.hear(dialect, other)
        assert memory.thoughts(dialect, other) == [step.thought for step in other]
        assert memory.thoughts(dialect, CONVERSATION) == THOUGHTS

    def test_of_the_same_words_with_different_thoughts_nobody_knows_which(self, dialect: str, memory: Memory) -> None:
        memory.hear(dialect, changed(4, thought="other"))
        assert memory.thoughts(dialect, CONVERSATION) == known(0, 1, 2, 3, 5, 6)

    def test_another_tenant_knows_nothing(self, dialect: str, memory: Memory) -> None:
        assert memory.thoughts(dialect, CONVERSATION, tenant="other") == known()
        memory.hear(dialect, changed(4, thought="other"), tenant="other")
        assert memory.thoughts(dialect, CONVERSATION) == THOUGHTS

    def test_the_same_call_twice_in_one_conversation_has_two_thoughts(self, dialect: str) -> None:
        again = tuple(Step("Again.", "", (("ls", "{}"),), ("a.txt",), f"t{n}") for n in range(80))
        memory = Memory()
        memory.hear(dialect, again)
        assert memory.thoughts(dialect, again) == [step.thought for step in again]


def test_what_is_found_does_not_depend_on_what_comes_later(dialect: str, memory: Memory) -> None:
    for end in range(1, LAST + 1):
        assert memory.thoughts(dialect, CONVERSATION[:end]) == THOUGHTS[:end]
        shorter, longer = (
            [
                (turn.index, turn.key, turn.history)
                for turn in asked_of(dialect, CONVERSATION[:n], "Go on.").lost_turns()
            ]
            for n in (end, LAST)
        )
        assert shorter == longer[:end]
