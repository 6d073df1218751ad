"""Two runs of one conversation -> a page for a terminal: the rounds, the bytes, the repairs and the result."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, Final, TypeAlias

from rich import box
from rich.console import Console, Group, RenderableType
from rich.constrain import Constrain
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from scripts.demo.talk import MARKER, ROUNDS, Round, Run

__all__ = ["Counted", "beginning", "bytes_seen", "journey", "prompts_seen", "repairs_made", "verdict"]

STRAIGHT: Final = "Without Moonshim"
MENDED: Final = "With Moonshim"
FRAMES_SHOWN: Final = 11
PROMPT_LINES: Final = 6
LINES_SHOWN: Final = 4
_BEFORE_MARKER: Final = re.compile(r"(?=<\|)")


def beginning(model: str) -> RenderableType:
    return Panel(
        Text.from_markup(
            f"An agent built on the official openai package uses a self-hosted Kimi model "
            f"([bold]{model.partition('+')[0]}[/bold], simulated: no model, no key, no network). Like most agents, it "
            "stores tool calls under its own ids ([cyan]call_…[/cyan]) and drops the model's reasoning. It fixes a "
            "failing test in five rounds of tool calls: once directly against the host, and once through Moonshim."
        ),
        title="[bold]Moonshim[/bold]",
        title_align="left",
        border_style="blue",
    )


# -- the rounds --------------------------------------------------------------------------------------------------


def journey(straight: Sequence[Round], mended: Sequence[Round], *, width: int) -> RenderableType:
    """The rounds of both runs so far."""
    table = Table(box=box.SIMPLE_HEAD, expand=True, width=width)
    table.add_column("", width=7)
    table.add_column(STRAIGHT, ratio=1, overflow="fold")
    table.add_column(MENDED, ratio=1, overflow="fold")
    for number in range(1, ROUNDS + 2):
        name = "answer" if number > ROUNDS else f"round {number}"
        table.add_row(name, _cell(straight, number), _cell(mended, number))
    return table


def _cell(rounds: Sequence[Round], number: int) -> Text:
    if len(rounds) < number:
        ended = bool(rounds) and (bool(rounds[-1].problem) or not rounds[-1].calls)
        return Text("not reached" if ended else "…", style="dim")
    one = rounds[number - 1]
    if one.problem:
        return Text.assemble(("✗ ", "bold red"), (one.problem, "red"), "\n", _with_markers(one.text))
    if one.calls:
        lines = [
            Text.assemble(("✓ ", "green"), (name, "bold"), " ", (arguments, "dim")) for name, arguments in one.calls
        ]
        return Text("\n").join(lines)
    return Text.assemble(("✓ ", "green"), _shortened(one.text))


def _shortened(text: str) -> str:
    """At most 160 characters, cut between two lines if there are several."""
    if len(text) <= 160:
        return text
    lines, cut, _ = text[:160].rpartition("\n")
    return f"{lines}\n…" if cut else f"{text[:160]}…"


def _with_markers(text: str) -> Text:
    """The text with each marker on its own line, so that none is split in a narrow column."""
    lines = _BEFORE_MARKER.split(text)
    shown = Text("\n").join(highlighted(line.strip()) for line in lines[:LINES_SHOWN])
    return shown if len(lines) <= LINES_SHOWN else shown.append("\n…", style="dim")


def highlighted(text: str) -> Text:
    """The text with its markers in colour."""
    shown = Text(text)
    for found in MARKER.finditer(text):
        shown.stylize("bold black on yellow", *found.span())
    return shown


# -- the bytes ---------------------------------------------------------------------------------------------------


def bytes_seen(broken: Round, whole: Round, *, width: int) -> RenderableType:
    """The round that failed, as the host sent it and as Moonshim sent it."""
    table = Table(box=box.SIMPLE_HEAD, expand=True, width=width, padding=(0, 1))
    table.add_column(f"{STRAIGHT}: the call is in the text", ratio=1, overflow="fold")
    table.add_column(f"{MENDED}: a proper tool call", ratio=1, overflow="fold")
    room = _room(width)
    table.add_row(_frames(broken.raw, "content", room), _frames(whole.raw, "tool_calls", room))
    return _titled(f"Round {broken.number} on the wire", table)


def _room(width: int) -> int:
    """The width of each column in a table of two."""
    return (width - 7) // 2


def _end_of(line: str, room: int) -> str:
    """Lines differ at their end, so a line that is too long is cut at its start."""
    return line if len(line) <= room else f"…{line[1 - room :]}"


def _frames(raw: bytes, field: str, room: int) -> RenderableType:
    """The deltas that have this field: the first one complete, the others cut to the width."""
    deltas = [delta for delta in _deltas(raw) if delta.get(field)]
    begins = next((at for at, delta in enumerate(deltas) if MARKER.search(json.dumps(delta))), 0)
    shown = deltas[begins : begins + FRAMES_SHOWN]
    first, *others = [json.dumps(delta, ensure_ascii=False, separators=(",", ":")) for delta in shown] or [""]
    lines = [highlighted(first), *(highlighted(_end_of(line, room)) for line in others)]
    if len(deltas) > begins + len(shown):
        lines.append(Text(f"… and {len(deltas) - begins - len(shown)} more", style="dim"))
    return Group(*lines)


def _deltas(raw: bytes) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for line in raw.decode(errors="replace").splitlines():
        if not line.startswith("data:") or "[DONE]" in line:
            continue
        try:
            chunk = json.loads(line.removeprefix("data:"))
        except ValueError:
            continue
        found += [choice.get("delta") or {} for choice in chunk.get("choices") or ()]
    return found


# -- what the model saw ------------------------------------------------------------------------------------------


def prompts_seen(straight: list[str], mended: list[str], *, width: int) -> RenderableType:
    """The lines of both prompts that contain tool call ids."""
    table = Table(box=box.SIMPLE_HEAD, expand=True, width=width)
    table.add_column(f"{STRAIGHT}: ids of the agent", ratio=1)
    table.add_column(f"{MENDED}: ids of the model", ratio=1)
    table.add_row(_lines(straight, "red", _room(width)), _lines(mended, "green", _room(width)))
    return _titled("Why it failed: the ids of earlier rounds in the prompt", Text(_WHY), table, width=width)


_WHY: Final = (
    "A Kimi model writes a tool call as text: a marker, functions.NAME:NUMBER, and the arguments. The host takes the "
    "tool name from this id. If the prompt contains ids in another form, the model imitates them: after two rounds it "
    "writes such ids itself, the host finds no tool name, and the markers stay in the text."
)


def _lines(lines: list[str], style: str, room: int) -> RenderableType:
    return Group(*(Text(_end_of(line, room), style=style) for line in lines[:PROMPT_LINES]))


# -- the end -----------------------------------------------------------------------------------------------------


Counted: TypeAlias = tuple[str, str, int]
"""`repairs` (responses) or `changes` (requests); the rule; the count."""
_RULES: Final = {
    "marker_call": "parsed a tool call from markers in the text",
    "finish_reason": "set finish_reason to tool_calls; the host sent stop",
    "arguments_doubled": "removed a second copy of the arguments",
    "history_id": "rewrote ids in the history as the model writes them",
    "reasoning_recalled": "restored reasoning that the agent had dropped",
    "tool_choice_default": "set tool_choice to auto",
    "include_usage": "asked the host to report token usage",
}
"""A description of each rule; docs/reference/repairs.md and docs/reference/requests.md list them all."""


def repairs_made(counted: list[Counted], *, width: int) -> RenderableType:
    table = Table(box=box.SIMPLE_HEAD, width=min(width, 100))
    table.add_column("")
    table.add_column("rule", style="bold")
    table.add_column("what it did")
    table.add_column("times", justify="right")
    for what, rule, count in sorted(counted):
        where = {"repairs": "response", "changes": "request"}[what]
        table.add_row(where, rule, _RULES.get(rule, ""), str(count))
    return _titled("What Moonshim changed and repaired", table)


def verdict(straight: Run, mended: Run) -> RenderableType:
    broken = straight.broke_in
    first = (
        f"[red]✗ {STRAIGHT}: failed in round {broken.number} of {ROUNDS}.[/red]"
        if broken is not None
        else f"[yellow]? {STRAIGHT}: did not fail, although it should have.[/yellow]"
    )
    came = sum(1 for one in mended.rounds if one.calls and not one.problem)
    missing = ", ".join(mended.lost) or "nothing"
    second = (
        f"[green]✓ {MENDED}: all {ROUNDS} rounds completed, every tool result in the answer, no markers.[/green]"
        if mended.perfect
        else f"[red]✗ {MENDED}: {came} of {ROUNDS} rounds completed; missing in the answer: {missing}.[/red]"
    )
    good = broken is not None and mended.perfect
    return Panel(Text.from_markup(f"{first}\n{second}"), border_style="green" if good else "red", title="Result")


def _titled(title: str, *inside: RenderableType, width: int = 0) -> RenderableType:
    parts = [Constrain(part, width) if width else part for part in inside]
    return Group(Text(title, style="bold"), *parts)


def make_console() -> Console:
    """A console as wide as the terminal; in a pipe, 120 columns without colour."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=120, no_color=True)
    return console
