"""`moonshim usage`: the gateway's usage records -> a table with bars, JSON or CSV."""

from __future__ import annotations

import argparse
import csv
import io
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Final

from msgspec.structs import replace

from moonshim.cli import console
from moonshim.cli.suggest import suggest
from moonshim.cli.usage_books import UnreadableBooks, read_books
from moonshim.engine.wire.json_codec import encode
from moonshim.http_server.log_lines import json_for_terminal
from moonshim.usage.budgets import BudgetState, describe_budget
from moonshim.usage.cost import decimal_text, money
from moonshim.usage.report import GROUPINGS, UsageReport, UsageRow, as_document, cost_share, parse_time

__all__ = ["main", "parser"]

_EPILOG: Final = """\
Without --file, it reads the file that the configuration names, or
$XDG_STATE_HOME/moonshim/usage.db. If gateways share a Redis store, it
adds up all machines, in whole days. Days and times are UTC. Budgets of keys
follow the table, with what is left of them now.

  REQS    requests that were sent to a host, however they ended; those that
          the gateway refused are not included
  INPUT   input tokens; READ is the part read from the host's prompt cache, and
          WRITE the tokens written to it
  OUTPUT  output tokens, including reasoning
  COST    of tokens and web searches, by the shipped prices, [prices] and
          [web_search]; "≥" if some prices are unknown
  SHARE   part of the cost as a bar, on a terminal with room for it; with
          several currencies, the largest part. TOKENS if no cost is known

Lines are sorted by SHARE, days by date.

examples:
  moonshim usage                              the last 30 days
  moonshim usage --by model --since 7d
  moonshim usage --by session --key alice --since 2026-11-01
  moonshim usage --by key --since 2026-10-01 --csv > october.csv
  moonshim usage --json | jq -r '.total.costs'

exit codes:
  0  done
  1  the records cannot be read; the reason is printed
  2  invalid command line or configuration"""
_DEFAULT_SINCE: Final = "30d"
_HEADS: Final = ("REQS", "INPUT", "READ", "WRITE", "OUTPUT", "COST")
_NO_NAME: Final = "(none)"
_SHORTEST_NAME: Final = 10
_LONGEST_NAME: Final = 40
_GENERATED: Final = "conversation-"
"""How the ids of sessions begin that the gateway derives: the same for all, so the table leaves it out."""
_START: Final = "11-16 22:45"
_MOST_NAMED: Final = 3
_SHORTEST_BAR: Final = 6
_LONGEST_BAR: Final = 20
_BLOCKS: Final = " ▏▎▍▌▋▊▉"
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")
"""A cell that starts so is a formula for a spreadsheet."""


def main(argv: Sequence[str]) -> int:
    """Run `moonshim usage`; return the exit code."""
    command = parser()
    given = command.parse_args(list(argv))
    now = datetime.now(UTC)
    since, until = given.since(now), given.until(now) if given.until else None
    if until is not None and until <= since:
        command.error("argument --until: must be after --since")
    try:
        books = read_books(given.file, given.config, by=given.by, since=since, until=until, key=given.key)
    except UnreadableBooks as error:
        console.print_note(f"moonshim usage: {console.safe(str(error))}")
        return console.FAILED
    report, budgets = books.report, books.budgets
    if given.json:
        print(json_for_terminal(encode(as_document(report, budgets)).decode()), flush=True)
    elif given.csv:
        print(_csv(report), end="", flush=True)
    elif not report.rows and not any(state.used for state in budgets):
        whose = f" of key {given.key!r}" if given.key else ""
        console.print_note(
            f"moonshim usage: no requests{whose} in this period. Use --since 1y for a longer one, or send requests "
            "through the gateway (`moonshim serve`)."
        )
    else:
        paint = console.Paint(sys.stdout)
        tables = [_table(report, paint) if report.rows else [], _budget_table(budgets, paint) if budgets else []]
        print("\n\n".join("\n".join(lines) for lines in tables if lines), flush=True)
        if books.has_unknown_budgets:
            console.print_note("moonshim usage: budgets are not shown: no configuration was found; pass --config FILE")
    return console.DONE


