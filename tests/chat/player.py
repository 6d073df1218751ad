"""A model for tests: for each of the user's messages, the rounds that it plays."""

from __future__ import annotations

from json import dumps
from typing import Any, Final

from moonshim.simulator import Meant, MeantCall, Question

HOSTILE: Final = "\x1b[2J\x1b]0;owned\x07\x1b[31mred\u202etxt"


def call(name: str, **arguments: Any) -> MeantCall:
    return MeantCall(name, dumps(arguments))


LONG: Final = "# Tides\n\n" + "\n\n".join(f"Paragraph {number} is about the sea." for number in range(1, 30))

ROUNDS: Final[dict[str, tuple[Meant, ...]]] = {
    "list": (
        Meant(reasoning="I look.\nA shell can tell.", text="Let me look.", calls=(call("bash", command="ls"),)),
        Meant(reasoning="There they are.", text="There are **two** things:\n\n- a file\n- a folder"),
    ),
    "both": (
        Meant(
            reasoning="Two at once.",
            calls=(call("read_file", path="notes.md"), call("glob", pattern="**/*.py")),
        ),
        Meant(text="Read both."),
    ),
    "write": (
        Meant(text="I write.", calls=(call("write_file", path="new.txt", content="one\ntwo\n"),)),
        Meant(text="Written."),
    ),
    "wait": (
        Meant(text="This takes long.", calls=(call("bash", command="echo begun > begun; sleep 1000; touch never"),)),
        Meant(text="It was waited for."),
    ),
    "hostile": (
        Meant(
            reasoning=f"evil {HOSTILE}",
            text=f"I say {HOSTILE} &#x202e;gpj",
            calls=(call("bash", command=f"printf '{HOSTILE}'"),),
        ),
        Meant(text=f"The end {HOSTILE}"),
    ),
    "much": (
        Meant(calls=(call("bash", command="seq 1000"),)),
        Meant(text="That was much."),
    ),
    "think": (Meant(reasoning="Secret thought one.\nSecret thought two.", text="Thought through."),),
    "long": (Meant(reasoning="This will be long.", text=LONG),),
    "hermes": (Meant(text='<tool_call>\n{"name": "glob", "arguments": {"pattern": "*.md"}}\n</tool_call>'),),
    "gate": (
        Meant(text="I wait.", calls=(call("bash", command="until [ -e open ]; do sleep 0.1; done; rm open"),)),
        Meant(text="I write.", calls=(call("write_file", path="new.txt", content="one\n"),)),
        Meant(text="The gate was open."),
    ),
    "stuck": (Meant(calls=(call("glob", pattern="*.md"),)),),
    "hello": (Meant(text="Hello yourself."),),
}


class Player:
    """Plays the rounds of the first word that it knows; repeats what it does not."""

    def reply(self, question: Question) -> Meant:
        words = question.words.split()
        rounds = next((ROUNDS[word] for word in words if word in ROUNDS), None)
        if rounds is None:
            return Meant(text=f"You said: {question.words}")
        return rounds[min(question.round, len(rounds)) - 1]
