"""`moonshim simulate faults`, `scenarios`, `models`, …: the available choices, as a table or as JSON."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

from moonshim.cli import console
from moonshim.cli.suggest import suggest

__all__ = ["main", "names_in", "parser"]

Row: TypeAlias = dict[str, Any]
_LEAST_WIDTH: Final = 40
_GROUPS: Final = {
    "leaks": ": tool calls in the text or the reasoning (slot-…: with an unusual id)",
    "frames": ": how the stream is divided into events and writes",
    "answers": ": not the JSON or the call that the request demands",
    "messages": ": streams of the Messages API",
    "endings": ": finish reasons, usage, and the end of the stream",
}
_HOW_TO_USE_FAULTS: Final = (
    "Add one to a model name: kimi-k3+cut-off. `moonshim simulate faults WORD` lists only those that contain WORD."
)


def parser(which: str) -> console.Parser:
    """The arguments of the action that prints this table."""
    made = console.Parser(
        prog=f"moonshim simulate {which}",
        usage=f"moonshim simulate {which} [--json] [WORD]",
        description=_TABLES[which][1],
    )
    suggest(
        made.add_argument("word", nargs="?", metavar="WORD", help="list only entries that contain this word"),
        names=lambda: names_in(which),
    )
    made.add_argument("--json", action="store_true", help="print a JSON list of objects")
    return made


def main(argv: Sequence[str]) -> int:
    """Print one of the tables; return the exit code. The first argument is its name."""
    which, *rest = argv
    given = parser(which).parse_args(rest)
    rows = [row for row in _TABLES[which][0]() if given.word is None or _has(row, given.word)]
    if given.json:
        import msgspec

        print(msgspec.json.format(msgspec.json.encode(rows)).decode(), flush=True)
        return console.DONE
    if not rows:
        console.print_note(f"moonshim simulate {which}: no entry contains {console.safe(given.word)!r}")
        return console.FAILED
    _print(rows)
    if which == "faults":
        print(f"\n{_HOW_TO_USE_FAULTS}", flush=True)
    return console.DONE


def names_in(which: str) -> list[str]:
    """The names in one of the tables."""
    return [row["name"] for row in _TABLES[which][0]()]


def _has(row: Row, word: str) -> bool:
    return any(word.lower() in str(value).lower() for value in row.values())


def _print(rows: list[Row]) -> None:
    """Each row: its name, its description, and where it was observed; in groups, if the table has any."""
    paint = console.Paint(sys.stdout)
    names = max(len(row["name"]) for row in rows)
    width = max(console.width_of(sys.stdout) - names - 4, _LEAST_WIDTH)
    group = None
    for row in rows:
        if row.get("group") != group:
            print(("" if group is None else "\n") + paint.bold(group := row["group"]) + _GROUPS.get(group, ""))
        seen = f" ({row['seen']})" if row.get("seen") else ""
        first, *others = textwrap.wrap(f"{row['about']}{seen}", width) or [""]
        print(f"  {paint.green(row['name'].ljust(names))}  {first}")
        for line in others:
            print(f"  {'':{names}}  {line}")
    sys.stdout.flush()


def _faults() -> list[Row]:
    from moonshim.simulator.faults import FAULTS

    fields = ("name", "group", "about", "seen", "wires", "families", "ways", "needs", "fatal")
    groups = dict.fromkeys(fault.group for fault in FAULTS.values())
    in_groups = [fault for group in groups for fault in FAULTS.values() if fault.group == group]
    return [{field: getattr(fault, field) for field in fields} for fault in in_groups]


def _scenarios() -> list[Row]:
    from moonshim.simulator.model.scenario import BUILT_IN

    return [{"name": name, "about": about} for name, about in BUILT_IN.items()]


def _models() -> list[Row]:
    from moonshim.simulator.host.models import MODELS, generation_of

    generations = {name: generation_of(name) for name in MODELS}
    return [
        {
            "name": name,
            "generation": generation,
            "about": "not a Kimi model" if generation == "other" else f"Kimi, generation {generation}",
        }
        for name, generation in generations.items()
    ]


def _behaviours() -> list[Row]:
    from moonshim.simulator.host.behaviours import BEHAVIOURS

    return [{"name": behaviour.name, "about": behaviour.about} for behaviour in BEHAVIOURS.values()]


def _assumptions() -> list[Row]:
    from moonshim.simulator.settings import ASSUMPTIONS

    return [{"name": name, "about": about} for name, about in ASSUMPTIONS.items()]


_TABLES: Final[dict[str, tuple[Callable[[], list[Row]], str]]] = {
    "faults": (
        _faults,
        (
            "List the faults. Request one after the model name (kimi-k3+NAME), in the\n"
            "x-moonshim-simulate header, or for every response with --fault."
        ),
    ),
    "scenarios": (
        _scenarios,
        (
            "List the scenarios of the scripted model. Select one with --scenario NAME, or\n"
            "after the model name (kimi-k3+NAME)."
        ),
    ),
    "models": (_models, "List the models. Other spellings work too: moonshotai/Kimi-K2.5, k3, …"),
    "behaviours": (_behaviours, "List the hosts that the simulator can emulate. Select one with --as NAME."),
    "assumptions": (
        _assumptions,
        "List rules that the real API may have but that are unproven. Enforce one with\n--assume NAME.",
    ),
}
