"""Items of a turn -> rich renderables: Markdown, dim reasoning, calls, and a screenful of their results."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, ClassVar, Final

from markdown_it.token import Token
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.markdown import Heading, Markdown
from rich.padding import Padding
from rich.style import Style
from rich.text import Text

from moonshim.chat.render.call_text import call_text
from moonshim.chat.render.sanitize import clean, clean_line
from moonshim.chat.render.screen import NoticeItem, ReasoningItem, ScreenItem, TextItem, ToolCallItem

__all__ = ["FOLD_KEY", "lines_of", "needs_blank_line", "render"]

FOLD_KEY: Final = "Ctrl-T"
"""The key that shows and hides reasoning. Ctrl-R, the alternative, searches the input history."""
_ARGUMENT_ROWS: Final = 12
_FULL_ROWS: Final = 400
"""How much of an argument must be shown before a call is allowed; omissions are marked."""
_MARKS: Final = {"done": ("●", "green"), "broken": ("○", "red"), "running": ("●", "yellow")}
_FENCE: Final = re.compile(r"\s*(```|~~~)")
_TRAILING: Final = re.compile(r"\s+((?:\x1b\[[\d;]*m)*)$")
_STYLING: Final = re.compile(r"\x1b\[[\d;]*m")
_GROWING_LINES: Final = 2
"""How many screens of a growing item are rendered, of which the last one is shown."""


class _LeftHeading(Heading):
    """A heading as text: no box, and not centred."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        self.text.justify = "left"
        yield self.text


class _Markdown(Markdown):
    """Markdown that is sanitized again after parsing: `&#x202e;` becomes a character only then."""

    elements: ClassVar[dict[str, Any]] = Markdown.elements | {"heading_open": _LeftHeading}

    def __init__(self, text: str) -> None:
        # Links are written out: an address that is hidden cannot be judged.
        super().__init__(clean(text), hyperlinks=False, code_theme="ansi_dark")
        _clean_tokens(self.parsed)


def _clean_tokens(tokens: Sequence[Token]) -> None:
    for token in tokens:
        token.content, token.info = clean(token.content), clean_line(token.info)
        token.attrs = {
            name: clean_line(value) if isinstance(value, str) else value for name, value in token.attrs.items()
        }
        _clean_tokens(token.children or ())


def render(item: ScreenItem, *, height: int, width: int, growing: bool = False) -> RenderableType:
    """One item. `height` rows are a screenful; of a growing item, only the end need be shown."""
    match item:
        case TextItem(text=text):
            return _Markdown(_tail(text, height, width) if growing else text)
        case ReasoningItem(folded=True, words=words):
            return _render_reasoning(f"{words} {'word' if words == 1 else 'words'} of reasoning ({FOLD_KEY} to show)")
        case ReasoningItem(text=text):
            return _render_reasoning(_last_rows(clean(text), height, width)[0] if growing else clean(text).strip("\n"))
        case ToolCallItem():
            return _render_call(item, height, width)
        case NoticeItem(text=text, kind=kind):
            return Text(clean(text), style="red" if kind == "failed" else "yellow")


def needs_blank_line(item: ScreenItem) -> bool:
    """Whether an empty line comes before it."""
    return not isinstance(item, ReasoningItem) or item.first


def lines_of(console: Console, items: Sequence[ScreenItem], *, height: int, growing: bool = False) -> list[str]:
    """The lines for a terminal, one row each."""
    lines: list[str] = []
    for item in items:
        with console.capture() as captured:
            console.print(render(item, height=height, width=console.width, growing=growing))
        own = [_TRAILING.sub(r"\1", line) for line in captured.get().split("\n")]
        lines += [""] if needs_blank_line(item) else []
        lines += _without_margins(own)
    return lines


def _without_margins(lines: list[str]) -> list[str]:
    """Without empty lines before and after: each kind of Markdown block has different ones."""
    filled = [place for place, line in enumerate(lines) if _STYLING.sub("", line).strip()]
    return lines[filled[0] : filled[-1] + 1] if filled else []


