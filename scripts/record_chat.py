"""A session of `moonshim chat` in a pseudo-terminal -> the screens that docs/guides/chat.md shows.

`python -m scripts.record_chat` runs the session and writes its screens into the page. A test runs it too and compares
the screens with the page.
"""

from __future__ import annotations

import re
import sys
import tempfile
from json import dumps
from pathlib import Path
from typing import Final

from moonshim.simulator import IntendedCall, IntendedResponse, SimRequest, Simulator
from tests.chat.talking import Talk

PAGE: Final = Path(__file__).resolve().parent.parent / "docs" / "guides" / "chat.md"
BEGIN, END = "<!-- recording -->\n", "<!-- end of the recording -->"
_SECONDS: Final = re.compile(r"(waiting|working) \d+ s")
_GARDEN: Final = "def seeds(beds, each=12):\n    return beds * each\n\n\nprint(seeds(4))\n"


class Gardener:
    """The model of the recording."""

    def reply(self, question: SimRequest) -> IntendedResponse:
        if "test" in question.words:
            return self._test(question.round)
        if question.round == 1:
            read = IntendedCall("read_file", dumps({"path": "garden.py"}))
            run = IntendedCall("bash", dumps({"command": "python3 garden.py"}))
            return IntendedResponse(
                reasoning="I should read the file and run it to see\nwhether it still works.",
                text="I'll read it and run it.",
                calls=(read, run),
            )
        return IntendedResponse(
            reasoning="It prints 48: four beds with twelve seeds each.",
            text="`garden.py` counts **seeds**:\n\n"
            "1. `seeds(beds)` returns twelve seeds per bed\n2. it prints `48`, for four beds",
        )

    def _test(self, round_: int) -> IntendedResponse:
        if round_ == 1:
            text = "from garden import seeds\n\n\ndef test_seeds():\n    assert seeds(2) == 24\n"
            return IntendedResponse(
                text="Sure.", calls=(IntendedCall("write_file", dumps({"path": "test_garden.py", "content": text})),)
            )
        return IntendedResponse(text="OK, I have not written anything.")


def record() -> list[tuple[str, list[str]]]:
    """Run the session; return the title and the content of each screen."""
    screens: list[tuple[str, list[str]]] = []
    with (
        tempfile.TemporaryDirectory() as home,
        Simulator(model=Gardener(), behaviour="selfhost", faults=("markers-in-content",)).running() as server,
    ):
        folder = Path(home) / "garden"
        folder.mkdir()
        (folder / "garden.py").write_text(_GARDEN)
        to = ("--base-url", f"{server.url}/v1", "--model", "kimi-k2.5")
        with Talk(*to, cwd=folder, HOME=home, XDG_DATA_HOME=f"{home}/data") as talk:

            def show(title: str) -> None:
                screens.append((title, _screen(talk, server.url)))

            talk.says("What does garden.py do? Does it run?")
            talk.sees("Run this?")
            show("The model has reasoned, written a sentence and made two calls. One of them needs permission:")
            talk.types("y")
            talk.sees("for four beds", "48")
            talk.until(talk.is_ready, "end of the turn")
            show("After you press `y`:")
            talk.asks("/fold")
            talk.says("Write a test for it")
            talk.sees("write_file")
            talk.sees("Run this?")
            talk.types("n")
            talk.sees("I have not written anything")
            talk.asks("/toolformat")
            talk.asks("/model kimi-k3")
            talk.asks("/cost")
            show("Denying a file with `n`, and a few commands:")
    return screens


def _screen(talk: Talk, url: str) -> list[str]:
    """The content of the screen, without trailing empty lines; what differs from run to run is normalized."""
    lines = talk.display
    shown = [_SECONDS.sub(r"\1 1 s", line.replace(url, "http://127.0.0.1:8485")) for line in lines]
    while shown and not shown[-1]:
        shown.pop()
    return shown


def page_part(screens: list[tuple[str, list[str]]]) -> str:
    """The part of the page that shows them."""
    return "\n".join(f"{title}\n\n```text\n{_as_lines(lines)}\n```\n" for title, lines in screens)


def _as_lines(lines: list[str]) -> str:
    return "\n".join(line.rstrip() for line in lines)


def recorded_part(page: str) -> str:
    """The part of the page that shows the recording."""
    return page.partition(BEGIN)[2].partition(END)[0]


def main() -> int:
    page = PAGE.read_text("utf-8")
    before, _, rest = page.partition(BEGIN)
    PAGE.write_text(before + BEGIN + page_part(record()) + END + rest.partition(END)[2], "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
