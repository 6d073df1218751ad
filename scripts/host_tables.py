"""The host table -> the tables of docs/hosts.md, written into it between two marks.

Run it after a change of the table: `python -m scripts.host_tables`. A test compares the two.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import NoneType
from typing import Any, Final, Literal, TypeAlias, get_args, get_origin, get_type_hints

from moonshim.engine.hosts import profile as cells_module
from moonshim.engine.hosts.detect import profile_for
from moonshim.engine.hosts.profile import Fixed, HostProfile
from moonshim.engine.hosts.table import GENERATIONS, HOSTS

Shown: TypeAlias = dict[str, dict[str, str]]
"""By generation, by cell: the value as people read it."""

PAGE: Final = Path(__file__).resolve().parent.parent / "docs" / "hosts.md"
BEGIN: Final = "<!-- made by scripts/host_tables.py: begin -->\n"
END: Final = "<!-- made by scripts/host_tables.py: end -->\n"
_KEYS: Final = ("host", "generation", "dialect")
_CELLS: Final = tuple(name for name in HostProfile.__struct_fields__ if name not in _KEYS)
_KIMI: Final = tuple(name for name in GENERATIONS if name != "other")
_SPOKEN: Final = {"openai_chat": "Chat", "anthropic": "Messages"}
_PLAIN: Final = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "yes, no",
    NoneType: "–",
    Fixed: "fixed values",
}
"""What a value is that is not one of certain words."""


def main() -> None:
    before, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
    PAGE.write_text(before + BEGIN + tables() + END + rest.partition(END)[2], "utf-8")


def tables() -> str:
    """Everything between the marks."""
    parts = [
        "\n## What each cell means\n\n",
        _table(["cell", "meaning", "can be", "models that are not a Kimi"], _meanings()),
        "\n## Generations\n\nAt a host that nobody knows (`generic`), over Chat.\n\n",
        _by_generation(_row("generic", "openai_chat"), None),
        "\nOver Messages, where that is different:\n\n",
        _by_generation(_row("generic", "anthropic"), _row("generic", "openai_chat")),
        "\n## Hosts\n\nOnly what is different from `generic`; a dot where it is not.\n",
        *(_host(host) for host in HOSTS if host != "generic"),
    ]
    return "".join(parts) + "\n"


def _host(host: str) -> str:
    out = f"\n### {host}\n"
    for dialect, name in _SPOKEN.items():
        if profile_for(host=host, model="", upstream=dialect).host != host:
            continue
        if host == "moonshot-anthropic" and dialect == "openai_chat":
            continue
        table = _by_generation(_row(host, dialect), _row("generic", dialect))
        out += f"\nOver {name}:\n\n{table}" if table else f"\nOver {name}: as `generic`.\n"
    return out


def _row(host: str, dialect: str) -> Shown:
    rows = {name: profile_for(host=host, model="", upstream=dialect, overrides={"generation": name}) for name in _KIMI}
    return {name: {cell: shown(getattr(row, cell)) for cell in _CELLS} for name, row in rows.items()}


def _by_generation(row: Shown, usual: Shown | None) -> str:
    """Cells down, generations across; generations with the same values share a column."""
    columns: dict[tuple[str, ...], list[str]] = {}
    for generation in _KIMI:
        values = tuple(
            "·" if usual is not None and row[generation][cell] == usual[generation][cell] else row[generation][cell]
            for cell in _CELLS
        )
        columns.setdefault(values, []).append(generation)
    lines, plain = [], profile_for(model="")
    for place, cell in enumerate(_CELLS):
        same = "·" if usual is not None else shown(getattr(plain, cell))
        if any(column[place] != same for column in columns):
            lines.append([f"`{cell}`", *(column[place] for column in columns)])
    return _table(["cell", *(", ".join(names) for names in columns.values())], lines) if lines else ""


def _meanings() -> list[list[str]]:
    """The docstrings below the fields, which only the source has."""
    tree = ast.parse(Path(cells_module.__file__).read_text("utf-8"))
    body = next(node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "HostProfile")
    plain, kinds = profile_for(model=""), get_type_hints(HostProfile) | {"host": Literal[HOSTS]}
    return [
        [
            f"`{name}`",
            " ".join(text.split()).replace("|", "\\|"),
            values(kinds[name]),
            "" if name in _KEYS else shown(getattr(plain, name)),
        ]
        for name, text in _documented(body)
    ]


def values(kind: Any) -> str:
    """What a cell of this type can be, as people read it."""
    inner = get_args(kind)
    match get_origin(kind):
        case None:
            return _PLAIN[kind]
        case origin if origin is Literal:
            return ", ".join(map(shown, inner))
        case origin if origin is frozenset:
            return f"any of {values(inner[0])}"
        case origin if origin is dict:
            return f"{values(inner[0])} → {values(inner[1])}"
        case origin if origin is tuple:
            return " × ".join(map(values, inner))
    return ", ".join(map(values, inner))


def _documented(body: list[ast.stmt]) -> Iterator[tuple[str, str]]:
    for field, about in pairwise(body):
        match field, about:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                yield name, text


def shown(value: Any) -> str:
    """A value as people read it."""
    match value:
        case None:
            return "–"
        case bool():
            return "yes" if value else "no"
        case int() | float():
            return f"{value:,}"
        case str():
            return f"`{value}`" if value.strip() else f'`"{value}"`'
        case Fixed(thinking=on, plain=off):
            return _numbers(on) if on == off else f"{_numbers(on)} (not thinking: {_numbers(off)})"
        case dict():
            joint = " " if any(isinstance(inner, Fixed) for inner in value.values()) else " → "
            pairs = [(key, shown(inner)) for key, inner in value.items()]
            return ", ".join(key + joint + inner.strip("`") for key, inner in pairs) or "–"
        case frozenset():
            return ", ".join(sorted(value)) or "none"
        case _:
            return " × ".join(map(str, value))


def _numbers(values: tuple[float, ...]) -> str:
    return " or ".join(f"{value:g}" for value in values)


def _table(head: list[str], lines: list[list[str]]) -> str:
    return "".join(f"| {' | '.join(line)} |\n" for line in [head, ["---"] * len(head), *lines])


if __name__ == "__main__":
    main()
