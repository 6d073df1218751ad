"""A model for tests: for each of the user's messages, the rounds that it plays."""

from __future__ import annotations

from json import dumps
from typing import Any, Final

from moonshim.simulator import IntendedCall, IntendedResponse, SimRequest

HOSTILE: Final = "\x1b[2J\x1b]0;owned\x07\x1b[31mred\u202etxt"


def call(name: str, **arguments: Any) -> IntendedCall:
    return IntendedCall(name, dumps(arguments))


LONG: Final = "# Tides\n\n" + "\n\n".join(f"Paragraph {number} is about the sea." for number in range(1, 30))

ROUNDS: Final[dict[str, tuple[IntendedResponse, ...]]] = {
    "list": (
        IntendedResponse(
            reasoning="I look.\nA shell can tell.", text="Let me look.", calls=(call("bash", command="ls"),)
        ),
        IntendedResponse(reasoning="There they are.", text="There are **two** things:\n\n- a file\n- a folder"),
    ),
    "both": (
        IntendedResponse(
            reasoning="Two at once.",
            calls=(call("read_file", path="notes.md"), call("glob", pattern="**/*.py")),
        ),
        IntendedResponse(text="Read both."),
    ),
    "write": (
        IntendedResponse(text="I write.", calls=(call("write_file", path="new.txt", content="one\ntwo\n"),)),
        IntendedResponse(text="Written."),
    ),
    "wait": (
        IntendedResponse(
            text="This takes long.", calls=(call("bash", command="echo begun > begun; sleep 1000; touch never"),)
        ),
        IntendedResponse(text="It was waited for."),
    ),
    "hostile": (
        IntendedResponse(
            reasoning=f"evil {HOSTILE}",
            text=f"I say {HOSTILE} &#x202e;gpj",
            calls=(call("bash", command=f"printf '{HOSTILE}'"),),
        ),
        IntendedResponse(text=f"The end {HOSTILE}"),
    ),
    "much": (
        IntendedResponse(calls=(call("bash", command="seq 1000"),)),
        IntendedResponse(text="That was much."),
    ),
    "think": (IntendedResponse(reasoning="Secret thought one.\nSecret thought two.", text="Thought through."),),
    "long": (IntendedResponse(reasoning="This will be long.", text=LONG),),
    "hermes": (IntendedResponse(text='<tool_call>\n{"name": "glob", "arguments": {"pattern": "*.md"}}\n</tool_call>'),),
    "gate": (
        IntendedResponse(
            text="I wait.", calls=(call("bash", command="until [ -e open ]; do sleep 0.1; done; rm open"),)
        ),
        IntendedResponse(text="I write.", calls=(call("write_file", path="new.txt", content="one\n"),)),
        IntendedResponse(text="The gate was open."),
    ),
    "stuck": (IntendedResponse(calls=(call("glob", pattern="*.md"),)),),
    "hello": (IntendedResponse(text="Hello yourself."),),
}


class Player:
    """Plays the rounds of the first word that it knows; repeats what it does not."""

    def reply(self, question: SimRequest) -> IntendedResponse:
        words = question.words.split()
        rounds = next((ROUNDS[word] for word in words if word in ROUNDS), None)
        if rounds is None:
            return IntendedResponse(text=f"You said: {question.words}")
        return rounds[min(question.round, len(rounds)) - 1]
