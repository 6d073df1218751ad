"""`moonshim simulate faults`, `scenarios`, `models`, …: the available choices, as a table or as JSON."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

from moonshim.cli import console

__all__ = ["main"]

Row: TypeAlias = dict[str, Any]
_LEAST_WIDTH: Final = 40


def main(argv: Sequence[str]) -> int:
    """Print one of the tables; return the exit code. The first argument is its name."""
    which, *rest = argv
    rows_of, about = _TABLES[which]
    parser = console.Parser(
        prog=f"moonshim simulate {which}", usage=f"moonshim simulate {which} [--json] [WORD]", description=about
    )
    parser.add_argument("word", nargs="?", metavar="WORD", help="only what has this word in it")
    parser.add_argument("--json", action="store_true", help="a list of objects, for programs")
    given = parser.parse_args(rest)
    rows = [row for row in rows_of() if given.word is None or _has(row, given.word)]
    if given.json:
        import msgspec

        print(msgspec.json.format(msgspec.json.encode(rows)).decode(), flush=True)
        return console.DONE
    if not rows:
        console.print_note(f"moonshim simulate {which}: nothing here has {console.safe(given.word)!r} in it")
        return console.FAILED
    _print(rows)
    return console.DONE


def _has(row: Row, word: str) -> bool:
    return any(word.lower() in str(value).lower() for value in row.values())


def _print(rows: list[Row]) -> None:
    """Each row: its name, its description, and where it was seen; grouped where there are groups."""
    paint = console.Paint(sys.stdout)
    names = max(len(row["name"]) for row in rows)
    width = max(console.width_of(sys.stdout) - names - 4, _LEAST_WIDTH)
    group = None
    for row in rows:
        if row.get("group") != group:
            print(("" if group is None else "\n") + paint.bold(group := row["group"]))
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
            "about": "a model that is no Kimi" if generation == "other" else f"a Kimi of the generation {generation}",
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
        "All faults. Ask for one after a model's name (kimi-k2.5+NAME), in the header or with --fault.",
    ),
    "scenarios": (_scenarios, "What the scripted model can play: --scenario NAME, or behind a model's name."),
    "models": (_models, "The models. Other spellings work too: moonshotai/Kimi-K2.5, k3, …"),
    "behaviours": (_behaviours, "The hosts that the simulator can emulate: --as NAME."),
    "assumptions": (_assumptions, "Unproven rules that the real API may have: --assume NAME."),
}