def _tail(text: str, height: int, width: int) -> str:
    """The end of a growing block; a fence keeps its first line, which says what it is."""
    rows, left = _last_rows(text, height * _GROWING_LINES, width)
    if left and _FENCE.match(text):
        return f"{text.partition(chr(10))[0]}\n{rows}"
    return rows


def _render_reasoning(text: str) -> RenderableType:
    return Padding(Text(text, style=Style(dim=True, italic=True)), (0, 0, 0, 2), expand=False)


def _render_call(item: ToolCallItem, height: int, width: int) -> RenderableType:
    mark, colour = _MARKS.get(item.state, ("○", "yellow"))
    if item.is_error:
        colour = "red"
    call = call_text(item.arguments, whole=item.state != "arriving")
    room = max(width - 4, 10)
    line = Text.assemble((mark, colour), " ", (clean(item.name), "bold"))
    if call.about:
        rows = _FULL_ROWS if item.full else 6
        about = (
            _last_rows(call.about, 3, room)[0] if item.state == "arriving" else _first_rows(call.about, rows, room)[0]
        )
        line.append("  ").append(about)
    parts: list[RenderableType] = [line]
    for name, value in call.rest:
        shown, left = _first_rows(value, _FULL_ROWS if item.full else _ARGUMENT_ROWS, room)
        start = "\n" if "\n" in shown else ""
        parts.append(_indent(Text.assemble((f"{name}: ", "dim"), start, shown, (_omission_note(left), "dim"))))
    if item.state == "broken":
        parts.append(_indent(Text("incomplete; not run", style="red")))
    if item.state == "done":
        parts.append(_render_result(item, height, room))
    return Group(*parts)


def _render_result(item: ToolCallItem, height: int, width: int) -> RenderableType:
    text = clean(item.result).strip("\n")
    shown, left = _first_rows(text, max(height, 3), width)
    made = Text(shown or "(no output)", style="red" if item.is_error else "")
    if not shown:
        made.stylize("dim")
    made.append(_omission_note(left, " (/history to show all)"), style="dim")
    return Padding(made, (0, 0, 0, 2), expand=False)


def _omission_note(lines: int, more: str = "") -> str:
    return f"\n… {lines:,} more {'line' if lines == 1 else 'lines'}{more}" if lines > 0 else ""


def _indent(text: Text) -> Padding:
    return Padding(text, (0, 0, 0, 2), expand=False)


# -- text, cut to a number of rows -----------------------------------------------------------------------------------


def _rows_of(line: str, width: int) -> int:
    """How many rows of a terminal a line takes.

    >>> _rows_of("", 10), _rows_of("a" * 21, 10), _rows_of("今天天气", 4)
    (1, 3, 2)
    """
    return max(1, -(-cell_len(line) // max(width, 1)))


def _first_rows(text: str, most: int, width: int) -> tuple[str, int]:
    """The first lines that fit, and how many lines were omitted; a line that is too long is cut.

    >>> _first_rows("a\\nb\\nc", 2, 80)
    ('a\\nb', 1)
    """
    return _cut(text.rstrip("\n").split("\n"), most, width)


def _last_rows(text: str, most: int, width: int) -> tuple[str, int]:
    """The same for the end.

    >>> _last_rows("a\\nb\\nc", 2, 80)
    ('b\\nc', 1)
    """
    lines = text.rstrip("\n").split("\n")
    rows: list[str] = []
    left = most
    for line in reversed(lines):
        left -= _rows_of(line[-most * width :], width)
        if left < 0 and rows:
            break
        rows.insert(0, line[-most * width :])
    return "\n".join(rows), len(lines) - len(rows)


def _cut(lines: list[str], most: int, width: int) -> tuple[str, int]:
    rows: list[str] = []
    left = most
    for line in lines:
        short = line[: most * width]
        left -= _rows_of(short, width)
        if left < 0 and rows:
            break
        rows.append(short + "…" if len(short) < len(line) else short)
    return "\n".join(rows), len(lines) - len(rows)
