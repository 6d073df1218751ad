"""Two runs of one conversation -> a page for a terminal: side by side, the bytes, the repairs, the verdict."""

from __future__ import annotations

import json
import re
from typing import Any, Final, TypeAlias

from rich import box
from rich.console import Console, Group, RenderableType
from rich.constrain import Constrain
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from scripts.demo.talk import MARKER, ROUNDS, Round, Run

__all__ = ["Counted", "beginning", "bytes_seen", "journey", "prompts_seen", "repairs_made", "verdict"]

STRAIGHT: Final = "Straight at the host"
MENDED: Final = "Through Moonshim"
FRAMES_SHOWN: Final = 11
PROMPT_LINES: Final = 6
LINES_SHOWN: Final = 4
_BEFORE_MARKER: Final = re.compile(r"(?=<\|)")


def beginning(model: str) -> RenderableType:
    return Panel(
        Text.from_markup(
            f"A self-hosted Kimi ([bold]{model.partition('+')[0]}[/bold], simulated: no model, no key, no network) and "
            "an agent on the official openai package. Like most agents it keeps each call under an id of its own "
            "([cyan]call_…[/cyan]) and forgets what the model thought. It has a failing test to mend, in five rounds "
            "of tools: once straight at the host, once through Moonshim."
        ),
        title="[bold]Moonshim[/bold]",
        title_align="left",
        border_style="blue",
    )


# -- the rounds --------------------------------------------------------------------------------------------------


def journey(straight: list[Round], mended: list[Round], *, width: int) -> RenderableType:
    """The rounds of both, as far as they have come."""
    table = Table(box=box.SIMPLE_HEAD, expand=True, width=width)
    table.add_column("", width=7)
    table.add_column(STRAIGHT, ratio=1, overflow="fold")
    table.add_column(MENDED, ratio=1, overflow="fold")
    for number in range(1, ROUNDS + 2):
        name = "answer" if number > ROUNDS else f"round {number}"
        table.add_row(name, _cell(straight, number), _cell(mended, number))
    return table


def _cell(rounds: list[Round], number: int) -> Text:
    if len(rounds) < number:
        ended = bool(rounds) and (bool(rounds[-1].problem) or not rounds[-1].calls)
        return Text("never reached" if ended else "…", style="dim")
    one = rounds[number - 1]
    if one.problem:
        return Text.assemble(("✗ ", "bold red"), (one.problem, "red"), "\n", _with_markers(one.text))
    if one.calls:
        lines = [
            Text.assemble(("✓ ", "green"), (name, "bold"), " ", (arguments, "dim")) for name, arguments in one.calls
        ]
        return Text("\n").join(lines)
    return Text.assemble(("✓ ", "green"), one.text[:160] + ("…" if len(one.text) > 160 else ""))


def _with_markers(text: str) -> Text:
    """The text, with each marker on a line of its own: in a narrow column none of them is torn apart."""
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
    """The round that broke, as the host sent it and as Moonshim did."""
    table = Table(box=box.SIMPLE_HEAD, expand=True, width=width, padding=(0, 1))
    table.add_column(f"{STRAIGHT}: the call is text", ratio=1, overflow="fold")
    table.add_column(f"{MENDED}: the call is a call", ratio=1, overflow="fold")
    room = _room(width)
    table.add_row(_frames(broken.raw, "content", room), _frames(whole.raw, "tool_calls", room))
    return _titled(f"Round {broken.number}, the bytes on the wire", table)


def _room(width: int) -> int:
    """How many columns each side has, in a table of two."""
    return (width - 7) // 2


def _end_of(line: str, room: int) -> str:
    """What tells two lines apart stands at their end: where they are too long, that is what is shown."""
    return line if len(line) <= room else f"…{line[1 - room :]}"


def _frames(raw: bytes, field: str, room: int) -> RenderableType:
    """The deltas that have this field, each as it came; of those behind the first, as much as there is room for."""
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
    """The lines of both prompts in which identifiers stand."""
    table = Table(box=box.SIMPLE_HEAD, expand=True, width=width)
    table.add_column(f"{STRAIGHT}: the agent's ids", ratio=1)
    table.add_column(f"{MENDED}: the model's own", ratio=1)
    table.add_row(_lines(straight, "red", _room(width)), _lines(mended, "green", _room(width)))
    return _titled("Why: what the model was shown of the rounds before", Text(_WHY), table, width=width)


_WHY: Final = (
    "A Kimi writes a call as text: a marker, functions.NAME:NUMBER, the arguments. Its host reads the name from there, "
    "and makes a call of it. A host that shows the model other ids teaches it other ids: after two rounds it writes "
    "those, the name is nowhere, and the host leaves the markers in the text."
)


def _lines(lines: list[str], style: str, room: int) -> RenderableType:
    return Group(*(Text(_end_of(line, room), style=style) for line in lines[:PROMPT_LINES]))


# -- the end -----------------------------------------------------------------------------------------------------


Counted: TypeAlias = tuple[str, str, int]
"""`repairs` of answers or `changes` of requests; the rule; how often."""
_RULES: Final = {
    "marker_call": "a call was read from markers in the text",
    "finish_reason": "the host said that the model was done; it had called",
    "arguments_doubled": "the arguments of a call came twice",
    "history_id": "ids of the history are sent as the model writes them",
    "reasoning_recalled": "reasoning that the agent forgot was put back",
    "tool_choice_default": "the model may choose among the tools: said to the host",
    "include_usage": "the host is asked to count its tokens",
}
"""What the page says of a rule; docs/repairs.md and docs/requests.md have them all."""


def repairs_made(counted: list[Counted], *, width: int) -> RenderableType:
    table = Table(box=box.SIMPLE_HEAD, width=min(width, 100))
    table.add_column("")
    table.add_column("rule", style="bold")
    table.add_column("what was put right")
    table.add_column("times", justify="right")
    for what, rule, count in sorted(counted):
        where = {"repairs": "answers", "changes": "requests"}[what]
        table.add_row(where, rule, _RULES.get(rule, ""), str(count))
    return _titled("What Moonshim put right on the way", table)


def verdict(straight: Run, mended: Run) -> RenderableType:
    broken = straight.broke_in
    first = (
        f"[red]✗ {STRAIGHT}: broke in round {broken.number} of {ROUNDS}.[/red]"
        if broken is not None
        else f"[yellow]? {STRAIGHT}: it did not break, and it should have.[/yellow]"
    )
    came = sum(1 for one in mended.rounds if one.calls and not one.problem)
    second = (
        f"[green]✓ {MENDED}: {came} of {ROUNDS} rounds, every result in the answer, no marker.[/green]"
        if mended.perfect
        else f"[red]✗ {MENDED}: {came} of {ROUNDS} rounds; lost: {', '.join(mended.lost) or 'nothing'}.[/red]"
    )
    good = broken is not None and mended.perfect
    return Panel(Text.from_markup(f"{first}\n{second}"), border_style="green" if good else "red", title="Verdict")


def _titled(title: str, *inside: RenderableType, width: int = 0) -> RenderableType:
    parts = [Constrain(part, width) if width else part for part in inside]
    return Group(Text(title, style="bold"), *parts)


def make_console() -> Console:
    """As wide as the terminal, within reason; in a pipe without colour."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=120, no_color=True)
    return console
