"""Run real agents and frameworks through the gateway against a simulated host that misbehaves, one tool loop each.

`built-in` runs the features that agents have built in: web search, documents, structured output, large tool schemas.

`make test-clients` installs Node, the clients and the agent frameworks in `.clients/` and runs them one after another.
`ARGS` accepts parts of names (`ARGS="codex agno"`) and `--case NAME`. The files of each run are in `.clients/runs/`.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from tests.clients.built_in.every_built_in import BUILT_IN
from tests.clients.built_in.feature import BuiltIn
from tests.clients.built_in.run import run_built_in
from tests.clients.cases import CASES, Case
from tests.clients.client import Client
from tests.clients.every_client import CLIENTS
from tests.clients.framework import FRAMEWORK_CASES, FRAMEWORKS, Framework, Way
from tests.clients.framework_runs import Run, run_framework
from tests.clients.install import (
    FRAMEWORKS_PINNED,
    CannotInstall,
    Node,
    find_node,
    install,
    install_framework,
    install_launched,
    version_of,
    version_of_launched,
)
from tests.clients.launch.every_launched import LAUNCHED
from tests.clients.launch.launched import Launched
from tests.clients.launch.run import LAUNCH_CASES, LaunchCase, run_launch
from tests.clients.run import run

WIDTH: Final = 80
"""Of the widest column; the full text was printed during the run."""


class Row(Struct, frozen=True, kw_only=True):
    """One line of the table."""

    name: str
    version: str
    dialect: str
    case: str = ""
    result: str
    straight: str = ""
    seen: str


def main(arguments: Sequence[str]) -> int:
    given = _parser().parse_args(arguments)
    clients = [client for client in CLIENTS if _is_wanted(client.name, given.names)]
    cases = [case for case in CASES if _is_wanted(case.name, given.case)]
    ways = {one.name: [way for way in one.ways if _is_wanted(_named(one, way), given.names)] for one in FRAMEWORKS}
    frameworks = [one for one in FRAMEWORKS if ways[one.name]]
    framework_cases = [case for case in FRAMEWORK_CASES if _is_wanted(case.name, given.case)]
    launched = [client for client in LAUNCHED if _is_wanted(f"launch {client.name}", given.names)]
    launch_cases = [case for case in LAUNCH_CASES if _is_wanted(case.name, given.case)]
    built_in = [one for one in BUILT_IN if _is_wanted(one.name, given.names)]
    built_in = [one for one in built_in if _is_wanted(one.feature.name, given.case)]
    if (
        not (clients and cases)
        and not built_in
        and not (frameworks and framework_cases)
        and not (launched and launch_cases)
    ):
        known = [*(one.name for one in CLIENTS), *(one.name for one in FRAMEWORKS)]
        known += [f"launch {one.name}" for one in LAUNCHED]
        known += dict.fromkeys(one.name for one in BUILT_IN)
        known += dict.fromkeys(case.name for case in (*CASES, *FRAMEWORK_CASES, *LAUNCH_CASES))
        known += dict.fromkeys(one.feature.name for one in BUILT_IN)
        print("unknown name; choose from", ", ".join(known), file=sys.stderr)
        return 2
    begun = time.monotonic()
    rows = _rows(clients, cases) if clients and cases else []
    rows += _built_in_rows(built_in)
    rows += _launch_rows(launched, launch_cases) if launched and launch_cases else []
    for framework in frameworks if framework_cases else ():
        rows += _framework_rows(framework, framework_cases, ways[framework.name])
    _print_table(rows)
    passed, failed = (sum(row.result == word for row in rows) for word in ("ok", "FAILED"))
    skipped = [row.name for row in rows if row.result == "skipped"]
    if skipped:
        print(f"\nNOT TESTED, because the installation failed: {', '.join(skipped)}")
    print(f"\n{passed} passed, {failed} failed, {len(skipped)} skipped\n({time.monotonic() - begun:.0f} s)")
    return 1 if failed or not passed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make test-clients", description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("names", nargs="*", help="parts of client or framework names (default: all)")
    parser.add_argument(
        "--case", action="append", default=[], help="part of a case name; can be repeated (default: all cases)"
    )
    return parser


def _is_wanted(name: str, parts: Sequence[str]) -> bool:
    return not parts or any(part.lower() in name.lower() for part in parts)


def _rows(clients: Sequence[Client], cases: Sequence[Case]) -> list[Row]:
    try:
        node = find_node()
    except CannotInstall as error:
        return [_skipped(client, f"Node is not available: {error}") for client in clients]
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
    return Row(name=client.name, version=version_of(client), dialect=client.dialect, result="skipped", seen=reason)


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
    return Row(
        name=client.name,
        version=version_of(client),
        dialect=client.dialect,
        case=case.shown,
        result=result,
        straight=straight,
        seen=seen,
    )


def _built_in_rows(features: Sequence[BuiltIn]) -> list[Row]:
    """One row for each feature of a client."""
    rows: list[Row] = []
    for one in features:
        client, feature = one.client, one.feature
        row = Row(
            name=one.name, version=version_of(client), dialect=client.dialect, case=feature.name, result="", seen=""
        )
        try:
            node = find_node()
            outcome = run_built_in(one, node, install(client, node))
        except CannotInstall as error:
            _say(f"{one.name}, {feature.name}: NOT TESTED: {error}")
            rows.append(replace(row, result="skipped", seen=str(error)))
            continue
        result = "FAILED" if outcome.problems else "ok"
        _say(f"{one.name}, {feature.name}: {result} ({outcome.seconds:.1f} s)", *outcome.problems)
        rows.append(replace(row, result=result, seen="; ".join(outcome.problems) or outcome.seen))
    return rows


def _launch_rows(clients: Sequence[Launched], cases: Sequence[LaunchCase]) -> list[Row]:
    """One row for each client that `moonshim launch` starts, and each way to end it."""
    rows: list[Row] = []
    for client in clients:
        name, version = f"launch {client.name}", version_of_launched(client)
        _say(f"{name} {version}")
        try:
            programs = install_launched(client, find_node())
        except CannotInstall as error:
            _say(f"  NOT TESTED: {error}")
            rows.append(Row(name=name, version=version, dialect="", result="skipped", seen=str(error)))
            continue
        for case in filter(lambda case: case.fits(client), cases):
            outcome = run_launch(client, case, programs)
            result = "FAILED" if outcome.problems else "ok"
            _say(f"  {case.name}: {result} ({outcome.seconds:.1f} s)", *outcome.problems)
            seen = "; ".join(outcome.problems) or outcome.seen
            rows.append(Row(name=name, version=version, dialect="", case=case.name, result=result, seen=seen))
    return rows


def _framework_rows(framework: Framework, cases: Sequence[Case], ways: Sequence[Way]) -> list[Row]:
    """One row for each way to call the model: all cases, and which of them failed."""
    version = next(iter(FRAMEWORKS_PINNED[framework.name].values()))
    _say(f"{framework.name} {version}")
    try:
        python = install_framework(framework.name)
    except CannotInstall as error:
        _say(f"  NOT TESTED: {error}")
        return [Row(name=framework.name, version=version, dialect="", result="skipped", seen=str(error))]
    runs: dict[Way, list[Run]] = {way: [] for way in ways}
    begun = time.monotonic()
    for run_ in run_framework(framework, python, cases, ways):
        runs[run_.way].append(run_)
        if run_.problems:
            _say(f"  {run_.way.dialect}, {run_.way.mode}, {run_.case.name}: FAILED", *run_.problems)
    _say(f"  {sum(map(len, runs.values()))} runs ({time.monotonic() - begun:.1f} s)")
    return [_framework_row(framework, version, way, runs[way]) for way in ways]


def _framework_row(framework: Framework, version: str, way: Way, runs: Sequence[Run]) -> Row:
    failed = [run_ for run_ in runs if run_.problems]
    seen = "; ".join(f"{run_.case.name}: {run_.problems[0]}" for run_ in failed)
    unable = [f"; without {case}: {why}" for (one, case), why in framework.unable.items() if one == way]
    return Row(
        name=_named(framework, way),
        version=version,
        dialect=way.dialect,
        case=f"{len(runs)} cases",
        result="FAILED" if failed else "ok",
        seen=(seen or f"{len(runs)} runs with 4 calls each") + "".join(unable),
    )


def _named(framework: Framework, way: Way) -> str:
    return f"{framework.name}, {way.dialect}, {way.mode}"


def _worst(problems: Sequence[str]) -> str:
    """The problem that explains most: that the host refused a request, then that markers reached the user."""
    ranked = sorted(problems, key=lambda one: ("refused" not in one, "reached" not in one))
    return ranked[0]


def _say(line: str, *more: str) -> None:
    print("\n    ".join([line, *more]), flush=True)


def _print_table(rows: Sequence[Row]) -> None:
    head = ("client", "version", "dialect", "host and faults", "result", "without Moonshim", "details")
    lines: list[tuple[str, ...]] = [head]
    for row in rows:
        cells = (row.name, row.version, row.dialect, row.case, row.result, row.straight, row.seen)
        lines.append(tuple(_shortened(cell) for cell in cells))
    widths = [max(len(line[column]) for line in lines) for column in range(len(head) - 1)]
    print()
    for at, line in enumerate(lines):
        print("  ".join([*(cell.ljust(width) for cell, width in zip(line, widths, strict=False)), line[-1]]))
        if at == 0:
            print("  ".join(["-" * width for width in widths] + ["-" * 7]))


def _shortened(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= WIDTH else f"{text[: WIDTH - 1]}…"


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
