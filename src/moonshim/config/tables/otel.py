"""`[otel]` -> where traces are sent, and whether they contain text."""

from __future__ import annotations

from moonshim.config.model import OtelExport
from moonshim.config.tables.providers import address_fault, read_headers
from moonshim.config.tables.table import Table

__all__ = ["read_otel"]


def read_otel(table: Table | None) -> OtelExport | None:
    """None without the table: an empty one turns traces on."""
    if table is None:
        return None
    endpoint, headers = table.text("endpoint"), read_headers(table)
    service_name, text = table.text("service_name"), table.flag("text")
    table.close()
    if endpoint is not None and (wrong := address_fault(endpoint)):
        table.error("endpoint", wrong)
    return OtelExport(endpoint=endpoint, headers=headers, service_name=service_name, text=text is True)
