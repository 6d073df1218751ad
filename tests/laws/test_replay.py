"""Law 4: `assemble(replay(message)) == message`."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from moonshim import Message, Reasoning, Text, ToolCall
from moonshim.engine.assemble import assemble, replay
from moonshim.engine.ids import CanonicalIds
from moonshim.engine.values.events import Finished
from tests.laws.checks import assert_balanced
from tests.laws.scripts import Cut, Script, mend
from tests.laws.strategies import cuts, scripts

_wire_ids = st.text("abc:._1", min_size=1, max_size=6)


def _message(parts: list[Text | Reasoning | tuple[str, str, str]]) -> Message:
    """Calls get their canonical identifiers in order, as a message that was answered has them."""
    ids = CanonicalIds()
    return Message(
        "assistant",
        tuple(
            ToolCall(ids.new(part[0]), part[1], part[2], part[0]) if isinstance(part, tuple) else part for part in parts
        ),
    )


messages = st.lists(
    st.one_of(
        st.builds(Text, st.text(min_size=1)),
        st.builds(Reasoning, st.text(min_size=1)),
        st.tuples(_wire_ids, st.text(min_size=1), st.text()),
    ),
    max_size=6,
).map(_message)


@given(messages)
def test_a_message_survives_being_told_again(message: Message) -> None:
    assert assemble(replay(message)) == message


@given(messages)
def test_what_is_told_again_is_balanced(message: Message) -> None:
    events = [event for event in replay(message) if getattr(event, "text", None) != ""]
    assert_balanced([*events, Finished("stop", "stop")])


@given(scripts, cuts)
def test_every_answer_survives_being_told_again(script: Script, cut: Cut) -> None:
    for message in mend(script.setting, script.frames(cut), script.choices).messages.values():
        assert assemble(replay(message)) == message