# -- output ----------------------------------------------------------------------------------------------------------


def _table(report: UsageReport, paint: console.Paint) -> list[str]:
    total = report.total
    lines = [*report.rows, total] if len(report.rows) > 1 else report.rows
    cells = [_cells(row) for row in lines]
    widths = [max(len(head), *(len(line[place]) for line in cells)) for place, head in enumerate(_HEADS)]
    names = [console.safe(_name(row, report.by)) for row in report.rows] + ["total"] * (len(lines) - len(report.rows))
    width, bar, starts = max(len(report.by), *map(_columns, names)), 0, report.by == "session"
    if sys.stdout.isatty():  # in a pipe, names stay whole
        room = min(console.width_of(sys.stdout), 120) - sum(widths) - 2 * len(widths)
        width = max(min(width, room, _LONGEST_NAME), _SHORTEST_NAME)
        starts = starts and room - width >= len(_START) + 2
        bar = min(room - width - (len(_START) + 2 if starts else 0) - 2, _LONGEST_BAR)
        bar = bar if bar >= _SHORTEST_BAR else 0
    weigh, what = _weight(report)
    most = max(map(weigh, report.rows))
    bar = bar if most else 0
    heads = [
        _pad(report.by.upper(), width),
        *(["START".ljust(len(_START))] if starts else []),
        *map(str.rjust, _HEADS, widths),
    ]
    written = [paint.dim(_period(report)), "", paint.bold("  ".join([*heads, what] if bar else heads))]
    for place, (name, row, line) in enumerate(zip(names, lines, cells, strict=True)):
        is_total = place >= len(report.rows)
        start = [" " * len(_START) if is_total else _start(row)] if starts else []
        text = "  ".join([_pad(_cut(name, width), width), *start, *map(str.rjust, line, widths)])
        if is_total:
            text = paint.bold(text)
        elif bar and weigh(row):
            text = f"{text}  {paint.green(_bar(weigh(row), most, bar))}"
        written.append(text.rstrip())
    notes = _notes(report)
    return [*written, "", *map(paint.dim, notes)] if notes else written


def _name(row: UsageRow, by: str) -> str:
    if row.name is None:
        return _NO_NAME
    return row.name.removeprefix(_GENERATED) if by == "session" else row.name


def _start(row: UsageRow) -> str:
    return f"{datetime.fromtimestamp(row.first / 1000, UTC):%m-%d %H:%M}"


def _cut(text: str, columns: int) -> str:
    """The text without its middle if it has more columns.

    >>> _cut("2c0ef08134590b13", 10).replace("…", "~"), _cut("2c0ef08134590b13", 16), _columns(_cut("会话" * 20, 10))
    ('2c0ef~0b13', '2c0ef08134590b13', 9)
    """
    if _columns(text) <= columns:
        return text
    head, tail = columns // 2, (columns - 1) // 2
    start = next(place for place in range(len(text), -1, -1) if _columns(text[:place]) <= head)
    end = next(place for place in range(len(text) + 1) if _columns(text[place:]) <= tail)
    return f"{text[:start]}{_writable('…', '~')}{text[end:]}"


def _budget_table(states: Sequence[BudgetState], paint: console.Paint) -> list[str]:
    rows = [
        (
            console.safe(state.counter.key),
            describe_budget(replace(state.budget, soft=False)),
            state.describe(state.used),
            state.describe(state.left),
            f"{state.ratio:.0%}",
            "never" if state.counter.span.ends is None else f"{state.counter.span.ends:%Y-%m-%d %H:%M}",
            "soft" if state.budget.soft else "hard",
        )
        for state in states
    ]
    heads = ("KEY", "BUDGET", "USED", "LEFT", "USED %", "RESETS", "KIND")
    widths = [max(map(_columns, column)) for column in zip(heads, *rows, strict=True)]
    lines = ["  ".join(map(_pad, row, widths)).rstrip() for row in (heads, *rows)]
    return [paint.bold(lines[0]), *lines[1:]]


