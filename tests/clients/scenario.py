"""A client's tools -> what the simulated model does: three rounds whose results only tools can know."""

from __future__ import annotations

from typing import Any, Final

from tests.clients.client import Client

__all__ = ["NOTE", "PROMPT", "RAN", "WORD", "scenario_for"]

WORD: Final = "word.txt"
NOTE: Final = "note.txt"
RAN: Final = "ran.txt"
"""Gets a line each time that the second round's command runs."""
PROMPT: Final = "What is in {note}, and what does the shell say?"
_READERS: Final = ["Read", "read", "read_file", "ReadFile"]


def scenario_for(client: Client) -> dict[str, Any]:
    """The first and the last call are made as the simulator makes them by itself: it knows these tools."""
    shell = client.shell
    look = {"tool": shell.tool, "arguments": shell.arguments(f"cat {WORD} && echo ran >> {RAN}")}
    read: dict[str, Any] = {"tool": _READERS}
    if not client.reads_files:
        read = {"tool": shell.tool, "arguments": shell.arguments(f"cat {NOTE}")}
    return {
        "about": "A shell says a word, then what is in a file, then another file is read; the answer has everything.",
        "round": [
            {"think": "First I try the shell."},
            {"think": "Now the word. A mark shows how often I look.", "call": [look]},
            {"think": "And the file that was named.", "call": [read]},
        ],
        "answer": {"think": "I have everything.", "say": "Here is what came back: {results}"},
    }
