"""The models of a provider, and the cells of the host table that it sets -> names and checked cells."""

from __future__ import annotations

from functools import cache
from typing import Any, Final, TypeAlias

from moonshim.config.tables.table import Table
from moonshim.engine.hosts.detect import profile_for
from moonshim.engine.hosts.profile import HostProfile
from moonshim.engine.request.extra_body import check_extra_body
from moonshim.errors import InvalidInput

__all__ = ["cell_names", "read_body", "read_cells", "read_models"]

_ROW_CELLS: Final = frozenset({"host", "dialect"})
"""Cells that are keys of the provider itself."""


Fields: TypeAlias = dict[str, Any]


def read_models(table: Table) -> tuple[tuple[str, ...], dict[str, Fields], dict[str, Fields]]:
    """The names, the cells that single models have, and the fields that are merged into their requests."""
    cells: dict[str, Fields] = {}
    bodies: dict[str, Fields] = {}
    for place, one in enumerate(table.elements("models")):
        path = (*table.at("models"), place)
        name, own, body = _read_model(one) if isinstance(one, Table) else (one, {}, {})
        if not isinstance(name, str) or not name.strip():
            if not isinstance(one, Table):
                table.problems.add(path, "this must be the name of a model, or a table with its `id`")
        elif name in cells:
            table.problems.add(path, f"`{name}` is there twice")
        else:
            cells[name], bodies[name] = own, body
    return tuple(cells), _without_empty(cells), _without_empty(bodies)


def _without_empty(by_model: dict[str, Fields]) -> dict[str, Fields]:
    return {name: own for name, own in by_model.items() if own}


def _read_model(table: Table) -> tuple[str | None, Fields, Fields]:
    name, cells, body = table.text("id", also=("name",)), read_cells(table), read_body(table)
    if "id" not in table and "name" not in table:
        table.problems.add(table.path, "a model needs an `id`")
    table.close(more=cell_names())
    return name, cells, body


def read_body(table: Table) -> Fields:
    """The fields under `body`, which are merged into requests."""
    body = table.any_value("body")
    if body is None:
        return {}
    try:
        check_extra_body(body, "body")
    except InvalidInput as error:
        place = f"{error.field}: " if error.field not in (None, "body") else ""
        table.error("body", f"{place}{error}")
        return {}
    return dict(body)


def read_cells(table: Table) -> dict[str, Any]:
    """The cells that a table sets, by their names or under `cells`."""
    given = {name: (table.any_value(name), table.at(name)) for name in cell_names() if name in table}
    if (inner := table.table("cells")) is not None:
        given |= {name: (inner.any_value(name), inner.at(name)) for name in inner}
    cells: dict[str, Any] = {}
    for name, (value, path) in given.items():
        if name in _ROW_CELLS:
            table.problems.add(path, f"`{name}` is a key of the provider, not a cell")
            continue
        try:
            profile_for(model="kimi-k3", host="generic", overrides={name: value})
        except InvalidInput as error:
            table.problems.add(path, str(error))
        else:
            cells[name] = value
    return cells


@cache
def cell_names() -> tuple[str, ...]:
    """The cells of the host table that a provider can set."""
    return tuple(name for name in HostProfile.__struct_fields__ if name not in _ROW_CELLS)