def _period(report: UsageReport) -> str:
    since = datetime.fromtimestamp((report.since or 0) / 1000, UTC)
    until = datetime.now(UTC) if report.until is None else datetime.fromtimestamp(report.until / 1000, UTC)
    return f"{since:%Y-%m-%d %H:%M} to {until:%Y-%m-%d %H:%M} UTC"


def _cells(row: UsageRow) -> tuple[str, ...]:
    read = f"{round(100 * row.cache_read_tokens / row.input_tokens)}%" if row.input_tokens else "-"
    return (
        f"{row.requests:,}",
        _short(row.input_tokens),
        read,
        _short(row.cache_write_tokens),
        _short(row.output_tokens),
        _cost(row),
    )


def _cost(row: UsageRow) -> str:
    """In every currency: they are never added up. Unknown is not free, and a request that no host accepted is."""
    if not row.costs:
        return "unknown" if row.unpriced else "-"
    is_more = row.unpriced or row.unpriced_searches
    return (_writable("≥ ", ">= ") if is_more else "") + " + ".join(
        money(cost, one) for one, cost in sorted(row.costs.items())
    )


def _weight(report: UsageReport) -> tuple[Callable[[UsageRow], int], str]:
    """What a bar shows, and its heading: the part of the cost, or tokens if no cost is known."""
    if any(report.total.costs.values()):
        return lambda row: cost_share(row, report.total), "SHARE"
    return lambda row: row.input_tokens + row.output_tokens, "TOKENS"


