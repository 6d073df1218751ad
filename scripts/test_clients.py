"""The real agents of our users -> one tool loop each through the gateway, before a simulated host that misbehaves.

`make test-clients` installs Node and the clients under `.clients/` and runs them one after another. `ARGS` takes parts
of names (`ARGS="codex kimi"`) and `--case NAME`. What a run left behind stands under `.clients/runs/`.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct

from tests.clients.cases import CASES, Case
from tests.clients.client import Client
from tests.clients.every_client import CLIENTS
from tests.clients.install import CannotInstall, Node, find_node, install, version_of
from tests.clients.run import run

WIDTH: Final = 56
"""Of the widest cell; the whole text was told when it happened."""


class Row(Struct, frozen=True, kw_only=True):
    """One line of the table."""

    client: Client
    case: Case | None
    """None: it could not be installed."""
    result: str
    straight: str = ""
    seen: str


def main(arguments: Sequence[str]) -> int:
    given = _parser().parse_args(arguments)
    clients = [client for client in CLIENTS if _is_wanted(client.name, given.names)]
    cases = [case for case in CASES if _is_wanted(case.name, given.case)]
    if not clients or not cases:
        known = [client.name for client in CLIENTS] + [case.name for case in CASES]
        print("nothing is called that; there are", ", ".join(known), file=sys.stderr)
        return 2
    begun = time.monotonic()
    rows = list(_rows(clients, cases))
    _print_table(rows)
    passed, failed = (sum(row.result == word for row in rows) for word in ("ok", "FAILED"))
    skipped = [row.client.name for row in rows if row.case is None]
    if skipped:
        print(f"\nNOT TESTED, since they could not be installed: {', '.join(skipped)}")
    print(f"\n{passed} passed, {failed} failed, {len(skipped)} skipped\n({time.monotonic() - begun:.0f} s)")
    return 1 if failed or not passed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make test-clients", description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("names", nargs="*", help="parts of the names of clients; none: all")
    parser.add_argument("--case", action="append", default=[], help="part of the name of a case; may be repeated")
    return parser


def _is_wanted(name: str, parts: Sequence[str]) -> bool:
    return not parts or any(part.lower() in name.lower() for part in parts)


def _rows(clients: Sequence[Client], cases: Sequence[Case]) -> list[Row]:
    try:
        node = find_node()
    except CannotInstall as error:
        return [_skipped(client, f"no Node: {error}") for client in clients]
    rows: list[Row] = []
    for client in clients:
        _say(f"{client.name} {version_of(client)}")
        try:
            installed = install(client, node)
        except CannotInstall as error:
            rows.append(_skipped(client, str(error)))
            continue
        rows += [_tested(client, case, node, installed) for case in cases]
    return rows


def _skipped(client: Client, reason: str) -> Row:
    _say(f"  NOT TESTED: {reason}")
    return Row(client=client, case=None, result="skipped", seen=reason)


def _tested(client: Client, case: Case, node: Node, installed: Path) -> Row:
    outcome = run(client, case, node, installed)
    result = "FAILED" if outcome.problems else "ok"
    _say(f"  {case.name}: {result} ({outcome.seconds:.1f} s)", *outcome.problems)
    if client.dialect == "responses":
        straight = "no such endpoint"
    else:
        without = run(client, case, node, installed, straight=True)
        straight = f"breaks: {_worst(without.problems)}" if without.problems else "survives"
        _say(f"  {case.name}, without Moonshim: {straight} ({without.seconds:.1f} s)")
    seen = "; ".join(outcome.problems) or outcome.seen
    return Row(client=client, case=case, result=result, straight=straight, seen=seen)


def _worst(problems: Sequence[str]) -> str:
    """What tells most of why it broke: that the host refused it, then that markers were seen."""
    ranked = sorted(problems, key=lambda one: ("refused" not in one, "reached" not in one))
    return ranked[0]


def _say(line: str, *more: str) -> None:
    print("\n    ".join([line, *more]), flush=True)


def _print_table(rows: Sequence[Row]) -> None:
    head = ("client", "version", "dialect", "host and faults", "result", "without Moonshim", "what was seen")
    lines: list[tuple[str, ...]] = [head]
    for row in rows:
        case = row.case.shown if row.case else ""
        cells = (row.client.name, version_of(row.client), row.client.dialect, case, row.result, row.straight, row.seen)
        lines.append(tuple(_shortened(cell) for cell in cells))
    widths = [max(len(line[column]) for line in lines) for column in range(len(head) - 1)]
    print()
    for at, line in enumerate(lines):
        print("  ".join([*(cell.ljust(width) for cell, width in zip(line, widths, strict=False)), line[-1]]))
        if at == 0:
            print("  ".join(["-" * width for width in widths] + ["-" * 13]))


def _shortened(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= WIDTH else f"{text[: WIDTH - 1]}…"


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
