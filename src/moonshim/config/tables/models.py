"""The models of a provider, and the profile fields that it overrides -> names and checked overrides."""

from __future__ import annotations

from functools import cache
from typing import Any, Final, TypeAlias

from moonshim.config.tables.table import Table
from moonshim.engine.hosts.detect import profile_for
from moonshim.engine.hosts.profile import HostProfile
from moonshim.engine.request.extra_body import check_extra_body
from moonshim.errors import InvalidInput

__all__ = ["override_names", "read_body", "read_models", "read_overrides"]

_ROW_CELLS: Final = frozenset({"host", "dialect"})
"""Profile fields that are keys of the provider itself."""


Fields: TypeAlias = dict[str, Any]


def read_models(table: Table) -> tuple[tuple[str, ...], dict[str, Fields], dict[str, Fields]]:
    """The names, the overrides for single models, and the fields that are merged into their requests."""
    overrides: dict[str, Fields] = {}
    bodies: dict[str, Fields] = {}
    for place, one in enumerate(table.elements("models")):
        path = (*table.at("models"), place)
        name, own, body = _read_model(one) if isinstance(one, Table) else (one, {}, {})
        if not isinstance(name, str) or not name.strip():
            if not isinstance(one, Table):
                table.problems.add(path, "expected a model name, or a table with an `id`")
        elif name in overrides:
            table.problems.add(path, f"duplicate model '{name}'")
        else:
            overrides[name], bodies[name] = own, body
    return tuple(overrides), _without_empty(overrides), _without_empty(bodies)


def _without_empty(by_model: dict[str, Fields]) -> dict[str, Fields]:
    return {name: own for name, own in by_model.items() if own}


def _read_model(table: Table) -> tuple[str | None, Fields, Fields]:
    name, overrides, body = table.text("id", also=("name",)), read_overrides(table), read_body(table)
    if "id" not in table and "name" not in table:
        table.problems.add(table.path, "`id` is required")
    table.close(more=override_names())
    return name, overrides, body


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


def read_overrides(table: Table) -> dict[str, Any]:
    """The profile fields that a table sets, by their names or under `overrides`."""
    given = {name: (table.any_value(name), table.at(name)) for name in override_names() if name in table}
    if (inner := table.table("cells")) is not None:
        given |= {name: (inner.any_value(name), inner.at(name)) for name in inner}
    overrides: dict[str, Any] = {}
    for name, (value, path) in given.items():
        if name in _ROW_CELLS:
            table.problems.add(path, f"set `{name}` on the provider; it is not a host profile field")
            continue
        try:
            profile_for(model="kimi-k3", host="generic", overrides={name: value})
        except InvalidInput as error:
            table.problems.add(path, str(error))
        else:
            overrides[name] = value
    return overrides


@cache
def override_names() -> tuple[str, ...]:
    """The profile fields that a provider can override."""
    return tuple(name for name in HostProfile.__struct_fields__ if name not in _ROW_CELLS)