def _bar(value: int, most: int, columns: int) -> str:
    """The bar, or one of number signs if the terminal's encoding lacks blocks.

    >>> len(_bar(1, 2, 4)), len(_bar(1, 1000, 4)), len(_bar(0, 5, 4)), len(_bar(5, 16, 4))
    (2, 1, 0, 2)
    """
    eighths = max(value * columns * 8 // most, 1 if value else 0)
    blocks = ("█" * (eighths // 8) + _BLOCKS[eighths % 8]).rstrip()
    return _writable(blocks, "#" * ((eighths + 7) // 8))


def _notes(report: UsageReport) -> list[str]:
    notes, total = list[str](), report.total
    if report.unpriced:
        models = [console.safe(model) for model in report.unpriced]
        listed = ", ".join(models[:_MOST_NAMED]) + (" and others" if len(models) > _MOST_NAMED else "")
        notes.append(
            f"{_requests(sum(report.unpriced.values()))} without a known cost: add a price to [prices] for {listed}"
        )
    if missing := total.unpriced_searches:
        searches = f"{missing:,} web search{'' if missing == 1 else 'es'}"
        notes.append(
            f"{searches} without a cost in the currency of the models: set `price` in [web_search], or `search` in "
            "[prices] if the host searches"
        )
    if total.in_flight:
        notes.append(f"{_requests(total.in_flight)} in flight when the gateway was killed: tokens and cost unknown")
    if total.estimated:
        notes.append(f"{_requests(total.estimated)} with estimated tokens: interrupted, or not counted by the host")
    if total.losses:
        reason, count = max(total.losses.items(), key=lambda item: (item[1], item[0]))
        often = f", mostly ({count:,})" if len(total.losses) > 1 else ""
        notes.append(f"{_requests(total.cache_lost)} lost the prompt cache{often}: {console.safe(reason)}")
    return notes


def _requests(count: int) -> str:
    return f"{count:,} request{'' if count == 1 else 's'}"


def _short(number: int) -> str:
    """
    >>> [_short(value) for value in (0, 999, 1234, 12_345, 999_999, 1_234_567, 2_000_000_000)]
    ['0', '999', '1.2k', '12.3k', '1.0M', '1.2M', '2.0G']
    """
    for unit, name in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if number >= unit * 0.99995:
            return f"{number / unit:.1f}{name}"
    return str(number)


def _writable(text: str, plain: str) -> str:
    """The text, or the plain one if the terminal's encoding lacks it."""
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return plain
    return text


def _columns(text: str) -> int:
    from unicodedata import east_asian_width

    return sum(2 if east_asian_width(char) in "WF" else 1 for char in text)


def _pad(text: str, columns: int) -> str:
    return text + " " * (columns - _columns(text))


def _csv(report: UsageReport) -> str:
    """One line per group, and a column for the cost in each currency; empty if nothing of it is known."""
    currencies = sorted(report.total.costs)
    counted = [name for name in UsageRow.__struct_fields__ if name.endswith(("_tokens", "searches"))]
    out = io.StringIO()
    lines = csv.writer(out, lineterminator="\n")
    lines.writerow(
        [
            report.by,
            "requests",
            "in_flight",
            "estimated",
            *counted,
            *(f"cost {one}" for one in currencies),
            "cost_unknown",
        ]
    )
    for row in report.rows:
        costs = [
            "" if row.unpriced and one not in row.costs else decimal_text(row.costs.get(one, 0)) for one in currencies
        ]
        counts = [getattr(row, name) for name in ("requests", "in_flight", "estimated", *counted)]
        lines.writerow([_cell(row.name or ""), *counts, *costs, row.unpriced])
    return out.getvalue()


def _cell(text: str) -> str:
    """Text that neither a spreadsheet nor a terminal runs: clients choose the names of sessions.

    >>> _cell("=1+1"), _cell("alice")
    ("'=1+1", 'alice')
    """
    return console.safe(f"'{text}" if text.startswith(_FORMULA) else text)


# -- arguments -------------------------------------------------------------------------------------------------------


def _time(*, is_end: bool) -> Callable[[str], Callable[[datetime], int]]:
    def read(text: str) -> Callable[[datetime], int]:
        try:
            parse_time(text, datetime.now(UTC), is_end=is_end)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None
        return lambda now: parse_time(text, now, is_end=is_end)

    return read


def _text(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise argparse.ArgumentTypeError("must be valid UTF-8") from None
    return text


def parser() -> console.Parser:
    """The command's arguments."""
    made = console.Parser(
        prog="moonshim usage",
        usage="moonshim usage [--by GROUP] [--since WHEN] [OPTIONS]",
        description="Show the requests that the gateway served, their tokens and what they cost.",
        epilog=_EPILOG,
    )
    what = made.add_argument_group("what to show").add_argument
    what("--by", choices=GROUPINGS, default="day", help="what a line is (default: day)")
    what(
        "--since",
        metavar="WHEN",
        type=_time(is_end=False),
        default=_DEFAULT_SINCE,
        help="start: 30min, 12h, 7d, 3mo, 2026-11-01, 2026-11-01T18:00Z (default: 30d)",
    )
    what("--until", metavar="WHEN", type=_time(is_end=True), help="end, in the same forms; a date is included")
    what("--key", metavar="NAME", type=_text, help="only requests of this gateway key")
    how = made.add_argument_group("output")
    form = how.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="one JSON object, as GET /v1/usage returns it")
    form.add_argument("--csv", action="store_true", help="comma-separated values, safe for spreadsheets")
    source = made.add_argument_group("source").add_mutually_exclusive_group()
    suggest(
        source.add_argument("--config", metavar="FILE", help="configuration file (default: same as `moonshim serve`)"),
        "files",
    )
    suggest(
        source.add_argument("--file", metavar="PATH", help="usage database, without budgets (default: see below)"),
        "files",
    )
    return made
